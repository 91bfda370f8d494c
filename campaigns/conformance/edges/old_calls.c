/* Calls of earlier versions, as cuGetProcAddress gives them: what they take, and what they refuse otherwise than the
 * new. */
#include "ask.h"

static void *of(const char *name, int version) {
  void *f = NULL;
  DO(cuGetProcAddress(name, &f, version, 0, NULL));
  return f;
}

static void contexts(void) {
  CUcontext c = NULL;
  CUresult (*two)(CUcontext *, unsigned, CUdevice) = of("cuCtxCreate", 3020);
  CUresult (*three)(CUcontext *, CUexecAffinityParam *, int, unsigned, CUdevice) = of("cuCtxCreate", 11040);
  CUresult (*one)(CUcontext *, unsigned, CUdevice) = of("cuCtxCreate", 2000);
  ASK("one", one(&c, 0, 0), "%d", c != NULL);
  unsigned v = 77;
  ASK("version of one", cuCtxGetApiVersion(c, &v), "%u", v);
  ASK("two", two(&c, 0, 0));
  ASK("version of two", cuCtxGetApiVersion(c, &v), "%u", v);
  ASK("flags of 64", two(&c, 64, 0));
  ASK("flags of 128", two(&c, 128, 0));
  ASK("three without affinity", three(&c, NULL, 0, 0, 0));
  ASK("version of three", cuCtxGetApiVersion(c, &v), "%u", v);
  ASK("three with one affinity, NULL", three(&c, NULL, 1, 0, 0));
  CUexecAffinityParam a;
  SET(a);
  a.param.smCount.val = 10;
  ASK("three with an affinity", three(&c, &a, 1, 0, 0));
  CUresult (*pop)(CUcontext *) = of("cuCtxPopCurrent", 2000);
  ASK("pop", pop(&c), "%d", c != NULL);
  CUresult (*destroy)(CUcontext) = of("cuCtxDestroy", 2000);
  ASK("destroy what is not current", destroy(c));
  CUresult (*set)(CUdevice, unsigned) = of("cuDevicePrimaryCtxSetFlags", 7000),
                            (*reset)(CUdevice) = of("cuDevicePrimaryCtxReset", 7000);
  ASK("flags of the active primary", set(0, 4));
  ASK("reset", reset(0));
}

static void memory(void) {
  unsigned d = 7, size = 7;
  CUresult (*alloc)(unsigned *, unsigned) = of("cuMemAlloc", 2000);
  CUresult (*release)(unsigned) = of("cuMemFree", 2000);
  CUresult (*info)(unsigned *, unsigned *) = of("cuMemGetInfo", 2000);
  CUresult (*total)(unsigned *, CUdevice) = of("cuDeviceTotalMem", 2000);
  ASK("alloc", alloc(&d, 16), "%d", d == 7);
  ASK("alloc of 0", alloc(&d, 0));
  ASK("free of 0", release(0));
  ASK("free of 7", release(7));
  unsigned a = 7, b = 7;
  ASK("info", info(&a, &b), "%u", b);
  ASK("total", total(&size, 0), "%u", size);
  void *p = NULL;
  CUresult (*host)(void **, unsigned) = of("cuMemAllocHost", 2000);
  ASK("host", host(&p, 16), "%d", p != NULL);
  unsigned dp = 7;
  CUresult (*pointer)(unsigned *, void *, unsigned) = of("cuMemHostGetDevicePointer", 2020);
  ASK("device pointer", pointer(&dp, p, 0), "%d", dp == 7);
  CUresult (*registered)(void *, size_t, unsigned) = of("cuMemHostRegister", 4000);
  void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASK("register", registered(page, 4096, 0));
  CUdeviceptr m = 0;
  DO(cuMemAllocManaged(&m, 65536, 1));
  CUresult (*prefetch)(CUdeviceptr, size_t, CUdevice, CUstream) = of("cuMemPrefetchAsync", 8000);
  CUresult (*advise)(CUdeviceptr, size_t, CUmem_advise, CUdevice) = of("cuMemAdvise", 8000);
  int devices[] = {-2, -1, 0, 99};
  for (int i = 0; i < 4; i++) {
    ASK(W("prefetch to %d", devices[i]), prefetch(m, 65536, devices[i], 0));
    for (int advice = 1; advice <= 6; advice++)
      ASK(W("advice %d for %d", advice, devices[i]), advise(m, 65536, advice, devices[i]));
  }
  CUipcMemHandle h;
  CUdeviceptr o = 0, own = 0;
  DO(cuMemAlloc(&own, 4096));
  DO(cuIpcGetMemHandle(&h, own));
  CUresult (*opened)(CUdeviceptr *, CUipcMemHandle, unsigned) = of("cuIpcOpenMemHandle", 4010);
  ASK("open in the same process", opened(&o, h, 1));
  ASK("open without the flag", opened(&o, h, 0));
}

