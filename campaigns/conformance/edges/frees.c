/* What is known of memory behind cuMemFreeAsync, by what it was allocated with. */
#include "ask.h"
static CUstream s;
static volatile int go;
static void CUDA_CB hold(void *none) {
  (void)none;
  for (int n = 0; !go && n < 400; n++) usleep(1000);
}
static void asks(const char *name, CUdeviceptr p) {
  CUdeviceptr base = 0;
  size_t size = 0;
  unsigned v = 0;
  ASK(W("%s: range", name), cuMemGetAddressRange(&base, &size, p), "%d %zu", base == p, size);
  static const CUpointer_attribute which[] = {
      CU_POINTER_ATTRIBUTE_CONTEXT,   CU_POINTER_ATTRIBUTE_MEMORY_TYPE,          CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
      CU_POINTER_ATTRIBUTE_BUFFER_ID, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,       CU_POINTER_ATTRIBUTE_RANGE_SIZE,
      CU_POINTER_ATTRIBUTE_MAPPED,    CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE};
  for (int i = 0; i < 9; i++) {
    unsigned long long x = 0;
    int code = cuPointerGetAttribute(&x, which[i], p);
    SAY(W("%s: attribute %d", name, which[i]), "%d %d", code, x != 0);
  }
  RISK(W("%s: read", name), cuMemcpyDtoH(&v, p, 4));
  RISK(W("%s: fill", name), cuMemsetD8(p, 1, 64));
  RISK(W("%s: free again", name), cuMemFree(p));
  RISK(W("%s: free again in the stream", name), cuMemFreeAsync(p, s));
}
static void kinds(int kind) {
  static const char *names[] = {"cuMemAlloc", "cuMemAllocPitch", "managed",   "pinned",
                                "mapped",     "a pool's",        "registered"};
  for (int late = 0; late < 2; late++) {
    CUdeviceptr p = 0;
    size_t pitch;
    void *h = NULL;
    DO(cuStreamCreate(&s, 1));
    if (kind == 0) DO(cuMemAlloc(&p, 4096));
    else if (kind == 1) DO(cuMemAllocPitch(&p, &pitch, 64, 64, 4));
    else if (kind == 2) DO(cuMemAllocManaged(&p, 65536, 1));
    else if (kind == 3) {
      DO(cuMemHostAlloc(&h, 4096, 3));
      p = (CUdeviceptr)(uintptr_t)h;
    } else if (kind == 4) {
      CUmemAllocationProp q = pinned();
      CUmemGenericAllocationHandle m;
      CUmemAccessDesc d = access_of(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
      DO(cuMemCreate(&m, 2 * MIB, &q, 0));
      DO(cuMemAddressReserve(&p, 2 * MIB, 0, 0, 0));
      DO(cuMemMap(p, 2 * MIB, 0, m, 0));
      DO(cuMemSetAccess(p, 2 * MIB, &d, 1));
    } else if (kind == 5) {
      DO(cuMemAllocAsync(&p, 4096, s));
      DO(cuStreamSynchronize(s));
    } else {
      h = aligned_alloc(4096, 4096);
      DO(cuMemHostRegister(h, 4096, 3));
      p = (CUdeviceptr)(uintptr_t)h;
    }
    go = 0;
    if (late) DO(cuLaunchHostFunc(s, hold, NULL));
    const char *name = W("%s, %s", names[kind], late ? "pending" : "done");
    char *kept = strdup(name);
    ASK(W("%s: free in the stream", kept), cuMemFreeAsync(p, s));
    if (!late) DO(cuStreamSynchronize(s));
    asks(kept, p);
    go = 1;
    ASK(W("%s: synchronize", kept), cuStreamSynchronize(s));
    if (late) {
      CUdeviceptr base = 0;
      size_t size = 0;
      ASK(W("%s: range afterwards", kept), cuMemGetAddressRange(&base, &size, p), "%d %zu", base == p, size);
    }
  }
}
static void alloc(void) { kinds(0); }
static void pitched(void) { kinds(1); }
static void managed(void) { kinds(2); }
static void host(void) { kinds(3); }
static void mapped(void) { kinds(4); }
static void pooled(void) { kinds(5); }
static void registered(void) { kinds(6); }
/* Contexts that are destroyed while they are on the stack. */
static void destroyed_stack(void) {
  CUcontext a = NULL, b = NULL, c = NULL;
  DO(cuCtxCreate(&a, NULL, 0, 0));
  DO(cuCtxCreate(&b, NULL, 0, 0));
  ASK("destroy the one below", cuCtxDestroy(a));
  ASK("destroy it again", cuCtxDestroy(a));
  ASK("pop", cuCtxPopCurrent(&c), "%d", c == b);
  ASK("pop what is gone", cuCtxPopCurrent(&c), "%d", c == a);
  ASK("pop the primary", cuCtxPopCurrent(&c), "%d", c == context);
  ASK("push what is gone", cuCtxPushCurrent(a));
  ASK("set what is gone", cuCtxSetCurrent(a));
  ASK("destroy the other", cuCtxDestroy(b));
  ASK("destroy the other again", cuCtxDestroy(b));
  DO(cuCtxSetCurrent(context));
  ASK("destroy the primary", cuCtxDestroy(context));
  DO(cuCtxCreate(&c, NULL, 0, 0));
  ASK("destroy the current", cuCtxDestroy(c));
  ASK("destroy the current again", cuCtxDestroy(c));
  RISK("destroy nothing", cuCtxDestroy(NULL));
}
CASES RUN(alloc) RUN(pitched) RUN(managed) RUN(host) RUN(mapped) RUN(pooled) RUN(registered) RUN(destroyed_stack) END
