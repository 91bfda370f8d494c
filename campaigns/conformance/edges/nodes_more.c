/* Graph nodes of every kind, made with cuGraphAddNode and with the older calls, and their parameters and edges. */
#include "ask.h"

/* One call and then another: the first that fails tells. */
#define THEN(a, b)                         \
  ({                                       \
    int one_ = (int)(a), two_ = (int)(b);  \
    one_ ? one_ : two_ ? 10000 + two_ : 0; \
  })

static volatile int calls;
static void CUDA_CB count(void *by) { calls += *(int *)by; }
static int type_of(CUgraphNode n) {
  CUgraphNodeType t = 77;
  int r = cuGraphNodeGetType(n, &t);
  return r ? 1000 + r : (int)t;
}
static int nodes(CUgraph g) {
  size_t n = 0;
  return cuGraphGetNodes(g, NULL, &n) ? -1 : (int)n;
}
static CUfunction function(const char *name) {
  static CUmodule m;
  CUfunction f = NULL;
  if (!m) DO(cuModuleLoadData(&m, PTX));
  DO(cuModuleGetFunction(&f, m, name));
  return f;
}
static CUgraphNodeParams of(CUgraphNodeType t) {
  CUgraphNodeParams p;
  SET(p);
  p.type = t;
  return p;
}

