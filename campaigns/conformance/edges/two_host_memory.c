/* Two devices: host memory made or registered under one, seen and ended under the other. */
#include "two.h"

static void made(void) {
  both();
  for (unsigned flags = 0; flags < 8; flags++)
    for (int maker = 0; maker < 2; maker++) {
      void *h = NULL;
      on(maker);
      ASK(W("flags %u, made on %d", flags, maker), cuMemHostAlloc(&h, 4096, flags));
      on(!maker);
      CUdeviceptr d = 0, b = memory(!maker, 4096, 0x21);
      unsigned got = 77;
      CUcontext c = NULL;
      int ordinal = 77;
      ASK(W("address on the other, flags %u, made on %d", flags, maker), cuMemHostGetDevicePointer(&d, h, 0), "%d",
          d == (CUdeviceptr)h);
      ASK(W("flags on the other, flags %u, made on %d", flags, maker), cuMemHostGetFlags(&got, h), "%u", got);
      ASK(W("context, flags %u, made on %d", flags, maker),
          cuPointerGetAttribute(&c, CU_POINTER_ATTRIBUTE_CONTEXT, (CUdeviceptr)h), "%d",
          c == of[0]   ? 0
          : c == of[1] ? 1
                       : -1);
      ASK(W("ordinal, flags %u, made on %d", flags, maker),
          cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, (CUdeviceptr)h), "%d", ordinal);
      ASK(W("copy to it, flags %u, made on %d", flags, maker), cuMemcpyDtoH(h, b, 64), "%d", *(char *)h);
      ASK(W("set it, flags %u, made on %d", flags, maker), cuMemsetD8((CUdeviceptr)h, 0x22, 64), "%d",
          cuCtxSynchronize());
      ASK(W("free on the other, flags %u, made on %d", flags, maker), cuMemFreeHost(h));
      ASK(W("free twice, flags %u, made on %d", flags, maker), cuMemFreeHost(h));
    }
}

static void registered(void) {
  both();
  for (unsigned flags = 0; flags < 4; flags++) {
    char *h = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(h, 0x31, 65536);
    on(1);
    ASK(W("register on 1, flags %u", flags), cuMemHostRegister(h, 65536, flags));
    on(0);
    ASK(W("register on 0 too, flags %u", flags), cuMemHostRegister(h, 65536, flags));
    ASK(W("register a part on 0, flags %u", flags), cuMemHostRegister(h + 4096, 4096, flags));
    CUdeviceptr d = 0, a = memory(0, 4096, 0);
    unsigned got = 77;
    int ordinal = 77;
    ASK(W("address on 0, flags %u", flags), cuMemHostGetDevicePointer(&d, h, 0), "%d", d == (CUdeviceptr)h);
    ASK(W("flags on 0, flags %u", flags), cuMemHostGetFlags(&got, h), "%u", got);
    ASK(W("ordinal, flags %u", flags),
        cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, (CUdeviceptr)h), "%d", ordinal);
    ASK(W("copy from it, flags %u", flags), cuMemcpyHtoD(a, h, 64), "%x", word(0, a));
    ASK(W("any copy from it, flags %u", flags), cuMemcpy(a + 64, (CUdeviceptr)h, 64));
    DO(cuCtxSynchronize());
    ASK(W("copied, flags %u", flags), 0, "%x", word(0, a + 64));
    ASK(W("unregister on 0, flags %u", flags), cuMemHostUnregister(h));
    ASK(W("unregister twice, flags %u", flags), cuMemHostUnregister(h));
    on(1);
    ASK(W("unregister on 1, flags %u", flags), cuMemHostUnregister(h));
    ASK(W("address after that, flags %u", flags), cuMemHostGetDevicePointer(&d, h, 0));
  }
}

static void resets(void) {
  both();
  void *h[4] = {NULL};
  for (int i = 0; i < 4; i++) {
    on(i & 1);
    DO(cuMemHostAlloc(&h[i], 4096, i & 2 ? CU_MEMHOSTALLOC_PORTABLE : 0));
    memset(h[i], 0x11 * i, 4096);
  }
  on(0);
  ASK("reset 1", cuDevicePrimaryCtxReset(1));
  for (int i = 0; i < 4; i++) {
    unsigned flags = 77;
    int type = 77;
    ASK(W("flags of %d", i), cuMemHostGetFlags(&flags, h[i]), "%u", flags);
    ASK(W("type of %d", i), cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)h[i]), "%d",
        type);
  }
  for (int i = 0; i < 4; i++) RISK(W("its content %d", i), *(volatile char *)h[i]);
  for (int i = 0; i < 4; i++) ASK(W("free %d", i), cuMemFreeHost(h[i]));
}

static void nothing_current(void) {
  both();
  void *h = NULL, *g = NULL;
  on(1);
  DO(cuMemHostAlloc(&h, 4096, CU_MEMHOSTALLOC_PORTABLE));
  DO(cuCtxSetCurrent(NULL));
  CUdeviceptr d = 0;
  unsigned flags = 77;
  ASK("allocate", cuMemHostAlloc(&g, 4096, CU_MEMHOSTALLOC_PORTABLE));
  ASK("allocate simply", cuMemAllocHost(&g, 4096));
  ASK("register", cuMemHostRegister(&d, 8, 0));
  ASK("address", cuMemHostGetDevicePointer(&d, h, 0));
  ASK("flags", cuMemHostGetFlags(&flags, h), "%u", flags);
  ASK("free", cuMemFreeHost(h));
}

CASES RUN(made) RUN(registered) RUN(resets) RUN(nothing_current) END
