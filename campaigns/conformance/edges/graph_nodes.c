/* Nodes of kernels, host functions, events and child graphs; instantiation, updates, attributes. */
#include "ask.h"

static CUgraph g;
static CUmodule m;
static CUfunction f, two;
static void make(void) {
  DO(cuGraphCreate(&g, 0));
  DO(cuModuleLoadData(&m, PTX));
  DO(cuModuleGetFunction(&f, m, "empty"));
  DO(cuModuleGetFunction(&two, m, "two"));
}
static CUDA_KERNEL_NODE_PARAMS kernel_of(CUfunction function) {
  CUDA_KERNEL_NODE_PARAMS p;
  SET(p);
  p.func = function, p.gridDimX = p.gridDimY = p.gridDimZ = p.blockDimX = p.blockDimY = p.blockDimZ = 1;
  return p;
}

static void kernels(void) {
  make();
  CUgraphNode n = NULL, other_;
  CUDA_KERNEL_NODE_PARAMS p = kernel_of(f), back;
  ASK("plain", cuGraphAddKernelNode(&n, g, NULL, 0, &p));
  SET(back);
  ASK("get", cuGraphKernelNodeGetParams(n, &back), "%d %u %u %u %d %d %d", back.func == f, back.gridDimX,
      back.blockDimX, back.sharedMemBytes, back.kernelParams == NULL, back.kern == NULL, back.ctx == NULL);
  unsigned dims[] = {0, 1, 1024, 1025, 65535, 65536, 0x7fffffff, 0x80000000u};
  for (int i = 0; i < 8; i++)
    for (int k = 0; k < 6; k++) {
      p = kernel_of(f);
      (&p.gridDimX)[k] = dims[i];
      ASK(W("dimension %d of %u", k, dims[i]), cuGraphAddKernelNode(&other_, g, NULL, 0, &p));
    }
  p = kernel_of(f), p.blockDimX = p.blockDimY = 64;
  ASK("4096 threads", cuGraphAddKernelNode(&other_, g, NULL, 0, &p));
  unsigned shared[] = {49152, 49153, 232448, 232449};
  for (int i = 0; i < 4; i++) {
    p = kernel_of(f), p.sharedMemBytes = shared[i];
    ASK(W("shared memory of %u", shared[i]), cuGraphAddKernelNode(&other_, g, NULL, 0, &p));
  }
  p = kernel_of(two);
  RISK("parameters that are missing", cuGraphAddKernelNode(&other_, g, NULL, 0, &p));
  uint64_t a = 0x1122334455667788;
  uint32_t b = 99;
  void *list[] = {&a, &b}, *null_list[] = {NULL, NULL};
  p.kernelParams = list;
  ASK("two parameters", cuGraphAddKernelNode(&n, g, NULL, 0, &p));
  a = b = 0;
  SET(back);
  ASK("get them", cuGraphKernelNodeGetParams(n, &back), "%d %llx %u", back.kernelParams != list,
      back.kernelParams ? *(unsigned long long *)back.kernelParams[0] : 0,
      back.kernelParams ? *(unsigned *)back.kernelParams[1] : 0);
  p.kernelParams = null_list;
  ALONE("parameters at NULL", cuGraphAddKernelNode(&other_, g, NULL, 0, &p));
  char buffer[12] = {1};
  size_t size = 12, small = 11, large = 16;
  void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
  p.kernelParams = NULL, p.extra = extra;
  ASK("a buffer", cuGraphAddKernelNode(&n, g, NULL, 0, &p));
  extra[3] = &small;
  ASK("a buffer that is too small", cuGraphAddKernelNode(&other_, g, NULL, 0, &p));
  extra[3] = &large;
  ASK("a buffer that is too large", cuGraphAddKernelNode(&other_, g, NULL, 0, &p));
  extra[3] = &size, p.kernelParams = list;
  ASK("both", cuGraphAddKernelNode(&other_, g, NULL, 0, &p));
  p = kernel_of(NULL);
  RISK("no function", cuGraphAddKernelNode(&other_, g, NULL, 0, &p));
  RISK("no parameters", cuGraphAddKernelNode(&other_, g, NULL, 0, NULL));
  RISK("get into NULL", cuGraphKernelNodeGetParams(n, NULL));
  p = kernel_of(f);
  ASK("set another function", cuGraphKernelNodeSetParams(n, &p));
  CUkernelNodeAttrValue v;
  for (int i = 0; i <= 17; i++) {
    memset(&v, 0xee, sizeof v);
    ASK(W("get attribute %d", i), cuGraphKernelNodeGetAttribute(n, i, &v), "%d",
        v.cooperative == (int)0xeeeeeeee ? -1 : v.cooperative);
    SET(v);
    ASK(W("set attribute %d to zeros", i), cuGraphKernelNodeSetAttribute(n, i, &v));
  }
  for (int c = 0; c <= 2; c++) {
    SET(v);
    v.cooperative = c;
    ASK(W("cooperative %d", c), cuGraphKernelNodeSetAttribute(n, CU_KERNEL_NODE_ATTRIBUTE_COOPERATIVE, &v));
    SET(v);
    v.priority = -c * 4;
    ASK(W("priority %d", -c * 4), cuGraphKernelNodeSetAttribute(n, CU_KERNEL_NODE_ATTRIBUTE_PRIORITY, &v));
  }
  for (int x = 0; x <= 16; x = x ? x * 2 : 1) {
    SET(v);
    v.clusterDim.x = x, v.clusterDim.y = v.clusterDim.z = 1;
    ASK(W("cluster of %d", x), cuGraphKernelNodeSetAttribute(n, CU_KERNEL_NODE_ATTRIBUTE_CLUSTER_DIMENSION, &v));
  }
  CUgraphNode e;
  DO(cuGraphAddEmptyNode(&e, g, NULL, 0));
  ASK("attribute of an empty node", cuGraphKernelNodeGetAttribute(e, 8, &v));
  ASK("copy attributes", cuGraphKernelNodeCopyAttributes(n, n));
  ASK("copy attributes to an empty node", cuGraphKernelNodeCopyAttributes(e, n));
}

