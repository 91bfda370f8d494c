/* Copies of two and three dimensions between every pair of memories, with their errors, and sets of rows. */
#include "ask.h"

/* One call and then another: the first that fails tells. */
#define THEN(a, b)                         \
  ({                                       \
    int one_ = (int)(a), two_ = (int)(b);  \
    one_ ? one_ : two_ ? 10000 + two_ : 0; \
  })

static CUdeviceptr d, e, m;
static CUarray a, b, deep;
static unsigned char *h, plain[4096];
static void fill(void) {
  for (int i = 0; i < 4096; i++) h[i] = i * 5 + 1, plain[i] = i * 3 + 2;
  DO(cuMemsetD8(d, 0xd0, 4096));
  DO(cuMemsetD8(e, 0xe0, 4096));
  DO(cuMemsetD8(m, 0x30, 4096));
  CUDA_MEMCPY2D c;
  SET(c);
  c.srcMemoryType = CU_MEMORYTYPE_HOST, c.srcHost = h, c.srcPitch = 32, c.dstMemoryType = CU_MEMORYTYPE_ARRAY,
  c.dstArray = a, c.WidthInBytes = 32, c.Height = 16;
  DO(cuMemcpy2D(&c));
  c.srcHost = plain, c.dstArray = b;
  DO(cuMemcpy2D(&c));
  DO(cuCtxSynchronize());
}
static void prepare(void) {
  void *p;
  CUDA_ARRAY_DESCRIPTOR x = {32, 16, CU_AD_FORMAT_UNSIGNED_INT8, 1};
  CUDA_ARRAY3D_DESCRIPTOR y = {32, 8, 4, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0};
  DO(cuMemAlloc(&d, 4096));
  DO(cuMemAlloc(&e, 4096));
  DO(cuMemAllocManaged(&m, 4096, CU_MEM_ATTACH_GLOBAL));
  DO(cuMemAllocHost(&p, 4096));
  h = p;
  DO(cuArrayCreate(&a, &x));
  DO(cuArrayCreate(&b, &x));
  DO(cuArray3DCreate(&deep, &y));
  fill();
}
static const char *const names[] = {"pageable", "pinned", "device", "managed", "array", "unified"};
static CUDA_MEMCPY2D two(int from, int to, size_t w, size_t hh) {
  CUDA_MEMCPY2D c;
  SET(c);
  c.srcMemoryType = from < 2    ? CU_MEMORYTYPE_HOST
                    : from == 4 ? CU_MEMORYTYPE_ARRAY
                    : from == 5 ? CU_MEMORYTYPE_UNIFIED
                                : CU_MEMORYTYPE_DEVICE;
  c.dstMemoryType = to < 2    ? CU_MEMORYTYPE_HOST
                    : to == 4 ? CU_MEMORYTYPE_ARRAY
                    : to == 5 ? CU_MEMORYTYPE_UNIFIED
                              : CU_MEMORYTYPE_DEVICE;
  c.srcHost = from ? h : plain, c.srcDevice = from == 3 ? m : d, c.srcArray = a, c.srcPitch = 64;
  c.dstHost = to ? h + 2048 : plain + 2048, c.dstDevice = (to == 3 ? m : e) + (to == 3 ? 2048 : 0), c.dstArray = b,
  c.dstPitch = 96;
  c.WidthInBytes = w, c.Height = hh;
  return c;
}
static unsigned sum(int to) {
  unsigned s = 0;
  static unsigned char back[4096];
  if (to == 4) {
    CUDA_MEMCPY2D c;
    SET(c);
    c.srcMemoryType = CU_MEMORYTYPE_ARRAY, c.srcArray = b, c.dstMemoryType = CU_MEMORYTYPE_HOST, c.dstHost = back,
    c.dstPitch = 32, c.WidthInBytes = 32, c.Height = 16;
    memset(back, 0, sizeof back);
    DO(cuMemcpy2D(&c));
  } else if (to < 2) memcpy(back, to ? h : plain, 4096);
  else DO(cuMemcpyDtoH(back, to == 3 ? m : e, 4096));
  for (int i = 0; i < 4096; i++) s = s * 31 + back[i];
  return s;
}

static void pairs(void) {
  prepare();
  CUstream s;
  DO(cuStreamCreate(&s, 0));
  for (int from = 0; from < 6; from++)
    for (int to = 0; to < 6; to++) {
      CUDA_MEMCPY2D c = two(from, to, 24, 5);
      fill();
      ASK(W("%s to %s", names[from], names[to]), cuMemcpy2D(&c), "%x", sum(to));
      c.srcXInBytes = 4, c.dstXInBytes = 8, c.srcY = 1, c.dstY = 2, c.Height = 4, c.WidthInBytes = 17;
      fill();
      ASK(W("%s to %s with offsets", names[from], names[to]), cuMemcpy2DUnaligned(&c), "%x", sum(to));
      fill();
      ASK(W("%s to %s in a stream", names[from], names[to]), THEN(cuMemcpy2DAsync(&c, s), cuStreamSynchronize(s)), "%x",
          sum(to));
    }
}

