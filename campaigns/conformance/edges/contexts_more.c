/* Contexts: the stack, flags, limits, the primary one, versions, and green contexts with their resources. */
#include "ask.h"

/* One call and then another: the first that fails tells. */
#define THEN(a, b)                         \
  ({                                       \
    int one_ = (int)(a), two_ = (int)(b);  \
    one_ ? one_ : two_ ? 10000 + two_ : 0; \
  })

static int current_is(CUcontext c) {
  CUcontext now = NULL;
  return cuCtxGetCurrent(&now) ? -1 : now == c;
}

static void cold(void) {
  int n = 77;
  CUcontext c = (CUcontext)5;
  CUdevice d = 77;
  CUdeviceptr p = 0;
  unsigned f = 77;
  const char *w = NULL;
  ASK("version", cuDriverGetVersion(&n), "%d", n >= 13000);
  n = 77;
  ASK("count", cuDeviceGetCount(&n), "%d", n);
  ASK("device", cuDeviceGet(&d, 0), "%d", d);
  ASK("current", cuCtxGetCurrent(&c), "%d", c == (CUcontext)5);
  ASK("allocate", cuMemAlloc(&p, 64));
  ASK("primary", cuDevicePrimaryCtxRetain(&c, 0));
  ASK("state", cuDevicePrimaryCtxGetState(0, &f, &n), "%u %d", f, n);
  ASK("error string", cuGetErrorString(1, &w), "%s", w ? w : "none");
  ASK("error name", cuGetErrorName(3, &w), "%s", w ? w : "none");
  for (unsigned i = 1; i < 4; i++) ASK(W("init with flags %u", i), cuInit(i));
  ASK("init", cuInit(0));
  ASK("init again", cuInit(0));
  ASK("current then", cuCtxGetCurrent(&c), "%d", c == NULL);
  ASK("allocate without a context", cuMemAlloc(&p, 64));
  ASK("synchronize without a context", cuCtxSynchronize());
  ASK("device without a context", cuCtxGetDevice(&d));
  ASK("flags without a context", cuCtxGetFlags(&f));
  unsigned long long id = 77;
  ASK("id without a context", cuCtxGetId(NULL, &id), "%d", id == 77);
  ASK("pop without a context", cuCtxPopCurrent(&c));
  size_t l = 0;
  ASK("limit without a context", cuCtxGetLimit(&l, CU_LIMIT_STACK_SIZE));
  ASK("version without a context", cuCtxGetApiVersion(NULL, &f));
  ASK("range without a context", cuCtxGetStreamPriorityRange(&n, &n));
  CUevent e;
  CUstream s;
  CUmodule m;
  ASK("event without a context", cuEventCreate(&e, 0));
  ASK("stream without a context", cuStreamCreate(&s, 0));
  ASK("module without a context", cuModuleLoadData(&m, PTX));
  CUgraph g = NULL;
  ASK("graph without a context", cuGraphCreate(&g, 0), "%d", g != NULL);
  f = n = 77;
  ASK("state before", cuDevicePrimaryCtxGetState(0, &f, &n), "%u %d", f, n);
  ASK("release what was never retained", cuDevicePrimaryCtxRelease(0));
  ASK("reset what was never retained", cuDevicePrimaryCtxReset(0));
  for (unsigned i = 0; i < 11; i++) {
    unsigned flags = i < 9 ? i : i == 9 ? 0x10 : 0x200;
    ASK(W("flags %u", flags), cuDevicePrimaryCtxSetFlags(0, flags));
    f = n = 77;
    cuDevicePrimaryCtxGetState(0, &f, &n);
    SAY(W("state after flags %u", flags), "%u %d", f, n);
  }
  ASK("flags of device 99", cuDevicePrimaryCtxSetFlags(99, 0));
  ASK("state of device 99", cuDevicePrimaryCtxGetState(99, &f, &n));
  ASK("retain of device 99", cuDevicePrimaryCtxRetain(&c, 99));
}

