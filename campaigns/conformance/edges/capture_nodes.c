/* What captured calls become: kinds of nodes, their parameters, their edges. */
#include "ask.h"

static CUstream s;
static CUdeviceptr d, managed;
static void *pin;
static CUarray a;
static CUmodule m;
static CUfunction two;
static char local[4096];
static void host(void *data) { (void)data; }
static void callback(CUstream stream, CUresult status, void *data) { (void)stream, (void)status, (void)data; }

static void make(void) {
  CUDA_ARRAY_DESCRIPTOR ad = {16, 16, CU_AD_FORMAT_FLOAT, 1};
  DO(cuStreamCreate(&s, 1));
  DO(cuMemAlloc(&d, 65536));
  DO(cuMemAllocManaged(&managed, 65536, 1));
  DO(cuMemAllocHost(&pin, 65536));
  DO(cuArrayCreate(&a, &ad));
  DO(cuModuleLoadData(&m, PTX));
  DO(cuModuleGetFunction(&two, m, "two"));
}

static const char *shape(CUgraph g) {
  static char text[400];
  CUgraphNode nodes[8];
  size_t count = 8, edges = 0;
  *text = 0;
  if (!g) return "none";
  if (cuGraphGetNodes(g, nodes, &count)) return "?";
  cuGraphGetEdges(g, NULL, NULL, NULL, &edges);
  sprintf(text, "%zu nodes, %zu edges:", count, edges);
  for (size_t i = 0; i < count && i < 8; i++) {
    CUgraphNodeType type = 77;
    cuGraphNodeGetType(nodes[i], &type);
    sprintf(text + strlen(text), " %d", type);
    if (type == CU_GRAPH_NODE_TYPE_MEMSET) {
      CUDA_MEMSET_NODE_PARAMS p;
      SET(p);
      cuGraphMemsetNodeGetParams(nodes[i], &p);
      sprintf(text + strlen(text), "(%u of %u, %zu by %zu, pitch %zu)", p.value, p.elementSize, p.width, p.height,
              p.pitch);
    }
    if (type == CU_GRAPH_NODE_TYPE_MEMCPY) {
      CUDA_MEMCPY3D p;
      SET(p);
      cuGraphMemcpyNodeGetParams(nodes[i], &p);
      sprintf(text + strlen(text), "(%d to %d, %zu %zu %zu, pitches %zu %zu, heights %zu %zu)", p.srcMemoryType,
              p.dstMemoryType, p.WidthInBytes, p.Height, p.Depth, p.srcPitch, p.dstPitch, p.srcHeight, p.dstHeight);
    }
  }
  return text;
}

#define CAPTURE(words, call)                          \
  do {                                                \
    CUgraph g_ = NULL;                                \
    DO(cuStreamBeginCapture(s, 2));                   \
    int made_ = (int)(call);                          \
    int ended_ = (int)cuStreamEndCapture(s, &g_);     \
    SAY(words, "%d %d %s", made_, ended_, shape(g_)); \
  } while (0)

static void sets(void) {
  make();
  CAPTURE("8", cuMemsetD8Async(d, 5, 100, s));
  CAPTURE("16", cuMemsetD16Async(d, 5, 100, s));
  CAPTURE("32", cuMemsetD32Async(d, 5, 100, s));
  CAPTURE("none", cuMemsetD8Async(d, 5, 0, s));
  CAPTURE("a plane", cuMemsetD2D8Async(d, 512, 5, 100, 4, s));
  CAPTURE("a plane without gaps", cuMemsetD2D8Async(d, 100, 5, 100, 4, s));
  CAPTURE("a plane of one row", cuMemsetD2D32Async(d, 512, 5, 10, 1, s));
  CAPTURE("managed memory", cuMemsetD8Async(managed, 5, 100, s));
  CAPTURE("pinned memory", cuMemsetD8Async((CUdeviceptr)pin, 5, 100, s));
  CAPTURE("beyond", cuMemsetD8Async(d, 5, 70000, s));
}

