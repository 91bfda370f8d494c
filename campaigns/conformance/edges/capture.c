/* Captures: modes, statuses, what ends and what breaks them, dependencies, joins. */
#include "ask.h"

static CUstream s, t;
static CUevent e;
static CUdeviceptr d;
static void *pin;
static void make(void) {
  DO(cuStreamCreate(&s, 1));
  DO(cuStreamCreate(&t, 1));
  DO(cuEventCreate(&e, 0));
  DO(cuMemAlloc(&d, 4096));
  DO(cuMemAllocHost(&pin, 4096));
}
static int status(void) {
  CUstreamCaptureStatus st = 77;
  int code = cuStreamIsCapturing(s, &st);
  return code ? -code : (int)st;
}

static void starting(void) {
  make();
  CUgraph g = (CUgraph)7;
  for (int mode = 0; mode <= 4; mode++) {
    ASK(W("mode %d", mode), cuStreamBeginCapture(s, mode), "%d", status());
    ASK(W("end of mode %d", mode), cuStreamEndCapture(s, &g), "%d", g != NULL);
  }
  ASK("end without a begin", cuStreamEndCapture(s, &g), "%d", g == NULL);
  DO(cuStreamBeginCapture(s, 0));
  ASK("begin twice", cuStreamBeginCapture(s, 0), "%d", status());
  g = (CUgraph)7;
  ASK("end", cuStreamEndCapture(s, &g), "%d", g == NULL);
  ASK("the NULL stream", cuStreamBeginCapture(NULL, 0));
  ASK("the legacy stream", cuStreamBeginCapture(CU_STREAM_LEGACY, 0));
  ASK("the thread's stream", cuStreamBeginCapture(CU_STREAM_PER_THREAD, 0));
  ASK("end of the thread's stream", cuStreamEndCapture(CU_STREAM_PER_THREAD, &g));
  ALONE("end into NULL", (cuStreamBeginCapture(s, 0), cuStreamEndCapture(s, NULL)));
  DO(cuGraphCreate(&g, 0));
  CUgraphNode n, m;
  DO(cuGraphAddEmptyNode(&n, g, NULL, 0));
  ASK("to a graph", cuStreamBeginCaptureToGraph(s, g, &n, NULL, 1, 0), "%d", status());
  DO(cuMemsetD8Async(d, 1, 16, s));
  CUgraph out = NULL;
  ASK("end of that", cuStreamEndCapture(s, &out), "%d", out == g);
  size_t count = 0;
  ASK("nodes", cuGraphGetNodes(g, NULL, &count), "%zu", count);
  count = 0;
  ASK("edges", cuGraphGetEdges(g, NULL, NULL, NULL, &count), "%zu", count);
  CUgraph h;
  DO(cuGraphCreate(&h, 0));
  DO(cuGraphAddEmptyNode(&m, h, NULL, 0));
  ASK("to a graph, behind another's node", cuStreamBeginCaptureToGraph(s, g, &m, NULL, 1, 0), "%d", status());
  if (status() > 0) cuStreamEndCapture(s, &out);
  ASK("to a graph in mode 9", cuStreamBeginCaptureToGraph(s, g, NULL, NULL, 0, 9), "%d", status());
  RISK("to a NULL graph", cuStreamBeginCaptureToGraph(s, NULL, NULL, NULL, 0, 0));
}

