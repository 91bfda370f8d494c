/* Two devices: graphs with nodes of both, and capture of streams of both. */
#include "two.h"

/* A code, and what the format makes of what follows it, which is computed after it. */
#define AFTER(first, format, ...)         \
  ({                                      \
    int first_ = (int)(first);            \
    W("%d " format, first_, __VA_ARGS__); \
  })
/* As word, after all that the current context and the device's have to do. */
static UNUSED unsigned settled_word(int d, CUdeviceptr p) {
  CUcontext none;
  cuCtxSynchronize();
  if (!cuCtxPushCurrent(of[d])) {
    cuCtxSynchronize();
    cuCtxPopCurrent(&none);
  }
  return word(d, p);
}
#define word settled_word

static CUstream s[2];
static CUdeviceptr m[2];
static void start(void) {
  alarm(10);
  both();
  for (int d = 0; d < 2; d++) {
    on(d);
    DO(cuStreamCreate(&s[d], CU_STREAM_NON_BLOCKING));
    m[d] = memory(d, 65536, 0x11 * (d + 1));
  }
  on(0);
}
static CUDA_MEMSET_NODE_PARAMS fill(int d, size_t offset, unsigned byte) {
  CUDA_MEMSET_NODE_PARAMS p;
  SET(p);
  p.dst = m[d] + offset, p.elementSize = 1, p.value = byte, p.width = 64, p.height = 1;
  return p;
}
static CUDA_MEMCPY3D copy(CUdeviceptr to, CUdeviceptr from) {
  CUDA_MEMCPY3D p;
  SET(p);
  p.srcMemoryType = p.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  p.srcDevice = from, p.dstDevice = to, p.WidthInBytes = 64, p.Height = p.Depth = 1;
  return p;
}
static int runs_;
static void count(void *x) { *(int *)x += 1; }
/* Instantiates and launches a graph in a stream of a device: the first code that is not 0, or that of the stream. */
static int go(CUgraph g, int d) {
  CUgraphExec x = NULL;
  int code = cuGraphInstantiate(&x, g, 0);
  if (code) return 1000 + code;
  code = cuGraphLaunch(x, s[d]);
  if (code) return 2000 + code;
  code = settled(s[d]);
  cuGraphExecDestroy(x);
  return code;
}

static void nodes(void) {
  start();
  CUgraph g;
  CUgraphNode n = NULL;
  CUDA_MEMSET_NODE_PARAMS p, got;
  CUDA_MEMCPY3D q, back;
  for (int c = 0; c < 2; c++)
    for (int d = 0; d < 2; d++) {
      size_t o = 256 * (2 * c + d);
      DO(cuGraphCreate(&g, 0));
      p = fill(d, o, 0x30 + 2 * c + d);
      ASK(W("fill of %d in context %d", d, c), cuGraphAddMemsetNode(&n, g, NULL, 0, &p, of[c]), "%s",
          AFTER(go(g, c), "%x", word(d, m[d] + o)));
      SET(got);
      ASK(W("parameters of the fill of %d in %d", d, c), cuGraphMemsetNodeGetParams(n, &got), "%d %x %zu",
          got.dst == p.dst, got.value, got.width);
      DO(cuGraphDestroy(g));
      DO(cuGraphCreate(&g, 0));
      q = copy(m[!d] + o + 128, m[d] + 32768);
      ASK(W("copy %d to %d in context %d", d, !d, c), cuGraphAddMemcpyNode(&n, g, NULL, 0, &q, of[c]), "%s",
          AFTER(go(g, c), "%x", word(!d, m[!d] + o + 128)));
      SET(back);
      ASK(W("parameters of the copy from %d in %d", d, c), cuGraphMemcpyNodeGetParams(n, &back), "%d %zu",
          back.srcDevice == q.srcDevice, back.WidthInBytes);
      ASK(W("launch the copy from %d of %d in the other's stream", d, c), go(g, !c));
      DO(cuGraphDestroy(g));
    }
  DO(cuGraphCreate(&g, 0));
  p = fill(1, 0, 1);
  q = copy(m[1], m[0]);
  RISK("fill without a context", cuGraphAddMemsetNode(&n, g, NULL, 0, &p, NULL));
  RISK("copy without a context", cuGraphAddMemcpyNode(&n, g, NULL, 0, &q, NULL));
  on(-1);
  n = NULL;
  ASK("fill in none", cuGraphAddMemsetNode(&n, g, NULL, 0, &p, of[1]));
  ASK("copy in none", cuGraphAddMemcpyNode(&n, g, &n, n != NULL, &q, of[1]));
  CUgraphExec x = NULL;
  ASK("instantiate in none", cuGraphInstantiate(&x, g, 0));
  ASK("launch in none", x ? cuGraphLaunch(x, s[1]) : 9999, "%d", settled(s[1]));
  ASK("launch in none in NULL", x ? cuGraphLaunch(x, NULL) : 9999);
  ASK("upload in none", x ? cuGraphUpload(x, s[0]) : 9999, "%d", settled(s[0]));
  CUgraphNodeParams any;
  SET(any);
  any.type = CU_GRAPH_NODE_TYPE_MEMSET;
  any.memset.dst = m[1] + 2048, any.memset.elementSize = 4, any.memset.value = 0x1234, any.memset.width = 4,
  any.memset.height = 1, any.memset.ctx = of[1];
  ASK("any fill in none", cuGraphAddNode(&n, g, NULL, NULL, 0, &any));
  any.memset.ctx = NULL;
  ASK("any fill in none without a context", cuGraphAddNode(&n, g, NULL, NULL, 0, &any));
  on(0);
  any.memset.dst = m[0] + 2048;
  ASK("any fill without a context", cuGraphAddNode(&n, g, NULL, NULL, 0, &any));
  SET(any);
  any.type = CU_GRAPH_NODE_TYPE_MEMCPY;
  any.memcpy.copyCtx = of[1], any.memcpy.copyParams = copy(m[0] + 4096, m[1] + 32768);
  ASK("any copy", cuGraphAddNode(&n, g, NULL, NULL, 0, &any), "%s",
      AFTER(go(g, 0), "%x %x", word(0, m[0] + 4096), word(1, m[1] + 2048)));
}