static void host(void *data) { (void)data; }
static void hosts(void) {
  make();
  CUgraphNode n;
  CUDA_HOST_NODE_PARAMS p = {host, &g}, back = {NULL, NULL}, none = {NULL, NULL};
  ASK("plain", cuGraphAddHostNode(&n, g, NULL, 0, &p));
  ASK("get", cuGraphHostNodeGetParams(n, &back), "%d %d", back.fn == host, back.userData == &g);
  RISK("no function", cuGraphAddHostNode(&n, g, NULL, 0, &none));
  RISK("set to no function", cuGraphHostNodeSetParams(n, &none));
  RISK("from NULL", cuGraphAddHostNode(&n, g, NULL, 0, NULL));
  RISK("get into NULL", cuGraphHostNodeGetParams(n, NULL));
  RISK("set from NULL", cuGraphHostNodeSetParams(n, NULL));
}

static void events(void) {
  make();
  CUgraphNode r, w;
  CUevent e, e2, out = NULL, ipc;
  DO(cuEventCreate(&e, 0));
  DO(cuEventCreate(&e2, 0));
  DO(cuEventCreate(&ipc, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
  ASK("record", cuGraphAddEventRecordNode(&r, g, NULL, 0, e));
  ASK("wait", cuGraphAddEventWaitNode(&w, g, &r, 1, e));
  ASK("event of the record", cuGraphEventRecordNodeGetEvent(r, &out), "%d", out == e);
  ASK("event of the wait", cuGraphEventWaitNodeGetEvent(w, &out), "%d", out == e);
  ASK("record's event of a wait", cuGraphEventRecordNodeGetEvent(w, &out));
  ASK("set", cuGraphEventRecordNodeSetEvent(r, e2));
  ASK("set of the wrong kind", cuGraphEventWaitNodeSetEvent(r, e2));
  ASK("record of a shared event", cuGraphAddEventRecordNode(&r, g, NULL, 0, ipc));
  RISK("record of NULL", cuGraphAddEventRecordNode(&r, g, NULL, 0, NULL));
  RISK("wait for NULL", cuGraphAddEventWaitNode(&w, g, NULL, 0, NULL));
  RISK("event into NULL", cuGraphEventRecordNodeGetEvent(r, NULL));
  RISK("set to NULL", cuGraphEventRecordNodeSetEvent(r, NULL));
}

static void children(void) {
  make();
  CUgraph child, inside = NULL;
  CUgraphNode n, inner;
  DO(cuGraphCreate(&child, 0));
  DO(cuGraphAddEmptyNode(&inner, child, NULL, 0));
  ASK("plain", cuGraphAddChildGraphNode(&n, g, NULL, 0, child));
  ASK("its graph", cuGraphChildGraphNodeGetGraph(n, &inside), "%d", inside != child);
  ASK("itself", cuGraphAddChildGraphNode(&n, g, NULL, 0, g));
  ASK("destroy the graph inside", cuGraphDestroy(inside));
  CUgraphExec e;
  ASK("instantiate the graph inside", cuGraphInstantiate(&e, inside, 0));
  size_t count = 77;
  ASK("its nodes", cuGraphGetNodes(inside, NULL, &count), "%zu", count);
  ASK("a node more inside", cuGraphAddEmptyNode(&inner, inside, NULL, 0));
  CUgraphNodeParams p;
  for (int o = 0; o <= 3; o++) {
    CUgraph fresh;
    DO(cuGraphCreate(&fresh, 0));
    DO(cuGraphAddEmptyNode(&inner, fresh, NULL, 0));
    SET(p);
    p.type = CU_GRAPH_NODE_TYPE_GRAPH, p.graph.graph = fresh, p.graph.ownership = o;
    ASK(W("ownership %d", o), cuGraphAddNode(&n, g, NULL, NULL, 0, &p));
    inside = NULL;
    if (o <= 1) ASK(W("its graph, ownership %d", o), cuGraphChildGraphNodeGetGraph(n, &inside), "%d", inside == fresh);
  }
  RISK("NULL", cuGraphAddChildGraphNode(&n, g, NULL, 0, NULL));
  RISK("graph into NULL", cuGraphChildGraphNodeGetGraph(n, NULL));
  for (int type = -1; type <= 15; type++) {
    SET(p);
    p.type = type;
    RISK(W("a node of type %d from zeros", type), cuGraphAddNode(&n, g, NULL, NULL, 0, &p));
  }
  RISK("a node from NULL", cuGraphAddNode(&n, g, NULL, NULL, 0, NULL));
}

static void instantiating(void) {
  make();
  CUgraphNode n;
  CUgraphExec e = NULL;
  CUDA_KERNEL_NODE_PARAMS k = kernel_of(f);
  DO(cuGraphAddKernelNode(&n, g, NULL, 0, &k));
  for (int flags = 0; flags <= 17; flags++) {
    cuuint64_t got = 77;
    e = NULL;
    CUresult code = cuGraphInstantiate(&e, g, flags);
    ASK(W("flags %d", flags), code);
    if (!code) ASK(W("flags of %d", flags), cuGraphExecGetFlags(e, &got), "%llu", (unsigned long long)got);
  }
  CUDA_GRAPH_INSTANTIATE_PARAMS p;
  for (int flags = 0; flags <= 3; flags++) {
    SET(p);
    p.flags = flags, p.result_out = 77;
    ASK(W("parameters with flags %d", flags), cuGraphInstantiateWithParams(&e, g, &p), "%d %d", p.result_out,
        p.hErrNode_out == NULL);
  }
  CUgraph empty, cycle;
  CUgraphNode a, b;
  DO(cuGraphCreate(&empty, 0));
  ASK("an empty graph", cuGraphInstantiate(&e, empty, 0));
  ASK("launch it", cuGraphLaunch(e, 0));
  ASK("upload it", cuGraphUpload(e, 0));
  DO(cuCtxSynchronize());
  DO(cuGraphCreate(&cycle, 0));
  DO(cuGraphAddEmptyNode(&a, cycle, NULL, 0));
  DO(cuGraphAddEmptyNode(&b, cycle, &a, 1));
  cuGraphAddDependencies(cycle, &b, &a, NULL, 1);
  SET(p);
  p.result_out = 77;
  ASK("a cycle", cuGraphInstantiateWithParams(&e, cycle, &p), "%d %d", p.result_out, p.hErrNode_out == NULL);
  RISK("into NULL", cuGraphInstantiate(NULL, g, 0));
  RISK("of NULL", cuGraphInstantiate(&e, NULL, 0));
  RISK("from NULL parameters", cuGraphInstantiateWithParams(&e, g, NULL));
  RISK("launch NULL", cuGraphLaunch(NULL, 0));
  RISK("upload NULL", cuGraphUpload(NULL, 0));
  RISK("destroy NULL", cuGraphExecDestroy(NULL));
  cuuint64_t got;
  RISK("flags of NULL", cuGraphExecGetFlags(NULL, &got));
  RISK("flags into NULL", cuGraphExecGetFlags(e, NULL));
  DO(cuGraphInstantiate(&e, g, 0));
  for (int i = 0; i <= 2; i++) {
    unsigned on = 77;
    ASK(W("enable %d", i), cuGraphNodeSetEnabled(e, n, i));
    ASK(W("enabled after %d", i), cuGraphNodeGetEnabled(e, n, &on), "%u", on);
  }
  CUgraphExec e2;
  DO(cuGraphInstantiate(&e2, empty, 0));
  unsigned on = 77;
  ASK("enabled of a node of another graph", cuGraphNodeGetEnabled(e2, n, &on), "%u", on);
}

static void updating(void) {
  make();
  CUgraphNode n, n2, h;
  CUgraphExec e = NULL;
  CUDA_KERNEL_NODE_PARAMS k = kernel_of(f);
  CUDA_HOST_NODE_PARAMS hp = {host, NULL};
  CUgraphExecUpdateResultInfo info;
  DO(cuGraphAddKernelNode(&n, g, NULL, 0, &k));
  DO(cuGraphAddHostNode(&h, g, &n, 1, &hp));
  DO(cuGraphInstantiate(&e, g, 0));
  for (int kind = 0; kind <= 8; kind++) {
    CUgraph u;
    const char *names[] = {"the same",     "a larger grid", "another function", "another host function's data",
                           "a node more",  "a node less",   "an edge less",     "another kind",
                           "another order"};
    CUgraphNode x, y;
    CUDA_KERNEL_NODE_PARAMS kp = kernel_of(f);
    CUDA_HOST_NODE_PARAMS hq = hp;
    uint64_t a = 0;
    uint32_t b = 0;
    void *list[] = {&a, &b};
    DO(cuGraphCreate(&u, 0));
    if (kind == 1) kp.gridDimX = 8;
    if (kind == 2) kp.func = two, kp.kernelParams = list;
    if (kind == 3) hq.userData = &u;
    if (kind == 7) DO(cuGraphAddEmptyNode(&x, u, NULL, 0));
    else if (kind == 8) DO(cuGraphAddHostNode(&y, u, NULL, 0, &hq));
    else DO(cuGraphAddKernelNode(&x, u, NULL, 0, &kp));
    if (kind == 8) DO(cuGraphAddKernelNode(&x, u, &y, 1, &kp));
    else if (kind == 6) DO(cuGraphAddHostNode(&y, u, NULL, 0, &hq));
    else if (kind != 5) DO(cuGraphAddHostNode(&y, u, &x, 1, &hq));
    if (kind == 4) DO(cuGraphAddEmptyNode(&n2, u, NULL, 0));
    memset(&info, 0xee, sizeof info);
    ASK(W("update to %s", names[kind]), cuGraphExecUpdate(e, u, &info), "%d %d %d", info.result, info.errorNode == NULL,
        info.errorFromNode == NULL);
  }
  RISK("update without a result", cuGraphExecUpdate(e, g, NULL));
  RISK("update of NULL", cuGraphExecUpdate(NULL, g, &info));
  RISK("update to NULL", cuGraphExecUpdate(e, NULL, &info));
  k.gridDimX = 4;
  ASK("set a node of the executable", cuGraphExecKernelNodeSetParams(e, n, &k));
  ASK("set a host node as a kernel", cuGraphExecKernelNodeSetParams(e, h, &k));
  k.gridDimX = 0;
  ASK("set a grid of 0", cuGraphExecKernelNodeSetParams(e, n, &k));
  ASK("set a host node", cuGraphExecHostNodeSetParams(e, h, &hp));
  CUgraphNodeParams p;
  SET(p);
  p.type = CU_GRAPH_NODE_TYPE_HOST, p.host.fn = host;
  ASK("set by general parameters", cuGraphExecNodeSetParams(e, h, &p));
  ASK("set by parameters of another kind", cuGraphExecNodeSetParams(e, n, &p));
  ASK("set the node itself", cuGraphNodeSetParams(h, &p));
  ASK("set the node itself as another kind", cuGraphNodeSetParams(n, &p));
  DO(cuGraphDestroyNode(h));
  RISK("set a destroyed node", cuGraphExecHostNodeSetParams(e, h, &hp));
  unlink("/tmp/edges.dot");
  for (int flags = 0; flags <= 1; flags++)
    ASK(W("print with flags %d", flags), cuGraphDebugDotPrint(g, "/tmp/edges.dot", flags));
  ASK("print to a folder", cuGraphDebugDotPrint(g, "/tmp", 0));
  ASK("print with flags 1 << 30", cuGraphDebugDotPrint(g, "/tmp/edges.dot", 1 << 30));
  unlink("/tmp/edges.dot");
  RISK("print to NULL", cuGraphDebugDotPrint(g, NULL, 0));
}

CASES RUN(kernels) RUN(hosts) RUN(events) RUN(children) RUN(instantiating) RUN(updating) END
