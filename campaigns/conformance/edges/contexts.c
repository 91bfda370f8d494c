/* Contexts: creation, the stack, primary contexts, limits, cache configurations, flags. */
#include "ask.h"

static void creating(void) {
  CUcontext c = NULL, popped;
  for (int flags = 0; flags <= 0x200; flags = flags < 16 ? flags + 1 : flags * 2) {
    CUresult code = cuCtxCreate(&c, NULL, flags, 0);
    unsigned got = 77;
    ASK(W("flags %d", flags), code);
    if (!code) {
      ASK(W("flags of %d", flags), cuCtxGetFlags(&got), "%u", got);
      DO(cuCtxDestroy(c));
    }
  }
  ASK("device 99", cuCtxCreate(&c, NULL, 0, 99));
  ASK("device -1", cuCtxCreate(&c, NULL, 0, -1));
  CUctxCreateParams p;
  SET(p);
  ASK("empty parameters", cuCtxCreate(&c, &p, 0, 0));
  CUexecAffinityParam a;
  SET(a);
  a.param.smCount.val = 4;
  p.execAffinityParams = &a, p.numExecAffinityParams = 1;
  ASK("affinity of 4", cuCtxCreate(&c, &p, 0, 0));
  p.numExecAffinityParams = 2;
  ASK("two affinities", cuCtxCreate(&c, &p, 0, 0));
  p.numExecAffinityParams = -1;
  ASK("-1 affinities", cuCtxCreate(&c, &p, 0, 0));
  RISK("into NULL", cuCtxCreate(NULL, NULL, 0, 0));
  RISK("destroy NULL", cuCtxDestroy(NULL));
  (void)popped;
}

static void stack(void) {
  CUcontext a = NULL, b = NULL, c = (CUcontext)7;
  DO(cuCtxCreate(&a, NULL, 0, 0));
  ASK("current", cuCtxGetCurrent(&c), "%d", c == a);
  DO(cuCtxCreate(&b, NULL, 0, 0));
  ASK("pop", cuCtxPopCurrent(&c), "%d", c == b);
  ASK("current", cuCtxGetCurrent(&c), "%d", c == a);
  ASK("pop into NULL", cuCtxPopCurrent(NULL));
  ASK("current", cuCtxGetCurrent(&c), "%d", c == context);
  ASK("pop the primary", cuCtxPopCurrent(&c), "%d", c == context);
  ASK("pop nothing", cuCtxPopCurrent(&c));
  ASK("push", cuCtxPushCurrent(a));
  ASK("push the same", cuCtxPushCurrent(a));
  ASK("set another", cuCtxSetCurrent(b));
  ASK("pop", cuCtxPopCurrent(&c), "%d", c == b);
  ASK("pop", cuCtxPopCurrent(&c), "%d", c == a);
  ASK("pop nothing again", cuCtxPopCurrent(&c));
  ASK("set NULL on an empty stack", cuCtxSetCurrent(NULL));
  ASK("push NULL", cuCtxPushCurrent(NULL));
  ASK("set", cuCtxSetCurrent(a));
  ASK("destroy the current", cuCtxDestroy(a));
  ASK("current after that", cuCtxGetCurrent(&c), "%d %d", c == a, c == NULL);
  ASK("destroy one that is not current", cuCtxDestroy(b));
  RISK("destroy it again", cuCtxDestroy(b));
  ALONE("push it", cuCtxPushCurrent(b));
  ALONE("set it", cuCtxSetCurrent(b));
  unsigned version;
  RISK("its version", cuCtxGetApiVersion(b, &version));
  unsigned long long id;
  RISK("its id", cuCtxGetId(b, &id));
  RISK("current into NULL", cuCtxGetCurrent(NULL));
  CUdevice dev = 77;
  ASK("device of what is destroyed and current", cuCtxGetDevice(&dev), "%d", dev);
  ASK("memory of it", cuMemAlloc((CUdeviceptr[1]){0}, 16));
}