static void together(void) {
  start();
  CUgraph g, clone = NULL;
  CUgraphNode n[8], found = NULL;
  CUgraphExec x = NULL;
  DO(cuGraphCreate(&g, 0));
  CUDA_MEMSET_NODE_PARAMS p = fill(1, 0, 0x41);
  ASK("a fill of 1", cuGraphAddMemsetNode(&n[0], g, NULL, 0, &p, of[1]));
  CUDA_MEMCPY3D q = copy(m[0], m[1]);
  ASK("a copy to 0", cuGraphAddMemcpyNode(&n[1], g, n, 1, &q, of[0]));
  CUDA_HOST_NODE_PARAMS h = {count, &runs_};
  ASK("a function", cuGraphAddHostNode(&n[2], g, &n[1], 1, &h));
  CUevent e[2];
  for (int d = 0; d < 2; d++) {
    on(d);
    DO(cuEventCreate(&e[d], CU_EVENT_DISABLE_TIMING));
  }
  on(0);
  ASK("a record of 1's event", cuGraphAddEventRecordNode(&n[3], g, &n[2], 1, e[1]));
  ASK("a wait for 1's event", cuGraphAddEventWaitNode(&n[4], g, NULL, 0, e[1]));
  ASK("a record of 0's event", cuGraphAddEventRecordNode(&n[5], g, &n[4], 1, e[0]));
  ASK("instantiate", cuGraphInstantiate(&x, g, 0));
  for (int c = 0; c < 2; c++)
    for (int d = 0; d < 2; d++) {
      on(c);
      ASK(W("launch in %d's stream, %d current", d, c), cuGraphLaunch(x, s[d]), "%s",
          AFTER(settled(s[d]), "%d %x %x", runs_, word(0, m[0]), word(1, m[1])));
    }
  on(0);
  SAY("events", "%d %d", cuEventQuery(e[0]), cuEventQuery(e[1]));
  ASK("clone", cuGraphClone(&clone, g));
  ASK("the fill in the clone", cuGraphNodeFindInClone(&found, n[0], clone), "%d", found != n[0]);
  size_t count_ = 0;
  ASK("nodes of the clone", cuGraphGetNodes(clone, NULL, &count_), "%zu", count_);
  p.value = 0x42;
  ASK("another value in the clone", cuGraphMemsetNodeSetParams(found, &p));
  CUgraphExecUpdateResultInfo info;
  SET(info);
  ASK("update from the clone", cuGraphExecUpdate(x, clone, &info), "%d", info.result);
  ASK("launch the updated", cuGraphLaunch(x, s[1]), "%s", AFTER(settled(s[1]), "%x %x", word(0, m[0]), word(1, m[1])));
  p = fill(0, 128, 0x43);
  ASK("the fill to 0's memory", cuGraphMemsetNodeSetParams(found, &p));
  SET(info);
  ASK("update to 0's memory", cuGraphExecUpdate(x, clone, &info), "%d %d %d", info.result, info.errorNode == found,
      info.errorFromNode == NULL);
  ASK("launch after that", cuGraphLaunch(x, s[0]), "%s", AFTER(settled(s[0]), "%x", word(0, m[0] + 128)));
  p = fill(1, 192, 0x44);
  ASK("set the fill of the instance, context 1", cuGraphExecMemsetNodeSetParams(x, n[0], &p, of[1]));
  ASK("set the fill of the instance, context 0", cuGraphExecMemsetNodeSetParams(x, n[0], &p, of[0]));
  p = fill(0, 192, 0x45);
  ASK("set it to 0's memory, context 1", cuGraphExecMemsetNodeSetParams(x, n[0], &p, of[1]));
  ASK("set it to 0's memory, context 0", cuGraphExecMemsetNodeSetParams(x, n[0], &p, of[0]));
  q = copy(m[0] + 256, m[1] + 256);
  ASK("set the copy, context 0", cuGraphExecMemcpyNodeSetParams(x, n[1], &q, of[0]));
  ASK("set the copy, context 1", cuGraphExecMemcpyNodeSetParams(x, n[1], &q, of[1]));
  q = copy(m[1] + 256, m[0] + 256);
  ASK("turn the copy, context 0", cuGraphExecMemcpyNodeSetParams(x, n[1], &q, of[0]));
  q = copy(m[0] + 256, m[0] + 512);
  ASK("the copy within 0, context 0", cuGraphExecMemcpyNodeSetParams(x, n[1], &q, of[0]));
  ASK("launch after those", cuGraphLaunch(x, s[0]), "%s",
      AFTER(settled(s[0]), "%x %x", word(1, m[1] + 192), word(0, m[0] + 256)));
  ASK("another event", cuGraphExecEventRecordNodeSetEvent(x, n[3], e[0]));
  ASK("its event in the graph", cuGraphEventRecordNodeSetEvent(n[3], e[0]));
  CUevent got = NULL;
  ASK("get it", cuGraphEventRecordNodeGetEvent(n[3], &got), "%d", got == e[0]);
  unsigned on_ = 9;
  ASK("disable the fill", cuGraphNodeSetEnabled(x, n[0], 0));
  ASK("enabled", cuGraphNodeGetEnabled(x, n[0], &on_), "%u", on_);
  CUgraph outer;
  DO(cuGraphCreate(&outer, 0));
  ASK("as a child", cuGraphAddChildGraphNode(&n[6], outer, NULL, 0, g));
  ASK("run the outer in 1", go(outer, 1), "%d", runs_);
  ASK("destroy 1's event", cuEventDestroy(e[1]));
  RISK("launch after that destroy", cuGraphLaunch(x, s[0]), "%d", settled(s[0]));
  ASK("reset 1", cuDevicePrimaryCtxReset(1));
  RISK("launch after reset", cuGraphLaunch(x, s[0]), "%d", settled(s[0]));
  RISK("instantiate after reset", cuGraphInstantiate(&x, g, 0));
  RISK("clone after reset", cuGraphClone(&clone, g));
  RISK("destroy the instance", cuGraphExecDestroy(x));
  RISK("destroy the graph", cuGraphDestroy(g));
  ASK("0's stream", settled(s[0]));
}

