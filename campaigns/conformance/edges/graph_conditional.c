/* Conditional nodes: handles, kinds, sizes, what a body may have. */
#include "ask.h"

static CUgraph g;
static CUgraphConditionalHandle h;
static void make(void) {
  DO(cuGraphCreate(&g, 0));
  DO(cuGraphConditionalHandleCreate(&h, g, context, 0, 0));
}
static CUgraphNodeParams conditional(int type, unsigned size) {
  CUgraphNodeParams p;
  SET(p);
  p.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
  p.conditional.handle = h, p.conditional.type = type, p.conditional.size = size, p.conditional.ctx = context;
  return p;
}
static CUgraph body(void) {
  CUgraphNode n;
  CUgraphNodeParams p = conditional(0, 1);
  DO(cuGraphAddNode(&n, g, NULL, NULL, 0, &p));
  return p.conditional.phGraph_out ? p.conditional.phGraph_out[0] : NULL;
}

static void handles(void) {
  make();
  CUgraphConditionalHandle other_ = 0;
  ASK("a second handle", cuGraphConditionalHandleCreate(&other_, g, context, 1, 0), "%d", other_ != h);
  for (int flag = 1; flag <= 4; flag *= 2)
    ASK(W("flags %d", flag), cuGraphConditionalHandleCreate(&other_, g, context, 1, flag));
  ASK("context NULL", cuGraphConditionalHandleCreate(&other_, g, NULL, 0, 0));
  ASK("default without flag", cuGraphConditionalHandleCreate(&other_, g, context, 5, 0));
  RISK("handle into NULL", cuGraphConditionalHandleCreate(NULL, g, context, 0, 0));
  RISK("handle of NULL", cuGraphConditionalHandleCreate(&other_, NULL, context, 0, 0));
  CUgraphExec e;
  ASK("a graph with unused handles", cuGraphInstantiate(&e, g, 0));
  CUgraph empty;
  DO(cuGraphCreate(&empty, 0));
  ASK("a handle in a graph in use", cuGraphConditionalHandleCreate(&other_, g, context, 0, 0));
}

static void kinds(void) {
  CUgraphNode n;
  for (int type = -1; type <= 3; type++)
    for (unsigned size = 0; size <= 4; size++) {
      make();
      CUgraphNodeParams p = conditional(type, size);
      ASK(W("type %d, size %u", type, size), cuGraphAddNode(&n, g, NULL, NULL, 0, &p), "%d",
          p.conditional.phGraph_out != NULL);
    }
  make();
  CUgraphNodeParams p = conditional(0, 1);
  ASK("plain", cuGraphAddNode(&n, g, NULL, NULL, 0, &p));
  CUgraphNodeType type = 77;
  ASK("its type", cuGraphNodeGetType(n, &type), "%d", type);
  ASK("the same handle again", cuGraphAddNode(&n, g, NULL, NULL, 0, &p));
  make();
  p = conditional(0, 1), p.conditional.ctx = NULL;
  ASK("context NULL", cuGraphAddNode(&n, g, NULL, NULL, 0, &p));
  CUgraph old = g;
  CUgraphConditionalHandle theirs = h;
  make();
  p = conditional(0, 1), p.conditional.handle = theirs;
  ASK("a handle of another graph", cuGraphAddNode(&n, g, NULL, NULL, 0, &p));
  p = conditional(0, 1), p.conditional.handle = 0;
  ASK("handle 0", cuGraphAddNode(&n, g, NULL, NULL, 0, &p));
  p.conditional.handle = 123456;
  ASK("handle 123456", cuGraphAddNode(&n, g, NULL, NULL, 0, &p));
  p = conditional(0, 1), p.reserved0[0] = 1;
  ASK("reserved 0", cuGraphAddNode(&n, g, NULL, NULL, 0, &p));
  make();
  p = conditional(0, 1), p.reserved2 = 1;
  ASK("reserved 2", cuGraphAddNode(&n, g, NULL, NULL, 0, &p));
  make();
  p = conditional(0, 1), p.reserved1[10] = 1;
  ASK("reserved 1", cuGraphAddNode(&n, g, NULL, NULL, 0, &p));
  make();
  CUgraph c, outer;
  CUgraphNode child;
  p = conditional(0, 1);
  DO(cuGraphAddNode(&n, g, NULL, NULL, 0, &p));
  ASK("clone", cuGraphClone(&c, g));
  DO(cuGraphCreate(&outer, 0));
  ASK("as a child", cuGraphAddChildGraphNode(&child, outer, NULL, 0, g));
  ASK("destroy the node", cuGraphDestroyNode(n));
  p = conditional(0, 1);
  ASK("its handle again after that", cuGraphAddNode(&n, g, NULL, NULL, 0, &p));
  (void)old;
}

static void host(void *data) { (void)data; }

