/* Two devices: copies of each kind across them, with either context current and none, and what comes of them. */
#include "two.h"
#define NAME(w, ...) \
  char w[100];       \
  snprintf(w, sizeof w, __VA_ARGS__) /* W has room for only a few at a time */

static CUdeviceptr a[2], at_host;
static char *host;

static void make(void) {
  both();
  for (int d = 0; d < 2; d++) a[d] = memory(d, 65536, 0);
  void *h = NULL;
  DO(cuMemHostAlloc(&h, 65536, CU_MEMHOSTALLOC_PORTABLE));
  host = h, at_host = (CUdeviceptr)h;
}
static void again(void) {
  for (int d = 0; d < 2; d++) {
    on(d);
    DO(cuMemsetD8(a[d], 0x10 + 0x10 * d, 65536));
    DO(cuCtxSynchronize());
  }
  memset(host, 0x30, 65536);
}

static void linear(void) {
  make();
  for (int now = -1; now < 2; now++)
    for (int d = 0; d < 2; d++) {
      again();
      on(now);
      ASK(W("%d current, to %d", now, d), cuMemcpy(a[d], a[!d], 4), "%x", word(d, a[d]));
      ASK(W("%d current, host to %d", now, d), cuMemcpy(a[d] + 8, at_host, 4), "%x", word(d, a[d] + 8));
      ASK(W("%d current, %d to host", now, d), cuMemcpy(at_host + 8, a[d] + 1024, 4), "%x", *(unsigned *)(host + 8));
      ASK(W("%d current, within %d", now, d), cuMemcpyDtoD(a[d] + 16, a[d], 4), "%x", word(d, a[d] + 16));
      ASK(W("%d current, DtoH of %d into its own host memory", now, d), cuMemcpyDtoH(host + 64, a[d] + 2048, 4), "%x",
          *(unsigned *)(host + 64));
      ASK(W("%d current, the last word of %d", now, d), cuMemcpy(a[d] + 65532, a[!d], 4), "%x", word(d, a[d] + 65532));
    }
}

static void in_streams(void) {
  make();
  CUstream s[2];
  for (int d = 0; d < 2; d++) {
    on(d);
    DO(cuStreamCreate(&s[d], CU_STREAM_NON_BLOCKING));
  }
  for (int now = -1; now < 2; now++)
    for (int i = 0; i < 2; i++)
      for (int d = 0; d < 2; d++) {
        again();
        on(now);
        NAME(w, "%d current, stream of %d, to %d", now, i, d);
        ASK(w, cuMemcpyAsync(a[d], a[!d], 4, s[i]), "%d", cuStreamSynchronize(s[i]));
        ASK(W("%s, from the host", w), cuMemcpyHtoDAsync(a[d] + 8, host, 4, s[i]), "%d", cuStreamSynchronize(s[i]));
        ASK(W("%s, peer with contexts exchanged", w), cuMemcpyPeerAsync(a[d] + 32, of[!d], a[!d], of[d], 4, s[i]), "%d",
            cuStreamSynchronize(s[i]));
      }
}

static void flat(void) {
  make();
  CUarray r[2];
  CUDA_ARRAY_DESCRIPTOR x = {64, 4, CU_AD_FORMAT_UNSIGNED_INT8, 1};
  for (int d = 0; d < 2; d++) {
    on(d);
    DO(cuArrayCreate(&r[d], &x));
  }
  for (int now = -1; now < 2; now++)
    for (int d = 0; d < 2; d++)
      for (int unified = 0; unified < 2; unified++) {
        again();
        on(now);
        CUmemorytype type = unified ? CU_MEMORYTYPE_UNIFIED : CU_MEMORYTYPE_DEVICE;
        CUDA_MEMCPY2D c;
        SET(c);
        c.srcMemoryType = c.dstMemoryType = type, c.srcDevice = a[!d], c.dstDevice = a[d],
        c.srcPitch = c.dstPitch = 512, c.WidthInBytes = 64, c.Height = 4;
        NAME(w, "%d current, to %d, kind %d", now, d, type);
        ASK(w, cuMemcpy2D(&c), "%x %x", word(d, a[d] + 512), word(d, a[d] + 64));
        c.dstMemoryType = CU_MEMORYTYPE_ARRAY, c.dstArray = r[d];
        ASK(W("%s, into an array", w), cuMemcpy2D(&c));
        c.dstMemoryType = CU_MEMORYTYPE_HOST, c.dstHost = host, c.dstPitch = 64, c.srcMemoryType = CU_MEMORYTYPE_ARRAY,
        c.srcArray = r[d];
        ASK(W("%s, out of the array", w), cuMemcpy2D(&c), "%x", *(unsigned *)(host + 64));
        CUDA_MEMCPY3D t;
        SET(t);
        t.srcMemoryType = t.dstMemoryType = type, t.srcDevice = a[!d], t.dstDevice = a[d], t.srcPitch = t.dstPitch = 64,
        t.srcHeight = t.dstHeight = 4;
        t.WidthInBytes = 64, t.Height = t.Depth = 2, t.dstZ = 10;
        ASK(W("%s, deep", w), cuMemcpy3D(&t), "%x", word(d, a[d] + 2560));
      }
}

static void batches(void) {
  make();
  CUstream s[2];
  CUmemcpyAttributes attr;
  size_t zero = 0, sizes[3] = {4, 4, 4};
  for (int d = 0; d < 2; d++) {
    on(d);
    DO(cuStreamCreate(&s[d], CU_STREAM_NON_BLOCKING));
  }
  for (int now = -1; now < 2; now++)
    for (int i = 0; i < 2; i++)
      for (int o = 0; o <= 4; o++) {
        again();
        on(now);
        SET(attr);
        attr.srcAccessOrder = o;
        CUdeviceptr to[3] = {a[0], a[1], at_host}, from[3] = {a[1] + 1024, at_host + 1024, a[0] + 1024};
        ASK(W("%d current, stream of %d, order %d", now, i, o),
            cuMemcpyBatchAsync(to, from, sizes, 3, &attr, &zero, 1, s[i]), "%d", cuStreamSynchronize(s[i]));
        SAY(W("%d current, stream of %d, order %d: now", now, i, o), "%x %x %x", word(0, a[0]), word(1, a[1]),
            *(unsigned *)host);
      }
}

CASES RUN(linear) RUN(in_streams) RUN(flat) RUN(batches) END
