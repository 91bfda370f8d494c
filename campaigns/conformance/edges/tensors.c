/* Tensor maps: tiled, im2col and wide im2col; types, ranks, sizes, strides, boxes, alignments, and what changes the
 * map. */
#include "ask.h"

typedef struct {
  int type, rank, interleave, swizzle, l2, oob, mode;
  CUdeviceptr at;
  cuuint64_t dim[6], stride[6];
  cuuint32_t box[6], step[6], channels, pixels;
  int low[5], high[5], wlow, whigh;
} Map;
static CUdeviceptr at_;
static CUtensorMap made_;

static Map base(int rank) {
  Map m;
  SET(m);
  m.type = CU_TENSOR_MAP_DATA_TYPE_FLOAT32, m.rank = rank, m.at = at_;
  cuuint64_t stride = 4;
  for (int i = 0; i < 6; i++) {
    m.dim[i] = i < 2 ? 64 : 8, m.box[i] = i < 2 ? 8 : 2, m.step[i] = 1;
    stride *= m.dim[i], m.stride[i] = stride;
  }
  m.channels = 16, m.pixels = 32;
  for (int i = 0; i < 5; i++) m.low[i] = 0, m.high[i] = 0;
  return m;
}
static int tiled(Map m) {
  memset(&made_, 0x5a, sizeof made_);
  return cuTensorMapEncodeTiled(&made_, m.type, m.rank, (void *)m.at, m.dim, m.stride, m.box, m.step, m.interleave,
                                m.swizzle, m.l2, m.oob);
}
static int im2col(Map m) {
  memset(&made_, 0x5a, sizeof made_);
  return cuTensorMapEncodeIm2col(&made_, m.type, m.rank, (void *)m.at, m.dim, m.stride, m.low, m.high, m.channels,
                                 m.pixels, m.step, m.interleave, m.swizzle, m.l2, m.oob);
}
static int wide(Map m) {
  memset(&made_, 0x5a, sizeof made_);
  return cuTensorMapEncodeIm2colWide(&made_, m.type, m.rank, (void *)m.at, m.dim, m.stride, m.wlow, m.whigh, m.channels,
                                     m.pixels, m.step, m.interleave, m.mode, m.swizzle, m.l2, m.oob);
}
static int encode(int kind, Map m) { return kind == 0 ? tiled(m) : kind == 1 ? im2col(m) : wide(m); }
static const char *const kinds[] = {"tiled", "im2col", "wide"};

static unsigned long long address_[16]; /* the bits of a map that an address changes */
static void prepare(void) {
  alarm(10);
  DO(cuMemAlloc(&at_, 64 * MIB));
  Map m = base(3);
  m.at = (CUdeviceptr)1 << 32;
  DO(tiled(m));
  CUtensorMap first = made_;
  for (int b = 8; b < 49; b++) {
    m.at = ((CUdeviceptr)1 << 32) ^ ((CUdeviceptr)1 << b);
    if (!tiled(m))
      for (int i = 0; i < 16; i++) address_[i] |= ((unsigned long long *)&first)[i] ^ ((unsigned long long *)&made_)[i];
  }
}
/* The map without its address. */
static const char *words(int code) {
  if (code) return W("untouched %d", ((unsigned char *)&made_)[0] == 0x5a && ((unsigned char *)&made_)[127] == 0x5a);
  unsigned long long q[16];
  memcpy(q, &made_, sizeof q);
  for (int i = 0; i < 16; i++) q[i] &= ~address_[i];
  return W("%llx %llx %llx %llx %llx %llx %llx %llx", q[0], q[1], q[2], q[3], q[4], q[5], q[6], q[7]);
}
#define Q(text, kind, m)                \
  do {                                  \
    int code = encode(kind, m);         \
    ASK(text, code, "%s", words(code)); \
  } while (0)

static void types(void) {
  prepare();
  for (int k = 0; k < 3; k++)
    for (int t = -1; t <= 16; t++) {
      Map m = base(4);
      m.type = t;
      Q(W("%s type %d", kinds[k], t), k, m);
    }
  for (int t = 13; t <= 15; t++)
    for (int s = 0; s <= 6; s++) {
      Map m = base(3);
      m.type = t, m.dim[0] = 256, m.stride[0] = 256, m.stride[1] = 256 * 64, m.stride[2] = 256 * 512, m.box[0] = 128,
      m.swizzle = s;
      Q(W("packed %d swizzle %d", t, s), 0, m);
    }
}

static void ranks(void) {
  prepare();
  for (int k = 0; k < 3; k++)
    for (int r = 0; r <= 6; r++)
      for (int i = 0; i <= 3; i++) {
        Map m = base(r > 5 ? 5 : r);
        m.rank = r, m.interleave = i;
        Q(W("%s rank %d interleave %d", kinds[k], r, i), k, m);
      }
}

