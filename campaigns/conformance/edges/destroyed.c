/* What is used after its end: each question may be a driver's last. */
#include "ask.h"

static CUstream s;
static CUevent e;
static CUgraph g;
static CUgraphExec x;
static CUgraphNode n;
static CUmemoryPool p;
static CUmodule m;
static CUfunction f;
static CUlibrary l;
static CUkernel k;
static CUarray a;
static CUmipmappedArray mm;
static CUdeviceptr d;
static CUcontext c;
static CUuserObject o;

static void nothing(void *data) { (void)data; }
static void make(void) {
  CUDA_ARRAY_DESCRIPTOR ad = {16, 16, CU_AD_FORMAT_FLOAT, 1};
  CUDA_ARRAY3D_DESCRIPTOR md = {16, 16, 0, CU_AD_FORMAT_FLOAT, 1, 0};
  CUmemPoolProps q = pool_on_device(0);
  DO(cuStreamCreate(&s, 1));
  DO(cuEventCreate(&e, 0));
  DO(cuGraphCreate(&g, 0));
  DO(cuGraphAddEmptyNode(&n, g, NULL, 0));
  DO(cuGraphInstantiate(&x, g, 0));
  DO(cuMemPoolCreate(&p, &q));
  DO(cuModuleLoadData(&m, PTX));
  DO(cuModuleGetFunction(&f, m, "two"));
  DO(cuLibraryLoadData(&l, PTX, NULL, NULL, 0, NULL, NULL, 0));
  DO(cuLibraryGetKernel(&k, l, "two"));
  DO(cuArrayCreate(&a, &ad));
  DO(cuMipmappedArrayCreate(&mm, &md, 2));
  DO(cuMemAlloc(&d, 4096));
  DO(cuUserObjectCreate(&o, NULL, nothing, 1, 1));
  DO(cuCtxCreate(&c, NULL, 0, 0));
  DO(cuCtxSetCurrent(context));
}

