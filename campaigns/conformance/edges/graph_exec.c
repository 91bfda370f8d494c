/* Parameters of nodes in executables: what may change after instantiation, for each kind of node. */
#include "ask.h"

static CUgraph g;
static CUgraphExec x;
static CUdeviceptr d, d2;
static void *pin;
static void make(void) {
  DO(cuGraphCreate(&g, 0));
  DO(cuMemAlloc(&d, 65536));
  DO(cuMemAlloc(&d2, 65536));
  DO(cuMemAllocHost(&pin, 65536));
}
static CUDA_MEMCPY3D copy_of(size_t width, size_t height) {
  CUDA_MEMCPY3D c;
  SET(c);
  c.srcMemoryType = CU_MEMORYTYPE_HOST, c.srcHost = pin, c.srcPitch = 256, c.dstMemoryType = CU_MEMORYTYPE_DEVICE,
  c.dstDevice = d, c.dstPitch = 256;
  c.WidthInBytes = width, c.Height = height, c.Depth = 1;
  return c;
}

static void copies(void) {
  make();
  CUgraphNode n;
  CUDA_MEMCPY3D c = copy_of(64, 1);
  DO(cuGraphAddMemcpyNode(&n, g, NULL, 0, &c, context));
  DO(cuGraphInstantiate(&x, g, 0));
  ASK("the same", cuGraphExecMemcpyNodeSetParams(x, n, &c, context));
  c = copy_of(128, 1);
  ASK("another width", cuGraphExecMemcpyNodeSetParams(x, n, &c, context));
  c = copy_of(64, 4);
  ASK("more rows", cuGraphExecMemcpyNodeSetParams(x, n, &c, context));
  c = copy_of(0, 1);
  ASK("width 0", cuGraphExecMemcpyNodeSetParams(x, n, &c, context));
  c = copy_of(64, 1), c.dstDevice = d2;
  ASK("another target", cuGraphExecMemcpyNodeSetParams(x, n, &c, context));
  c = copy_of(64, 1), c.srcMemoryType = CU_MEMORYTYPE_DEVICE, c.srcDevice = d2;
  ASK("from the device instead", cuGraphExecMemcpyNodeSetParams(x, n, &c, context));
  c = copy_of(64, 1), c.srcMemoryType = CU_MEMORYTYPE_UNIFIED, c.srcDevice = (CUdeviceptr)pin;
  ASK("from the same as unified", cuGraphExecMemcpyNodeSetParams(x, n, &c, context));
  static char local[65536];
  c = copy_of(64, 1), c.srcHost = local;
  ASK("from pageable memory", cuGraphExecMemcpyNodeSetParams(x, n, &c, context));
  c = copy_of(64, 1);
  ASK("context NULL", cuGraphExecMemcpyNodeSetParams(x, n, &c, NULL));
  CUcontext other_;
  DO(cuCtxCreate(&other_, NULL, 0, 0));
  DO(cuCtxSetCurrent(context));
  ASK("another context", cuGraphExecMemcpyNodeSetParams(x, n, &c, other_));
  RISK("from NULL", cuGraphExecMemcpyNodeSetParams(x, n, NULL, context));
  RISK("executable NULL", cuGraphExecMemcpyNodeSetParams(NULL, n, &c, context));
  RISK("node NULL", cuGraphExecMemcpyNodeSetParams(x, NULL, &c, context));
  ASK("launch", cuGraphLaunch(x, 0));
  ASK("synchronize", cuCtxSynchronize());
}

static void sets(void) {
  make();
  CUgraphNode n, plane;
  CUDA_MEMSET_NODE_PARAMS p, q;
  SET(p);
  p.dst = d, p.elementSize = 1, p.width = 64, p.height = 1;
  q = p, q.height = 4, q.pitch = 256;
  DO(cuGraphAddMemsetNode(&n, g, NULL, 0, &p, context));
  DO(cuGraphAddMemsetNode(&plane, g, NULL, 0, &q, context));
  DO(cuGraphInstantiate(&x, g, 0));
  CUDA_MEMSET_NODE_PARAMS r = p;
  ASK("the same", cuGraphExecMemsetNodeSetParams(x, n, &r, context));
  r.value = 9;
  ASK("another value", cuGraphExecMemsetNodeSetParams(x, n, &r, context));
  r = p, r.dst = d2;
  ASK("another target", cuGraphExecMemsetNodeSetParams(x, n, &r, context));
  r = p, r.width = 128;
  ASK("another width", cuGraphExecMemsetNodeSetParams(x, n, &r, context));
  r = p, r.elementSize = 4, r.width = 16;
  ASK("another size of elements", cuGraphExecMemsetNodeSetParams(x, n, &r, context));
  ASK("a plane", cuGraphExecMemsetNodeSetParams(x, n, &q, context));
  r = q, r.width = 32;
  ASK("another width of a plane", cuGraphExecMemsetNodeSetParams(x, plane, &r, context));
  r = q, r.height = 2;
  ASK("fewer rows of a plane", cuGraphExecMemsetNodeSetParams(x, plane, &r, context));
  r = q, r.pitch = 512;
  ASK("another pitch of a plane", cuGraphExecMemsetNodeSetParams(x, plane, &r, context));
  ASK("a line for a plane", cuGraphExecMemsetNodeSetParams(x, plane, &p, context));
  r = p, r.elementSize = 3;
  ASK("elements of 3", cuGraphExecMemsetNodeSetParams(x, n, &r, context));
  r = p, r.dst = 0;
  ASK("target 0", cuGraphExecMemsetNodeSetParams(x, n, &r, context));
  ASK("context NULL", cuGraphExecMemsetNodeSetParams(x, n, &p, NULL));
  RISK("from NULL", cuGraphExecMemsetNodeSetParams(x, n, NULL, context));
}