static CUDA_MEM_ALLOC_NODE_PARAMS want(int d) {
  CUDA_MEM_ALLOC_NODE_PARAMS a;
  SET(a);
  a.poolProps = pool_on_device(0), a.poolProps.location.id = d, a.bytesize = 65536;
  return a;
}
static unsigned long long mark(int d, int a) {
  unsigned long long v = 0;
  int code = cuDeviceGetGraphMemAttribute(d, a, &v);
  return code ? 1000000000000ull + code : v;
}
static void memory_nodes(void) {
  start();
  CUgraph g;
  CUgraphNode n[4];
  CUgraphExec x = NULL, y = NULL;
  CUDA_MEM_ALLOC_NODE_PARAMS a;
  for (int c = -1; c < 2; c++)
    for (int d = -1; d < 3; d++) {
      on(c);
      DO(cuGraphCreate(&g, 0));
      a = want(d);
      ASK(W("on %d, %d current", d, c), cuGraphAddMemAllocNode(&n[0], g, NULL, 0, &a), "%d %d", a.dptr != 0,
          a.dptr ? where(a.dptr) : -1);
      DO(cuGraphDestroy(g));
    }
  on(0);
  DO(cuGraphCreate(&g, 0));
  CUmemAccessDesc d[2] = {access_of(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE),
                          access_of(2, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)};
  a = want(1), a.accessDescs = d, a.accessDescCount = 2;
  ASK("access of 2", cuGraphAddMemAllocNode(&n[0], g, NULL, 0, &a));
  d[0].flags = CU_MEM_ACCESS_FLAGS_PROT_READ, a.accessDescCount = 1;
  ASK("reading of 0", cuGraphAddMemAllocNode(&n[0], g, NULL, 0, &a));
  DO(cuGraphDestroy(g));
  DO(cuGraphCreate(&g, 0));
  d[0].flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  a = want(1), a.accessDescs = d, a.accessDescCount = 1;
  ASK("access of 0", cuGraphAddMemAllocNode(&n[0], g, NULL, 0, &a));
  CUDA_MEM_ALLOC_NODE_PARAMS got;
  SET(got);
  ASK("its parameters", cuGraphMemAllocNodeGetParams(n[0], &got), "%d %d %zu %zu", got.dptr == a.dptr,
      got.poolProps.location.id, got.accessDescCount, got.bytesize);
  CUDA_MEMSET_NODE_PARAMS p = fill(0, 0, 0x61);
  p.dst = a.dptr;
  ASK("fill it in context 0", cuGraphAddMemsetNode(&n[1], g, n, 1, &p, of[0]));
  CUDA_MEMCPY3D q = copy(m[0], a.dptr);
  ASK("copy it to 0", cuGraphAddMemcpyNode(&n[2], g, &n[1], 1, &q, of[0]));
  ASK("free it", cuGraphAddMemFreeNode(&n[3], g, &n[2], 1, a.dptr));
  ASK("free it twice", cuGraphAddMemFreeNode(&n[3], g, &n[2], 1, a.dptr));
  SAY("marks before", "%llu %llu %llu %llu", mark(0, 0), mark(1, 0), mark(0, 2), mark(1, 2));
  ASK("instantiate", cuGraphInstantiate(&x, g, 0));
  ASK("instantiate again", cuGraphInstantiate(&y, g, 0));
  ASK("launch in 0's stream", cuGraphLaunch(x, s[0]), "%s", AFTER(settled(s[0]), "%x", word(0, m[0])));
  SAY("marks", "%llu %llu %d %d", mark(0, 0), mark(1, 0), mark(0, 2) > 0, mark(1, 2) > 0);
  SAY("high marks", "%llu %llu", mark(0, 1), mark(1, 1));
  ASK("launch in 1's stream", cuGraphLaunch(x, s[1]), "%d", settled(s[1]));
  ASK("destroy the instance", cuGraphExecDestroy(x));
  ASK("trim 1", cuDeviceGraphMemTrim(1), "%llu %llu", mark(0, 2), mark(1, 2));
  ASK("trim 2", cuDeviceGraphMemTrim(2));
  unsigned long long zero = 0;
  ASK("reset 1's high mark", cuDeviceSetGraphMemAttribute(1, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &zero), "%llu",
      mark(1, 1));
  ASK("set 1's used", cuDeviceSetGraphMemAttribute(1, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &zero));
  ASK("mark of 2", cuDeviceGetGraphMemAttribute(2, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &zero));
  CUgraph clone = NULL;
  ASK("clone", cuGraphClone(&clone, g));
  ASK("destroy the graph", cuGraphDestroy(g));
  DO(cuGraphCreate(&g, 0));
  a = want(1);
  DO(cuGraphAddMemAllocNode(&n[0], g, NULL, 0, &a));
  DO(cuGraphInstantiate(&x, g, 0));
  ASK("launch one that keeps it", cuGraphLaunch(x, s[1]), "%s", AFTER(settled(s[1]), "%d", where(a.dptr)));
  ASK("launch it again", cuGraphLaunch(x, s[1]));
  SAY("used by it", "%llu %llu", mark(0, 0), mark(1, 0));
  ASK("free it in 0's stream", cuMemFreeAsync(a.dptr, s[0]), "%d", settled(s[0]));
  SAY("used after the free", "%llu %llu", mark(0, 0), mark(1, 0));
  ASK("launch it once more", cuGraphLaunch(x, s[0]), "%d", settled(s[0]));
  ASK("plain free", cuMemFree(a.dptr));
}

