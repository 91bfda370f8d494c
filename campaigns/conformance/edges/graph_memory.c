/* Nodes of memory in graphs: copies, sets, allocations, frees, batches. */
#include "ask.h"

static CUgraph g;
static CUgraphNode n;
static CUdeviceptr d;
static void make(void) {
  DO(cuGraphCreate(&g, 0));
  DO(cuMemAlloc(&d, 65536));
}

static void sets(void) {
  make();
  CUDA_MEMSET_NODE_PARAMS p;
  SET(p);
  p.dst = d, p.elementSize = 1, p.width = 16, p.height = 1, p.value = 5;
  CUDA_MEMSET_NODE_PARAMS good = p;
  ASK("plain", cuGraphAddMemsetNode(&n, g, NULL, 0, &p, context));
  int sizes[] = {0, 1, 2, 3, 4, 8};
  for (int i = 0; i < 6; i++) {
    p = good, p.elementSize = sizes[i];
    ASK(W("element size %d", sizes[i]), cuGraphAddMemsetNode(&n, g, NULL, 0, &p, context));
  }
  p = good, p.width = 0;
  ASK("width 0", cuGraphAddMemsetNode(&n, g, NULL, 0, &p, context));
  p = good, p.height = 0;
  ASK("height 0", cuGraphAddMemsetNode(&n, g, NULL, 0, &p, context));
  p = good, p.height = 2;
  ASK("height 2, pitch 0", cuGraphAddMemsetNode(&n, g, NULL, 0, &p, context));
  p.pitch = 8;
  ASK("pitch below width", cuGraphAddMemsetNode(&n, g, NULL, 0, &p, context));
  p.pitch = 16;
  ASK("pitch of width", cuGraphAddMemsetNode(&n, g, NULL, 0, &p, context));
  p = good, p.width = 65537;
  ASK("beyond the memory", cuGraphAddMemsetNode(&n, g, NULL, 0, &p, context));
  p = good, p.dst = 0;
  ASK("address 0", cuGraphAddMemsetNode(&n, g, NULL, 0, &p, context));
  p = good, p.dst = d + 1, p.elementSize = 4;
  ASK("an odd address", cuGraphAddMemsetNode(&n, g, NULL, 0, &p, context));
  int local;
  p = good, p.dst = (CUdeviceptr)&local;
  ASK("host memory", cuGraphAddMemsetNode(&n, g, NULL, 0, &p, context));
  p = good, p.value = 0x12345678;
  ASK("a value that is too wide", cuGraphAddMemsetNode(&n, g, NULL, 0, &p, context));
  CUDA_MEMSET_NODE_PARAMS back;
  memset(&back, 0xee, sizeof back);
  ASK("get", cuGraphMemsetNodeGetParams(n, &back), "%d %d %zu %zu %zu %x", back.dst == d, back.elementSize, back.width,
      back.height, back.pitch, back.value);
  p = good, p.width = 4096;
  ASK("set", cuGraphMemsetNodeSetParams(n, &p));
  p.elementSize = 3;
  ASK("set element size 3", cuGraphMemsetNodeSetParams(n, &p));
  ASK("context NULL", cuGraphAddMemsetNode(&n, g, NULL, 0, &good, NULL));
  CUgraphNode empty;
  DO(cuGraphAddEmptyNode(&empty, g, NULL, 0));
  ASK("get of an empty node", cuGraphMemsetNodeGetParams(empty, &back));
  RISK("get into NULL", cuGraphMemsetNodeGetParams(n, NULL));
  RISK("set from NULL", cuGraphMemsetNodeSetParams(n, NULL));
  RISK("add from NULL", cuGraphAddMemsetNode(&n, g, NULL, 0, NULL, context));
  RISK("add into NULL", cuGraphAddMemsetNode(NULL, g, NULL, 0, &good, context));
}

static CUDA_MEMCPY3D copy_of(CUdeviceptr to, const void *from, size_t width) {
  CUDA_MEMCPY3D c;
  SET(c);
  c.srcMemoryType = CU_MEMORYTYPE_HOST, c.srcHost = from;
  c.dstMemoryType = CU_MEMORYTYPE_DEVICE, c.dstDevice = to;
  c.WidthInBytes = width, c.Height = c.Depth = 1;
  return c;
}

