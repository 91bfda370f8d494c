/* Green contexts, what is asked of devices, entry points by version, and the names and texts of errors. */
#include "ask.h"

static CUdevResource sms(void) {
  CUdevResource r;
  SET(r);
  DO(cuDeviceGetDevResource(0, &r, CU_DEV_RESOURCE_TYPE_SM));
  return r;
}

static void resources(void) {
  CUdevResource r, q;
  SET(q);
  for (int t = -1; t <= 4; t++) {
    SET(r);
    ASK(W("device's %d", t), cuDeviceGetDevResource(0, &r, t), "%d %u %u %u", r.type, r.sm.smCount,
        r.sm.minSmPartitionSize, r.sm.smCoscheduledAlignment);
    SET(r);
    ASK(W("context's %d", t), cuCtxGetDevResource(context, &r, t), "%d %u", r.type, r.sm.smCount);
  }
  ASK("of no context", cuCtxGetDevResource(NULL, &r, 1));
  ASK("of device 99", cuDeviceGetDevResource(99, &r, 1));
  r = sms();
  static const unsigned counts[] = {0, 1, 2, 3, 7, 8, 9, 16, 17, 32, 64, 66, 100, 131, 132, 133, 1000};
  for (unsigned i = 0; i < sizeof counts / sizeof *counts; i++)
    for (unsigned f = 0; f <= 3; f++) {
      CUdevResource out[200], rest;
      unsigned n = 200;
      memset(out, 0, sizeof out);
      SET(rest);
      if (f && i % 2) continue;
      ASK(W("split by %u flags %u", counts[i], f), cuDevSmResourceSplitByCount(out, &n, &r, &rest, f, counts[i]),
          "%u %u %u rest %d %u", n, out[0].sm.smCount, n && n <= 200 ? out[n - 1].sm.smCount : 0, rest.type,
          rest.sm.smCount);
    }
  for (unsigned n = 0; n <= 4; n++) {
    unsigned got = n;
    CUdevResource out[4];
    memset(out, 0, sizeof out);
    ASK(W("room for %u", n), cuDevSmResourceSplitByCount(out, &got, &r, &q, 0, 16), "%u %u", got, q.sm.smCount);
  }
  unsigned n = 0;
  ASK("only the number", cuDevSmResourceSplitByCount(NULL, &n, &r, NULL, 0, 8), "%u", n);
  n = 1;
  ASK("without the rest", cuDevSmResourceSplitByCount(&q, &n, &r, NULL, 0, 8), "%u", n);
  CUdevResource again = {0};
  n = 1;
  ASK("split a part", cuDevSmResourceSplitByCount(&again, &n, &q, NULL, 0, 8), "%u %u", n, again.sm.smCount);
  n = 1;
  ASK("flags 4", cuDevSmResourceSplitByCount(&q, &n, &r, NULL, 4, 8));
  CUdevResource zero;
  SET(zero);
  ASK("split zeros", cuDevSmResourceSplitByCount(&q, &n, &zero, NULL, 0, 8));
  CUdevResourceDesc d = NULL;
  ASK("description", cuDevResourceGenerateDesc(&d, &r, 1), "%d", d != NULL);
  ASK("description of none", cuDevResourceGenerateDesc(&d, &r, 0));
  ASK("description of zeros", cuDevResourceGenerateDesc(&d, &zero, 1));
  CUdevResource two[2] = {r, r};
  ASK("description of all twice", cuDevResourceGenerateDesc(&d, two, 2));
  RISK("into NULL", cuDeviceGetDevResource(0, NULL, 1));
  RISK("split without a number", cuDevSmResourceSplitByCount(NULL, NULL, &r, NULL, 0, 8));
  RISK("split NULL", cuDevSmResourceSplitByCount(&q, &n, NULL, NULL, 0, 8));
  RISK("description into NULL", cuDevResourceGenerateDesc(NULL, &r, 1));
  RISK("description of NULL", cuDevResourceGenerateDesc(&d, NULL, 1));
}