static void flat_errors(void) {
  prepare();
  static const struct {
    const char *words;
    int from, to;
    size_t w, h, sp, dp, sx, dx, sy, dy;
  } all[] = {{"no width", 2, 2, 0, 4, 64, 64, 0, 0, 0, 0},
             {"no height", 2, 2, 16, 0, 64, 64, 0, 0, 0, 0},
             {"pitch of the source less than the width", 2, 2, 32, 4, 16, 64, 0, 0, 0, 0},
             {"pitch of the destination less than the width", 2, 2, 32, 4, 64, 16, 0, 0, 0, 0},
             {"no pitches, one row", 2, 2, 32, 1, 0, 0, 0, 0, 0, 0},
             {"no pitches, two rows", 2, 2, 32, 2, 0, 0, 0, 0, 0, 0},
             {"pitch less than offset and width", 2, 2, 32, 2, 40, 64, 16, 0, 0, 0},
             {"beyond the device", 2, 2, 64, 65, 64, 64, 0, 0, 0, 0},
             {"the last row beyond the pitch", 2, 2, 32, 32, 128, 128, 0, 0, 0, 0},
             {"source beyond by its rows", 2, 2, 32, 2, 64, 64, 0, 0, 64, 0},
             {"array beyond its width", 4, 2, 33, 1, 0, 64, 0, 0, 0, 0},
             {"array beyond its height", 4, 2, 8, 17, 0, 64, 0, 0, 0, 0},
             {"array at its right", 4, 2, 8, 1, 0, 64, 24, 0, 0, 0},
             {"array at its right and beyond", 4, 2, 9, 1, 0, 64, 24, 0, 0, 0},
             {"array at its bottom", 4, 2, 8, 1, 0, 64, 0, 0, 15, 0},
             {"array below", 4, 2, 8, 1, 0, 64, 0, 0, 16, 0},
             {"into an array beyond its width", 2, 4, 33, 1, 64, 0, 0, 0, 0, 0},
             {"into an array below", 2, 4, 8, 2, 64, 0, 0, 0, 0, 15},
             {"a pitch that is odd", 2, 2, 16, 4, 17, 19, 0, 0, 0, 0},
             {"a pitch beyond the most", 2, 2, 16, 1, (size_t)1 << 33, 64, 0, 0, 0, 0}};
  for (unsigned i = 0; i < sizeof all / sizeof all[0]; i++) {
    CUDA_MEMCPY2D c = two(all[i].from, all[i].to, all[i].w, all[i].h);
    c.srcPitch = all[i].sp, c.dstPitch = all[i].dp, c.srcXInBytes = all[i].sx, c.dstXInBytes = all[i].dx,
    c.srcY = all[i].sy, c.dstY = all[i].dy;
    ASK(all[i].words, cuMemcpy2D(&c));
    ASK(W("%s, unaligned", all[i].words), cuMemcpy2DUnaligned(&c), "%d", cuCtxSynchronize());
  }
  for (int t = 0; t < 7; t++) {
    CUDA_MEMCPY2D c = two(2, 2, 16, 2);
    if (t == 3 || t == 1 || t == 4) continue;
    c.srcMemoryType = t;
    ASK(W("source of type %d", t), cuMemcpy2D(&c));
    c = two(2, 2, 16, 2), c.dstMemoryType = t;
    ASK(W("destination of type %d", t), cuMemcpy2D(&c));
  }
  CUDA_MEMCPY2D c = two(2, 2, 16, 2);
  c.srcDevice = 0;
  ASK("from 0", cuMemcpy2D(&c));
  c = two(2, 2, 16, 2), c.dstDevice = (CUdeviceptr)(uintptr_t)plain;
  ASK("to the stack as a device", cuMemcpy2D(&c));
  c = two(5, 2, 16, 2), c.srcDevice = (CUdeviceptr)(uintptr_t)plain;
  ASK("from pageable as unified", cuMemcpy2D(&c), "%x", sum(2));
  c = two(2, 2, 16, 2), c.dstDevice = d + 8;
  ASK("over itself", cuMemcpy2D(&c));
  RISK("nothing to copy by", cuMemcpy2D(NULL));
  c = two(4, 2, 16, 2), c.srcArray = NULL;
  RISK("no array", cuMemcpy2D(&c));
}

