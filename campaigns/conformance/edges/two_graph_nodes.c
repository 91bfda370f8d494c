/* Two devices: nodes of graphs with contexts of both: copies, sets, kernels, allocations for device 1. */
#include "two.h"

static CUgraph g;
static CUgraphNode n;

static void make(void) {
  both();
  DO(cuGraphCreate(&g, 0));
}

/* Instantiates the graph, launches it once, and gives the first code that is not 0 (1000 more for each step). */
static int once(CUgraph graph) {
  CUgraphExec x = NULL;
  CUstream s = NULL;
  int code = cuGraphInstantiate(&x, graph, 0);
  if (code) return 1000 + code;
  cuStreamCreate(&s, CU_STREAM_NON_BLOCKING);
  if ((code = cuGraphLaunch(x, s))) return 2000 + code;
  if ((code = settled(s))) return 3000 + code;
  cuGraphExecDestroy(x);
  cuStreamDestroy(s);
  return 0;
}

static void sets(void) {
  make();
  CUdeviceptr m[2] = {memory(0, 4096, 0x11), memory(1, 4096, 0x22)};
  for (int access = 0; access < 2; access++) {
    if (access) DO(cuCtxEnablePeerAccess(of[1], 0));
    for (int i = 0; i < 2; i++)
      for (int c = 0; c < 2; c++) {
        CUDA_MEMSET_NODE_PARAMS p = {m[i], 0, 0x31 + access, 1, 64, 1};
        DO(cuGraphCreate(&g, 0));
        ASK(W("memory of %d, context %d, access %d", i, c, access), cuGraphAddMemsetNode(&n, g, NULL, 0, &p, of[c]));
        ASK(W("once, memory of %d, context %d, access %d", i, c, access), once(g), "%x", word(i, m[i]));
        SET(p);
        ASK(W("back, memory of %d, context %d, access %d", i, c, access), cuGraphMemsetNodeGetParams(n, &p), "%d",
            p.dst == m[i]);
        CUgraphNodeParams q;
        SET(q);
        q.type = CU_GRAPH_NODE_TYPE_MEMSET;
        q.memset.dst = m[i], q.memset.value = 0x51, q.memset.elementSize = 1, q.memset.width = 64, q.memset.height = 1,
        q.memset.ctx = of[c];
        ASK(W("as any node, memory of %d, context %d, access %d", i, c, access),
            cuGraphAddNode(&n, g, NULL, NULL, 0, &q));
      }
  }
  CUDA_MEMSET_NODE_PARAMS p = {m[1], 0, 7, 1, 64, 1};
  RISK("no context", cuGraphAddMemsetNode(&n, g, NULL, 0, &p, NULL));
}

static CUDA_MEMCPY3D plan(CUdeviceptr to, CUdeviceptr from) {
  CUDA_MEMCPY3D p;
  SET(p);
  p.srcMemoryType = p.dstMemoryType = CU_MEMORYTYPE_DEVICE, p.srcDevice = from, p.dstDevice = to;
  p.WidthInBytes = 64, p.Height = p.Depth = 1;
  return p;
}

static void copies(void) {
  make();
  CUdeviceptr m[2] = {memory(0, 4096, 0x11), memory(1, 4096, 0x22)};
  for (int access = 0; access < 2; access++) {
    if (access) DO(cuCtxEnablePeerAccess(of[1], 0));
    for (int to = 0; to < 2; to++)
      for (int from = 0; from < 2; from++)
        for (int c = 0; c < 2; c++) {
          CUDA_MEMCPY3D p = plan(m[to] + 1024, m[from]);
          DO(cuGraphCreate(&g, 0));
          ASK(W("%d to %d, context %d, access %d", from, to, c, access),
              cuGraphAddMemcpyNode(&n, g, NULL, 0, &p, of[c]));
          ASK(W("once, %d to %d, context %d, access %d", from, to, c, access), once(g), "%x", word(to, m[to] + 1024));
        }
  }
  CUDA_MEMCPY3D p = plan(m[1], m[0]);
  RISK("no context", cuGraphAddMemcpyNode(&n, g, NULL, 0, &p, NULL));
  p.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  ASK("to unified", cuGraphAddMemcpyNode(&n, g, NULL, 0, &p, of[0]));
}