static void streams(void) {
  CUstream s;
  CUgraph g = NULL;
  CUevent e, f;
  DO(cuStreamCreate(&s, 1));
  DO(cuEventCreate(&e, 0));
  DO(cuEventCreate(&f, 0));
  CUresult (*begin1)(CUstream) = of("cuStreamBeginCapture", 10000);
  CUresult (*begin2)(CUstream, CUstreamCaptureMode) = of("cuStreamBeginCapture", 10010);
  CUresult (*info1)(CUstream, CUstreamCaptureStatus *, cuuint64_t *) = of("cuStreamGetCaptureInfo", 10010);
  CUresult (*info2)(CUstream, CUstreamCaptureStatus *, cuuint64_t *, CUgraph *, const CUgraphNode **, size_t *) =
      of("cuStreamGetCaptureInfo", 11030);
  CUresult (*info3)(CUstream, CUstreamCaptureStatus *, cuuint64_t *, CUgraph *, const CUgraphNode **,
                    const CUgraphEdgeData **, size_t *) = of("cuStreamGetCaptureInfo", 12030);
  CUresult (*update1)(CUstream, CUgraphNode *, size_t, unsigned) = of("cuStreamUpdateCaptureDependencies", 11030);
  ASK("begin", begin1(s));
  CUstreamCaptureStatus st = 77;
  cuuint64_t id = 77;
  const CUgraphNode *deps = NULL;
  const CUgraphEdgeData *edges = NULL;
  size_t n = 77;
  ASK("info 1", info1(s, &st, &id), "%d %d", st, id != 77);
  ASK("info 2", info2(s, &st, &id, &g, &deps, &n), "%d %zu", st, n);
  ASK("info 3", info3(s, &st, &id, &g, &deps, &edges, &n), "%d %zu", st, n);
  ASK("update", update1(s, NULL, 0, 1));
  ASK("end", cuStreamEndCapture(s, &g));
  for (int mode = 0; mode <= 3; mode++) {
    ASK(W("begin 2, mode %d", mode), begin2(s, mode));
    ASK(W("end 2, mode %d", mode), cuStreamEndCapture(s, &g));
  }
  CUresult (*elapsed)(float *, CUevent, CUevent) = of("cuEventElapsedTime", 2000);
  float t = 7;
  ASK("time of neither", elapsed(&t, e, f));
  DO(cuEventRecord(e, s));
  DO(cuEventRecord(f, s));
  DO(cuStreamSynchronize(s));
  ASK("time", elapsed(&t, e, f), "%d", t >= 0 && t < 1000);
  CUcontext c = NULL;
  CUresult (*context1)(CUstream, CUcontext *) = of("cuStreamGetCtx", 9020);
  CUgreenCtx green = (CUgreenCtx)7;
  CUresult (*context2)(CUstream, CUcontext *, CUgreenCtx *) = of("cuStreamGetCtx", 12050);
  ASK("context 1", context1(s, &c), "%d", c == context);
  ASK("context 2", context2(s, &c, &green), "%d %d", c == context, green == NULL);
  CUresult (*destroy)(CUstream) = of("cuStreamDestroy", 2000);
  CUresult (*gone)(CUevent) = of("cuEventDestroy", 2000);
  ASK("destroy the stream", destroy(s));
  ASK("destroy the event", gone(e));
  CUdeviceptr d = 0;
  DO(cuMemAlloc(&d, 64));
  CUresult (*write)(CUstream, CUdeviceptr, cuuint32_t, unsigned) = of("cuStreamWriteValue32", 8000);
  CUresult (*wait)(CUstream, CUdeviceptr, cuuint32_t, unsigned) = of("cuStreamWaitValue32", 8000);
  ASK("write 1", write ? write(NULL, d, 5, 0) : (CUresult)-1);
  ASK("wait 1", wait ? wait(NULL, d, 5, 1) : (CUresult)-1);
}