static void copies(void) {
  make();
  CAPTURE("pinned to device", cuMemcpyHtoDAsync(d, pin, 100, s));
  CAPTURE("pageable to device", cuMemcpyHtoDAsync(d, local, 100, s));
  CAPTURE("device to pinned", cuMemcpyDtoHAsync(pin, d, 100, s));
  CAPTURE("device to pageable", cuMemcpyDtoHAsync(local, d, 100, s));
  CAPTURE("device to device", cuMemcpyDtoDAsync(d, d + 4096, 100, s));
  CAPTURE("generic", cuMemcpyAsync(d, (CUdeviceptr)pin, 100, s));
  CAPTURE("generic, host to host", cuMemcpyAsync((CUdeviceptr)local, (CUdeviceptr)pin, 100, s));
  CAPTURE("managed", cuMemcpyAsync(d, managed, 100, s));
  CAPTURE("none", cuMemcpyDtoDAsync(d, d + 4096, 0, s));
  CAPTURE("to an array", cuMemcpyHtoAAsync(a, 0, pin, 64, s));
  CAPTURE("peer to itself", cuMemcpyPeerAsync(d, context, d + 4096, context, 100, s));
  CUDA_MEMCPY2D c;
  SET(c);
  c.srcMemoryType = CU_MEMORYTYPE_HOST, c.srcHost = pin, c.srcPitch = 128, c.dstMemoryType = CU_MEMORYTYPE_DEVICE,
  c.dstDevice = d, c.dstPitch = 256, c.WidthInBytes = 100, c.Height = 4;
  CAPTURE("a plane", cuMemcpy2DAsync(&c, s));
  c.Height = 1;
  CAPTURE("a plane of one row", cuMemcpy2DAsync(&c, s));
  c.Height = 0;
  CAPTURE("a plane of no rows", cuMemcpy2DAsync(&c, s));
  CUDA_MEMCPY3D v;
  SET(v);
  v.srcMemoryType = CU_MEMORYTYPE_HOST, v.srcHost = pin, v.srcPitch = 128, v.srcHeight = 8,
  v.dstMemoryType = CU_MEMORYTYPE_DEVICE, v.dstDevice = d, v.dstPitch = 256, v.dstHeight = 8;
  v.WidthInBytes = 100, v.Height = 4, v.Depth = 2;
  CAPTURE("a volume", cuMemcpy3DAsync(&v, s));
  CUdeviceptr to[2] = {d, d + 4096}, from[2] = {d + 8192, d + 16384};
  size_t sizes[2] = {100, 200}, at = 0;
  CUmemcpyAttributes at0;
  SET(at0);
  at0.srcAccessOrder = 1;
  CAPTURE("a batch", cuMemcpyBatchAsync(to, from, sizes, 2, &at0, &at, 1, s));
}

static void others(void) {
  make();
  CUevent e;
  CUgraph g, child;
  CUgraphNode n;
  CUgraphExec x;
  CUdeviceptr p = 0;
  uint64_t first = 0;
  uint32_t second = 0;
  void *list[] = {&first, &second};
  DO(cuEventCreate(&e, 0));
  DO(cuGraphCreate(&g, 0));
  DO(cuGraphAddEmptyNode(&n, g, NULL, 0));
  DO(cuGraphClone(&child, g));
  DO(cuGraphInstantiate(&x, g, 0));
  CAPTURE("nothing", 0);
  CAPTURE("a kernel", cuLaunchKernel(two, 1, 1, 1, 1, 1, 1, 0, s, list, NULL));
  CAPTURE("a cooperative kernel", cuLaunchCooperativeKernel(two, 1, 1, 1, 1, 1, 1, 0, s, list));
  CAPTURE("a kernel with a grid of 0", cuLaunchKernel(two, 0, 1, 1, 1, 1, 1, 0, s, list, NULL));
  CAPTURE("a host function", cuLaunchHostFunc(s, host, NULL));
  CAPTURE("a callback", cuStreamAddCallback(s, callback, NULL, 0));
  CAPTURE("a record", cuEventRecord(e, s));
  CAPTURE("an external record", cuEventRecordWithFlags(e, s, 1));
  CAPTURE("an external wait", cuStreamWaitEvent(s, e, 1));
  CAPTURE("a graph", cuGraphLaunch(x, s));
  CAPTURE("an allocation", cuMemAllocAsync(&p, 100, s));
  CAPTURE("an allocation and its free", (cuMemAllocAsync(&p, 100, s), cuMemFreeAsync(p, s)));
  CAPTURE("a written value", cuStreamWriteValue32(s, d, 1, 0));
  CAPTURE("a wait for a value", cuStreamWaitValue32(s, d, 1, 0));
  CAPTURE("a prefetch", cuMemPrefetchAsync(managed, 4096, (CUmemLocation){1, 0}, 0, s));
  CAPTURE("three calls", (cuMemsetD8Async(d, 1, 16, s), cuLaunchHostFunc(s, host, NULL), cuMemsetD8Async(d, 2, 16, s)));
  CAPTURE("an attachment", cuStreamAttachMemAsync(s, managed, 0, 1));
  CAPTURE("a synchronous set", cuMemsetD8(d, 1, 16));
}

CASES RUN(sets) RUN(copies) RUN(others) END