static void breaking(void) {
  make();
  const char *names[] = {"cuMemAlloc",
                         "cuMemFree",
                         "cuMemAllocHost",
                         "cuMemcpyHtoD",
                         "cuMemcpyDtoH",
                         "cuMemcpyDtoD",
                         "cuMemsetD8",
                         "cuStreamSynchronize",
                         "cuStreamQuery",
                         "cuCtxSynchronize",
                         "cuEventQuery of an old event",
                         "cuEventSynchronize of an old event",
                         "cuEventRecord in another stream",
                         "cuStreamWaitEvent for an old event",
                         "cuStreamCreate",
                         "cuStreamDestroy of it",
                         "cuEventCreate",
                         "cuModuleLoadData",
                         "cuMemGetInfo",
                         "cuStreamSynchronize of another",
                         "cuMemsetD8Async in another",
                         "cuMemsetD8Async in the NULL stream",
                         "cuLaunchHostFunc in it",
                         "cuStreamAddCallback in it",
                         "cuMemcpyHtoDAsync from pageable",
                         "cuStreamWriteValue32 in it",
                         "cuMemAllocAsync in it",
                         "cuStreamAttachMemAsync in it",
                         "cuGraphLaunch in it",
                         "cuEventRecord in it",
                         "cuEventElapsedTime",
                         "cuMemAllocManaged",
                         "cuMemHostRegister",
                         "cuStreamGetFlags of it",
                         "cuStreamGetId of it",
                         "cuStreamGetPriority of it",
                         "cuStreamSetAttribute of it",
                         "cuCtxSetLimit",
                         "cuMemPrefetchAsync in it",
                         "cuIpcGetMemHandle",
                         "cuPointerGetAttribute",
                         "cuMemFreeAsync in it",
                         "cuGraphInstantiate",
                         "cuArrayCreate",
                         "cuMemPoolTrimTo",
                         "cuStreamSynchronize of NULL",
                         "cuStreamQuery of NULL",
                         "cuStreamCopyAttributes",
                         "cuMemAddressReserve",
                         "cuMemCreate"};
  CUevent old;
  CUgraph g0;
  CUgraphExec x;
  CUdeviceptr managed, pooled;
  CUgraphNode n;
  DO(cuEventCreate(&old, 0));
  DO(cuEventRecord(old, t));
  DO(cuGraphCreate(&g0, 0));
  DO(cuGraphAddEmptyNode(&n, g0, NULL, 0));
  DO(cuGraphInstantiate(&x, g0, 0));
  DO(cuMemAllocManaged(&managed, 4096, 1));
  DO(cuMemAllocAsync(&pooled, 100, t));
  DO(cuCtxSynchronize());
  static char local[4096] __attribute__((aligned(4096)));
  for (int mode = 0; mode <= 2; mode++)
    for (int k = 0; k < 50; k++) {
      DO(cuStreamCreate(&s, 1));
      DO(cuStreamBeginCapture(s, mode));
      CUdeviceptr p = 0;
      void *q = NULL;
      CUstream u = NULL;
      CUevent v = NULL;
      CUmodule m = NULL;
      size_t z;
      int code = -1, i = 0;
      unsigned flags;
      unsigned long long id;
      float ms;
      CUgraph g = (CUgraph)7;
      CUgraphExec y;
      CUipcMemHandle handle;
      CUarray a;
      CUDA_ARRAY_DESCRIPTOR ad = {16, 0, CU_AD_FORMAT_FLOAT, 1};
      CUmemAllocationProp prop = pinned();
      CUmemGenericAllocationHandle ph;
      CUmemoryPool pool = NULL;
      CUmemLocation where = {1, 0};
      CUstreamAttrValue av;
      SET(av);
      switch (k) {
        case 0: code = cuMemAlloc(&p, 16); break;
        case 1: code = cuMemFree(0); break;
        case 2: code = cuMemAllocHost(&q, 16); break;
        case 3: code = cuMemcpyHtoD(d, local, 16); break;
        case 4: code = cuMemcpyDtoH(local, d, 16); break;
        case 5: code = cuMemcpyDtoD(d, d + 64, 16); break;
        case 6: code = cuMemsetD8(d, 1, 16); break;
        case 7: code = cuStreamSynchronize(s); break;
        case 8: code = cuStreamQuery(s); break;
        case 9: code = cuCtxSynchronize(); break;
        case 10: code = cuEventQuery(old); break;
        case 11: code = cuEventSynchronize(old); break;
        case 12: code = cuEventRecord(e, t); break;
        case 13: code = cuStreamWaitEvent(s, old, 0); break;
        case 14: code = cuStreamCreate(&u, 1); break;
        case 15: code = cuStreamDestroy(s); break;
        case 16: code = cuEventCreate(&v, 0); break;
        case 17: code = cuModuleLoadData(&m, PTX); break;
        case 18: code = cuMemGetInfo(&z, &z); break;
        case 19: code = cuStreamSynchronize(t); break;
        case 20: code = cuMemsetD8Async(d, 1, 16, t); break;
        case 21: code = cuMemsetD8Async(d, 1, 16, NULL); break;
        case 22: code = cuLaunchHostFunc(s, free, NULL); break;
        case 23: code = cuStreamAddCallback(s, (CUstreamCallback)(void *)free, NULL, 0); break;
        case 24: code = cuMemcpyHtoDAsync(d, local, 16, s); break;
        case 25: code = cuStreamWriteValue32(s, d, 1, 0); break;
        case 26: code = cuMemAllocAsync(&p, 100, s); break;
        case 27: code = cuStreamAttachMemAsync(s, managed, 0, 1); break;
        case 28: code = cuGraphLaunch(x, s); break;
        case 29: code = cuEventRecord(e, s); break;
        case 30: code = cuEventElapsedTime(&ms, old, old); break;
        case 31: code = cuMemAllocManaged(&p, 16, 1); break;
        case 32:
          code = cuMemHostRegister(local, 4096, 0);
          cuMemHostUnregister(local);
          break;
        case 33: code = cuStreamGetFlags(s, &flags); break;
        case 34: code = cuStreamGetId(s, &id); break;
        case 35: code = cuStreamGetPriority(s, &i); break;
        case 36: code = cuStreamSetAttribute(s, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &av); break;
        case 37: code = cuCtxSetLimit(0, 1024); break;
        case 38: code = cuMemPrefetchAsync(managed, 4096, where, 0, s); break;
        case 39: code = cuIpcGetMemHandle(&handle, d); break;
        case 40: code = cuPointerGetAttribute(&i, 2, d); break;
        case 41: code = cuMemFreeAsync(pooled, s); break;
        case 42: code = cuGraphInstantiate(&y, g0, 0); break;
        case 43: code = cuArrayCreate(&a, &ad); break;
        case 44:
          cuDeviceGetDefaultMemPool(&pool, 0);
          code = cuMemPoolTrimTo(pool, 0);
          break;
        case 45: code = cuStreamSynchronize(NULL); break;
        case 46: code = cuStreamQuery(NULL); break;
        case 47: code = cuStreamCopyAttributes(t, s); break;
        case 48: code = cuMemAddressReserve(&p, 2 * MIB, 0, 0, 0); break;
        case 49: code = cuMemCreate(&ph, 2 * MIB, &prop, 0); break;
      }
      int st = k == 15 ? 77 : status();
      int end = k == 15 ? 77 : (int)cuStreamEndCapture(s, &g);
      size_t count = 77;
      if (g && g != (CUgraph)7) cuGraphGetNodes(g, NULL, &count);
      SAY(W("mode %d, %s", mode, names[k]), "%d, status %d, end %d, %s %zu", code, st, end,
          g == NULL         ? "null"
          : g == (CUgraph)7 ? "kept"
                            : "graph",
          count);
      cuCtxSynchronize();
    }
}

