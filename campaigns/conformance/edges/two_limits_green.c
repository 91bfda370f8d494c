/* Two devices: limits, caches and flags of each context, and green contexts of device 1. */
#include "two.h"

static void limits(void) {
  both();
  static const size_t values[] = {2048, 2 << 20, 16 << 20, 2, 1024, 64, 4096, 1024, 1, 1};
  for (int l = 0; l <= 10; l++) {
    size_t v[2] = {77, 77};
    for (int d = 0; d < 2; d++) {
      on(d);
      ASK(W("limit %d of %d", l, d), cuCtxGetLimit(&v[d], l));
    }
    SAY(W("limit %d: the same", l), "%d", v[0] == v[1]);
    if (l == 10) break;
    size_t before = v[0];
    on(1);
    ASK(W("set limit %d of 1", l), cuCtxSetLimit(l, values[l]));
    ASK(W("then limit %d of 1", l), cuCtxGetLimit(&v[1], l), "%zu", v[1]);
    on(0);
    DO(cuCtxGetLimit(&v[0], l == CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH || l > 6 ? 0 : l));
    if (l != CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH && l <= 6) SAY(W("limit %d of 0 stays", l), "%d", v[0] == before);
  }
  DO(cuCtxSetCurrent(NULL));
  size_t v = 77;
  ASK("set, none current", cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096));
  ASK("get, none current", cuCtxGetLimit(&v, CU_LIMIT_STACK_SIZE), "%zu", v);
  ASK("reset 1", cuDevicePrimaryCtxReset(1));
  DO(cuDevicePrimaryCtxRetain(&of[1], 1));
  on(1);
  ASK("stack of 1 after the reset", cuCtxGetLimit(&v, CU_LIMIT_STACK_SIZE), "%zu", v);
}

static void caches(void) {
  both();
  for (int c = -1; c <= 4; c++) {
    int v = 77;
    on(1);
    ASK(W("cache %d for 1", c), cuCtxSetCacheConfig(c));
    ASK(W("of 1, %d", c), cuCtxGetCacheConfig((CUfunc_cache *)&v), "%d", v);
    on(0);
    ASK(W("of 0, %d", c), cuCtxGetCacheConfig((CUfunc_cache *)&v), "%d", v);
    on(1);
    ASK(W("banks %d for 1", c), cuCtxSetSharedMemConfig(c));
    ASK(W("banks of 1, %d", c), cuCtxGetSharedMemConfig((CUsharedconfig *)&v), "%d", v);
    ASK(W("persisting of 1, %d", c), cuCtxResetPersistingL2Cache());
  }
}

static void flags(void) {
  both();
  for (unsigned f = 0; f <= 0x100; f = f ? 2 * f : 1) {
    unsigned got = 77, state = 77;
    int active = 77;
    if (f == CU_CTX_COREDUMP_ENABLE || f == CU_CTX_USER_COREDUMP_ENABLE) continue; /* these make files */
    on(1);
    ASK(W("flags %u for 1", f), cuCtxSetFlags(f));
    ASK(W("of 1, %u", f), cuCtxGetFlags(&got), "%u", got);
    ASK(W("state of 1, %u", f), cuDevicePrimaryCtxGetState(1, &state, &active), "%u %d", state, active);
    on(0);
    ASK(W("of 0, %u", f), cuCtxGetFlags(&got), "%u", got);
    ASK(W("primary flags %u for 1", f), cuDevicePrimaryCtxSetFlags(1, f));
    ASK(W("state of 0, %u", f), cuDevicePrimaryCtxGetState(0, &state, &active), "%u %d", state, active);
  }
  ASK("reset 1", cuDevicePrimaryCtxReset(1));
  unsigned state = 77;
  int active = 77;
  ASK("state of 1 after the reset", cuDevicePrimaryCtxGetState(1, &state, &active), "%u %d", state, active);
  for (int d = -1; d <= 2; d++) ASK(W("flags of device %d", d), cuDevicePrimaryCtxSetFlags(d, 4));
}