static void greens(void) {
  CUdevResource r = sms(), part[2], rest, q;
  CUdevResourceDesc d = NULL, d2 = NULL;
  CUgreenCtx g = NULL, h = NULL, got = NULL;
  CUcontext c = NULL, c2 = NULL;
  CUstream s = NULL, t = NULL;
  CUevent e = NULL;
  unsigned n = 2;
  memset(part, 0, sizeof part);
  ASK("split", cuDevSmResourceSplitByCount(part, &n, &r, &rest, 0, 16), "%u %u", n, part[0].sm.smCount);
  ASK("describe", cuDevResourceGenerateDesc(&d, &part[0], 1));
  ASK("describe two", cuDevResourceGenerateDesc(&d2, part, 2));
  for (unsigned f = 0; f <= 3; f++) {
    g = NULL;
    ASK(W("create flags %u", f), cuGreenCtxCreate(&g, d, 0, f), "%d", g != NULL);
    if (g) ASK(W("destroy flags %u", f), cuGreenCtxDestroy(g));
  }
  ASK("create on device 99", cuGreenCtxCreate(&g, d, 99, 1));
  ASK("create", cuGreenCtxCreate(&g, d, 0, CU_GREEN_CTX_DEFAULT_STREAM), "%d", g != NULL);
  ASK("create of two", cuGreenCtxCreate(&h, d2, 0, CU_GREEN_CTX_DEFAULT_STREAM), "%d", h != NULL);
  SET(q);
  ASK("its resource", cuGreenCtxGetDevResource(g, &q, 1), "%d %u", q.type, q.sm.smCount);
  ASK("resource of two", cuGreenCtxGetDevResource(h, &q, 1), "%u", q.sm.smCount);
  ASK("its resource 0", cuGreenCtxGetDevResource(g, &q, 0));
  ASK("its context", cuCtxFromGreenCtx(&c, g), "%d", c != NULL && c != context);
  ASK("its context again", cuCtxFromGreenCtx(&c2, g), "%d", c == c2);
  unsigned long long id = 0, id2 = 0, id3 = 0;
  ASK("its id", cuGreenCtxGetId(g, &id));
  ASK("its context's id", cuCtxGetId(c, &id2), "%d", id == id2);
  ASK("the other's id", cuGreenCtxGetId(h, &id3), "%d", id == id3);
  ASK("its context's resource", cuCtxGetDevResource(c, &q, 1), "%u", q.sm.smCount);
  ASK("set it", cuCtxSetCurrent(c));
  ASK("current", cuCtxGetCurrent(&c2), "%d", c == c2);
  CUdevice dev = 9;
  unsigned v = 0;
  int low = 9, high = 9;
  ASK("device", cuCtxGetDevice(&dev), "%d", dev);
  ASK("flags", cuCtxGetFlags(&v), "%u", v);
  ASK("version", cuCtxGetApiVersion(c, &v), "%u", v);
  ASK("priorities", cuCtxGetStreamPriorityRange(&low, &high), "%d %d", low, high);
  ASK("limit", cuCtxGetLimit(&(size_t){0}, CU_LIMIT_STACK_SIZE));
  ASK("set a limit", cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 2048));
  ASK("cache", cuCtxSetCacheConfig(CU_FUNC_CACHE_PREFER_L1));
  ASK("affinity", cuCtxGetExecAffinity(&(CUexecAffinityParam){0}, 0));
  CUdeviceptr a = 0;
  CUmodule m = NULL;
  ASK("allocate", cuMemAlloc(&a, 4096));
  ASK("context of its memory", cuPointerGetAttribute(&c2, CU_POINTER_ATTRIBUTE_CONTEXT, a), "%d %d", c2 == c,
      c2 == context);
  ASK("memset", cuMemsetD8(a, 1, 4096));
  ASK("null stream", cuMemsetD8Async(a, 1, 4096, NULL));
  ASK("stream by cuStreamCreate", cuStreamCreate(&s, CU_STREAM_NON_BLOCKING), "%d", s != NULL);
  ASK("blocking stream", cuStreamCreate(&t, 0));
  if (s) ASK("its green context", cuStreamGetGreenCtx(s, &got), "%d", got == g);
  ASK("green context of null", cuStreamGetGreenCtx(NULL, &got), "%d", got == g);
  ASK("module", cuModuleLoadData(&m, PTX));
  ASK("event", cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
  ASK("synchronize", cuCtxSynchronize());
  ASK("push", cuCtxPushCurrent(context));
  ASK("pop", cuCtxPopCurrent(&c2), "%d", c2 == context);
  DO(cuCtxSetCurrent(context));
  ASK("use its memory in the primary", cuMemsetD8(a, 2, 64));
  for (unsigned f = 0; f <= 2; f++)
    for (int p = -6; p <= 1; p += 7) {
      CUstream x = NULL;
      int got_p = 9;
      ASK(W("stream flags %u priority %d", f, p), cuGreenCtxStreamCreate(&x, g, f, p), "%d",
          x ? (cuStreamGetPriority(x, &got_p), got_p) : 9);
      if (!x) continue;
      CUcontext xc = NULL;
      got = NULL;
      ASK(W("contexts of stream %u priority %d", f, p), cuStreamGetCtx_v2(x, &xc, &got), "%d %d %d", xc == c,
          xc == NULL, got == g);
      ASK(W("context of stream %u priority %d", f, p), cuStreamGetCtx(x, &xc), "%d %d", xc == c, xc == context);
      ASK(W("flags of stream %u priority %d", f, p), cuStreamGetFlags(x, &v), "%u", v);
      ASK(W("memset in stream %u priority %d", f, p), cuMemsetD8Async(a, 1, 64, x));
      ASK(W("allocate in stream %u priority %d", f, p), cuMemAllocAsync(&a, 4096, x));
      ASK(W("capture in stream %u priority %d", f, p), cuStreamBeginCapture(x, 2));
      CUgraph gr = NULL;
      ASK(W("end the capture in stream %u priority %d", f, p), cuStreamEndCapture(x, &gr), "%d", gr != NULL);
      ASK(W("destroy stream %u priority %d", f, p), cuStreamDestroy(x));
    }
  CUevent f = NULL;
  DO(cuEventCreate(&f, CU_EVENT_DISABLE_TIMING));
  ASK("record the green context", cuGreenCtxRecordEvent(g, e));
  ASK("record with another's event", cuGreenCtxRecordEvent(h, f));
  ASK("wait in it", cuGreenCtxWaitEvent(h, e));
  ASK("context's record", cuCtxRecordEvent(c, e));
  ASK("context's wait", cuCtxWaitEvent(c, e));
  ASK("primary's record", cuCtxRecordEvent(context, f));
  ASK("primary's wait", cuCtxWaitEvent(context, f));
  ASK("wait for all", cuEventSynchronize(e));
  ASK("destroy its context", cuCtxDestroy(c));
  ASK("destroy", cuGreenCtxDestroy(h));
  ASK("destroy the other", cuGreenCtxDestroy(g));
  ALONE("destroy twice", cuGreenCtxDestroy(g));
  ALONE("its resource afterwards", cuGreenCtxGetDevResource(g, &q, 1));
  RISK("into NULL", cuGreenCtxCreate(NULL, d, 0, 1));
  RISK("without a description", cuGreenCtxCreate(&g, NULL, 0, 1));
  RISK("destroy NULL", cuGreenCtxDestroy(NULL));
  RISK("context of NULL", cuCtxFromGreenCtx(&c, NULL));
  RISK("stream of NULL", cuGreenCtxStreamCreate(&s, NULL, 1, 0));
  RISK("record NULL", cuGreenCtxRecordEvent(NULL, e));
}