static void joining(void) {
  make();
  CUgraph g = NULL;
  CUevent f;
  DO(cuEventCreate(&f, 0));
  DO(cuStreamBeginCapture(s, 0));
  DO(cuEventRecord(e, s));
  ASK("fork", cuStreamWaitEvent(t, e, 0));
  ASK("query of the captured event", cuEventQuery(e));
  CUstreamCaptureStatus st = 77;
  ASK("status of the fork", cuStreamIsCapturing(t, &st), "%d", st);
  ASK("end of the fork", cuStreamEndCapture(t, &g));
  st = 77;
  ASK("status of the origin after that", cuStreamIsCapturing(s, &st), "%d", st);
  ASK("end of the origin", cuStreamEndCapture(s, &g), "%d", g == NULL);
  DO(cuStreamBeginCapture(s, 0));
  DO(cuEventRecord(e, s));
  DO(cuStreamWaitEvent(t, e, 0));
  DO(cuMemsetD8Async(d, 1, 16, t));
  ASK("end without a join", cuStreamEndCapture(s, &g), "%d", g == NULL);
  st = 77;
  ASK("status of the fork after that", cuStreamIsCapturing(t, &st), "%d", st);
  DO(cuStreamBeginCapture(s, 0));
  DO(cuEventRecord(e, s));
  DO(cuStreamWaitEvent(t, e, 0));
  DO(cuMemsetD8Async(d, 1, 16, t));
  DO(cuMemsetD8Async(d, 1, 16, s));
  DO(cuEventRecord(f, t));
  DO(cuStreamWaitEvent(s, f, 0));
  DO(cuMemsetD8Async(d, 1, 16, s));
  ASK("end with a join", cuStreamEndCapture(s, &g), "%d", g != NULL);
  size_t count = 77;
  ASK("its edges", cuGraphGetEdges(g, NULL, NULL, NULL, &count), "%zu", count);
  ASK("query of the event after the end", cuEventQuery(e));
  ASK("synchronize with it", cuEventSynchronize(e));
  ASK("wait for it outside", cuStreamWaitEvent(t, e, 0));
  ASK("record it outside", cuEventRecord(e, t));
  DO(cuStreamBeginCapture(s, 0));
  DO(cuStreamBeginCapture(t, 0));
  DO(cuEventRecord(e, t));
  ASK("wait for another capture's event", cuStreamWaitEvent(s, e, 0));
  ASK("end of one", cuStreamEndCapture(s, &g), "%d", g == NULL);
  ASK("end of the other", cuStreamEndCapture(t, &g), "%d", g == NULL);
  DO(cuStreamBeginCapture(s, 0));
  ASK("wait outside for an external record", cuEventRecordWithFlags(e, s, CU_EVENT_RECORD_EXTERNAL));
  ASK("wait for an external event", cuStreamWaitEvent(s, f, CU_EVENT_WAIT_EXTERNAL));
  ASK("end with external events", cuStreamEndCapture(s, &g), "%d", g != NULL);
  CUgraphNode nodes[4];
  count = 4;
  ASK("its nodes", cuGraphGetNodes(g, nodes, &count), "%zu", count);
}