static void general(void) {
  CUgraph g, child;
  CUgraphNode n = NULL, first = NULL;
  CUdeviceptr d;
  CUevent e;
  int one = 1;
  CUmemAccessDesc both[2] = {access_of(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE),
                             access_of(0, CU_MEM_ACCESS_FLAGS_PROT_READ)};
  DO(cuGraphCreate(&g, 0));
  DO(cuGraphCreate(&child, 0));
  DO(cuGraphAddEmptyNode(&n, child, NULL, 0));
  DO(cuMemAlloc(&d, 4096));
  DO(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
  for (int t = -1; t < 16; t++) {
    CUgraphNodeParams p = of(t);
    if (t == -1 || t == 1 || t == 2 || t == 5 || t == 10 || t > 13)
      ASK(W("type %d all zeros", t), cuGraphAddNode(&n, g, NULL, NULL, 0, &p), "%d", nodes(g));
    else if (t == 4 || t == 6 || t == 13) RISK(W("type %d all zeros", t), cuGraphAddNode(&n, g, NULL, NULL, 0, &p));
  }
  CUgraphNodeParams p = of(CU_GRAPH_NODE_TYPE_EMPTY);
  ASK("empty", cuGraphAddNode(&first, g, NULL, NULL, 0, &p), "%d", type_of(first));
  p.reserved0[1] = 1;
  ASK("empty with a reserved word", cuGraphAddNode(&n, g, NULL, NULL, 0, &p));
  p = of(CU_GRAPH_NODE_TYPE_EMPTY), p.reserved1[28] = 1;
  ASK("empty with a last word", cuGraphAddNode(&n, g, NULL, NULL, 0, &p));
  p = of(CU_GRAPH_NODE_TYPE_EMPTY), p.reserved2 = 1;
  ASK("empty with the last reserved word", cuGraphAddNode(&n, g, NULL, NULL, 0, &p));
  p = of(CU_GRAPH_NODE_TYPE_MEMSET);
  p.memset.dst = d, p.memset.elementSize = 1, p.memset.width = 64, p.memset.height = 1, p.memset.value = 0x77;
  ASK("memset without a context", cuGraphAddNode(&n, g, &first, NULL, 1, &p), "%d", type_of(n));
  p.memset.ctx = context;
  p.reserved1[28] = 1;
  ASK("memset with a last word", cuGraphAddNode(&n, g, &first, NULL, 1, &p));
  p.reserved1[28] = 0;
  ASK("memset", cuGraphAddNode(&n, g, &first, NULL, 1, &p), "%d", type_of(n));
  p.memset.value = 0x88;
  ASK("set its parameters", cuGraphNodeSetParams(n, &p));
  CUDA_MEMSET_NODE_PARAMS ms;
  SET(ms);
  ASK("get them", cuGraphMemsetNodeGetParams(n, &ms), "%x %zu", ms.value, ms.width);
  CUgraphNodeParams wrong = of(CU_GRAPH_NODE_TYPE_EMPTY);
  ASK("set those of an empty node on it", cuGraphNodeSetParams(n, &wrong));
  ASK("set those of an empty node on an empty node", cuGraphNodeSetParams(first, &wrong));
  p = of(CU_GRAPH_NODE_TYPE_MEMCPY);
  CUDA_MEMCPY3D *c = &p.memcpy.copyParams;
  c->srcMemoryType = c->dstMemoryType = CU_MEMORYTYPE_DEVICE, c->srcDevice = d, c->dstDevice = d + 1024,
  c->WidthInBytes = 64, c->Height = c->Depth = 1;
  p.memcpy.copyCtx = context;
  ASK("memcpy", cuGraphAddNode(&n, g, &first, NULL, 1, &p), "%d", type_of(n));
  p.memcpy.flags = 1;
  ASK("memcpy with flags", cuGraphAddNode(&n, g, &first, NULL, 1, &p));
  p.memcpy.flags = 0, p.memcpy.reserved = 1;
  ASK("memcpy with a reserved word", cuGraphAddNode(&n, g, &first, NULL, 1, &p));
  p = of(CU_GRAPH_NODE_TYPE_HOST);
  p.host.fn = count, p.host.userData = &one;
  ASK("host", cuGraphAddNode(&n, g, &first, NULL, 1, &p), "%d", type_of(n));
  p = of(CU_GRAPH_NODE_TYPE_GRAPH);
  p.graph.graph = child;
  ASK("child", cuGraphAddNode(&n, g, &first, NULL, 1, &p), "%d", type_of(n));
  CUgraph inner = NULL;
  ASK("its graph", cuGraphChildGraphNodeGetGraph(n, &inner), "%d %d", inner != child, nodes(inner));
  p.graph.ownership = 7;
  ASK("child of ownership 7", cuGraphAddNode(&n, g, &first, NULL, 1, &p));
  p.graph.ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
  ASK("child that is moved", cuGraphAddNode(&n, g, &first, NULL, 1, &p), "%d", type_of(n));
  ASK("its graph that was moved", cuGraphChildGraphNodeGetGraph(n, &inner), "%d", inner == child);
  ALONE("destroy the moved", cuGraphDestroy(child));
  p.graph.graph = g, p.graph.ownership = 0;
  ASK("child of itself", cuGraphAddNode(&n, g, &first, NULL, 1, &p), "%d", nodes(g));
  p = of(CU_GRAPH_NODE_TYPE_EVENT_RECORD), p.eventRecord.event = e;
  ASK("event record", cuGraphAddNode(&n, g, &first, NULL, 1, &p), "%d", type_of(n));
  p = of(CU_GRAPH_NODE_TYPE_WAIT_EVENT), p.eventWait.event = e;
  ASK("event wait", cuGraphAddNode(&n, g, &first, NULL, 1, &p), "%d", type_of(n));
  CUstreamBatchMemOpParams ops[3];
  SET(ops);
  ops[0].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32, ops[0].writeValue.address = d + 2048,
  ops[0].writeValue.value = 5;
  ops[1].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32, ops[1].waitValue.address = d + 2048,
  ops[1].waitValue.value = 5;
  ops[2].memoryBarrier.operation = CU_STREAM_MEM_OP_BARRIER;
  p = of(CU_GRAPH_NODE_TYPE_BATCH_MEM_OP);
  p.memOp.ctx = context, p.memOp.count = 2, p.memOp.paramArray = ops;
  ASK("batch", cuGraphAddNode(&n, g, &first, NULL, 1, &p), "%d", type_of(n));
  CUDA_BATCH_MEM_OP_NODE_PARAMS bm;
  SET(bm);
  ASK("its operations", cuGraphBatchMemOpNodeGetParams(n, &bm), "%u %u %d %d", bm.count, bm.flags,
      bm.paramArray ? (int)bm.paramArray[0].operation : -1, bm.paramArray ? (int)bm.paramArray[1].waitValue.value : -1);
  p.memOp.count = 3;
  ASK("batch with a barrier", cuGraphAddNode(&n, g, &first, NULL, 1, &p));
  p.memOp.count = 2, p.memOp.flags = 1;
  ASK("batch with flags", cuGraphAddNode(&n, g, &first, NULL, 1, &p));
  p = of(CU_GRAPH_NODE_TYPE_MEM_ALLOC);
  p.alloc.poolProps = pool_on_device(0), p.alloc.bytesize = 100;
  ASK("alloc", cuGraphAddNode(&n, g, &first, NULL, 1, &p), "%d %d", type_of(n), p.alloc.dptr != 0);
  CUdeviceptr got = p.alloc.dptr, back = 0;
  CUDA_MEM_ALLOC_NODE_PARAMS ap;
  SET(ap);
  ASK("its parameters", cuGraphMemAllocNodeGetParams(n, &ap), "%d %zu %zu %d", ap.dptr == got, ap.bytesize,
      ap.accessDescCount, ap.poolProps.location.type);
  p = of(CU_GRAPH_NODE_TYPE_MEM_FREE), p.free.dptr = got;
  CUgraphNode freed = NULL;
  ASK("free", cuGraphAddNode(&freed, g, &n, NULL, 1, &p), "%d", type_of(freed));
  ASK("what it frees", cuGraphMemFreeNodeGetParams(freed, &back), "%d", back == got);
  p.free.dptr = d;
  ASK("free what no graph allocated", cuGraphAddNode(&freed, g, &n, NULL, 1, &p));
  p = of(CU_GRAPH_NODE_TYPE_MEM_ALLOC);
  p.alloc.poolProps = pool_on_device(0), p.alloc.bytesize = 100, p.alloc.accessDescs = both,
  p.alloc.accessDescCount = 1;
  ASK("alloc with access", cuGraphAddNode(&n, g, &first, NULL, 1, &p), "%d", p.alloc.dptr != 0);
  p.alloc.accessDescCount = 2;
  ASK("alloc with access twice", cuGraphAddNode(&n, g, &first, NULL, 1, &p));
  p.alloc.accessDescCount = 1;
  p.alloc.accessDescs = &both[1];
  ASK("alloc read only", cuGraphAddNode(&n, g, &first, NULL, 1, &p));
  p.alloc.accessDescCount = 0, p.alloc.poolProps.handleTypes = 1;
  ASK("alloc that is shared", cuGraphAddNode(&n, g, &first, NULL, 1, &p));
  p.alloc.poolProps.handleTypes = 0, p.alloc.bytesize = 0;
  ASK("alloc of 0", cuGraphAddNode(&n, g, &first, NULL, 1, &p));
  p.alloc.bytesize = 64, p.alloc.poolProps.location.id = 99;
  ASK("alloc on device 99", cuGraphAddNode(&n, g, &first, NULL, 1, &p));
  CUgraph clone = NULL;
  ASK("clone of a graph with memory", cuGraphClone(&clone, g));
  RISK("add without parameters", cuGraphAddNode(&n, g, NULL, NULL, 0, NULL));
}

static void kernels(void) {
  CUgraph g;
  CUgraphNode n = NULL, m = NULL;
  unsigned long long to = 0;
  unsigned v = 5;
  void *args[] = {&to, &v};
  CUDA_KERNEL_NODE_PARAMS k, got;
  DO(cuGraphCreate(&g, 0));
  SET(k);
  k.func = function("two"), k.gridDimX = k.gridDimY = k.gridDimZ = k.blockDimX = k.blockDimY = k.blockDimZ = 1,
  k.kernelParams = args;
  ASK("good", cuGraphAddKernelNode(&n, g, NULL, 0, &k), "%d", type_of(n));
  SET(got);
  ASK("get", cuGraphKernelNodeGetParams(n, &got), "%d %u %u %u %d %d %d", got.func == k.func, got.gridDimX,
      got.blockDimX, got.sharedMemBytes, got.kernelParams ? *(unsigned *)got.kernelParams[1] == 5 : -1,
      got.extra == NULL, got.ctx == context);
  static const unsigned sizes[][6] = {{0, 1, 1, 1, 1, 1},     {1, 0, 1, 1, 1, 1},     {1, 1, 0, 1, 1, 1},
                                      {1, 1, 1, 0, 1, 1},     {1, 1, 1, 1025, 1, 1},  {1, 1, 1, 1024, 1, 1},
                                      {1, 1, 1, 1, 1024, 1},  {1, 1, 1, 1, 1, 64},    {1, 1, 1, 1, 1, 65},
                                      {1, 1, 1, 32, 32, 2},   {1, 65535, 1, 1, 1, 1}, {1, 65536, 1, 1, 1, 1},
                                      {1, 1, 65536, 1, 1, 1}, {~0u, 1, 1, 1, 1, 1},   {0x7fffffff, 1, 1, 1, 1, 1}};
  for (int i = 0; i < 15; i++) {
    CUDA_KERNEL_NODE_PARAMS q = k;
    q.gridDimX = sizes[i][0], q.gridDimY = sizes[i][1], q.gridDimZ = sizes[i][2];
    q.blockDimX = sizes[i][3], q.blockDimY = sizes[i][4], q.blockDimZ = sizes[i][5];
    ASK(W("size %u %u %u, %u %u %u", sizes[i][0], sizes[i][1], sizes[i][2], sizes[i][3], sizes[i][4], sizes[i][5]),
        cuGraphAddKernelNode(&m, g, NULL, 0, &q));
    ASK(W("set the same, %d", i), cuGraphKernelNodeSetParams(n, &q));
  }
  static const unsigned shared[] = {1, 49152, 49153, 232448, 1 << 20};
  for (int i = 0; i < 5; i++) {
    CUDA_KERNEL_NODE_PARAMS q = k;
    q.sharedMemBytes = shared[i];
    ASK(W("shared %u", shared[i]), cuGraphAddKernelNode(&m, g, NULL, 0, &q));
  }
  char buffer[12] = {0};
  size_t n12 = 12, n8 = 8;
  void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &n12, CU_LAUNCH_PARAM_END};
  CUDA_KERNEL_NODE_PARAMS q = k;
  q.extra = extra;
  ASK("both kinds of parameters", cuGraphAddKernelNode(&m, g, NULL, 0, &q));
  q.kernelParams = NULL;
  ASK("a buffer", cuGraphAddKernelNode(&m, g, NULL, 0, &q));
  extra[3] = &n8;
  ASK("a buffer that is short", cuGraphAddKernelNode(&m, g, NULL, 0, &q));
  q = k, q.func = NULL;
  RISK("no function", cuGraphAddKernelNode(&m, g, NULL, 0, &q));
  q = k, q.func = function("empty"), q.kernelParams = NULL;
  ASK("no parameters where none are", cuGraphAddKernelNode(&m, g, NULL, 0, &q), "%d", type_of(m));
  ASK("another function", cuGraphKernelNodeSetParams(n, &q));
  static const int ids[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 40};
  for (int i = 0; i < 17; i++) {
    CUkernelNodeAttrValue a;
    SET(a);
    ASK(W("attribute %d", ids[i]), cuGraphKernelNodeGetAttribute(m, ids[i], &a), "%d", a.cooperative);
  }
  static const int values[][2] = {{2, 0}, {2, 1}, {2, 2},  {3, 1},  {5, 0},  {5, 2},  {5, 7},   {6, 1},   {8, -1},
                                  {8, 0}, {8, 1}, {8, -9}, {10, 0}, {10, 1}, {10, 2}, {14, -1}, {14, 50}, {14, 101}};
  for (int i = 0; i < 18; i++) {
    CUkernelNodeAttrValue a;
    SET(a);
    a.cooperative = values[i][1];
    ASK(W("attribute %d to %d", values[i][0], values[i][1]), cuGraphKernelNodeSetAttribute(m, values[i][0], &a));
    SET(a);
    cuGraphKernelNodeGetAttribute(m, values[i][0], &a);
    SAY(W("it is then, %d", i), "%d", a.cooperative);
  }
  static const unsigned dims[][3] = {{1, 1, 1}, {2, 1, 1}, {8, 1, 1}, {16, 1, 1}, {0, 0, 0}, {0, 1, 1}, {3, 1, 1}};
  for (int i = 0; i < 7; i++) {
    CUkernelNodeAttrValue a;
    SET(a);
    a.clusterDim.x = dims[i][0], a.clusterDim.y = dims[i][1], a.clusterDim.z = dims[i][2];
    ASK(W("cluster %u %u %u", dims[i][0], dims[i][1], dims[i][2]),
        cuGraphKernelNodeSetAttribute(m, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &a));
  }
  CUkernelNodeAttrValue a, b;
  SET(a);
  SET(b);
  a.memSyncDomainMap.default_ = 1, a.memSyncDomainMap.remote = 0;
  ASK("domain map", cuGraphKernelNodeSetAttribute(m, CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP, &a));
  ASK("domain map got", cuGraphKernelNodeGetAttribute(m, CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP, &b), "%d %d",
      b.memSyncDomainMap.default_, b.memSyncDomainMap.remote);
  a.memSyncDomainMap.remote = 200;
  ASK("domain map beyond", cuGraphKernelNodeSetAttribute(m, CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP, &a));
  ASK("copy attributes", cuGraphKernelNodeCopyAttributes(n, m));
  SET(b);
  ASK("the copied map", cuGraphKernelNodeGetAttribute(n, CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP, &b), "%d",
      b.memSyncDomainMap.default_);
  CUgraphNode e = NULL;
  DO(cuGraphAddEmptyNode(&e, g, NULL, 0));
  ASK("copy to an empty node", cuGraphKernelNodeCopyAttributes(e, m));
  ASK("attribute of an empty node", cuGraphKernelNodeGetAttribute(e, 8, &a));
  ASK("parameters of an empty node", cuGraphKernelNodeGetParams(e, &got));
  for (int from = 0; from < 4; from++)
    for (int kind = 0; kind < 3; kind++) {
      CUgraphEdgeData d = {from, 0, kind, {0}};
      ASK(W("edge from port %d kind %d", from, kind), cuGraphAddDependencies(g, &n, &m, &d, 1));
      CUgraphNode x = NULL;
      CUgraphEdgeData out;
      size_t count = 1;
      memset(&out, 9, sizeof out);
      ASK(W("its data %d %d", from, kind), cuGraphNodeGetDependencies(m, &x, &out, &count), "%zu %d %d %d", count,
          out.from_port, out.to_port, out.type);
      CUgraphEdgeData plain = {0, 0, 0, {0}};
      ASK(W("remove it as a plain one %d %d", from, kind), cuGraphRemoveDependencies(g, &n, &m, &plain, 1));
      ASK(W("remove it %d %d", from, kind), cuGraphRemoveDependencies(g, &n, &m, &d, 1));
    }
  CUgraphEdgeData d = {1, 0, 1, {0}};
  ASK("an edge to an empty node", cuGraphAddDependencies(g, &n, &e, &d, 1));
  ASK("an edge from an empty node", cuGraphAddDependencies(g, &e, &n, &d, 1));
  DO(cuGraphAddDependencies(g, &n, &m, &d, 1));
  CUgraphNode x = NULL;
  size_t count = 1;
  ASK("dependencies without room for data", cuGraphNodeGetDependencies(m, &x, NULL, &count), "%zu", count);
  ASK("dependents without room for data", cuGraphNodeGetDependentNodes(n, &x, NULL, &count), "%zu", count);
  CUgraphNode from[4], into[4];
  count = 4;
  ASK("edges without room for data", cuGraphGetEdges(g, from, into, NULL, &count), "%zu", count);
}