static void deep_copies(void) {
  prepare();
  CUDA_MEMCPY3D c;
  static unsigned char back[4096];
  for (int kind = 0; kind < 5; kind++)
    for (int offs = 0; offs < 2; offs++) {
      SET(c);
      c.srcMemoryType = kind < 2 ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE, c.srcHost = kind ? h : plain,
      c.srcDevice = kind == 3 ? m : d, c.srcPitch = 40, c.srcHeight = 9;
      if (kind == 4) c.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
      c.dstMemoryType = CU_MEMORYTYPE_ARRAY, c.dstArray = deep, c.WidthInBytes = 20, c.Height = 5, c.Depth = 3;
      if (offs) c.dstXInBytes = 8, c.dstY = 2, c.dstZ = 1, c.srcZ = 1, c.srcY = 2, c.srcXInBytes = 3;
      fill();
      ASK(W("into depth from %s, offsets %d", names[kind == 4 ? 5 : kind], offs), cuMemcpy3D(&c));
      CUDA_MEMCPY3D o;
      SET(o);
      memset(back, 0, sizeof back);
      o.srcMemoryType = CU_MEMORYTYPE_ARRAY, o.srcArray = deep, o.dstMemoryType = CU_MEMORYTYPE_HOST, o.dstHost = back,
      o.dstPitch = 32, o.dstHeight = 8, o.WidthInBytes = 32, o.Height = 8, o.Depth = 4;
      if (offs == 0 && kind == 0) {
        static unsigned char zero[1024];
        CUDA_MEMCPY3D z = o;
        z.srcMemoryType = CU_MEMORYTYPE_HOST, z.srcHost = zero, z.srcPitch = 32, z.srcHeight = 8,
        z.dstMemoryType = CU_MEMORYTYPE_ARRAY, z.dstArray = deep, z.dstPitch = z.dstHeight = 0;
        DO(cuMemcpy3D(&z));
        DO(cuMemcpy3D(&c));
      }
      ASK(W("out of depth after %s, offsets %d", names[kind == 4 ? 5 : kind], offs), cuMemcpy3D(&o), "%d %d %d %d",
          back[0], back[19], back[256 + 2 * 32 + 8], back[3 * 256 + 6 * 32 + 27]);
    }
  static const struct {
    const char *words;
    size_t w, hh, z, pitch, height, sx, sy, sz;
  } all[] = {{"no width", 0, 4, 2, 32, 8, 0, 0, 0},
             {"no height", 8, 0, 2, 32, 8, 0, 0, 0},
             {"no depth", 8, 4, 0, 32, 8, 0, 0, 0},
             {"height less than rows", 8, 8, 2, 32, 4, 0, 0, 0},
             {"no height of layers", 8, 4, 2, 32, 0, 0, 0, 0},
             {"no pitch", 8, 4, 2, 0, 8, 0, 0, 0},
             {"short pitch", 8, 4, 2, 4, 8, 0, 0, 0},
             {"depth beyond the array", 8, 4, 5, 32, 8, 0, 0, 0},
             {"width beyond the array", 33, 4, 1, 64, 8, 0, 0, 0},
             {"height beyond the array", 8, 9, 1, 32, 9, 0, 0, 0},
             {"depth beyond the memory", 8, 8, 4, 256, 8, 0, 0, 0},
             {"one layer without its height", 8, 4, 1, 32, 0, 0, 0, 0},
             {"an offset beyond the memory", 8, 4, 1, 32, 8, 0, 0, 16},
             {"rows and an offset beyond a layer", 8, 6, 1, 32, 8, 0, 4, 0}};
  for (unsigned i = 0; i < 14; i++) {
    SET(c);
    c.srcMemoryType = CU_MEMORYTYPE_DEVICE, c.srcDevice = d, c.srcPitch = all[i].pitch, c.srcHeight = all[i].height,
    c.dstMemoryType = CU_MEMORYTYPE_ARRAY, c.dstArray = deep;
    c.WidthInBytes = all[i].w, c.Height = all[i].hh, c.Depth = all[i].z, c.srcXInBytes = all[i].sx, c.srcY = all[i].sy,
    c.srcZ = all[i].sz;
    ASK(all[i].words, cuMemcpy3D(&c), "%d", cuCtxSynchronize());
  }
  SET(c);
  c.srcMemoryType = c.dstMemoryType = CU_MEMORYTYPE_DEVICE, c.srcDevice = d, c.dstDevice = e,
  c.srcPitch = c.dstPitch = 32, c.srcHeight = c.dstHeight = 8, c.WidthInBytes = 8, c.Height = 2, c.Depth = 2;
  ASK("good", cuMemcpy3D(&c), "%x", sum(2));
  c.srcLOD = 1;
  ASK("a level of the source", cuMemcpy3D(&c));
  c.srcLOD = 0, c.reserved0 = &c;
  ASK("a reserved word", cuMemcpy3D(&c));
  CUDA_MEMCPY3D_PEER p;
  SET(p);
  p.srcMemoryType = p.dstMemoryType = CU_MEMORYTYPE_DEVICE, p.srcDevice = d, p.dstDevice = e,
  p.srcPitch = p.dstPitch = 64, p.srcHeight = p.dstHeight = 8, p.WidthInBytes = 8, p.Height = 2, p.Depth = 2;
  ASK("as to a peer without contexts", cuMemcpy3DPeer(&p), "%d", cuCtxSynchronize());
  p.srcContext = p.dstContext = context;
  ASK("as to a peer", THEN(cuMemcpy3DPeer(&p), cuCtxSynchronize()), "%x", sum(2));
  ASK("a peer's line", THEN(cuMemcpyPeer(e, context, d, context, 64), cuCtxSynchronize()), "%x", sum(2));
}

