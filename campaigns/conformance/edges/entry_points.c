/* cuGetProcAddress: names, versions, flags, results; export tables; error texts. */
#include "ask.h"

static void versions(void) {
  const char *names[] = {"cuInit",
                         "cuCtxCreate",
                         "cuMemAlloc",
                         "cuStreamBeginCapture",
                         "cuGraphInstantiate",
                         "cuStreamGetCaptureInfo",
                         "cuEventElapsedTime",
                         "cuMemcpyHtoD",
                         "cuGetProcAddress",
                         "cuGraphAddKernelNode",
                         "cuMemPrefetchAsync",
                         "cuStreamGetCtx",
                         "cuCtxGetDevice",
                         "cuGreenCtxCreate",
                         "cuLibraryLoadData",
                         "cuTensorMapEncodeTiled",
                         "cuMemcpyBatchAsync",
                         "cuDeviceGetUuid",
                         "cuMulticastCreate",
                         "cuGraphConditionalHandleCreate",
                         "cuCtxDetach",
                         "cuTexRefCreate",
                         "cuCoredumpGetAttribute",
                         "cuCheckpointProcessLock",
                         "cuLogsRegisterCallback",
                         "cuMemGetDefaultMemPool",
                         "cuDeviceGetHostAtomicCapabilities"};
  int versions[] = {-1,    0,     1,     2000,  3010,  3020,  4000,  7000,  8000,  9020,  10000, 10010, 11000, 11030,
                    11040, 11060, 12000, 12010, 12020, 12030, 12040, 12050, 12080, 12090, 13000, 13010, 20000};
  for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
    char text[600] = "";
    for (unsigned v = 0; v < sizeof versions / sizeof *versions; v++) {
      void *fn = (void *)7;
      CUdriverProcAddressQueryResult r = 77;
      CUresult code = cuGetProcAddress(names[i], &fn, versions[v], 0, &r);
      sprintf(text + strlen(text), " %d:%d/%d/%s", versions[v], code, r,
              fn == (void *)7 ? "kept"
              : fn            ? "set"
                              : "null");
    }
    SAY(names[i], "%s", text);
  }
}

static void names(void) {
  void *fn = (void *)7;
  CUdriverProcAddressQueryResult r = 77;
  const char *all[] = {"",
                       "cu",
                       "cuinit",
                       "cuInit_v2",
                       "cuMemAlloc_v2",
                       "cuMemcpy_ptds",
                       "cuLaunchKernel_ptsz",
                       "cudaMalloc",
                       "cuNoSuch",
                       " cuInit",
                       "cuInit ",
                       "cuDbgGetExportTable",
                       "cuGetExportTable",
                       "cuProfilerStart",
                       "cuGLGetDevices",
                       "cuEGLStreamConsumerConnect",
                       "cuVDPAUGetDevice",
                       "cuGetErrorName",
                       "cuStreamWaitValue32",
                       "cuStreamWaitValue32_v2"};
  for (int i = 0; i < 20; i++) {
    fn = (void *)7, r = 77;
    ASK(W("'%s'", all[i]), cuGetProcAddress(all[i], &fn, 13000, 0, &r), "%d %s", r,
        fn == (void *)7 ? "kept"
        : fn            ? "set"
                        : "null");
  }
  for (int flags = 0; flags <= 8; flags++) {
    fn = (void *)7, r = 77;
    ASK(W("flags %d", flags), cuGetProcAddress("cuStreamQuery", &fn, 13000, flags, &r), "%d %s", r,
        fn == (void *)7 ? "kept"
        : fn            ? "set"
                        : "null");
  }
  void *legacy = NULL, *thread = NULL, *standard = NULL;
  DO(cuGetProcAddress("cuStreamQuery", &legacy, 13000, 1, NULL));
  DO(cuGetProcAddress("cuStreamQuery", &thread, 13000, 2, NULL));
  DO(cuGetProcAddress("cuStreamQuery", &standard, 13000, 0, NULL));
  SAY("legacy, thread, default", "%d %d", legacy == standard, thread == standard);
  DO(cuGetProcAddress("cuMemAlloc", &legacy, 13000, 1, NULL));
  DO(cuGetProcAddress("cuMemAlloc", &thread, 13000, 2, NULL));
  SAY("the same without streams", "%d", legacy == thread);
  DO(cuGetProcAddress("cuMemAlloc", &legacy, 2000, 0, NULL));
  SAY("another in 2000", "%d", legacy != thread);
  ASK("without a result", cuGetProcAddress("cuNoSuch", &fn, 13000, 0, NULL), "%d", fn == NULL);
  RISK("name NULL", cuGetProcAddress(NULL, &fn, 13000, 0, &r));
  RISK("into NULL", cuGetProcAddress("cuInit", NULL, 13000, 0, &r));
}

