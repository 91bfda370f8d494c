/* Two devices: pointers' attributes of memory of each, whichever context is current; settings and ranges. */
#include "two.h"

static const char *kinds_[] = {"memory of 0",
                               "memory of 1",
                               "portable host memory made on 1",
                               "plain host memory made on 1",
                               "managed memory made on 1",
                               "stream-ordered memory of 1"};
static CUdeviceptr made[6];

static void make(void) {
  both();
  made[0] = memory(0, 4096, 0), made[1] = memory(1, 4096, 0);
  on(1);
  void *h = NULL;
  DO(cuMemHostAlloc(&h, 4096, CU_MEMHOSTALLOC_PORTABLE));
  made[2] = (CUdeviceptr)h;
  DO(cuMemHostAlloc(&h, 4096, 0));
  made[3] = (CUdeviceptr)h;
  DO(cuMemAllocManaged(&made[4], 65536, CU_MEM_ATTACH_GLOBAL));
  DO(cuMemAllocAsync(&made[5], 4096, NULL));
  DO(cuCtxSynchronize());
  on(0);
}

static int whose(CUcontext c) { return !c ? -1 : c == of[0] ? 0 : c == of[1] ? 1 : 9; }

static void each(void) {
  make();
  for (int now = -1; now < 2; now++) {
    DO(cuCtxSetCurrent(now < 0 ? NULL : of[now]));
    for (int i = 0; i < 6; i++) {
      CUdeviceptr p = made[i] + 16;
      CUcontext c = NULL;
      unsigned type = 77, flags = 77;
      int ordinal = 77;
      CUdeviceptr d = 0;
      void *h = NULL;
      char yes = 7;
      size_t size = 7;
      CUmemoryPool pool = NULL;
      const char *k = kinds_[i];
      ASK(W("%s, %d current, context", k, now), cuPointerGetAttribute(&c, CU_POINTER_ATTRIBUTE_CONTEXT, p), "%d",
          whose(c));
      ASK(W("%s, %d current, type", k, now), cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p), "%u",
          type);
      ASK(W("%s, %d current, device pointer", k, now),
          cuPointerGetAttribute(&d, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, p), "%d", d == p);
      ASK(W("%s, %d current, host pointer", k, now), cuPointerGetAttribute(&h, CU_POINTER_ATTRIBUTE_HOST_POINTER, p),
          "%d", h == (void *)p);
      ASK(W("%s, %d current, ordinal", k, now), cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p),
          "%d", ordinal);
      ASK(W("%s, %d current, start", k, now), cuPointerGetAttribute(&d, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, p), "%d",
          d == made[i]);
      ASK(W("%s, %d current, size", k, now), cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, p), "%zu",
          size);
      ASK(W("%s, %d current, mapped", k, now), cuPointerGetAttribute(&yes, CU_POINTER_ATTRIBUTE_MAPPED, p), "%d", yes);
      ASK(W("%s, %d current, managed", k, now), cuPointerGetAttribute(&yes, CU_POINTER_ATTRIBUTE_IS_MANAGED, p), "%d",
          yes);
      ASK(W("%s, %d current, access", k, now), cuPointerGetAttribute(&flags, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, p),
          "%u", flags);
      ASK(W("%s, %d current, legacy IPC", k, now),
          cuPointerGetAttribute(&yes, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, p), "%d", yes);
      ASK(W("%s, %d current, pool", k, now), cuPointerGetAttribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, p), "%d",
          pool != NULL);
      ASK(W("%s, %d current, range", k, now), cuMemGetAddressRange(&d, &size, p), "%d %zu", d == made[i], size);
    }
  }
}

static void several(void) {
  make();
  for (int i = 0; i < 6; i++) {
    CUcontext c = NULL;
    unsigned type = 77;
    int ordinal = 77;
    CUpointer_attribute what[] = {CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                  CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    void *into[] = {&c, &type, &ordinal};
    ASK(kinds_[i], cuPointerGetAttributes(3, what, into, made[i]), "%d %u %d", whose(c), type, ordinal);
  }
}

static void setting(void) {
  make();
  int on_ = 1, got = 7;
  for (int i = 0; i < 6; i++) {
    ASK(W("set synchronous for %s", kinds_[i]), cuPointerSetAttribute(&on_, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, made[i]));
    got = 7;
    ASK(W("synchronous for %s", kinds_[i]), cuPointerGetAttribute(&got, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, made[i]),
        "%d", got & 1);
  }
  unsigned long long a = 0, b = 0;
  ASK("number of 0's", cuPointerGetAttribute(&a, CU_POINTER_ATTRIBUTE_BUFFER_ID, made[0]));
  ASK("number of 1's", cuPointerGetAttribute(&b, CU_POINTER_ATTRIBUTE_BUFFER_ID, made[1]), "%d", a != b);
  CUDA_POINTER_ATTRIBUTE_P2P_TOKENS t;
  SET(t);
  ASK("tokens of 1's", cuPointerGetAttribute(&t, CU_POINTER_ATTRIBUTE_P2P_TOKENS, made[1]));
}

static void freed(void) {
  make();
  int ordinal = 77;
  DO(cuMemFree(made[1]));
  ASK("ordinal of freed", cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, made[1]), "%d", ordinal);
  CUdeviceptr d;
  size_t n;
  ASK("range of freed", cuMemGetAddressRange(&d, &n, made[1]));
  ASK("reset 1", cuDevicePrimaryCtxReset(1));
  for (int i = 0; i < 6; i++) {
    ordinal = 77;
    ASK(W("ordinal of %s after the reset", kinds_[i]),
        cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, made[i]), "%d", ordinal);
  }
}

CASES RUN(each) RUN(several) RUN(setting) RUN(freed) END