static void semaphores(void) {
  CUexternalSemaphore s = NULL;
  for (int t = 0; t < 12; t++) {
    CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC d;
    SET(d);
    d.type = t, d.handle.fd = open("/dev/null", O_RDWR);
    if (t == 6 || t == 2 || t == 3 || t == 4 || t == 5 || t == 7 || t == 8 || t == 10) SET(d.handle);
    if (t == 6) RISK(W("semaphore of type %d", t), cuImportExternalSemaphore(&s, &d));
    else ASK(W("semaphore of type %d", t), cuImportExternalSemaphore(&s, &d));
  }
  CUexternalMemory m = NULL;
  for (int t = 0; t < 11; t++) {
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC d;
    SET(d);
    d.type = t, d.size = 65536;
    if (t == 1 || t == 9) d.handle.fd = open("/dev/null", O_RDWR);
    if (t == 8) RISK(W("memory of type %d", t), cuImportExternalMemory(&m, &d));
    else ASK(W("memory of type %d", t), cuImportExternalMemory(&m, &d));
  }
  CUgraph g;
  CUgraphNode n = NULL;
  CUDA_EXT_SEM_SIGNAL_NODE_PARAMS sp;
  CUDA_EXT_SEM_WAIT_NODE_PARAMS wp;
  SET(sp);
  SET(wp);
  DO(cuGraphCreate(&g, 0));
  ASK("signal node of none", cuGraphAddExternalSemaphoresSignalNode(&n, g, NULL, 0, &sp), "%d", nodes(g));
  ASK("wait node of none", cuGraphAddExternalSemaphoresWaitNode(&n, g, NULL, 0, &wp), "%d", nodes(g));
  ASK("signal none", cuSignalExternalSemaphoresAsync(NULL, NULL, 0, 0));
  ASK("wait for none", cuWaitExternalSemaphoresAsync(NULL, NULL, 0, 0));
  DO(cuGraphAddEmptyNode(&n, g, NULL, 0));
  ASK("an empty node as a signal", cuGraphExternalSemaphoresSignalNodeGetParams(n, &sp));
  ASK("an empty node as a wait", cuGraphExternalSemaphoresWaitNodeGetParams(n, &wp));
  RISK("destroy no semaphore", cuDestroyExternalSemaphore(NULL));
  RISK("destroy no memory", cuDestroyExternalMemory(NULL));
}