static void lines(void) {
  prepare();
  CUdeviceptr at[] = {(CUdeviceptr)(uintptr_t)plain, (CUdeviceptr)(uintptr_t)h, d, m};
  CUdeviceptr to[] = {(CUdeviceptr)(uintptr_t)plain + 2048, (CUdeviceptr)(uintptr_t)h + 2048, e, m + 2048};
  for (int from = 0; from < 4; from++)
    for (int into = 0; into < 4; into++) {
      fill();
      ASK(W("%s to %s", names[from], names[into]), THEN(cuMemcpy(to[into], at[from], 100), cuCtxSynchronize()), "%x",
          sum(into));
      ASK(W("%s to %s as devices", names[from], names[into]), cuMemcpyDtoD(to[into], at[from], 100), "%d",
          cuCtxSynchronize());
    }
  static const size_t n[] = {0, 1, 4095, 4096, 4097};
  for (int i = 0; i < 5; i++) {
    static unsigned char back[8192];
    ASK(W("%zu out", n[i]), cuMemcpyDtoH(back, d, n[i]));
    ASK(W("%zu in", n[i]), cuMemcpyHtoD(d, back, n[i]));
    ASK(W("%zu across", n[i]), cuMemcpyDtoD(e, d, n[i]));
    ASK(W("%zu of bytes", n[i]), cuMemsetD8(d, 1, n[i]));
    ASK(W("%zu of shorts", n[i]), cuMemsetD16(d, 0x203, n[i] / 2));
    ASK(W("%zu of words", n[i]), cuMemsetD32(d, 0x4050607, n[i] / 4));
  }
  for (int o = 1; o < 4; o++) {
    ASK(W("shorts at %d", o), cuMemsetD16(d + o, 1, 4));
    ASK(W("words at %d", o), cuMemsetD32(d + o, 1, 4));
  }
  static const size_t rows[][3] = {{64, 16, 4}, {64, 64, 64}, {64, 65, 2}, {0, 16, 1},  {0, 16, 4},
                                   {63, 16, 4}, {66, 16, 4},  {64, 0, 4},  {64, 16, 0}, {64, 16, 65}};
  for (int i = 0; i < 10; i++) {
    fill();
    ASK(W("rows of bytes %zu %zu %zu", rows[i][0], rows[i][1], rows[i][2]),
        THEN(cuMemsetD2D8(e, rows[i][0], 7, rows[i][1], rows[i][2]), cuCtxSynchronize()), "%x", sum(2));
    ASK(W("rows of shorts %zu %zu %zu", rows[i][0], rows[i][1], rows[i][2]),
        THEN(cuMemsetD2D16(e, rows[i][0], 0x809, rows[i][1] / 2, rows[i][2]), cuCtxSynchronize()), "%x", sum(2));
    ASK(W("rows of words %zu %zu %zu", rows[i][0], rows[i][1], rows[i][2]),
        THEN(cuMemsetD2D32(e, rows[i][0], 0xa0b0c0d, rows[i][1] / 4, rows[i][2]), cuCtxSynchronize()), "%x", sum(2));
  }
  for (unsigned el = 0; el < 34; el += el < 4 ? 1 : 4) {
    CUdeviceptr p = 0;
    size_t pitch = 7;
    ASK(W("pitched elements of %u", el), cuMemAllocPitch(&p, &pitch, 100, 3, el), "%d %zu", p != 0, pitch);
  }
  static const size_t ws[] = {0, 1, 511, 512, 513, 5000};
  for (int i = 0; i < 6; i++) {
    CUdeviceptr p = 0;
    size_t pitch = 7;
    ASK(W("pitched rows of %zu", ws[i]), cuMemAllocPitch(&p, &pitch, ws[i], 3, 4), "%d %zu", p != 0, pitch);
  }
  CUdeviceptr p = 0;
  size_t pitch = 7;
  ASK("pitched without rows", cuMemAllocPitch(&p, &pitch, 64, 0, 4));
}

CASES
RUN(pairs)
RUN(flat_errors)
RUN(deep_copies)
RUN(lines)
END
