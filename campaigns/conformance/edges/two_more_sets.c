/* Two devices: sets of each width of either device's memory, with wrong contexts and streams. */
#include "two.h"
#define NAME(w, ...) \
  char w[100];       \
  snprintf(w, sizeof w, __VA_ARGS__) /* W has room for only a few at a time */

static CUdeviceptr a[2];
static CUstream s[2];

static void make(void) {
  both();
  for (int d = 0; d < 2; d++) {
    a[d] = memory(d, 65536, 0);
    on(d);
    DO(cuStreamCreate(&s[d], CU_STREAM_NON_BLOCKING));
  }
}

static void plain(void) {
  make();
  for (int now = -1; now < 2; now++)
    for (int d = 0; d < 2; d++) {
      on(now);
      NAME(w, "%d current, of %d", now, d);
      int n = (now + 2) * 0x11;
      ASK(W("%s, bytes", w), cuMemsetD8(a[d], n, 4), "%x", word(d, a[d]));
      ASK(W("%s, shorts", w), cuMemsetD16(a[d] + 16, 0x100 + n, 2), "%x", word(d, a[d] + 16));
      ASK(W("%s, words", w), cuMemsetD32(a[d] + 32, 0x1000 + n, 1), "%x", word(d, a[d] + 32));
      ASK(W("%s, shorts at an odd address", w), cuMemsetD16(a[d] + 49, n, 2), "%x", word(d, a[d] + 48));
      ASK(W("%s, words at half an address", w), cuMemsetD32(a[d] + 66, n, 1), "%x", word(d, a[d] + 64));
      ASK(W("%s, rows", w), cuMemsetD2D8(a[d] + 1024, 64, n + 1, 4, 3), "%x %x", word(d, a[d] + 1024 + 128),
          word(d, a[d] + 1028));
      ASK(W("%s, rows of shorts", w), cuMemsetD2D16(a[d] + 2048, 64, n + 2, 4, 3), "%x", word(d, a[d] + 2048 + 64));
      ASK(W("%s, rows of words", w), cuMemsetD2D32(a[d] + 4096, 64, n + 3, 4, 3), "%x", word(d, a[d] + 4096 + 64));
      ASK(W("%s, rows longer than the pitch", w), cuMemsetD2D8(a[d] + 8192, 4, n, 64, 3));
      ASK(W("%s, nothing", w), cuMemsetD8(a[d], n, 0));
      ASK(W("%s, no rows", w), cuMemsetD2D8(a[d], 64, n, 4, 0));
      ALONE(W("%s, beyond its end", w), cuMemsetD8(a[d] + 65535, n, 2 * MIB + 2));
    }
}

static void in_streams(void) {
  make();
  for (int now = -1; now < 2; now++)
    for (int i = 0; i < 2; i++)
      for (int d = 0; d < 2; d++) {
        on(now);
        NAME(w, "%d current, stream of %d, of %d", now, i, d);
        int n = (now + 2) * 0x11 + i;
        ASK(W("%s, bytes", w), cuMemsetD8Async(a[d], n, 4, s[i]), "%d", cuStreamSynchronize(s[i]));
        ASK(W("%s, shorts", w), cuMemsetD16Async(a[d] + 16, 0x100 + n, 2, s[i]), "%d", cuStreamSynchronize(s[i]));
        ASK(W("%s, words", w), cuMemsetD32Async(a[d] + 32, 0x1000 + n, 1, s[i]), "%d", cuStreamSynchronize(s[i]));
        ASK(W("%s, rows", w), cuMemsetD2D32Async(a[d] + 1024, 64, n, 2, 2, s[i]), "%d", cuStreamSynchronize(s[i]));
      }
  for (int d = 0; d < 2; d++) {
    on(d);
    ASK(W("NULL stream of %d, the other's", d), cuMemsetD8Async(a[!d], 0x77, 4, NULL), "%d", cuCtxSynchronize());
    ASK(W("thread's stream of %d, the other's", d), cuMemsetD8Async(a[!d], 0x78, 4, CU_STREAM_PER_THREAD), "%d",
        cuStreamSynchronize(CU_STREAM_PER_THREAD));
  }
}

static void with_access(void) {
  make();
  on(0);
  DO(cuCtxEnablePeerAccess(of[1], 0));
  for (int now = 0; now < 2; now++) {
    on(now);
    ASK(W("%d current, the other's, access of 0 only", now), cuMemsetD8(a[!now], 0x41 + now, 4));
    for (int i = 0; i < 2; i++)
      ASK(W("%d current, the other's, stream of %d, access of 0 only", now, i),
          cuMemsetD32Async(a[!now], 0x51 + now, 1, s[i]), "%d", cuStreamSynchronize(s[i]));
  }
  on(0);
  DO(cuCtxDisablePeerAccess(of[1]));
  ASK("of 1 after the access", cuMemsetD8(a[1], 0x61, 4), "%x", word(1, a[1]));
}

static void other_kinds(void) {
  make();
  CUdeviceptr managed = 0, pooled = 0, p = 0;
  void *h = NULL, *paged = NULL;
  on(1);
  DO(cuMemAllocManaged(&managed, 65536, CU_MEM_ATTACH_GLOBAL));
  DO(cuMemAllocAsync(&pooled, 4096, NULL));
  DO(cuMemHostAlloc(&h, 4096, CU_MEMHOSTALLOC_PORTABLE));
  paged = aligned_alloc(4096, 4096);
  DO(cuMemHostRegister(paged, 4096, CU_MEMHOSTREGISTER_PORTABLE));
  DO(cuCtxSynchronize());
  for (int now = 1; now >= 0; now--) {
    on(now);
    ASK(W("managed made on 1, %d current", now), cuMemsetD32(managed, 0x100 + now, 1), "%d %x", cuCtxSynchronize(),
        word(now, managed));
    ASK(W("portable host memory, %d current", now), cuMemsetD32((CUdeviceptr)h, 0x200 + now, 1), "%d %x",
        cuCtxSynchronize(), *(unsigned *)h);
    ASK(W("registered, %d current", now), cuMemsetD32((CUdeviceptr)paged, 0x300 + now, 1), "%d %x", cuCtxSynchronize(),
        *(unsigned *)paged);
    ASK(W("stream-ordered of 1, %d current", now), cuMemsetD32(pooled, 0x400 + now, 1), "%d %x", cuCtxSynchronize(),
        word(1, pooled));
    ALONE(W("nothing at 4096, %d current", now), cuMemsetD8(4096, 1, 4));
    ALONE(W("NULL, %d current", now), cuMemsetD8(0, 1, 4));
  }
  on(1);
  p = memory(1, 4096, 0);
  DO(cuMemFree(p));
  ALONE("freed memory of 1", cuMemsetD8(p, 1, 4));
  on(0);
  ALONE("freed memory of 1, 0 current", cuMemsetD8(p, 1, 4));
  ASK("0 is well", cuCtxSynchronize());
  ASK("1 is well", cuCtxSynchronize_v2(of[1]));
}

CASES RUN(plain) RUN(in_streams) RUN(with_access) RUN(other_kinds) END