static void attributes(void) {
  char row[400];
  for (int a = 0, n = 0; a <= 150; a++) {
    int v = -77;
    /* The address on the bus, clocks, the board's group, NUMA nodes and the device's ids may differ between hosts. */
    int kept = a != 13 && a != 33 && a != 34 && a != 36 && a != 50 && a != 85 && a != 130 && a != 131 && a != 134 &&
               a != 20 && a != 133 && a != 139 && a != 140 && a != 88 && a != 100;
    int code = cuDeviceGetAttribute(&v, a, 0);
    n += sprintf(row + n, "%s%d=%d:%d", n ? ", " : "", a, code, kept ? v : v != -77);
    if (a % 4 == 3 || a == 150) SAY(W("attributes to %d", a), "%s", row);
    if (a % 4 == 3) n = 0;
  }
  ASK("attribute -1", cuDeviceGetAttribute(&(int){0}, -1, 0));
  ASK("attribute 100000", cuDeviceGetAttribute(&(int){0}, 100000, 0));
  ASK("attribute of device 99", cuDeviceGetAttribute(&(int){0}, 1, 99));
  ASK("attribute of device -1", cuDeviceGetAttribute(&(int){0}, 1, -1));
  RISK("attribute into NULL", cuDeviceGetAttribute(NULL, 1, 0));
}

