/* Host functions and callbacks: what may be called inside, what is refused, what they say. */
#include "ask.h"

static CUstream s;
static CUevent e;
static CUdeviceptr d;
static CUfunction f;
static CUmodule m;
static CUgraph g;
static CUgraphExec x;
static CUmemoryPool pool;
static void *pin;
static volatile int done;

static void set_up(void) {
  DO(cuStreamCreate(&s, 1));
  DO(cuEventCreate(&e, 0));
  DO(cuMemAlloc(&d, 4096));
  DO(cuMemAllocHost(&pin, 4096));
  DO(cuModuleLoadData(&m, PTX));
  DO(cuModuleGetFunction(&f, m, "empty"));
  DO(cuGraphCreate(&g, 0));
  CUgraphNode n;
  DO(cuGraphAddEmptyNode(&n, g, NULL, 0));
  DO(cuGraphInstantiate(&x, g, 0));
  DO(cuDeviceGetDefaultMemPool(&pool, 0));
  DO(cuCtxSynchronize());
}

static void queries(void *data) {
  (void)data;
  int i = 77;
  unsigned u = 77;
  size_t z, y;
  const char *text = NULL;
  CUcontext c = NULL;
  CUdevice dev = 77;
  CUdeviceptr p;
  CUmodule mod;
  unsigned long long id;
  char name[64];
  CUuuid uuid;
  CUlimit limit = 0;
  ASK("DriverGetVersion", cuDriverGetVersion(&i), "%d", i);
  ASK("Init", cuInit(0));
  ASK("DeviceGetCount", cuDeviceGetCount(&i), "%d", i);
  ASK("DeviceGet", cuDeviceGet(&dev, 0));
  ASK("DeviceGetName", cuDeviceGetName(name, 64, 0));
  ASK("DeviceGetUuid", cuDeviceGetUuid(&uuid, 0));
  ASK("DeviceGetAttribute", cuDeviceGetAttribute(&i, 1, 0));
  ASK("DeviceTotalMem", cuDeviceTotalMem(&z, 0));
  ASK("DeviceComputeCapability", cuDeviceComputeCapability(&i, &i, 0));
  ASK("DeviceGetMemPool", cuDeviceGetMemPool(&pool, 0));
  ASK("DeviceGetDefaultMemPool", cuDeviceGetDefaultMemPool(&pool, 0));
  ASK("DevicePrimaryCtxGetState", cuDevicePrimaryCtxGetState(0, &u, &i));
  ASK("DevicePrimaryCtxRetain", cuDevicePrimaryCtxRetain(&c, 0));
  ASK("CtxGetCurrent", cuCtxGetCurrent(&c), "%d", c == context);
  ASK("CtxGetDevice", cuCtxGetDevice(&dev), "%d", dev);
  ASK("CtxGetFlags", cuCtxGetFlags(&u));
  ASK("CtxGetId", cuCtxGetId(context, &id));
  ASK("CtxGetApiVersion", cuCtxGetApiVersion(context, &u));
  ASK("CtxGetLimit", cuCtxGetLimit(&z, limit));
  ASK("CtxGetCacheConfig", cuCtxGetCacheConfig((CUfunc_cache *)&i));
  ASK("CtxGetStreamPriorityRange", cuCtxGetStreamPriorityRange(&i, &i));
  ASK("MemGetInfo", cuMemGetInfo(&z, &y));
  ASK("MemGetAddressRange", cuMemGetAddressRange(&p, &z, d));
  ASK("PointerGetAttribute", cuPointerGetAttribute(&i, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, d));
  ASK("MemHostGetFlags", cuMemHostGetFlags(&u, pin));
  ASK("MemHostGetDevicePointer", cuMemHostGetDevicePointer(&p, pin, 0));
  ASK("StreamQuery of another", cuStreamQuery(0));
  ASK("StreamGetFlags", cuStreamGetFlags(s, &u));
  ASK("StreamGetPriority", cuStreamGetPriority(s, &i));
  ASK("StreamGetId", cuStreamGetId(s, &id));
  ASK("StreamGetCtx", cuStreamGetCtx(s, &c));
  ASK("StreamGetDevice", cuStreamGetDevice(s, &dev));
  ASK("StreamIsCapturing", cuStreamIsCapturing(s, (CUstreamCaptureStatus *)&i));
  ASK("EventQuery", cuEventQuery(e));
  ASK("FuncGetAttribute", cuFuncGetAttribute(&i, 0, f));
  ASK("FuncGetName", cuFuncGetName(&text, f));
  ASK("FuncGetModule", cuFuncGetModule(&mod, f));
  ASK("FuncGetParamInfo", cuFuncGetParamInfo(f, 0, &z, &y));
  ASK("FuncIsLoaded", cuFuncIsLoaded((CUfunctionLoadingState *)&i, f));
  ASK("ModuleGetFunction", cuModuleGetFunction(&f, m, "two"));
  ASK("ModuleGetGlobal", cuModuleGetGlobal(&p, &z, m, "variable"));
  ASK("ModuleGetFunctionCount", cuModuleGetFunctionCount(&u, m));
  ASK("ModuleGetLoadingMode", cuModuleGetLoadingMode((CUmoduleLoadingMode *)&i));
  ASK("OccupancyMaxActiveBlocks", cuOccupancyMaxActiveBlocksPerMultiprocessor(&i, f, 128, 0));
  ASK("GraphGetNodes", cuGraphGetNodes(g, NULL, &z));
  ASK("GraphExecGetFlags", cuGraphExecGetFlags(x, (cuuint64_t *)&id));
  ASK("MemPoolGetAttribute", cuMemPoolGetAttribute(pool, 5, &id));
  ASK("GetErrorString", cuGetErrorString(1, &text));
  ASK("GetErrorName", cuGetErrorName(1, &text));
  void *fn;
  ASK("GetProcAddress", cuGetProcAddress("cuInit", &fn, 13000, 0, NULL));
  const void *table;
  CUuuid zero;
  SET(zero);
  ASK("GetExportTable", cuGetExportTable(&table, &zero));
  ASK("CtxGetSharedMemConfig", cuCtxGetSharedMemConfig((CUsharedconfig *)&i));
  ASK("DeviceGetPCIBusId", cuDeviceGetPCIBusId(name, 64, 0));
  ASK("DeviceCanAccessPeer", cuDeviceCanAccessPeer(&i, 0, 0));
  ASK("MemGetAllocationGranularity", ({
        CUmemAllocationProp pr = pinned();
        cuMemGetAllocationGranularity(&z, &pr, 0);
      }));
  done = 1;
}