static void primary(void) {
  CUcontext a = NULL, b = NULL;
  unsigned f = 77;
  int on = 77;
  DO(cuInit(0));
  ASK("retain", cuDevicePrimaryCtxRetain(&a, 0), "%d", a != NULL);
  ASK("retain again", cuDevicePrimaryCtxRetain(&b, 0), "%d", a == b);
  ASK("state", cuDevicePrimaryCtxGetState(0, &f, &on), "%u %d", f, on);
  SAY("is it current", "%d", current_is(a));
  ASK("make it current", cuCtxSetCurrent(a), "%d", current_is(a));
  ASK("flags while active", cuDevicePrimaryCtxSetFlags(0, CU_CTX_SCHED_SPIN), "%d",
      cuDevicePrimaryCtxGetState(0, &f, &on));
  SAY("flags then", "%u", f);
  ASK("flags of the current", cuCtxGetFlags(&f), "%u", f);
  ALONE("destroy it", cuCtxDestroy(a));
  ASK("release", THEN(cuDevicePrimaryCtxRelease(0), cuDevicePrimaryCtxGetState(0, &f, &on)), "%d", on);
  CUdeviceptr p = 0;
  ASK("allocate still", cuMemAlloc(&p, 64));
  ASK("release the last", THEN(cuDevicePrimaryCtxRelease(0), cuDevicePrimaryCtxGetState(0, &f, &on)), "%d", on);
  ASK("allocate after", cuMemAlloc(&p, 64));
  ASK("release one too many", cuDevicePrimaryCtxRelease(0));
  CUcontext now = NULL;
  ASK("current after", cuCtxGetCurrent(&now), "%d", now == a);
  ASK("synchronize after", cuCtxSynchronize());
  ASK("retain once more", cuDevicePrimaryCtxRetain(&b, 0), "%d", a == b);
  ASK("make it current once more", cuCtxSetCurrent(b));
  ASK("allocate once more", cuMemAlloc(&p, 64));
  ASK("reset", THEN(cuDevicePrimaryCtxReset(0), cuDevicePrimaryCtxGetState(0, &f, &on)), "%d", on);
  ASK("what was allocated before", cuMemFree(p));
  ASK("allocate after the reset", cuMemAlloc(&p, 64));
}

