/* Tensor maps: every bound that the comments name. */
#include "ask.h"

static CUdeviceptr d;
static CUtensorMap map __attribute__((aligned(64)));
typedef struct {
  CUtensorMapDataType type;
  unsigned rank;
  CUdeviceptr base;
  cuuint64_t dim[6], stride[6];
  cuuint32_t box[6], step[6];
  int interleave, swizzle, promotion, fill;
} Tiled;

static Tiled good(void) {
  Tiled t = {CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
             2,
             d,
             {64, 64, 4, 4, 4, 4},
             {256, 16384, 65536, 262144, 1048576, 1},
             {16, 16, 1, 1, 1, 1},
             {1, 1, 1, 1, 1, 1},
             0,
             0,
             0,
             0};
  return t;
}
static CUresult tiled(Tiled t) {
  return cuTensorMapEncodeTiled(&map, t.type, t.rank, (void *)t.base, t.dim, t.stride, t.box, t.step, t.interleave,
                                t.swizzle, t.promotion, t.fill);
}

static void tiles(void) {
  DO(cuMemAlloc(&d, 16 * MIB));
  Tiled t;
  ASK("plain", tiled(good()));
  for (int type = 0; type <= 16; type++) {
    t = good(), t.type = type;
    ASK(W("type %d", type), tiled(t));
  }
  for (int rank = 0; rank <= 6; rank++) {
    t = good(), t.rank = rank;
    ASK(W("rank %d", rank), tiled(t));
  }
  for (int i = 0; i <= 4; i++)
    for (int s = 0; s <= 7; s++) {
      t = good(), t.interleave = i, t.swizzle = s, t.rank = 3, t.box[0] = 8;
      if (i == 1) t.type = CU_TENSOR_MAP_DATA_TYPE_UINT8, t.box[0] = 16;
      ASK(W("interleave %d, swizzle %d", i, s), tiled(t));
    }
  for (int s = 0; s <= 7; s++)
    for (unsigned box = 4; box <= 64; box *= 2) {
      t = good(), t.swizzle = s, t.box[0] = box;
      ASK(W("swizzle %d, box %u", s, box), tiled(t));
    }
  for (int p = 0; p <= 4; p++) {
    t = good(), t.promotion = p;
    ASK(W("promotion %d", p), tiled(t));
  }
  for (int f = 0; f <= 2; f++)
    for (int type = 2; type <= 7; type += 5) {
      t = good(), t.fill = f, t.type = type;
      ASK(W("fill %d of type %d", f, type), tiled(t));
    }
  cuuint64_t offsets[] = {1, 4, 8, 16, 32};
  for (int i = 0; i < 5; i++) {
    t = good(), t.base = d + offsets[i];
    ASK(W("base + %llu", (unsigned long long)offsets[i]), tiled(t));
  }
  cuuint64_t sizes[] = {0, 1, (cuuint64_t)1 << 32, ((cuuint64_t)1 << 32) + 1};
  for (int i = 0; i < 4; i++) {
    t = good(), t.dim[1] = sizes[i];
    ASK(W("dimension of %llu", (unsigned long long)sizes[i]), tiled(t));
  }
  cuuint64_t strides[] = {0, 8, 16, 24, 128, 240, (cuuint64_t)1 << 39, (cuuint64_t)1 << 40, ((cuuint64_t)1 << 40) - 16};
  for (int i = 0; i < 9; i++) {
    t = good(), t.stride[0] = strides[i];
    ASK(W("stride of %llu", (unsigned long long)strides[i]), tiled(t));
  }
  t = good(), t.rank = 3, t.stride[1] = 128;
  ASK("a stride below the one before", tiled(t));
  cuuint32_t boxes[] = {0, 1, 2, 3, 4, 255, 256, 257};
  for (int i = 0; i < 8; i++) {
    t = good(), t.box[0] = boxes[i];
    ASK(W("inner box of %u", boxes[i]), tiled(t));
    t = good(), t.box[1] = boxes[i];
    ASK(W("outer box of %u", boxes[i]), tiled(t));
  }
  cuuint32_t steps[] = {0, 1, 2, 8, 9, 16};
  for (int i = 0; i < 6; i++) {
    t = good(), t.step[1] = steps[i];
    ASK(W("step of %u", steps[i]), tiled(t));
    t = good(), t.step[0] = steps[i];
    ASK(W("inner step of %u", steps[i]), tiled(t));
  }
  t = good(), t.base = 0;
  ASK("base 0", tiled(t));
  t = good();
  RISK("rank 1 without strides",
       cuTensorMapEncodeTiled(&map, t.type, 1, (void *)d, t.dim, NULL, t.box, t.step, 0, 0, 0, 0));
  RISK("rank 2 without strides",
       cuTensorMapEncodeTiled(&map, t.type, 2, (void *)d, t.dim, NULL, t.box, t.step, 0, 0, 0, 0));
  RISK("without dimensions",
       cuTensorMapEncodeTiled(&map, t.type, 2, (void *)d, NULL, t.stride, t.box, t.step, 0, 0, 0, 0));
  RISK("without a box", cuTensorMapEncodeTiled(&map, t.type, 2, (void *)d, t.dim, t.stride, NULL, t.step, 0, 0, 0, 0));
  RISK("without steps", cuTensorMapEncodeTiled(&map, t.type, 2, (void *)d, t.dim, t.stride, t.box, NULL, 0, 0, 0, 0));
  RISK("into NULL", cuTensorMapEncodeTiled(NULL, t.type, 2, (void *)d, t.dim, t.stride, t.box, t.step, 0, 0, 0, 0));
  RISK("into what is not aligned", cuTensorMapEncodeTiled((CUtensorMap *)((char *)&map + 8), t.type, 2, (void *)d,
                                                          t.dim, t.stride, t.box, t.step, 0, 0, 0, 0));
  static char host[4096] __attribute__((aligned(64)));
  t = good(), t.base = (CUdeviceptr)host;
  ASK("host memory", tiled(t));
  t.base = 0x12340;
  ASK("an address that is not memory", tiled(t));
  DO(tiled(good()));
  ASK("replace the address", cuTensorMapReplaceAddress(&map, (void *)(d + 1024)));
  for (int i = 0; i < 4; i++)
    ASK(W("replace by base + %llu", (unsigned long long)offsets[i]),
        cuTensorMapReplaceAddress(&map, (void *)(d + offsets[i])));
  RISK("replace by NULL", cuTensorMapReplaceAddress(&map, NULL));
  RISK("replace in NULL", cuTensorMapReplaceAddress(NULL, (void *)d));
  memset(&map, 0, sizeof map);
  ASK("replace in zeros", cuTensorMapReplaceAddress(&map, (void *)d));
}