static void errors(void) {
  for (int code = -1; code <= 1000; code++) {
    const char *name = "unset", *text = "unset";
    CUresult a = cuGetErrorName(code, &name), b = cuGetErrorString(code, &text);
    if (!a || !b || code < 6 || code == 999)
      SAY(W("error %d", code), "%d %s, %d %s", a, name ? name : "NULL", b, text ? text : "NULL");
  }
  RISK("name into NULL", cuGetErrorName(0, NULL));
  RISK("string into NULL", cuGetErrorString(0, NULL));
}

static void before(void) {
  int i = 77;
  size_t z;
  CUdevice dev;
  CUcontext c = (CUcontext)7;
  CUdeviceptr d;
  CUstream s;
  CUevent e;
  CUmodule m;
  CUgraph g;
  const char *text;
  void *fn;
  CUlibrary lib;
  CUmemoryPool pool;
  CUmemGenericAllocationHandle h;
  CUmemAllocationProp p = pinned();
  char name[64];
  ASK("DriverGetVersion", cuDriverGetVersion(&i), "%d", i);
  ASK("GetErrorName", cuGetErrorName(3, &text));
  ASK("GetProcAddress", cuGetProcAddress("cuInit", &fn, 13000, 0, NULL));
  ASK("DeviceGetCount", cuDeviceGetCount(&i));
  ASK("DeviceGet", cuDeviceGet(&dev, 0));
  ASK("DeviceGetName", cuDeviceGetName(name, 64, 0));
  ASK("DeviceGetAttribute", cuDeviceGetAttribute(&i, 1, 0));
  ASK("CtxGetCurrent", cuCtxGetCurrent(&c), "%d", c == (CUcontext)7);
  ASK("CtxSetCurrent of NULL", cuCtxSetCurrent(NULL));
  ASK("CtxSynchronize", cuCtxSynchronize());
  ASK("CtxCreate", cuCtxCreate(&c, NULL, 0, 0));
  ASK("CtxPopCurrent", cuCtxPopCurrent(&c));
  ASK("PrimaryCtxRetain", cuDevicePrimaryCtxRetain(&c, 0));
  ASK("PrimaryCtxGetState", cuDevicePrimaryCtxGetState(0, (unsigned *)&i, &i));
  ASK("MemAlloc", cuMemAlloc(&d, 16));
  ASK("MemGetInfo", cuMemGetInfo(&z, &z));
  ASK("MemAllocHost", cuMemAllocHost(&fn, 16));
  ASK("StreamCreate", cuStreamCreate(&s, 0));
  ASK("StreamQuery", cuStreamQuery(NULL));
  ASK("StreamSynchronize", cuStreamSynchronize(NULL));
  ASK("EventCreate", cuEventCreate(&e, 0));
  ASK("ModuleLoadData", cuModuleLoadData(&m, PTX));
  ASK("ModuleGetLoadingMode", cuModuleGetLoadingMode((CUmoduleLoadingMode *)&i));
  ASK("LibraryLoadData", cuLibraryLoadData(&lib, PTX, NULL, NULL, 0, NULL, NULL, 0));
  ASK("GraphCreate", cuGraphCreate(&g, 0));
  ASK("PointerGetAttribute", cuPointerGetAttribute(&i, 2, 0x1000));
  ASK("MemCreate", cuMemCreate(&h, 2 * MIB, &p, 0));
  ASK("MemGetAllocationGranularity", cuMemGetAllocationGranularity(&z, &p, 0));
  ASK("MemAddressReserve", cuMemAddressReserve(&d, 2 * MIB, 0, 0, 0));
  ASK("DeviceGetMemPool", cuDeviceGetMemPool(&pool, 0));
  CUuserObject o;
  ASK("UserObjectCreate", cuUserObjectCreate(&o, NULL, free, 1, 1));
  CUstreamCaptureMode mode = 0;
  ASK("ThreadExchangeStreamCaptureMode", cuThreadExchangeStreamCaptureMode(&mode));
  CUuuid id;
  SET(id);
  const void *table;
  ASK("GetExportTable", cuGetExportTable(&table, &id));
  for (unsigned flags = 1; flags <= 2; flags++) ASK(W("Init with flags %u", flags), cuInit(flags));
  ASK("DeviceGetCount after that", cuDeviceGetCount(&i));
  ASK("Init", cuInit(0));
  ASK("Init with flags 1 after that", cuInit(1));
  ASK("DeviceGetCount at last", cuDeviceGetCount(&i));
  ASK("MemAlloc without a context", cuMemAlloc(&d, 16));
  ASK("StreamQuery without a context", cuStreamQuery(NULL));
  ASK("GraphCreate without a context", cuGraphCreate(&g, 0));
  ASK("CtxGetCurrent without a context", cuCtxGetCurrent(&c), "%d", c == NULL);
  ASK("CtxGetDevice without a context", cuCtxGetDevice(&dev));
  ASK("CtxSynchronize without a context", cuCtxSynchronize());
  ASK("LibraryLoadData without a context", cuLibraryLoadData(&lib, PTX, NULL, NULL, 0, NULL, NULL, 0));
  ASK("ModuleLoadData without a context", cuModuleLoadData(&m, PTX));
  RISK("version into NULL", cuDriverGetVersion(NULL));
}