static void host(void *data) { (void)data; }
static void others(void) {
  make();
  CUevent e, e2;
  CUgraph child, child2, child3;
  CUgraphNode r, w, h, c, b, inner;
  CUDA_HOST_NODE_PARAMS hp = {host, NULL}, none = {NULL, NULL};
  CUstreamBatchMemOpParams op;
  DO(cuEventCreate(&e, 0));
  DO(cuEventCreate(&e2, 0));
  DO(cuGraphCreate(&child, 0));
  DO(cuGraphAddEmptyNode(&inner, child, NULL, 0));
  DO(cuGraphClone(&child2, child));
  DO(cuGraphCreate(&child3, 0));
  SET(op);
  op.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32, op.writeValue.address = d;
  CUDA_BATCH_MEM_OP_NODE_PARAMS bp = {context, 1, &op, 0};
  DO(cuGraphAddEventRecordNode(&r, g, NULL, 0, e));
  DO(cuGraphAddEventWaitNode(&w, g, NULL, 0, e));
  DO(cuGraphAddHostNode(&h, g, NULL, 0, &hp));
  DO(cuGraphAddChildGraphNode(&c, g, NULL, 0, child));
  DO(cuGraphAddBatchMemOpNode(&b, g, NULL, 0, &bp));
  DO(cuGraphInstantiate(&x, g, 0));
  ASK("another event", cuGraphExecEventRecordNodeSetEvent(x, r, e2));
  ASK("another event to wait for", cuGraphExecEventWaitNodeSetEvent(x, w, e2));
  ASK("an event of the wrong kind", cuGraphExecEventRecordNodeSetEvent(x, w, e2));
  RISK("event NULL", cuGraphExecEventRecordNodeSetEvent(x, r, NULL));
  ASK("host function", cuGraphExecHostNodeSetParams(x, h, &hp));
  RISK("host function NULL", cuGraphExecHostNodeSetParams(x, h, &none));
  ASK("a child like it", cuGraphExecChildGraphNodeSetParams(x, c, child2));
  ASK("a child unlike it", cuGraphExecChildGraphNodeSetParams(x, c, child3));
  RISK("child NULL", cuGraphExecChildGraphNodeSetParams(x, c, NULL));
  op.writeValue.value = 5;
  ASK("another batch", cuGraphExecBatchMemOpNodeSetParams(x, b, &bp));
  bp.count = 0;
  ASK("an empty batch", cuGraphExecBatchMemOpNodeSetParams(x, b, &bp));
  unsigned on = 77;
  CUgraphNode all[] = {r, w, h, c, b};
  const char *names[] = {"a record", "a wait", "a host function", "a child", "a batch"};
  for (int i = 0; i < 5; i++) {
    ASK(W("disable %s", names[i]), cuGraphNodeSetEnabled(x, all[i], 0));
    ASK(W("enabled of %s", names[i]), cuGraphNodeGetEnabled(x, all[i], &on), "%u", on);
  }
  CUDA_MEMSET_NODE_PARAMS mp;
  SET(mp);
  mp.dst = d, mp.elementSize = 1, mp.width = 64, mp.height = 1;
  CUgraphNode late;
  DO(cuGraphAddMemsetNode(&late, g, NULL, 0, &mp, context));
  ASK("a node that came later", cuGraphExecMemsetNodeSetParams(x, late, &mp, context));
  ASK("enabled of a node that came later", cuGraphNodeGetEnabled(x, late, &on), "%u", on);
  ASK("launch", cuGraphLaunch(x, 0));
  ASK("synchronize", cuCtxSynchronize());
  unsigned value = 77;
  ASK("what the batch wrote", cuMemcpyDtoH(&value, d, 4), "%u", value);
}

CASES RUN(copies) RUN(sets) RUN(others) END