static void primary(void) {
  unsigned flags = 77;
  int active = 77;
  CUcontext c = NULL;
  ASK("state before", cuDevicePrimaryCtxGetState(0, &flags, &active), "%u %d", flags, active);
  unsigned all[] = {0, 1, 2, 3, 4, 5, 7, 8, 16, 24, 32, 64, 128, 256};
  for (int i = 0; i < 14; i++) {
    ASK(W("set flags %u before", all[i]), cuDevicePrimaryCtxSetFlags(0, all[i]));
    cuDevicePrimaryCtxGetState(0, &flags, &active);
    SAY(W("flags now, %u", all[i]), "%u %d", flags, active);
  }
  DO(cuDevicePrimaryCtxSetFlags(0, 0));
  ASK("release before", cuDevicePrimaryCtxRelease(0));
  ASK("reset before", cuDevicePrimaryCtxReset(0));
  ASK("retain", cuDevicePrimaryCtxRetain(&c, 0));
  ASK("state", cuDevicePrimaryCtxGetState(0, &flags, &active), "%u %d", flags, active);
  CUcontext current = (CUcontext)7, again = NULL;
  ASK("current", cuCtxGetCurrent(&current), "%d", current == NULL);
  ASK("retain again", cuDevicePrimaryCtxRetain(&again, 0), "%d", again == c);
  ASK("set flags while it is active", cuDevicePrimaryCtxSetFlags(0, 4));
  ASK("state after that", cuDevicePrimaryCtxGetState(0, &flags, &active), "%u %d", flags, active);
  ASK("cuCtxDestroy of it", cuCtxDestroy(c));
  ASK("release", cuDevicePrimaryCtxRelease(0));
  ASK("state after one release", cuDevicePrimaryCtxGetState(0, &flags, &active), "%u %d", flags, active);
  DO(cuCtxSetCurrent(c));
  CUdeviceptr d;
  ASK("memory in it", cuMemAlloc(&d, 16));
  CUstream s;
  DO(cuStreamCreate(&s, 0));
  ASK("the last release", cuDevicePrimaryCtxRelease(0));
  ASK("state after that", cuDevicePrimaryCtxGetState(0, &flags, &active), "%u %d", flags, active);
  ASK("one release more", cuDevicePrimaryCtxRelease(0));
  ASK("current after that", cuCtxGetCurrent(&current), "%d", current == c);
  ASK("memory after that", cuMemAlloc(&d, 16));
  ASK("device after that", cuCtxGetDevice((CUdevice[1]){0}));
  ASK("query after that", cuStreamQuery(s));
  ASK("retain after that", cuDevicePrimaryCtxRetain(&again, 0), "%d", again == c);
  ASK("memory in the new one", cuMemAlloc(&d, 16));
  ASK("reset", cuDevicePrimaryCtxReset(0));
  ASK("state after the reset", cuDevicePrimaryCtxGetState(0, &flags, &active), "%u %d", flags, active);
  ASK("memory after the reset", cuMemAlloc(&d, 16));
  ASK("release after the reset", cuDevicePrimaryCtxRelease(0));
  ASK("device 99", cuDevicePrimaryCtxRetain(&c, 99));
  ASK("state of device 99", cuDevicePrimaryCtxGetState(99, &flags, &active));
  ASK("release of device -1", cuDevicePrimaryCtxRelease(-1));
  RISK("retain into NULL", cuDevicePrimaryCtxRetain(NULL, 0));
  RISK("state without flags", cuDevicePrimaryCtxGetState(0, NULL, &active));
  RISK("state without active", cuDevicePrimaryCtxGetState(0, &flags, NULL));
}
static void primary_cold(void) {
  DO(cuInit(0));
  primary();
}