static void devices(void) {
  int i = 77;
  CUdevice dev = 77;
  char name[64];
  memset(name, '#', sizeof name);
  for (int k = -1; k <= 99; k += k < 1 ? 1 : 98) ASK(W("get %d", k), cuDeviceGet(&dev, k), "%d", dev);
  int lengths[] = {-1, 0, 1, 5, 12, 13, 64};
  for (int k = 0; k < 7; k++) {
    memset(name, '#', sizeof name);
    RISK(W("name into %d", lengths[k]), cuDeviceGetName(name, lengths[k], 0), "%.20s",
         lengths[k] > 0   ? name
         : name[0] == '#' ? "kept"
                          : "written");
  }
  for (int k = -1; k <= 99; k += k < 1 ? 1 : 98) {
    size_t z = 7;
    ASK(W("attribute of device %d", k), cuDeviceGetAttribute(&i, 1, k));
    ASK(W("name of device %d", k), cuDeviceGetName(name, 64, k));
    ASK(W("memory of device %d", k), cuDeviceTotalMem(&z, k));
    ASK(W("affinity of device %d", k), cuDeviceGetExecAffinitySupport(&i, 0, k));
    ASK(W("peer access of device %d", k), cuDeviceCanAccessPeer(&i, 0, k), "%d", i);
  }
  int edges[] = {-1, 0, 146, 147, 148, 149, 150, 200};
  for (int k = 0; k < 8; k++) {
    i = 77;
    ASK(W("attribute %d", edges[k]), cuDeviceGetAttribute(&i, edges[k], 0), "%d", i);
  }
  for (int t = -1; t <= 2; t++) {
    i = 77;
    ASK(W("affinity of type %d", t), cuDeviceGetExecAffinitySupport(&i, t, 0), "%d", i);
  }
  const char *ids[] = {"", "0000:ff:1f.7", "nonsense", "ff:1f.7", "zz:00.0"};
  for (int k = 0; k < 5; k++) ASK(W("device of '%s'", ids[k]), cuDeviceGetByPCIBusId(&dev, ids[k]));
  int got[] = {-1, 0, 1, 5, 12, 13, 14};
  for (int k = 0; k < 7; k++) RISK(W("PCI address into %d", got[k]), cuDeviceGetPCIBusId(name, got[k], 0));
  DO(cuDeviceGetPCIBusId(name, 64, 0));
  dev = 77;
  ASK("device of its own address", cuDeviceGetByPCIBusId(&dev, name), "%d", dev);
  size_t width = 7;
  for (int c = 0; c <= 4; c++)
    ASK(W("line of %d channels", c), cuDeviceGetTexture1DLinearMaxWidth(&width, CU_AD_FORMAT_FLOAT, c, 0), "%zu",
        width);
  ASK("line of format 0", cuDeviceGetTexture1DLinearMaxWidth(&width, 0, 1, 0));
  char luid[8];
  unsigned mask = 7;
  ASK("LUID", cuDeviceGetLuid(luid, &mask, 0));
  CUdevprop prop;
  SET(prop);
  ASK("properties", cuDeviceGetProperties(&prop, 0), "%d %d %d", prop.maxThreadsPerBlock, prop.SIMDWidth,
      prop.regsPerBlock);
  for (int k = 0; k <= 3; k++)
    ASK(W("flush of target %d", k & 1), cuFlushGPUDirectRDMAWrites(k & 1, k < 2 ? 100 : 200));
  RISK("count into NULL", cuDeviceGetCount(NULL));
  RISK("get into NULL", cuDeviceGet(NULL, 0));
  RISK("name into NULL", cuDeviceGetName(NULL, 64, 0));
  RISK("attribute into NULL", cuDeviceGetAttribute(NULL, 1, 0));
  RISK("memory into NULL", cuDeviceTotalMem(NULL, 0));
  RISK("UUID into NULL", cuDeviceGetUuid(NULL, 0));
  RISK("capability into NULL", cuDeviceComputeCapability(NULL, NULL, 0));
  RISK("device of NULL", cuDeviceGetByPCIBusId(&dev, NULL));
}

CASES RUN(versions) RUN(names) RUN(errors) RUN_COLD(before) RUN(devices) END