static void devices(void) {
  CUdevice d = 9;
  int n = -1, major = -1, minor = -1;
  static const int ordinals[] = {-2, -1, 0, 99, 0x7fffffff};
  for (int i = 0; i < 5; i++) ASK(W("device %d", ordinals[i]), (d = 9, cuDeviceGet(&d, ordinals[i])), "%d", d);
  ASK("count", cuDeviceGetCount(&n), "%d", n >= 1);
  char name[256];
  for (int len = -1; len <= 12; len++) {
    memset(name, 'z', sizeof name);
    ASK(W("name of %d", len), cuDeviceGetName(name, len, 0), "%d %d", memchr(name, 0, sizeof name) != NULL,
        len > 0 && !name[len - 1]);
  }
  memset(name, 0, sizeof name);
  ASK("name", cuDeviceGetName(name, sizeof name, 0), "%s", name);
  CUuuid u, w;
  ASK("uuid", cuDeviceGetUuid(&u, 0));
  ASK("uuid again", cuDeviceGetUuid(&w, 0), "%d", !memcmp(&u, &w, sizeof u));
  ASK("uuid of device 99", cuDeviceGetUuid(&u, 99));
  ASK("luid", cuDeviceGetLuid(name, &(unsigned){0}, 0));
  size_t total = 0, free_ = 0, all = 0;
  ASK("total", cuDeviceTotalMem(&total, 0), "%d", total > (size_t)1 << 30);
  ASK("info", cuMemGetInfo(&free_, &all), "%d %d", all == total, free_ <= all);
  ASK("info without free", cuMemGetInfo(NULL, &all), "%d", all == total);
  ASK("info without total", cuMemGetInfo(&free_, NULL));
  ASK("capability", cuDeviceComputeCapability(&major, &minor, 0), "%d %d", major, minor);
  CUdevprop p;
  SET(p);
  ASK("properties", cuDeviceGetProperties(&p, 0), "%d %d %d %d %d %d", p.maxThreadsPerBlock, p.maxThreadsDim[2],
      p.maxGridSize[1], p.sharedMemPerBlock, p.SIMDWidth, p.textureAlign);
  char bus[64] = {0}, low[64];
  ASK("bus", cuDeviceGetPCIBusId(bus, sizeof bus, 0), "%d %d", (int)strlen(bus),
      bus[4] == ':' && bus[7] == ':' && bus[10] == '.');
  ASK("by bus", cuDeviceGetByPCIBusId(&d, bus), "%d", d);
  for (unsigned i = 0; i < sizeof low; i++) low[i] = bus[i] >= 'A' && bus[i] <= 'F' ? bus[i] + 32 : bus[i];
  ASK("by bus in small letters", cuDeviceGetByPCIBusId(&d, low), "%d", d);
  ASK("by bus without the domain", cuDeviceGetByPCIBusId(&d, bus[4] ? bus + 5 : bus), "%d", d);
  ASK("by a wrong bus", cuDeviceGetByPCIBusId(&d, "ffff:ff:1f.7"));
  ASK("by no bus", cuDeviceGetByPCIBusId(&d, ""));
  ASK("by words", cuDeviceGetByPCIBusId(&d, "a device"));
  for (int len = 0; len <= 14; len += 2)
    ASK(W("bus of %d", len), (memset(bus, 0, sizeof bus), cuDeviceGetPCIBusId(bus, len, 0)), "%d", (int)strlen(bus));
  for (int t = -1; t <= 2; t++) ASK(W("affinity %d", t), cuDeviceGetExecAffinitySupport(&n, t, 0), "%d", n);
  unsigned caps[13];
  CUatomicOperation ops[13];
  for (int i = 0; i < 13; i++) ops[i] = i, caps[i] = 7777;
  ASK("host atomics", cuDeviceGetHostAtomicCapabilities(caps, ops, 13, 0), "%u %u %u", caps[0], caps[9], caps[12]);
  ops[1] = 20;
  ASK("an unknown atomic", cuDeviceGetHostAtomicCapabilities(caps, ops, 2, 0));
  ASK("no atomics", cuDeviceGetHostAtomicCapabilities(caps, ops, 0, 0));
  ASK("flush", cuFlushGPUDirectRDMAWrites(0, CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER));
  ASK("flush everywhere", cuFlushGPUDirectRDMAWrites(0, CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_ALL_DEVICES));
  ASK("flush 7", cuFlushGPUDirectRDMAWrites(7, 7));
  ASK("peer of itself", cuDeviceCanAccessPeer(&n, 0, 0), "%d", n);
  ASK("peer attribute of itself", cuDeviceGetP2PAttribute(&n, 1, 0, 0));
  for (int k = 1; k <= 8; k++) {
    size_t size = 0;
    RISK(W("coredump %d", k), cuCoredumpGetAttribute(k, NULL, &size));
    RISK(W("global coredump %d", k), cuCoredumpGetAttributeGlobal(k, NULL, &size));
  }
  RISK("device into NULL", cuDeviceGet(NULL, 0));
  RISK("count into NULL", cuDeviceGetCount(NULL));
  RISK("version into NULL", cuDriverGetVersion(NULL));
  RISK("name into NULL", cuDeviceGetName(NULL, 10, 0));
  RISK("uuid into NULL", cuDeviceGetUuid(NULL, 0));
  RISK("total into NULL", cuDeviceTotalMem(NULL, 0));
  RISK("bus into NULL", cuDeviceGetPCIBusId(NULL, 10, 0));
  RISK("by NULL", cuDeviceGetByPCIBusId(&d, NULL));
}