static void stack(void) {
  CUcontext a = NULL, b = NULL, out = NULL;
  unsigned v = 0, f = 77;
  CUdevice d = 77;
  static const unsigned flags[] = {0, 1, 3, 4, 7, 8, 0x10, 0x80, 0x100};
  for (int i = 0; i < 9; i++) {
    a = NULL;
    int r = cuCtxCreate(&a, NULL, flags[i], 0);
    ASK(W("create with flags %#x", flags[i]), r);
    if (r) continue;
    f = 77;
    ASK(W("flags of %#x", flags[i]), cuCtxGetFlags(&f), "%#x", f);
    ASK(W("destroy of %#x", flags[i]), cuCtxDestroy(a), "%d", current_is(context));
  }
  ASK("create on device 99", cuCtxCreate(&a, NULL, 0, 99));
  CUctxCreateParams p;
  SET(p);
  ASK("create with no parameters in them", cuCtxCreate(&a, &p, 0, 0), "%d", current_is(a));
  if (a) DO(cuCtxDestroy(a));
  CUexecAffinityParam ea;
  SET(ea);
  ea.type = CU_EXEC_AFFINITY_TYPE_SM_COUNT, ea.param.smCount.val = 8;
  p.execAffinityParams = &ea, p.numExecAffinityParams = 1;
  a = NULL;
  ASK("create with an affinity", cuCtxCreate(&a, &p, 0, 0), "%d", a != NULL);
  if (a) DO(cuCtxDestroy(a));
  for (int t = 0; t < 3; t++) {
    int yes = 77;
    ASK(W("affinity %d supported", t), cuDeviceGetExecAffinitySupport(&yes, t, 0), "%d", yes);
    SET(ea);
    ASK(W("affinity %d", t), cuCtxGetExecAffinity(&ea, t), "%d %u", ea.type, ea.param.smCount.val);
  }
  DO(cuCtxCreate(&a, NULL, 0, 0));
  DO(cuCtxCreate(&b, NULL, CU_CTX_SCHED_YIELD, 0));
  SAY("current", "%d", current_is(b));
  ASK("pop", cuCtxPopCurrent(&out), "%d %d", out == b, current_is(a));
  ASK("pop again", cuCtxPopCurrent(&out), "%d %d", out == a, current_is(context));
  ASK("pop the primary", cuCtxPopCurrent(&out), "%d %d", out == context, current_is(NULL));
  ASK("pop nothing", cuCtxPopCurrent(&out));
  ASK("push", cuCtxPushCurrent(a), "%d", current_is(a));
  ASK("push the same", cuCtxPushCurrent(a), "%d", current_is(a));
  ASK("set another", cuCtxSetCurrent(b), "%d", current_is(b));
  ASK("pop it", cuCtxPopCurrent(&out), "%d %d", out == b, current_is(a));
  ASK("set NULL", cuCtxSetCurrent(NULL), "%d", current_is(NULL));
  ASK("push the primary", cuCtxPushCurrent(context), "%d", current_is(context));
  ASK("push NULL", cuCtxPushCurrent(NULL), "%d", current_is(context));
  ASK("version of a", cuCtxGetApiVersion(a, &v), "%u", v);
  ASK("version of the primary", cuCtxGetApiVersion(context, &v), "%u", v);
  ASK("version of the current", cuCtxGetApiVersion(NULL, &v), "%u", v);
  unsigned long long ia = 0, ib = 0, ip = 0, in = 0;
  ASK("ids", THEN(THEN(cuCtxGetId(a, &ia), cuCtxGetId(b, &ib)), cuCtxGetId(context, &ip)), "%d", cuCtxGetId(NULL, &in));
  SAY("ids differ", "%d %d %d", ia != ib, ib != ip, in == ip);
  ASK("device", cuCtxGetDevice(&d), "%d", d);
  d = 77;
  ASK("device of b", cuCtxGetDevice_v2(&d, b), "%d", d);
  ASK("synchronize b", cuCtxSynchronize_v2(b), "%d", current_is(context));
  CUdeviceptr m = 0;
  DO(cuCtxSetCurrent(b));
  DO(cuMemAlloc(&m, 4096));
  CUcontext of = NULL;
  ASK("whose is it", cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_CONTEXT, m), "%d", of == b);
  CUstream s;
  DO(cuStreamCreate(&s, 0));
  DO(cuCtxSetCurrent(a));
  ASK("whose is the stream", cuStreamGetCtx(s, &of), "%d", of == b);
  ASK("memset in another context", cuMemsetD8(m, 1, 64));
  ASK("memset by the stream of another", cuMemsetD8Async(m, 1, 64, s), "%d", cuStreamSynchronize(s));
  CUevent e;
  DO(cuEventCreate(&e, 0));
  ASK("an event by the stream of another", cuEventRecord(e, s));
  ASK("wait for it there", cuStreamWaitEvent(s, e, 0));
  ASK("free it in another", cuMemFree(m));
  ASK("destroy b from a", cuCtxDestroy(b), "%d", current_is(a));
  ASK("destroy a", cuCtxDestroy(a), "%d", current_is(a));
  ASK("flags for the current", cuCtxSetFlags(CU_CTX_SYNC_MEMOPS));
  DO(cuCtxSetCurrent(context));
  for (unsigned i = 0; i < 9; i++) {
    static const unsigned set[] = {CU_CTX_SYNC_MEMOPS, 0, 1, 4, 8, 0x10, 0x20, 0x40, 0x100};
    ASK(W("set flags %#x", set[i]), cuCtxSetFlags(set[i]), "%d", cuCtxGetFlags(&f));
    SAY(W("flags after %#x", set[i]), "%#x", f);
  }
}