/* What a body may have: whether adding it is refused, and whether instantiation is. */
static void bodies(void) {
  const char *names[] = {"empty",
                         "set",
                         "copy on the device",
                         "copy from pinned memory",
                         "copy from pageable memory",
                         "host function",
                         "event record",
                         "event wait",
                         "allocation",
                         "free",
                         "batch",
                         "child",
                         "conditional",
                         "child with a host function",
                         "copy of an array",
                         "nothing",
                         "managed copy"};
  CUdeviceptr d, managed;
  CUevent ev;
  void *pin;
  static char local[64];
  DO(cuMemAlloc(&d, 4096));
  DO(cuMemAllocManaged(&managed, 4096, 1));
  DO(cuMemAllocHost(&pin, 4096));
  DO(cuEventCreate(&ev, 0));
  for (int kind = 0; kind < 17; kind++) {
    make();
    CUgraph b = body();
    CUgraphNode n;
    CUresult code = 0;
    CUDA_MEMSET_NODE_PARAMS s;
    CUDA_MEMCPY3D c;
    CUDA_HOST_NODE_PARAMS f = {host, NULL};
    SET(s);
    SET(c);
    s.dst = d, s.elementSize = 1, s.width = 16, s.height = 1;
    c.srcMemoryType = c.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    c.srcDevice = d, c.dstDevice = d + 2048, c.WidthInBytes = 64, c.Height = c.Depth = 1;
    if (kind == 0) code = cuGraphAddEmptyNode(&n, b, NULL, 0);
    if (kind == 1) code = cuGraphAddMemsetNode(&n, b, NULL, 0, &s, context);
    if (kind == 3) c.srcMemoryType = CU_MEMORYTYPE_HOST, c.srcHost = pin;
    if (kind == 4) c.srcMemoryType = CU_MEMORYTYPE_HOST, c.srcHost = local;
    if (kind == 16) c.srcDevice = managed;
    if (kind == 14) {
      CUDA_ARRAY_DESCRIPTOR ad = {16, 4, CU_AD_FORMAT_UNSIGNED_INT8, 1};
      CUarray a;
      DO(cuArrayCreate(&a, &ad));
      c.dstMemoryType = CU_MEMORYTYPE_ARRAY, c.dstArray = a, c.WidthInBytes = 16;
    }
    if ((kind >= 2 && kind <= 4) || kind == 14 || kind == 16) code = cuGraphAddMemcpyNode(&n, b, NULL, 0, &c, context);
    if (kind == 5) code = cuGraphAddHostNode(&n, b, NULL, 0, &f);
    if (kind == 6) code = cuGraphAddEventRecordNode(&n, b, NULL, 0, ev);
    if (kind == 7) code = cuGraphAddEventWaitNode(&n, b, NULL, 0, ev);
    if (kind == 8) {
      CUDA_MEM_ALLOC_NODE_PARAMS a;
      SET(a);
      a.poolProps = pool_on_device(0), a.bytesize = 100;
      code = cuGraphAddMemAllocNode(&n, b, NULL, 0, &a);
    }
    if (kind == 9) code = cuGraphAddMemFreeNode(&n, b, NULL, 0, d);
    if (kind == 10) {
      CUstreamBatchMemOpParams op;
      SET(op);
      op.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32, op.writeValue.address = d;
      CUDA_BATCH_MEM_OP_NODE_PARAMS p = {context, 1, &op, 0};
      code = cuGraphAddBatchMemOpNode(&n, b, NULL, 0, &p);
    }
    if (kind == 11 || kind == 13) {
      CUgraph child;
      CUgraphNode inner;
      DO(cuGraphCreate(&child, 0));
      if (kind == 13) DO(cuGraphAddHostNode(&inner, child, NULL, 0, &f));
      else DO(cuGraphAddEmptyNode(&inner, child, NULL, 0));
      code = cuGraphAddChildGraphNode(&n, b, NULL, 0, child);
    }
    if (kind == 12) {
      CUgraphNodeParams p = conditional(0, 1);
      DO(cuGraphConditionalHandleCreate(&p.conditional.handle, g, context, 0, 0));
      code = cuGraphAddNode(&n, b, NULL, NULL, 0, &p);
    }
    CUgraphExec e = NULL;
    ASK(W("add %s", names[kind]), code);
    ASK(W("instantiate with %s", names[kind]), cuGraphInstantiate(&e, g, 0), "%d", e != NULL);
    if (e) ALONE(W("launch with %s", names[kind]), cuGraphLaunch(e, 0), "%d", cuCtxSynchronize());
  }
}

static void body_itself(void) {
  make();
  CUgraph b = body(), c;
  CUgraphExec e;
  CUgraphNode n;
  ASK("instantiate a body", cuGraphInstantiate(&e, b, 0));
  ASK("clone a body", cuGraphClone(&c, b));
  ASK("a body as a child", cuGraphAddChildGraphNode(&n, g, NULL, 0, b));
  CUstream s;
  DO(cuStreamCreate(&s, 1));
  ASK("capture into a body", cuStreamBeginCaptureToGraph(s, b, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_GLOBAL));
  CUgraph out = NULL;
  ASK("end the capture", cuStreamEndCapture(s, &out), "%d", out == b);
  ASK("a handle of a body", cuGraphConditionalHandleCreate(&h, b, context, 0, 0));
  ALONE("destroy a body", cuGraphDestroy(b));
}

static void unset(void) {
  make();
  CUgraphNode n;
  CUgraphExec e = NULL;
  for (int type = 0; type <= 2; type++) {
    make();
    CUgraphNodeParams p = conditional(type, 1);
    DO(cuGraphAddNode(&n, g, NULL, NULL, 0, &p));
    DO(cuGraphInstantiate(&e, g, 0));
    ASK(W("launch type %d with an empty body", type), cuGraphLaunch(e, 0));
    ASK(W("synchronize type %d", type), cuCtxSynchronize());
    ASK(W("device launch flag, type %d", type), cuGraphInstantiate(&e, g, CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH));
    CUgraph other_;
    DO(cuGraphCreate(&other_, 0));
    CUgraphExecUpdateResultInfo info;
    SET(info);
    ASK(W("update to nothing, type %d", type), cuGraphExecUpdate(e, other_, &info), "%d", info.result);
    ASK(W("update to itself, type %d", type), cuGraphExecUpdate(e, g, &info), "%d", info.result);
  }
}

CASES RUN(handles) RUN(kinds) RUN(bodies) RUN(body_itself) RUN(unset) END