static void kernels(void) {
  make();
  CUmodule m[2] = {NULL};
  CUfunction f[2] = {NULL};
  CUlibrary l = NULL;
  CUkernel k = NULL;
  DO(cuLibraryLoadData(&l, PTX, NULL, NULL, 0, NULL, NULL, 0));
  DO(cuLibraryGetKernel(&k, l, "empty"));
  for (int d = 0; d < 2; d++) {
    on(d);
    DO(cuModuleLoadData(&m[d], PTX));
    DO(cuModuleGetFunction(&f[d], m[d], "empty"));
  }
  for (int now = -1; now < 2; now++) {
    for (int i = 0; i < 2; i++)
      for (int c = -1; c < 2; c++) {
        CUDA_KERNEL_NODE_PARAMS p = {f[i], 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL, c < 0 ? NULL : of[c]}, q;
        SET(q);
        DO(cuGraphCreate(&g, 0));
        DO(cuCtxSetCurrent(now < 0 ? NULL : of[now]));
        ASK(W("function of %d, context %d, %d current", i, c, now), cuGraphAddKernelNode(&n, g, NULL, 0, &p));
        ASK(W("back, function of %d, context %d, %d current", i, c, now), cuGraphKernelNodeGetParams(n, &q), "%d %d",
            q.func == f[i],
            q.ctx == of[0]   ? 0
            : q.ctx == of[1] ? 1
                             : -1);
        on(now < 0 ? 0 : now);
        ASK(W("once, function of %d, context %d, %d current", i, c, now), once(g));
      }
    for (int c = -1; c < 2; c++) {
      CUDA_KERNEL_NODE_PARAMS p = {NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, k, c < 0 ? NULL : of[c]}, q;
      SET(q);
      DO(cuGraphCreate(&g, 0));
      DO(cuCtxSetCurrent(now < 0 ? NULL : of[now]));
      ASK(W("kernel, context %d, %d current", c, now), cuGraphAddKernelNode(&n, g, NULL, 0, &p));
      ASK(W("back, kernel, context %d, %d current", c, now), cuGraphKernelNodeGetParams(n, &q), "%d %d", q.kern == k,
          q.ctx == of[0]   ? 0
          : q.ctx == of[1] ? 1
                           : -1);
      on(now < 0 ? 0 : now);
      ASK(W("once, kernel, context %d, %d current", c, now), once(g));
    }
  }
}

static void allocations(void) {
  make();
  for (int d = -1; d <= 2; d++)
    for (int a = 0; a < 4; a++) {
      CUDA_MEM_ALLOC_NODE_PARAMS p;
      CUmemAccessDesc x[2] = {access_of(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE),
                              access_of(1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)};
      SET(p);
      p.poolProps = pool_on_device(CU_MEM_HANDLE_TYPE_NONE);
      p.poolProps.location.id = d, p.bytesize = 4096;
      if (a) p.accessDescs = a == 2 ? x + 1 : x, p.accessDescCount = a == 3 ? 2 : 1;
      CUgraphNode b = NULL, e = NULL;
      DO(cuGraphCreate(&g, 0));
      ASK(W("on %d, access %d", d, a), cuGraphAddMemAllocNode(&n, g, NULL, 0, &p), "%d", p.dptr != 0);
      if (!p.dptr) continue;
      int ordinal = 77;
      ASK(W("where, on %d, access %d", d, a),
          cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p.dptr), "%d", ordinal);
      CUDA_MEMSET_NODE_PARAMS q = {p.dptr, 0, 0x31, 1, 64, 1};
      ASK(W("a set, on %d, access %d", d, a), cuGraphAddMemsetNode(&b, g, &n, 1, &q, of[a == 2]));
      ASK(W("its end, on %d, access %d", d, a), cuGraphAddMemFreeNode(&e, g, b ? &b : &n, 1, p.dptr));
      if (d == a - 1 || a == 3 || (!d && !a)) ASK(W("once, on %d, access %d", d, a), once(g));
    }
  for (int d = 0; d <= 2; d++) {
    cuuint64_t used = 7;
    ASK(W("used of %d", d), cuDeviceGetGraphMemAttribute(d, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used), "%d",
        (int)used);
    ASK(W("trim of %d", d), cuDeviceGraphMemTrim(d));
    used = 0;
    ASK(W("clear the high one of %d", d), cuDeviceSetGraphMemAttribute(d, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &used));
  }
}

CASES RUN(sets) RUN(copies) RUN(kernels) RUN(allocations) END