static void destroyed(void) {
  CUcontext a = NULL;
  DO(cuCtxCreate(&a, NULL, 0, 0));
  ASK("destroy", cuCtxDestroy(a));
  RISK("push what was destroyed", cuCtxPushCurrent(a));
  RISK("destroy NULL", cuCtxDestroy(NULL));
}

static void limits(void) {
  for (int i = 0; i < 12; i++) {
    size_t v = 77;
    ASK(W("limit %d", i), cuCtxGetLimit(&v, i), "%zu", v);
  }
  static const size_t values[] = {0, 1, 15, 16, 17, 32, 48, 64, 100, 128, 1000, 4096, 65536, 1 << 20};
  for (int l = 0; l < 10; l++)
    for (int i = 0; i < 14; i += l < 3 || l == 5 ? 1 : 4) {
      size_t v = 77;
      int r = cuCtxSetLimit(l, values[i]);
      cuCtxGetLimit(&v, l);
      ASK(W("limit %d to %zu", l, values[i]), r, "%zu", v);
    }
  ASK("far too much stack", cuCtxSetLimit(CU_LIMIT_STACK_SIZE, (size_t)1 << 40));
  ASK("more stack than a thread may have", cuCtxSetLimit(CU_LIMIT_STACK_SIZE, (size_t)1 << 20));
  for (int c = -1; c < 6; c++) {
    CUfunc_cache k = 77;
    int r = cuCtxSetCacheConfig(c);
    cuCtxGetCacheConfig(&k);
    ASK(W("cache %d", c), r, "%d", k);
  }
  ASK("reset the persisting", cuCtxResetPersistingL2Cache());
}