static void places(void) {
  prepare();
  static const int offsets[] = {1, 2, 4, 8, 16, 32, 48, 64, 128};
  for (int k = 0; k < 2; k++)
    for (int i = 0; i <= 2; i++)
      for (int o = 0; o < 9; o++) {
        Map m = base(4);
        m.at += offsets[o], m.interleave = i;
        int code = encode(k, m);
        ASK(W("%s at %d interleave %d", kinds[k], offsets[o], i), code);
      }
  Map m = base(3);
  m.at = 0;
  ASK("at NULL", tiled(m));
  static float local[64] __attribute__((aligned(128)));
  m.at = (CUdeviceptr)local;
  ASK("at ordinary memory", tiled(m));
  m.at = (CUdeviceptr)1 << 48;
  ASK("at 2^48", tiled(m));
  m.at = (CUdeviceptr)1 << 57;
  ASK("at 2^57", tiled(m));
  m.at = ~(CUdeviceptr)255;
  ASK("at the top", tiled(m));
  m = base(3);
  CUtensorMap t;
  DO(tiled(m));
  t = made_;
  for (int o = 0; o < 9; o++)
    ASK(W("replace by %d", offsets[o]), cuTensorMapReplaceAddress(&t, (void *)(at_ + offsets[o])), "%d",
        memcmp(&t, &made_, sizeof t) != 0);
  ASK("replace by NULL", cuTensorMapReplaceAddress(&t, NULL));
  ASK("replace by the same", cuTensorMapReplaceAddress(&t, (void *)at_), "%d", memcmp(&t, &made_, sizeof t) != 0);
  SET(t);
  ASK("replace in zeros", cuTensorMapReplaceAddress(&t, (void *)at_));
  RISK("replace in NULL", cuTensorMapReplaceAddress(NULL, (void *)at_));
  struct {
    char pad[128];
    CUtensorMap map[2];
  } big;
  for (int o = 0; o <= 64; o += o ? o : 1) {
    m = base(3);
    CUtensorMap *at = (CUtensorMap *)((char *)big.map + o);
    RISK(W("a map at offset %d", o),
         cuTensorMapEncodeTiled(at, m.type, m.rank, (void *)m.at, m.dim, m.stride, m.box, m.step, 0, 0, 0, 0));
  }
}

static void sizes(void) {
  prepare();
  static const cuuint64_t dims[] = {
      0, 1, 2, 3, 100, 65536, (cuuint64_t)1 << 32, ((cuuint64_t)1 << 32) + 1, (cuuint64_t)1 << 40};
  for (int k = 0; k < 2; k++)
    for (int i = 0; i < 9; i++)
      for (int at = 0; at < 3; at += 1 + k) {
        Map m = base(4);
        m.dim[at] = dims[i];
        ASK(W("%s dimension %d of %llx", kinds[k], at, (unsigned long long)dims[i]), encode(k, m));
      }
  static const cuuint64_t strides[] = {0,
                                       4,
                                       16,
                                       24,
                                       32,
                                       48,
                                       256,
                                       4096,
                                       (cuuint64_t)1 << 39,
                                       ((cuuint64_t)1 << 40) - 16,
                                       (cuuint64_t)1 << 40,
                                       (cuuint64_t)1 << 50};
  for (int i = 0; i < 12; i++)
    for (int at = 0; at < 3; at++)
      for (int il = 0; il <= 2; il += 2) {
        Map m = base(4);
        m.stride[at] = strides[i], m.interleave = il;
        ASK(W("stride %d of %llx interleave %d", at, (unsigned long long)strides[i], il), tiled(m));
      }
}

static void boxes(void) {
  prepare();
  static const cuuint32_t boxes[] = {0, 1, 2, 3, 4, 8, 16, 32, 64, 65, 128, 256, 257};
  for (int i = 0; i < 13; i++)
    for (int at = 0; at < 2; at++) {
      Map m = base(3);
      m.dim[0] = m.dim[1] = 1024, m.stride[0] = 4096, m.stride[1] = 4096 * 1024, m.box[at] = boxes[i];
      Q(W("box %d of %u", at, boxes[i]), 0, m);
    }
  for (cuuint32_t s = 0; s <= 10; s++)
    for (int at = 0; at < 2; at++) {
      Map m = base(3);
      m.step[at] = s;
      Q(W("step %d of %u", at, s), 0, m);
      ASK(W("im2col's step %d of %u", at, s), im2col((m = base(4), m.step[at] = s, m)));
    }
  for (int s = -1; s <= 7; s++)
    for (int i = 0; i <= 2; i++)
      for (cuuint32_t b = 4; b <= 64; b *= 2) {
        Map m = base(3);
        m.swizzle = s, m.interleave = i, m.box[0] = b;
        ASK(W("swizzle %d interleave %d box %u", s, i, b), tiled(m));
      }
  for (int l = -1; l <= 4; l++) {
    Map m = base(3);
    m.l2 = l;
    Q(W("promotion %d", l), 0, m);
  }
  for (int o = -1; o <= 2; o++)
    for (int t = 0; t <= 12; t += 2) {
      Map m = base(3);
      m.oob = o, m.type = t;
      ASK(W("fill %d type %d", o, t), tiled(m));
    }
}