static void actions(void *data) {
  (void)data;
  CUdeviceptr p = 0;
  CUstream t;
  CUevent ev;
  void *h = NULL;
  char byte;
  CUgraph gg;
  CUcontext c;
  CUmodule mod;
  CUuserObject o;
  ASK("MemAlloc", cuMemAlloc(&p, 16));
  ASK("MemAllocHost", cuMemAllocHost(&h, 16));
  ASK("MemAllocManaged", cuMemAllocManaged(&p, 16, 1));
  ASK("MemHostRegister", cuMemHostRegister((void *)((uintptr_t)&byte & ~4095ul), 4096, 0));
  ASK("MemcpyHtoD", cuMemcpyHtoD(d, "x", 1));
  ASK("MemcpyDtoHAsync", cuMemcpyDtoHAsync(pin, d, 1, 0));
  ASK("MemsetD8", cuMemsetD8(d, 1, 1));
  ASK("MemsetD8Async", cuMemsetD8Async(d, 1, 1, s));
  ASK("MemAllocAsync", cuMemAllocAsync(&p, 16, s));
  ASK("MemFreeAsync", cuMemFreeAsync(d, s));
  ASK("MemPoolTrimTo", cuMemPoolTrimTo(pool, 0));
  ASK("MemAddressReserve", cuMemAddressReserve(&p, 2 * MIB, 0, 0, 0));
  ASK("StreamCreate", cuStreamCreate(&t, 0));
  ASK("StreamSynchronize of another", cuStreamSynchronize(0));
  ASK("StreamWaitEvent", cuStreamWaitEvent(s, e, 0));
  ASK("StreamWriteValue32", cuStreamWriteValue32(s, d, 1, 0));
  ASK("StreamBeginCapture", cuStreamBeginCapture(s, 0));
  ASK("EventCreate", cuEventCreate(&ev, 0));
  ASK("EventRecord", cuEventRecord(e, s));
  ASK("EventSynchronize", cuEventSynchronize(e));
  ASK("CtxSynchronize", cuCtxSynchronize());
  ASK("CtxSetLimit", cuCtxSetLimit(0, 1024));
  ASK("CtxSetCacheConfig", cuCtxSetCacheConfig(0));
  ASK("CtxSetFlags", cuCtxSetFlags(0));
  ASK("CtxCreate", cuCtxCreate(&c, NULL, 0, 0));
  ASK("CtxPushCurrent", cuCtxPushCurrent(context));
  ASK("CtxPopCurrent", cuCtxPopCurrent(&c));
  ASK("CtxSetCurrent", cuCtxSetCurrent(context));
  ASK("ModuleLoadData", cuModuleLoadData(&mod, PTX));
  ASK("FuncSetAttribute", cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1024));
  ASK("FuncLoad", cuFuncLoad(f));
  ASK("LaunchHostFunc", cuLaunchHostFunc(s, queries, NULL));
  ASK("GraphCreate", cuGraphCreate(&gg, 0));
  ASK("GraphInstantiate", cuGraphInstantiate(&x, g, 0));
  ASK("GraphLaunch", cuGraphLaunch(x, 0));
  ASK("GraphUpload", cuGraphUpload(x, 0));
  ASK("UserObjectCreate", cuUserObjectCreate(&o, NULL, queries, 1, 1));
  ASK("ThreadExchangeStreamCaptureMode", ({
        CUstreamCaptureMode mode = 0;
        cuThreadExchangeStreamCaptureMode(&mode);
      }));
  ASK("PointerSetAttribute", ({
        int yes = 1;
        cuPointerSetAttribute(&yes, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, d);
      }));
  ASK("StreamDestroy", cuStreamDestroy(s));
  ASK("ModuleUnload", cuModuleUnload(m));
  ASK("GraphExecDestroy", cuGraphExecDestroy(x));
  ASK("GraphDestroy", cuGraphDestroy(g));
  ASK("EventDestroy", cuEventDestroy(e));
  ASK("MemFree", cuMemFree(d));
  ASK("MemFreeHost", cuMemFreeHost(pin));
  ASK("CtxDestroy", cuCtxDestroy(context));
  ASK("DevicePrimaryCtxRelease", cuDevicePrimaryCtxRelease(0));
  done = 1;
}