static void images(void) {
  DO(cuMemAlloc(&d, 16 * MIB));
  cuuint64_t dim[] = {64, 32, 32, 4, 4}, stride[] = {128, 4096, 131072, 524288};
  cuuint32_t step[] = {1, 1, 1, 1, 1};
  int lower[] = {0, 0, 0}, upper[] = {0, 0, 0};
  for (int rank = 1; rank <= 6; rank++)
    ASK(W("rank %d", rank),
        cuTensorMapEncodeIm2col(&map, 6, rank, (void *)d, dim, stride, lower, upper, 32, 16, step, 0, 0, 0, 0));
  for (int channels = 0; channels <= 512; channels = channels ? channels * 4 : 1)
    ASK(W("channels %d", channels),
        cuTensorMapEncodeIm2col(&map, 6, 4, (void *)d, dim, stride, lower, upper, channels, 16, step, 0, 0, 0, 0));
  int pixels[] = {0, 1, 1024, 1025};
  for (int i = 0; i < 4; i++)
    ASK(W("pixels %d", pixels[i]),
        cuTensorMapEncodeIm2col(&map, 6, 4, (void *)d, dim, stride, lower, upper, 32, pixels[i], step, 0, 0, 0, 0));
  int corners[] = {-129, -128, 127, 128};
  for (int i = 0; i < 4; i++) {
    lower[0] = corners[i];
    ASK(W("lower corner %d", corners[i]),
        cuTensorMapEncodeIm2col(&map, 6, 4, (void *)d, dim, stride, lower, upper, 32, 16, step, 0, 0, 0, 0));
    lower[0] = 0, upper[0] = corners[i];
    ASK(W("upper corner %d", corners[i]),
        cuTensorMapEncodeIm2col(&map, 6, 4, (void *)d, dim, stride, lower, upper, 32, 16, step, 0, 0, 0, 0));
    upper[0] = 0;
  }
  for (int s = 0; s <= 6; s++)
    ASK(W("swizzle %d", s),
        cuTensorMapEncodeIm2col(&map, 6, 4, (void *)d, dim, stride, lower, upper, 16, 16, step, 0, s, 0, 0));
  for (int mode = 0; mode <= 3; mode++)
    for (int s = 0; s <= 6; s += 3)
      ASK(W("wide, mode %d, swizzle %d", mode, s),
          cuTensorMapEncodeIm2colWide(&map, 6, 4, (void *)d, dim, stride, 0, 0, 32, 16, step, 0, mode, s, 0, 0));
  RISK("lower NULL",
       cuTensorMapEncodeIm2col(&map, 6, 4, (void *)d, dim, stride, NULL, upper, 32, 16, step, 0, 0, 0, 0));
  RISK("upper NULL",
       cuTensorMapEncodeIm2col(&map, 6, 4, (void *)d, dim, stride, lower, NULL, 32, 16, step, 0, 0, 0, 0));
}

CASES RUN(tiles) RUN(images) END