static void green(void) {
  CUdevResource sm, part[16], rest, got;
  CUgreenCtx g = NULL, of = NULL;
  CUdevResourceDesc desc = NULL;
  SET(sm);
  for (int t = 0; t < 4; t++) {
    SET(got);
    ASK(W("resource %d of the device", t), cuDeviceGetDevResource(0, &got, t), "%d", got.type);
    SET(got);
    ASK(W("resource %d of the context", t), cuCtxGetDevResource(context, &got, t), "%d", got.type);
  }
  DO(cuDeviceGetDevResource(0, &sm, CU_DEV_RESOURCE_TYPE_SM));
  SAY("multiprocessors", "%u", sm.sm.smCount);
  ASK("resource of device 99", cuDeviceGetDevResource(99, &got, CU_DEV_RESOURCE_TYPE_SM));
  static const unsigned counts[] = {0, 1, 2, 7, 8, 9, 16, 17, 66, 100, 132, 133, 1000};
  for (unsigned flags = 0; flags < 4; flags++)
    for (int i = 0; i < 13; i++) {
      unsigned n = 1, all = 0;
      memset(part, 0, sizeof part);
      SET(rest);
      ASK(W("groups of %u, flags %u", counts[i], flags),
          cuDevSmResourceSplitByCount(NULL, &all, &sm, NULL, flags, counts[i]), "%u", all);
      if (flags % 3 == 0)
        ASK(W("one of %u, flags %u", counts[i], flags),
            cuDevSmResourceSplitByCount(part, &n, &sm, &rest, flags, counts[i]), "%u %u %u", n, part[0].sm.smCount,
            rest.sm.smCount);
    }
  unsigned n = 2;
  ASK("flags 8", cuDevSmResourceSplitByCount(part, &n, &sm, &rest, 8, 16));
  n = 2;
  ASK("two of 16", cuDevSmResourceSplitByCount(part, &n, &sm, &rest, 0, 16), "%u %u %u %u", n, part[0].sm.smCount,
      part[1].sm.smCount, rest.sm.smCount);
  CUdevResource invalid;
  SET(invalid);
  unsigned k = 1;
  ASK("split of nothing", cuDevSmResourceSplitByCount(&got, &k, &invalid, NULL, 0, 16));
  ASK("description of none", cuDevResourceGenerateDesc(&desc, part, 0));
  ASK("description of what is invalid", cuDevResourceGenerateDesc(&desc, &invalid, 1));
  ASK("description of two", cuDevResourceGenerateDesc(&desc, part, 2), "%d", desc != NULL);
  ASK("description of one twice", cuDevResourceGenerateDesc(&desc, (CUdevResource[]){part[0], part[0]}, 2));
  ASK("description", cuDevResourceGenerateDesc(&desc, part, 1), "%d", desc != NULL);
  for (unsigned f = 0; f < 4; f++) {
    g = NULL;
    int r = cuGreenCtxCreate(&g, desc, 0, f);
    ASK(W("create with flags %u", f), r, "%d", g != NULL);
    if (!r) DO(cuGreenCtxDestroy(g));
  }
  ASK("create on device 99", cuGreenCtxCreate(&g, desc, 99, CU_GREEN_CTX_DEFAULT_STREAM));
  DO(cuGreenCtxCreate(&g, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
  for (int t = 0; t < 3; t++) {
    SET(got);
    ASK(W("its resource %d", t), cuGreenCtxGetDevResource(g, &got, t), "%d %u", got.type, got.sm.smCount);
  }
  unsigned long long id = 0, id2 = 0, idc = 0;
  CUcontext c = NULL, c2 = NULL;
  ASK("its id", cuGreenCtxGetId(g, &id), "%d", id != 0);
  ASK("its context", cuCtxFromGreenCtx(&c, g), "%d", c != NULL);
  ASK("its context again", cuCtxFromGreenCtx(&c2, g), "%d", c == c2);
  ASK("the id of that", cuCtxGetId(c, &idc), "%d", idc == id);
  SET(got);
  ASK("the resource of that", cuCtxGetDevResource(c, &got, CU_DEV_RESOURCE_TYPE_SM), "%u", got.sm.smCount);
  CUstream s = NULL, t = NULL;
  for (unsigned f = 0; f < 3; f++)
    ASK(W("stream with flags %u", f), cuGreenCtxStreamCreate(&s, g, f, 0), "%d", s != NULL);
  ASK("stream with priority", cuGreenCtxStreamCreate(&s, g, CU_STREAM_NON_BLOCKING, -2));
  ASK("whose it is", cuStreamGetGreenCtx(s, &of), "%d", of == g);
  ASK("its plain context", cuStreamGetCtx(s, &c2), "%d", c2 == context);
  of = NULL;
  ASK("its contexts", cuStreamGetCtx_v2(s, &c2, &of), "%d %d", c2 == NULL, of == g);
  ASK("a plain stream's", THEN(cuStreamCreate(&t, 0), cuStreamGetGreenCtx(t, &of)), "%d", of == NULL);
  ASK("push it", cuCtxPushCurrent(c), "%d", current_is(c));
  CUdeviceptr d = 0;
  ASK("allocate", cuMemAlloc(&d, 4096));
  ASK("memset by its stream", cuMemsetD8Async(d, 3, 64, s), "%d", cuStreamSynchronize(s));
  CUcontext w = NULL;
  ASK("whose is the memory", cuPointerGetAttribute(&w, CU_POINTER_ATTRIBUTE_CONTEXT, d), "%d %d", w == c, w == context);
  ASK("a stream in it", cuStreamCreate(&t, CU_STREAM_NON_BLOCKING), "%d", cuStreamGetGreenCtx(t, &of));
  SAY("whose that is", "%d", of == g);
  ASK("a blocking stream in it", cuStreamCreate(&t, 0));
  CUevent e;
  DO(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
  ASK("record for it", cuGreenCtxRecordEvent(g, e));
  ASK("wait for it", cuGreenCtxWaitEvent(g, e));
  ASK("record for its context", cuCtxRecordEvent(c, e));
  ASK("id while current", cuCtxGetId(NULL, &id2), "%d", id2 == id);
  ALONE("destroy its context", cuCtxDestroy(c));
  DO(cuCtxPopCurrent(&w));
  ASK("destroy it", cuGreenCtxDestroy(g));
}

CASES
RUN_COLD(cold)
RUN_COLD(primary)
RUN(stack)
RUN(destroyed)
RUN(limits)
RUN(green)
END