static void finish(void) {
  for (int i = 0; i < 400 && !done; i++) usleep(10000);
  ASK("synchronize", cuStreamSynchronize(s), "%d", done);
}

static void questions(void) {
  set_up();
  DO(cuLaunchHostFunc(s, queries, NULL));
  finish();
}
static void acts(void) {
  set_up();
  DO(cuLaunchHostFunc(s, actions, NULL));
  finish();
}
static void callback(CUstream stream, CUresult status, void *data) {
  SAY("a callback gets", "%d %d %d", stream == s, status, data == (void *)5);
  int i = 0;
  size_t z;
  ASK("DeviceGetCount in a callback", cuDeviceGetCount(&i));
  ASK("MemGetInfo in a callback", cuMemGetInfo(&z, &z));
  ASK("MemAlloc in a callback", cuMemAlloc(&d, 16));
  ASK("StreamQuery in a callback", cuStreamQuery(0));
  ASK("CtxGetDevice in a callback", cuCtxGetDevice(&i));
  done = 1;
}
static void callbacks(void) {
  set_up();
  for (int flags = 1; flags <= 2; flags++) ASK(W("flags %d", flags), cuStreamAddCallback(s, callback, NULL, flags));
  ASK("plain", cuStreamAddCallback(s, callback, (void *)5, 0));
  finish();
  RISK("no callback", cuStreamAddCallback(s, NULL, NULL, 0), "%d", cuStreamSynchronize(s));
  RISK("no host function", cuLaunchHostFunc(s, NULL, NULL), "%d", cuStreamSynchronize(s));
}
static void in_destructor(void *data) { queries(data); }
static void destructors(void) {
  set_up();
  CUuserObject o;
  DO(cuUserObjectCreate(&o, NULL, in_destructor, 1, 1));
  DO(cuUserObjectRelease(o, 1));
  finish();
}

CASES RUN(questions) RUN(acts) RUN(callbacks) RUN(destructors) END