static void streams(void) {
  make();
  unsigned flags;
  int i;
  unsigned long long id;
  CUstreamAttrValue v;
  ASK("destroy", cuStreamDestroy(s));
  ALONE("query", cuStreamQuery(s));
  ALONE("synchronize", cuStreamSynchronize(s));
  ALONE("destroy again", cuStreamDestroy(s));
  ALONE("flags", cuStreamGetFlags(s, &flags));
  ALONE("priority", cuStreamGetPriority(s, &i));
  ALONE("id", cuStreamGetId(s, &id));
  ALONE("set memory in it", cuMemsetD8Async(d, 1, 16, s));
  ALONE("record in it", cuEventRecord(e, s));
  ALONE("wait in it", cuStreamWaitEvent(s, e, 0));
  ALONE("host function in it", cuLaunchHostFunc(s, nothing, NULL));
  ALONE("capture in it", cuStreamBeginCapture(s, 0));
  ALONE("graph in it", cuGraphLaunch(x, s));
  ALONE("attribute of it", cuStreamGetAttribute(s, 8, &v));
  ALONE("memory in it", cuMemAllocAsync(&d, 16, s));
}
static void events(void) {
  make();
  float t;
  CUgraphNode y;
  CUipcEventHandle h;
  ASK("destroy", cuEventDestroy(e));
  ALONE("query", cuEventQuery(e));
  ALONE("synchronize", cuEventSynchronize(e));
  ALONE("destroy again", cuEventDestroy(e));
  ALONE("record", cuEventRecord(e, s));
  ALONE("wait", cuStreamWaitEvent(s, e, 0));
  ALONE("time", cuEventElapsedTime(&t, e, e));
  ALONE("node of it", cuGraphAddEventRecordNode(&y, g, NULL, 0, e));
  ALONE("handle of it", cuIpcGetEventHandle(&h, e));
}
static void graphs(void) {
  make();
  CUgraphNode y;
  CUgraph clone;
  CUgraphExec z;
  CUgraphNodeType type;
  size_t count = 0;
  ASK("destroy", cuGraphDestroy(g));
  ALONE("destroy again", cuGraphDestroy(g));
  ALONE("add a node", cuGraphAddEmptyNode(&y, g, NULL, 0));
  ALONE("its nodes", cuGraphGetNodes(g, NULL, &count));
  ALONE("clone", cuGraphClone(&clone, g));
  ALONE("instantiate", cuGraphInstantiate(&z, g, 0));
  ALONE("its node's type", cuGraphNodeGetType(n, &type));
  ALONE("destroy its node", cuGraphDestroyNode(n));
  ALONE("launch its executable", cuGraphLaunch(x, s));
  ASK("destroy the executable", cuGraphExecDestroy(x));
  ALONE("destroy the executable again", cuGraphExecDestroy(x));
  ALONE("launch after that", cuGraphLaunch(x, s));
  cuuint64_t flags;
  ALONE("its flags", cuGraphExecGetFlags(x, &flags));
}
static void nodes(void) {
  make();
  CUgraphNode y;
  CUgraphNodeType type;
  size_t count = 0;
  ASK("destroy", cuGraphDestroyNode(n));
  ALONE("destroy again", cuGraphDestroyNode(n));
  ALONE("type", cuGraphNodeGetType(n, &type));
  ALONE("dependencies", cuGraphNodeGetDependencies(n, NULL, NULL, &count));
  ALONE("depend on it", cuGraphAddEmptyNode(&y, g, &n, 1));
}
static void pools(void) {
  make();
  uint64_t v;
  CUmemAccessDesc access = access_of(0, 3);
  ASK("destroy", cuMemPoolDestroy(p));
  ALONE("destroy again", cuMemPoolDestroy(p));
  ALONE("attribute", cuMemPoolGetAttribute(p, 5, &v));
  ALONE("allocate", cuMemAllocFromPoolAsync(&d, 16, p, s));
  ALONE("trim", cuMemPoolTrimTo(p, 0));
  ALONE("access", cuMemPoolSetAccess(p, &access, 1));
  ALONE("set current", cuDeviceSetMemPool(0, p));
}
static void modules(void) {
  make();
  int v;
  CUfunction y;
  const char *name;
  size_t size;
  ASK("unload", cuModuleUnload(m));
  ALONE("unload again", cuModuleUnload(m));
  ALONE("function", cuModuleGetFunction(&y, m, "two"));
  ALONE("variable", cuModuleGetGlobal(&d, &size, m, "variable"));
  ALONE("attribute of its function", cuFuncGetAttribute(&v, 0, f));
  ALONE("name of its function", cuFuncGetName(&name, f));
  ALONE("occupancy of its function", cuOccupancyMaxActiveBlocksPerMultiprocessor(&v, f, 32, 0));
  ASK("unload the library", cuLibraryUnload(l));
  ALONE("unload the library again", cuLibraryUnload(l));
  ALONE("kernel of the library", cuLibraryGetKernel(&k, l, "two"));
  ALONE("attribute of its kernel", cuKernelGetAttribute(&v, 0, k, 0));
  ALONE("function of its kernel", cuKernelGetFunction(&y, k));
}
static void arrays(void) {
  make();
  char host[64];
  CUDA_ARRAY_DESCRIPTOR ad;
  CUarray level;
  ASK("destroy", cuArrayDestroy(a));
  ALONE("destroy again", cuArrayDestroy(a));
  ALONE("descriptor", cuArrayGetDescriptor(&ad, a));
  ALONE("copy to it", cuMemcpyHtoA(a, 0, host, 64));
  DO(cuMipmappedArrayGetLevel(&level, mm, 0));
  ASK("destroy the mipmapped", cuMipmappedArrayDestroy(mm));
  ALONE("destroy the mipmapped again", cuMipmappedArrayDestroy(mm));
  ALONE("its level", cuMipmappedArrayGetLevel(&level, mm, 0));
  ALONE("descriptor of a level that it had", cuArrayGetDescriptor(&ad, level));
}
static void contexts(void) {
  make();
  CUevent y;
  unsigned v;
  ASK("destroy", cuCtxDestroy(c));
  ALONE("destroy again", cuCtxDestroy(c));
  ALONE("set current", cuCtxSetCurrent(c));
  ALONE("push", cuCtxPushCurrent(c));
  ALONE("version", cuCtxGetApiVersion(c, &v));
  ALONE("synchronize", cuCtxSynchronize_v2(c));
  ALONE("record", (cuEventCreate(&y, 0), cuCtxRecordEvent(c, y)));
}
static void memory(void) {
  make();
  char byte;
  CUdeviceptr base;
  size_t size;
  ASK("free", cuMemFree(d));
  ALONE("free again", cuMemFree(d));
  ALONE("free in a stream", cuMemFreeAsync(d, s));
  ALONE("set", cuMemsetD8(d, 1, 16));
  ALONE("copy", cuMemcpyDtoH(&byte, d, 1));
  ALONE("range", cuMemGetAddressRange(&base, &size, d));
  ALONE("write in a stream", cuStreamWriteValue32(s, d, 1, 0));
}
static void objects(void) {
  make();
  ASK("release", cuUserObjectRelease(o, 1));
  ALONE("release again", cuUserObjectRelease(o, 1));
  ALONE("retain", cuUserObjectRetain(o, 1));
  ALONE("retain in a graph", cuGraphRetainUserObject(g, o, 1, 0));
}
/* What never was anything. */
static void numbers(void) {
  make();
  unsigned v;
  float t;
  ALONE("a stream", cuStreamQuery((CUstream)0x1000));
  ALONE("an event", cuEventQuery((CUevent)0x1000));
  ALONE("times", cuEventElapsedTime(&t, (CUevent)0x1000, e));
  ALONE("a context", cuCtxSetCurrent((CUcontext)0x1000));
  ALONE("a context's version", cuCtxGetApiVersion((CUcontext)0x1000, &v));
  ALONE("a module", cuModuleGetFunction(&f, (CUmodule)0x1000, "two"));
  ALONE("a graph", cuGraphAddEmptyNode(&n, (CUgraph)0x1000, NULL, 0));
  ALONE("an executable", cuGraphLaunch((CUgraphExec)0x1000, s));
  ALONE("a pool", cuMemPoolTrimTo((CUmemoryPool)0x1000, 0));
  ALONE("an array", cuArrayDestroy((CUarray)0x1000));
  ALONE("an event as a stream", cuStreamQuery((CUstream)e));
  ALONE("a stream as an event", cuEventQuery((CUevent)s));
  ALONE("a graph as a stream", cuStreamQuery((CUstream)g));
}

CASES RUN(streams) RUN(events) RUN(graphs) RUN(nodes) RUN(pools) RUN(modules) RUN(arrays) RUN(contexts) RUN(memory)
    RUN(objects) RUN(numbers) END