static void graphs(void) {
  CUgraph g;
  CUgraphNode a, b, from[2], to[2];
  CUgraphExec x = NULL;
  DO(cuGraphCreate(&g, 0));
  DO(cuGraphAddEmptyNode(&a, g, NULL, 0));
  DO(cuGraphAddEmptyNode(&b, g, NULL, 0));
  CUresult (*add)(CUgraph, const CUgraphNode *, const CUgraphNode *, size_t) = of("cuGraphAddDependencies", 10000);
  CUresult (*remove_)(CUgraph, const CUgraphNode *, const CUgraphNode *, size_t) =
      of("cuGraphRemoveDependencies", 10000);
  CUresult (*edges)(CUgraph, CUgraphNode *, CUgraphNode *, size_t *) = of("cuGraphGetEdges", 10000);
  CUresult (*before)(CUgraphNode, CUgraphNode *, size_t *) = of("cuGraphNodeGetDependencies", 10000);
  size_t n = 2;
  ASK("add", add(g, &a, &b, 1));
  ASK("add again", add(g, &a, &b, 1));
  ASK("edges", edges(g, from, to, &n), "%zu %d", n, from[0] == a);
  n = 2;
  ASK("dependencies", before(b, from, &n), "%zu", n);
  ASK("remove", remove_(g, &a, &b, 1));
  ASK("remove again", remove_(g, &a, &b, 1));
  CUgraphNode bad = (CUgraphNode)7;
  char log[64] = "#";
  CUresult (*make1)(CUgraphExec *, CUgraph, CUgraphNode *, char *, size_t) = of("cuGraphInstantiate", 10000);
  CUresult (*make2)(CUgraphExec *, CUgraph, CUgraphNode *, char *, size_t) = of("cuGraphInstantiate", 11000);
  CUresult (*make3)(CUgraphExec *, CUgraph, unsigned long long) = of("cuGraphInstantiateWithFlags", 11040);
  ASK("instantiate 1", make1(&x, g, &bad, log, sizeof log), "%d %s", bad == NULL, log);
  ASK("instantiate 2", make2(&x, g, NULL, NULL, 0));
  ASK("instantiate 2 with a size and no buffer", make2(&x, g, NULL, NULL, 10));
  ASK("instantiate with flags", make3 ? make3(&x, g, 0) : (CUresult)-1);
  CUresult (*update)(CUgraphExec, CUgraph, CUgraphNode *, CUgraphExecUpdateResult *) = of("cuGraphExecUpdate", 10020);
  CUgraphExecUpdateResult r = 77;
  bad = (CUgraphNode)7;
  ASK("update", update(x, g, &bad, &r), "%d %d", bad == NULL, r);
  RISK("update without a node", update(x, g, NULL, &r));
  CUgraph other_;
  DO(cuGraphCreate(&other_, 0));
  ASK("update to nothing", update(x, other_, &bad, &r), "%d %d", bad == NULL, r);
  CUmodule m;
  CUfunction f;
  DO(cuModuleLoadData(&m, PTX));
  DO(cuModuleGetFunction(&f, m, "empty"));
  CUDA_KERNEL_NODE_PARAMS_v1 p;
  SET(p);
  p.func = f, p.gridDimX = p.gridDimY = p.gridDimZ = p.blockDimX = p.blockDimY = p.blockDimZ = 1;
  CUresult (*kernel)(CUgraphNode *, CUgraph, const CUgraphNode *, size_t, const CUDA_KERNEL_NODE_PARAMS_v1 *) =
      of("cuGraphAddKernelNode", 10000);
  ASK("kernel", kernel(&a, g, NULL, 0, &p));
  p.func = NULL;
  RISK("kernel without a function", kernel(&a, g, NULL, 0, &p));
}

CASES RUN(contexts) RUN(memory) RUN(streams) RUN(graphs) END