static void corners(void) {
  prepare();
  static const int values[] = {-32769, -32768, -129, -128, -17, -16, -1, 0, 1, 15, 16, 127, 128, 32767, 32768};
  for (int r = 3; r <= 5; r++)
    for (int i = 0; i < 15; i++) {
      Map m = base(r);
      m.low[0] = values[i];
      ASK(W("low %d rank %d", values[i], r), im2col(m));
      m = base(r), m.high[0] = values[i];
      ASK(W("high %d rank %d", values[i], r), im2col(m));
      if (r > 3) continue;
      m = base(r), m.wlow = values[i];
      ASK(W("wide low %d", values[i]), wide(m));
    }
  static const cuuint32_t many[] = {0, 1, 4, 16, 64, 255, 256, 257, 1024, 1025};
  for (int k = 1; k < 3; k++)
    for (int i = 0; i < 10; i++) {
      Map m = base(4);
      m.channels = many[i];
      ASK(W("%s channels %u", kinds[k], many[i]), encode(k, m));
      m = base(4), m.pixels = many[i];
      ASK(W("%s pixels %u", kinds[k], many[i]), encode(k, m));
    }
  for (int mode = -1; mode <= 2; mode++)
    for (int s = 0; s <= 6; s++) {
      Map m = base(4);
      m.mode = mode, m.swizzle = s;
      ASK(W("mode %d swizzle %d", mode, s), wide(m));
    }
}

static void nulls(void) {
  prepare();
  Map m = base(4);
  CUtensorMap *t = &made_;
  RISK("tiled into NULL",
       cuTensorMapEncodeTiled(NULL, m.type, 4, (void *)at_, m.dim, m.stride, m.box, m.step, 0, 0, 0, 0));
  RISK("tiled without sizes",
       cuTensorMapEncodeTiled(t, m.type, 4, (void *)at_, NULL, m.stride, m.box, m.step, 0, 0, 0, 0));
  RISK("tiled without strides",
       cuTensorMapEncodeTiled(t, m.type, 4, (void *)at_, m.dim, NULL, m.box, m.step, 0, 0, 0, 0));
  RISK("tiled without strides, rank 1",
       cuTensorMapEncodeTiled(t, m.type, 1, (void *)at_, m.dim, NULL, m.box, m.step, 0, 0, 0, 0));
  RISK("tiled without a box",
       cuTensorMapEncodeTiled(t, m.type, 4, (void *)at_, m.dim, m.stride, NULL, m.step, 0, 0, 0, 0));
  RISK("tiled without steps",
       cuTensorMapEncodeTiled(t, m.type, 4, (void *)at_, m.dim, m.stride, m.box, NULL, 0, 0, 0, 0));
  RISK("im2col into NULL", cuTensorMapEncodeIm2col(NULL, m.type, 4, (void *)at_, m.dim, m.stride, m.low, m.high, 16, 32,
                                                   m.step, 0, 0, 0, 0));
  RISK("im2col without sizes",
       cuTensorMapEncodeIm2col(t, m.type, 4, (void *)at_, NULL, m.stride, m.low, m.high, 16, 32, m.step, 0, 0, 0, 0));
  RISK("im2col without a low corner",
       cuTensorMapEncodeIm2col(t, m.type, 4, (void *)at_, m.dim, m.stride, NULL, m.high, 16, 32, m.step, 0, 0, 0, 0));
  RISK("im2col without a high corner",
       cuTensorMapEncodeIm2col(t, m.type, 4, (void *)at_, m.dim, m.stride, m.low, NULL, 16, 32, m.step, 0, 0, 0, 0));
  RISK("wide into NULL",
       cuTensorMapEncodeIm2colWide(NULL, m.type, 4, (void *)at_, m.dim, m.stride, 0, 0, 16, 32, m.step, 0, 0, 0, 0, 0));
  RISK("wide without sizes",
       cuTensorMapEncodeIm2colWide(t, m.type, 4, (void *)at_, NULL, m.stride, 0, 0, 16, 32, m.step, 0, 0, 0, 0, 0));
  DO(cuCtxSetCurrent(NULL));
  ASK("none current", tiled(m));
}

static void cold(void) {
  alarm(10);
  at_ = 4096;
  ASK("tiled before cuInit", tiled(base(3)));
  ASK("im2col before cuInit", im2col(base(4)));
  DO(cuInit(0));
  ASK("tiled without a context", tiled(base(3)));
  CUtensorMap t;
  SET(t);
  ASK("replace without a context", cuTensorMapReplaceAddress(&t, (void *)at_));
}

CASES RUN(types) RUN(ranks) RUN(places) RUN(sizes) RUN(boxes) RUN(corners) RUN(nulls) RUN_COLD(cold) END