static void copies(void) {
  make();
  char host[64];
  CUDA_MEMCPY3D c = copy_of(d, host, 64), back;
  ASK("plain", cuGraphAddMemcpyNode(&n, g, NULL, 0, &c, context));
  SET(back);
  ASK("get", cuGraphMemcpyNodeGetParams(n, &back), "%zu %zu %zu %d %d %d %d", back.WidthInBytes, back.Height,
      back.Depth, back.srcMemoryType, back.dstMemoryType, back.srcHost == host, back.dstDevice == d);
  c = copy_of(d, host, 0);
  ASK("width 0", cuGraphAddMemcpyNode(&n, g, NULL, 0, &c, context));
  c = copy_of(d, host, 64), c.Height = 0;
  ASK("height 0", cuGraphAddMemcpyNode(&n, g, NULL, 0, &c, context));
  c = copy_of(d, host, 64), c.Depth = 0;
  ASK("depth 0", cuGraphAddMemcpyNode(&n, g, NULL, 0, &c, context));
  for (int type = 0; type <= 5; type++) {
    c = copy_of(d, host, 64), c.dstMemoryType = type, c.dstHost = host;
    ASK(W("destination type %d", type), cuGraphAddMemcpyNode(&n, g, NULL, 0, &c, context));
  }
  c = copy_of(d, host, 64), c.Height = 2;
  ASK("two rows, pitch 0", cuGraphAddMemcpyNode(&n, g, NULL, 0, &c, context));
  c.srcPitch = 64, c.dstPitch = 32;
  ASK("pitch below width", cuGraphAddMemcpyNode(&n, g, NULL, 0, &c, context));
  c = copy_of(d, host, 64), c.srcLOD = 1;
  ASK("level 1", cuGraphAddMemcpyNode(&n, g, NULL, 0, &c, context));
  c = copy_of(d, host, 64), c.reserved0 = host;
  ASK("reserved pointer", cuGraphAddMemcpyNode(&n, g, NULL, 0, &c, context));
  c = copy_of(d + 65536 - 32, host, 64);
  ASK("beyond the memory", cuGraphAddMemcpyNode(&n, g, NULL, 0, &c, context));
  c = copy_of(0, host, 64);
  ASK("to 0", cuGraphAddMemcpyNode(&n, g, NULL, 0, &c, context));
  c = copy_of(d, NULL, 64);
  ASK("from NULL", cuGraphAddMemcpyNode(&n, g, NULL, 0, &c, context));
  c = copy_of(d, host, 64);
  ASK("context NULL", cuGraphAddMemcpyNode(&n, g, NULL, 0, &c, NULL));
  RISK("get into NULL", cuGraphMemcpyNodeGetParams(n, NULL));
  RISK("add from NULL", cuGraphAddMemcpyNode(&n, g, NULL, 0, NULL, context));
  RISK("get of NULL", cuGraphMemcpyNodeGetParams(NULL, &back));
}

static CUDA_MEM_ALLOC_NODE_PARAMS allocation(size_t size) {
  CUDA_MEM_ALLOC_NODE_PARAMS p;
  SET(p);
  p.poolProps = pool_on_device(0), p.bytesize = size;
  return p;
}