static void green(void) {
  both();
  CUdevResource all[2], part, rest;
  CUdevResourceDesc desc[2] = {NULL};
  CUgreenCtx g = NULL, wrong = NULL, got_g = NULL;
  SET(all), SET(part), SET(rest);
  for (int d = 0; d < 2; d++) {
    unsigned n = 1;
    ASK(W("SMs of %d", d), cuDeviceGetDevResource(d, &all[d], CU_DEV_RESOURCE_TYPE_SM), "%u", all[d].sm.smCount);
    ASK(W("split of %d", d), cuDevSmResourceSplitByCount(&part, &n, &all[d], &rest, 0, 16), "%u %u %u", n,
        part.sm.smCount, rest.sm.smCount);
    ASK(W("description of %d's", d), cuDevResourceGenerateDesc(&desc[d], &part, 1), "%d", desc[d] != NULL);
  }
  CUdevResource mixed[2] = {all[0], all[1]};
  CUdevResourceDesc of_both = NULL;
  ASK("description of both", cuDevResourceGenerateDesc(&of_both, mixed, 2));
  ASK("0's description on 1", cuGreenCtxCreate(&wrong, desc[0], 1, CU_GREEN_CTX_DEFAULT_STREAM));
  ASK("1's description on 0", cuGreenCtxCreate(&wrong, desc[1], 0, CU_GREEN_CTX_DEFAULT_STREAM));
  ASK("1's description on 2", cuGreenCtxCreate(&wrong, desc[1], 2, CU_GREEN_CTX_DEFAULT_STREAM));
  ASK("without flags", cuGreenCtxCreate(&wrong, desc[1], 1, 0));
  ASK("1's description on 1, 0 current", cuGreenCtxCreate(&g, desc[1], 1, CU_GREEN_CTX_DEFAULT_STREAM), "%d %d",
      g != NULL, current());
  if (!g) return;
  CUcontext c = NULL, got = NULL;
  CUdevice d = 77;
  CUstream s = NULL;
  unsigned long long id = 0;
  ASK("its context", cuCtxFromGreenCtx(&c, g), "%d", c == of[1]);
  ASK("its id", cuGreenCtxGetId(g, &id), "%d", id != 0);
  ASK("its SMs", cuGreenCtxGetDevResource(g, &part, CU_DEV_RESOURCE_TYPE_SM), "%u", part.sm.smCount);
  ASK("SMs of the primary one of 1", cuCtxGetDevResource(of[1], &part, CU_DEV_RESOURCE_TYPE_SM), "%u", part.sm.smCount);
  ASK("its stream, 0 current", cuGreenCtxStreamCreate(&s, g, CU_STREAM_NON_BLOCKING, 0));
  ASK("device of the stream", cuStreamGetDevice(s, &d), "%d", d);
  ASK("context of the stream", cuStreamGetCtx(s, &got), "%d %d", got == c, got == of[1]);
  ASK("both of the stream", cuStreamGetCtx_v2(s, &got, &got_g), "%d %d", got == NULL, got_g == g);
  ASK("green one of the stream", cuStreamGetGreenCtx(s, &got_g), "%d", got_g == g);
  CUdeviceptr m[2] = {memory(0, 4096, 0x11), memory(1, 4096, 0x22)};
  ASK("set 1's memory in it", cuMemsetD8Async(m[1], 0x31, 64, s), "%d", settled(s));
  ASK("copy to 0 in it", cuMemcpyDtoDAsync(m[0], m[1], 64, s), "%d", settled(s));
  SAY("what 0 has", "%x", word(0, m[0]));
  CUevent e = NULL, f = NULL;
  DO(cuEventCreate(&e, 0));
  ASK("record 0's event in it", cuEventRecord(e, s));
  ASK("it records 0's event", cuGreenCtxRecordEvent(g, e));
  DO(cuEventRecord(e, NULL));
  ASK("it waits for 0's event", cuGreenCtxWaitEvent(g, e));
  ASK("current", cuCtxSetCurrent(c), "%d", current());
  ASK("device then", cuCtxGetDevice(&d), "%d", d);
  DO(cuEventCreate(&f, 0));
  ASK("it records its own", cuGreenCtxRecordEvent(g, f));
  ASK("0 gives it access", (on(0), cuCtxEnablePeerAccess(c, 0)));
  ASK("it gives 0 access", (cuCtxSetCurrent(c), cuCtxEnablePeerAccess(of[0], 0)));
  ASK("allocate in it", cuMemAlloc(&m[1], 4096));
  int ordinal = 7;
  ASK("where", cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, m[1]), "%d", ordinal);
  on(0);
  ASK("destroy it, 0 current", cuGreenCtxDestroy(g));
  ALONE("its stream after that", cuStreamQuery(s));
  int active = 7;
  unsigned flags;
  ASK("state of 1", cuDevicePrimaryCtxGetState(1, &flags, &active), "%d", active);
}

CASES RUN(limits) RUN(caches) RUN(flags) RUN(green) END
