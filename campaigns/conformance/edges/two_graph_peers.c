/* Two devices: graphs whose nodes belong to both. */
#include "ask.h"

static CUcontext tg_one;
static CUstream tg_s[2];
static CUdeviceptr tg_d[2];
static int tg_calls;
static void CUDA_CB tg_add(void *by) { tg_calls += (int)(intptr_t)by; }
static void tg_current(int k) { DO(cuCtxSetCurrent(k ? tg_one : context)); }
static CUcontext tg_ctx(int k) { return k ? tg_one : context; }
static void tg_begin(int peers) {
  DO(cuDevicePrimaryCtxRetain(&tg_one, 1));
  for (int k = 0; k < 2; k++) {
    tg_current(k);
    if (peers) DO(cuCtxEnablePeerAccess(tg_ctx(!k), 0));
    DO(cuStreamCreate(&tg_s[k], CU_STREAM_NON_BLOCKING));
    DO(cuMemAlloc(&tg_d[k], 65536));
    DO(cuMemsetD8(tg_d[k], 0, 65536));
    DO(cuCtxSynchronize());
  }
  tg_current(0);
}
static unsigned tg_word(CUdeviceptr d) {
  unsigned v = 0xbad;
  cuMemcpyDtoH(&v, d, 4);
  return v;
}
static CUDA_MEMSET_NODE_PARAMS tg_set(CUdeviceptr at, unsigned value) {
  CUDA_MEMSET_NODE_PARAMS p;
  SET(p);
  p.dst = at, p.value = value, p.elementSize = 4, p.width = 16, p.height = 1;
  return p;
}
static CUDA_MEMCPY3D tg_copy(CUdeviceptr to, CUdeviceptr from) {
  CUDA_MEMCPY3D c;
  SET(c);
  c.srcMemoryType = c.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  c.srcDevice = from, c.dstDevice = to, c.WidthInBytes = 64, c.Height = c.Depth = 1;
  return c;
}

static void tg_nodes(int peers) {
  for (int memory = 0; memory < 2; memory++)
    for (int owner = 0; owner < 3; owner++)
      for (int current = 0; current < 2; current++) {
        char way[80];
        CUgraph g;
        CUgraphNode n;
        CUgraphExec x = NULL;
        snprintf(way, sizeof way, "memory %d, node of %d, current %d", memory, owner, current);
        tg_current(current);
        DO(cuGraphCreate(&g, 0));
        CUDA_MEMSET_NODE_PARAMS p = tg_set(tg_d[memory], 1 + memory + 2 * owner + 6 * current);
        int code;
        ASK(W("memset: %s", way), code = cuGraphAddMemsetNode(&n, g, NULL, 0, &p, owner == 2 ? NULL : tg_ctx(owner)));
        if (code) continue;
        ASK(W("instantiate: %s", way), code = cuGraphInstantiate(&x, g, 0));
        if (code) continue;
        int stray = (owner == 2 ? current : owner) != memory; /* without peers its launch has a case of its own */
        for (int s = 0; s < 2 && (peers || !stray); s++) {
          ASK(W("launch on %d: %s", s, way), cuGraphLaunch(x, tg_s[s]));
          ASK(W("end on %d: %s", s, way), cuStreamSynchronize(tg_s[s]), "%u", tg_word(tg_d[memory]));
        }
        p = tg_set(tg_d[!memory], 99);
        ASK(W("set to the other memory: %s", way), cuGraphExecMemsetNodeSetParams(x, n, &p, tg_ctx(owner & 1)));
        p = tg_set(tg_d[memory], 98);
        ASK(W("set to the other context: %s", way), cuGraphExecMemsetNodeSetParams(x, n, &p, tg_ctx(!owner)));
        ASK(W("set the graph's node to the other memory: %s", way),
            cuGraphMemsetNodeSetParams(n, (p = tg_set(tg_d[!memory], 97), &p)));
      }
  for (int from = 0; from < 2; from++)
    for (int to = 0; to < 2; to++)
      for (int owner = 0; owner < 2; owner++) {
        char way[80];
        CUgraph g;
        CUgraphNode n;
        CUgraphExec x = NULL;
        snprintf(way, sizeof way, "from %d to %d, node of %d", from, to, owner);
        tg_current(0);
        DO(cuMemsetD32(tg_d[from], 1000 + 100 * from + 10 * to + owner, 16));
        DO(cuCtxSynchronize());
        tg_current(1);
        DO(cuCtxSynchronize());
        tg_current(0);
        DO(cuGraphCreate(&g, 0));
        CUDA_MEMCPY3D c = tg_copy(tg_d[to] + 4096, tg_d[from]);
        int code;
        ASK(W("copy: %s", way), code = cuGraphAddMemcpyNode(&n, g, NULL, 0, &c, tg_ctx(owner)));
        if (code) continue;
        ASK(W("instantiate the copy: %s", way), code = cuGraphInstantiate(&x, g, 0));
        if (code) continue;
        ASK(W("launch the copy: %s", way), cuGraphLaunch(x, tg_s[owner]));
        ASK(W("end of the copy: %s", way), cuStreamSynchronize(tg_s[owner]), "%u", tg_word(tg_d[to] + 4096));
        c = tg_copy(tg_d[!to] + 4096, tg_d[from]);
        ASK(W("set the copy elsewhere: %s", way), cuGraphExecMemcpyNodeSetParams(x, n, &c, tg_ctx(owner)));
        c = tg_copy(tg_d[to] + 8192, tg_d[from]);
        ASK(W("set the copy to the other context: %s", way), cuGraphExecMemcpyNodeSetParams(x, n, &c, tg_ctx(!owner)));
        ASK(W("set the copy nearby: %s", way), cuGraphExecMemcpyNodeSetParams(x, n, &c, tg_ctx(owner)));
      }
}