static void allocations(void) {
  make();
  CUDA_MEM_ALLOC_NODE_PARAMS p = allocation(1000), back;
  CUgraphNode second;
  ASK("plain", cuGraphAddMemAllocNode(&n, g, NULL, 0, &p), "%d", p.dptr != 0);
  SET(back);
  ASK("get", cuGraphMemAllocNodeGetParams(n, &back), "%zu %d %d %d", back.bytesize, back.dptr == p.dptr,
      back.poolProps.allocType, back.poolProps.location.type);
  CUdeviceptr m = p.dptr;
  p = allocation(0);
  ASK("size 0", cuGraphAddMemAllocNode(&second, g, NULL, 0, &p));
  p = allocation((size_t)1 << 42);
  ASK("4 TiB", cuGraphAddMemAllocNode(&second, g, NULL, 0, &p));
  p = allocation(100), p.poolProps.handleTypes = 1;
  ASK("shareable", cuGraphAddMemAllocNode(&second, g, NULL, 0, &p));
  p = allocation(100), p.poolProps.allocType = 0;
  ASK("type 0", cuGraphAddMemAllocNode(&second, g, NULL, 0, &p));
  p = allocation(100), p.poolProps.location.type = 0;
  ASK("location type 0", cuGraphAddMemAllocNode(&second, g, NULL, 0, &p));
  p = allocation(100), p.poolProps.location.type = 2;
  ASK("on the host", cuGraphAddMemAllocNode(&second, g, NULL, 0, &p));
  p = allocation(100), p.poolProps.location.id = 99;
  ASK("device 99", cuGraphAddMemAllocNode(&second, g, NULL, 0, &p));
  p = allocation(100), p.poolProps.maxSize = 10;
  ASK("largest size 10", cuGraphAddMemAllocNode(&second, g, NULL, 0, &p));
  CUmemAccessDesc own = access_of(0, 3), far = access_of(99, 3), less = access_of(0, 1);
  p = allocation(100), p.accessDescs = &own, p.accessDescCount = 1;
  ASK("access of its own device", cuGraphAddMemAllocNode(&second, g, NULL, 0, &p));
  p.accessDescs = &far;
  ASK("access of device 99", cuGraphAddMemAllocNode(&second, g, NULL, 0, &p));
  p.accessDescs = &less;
  ASK("access to read", cuGraphAddMemAllocNode(&second, g, NULL, 0, &p));
  int type = 7;
  ASK("memory type before it exists", cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, m), "%d", type);
  CUdeviceptr base = 7;
  size_t size = 7;
  ASK("range before it exists", cuMemGetAddressRange(&base, &size, m), "%d %zu", base == m, size);
  CUgraphNode f, f2;
  ASK("free without an edge", cuGraphAddMemFreeNode(&f, g, NULL, 0, m));
  ASK("free behind it", cuGraphAddMemFreeNode(&f, g, &n, 1, m));
  ASK("free twice", cuGraphAddMemFreeNode(&f2, g, &n, 1, m));
  ASK("free 0", cuGraphAddMemFreeNode(&f2, g, NULL, 0, 0));
  ASK("free a middle", cuGraphAddMemFreeNode(&f2, g, &n, 1, m + 1));
  ASK("free of cuMemAlloc", cuGraphAddMemFreeNode(&f2, g, NULL, 0, d));
  CUdeviceptr freed = 0;
  ASK("get of the free", cuGraphMemFreeNodeGetParams(f, &freed), "%d", freed == m);
  ASK("get of another kind", cuGraphMemFreeNodeGetParams(n, &freed));
  CUgraph clone;
  ASK("clone", cuGraphClone(&clone, g));
  CUgraphNode child;
  CUgraph outer;
  DO(cuGraphCreate(&outer, 0));
  ASK("as a child", cuGraphAddChildGraphNode(&child, outer, NULL, 0, g));
  ASK("destroy the node", cuGraphDestroyNode(n));
  ASK("destroy the free", cuGraphDestroyNode(f));
  ASK("remove the edge", cuGraphRemoveDependencies(g, &n, &f, NULL, 1));
  RISK("add from NULL", cuGraphAddMemAllocNode(&n, g, NULL, 0, NULL));
  RISK("get into NULL", cuGraphMemAllocNodeGetParams(n, NULL));
  RISK("get of the free into NULL", cuGraphMemFreeNodeGetParams(f, NULL));
}

