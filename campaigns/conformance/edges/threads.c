/* Threads: what is current where, streams and contexts that go while others use them. */
#include "ask.h"

static CUstream s;
static void in_thread(void *(*body)(void *), void *data) {
  pthread_t t;
  pthread_create(&t, NULL, body, data);
  pthread_join(t, NULL);
}
static void *fresh(void *data) {
  (void)data;
  CUcontext c = (CUcontext)7;
  CUdeviceptr d = 0;
  CUdevice dev = 77;
  int i = 77;
  ASK("current", cuCtxGetCurrent(&c), "%d", c == NULL);
  ASK("device", cuCtxGetDevice(&dev));
  ASK("memory", cuMemAlloc(&d, 16));
  ASK("query of a stream", cuStreamQuery(s));
  ASK("synchronize a stream", cuStreamSynchronize(s));
  ASK("query of NULL", cuStreamQuery(NULL));
  ASK("device of a stream", cuStreamGetDevice(s, &dev), "%d", dev);
  ASK("count", cuDeviceGetCount(&i), "%d", i);
  ASK("pop", cuCtxPopCurrent(&c));
  ASK("push", cuCtxPushCurrent(context));
  ASK("memory after that", cuMemAlloc(&d, 16));
  CUstreamCaptureMode m = 2;
  ASK("its mode of captures", cuThreadExchangeStreamCaptureMode(&m), "%d", m);
  return NULL;
}
static void currents(void) {
  DO(cuStreamCreate(&s, 0));
  CUstreamCaptureMode m = 1;
  DO(cuThreadExchangeStreamCaptureMode(&m));
  in_thread(fresh, NULL);
  CUcontext c = NULL;
  ASK("current here", cuCtxGetCurrent(&c), "%d", c == context);
  m = 0;
  ASK("mode here", cuThreadExchangeStreamCaptureMode(&m), "%d", m);
}

static CUcontext mine;
static void *destroyer(void *data) {
  (void)data;
  ASK("another thread destroys the context", cuCtxDestroy(mine));
  return NULL;
}
static void destroyed(void) {
  DO(cuCtxCreate(&mine, NULL, 0, 0));
  CUdeviceptr d;
  DO(cuMemAlloc(&d, 16));
  in_thread(destroyer, NULL);
  CUcontext c = NULL;
  ASK("current", cuCtxGetCurrent(&c), "%d", c == mine);
  ASK("memory", cuMemAlloc(&d, 16));
  ASK("synchronize", cuCtxSynchronize());
  ASK("device", cuCtxGetDevice((CUdevice[1]){0}));
  ASK("query of NULL", cuStreamQuery(NULL));
  ASK("pop", cuCtxPopCurrent(&c), "%d", c == mine);
  ASK("memory after the pop", cuMemAlloc(&d, 16));
}

static unsigned long long ids[3];
static void *identify(void *data) {
  cuCtxSetCurrent(context);
  cuStreamGetId(CU_STREAM_PER_THREAD, &ids[(intptr_t)data]);
  cuStreamGetId(CU_STREAM_LEGACY, &ids[2]);
  return NULL;
}
static void streams(void) {
  unsigned long long legacy = 0;
  in_thread(identify, (void *)0);
  in_thread(identify, (void *)1);
  ASK("id of the legacy stream", cuStreamGetId(CU_STREAM_LEGACY, &legacy), "%d", legacy == ids[2]);
  SAY("ids of two threads' streams", "%d %d", ids[0] == ids[1], ids[0] == legacy);
}

static void *memory(void *data) {
  CUdeviceptr *d = data;
  cuCtxSetCurrent(context);
  ASK("alloc in another thread", cuMemAlloc(d, 16));
  return NULL;
}
static void memories(void) {
  CUdeviceptr d = 0;
  in_thread(memory, &d);
  ASK("set here", cuMemsetD8(d, 1, 16));
  ASK("free here", cuMemFree(d));
}

static void *resetter(void *data) {
  (void)data;
  ASK("another thread resets", cuDevicePrimaryCtxReset(0));
  return NULL;
}
static void reset(void) {
  CUdeviceptr d;
  CUevent e;
  CUmodule m;
  CUgraph g;
  DO(cuMemAlloc(&d, 16));
  DO(cuStreamCreate(&s, 0));
  DO(cuEventCreate(&e, 0));
  DO(cuModuleLoadData(&m, PTX));
  DO(cuGraphCreate(&g, 0));
  in_thread(resetter, NULL);
  CUcontext c = NULL;
  CUfunction f;
  CUgraphNode n;
  ASK("current", cuCtxGetCurrent(&c), "%d", c == context);
  RISK("set what was there", cuMemsetD8(d, 1, 16));
  RISK("free what was there", cuMemFree(d));
  RISK("query a stream", cuStreamQuery(s));
  ALONE("destroy a stream", cuStreamDestroy(s));
  RISK("query an event", cuEventQuery(e));
  ALONE("destroy an event", cuEventDestroy(e));
  RISK("function of a module", cuModuleGetFunction(&f, m, "two"));
  ALONE("unload a module", cuModuleUnload(m));
  RISK("a node of a graph", cuGraphAddEmptyNode(&n, g, NULL, 0));
  ASK("memory", cuMemAlloc(&d, 16));
  ASK("synchronize", cuCtxSynchronize());
  CUcontext again = NULL;
  ASK("retain", cuDevicePrimaryCtxRetain(&again, 0), "%d", again == context);
  ASK("memory after that", cuMemAlloc(&d, 16));
}

CASES RUN(currents) RUN(destroyed) RUN(streams) RUN(memories) RUN(reset) END