static void entries(void) {
  static const char *const names[] = {"cuInit",
                                      "cuMemAlloc",
                                      "cuMemAlloc_v2",
                                      "cuMemcpyDtoD",
                                      "cuCtxCreate",
                                      "cuCtxCreate_v2",
                                      "cuGetProcAddress",
                                      "cuGetProcAddress_v2",
                                      "cuStreamGetCaptureInfo",
                                      "cuMemcpyAsync",
                                      "cuMemcpyAsync_ptsz",
                                      "cuGreenCtxCreate",
                                      "cuNothing",
                                      "",
                                      "cuinit",
                                      "cuGraphAddNode",
                                      "cuEventElapsedTime",
                                      "cuMemAdvise",
                                      "cuStreamBeginCapture"};
  static const int versions[] = {0, 1000, 2000, 3010, 4000, 6050, 10000, 11030, 12000, 12040, 13000, 13010, 99000, -1};
  for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
    /* For each version the code, whether there is one, the result, and whether it is that of the version before. */
    void *before = NULL;
    char row[600];
    int at = 0;
    for (unsigned k = 0; k < sizeof versions / sizeof *versions; k++) {
      void *p = (void *)7;
      CUdriverProcAddressQueryResult r = 9;
      int code = cuGetProcAddress(names[i], &p, versions[k], 0, &r);
      at += sprintf(row + at, "%s%d=%d:%d:%d:%d", k ? ", " : "", versions[k], code, p != NULL, (int)r, p == before);
      before = p;
    }
    SAY(W("'%s' by version", names[i]), "%s", row);
    for (int k = 0; k < 2; k++) {
      void *p = (void *)7;
      CUdriverProcAddressQueryResult r = 9;
      ASK(W("'%s' of %d", names[i], k ? 13000 : 12000), cuGetProcAddress(names[i], &p, k ? 13000 : 12000, 0, &r),
          "%d %d", p == NULL, (int)r);
    }
  }
  for (unsigned f = 0; f <= 8; f++) {
    void *p = NULL, *q = NULL;
    CUdriverProcAddressQueryResult r = 9;
    DO(cuGetProcAddress("cuMemcpyAsync", &q, 12000, 0, &r));
    ASK(W("flags %u", f), cuGetProcAddress("cuMemcpyAsync", &p, 12000, f, &r), "%d %d %d", p != NULL, p == q, (int)r);
    ASK(W("flags %u of one without streams", f), cuGetProcAddress("cuMemAlloc", &p, 12000, f, &r), "%d %d", p != NULL,
        (int)r);
  }
  void *p = NULL, *q = NULL;
  ASK("without a result", cuGetProcAddress("cuInit", &p, 12000, 0, NULL), "%d", p != NULL);
  ASK("nothing without a result", cuGetProcAddress("cuNothing", &p, 12000, 0, NULL), "%d", p == NULL);
  DO(cuGetProcAddress("cuDriverGetVersion", &p, 12000, 0, NULL));
  int v = 0, w = 0;
  DO(cuDriverGetVersion(&w));
  if (p) ASK("call it", ((CUresult (*)(int *))p)(&v), "%d", v == w);
  DO(cuGetProcAddress("cuMemAlloc", &p, 3010, 0, NULL));
  DO(cuGetProcAddress("cuMemAlloc", &q, 2000, 0, NULL));
  SAY("old and new", "%d %d", p == q, p == (void *)cuMemAlloc);
  static const CUuuid no = {{1, 2, 3}};
  const void *table = NULL;
  ASK("an unknown table", cuGetExportTable(&table, &no));
  RISK("NULL name", cuGetProcAddress(NULL, &p, 12000, 0, NULL));
  RISK("into NULL", cuGetProcAddress("cuInit", NULL, 12000, 0, NULL));
  RISK("table into NULL", cuGetExportTable(NULL, &no));
}