static void without_peers(void) {
  tg_begin(0);
  tg_nodes(0);
}
static void with_peers(void) {
  tg_begin(1);
  tg_nodes(1);
}

static void tg_stray(int owner) {
  tg_begin(0);
  CUgraph g;
  CUgraphNode n;
  CUgraphExec x = NULL;
  CUDA_MEMSET_NODE_PARAMS p = tg_set(tg_d[!owner], 5);
  int code;
  DO(cuGraphCreate(&g, 0));
  ASK("memset", code = cuGraphAddMemsetNode(&n, g, NULL, 0, &p, tg_ctx(owner)));
  if (code) return;
  ASK("instantiate", code = cuGraphInstantiate(&x, g, 0));
  if (code) return;
  ASK("launch", cuGraphLaunch(x, tg_s[owner]));
  ASK("end", cuStreamSynchronize(tg_s[owner]), "%u", tg_word(tg_d[!owner]));
}
static void first_strays(void) { tg_stray(0); }
static void second_strays(void) { tg_stray(1); }

static void together(void) {
  tg_begin(1);
  CUgraph g, copy, child;
  CUgraphNode n[8], m;
  CUgraphExec x;
  CUevent e[2], got;
  for (int k = 0; k < 2; k++) {
    tg_current(k);
    DO(cuEventCreate(&e[k], CU_EVENT_DISABLE_TIMING));
  }
  tg_current(0);
  DO(cuGraphCreate(&g, 0));
  DO(cuGraphCreate(&child, 0));
  CUDA_MEMSET_NODE_PARAMS p0 = tg_set(tg_d[0], 0x501), p1 = tg_set(tg_d[1], 0x502), p2 = tg_set(tg_d[1] + 1024, 0x503);
  CUDA_MEMCPY3D c = tg_copy(tg_d[1] + 512, tg_d[0]);
  CUDA_HOST_NODE_PARAMS h = {tg_add, (void *)1};
  ASK("set of the first", cuGraphAddMemsetNode(&n[0], g, NULL, 0, &p0, context));
  ASK("set of the second", cuGraphAddMemsetNode(&n[1], g, NULL, 0, &p1, tg_one));
  ASK("copy after both", cuGraphAddMemcpyNode(&n[2], g, n, 2, &c, tg_one));
  ASK("record the first's event", cuGraphAddEventRecordNode(&n[3], g, &n[2], 1, e[0]));
  ASK("record the second's event", cuGraphAddEventRecordNode(&n[4], g, &n[2], 1, e[1]));
  ASK("wait for the second's event", cuGraphAddEventWaitNode(&n[5], g, &n[4], 1, e[1]));
  ASK("host function", cuGraphAddHostNode(&n[6], g, &n[5], 1, &h));
  ASK("set in a child", cuGraphAddMemsetNode(&m, child, NULL, 0, &p2, tg_one));
  ASK("child", cuGraphAddChildGraphNode(&n[7], g, &n[6], 1, child));
  ASK("event of the second's record", cuGraphEventRecordNodeGetEvent(n[4], &got), "%d", got == e[1]);
  CUDA_MEMSET_NODE_PARAMS q;
  ASK("parameters of the second's set", cuGraphMemsetNodeGetParams(n[1], &q), "%d %x", q.dst == tg_d[1], q.value);
  CUgraphNodeParams any;
  ASK("clone", cuGraphClone(&copy, g));
  CUDA_GRAPH_INSTANTIATE_PARAMS ip;
  SET(ip);
  ip.hUploadStream = tg_s[1], ip.flags = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD;
  ASK("instantiate with an upload to the second", cuGraphInstantiateWithParams(&x, g, &ip), "%d", ip.result_out);
  DO(cuStreamSynchronize(tg_s[1]));
  ASK("instantiate", cuGraphInstantiate(&x, g, 0));
  ASK("upload to the second", cuGraphUpload(x, tg_s[1]));
  for (int current = 0; current < 2; current++)
    for (int s = 0; s < 2; s++) {
      tg_current(current);
      DO(cuMemsetD8(tg_d[0], 0, 2048));
      DO(cuMemsetD8(tg_d[1], 0, 2048));
      DO(cuCtxSynchronize());
      ASK(W("launch on %d, current %d", s, current), cuGraphLaunch(x, tg_s[s]));
      ASK(W("end on %d, current %d", s, current), cuStreamSynchronize(tg_s[s]), "%d %x %x %x %x", tg_calls,
          tg_word(tg_d[0]), tg_word(tg_d[1]), tg_word(tg_d[1] + 512), tg_word(tg_d[1] + 1024));
      ASK(W("events after %d, current %d", s, current), cuEventQuery(e[0]) * 1000 + cuEventQuery(e[1]));
    }
  tg_current(0);
  for (int k = 0; k < 2; k++)
    for (int i = 3; i < 6; i++) {
      if (i < 5) ASK(W("record %d becomes the event of %d", i, k), cuGraphExecEventRecordNodeSetEvent(x, n[i], e[k]));
      else ASK(W("wait %d becomes the event of %d", i, k), cuGraphExecEventWaitNodeSetEvent(x, n[i], e[k]));
    }
  for (int i = 0; i < 8; i++) {
    unsigned on = 77;
    ASK(W("disable %d", i), cuGraphNodeSetEnabled(x, n[i], 0));
    ASK(W("is %d enabled", i), cuGraphNodeGetEnabled(x, n[i], &on), "%u", on);
    if (!on) DO(cuGraphNodeSetEnabled(x, n[i], 1));
  }
  CUgraphExecUpdateResultInfo info;
  SET(info);
  ASK("update by the clone", cuGraphExecUpdate(x, copy, &info), "%d", info.result);
  CUgraphNode there;
  for (int k = 0; k < 2; k++) {
    DO(cuGraphNodeFindInClone(&there, n[k], copy));
    SET(any);
    any.type = CU_GRAPH_NODE_TYPE_MEMSET;
    any.memset.dst = tg_d[!k], any.memset.value = 3, any.memset.elementSize = 4, any.memset.width = 16,
    any.memset.height = 1, any.memset.ctx = tg_ctx(!k);
    ASK(W("the clone's set %d moves to the other", k), cuGraphNodeSetParams(there, &any));
    ASK(W("update by the moved %d", k), cuGraphExecUpdate(x, copy, &info), "%d", info.result);
    ASK(W("exec's set %d moves to the other", k), cuGraphExecNodeSetParams(x, n[k], &any));
    any.memset.dst = tg_d[k], any.memset.value = 4, any.memset.ctx = tg_ctx(k);
    DO(cuGraphNodeSetParams(there, &any));
    ASK(W("exec's set %d with its own context", k), cuGraphExecNodeSetParams(x, n[k], &any));
  }
}