static void limits(void) {
  for (int l = 0; l <= 11; l++) {
    size_t z = 77;
    ASK(W("limit %d", l), cuCtxGetLimit(&z, l), "%zu", z);
  }
  struct {
    int limit;
    size_t value;
  } sets[] = {{0, 0},
              {0, 1},
              {0, 1000},
              {0, 1024},
              {0, 1025},
              {0, 16384},
              {0, 524288},
              {0, (size_t)1 << 30},
              {1, 0},
              {1, 1},
              {1, 1000},
              {1, MIB},
              {1, 3 * MIB + 1},
              {2, 0},
              {2, 1},
              {2, MIB},
              {2, 5 * MIB},
              {2, 8 * MIB + 1},
              {2, (size_t)1 << 40},
              {3, 1},
              {3, 2},
              {4, 0},
              {4, 1},
              {4, 5000},
              {5, 0},
              {5, 16},
              {5, 32},
              {5, 33},
              {5, 64},
              {5, 128},
              {5, 129},
              {5, 1000},
              {6, 0},
              {6, 1},
              {6, MIB},
              {6, 10 * MIB + 1},
              {6, (size_t)1 << 40},
              {7, 0},
              {7, 1},
              {8, 0},
              {8, 1},
              {9, 0},
              {9, 1},
              {10, 0},
              {99, 0}};
  for (unsigned i = 0; i < sizeof sets / sizeof *sets; i++) {
    size_t z = 77;
    ASK(W("set limit %d to %zu", sets[i].limit, sets[i].value), cuCtxSetLimit(sets[i].limit, sets[i].value));
    if (!cuCtxGetLimit(&z, sets[i].limit)) SAY(W("limit %d after %zu", sets[i].limit, sets[i].value), "%zu", z);
  }
  RISK("limit into NULL", cuCtxGetLimit(NULL, 0));
}

static void configurations(void) {
  for (int c = -1; c <= 4; c++) {
    CUfunc_cache got = 77;
    ASK(W("cache %d", c), cuCtxSetCacheConfig(c));
    ASK(W("cache now, %d", c), cuCtxGetCacheConfig(&got), "%d", got);
    CUsharedconfig shared = 77;
    ASK(W("shared %d", c), cuCtxSetSharedMemConfig(c));
    ASK(W("shared now, %d", c), cuCtxGetSharedMemConfig(&shared), "%d", shared);
  }
  unsigned all[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 16, 17, 24, 32, 64, 128, 256};
  for (int i = 0; i < 16; i++) {
    unsigned got = 77;
    ASK(W("flags %u", all[i]), cuCtxSetFlags(all[i]));
    ASK(W("flags now, %u", all[i]), cuCtxGetFlags(&got), "%u", got);
  }
  unsigned version = 77;
  unsigned long long id = 77, id2 = 77;
  ASK("version", cuCtxGetApiVersion(context, &version), "%u", version);
  ASK("version of the current", cuCtxGetApiVersion(NULL, &version), "%u", version);
  ASK("id", cuCtxGetId(context, &id));
  ASK("id of the current", cuCtxGetId(NULL, &id2), "%d", id == id2);
  CUdevice dev = 77;
  ASK("device of a context", cuCtxGetDevice_v2(&dev, context), "%d", dev);
  ASK("device of NULL", cuCtxGetDevice_v2(&dev, NULL), "%d", dev);
  ASK("synchronize a context", cuCtxSynchronize_v2(context));
  ASK("synchronize NULL", cuCtxSynchronize_v2(NULL));
  ASK("reset persisting lines", cuCtxResetPersistingL2Cache());
  CUexecAffinityParam a;
  SET(a);
  for (int t = 0; t <= 1; t++)
    ASK(W("affinity of type %d", t), cuCtxGetExecAffinity(&a, t), "%d %u", a.type, a.param.smCount.val);
  CUcontext c = NULL;
  ASK("attach", cuCtxAttach(&c, 0), "%d", c == context);
  ASK("attach with flags 1", cuCtxAttach(&c, 1));
  ASK("detach", cuCtxDetach(context));
  ASK("peer access to itself", cuCtxEnablePeerAccess(context, 0));
  ASK("no peer access to itself", cuCtxDisablePeerAccess(context));
  RISK("cache into NULL", cuCtxGetCacheConfig(NULL));
  RISK("flags into NULL", cuCtxGetFlags(NULL));
  RISK("version into NULL", cuCtxGetApiVersion(context, NULL));
  RISK("id into NULL", cuCtxGetId(context, NULL));
  RISK("device into NULL", cuCtxGetDevice(NULL));
  RISK("peer access to NULL", cuCtxEnablePeerAccess(NULL, 0));
}

CASES RUN(creating) RUN(stack) RUN_COLD(primary_cold) RUN(limits) RUN(configurations) END