static void errors(void) {
  static const int list[] = {-1,  0,   1,   2,   3,   4,   5,   6,   7,   8,   9,   34,  36,  46,  99,  100, 101, 102,
                             103, 200, 201, 202, 203, 205, 206, 207, 208, 209, 210, 211, 212, 213, 214, 215, 216, 217,
                             218, 219, 220, 221, 222, 223, 224, 225, 226, 300, 301, 302, 303, 304, 400, 401, 402, 500,
                             600, 700, 701, 702, 703, 704, 705, 706, 707, 708, 709, 710, 711, 712, 713, 714, 715, 716,
                             717, 718, 719, 720, 721, 800, 801, 802, 803, 804, 805, 806, 807, 808, 809, 810, 811, 900,
                             901, 902, 903, 904, 905, 906, 907, 908, 909, 910, 911, 912, 913, 914, 915, 916, 999, 1000};
  char row[400];
  int at = 0;
  unsigned all = sizeof list / sizeof *list;
  for (unsigned i = 0; i < all; i++) {
    const char *s = "kept";
    int code = cuGetErrorName(list[i], &s);
    at += sprintf(row + at, "%s%d=%d:%s", at ? ", " : "", list[i], code, s ? s : "NULL");
    if (i % 3 == 2 || i + 1 == all) {
      SAY(W("names to %d", list[i]), "%s", row);
      at = 0;
    }
    if (i % 4 == 1) ASK(W("text of %d", list[i]), (s = "kept", cuGetErrorString(list[i], &s)), "%s", s ? s : "NULL");
  }
  RISK("name into NULL", cuGetErrorName(0, NULL));
  RISK("text into NULL", cuGetErrorString(0, NULL));
}

CASES RUN(resources) RUN(greens) RUN(attributes) RUN(devices) RUN(entries) RUN(errors) END
