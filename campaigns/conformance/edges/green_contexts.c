/* Resources of a device and green contexts. */
#include "ask.h"

static CUdevResource sm;
static void make(void) { DO(cuDeviceGetDevResource(0, &sm, CU_DEV_RESOURCE_TYPE_SM)); }

static void resources(void) {
  CUdevResource r, s;
  for (int type = -1; type <= 4; type++) {
    SET(r);
    ASK(W("of the device, type %d", type), cuDeviceGetDevResource(0, &r, type), "%d %u", r.type,
        type == 1 ? r.sm.smCount : 0);
    SET(r);
    ASK(W("of the context, type %d", type), cuCtxGetDevResource(context, &r, type), "%d %u", r.type,
        type == 1 ? r.sm.smCount : 0);
  }
  ASK("of device 99", cuDeviceGetDevResource(99, &r, 1));
  ASK("of the current context", cuCtxGetDevResource(NULL, &r, 1));
  make();
  for (int min = 0; min <= 140; min = min < 20 ? min + 3 : min + 40) {
    CUdevResource groups[16];
    unsigned n = 2;
    SET(s);
    SET(groups);
    ASK(W("split into 2 of at least %d", min), cuDevSmResourceSplitByCount(groups, &n, &sm, &s, 0, min),
        "%u, %u, rest %u", n, groups[0].sm.smCount, s.sm.smCount);
  }
  for (int flags = 0; flags <= 4; flags++) {
    CUdevResource groups[2];
    unsigned n = 1;
    SET(groups);
    ASK(W("split with flags %d", flags), cuDevSmResourceSplitByCount(groups, &n, &sm, &s, flags, 20), "%u %u %u", n,
        groups[0].sm.smCount, s.sm.smCount);
  }
  unsigned n = 7;
  ASK("number of groups of 16", cuDevSmResourceSplitByCount(NULL, &n, &sm, NULL, 0, 16), "%u", n);
  n = 0;
  ASK("split into 0", cuDevSmResourceSplitByCount(&r, &n, &sm, NULL, 0, 16), "%u", n);
  n = 1;
  CUdevResource zero;
  SET(zero);
  ASK("split of zeros", cuDevSmResourceSplitByCount(&r, &n, &zero, NULL, 0, 16));
  RISK("into NULL", cuDeviceGetDevResource(0, NULL, 1));
  RISK("split without a number", cuDevSmResourceSplitByCount(&r, NULL, &sm, NULL, 0, 16));
  RISK("split of NULL", cuDevSmResourceSplitByCount(&r, &n, NULL, NULL, 0, 16));
}

static void descriptors(void) {
  make();
  CUdevResourceDesc d = NULL;
  CUdevResource two[2] = {sm, sm}, zero;
  SET(zero);
  ASK("of all", cuDevResourceGenerateDesc(&d, &sm, 1), "%d", d != NULL);
  ASK("of none", cuDevResourceGenerateDesc(&d, &sm, 0));
  ASK("of the same twice", cuDevResourceGenerateDesc(&d, two, 2));
  ASK("of zeros", cuDevResourceGenerateDesc(&d, &zero, 1));
  RISK("into NULL", cuDevResourceGenerateDesc(NULL, &sm, 1));
  RISK("from NULL", cuDevResourceGenerateDesc(&d, NULL, 1));
}

static void contexts(void) {
  make();
  CUdevResource group, rest, r;
  unsigned n = 1;
  CUdevResourceDesc d = NULL;
  CUgreenCtx g = NULL, g2 = NULL;
  DO(cuDevSmResourceSplitByCount(&group, &n, &sm, &rest, 0, 16));
  DO(cuDevResourceGenerateDesc(&d, &group, 1));
  for (int flags = 0; flags <= 4; flags++) ASK(W("flags %d", flags), cuGreenCtxCreate(&g, d, 0, flags));
  ASK("device 99", cuGreenCtxCreate(&g, d, 99, CU_GREEN_CTX_DEFAULT_STREAM));
  DO(cuGreenCtxCreate(&g, d, 0, CU_GREEN_CTX_DEFAULT_STREAM));
  ASK("again of the same description", cuGreenCtxCreate(&g2, d, 0, CU_GREEN_CTX_DEFAULT_STREAM));
  SET(r);
  ASK("its resource", cuGreenCtxGetDevResource(g, &r, 1), "%u", r.sm.smCount);
  CUcontext c = NULL, c2 = NULL;
  ASK("as a context", cuCtxFromGreenCtx(&c, g), "%d", c != context);
  ASK("as a context again", cuCtxFromGreenCtx(&c2, g), "%d", c2 == c);
  unsigned long long id = 0;
  ASK("its id", cuGreenCtxGetId(g, &id), "%d", id != 0);
  CUstream s = NULL;
  for (int flags = 0; flags <= 2; flags++)
    for (int p = -6; p <= 1; p += 7)
      ASK(W("stream with flags %d, priority %d", flags, p), cuGreenCtxStreamCreate(&s, g, flags, p));
  DO(cuGreenCtxStreamCreate(&s, g, 1, 0));
  CUgreenCtx of = NULL;
  ASK("green context of the stream", cuStreamGetGreenCtx(s, &of), "%d", of == g);
  ASK("green context of the NULL stream", cuStreamGetGreenCtx(NULL, &of), "%d", of == NULL);
  CUcontext sc = NULL;
  ASK("context of the stream", cuStreamGetCtx(s, &sc), "%d", sc == c);
  ASK("both contexts of the stream", cuStreamGetCtx_v2(s, &sc, &of), "%d %d", sc == context, of == g);
  ASK("set current", cuCtxSetCurrent(c));
  CUcontext now = NULL;
  ASK("current", cuCtxGetCurrent(&now), "%d", now == c);
  CUdevice dev = 77;
  ASK("its device", cuCtxGetDevice(&dev), "%d", dev);
  CUstream t = NULL;
  ASK("an ordinary stream in it", cuStreamCreate(&t, 0));
  ASK("an ordinary stream in it that does not block", cuStreamCreate(&t, 1));
  CUdeviceptr m = 0;
  ASK("memory in it", cuMemAlloc(&m, 16));
  unsigned flags = 77;
  ASK("flags of it", cuCtxGetFlags(&flags), "%u", flags);
  ASK("a limit of it", cuCtxSetLimit(0, 2048));
  ASK("synchronize it", cuCtxSynchronize());
  CUevent e;
  DO(cuEventCreate(&e, 0));
  ASK("record of it", cuGreenCtxRecordEvent(g, e));
  ASK("wait of it", cuGreenCtxWaitEvent(g, e));
  ASK("destroy it as a context", cuCtxDestroy(c));
  ASK("destroy", cuGreenCtxDestroy(g));
  ASK("current after that", cuCtxGetCurrent(&now), "%d %d", now == c, now == NULL);
  RISK("destroy again", cuGreenCtxDestroy(g));
  RISK("create into NULL", cuGreenCtxCreate(NULL, d, 0, 1));
  RISK("create of NULL", cuGreenCtxCreate(&g, NULL, 0, 1));
  RISK("context of NULL", cuCtxFromGreenCtx(&c, NULL));
  RISK("destroy NULL", cuGreenCtxDestroy(NULL));
  RISK("stream of NULL", cuGreenCtxStreamCreate(&s, NULL, 1, 0));
}

CASES RUN(resources) RUN(descriptors) RUN(contexts) END