static void telling(void) {
  make();
  CUstreamCaptureStatus st = 77;
  cuuint64_t id = 77;
  CUgraph g = (CUgraph)7, made;
  const CUgraphNode *deps = (void *)7;
  const CUgraphEdgeData *data = (void *)7;
  size_t count = 77;
  ASK("outside", cuStreamGetCaptureInfo(s, &st, &id, &g, &deps, &data, &count), "%d %d %d %d %d %zu", st, id == 77,
      g == (CUgraph)7, deps == (void *)7, data == (void *)7, count);
  DO(cuStreamBeginCapture(s, 0));
  ASK("inside", cuStreamGetCaptureInfo(s, &st, &id, &g, &deps, &data, &count), "%d %d %d %d %d %zu", st, id != 77,
      g != NULL, deps == NULL, data == NULL, count);
  DO(cuMemsetD8Async(d, 1, 16, s));
  ASK("after one node", cuStreamGetCaptureInfo(s, &st, &id, &g, &deps, &data, &count), "%d %d %zu", st, data == NULL,
      count);
  ASK("status only", cuStreamGetCaptureInfo(s, &st, NULL, NULL, NULL, NULL, NULL), "%d", st);
  ASK("dependencies without data", cuStreamGetCaptureInfo(s, &st, NULL, NULL, &deps, NULL, &count), "%zu", count);
  ASK("dependencies without a count", cuStreamGetCaptureInfo(s, &st, NULL, NULL, &deps, NULL, NULL));
  RISK("without a status", cuStreamGetCaptureInfo(s, NULL, &id, NULL, NULL, NULL, NULL));
  ASK("of the NULL stream", cuStreamGetCaptureInfo(NULL, &st, NULL, NULL, NULL, NULL, NULL), "%d", st);
  ASK("capturing of the NULL stream", cuStreamIsCapturing(NULL, &st), "%d", st);
  CUgraphNode n;
  DO(cuGraphAddEmptyNode(&n, g, NULL, 0));
  for (int flags = 0; flags <= 3; flags++)
    ASK(W("update with flags %d", flags), cuStreamUpdateCaptureDependencies(s, &n, NULL, 1, flags));
  DO(cuStreamGetCaptureInfo(s, &st, NULL, NULL, &deps, NULL, &count));
  SAY("dependencies after that", "%zu %d", count, count && deps[0] == n);
  ASK("set none", cuStreamUpdateCaptureDependencies(s, NULL, NULL, 0, 1));
  ASK("end with a node that is not joined", cuStreamEndCapture(s, &made), "%d", made == g);
  ASK("update outside", cuStreamUpdateCaptureDependencies(s, &n, NULL, 1, 0));
  CUstreamCaptureMode mode;
  for (int m = 0; m <= 3; m++) {
    mode = m;
    ASK(W("exchange the mode %d", m), cuThreadExchangeStreamCaptureMode(&mode), "%d", mode);
  }
  RISK("exchange NULL", cuThreadExchangeStreamCaptureMode(NULL));
}

static void *elsewhere(void *code) {
  cuCtxSetCurrent(context);
  CUgraph g = NULL;
  *(int *)code = cuStreamEndCapture(s, &g);
  return NULL;
}
static void *free_elsewhere(void *code) {
  cuCtxSetCurrent(context);
  CUdeviceptr p;
  *(int *)code = cuMemAlloc(&p, 16);
  return NULL;
}
static void threads(void) {
  make();
  for (int mode = 0; mode <= 2; mode++) {
    int code = 77;
    pthread_t thread;
    CUgraph g = NULL;
    DO(cuStreamBeginCapture(s, mode));
    pthread_create(&thread, NULL, free_elsewhere, &code);
    pthread_join(thread, NULL);
    SAY(W("another thread allocates, mode %d", mode), "%d %d", code, status());
    pthread_create(&thread, NULL, elsewhere, &code);
    pthread_join(thread, NULL);
    SAY(W("another thread ends, mode %d", mode), "%d %d", code, status());
    ASK(W("end, mode %d", mode), cuStreamEndCapture(s, &g), "%d", g != NULL);
  }
}

CASES RUN(starting) RUN(breaking) RUN(joining) RUN(telling) RUN(threads) END