static int status(CUstream t) {
  CUstreamCaptureStatus c = 9;
  int code = cuStreamIsCapturing(t, &c);
  return code ? 1000 + code : (int)c;
}
static void capture(void) {
  start();
  CUgraph g = NULL;
  CUevent e[2];
  size_t n = 0;
  for (int d = 0; d < 2; d++) {
    on(d);
    DO(cuEventCreate(&e[d], CU_EVENT_DISABLE_TIMING));
  }
  on(1);
  ASK("begin in 0's stream in 1", cuStreamBeginCapture(s[0], CU_STREAM_CAPTURE_MODE_RELAXED), "%d %d", status(s[0]),
      status(s[1]));
  ASK("fill of 1 in it", cuMemsetD8Async(m[1], 0x71, 64, s[0]));
  ASK("copy in it", cuMemcpyPeerAsync(m[0], of[0], m[1], of[1], 64, s[0]));
  ASK("record 1's event in it", cuEventRecord(e[1], s[0]));
  ASK("record 0's event in it", cuEventRecord(e[0], s[0]), "%d", status(s[0]));
  ASK("1's stream joins", cuStreamWaitEvent(s[1], e[0], 0), "%d", status(s[1]));
  ASK("query of the event", cuEventQuery(e[0]));
  ASK("fill of 1 in 1's", cuMemsetD8Async(m[1] + 64, 0x72, 64, s[1]));
  ASK("a function in 1's", cuLaunchHostFunc(s[1], count, &runs_));
  ASK("end without joining", cuStreamEndCapture(s[0], &g), "%d %d %d", g != NULL, status(s[0]), status(s[1]));
  on(0);
  DO(cuStreamBeginCapture(s[0], CU_STREAM_CAPTURE_MODE_RELAXED));
  DO(cuMemsetD8Async(m[0], 0x73, 64, s[0]));
  DO(cuEventRecord(e[0], s[0]));
  ASK("join again", cuStreamWaitEvent(s[1], e[0], 0), "%d", status(s[1]));
  cuuint64_t id[2] = {0};
  CUgraph in[2] = {0};
  CUstreamCaptureStatus st;
  for (int d = 0; d < 2; d++)
    ASK(W("capture of %d's", d), cuStreamGetCaptureInfo(s[d], &st, &id[d], &in[d], NULL, NULL, &n), "%d %zu", st, n);
  SAY("the same", "%d %d", id[0] == id[1], in[0] == in[1]);
  ASK("fill of 1", cuMemsetD8Async(m[1], 0x74, 64, s[1]));
  ASK("copy from 0 in 1's", cuMemcpyDtoDAsync(m[1] + 128, m[0], 64, s[1]));
  ASK("a function", cuLaunchHostFunc(s[1], count, &runs_));
  ASK("memory in 1's", cuMemAllocAsync(&(CUdeviceptr){0}, 4096, s[1]));
  ASK("end in 1's", cuStreamEndCapture(s[1], &g));
  ASK("status after it", 0, "%d %d", status(s[0]), status(s[1]));
  DO(cuEventRecord(e[1], s[1]));
  ASK("0's waits", cuStreamWaitEvent(s[0], e[1], 0));
  ASK("end", cuStreamEndCapture(s[0], &g), "%d %d", g != NULL, status(s[0]));
  ASK("nodes", g ? cuGraphGetNodes(g, NULL, &n) : 9999, "%zu", n);
  if (g) {
    ASK("edges", cuGraphGetEdges(g, NULL, NULL, NULL, &n), "%zu", n);
    ASK("run in 0", go(g, 0), "%d %x %x", runs_, word(1, m[1]), word(1, m[1] + 128));
    ASK("run in 1", go(g, 1), "%d", runs_);
  }
  for (int mode = 0; mode < 3; mode++) {
    on(0);
    DO(cuStreamBeginCapture(s[0], mode));
    on(1);
    CUdeviceptr p = 0;
    ASK(W("memory of 1 in mode %d", mode), cuMemAlloc(&p, 4096), "%d", status(s[0]));
    ASK(W("synchronize 1 in mode %d", mode), cuCtxSynchronize(), "%d", status(s[0]));
    ASK(W("NULL stream of 1 in mode %d", mode), cuMemsetD8(m[1], 1, 64), "%d", status(s[0]));
    ASK(W("1's stream in mode %d", mode), cuStreamSynchronize(s[1]), "%d", status(s[0]));
    g = NULL;
    ASK(W("end of mode %d", mode), cuStreamEndCapture(s[0], &g), "%d", g != NULL);
  }
  on(0);
  DO(cuStreamBeginCapture(s[1], CU_STREAM_CAPTURE_MODE_RELAXED));
  DO(cuMemsetD8Async(m[1], 1, 64, s[1]));
  ASK("reset 1 while capturing", cuDevicePrimaryCtxReset(1));
  ASK("0 goes on", cuMemsetD8Async(m[0], 2, 64, s[0]), "%d", settled(s[0]));
}

CASES RUN(nodes) RUN(together) RUN(memory_nodes) RUN(capture) END