static void memory(void) {
  tg_begin(0);
  for (int pool = 0; pool < 2; pool++)
    for (int access = 0; access < 3; access++)
      for (int current = 0; current < 2; current++) {
        char way[80];
        snprintf(way, sizeof way, "pool of %d, access %d, current %d", pool, access, current);
        tg_current(current);
        CUgraph g;
        CUgraphNode a, s, f;
        CUgraphExec x = NULL;
        CUDA_MEM_ALLOC_NODE_PARAMS p, q;
        CUmemAccessDesc d[2] = {access_of(!pool, 3), access_of(pool, 3)};
        SET(p);
        p.poolProps = pool_on_device(0);
        p.poolProps.location.id = pool, p.bytesize = MIB, p.accessDescs = d, p.accessDescCount = access;
        DO(cuGraphCreate(&g, 0));
        int code;
        ASK(W("allocate: %s", way), code = cuGraphAddMemAllocNode(&a, g, NULL, 0, &p));
        if (code) continue;
        SET(q);
        ASK(W("parameters: %s", way), cuGraphMemAllocNodeGetParams(a, &q), "%d %zu %zu", q.poolProps.location.id,
            q.accessDescCount, q.bytesize);
        int ordinal = 77;
        ASK(W("ordinal: %s", way), cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p.dptr), "%d",
            ordinal);
        CUDA_MEMSET_NODE_PARAMS set = tg_set(p.dptr, 0x700 + access);
        ASK(W("set: %s", way), code = cuGraphAddMemsetNode(&s, g, &a, 1, &set, tg_ctx(access ? !pool : pool)));
        ASK(W("free: %s", way), cuGraphAddMemFreeNode(&f, g, code ? &a : &s, 1, p.dptr));
        ASK(W("instantiate: %s", way), code = cuGraphInstantiate(&x, g, 0));
        if (code) continue;
        ASK(W("launch: %s", way), cuGraphLaunch(x, tg_s[pool]));
        ASK(W("end: %s", way), cuStreamSynchronize(tg_s[pool]));
        DO(cuGraphExecDestroy(x));
        DO(cuGraphDestroy(g));
      }
  for (int k = 0; k < 2; k++)
    for (int a = 0; a < 2; a++) {
      cuuint64_t v = 77;
      ASK(W("graph memory %d of %d", a, k), cuDeviceGetGraphMemAttribute(k, a, &v), "%d", v == 0 || a);
      ASK(W("trim of %d, time %d", k, a), cuDeviceGraphMemTrim(k));
    }
  CUgraph g;
  CUgraphConditionalHandle h[2];
  tg_current(0);
  DO(cuGraphCreate(&g, 0));
  for (int k = 0; k < 2; k++)
    ASK(W("conditional handle of %d", k),
        cuGraphConditionalHandleCreate(&h[k], g, tg_ctx(k), 1, CU_GRAPH_COND_ASSIGN_DEFAULT));
  for (int k = 0; k < 2; k++)
    for (int owner = 0; owner < 2; owner++) {
      CUgraph fresh;
      CUgraphNode n;
      CUgraphNodeParams p;
      CUgraphExec x;
      CUgraphConditionalHandle handle;
      DO(cuGraphCreate(&fresh, 0));
      DO(cuGraphConditionalHandleCreate(&handle, fresh, tg_ctx(k), 1, CU_GRAPH_COND_ASSIGN_DEFAULT));
      SET(p);
      p.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
      p.conditional.handle = handle, p.conditional.type = CU_GRAPH_COND_TYPE_IF, p.conditional.size = 1,
      p.conditional.ctx = tg_ctx(owner);
      int code;
      ASK(W("conditional of %d, handle of %d", owner, k), code = cuGraphAddNode(&n, fresh, NULL, NULL, 0, &p));
      if (code) continue;
      CUgraph body = p.conditional.phGraph_out[0];
      for (int b = 0; b < 2; b++) {
        CUDA_MEMSET_NODE_PARAMS set = tg_set(tg_d[b], 1);
        CUgraphNode m;
        ASK(W("set of %d in the body of %d, handle of %d", b, owner, k),
            cuGraphAddMemsetNode(&m, body, NULL, 0, &set, tg_ctx(b)));
      }
      ASK(W("instantiate the conditional of %d, handle of %d", owner, k), cuGraphInstantiate(&x, fresh, 0));
    }
  CUmodule m[2];
  CUfunction f[2];
  for (int k = 0; k < 2; k++) {
    tg_current(k);
    DO(cuModuleLoadData(&m[k], PTX));
    DO(cuModuleGetFunction(&f[k], m[k], "empty"));
  }
  for (int k = 0; k < 2; k++)
    for (int owner = 0; owner < 2; owner++) {
      CUgraph fresh;
      CUgraphNode n;
      CUgraphExec x;
      CUDA_KERNEL_NODE_PARAMS p, q;
      DO(cuGraphCreate(&fresh, 0));
      SET(p);
      p.func = f[k], p.gridDimX = p.gridDimY = p.gridDimZ = p.blockDimX = p.blockDimY = p.blockDimZ = 1,
      p.ctx = tg_ctx(owner);
      int code;
      ASK(W("kernel of %d in a node of %d", k, owner), code = cuGraphAddKernelNode(&n, fresh, NULL, 0, &p));
      if (code) continue;
      SET(q);
      ASK(W("its parameters, %d and %d", k, owner), cuGraphKernelNodeGetParams(n, &q), "%d %d", q.func == f[k],
          q.ctx == tg_ctx(k));
      ASK(W("instantiate it, %d and %d", k, owner), code = cuGraphInstantiate(&x, fresh, 0));
      p.func = f[!k], p.ctx = NULL;
      if (!code)
        ASK(W("exec set to the other's kernel, %d and %d", k, owner), cuGraphExecKernelNodeSetParams(x, n, &p));
      ASK(W("set to the other's kernel, %d and %d", k, owner), cuGraphKernelNodeSetParams(n, &p));
    }
}

CASES
RUN(without_peers)
RUN(with_peers)
RUN(first_strays)
RUN(second_strays)
RUN(together)
RUN(memory)
END