static void launched(void) {
  CUgraph g;
  CUgraphExec x = NULL;
  CUgraphNode a = NULL, b = NULL, c = NULL, f = NULL;
  CUstream s;
  unsigned back[16] = {0};
  int two = 2;
  DO(cuStreamCreate(&s, 0));
  DO(cuGraphCreate(&g, 0));
  CUgraphNodeParams p = of(CU_GRAPH_NODE_TYPE_MEM_ALLOC);
  p.alloc.poolProps = pool_on_device(0), p.alloc.bytesize = 64;
  DO(cuGraphAddNode(&a, g, NULL, NULL, 0, &p));
  CUdeviceptr d = p.alloc.dptr;
  CUDA_MEMSET_NODE_PARAMS m = {d, 0, 0x01020304, 4, 16, 1};
  DO(cuGraphAddMemsetNode(&b, g, &a, 1, &m, context));
  CUDA_MEMCPY3D cp;
  SET(cp);
  cp.srcMemoryType = CU_MEMORYTYPE_DEVICE, cp.srcDevice = d, cp.dstMemoryType = CU_MEMORYTYPE_HOST, cp.dstHost = back,
  cp.WidthInBytes = 64;
  cp.Height = cp.Depth = 1;
  DO(cuGraphAddMemcpyNode(&c, g, &b, 1, &cp, context));
  CUDA_HOST_NODE_PARAMS h = {count, &two};
  DO(cuGraphAddHostNode(&f, g, &c, 1, &h));
  ASK("instantiate with memory that stays", cuGraphInstantiate(&x, g, 0));
  ASK("a second one", cuGraphInstantiate(&x, g, 0));
  ASK("launch", THEN(cuGraphLaunch(x, s), cuStreamSynchronize(s)), "%x %x %d", back[0], back[15], calls);
  ASK("launch again without a free", cuGraphLaunch(x, s));
  ASK("free between", cuMemFreeAsync(d, s), "%d", cuStreamSynchronize(s));
  ASK("launch after the free", THEN(cuGraphLaunch(x, s), cuStreamSynchronize(s)), "%d", calls);
  ASK("free by cuMemFree", cuMemFree(d));
  for (int i = 0; i < 4; i++) {
    cuuint64_t v = 0;
    ASK(W("device attribute %d", i), cuDeviceGetGraphMemAttribute(0, i, &v), "%llu", (unsigned long long)v);
  }
  ASK("destroy the executable", cuGraphExecDestroy(x));
  ASK("trim", cuDeviceGraphMemTrim(0));
  cuuint64_t v = 0, one = 1;
  for (int i = -1; i < 6; i++) {
    ASK(W("set device attribute %d to 1", i), cuDeviceSetGraphMemAttribute(0, i, &one));
    ASK(W("set device attribute %d to 0", i), cuDeviceSetGraphMemAttribute(0, i, &v));
  }
  ASK("attributes of device 99", cuDeviceGetGraphMemAttribute(99, 0, &v));
  ASK("trim device 99", cuDeviceGraphMemTrim(99));
  ASK("instantiate with a free at a launch",
      cuGraphInstantiate(&x, g, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
  ASK("launch it", cuGraphLaunch(x, s));
  ASK("launch it twice", THEN(cuGraphLaunch(x, s), cuStreamSynchronize(s)), "%d", calls);
}

CASES
RUN(general)
RUN(kernels)
RUN(semaphores)
RUN(launched)
END