static void launched(void) {
  make();
  CUDA_MEM_ALLOC_NODE_PARAMS p = allocation(3 * MIB);
  CUgraphExec e = NULL, e2 = NULL;
  DO(cuGraphAddMemAllocNode(&n, g, NULL, 0, &p));
  ASK("instantiate without a free", cuGraphInstantiate(&e, g, 0));
  ASK("instantiate twice", cuGraphInstantiate(&e2, g, 0));
  uint64_t value = 77;
  for (int a = 0; a <= 4; a++) {
    value = 77;
    ASK(W("attribute %d before", a), cuDeviceGetGraphMemAttribute(0, a, &value), "%llu", (unsigned long long)value);
  }
  ASK("launch", cuGraphLaunch(e, 0));
  DO(cuCtxSynchronize());
  for (int a = 0; a <= 3; a++) {
    value = 77;
    ASK(W("attribute %d after", a), cuDeviceGetGraphMemAttribute(0, a, &value), "%llu", (unsigned long long)value);
  }
  ASK("launch while it has its memory", cuGraphLaunch(e, 0));
  int type = 7;
  ASK("memory type", cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p.dptr), "%d", type);
  CUdeviceptr base = 7;
  size_t size = 7;
  ASK("range", cuMemGetAddressRange(&base, &size, p.dptr + 1), "%d %zu", base == p.dptr, size);
  CUmemoryPool pool = (CUmemoryPool)7;
  ASK("its pool", cuPointerGetAttribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, p.dptr), "%d", pool == NULL);
  ASK("trim while it is used", cuDeviceGraphMemTrim(0));
  ASK("free in a stream", cuMemFreeAsync(p.dptr, 0));
  ASK("free again", cuMemFreeAsync(p.dptr, 0));
  DO(cuCtxSynchronize());
  ASK("launch after the free", cuGraphLaunch(e, 0));
  ASK("free with cuMemFree", cuMemFree(p.dptr));
  ASK("trim", cuDeviceGraphMemTrim(0));
  for (int a = 0; a <= 3; a++) {
    value = 77;
    ASK(W("attribute %d after trim", a), cuDeviceGetGraphMemAttribute(0, a, &value), "%llu", (unsigned long long)value);
  }
  for (int a = 0; a <= 4; a++)
    for (int v = 0; v <= 1; v++) {
      value = v;
      ASK(W("set attribute %d to %d", a, v), cuDeviceSetGraphMemAttribute(0, a, &value));
    }
  ASK("trim device 99", cuDeviceGraphMemTrim(99));
  ASK("attribute of device 99", cuDeviceGetGraphMemAttribute(99, 0, &value));
  CUgraphExec f = NULL;
  ASK("instantiate with automatic free", cuGraphInstantiate(&f, g, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
  ASK("launch it", cuGraphLaunch(f, 0));
  ASK("launch it again", cuGraphLaunch(f, 0));
  RISK("attribute into NULL", cuDeviceGetGraphMemAttribute(0, 0, NULL));
  RISK("attribute from NULL", cuDeviceSetGraphMemAttribute(0, 1, NULL));
}

static void batches(void) {
  make();
  CUstreamBatchMemOpParams op[2];
  SET(op);
  op[0].operation = CU_STREAM_MEM_OP_WRITE_VALUE_32, op[0].writeValue.address = d, op[0].writeValue.value = 5;
  op[1] = op[0];
  CUDA_BATCH_MEM_OP_NODE_PARAMS p;
  SET(p);
  p.ctx = context, p.count = 1, p.paramArray = op;
  CUDA_BATCH_MEM_OP_NODE_PARAMS good = p;
  ASK("plain", cuGraphAddBatchMemOpNode(&n, g, NULL, 0, &p));
  CUDA_BATCH_MEM_OP_NODE_PARAMS back;
  SET(back);
  ASK("get", cuGraphBatchMemOpNodeGetParams(n, &back), "%d %u %d %d", back.count, back.flags, back.paramArray != op,
      back.ctx == context);
  p.count = 0;
  ASK("count 0", cuGraphAddBatchMemOpNode(&n, g, NULL, 0, &p));
  p = good, p.count = 257;
  p = good, p.flags = 1;
  ASK("flags 1", cuGraphAddBatchMemOpNode(&n, g, NULL, 0, &p));
  p = good, p.ctx = NULL;
  ASK("context NULL", cuGraphAddBatchMemOpNode(&n, g, NULL, 0, &p));
  p = good, op[0].writeValue.address = d + 1;
  ASK("an odd address", cuGraphAddBatchMemOpNode(&n, g, NULL, 0, &p));
  op[0].writeValue.address = 0;
  ASK("address 0", cuGraphAddBatchMemOpNode(&n, g, NULL, 0, &p));
  op[0] = op[1], op[0].operation = 99;
  ASK("operation 99", cuGraphAddBatchMemOpNode(&n, g, NULL, 0, &p));
  op[0] = op[1], op[0].writeValue.flags = 8;
  ASK("operation's flags 8", cuGraphAddBatchMemOpNode(&n, g, NULL, 0, &p));
  op[0] = op[1];
  RISK("array NULL", cuGraphAddBatchMemOpNode(&n, g, NULL, 0, (p.paramArray = NULL, &p)));
  RISK("add from NULL", cuGraphAddBatchMemOpNode(&n, g, NULL, 0, NULL));
  RISK("get into NULL", cuGraphBatchMemOpNodeGetParams(n, NULL));
}

CASES RUN(sets) RUN(copies) RUN(allocations) RUN(launched) RUN(batches) END
