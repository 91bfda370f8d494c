/* Two devices: what synchronous calls wait for: a stream of either device held by a host function. */
#include "two.h"

static CUstream s[2];     /* a stream of each device that does not wait for the NULL stream */
static volatile int done; /* whether the held stream's function has ended */
static int which;         /* the device whose stream is held */

static void CUDA_CB hold(void *none) {
  (void)none;
  usleep(300000);
  done = 1;
}
static void make(int d) {
  which = d;
  both();
  for (d = 0; d < 2; d++) {
    on(d);
    DO(cuStreamCreate(&s[d], CU_STREAM_NON_BLOCKING));
  }
}
/* A call with one device current while the stream is held: what it gives, and whether the hold has ended after it. */
#define WHILE(now, words, call)                                          \
  do {                                                                   \
    const char *name_ = W("%s, %d current, %d held", words, now, which); \
    DO(cuStreamSynchronize(s[which]));                                   \
    done = 0;                                                            \
    on(which);                                                           \
    DO(cuLaunchHostFunc(s[which], hold, NULL));                          \
    on(now);                                                             \
    ASK(name_, call, "%d", done);                                        \
  } while (0)

static void synchronizing(int d) {
  make(d);
  for (int now = 0; now < 2; now++) {
    CUevent e = NULL;
    on(now);
    DO(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
    DO(cuEventRecord(e, 0));
    WHILE(now, "synchronize", cuCtxSynchronize());
    WHILE(now, "synchronize the other by handle", cuCtxSynchronize_v2(of[!now]));
    WHILE(now, "synchronize the NULL stream", cuStreamSynchronize(0));
    WHILE(now, "synchronize the thread's stream", cuStreamSynchronize(CU_STREAM_PER_THREAD));
    WHILE(now, "synchronize the other's stream", cuStreamSynchronize(s[!now]));
    WHILE(now, "query the held stream", cuStreamQuery(s[which]));
    ASK("query the other stream meanwhile", cuStreamQuery(s[!which]));
    ASK("query the current NULL stream meanwhile", cuStreamQuery(0));
    ASK("synchronize an event meanwhile", cuEventSynchronize(e), "%d", done);
    DO(cuEventDestroy(e));
  }
}

static void copies(int d) {
  static char host[4096];
  make(d);
  for (int now = 0; now < 2; now++) {
    CUdeviceptr own = memory(now, 4096, 1), theirs = memory(!now, 4096, 2);
    WHILE(now, "from the host to its own", cuMemcpyHtoD(own, host, 4096));
    WHILE(now, "from the host to the other's", cuMemcpyHtoD(theirs, host, 4096));
    WHILE(now, "to the host from the other's", cuMemcpyDtoH(host, theirs, 4096));
    WHILE(now, "across by addresses", cuMemcpy(theirs, own, 4096));
    WHILE(now, "across by contexts", cuMemcpyPeer(theirs, of[!now], own, of[now], 4096));
    WHILE(now, "set of the other's", cuMemsetD8(theirs, 7, 4096));
  }
}

static void frees(int d) {
  make(d);
  for (int now = 0; now < 2; now++) {
    CUdeviceptr own = memory(now, 4096, 1), theirs = memory(!now, 4096, 2), pooled = 0, managed = 0, r = 0;
    void *locked = NULL;
    on(!now);
    DO(cuMemAllocAsync(&pooled, 4096, 0));
    DO(cuMemAllocHost(&locked, 4096));
    DO(cuMemAllocManaged(&managed, 65536, CU_MEM_ATTACH_GLOBAL));
    DO(cuStreamSynchronize(0));
    WHILE(now, "free its own", cuMemFree(own));
    WHILE(now, "free the other's", cuMemFree(theirs));
    WHILE(now, "free the other's stream-ordered", cuMemFree(pooled));
    WHILE(now, "free managed made by the other", cuMemFree(managed));
    WHILE(now, "allocate", cuMemAlloc(&r, 4096));
    WHILE(now, "free host memory", cuMemFreeHost(locked));
  }
}

static void ends(int d) {
  make(d);
  for (int now = 0; now < 2; now++) {
    CUcontext c = NULL, none;
    CUmodule m = NULL;
    CUarray a = NULL;
    CUstream t = NULL;
    CUDA_ARRAY_DESCRIPTOR x = {64, 4, CU_AD_FORMAT_UNSIGNED_INT8, 1};
    on(now);
    DO(cuModuleLoadData(&m, PTX));
    DO(cuArrayCreate(&a, &x));
    DO(cuStreamCreate(&t, 0));
    DO(cuCtxCreate(&c, NULL, 0, now));
    DO(cuCtxPopCurrent(&none));
    WHILE(now, "unload a module", cuModuleUnload(m));
    WHILE(now, "destroy an array", cuArrayDestroy(a));
    WHILE(now, "destroy a stream", cuStreamDestroy(t));
    WHILE(now, "destroy another context", cuCtxDestroy(c));
    WHILE(now, "trim the memory of graphs", cuDeviceGraphMemTrim(now));
  }
  WHILE(!d, "destroy the held stream", cuStreamDestroy(s[d]));
}

static void synchronizing_0(void) { synchronizing(0); }
static void synchronizing_1(void) { synchronizing(1); }
static void copies_0(void) { copies(0); }
static void copies_1(void) { copies(1); }
static void frees_0(void) { frees(0); }
static void frees_1(void) { frees(1); }
static void ends_0(void) { ends(0); }
static void ends_1(void) { ends(1); }

CASES RUN(synchronizing_0) RUN(synchronizing_1) RUN(copies_0) RUN(copies_1) RUN(frees_0) RUN(frees_1) RUN(ends_0)
    RUN(ends_1) END
