/* Two devices: pools of either used from the other: access, streams, current pools, trims, attributes. */
#include "two.h"
#define NAME(w, ...) \
  char w[100];       \
  snprintf(w, sizeof w, __VA_ARGS__) /* W has room for only a few at a time */

static CUmemoryPool pool[2], made[2];
static CUstream s[2];

static void make(void) {
  both();
  for (int d = 0; d < 2; d++) {
    CUmemPoolProps p = pool_on_device(0);
    p.location.id = d;
    on(d);
    DO(cuDeviceGetDefaultMemPool(&pool[d], d));
    DO(cuMemPoolCreate(&made[d], &p));
    DO(cuStreamCreate(&s[d], CU_STREAM_NON_BLOCKING));
  }
}
static int which(CUmemoryPool p) {
  return !p ? -1 : p == pool[0] ? 0 : p == pool[1] ? 1 : p == made[0] ? 10 : p == made[1] ? 11 : 9;
}

static void accesses(void) {
  make();
  for (int d = 0; d < 2; d++)
    for (int type = 0; type <= 4; type++)
      for (int id = -1; id <= 2; id++) {
        CUmemLocation l = {type, id};
        CUmemAccess_flags f = 77;
        ASK(W("get, pool of %d, kind %d, %d", d, type, id), cuMemPoolGetAccess(&f, made[d], &l), "%d", f);
      }
  for (int d = 0; d < 2; d++)
    for (int to = -1; to <= 2; to++)
      for (int flags = 0; flags <= 4; flags++) {
        CUmemAccessDesc x = access_of(to, flags);
        CUmemLocation l = {CU_MEM_LOCATION_TYPE_DEVICE, !d};
        CUmemAccess_flags f = 77;
        ASK(W("set, pool of %d, to %d, flags %d", d, to, flags), cuMemPoolSetAccess(made[d], &x, 1), "%d %d",
            cuMemPoolGetAccess(&f, made[d], &l), f);
      }
  CUmemAccessDesc x[2] = {access_of(0, 3), access_of(1, 3)}, twice[2] = {access_of(0, 3), access_of(0, 0)};
  ASK("both at once", cuMemPoolSetAccess(made[1], x, 2));
  ASK("the same twice", cuMemPoolSetAccess(made[1], twice, 2));
  ASK("none", cuMemPoolSetAccess(made[1], x, 0));
  CUmemAccessDesc at_host = {{CU_MEM_LOCATION_TYPE_HOST, 0}, 3};
  ASK("the host", cuMemPoolSetAccess(made[1], &at_host, 1));
  RISK("list NULL", cuMemPoolSetAccess(made[1], NULL, 1));
  RISK("pool NULL", cuMemPoolSetAccess(NULL, x, 1));
  RISK("location NULL", cuMemPoolGetAccess(&x[0].flags, made[1], NULL));
}

static void from_pools(void) {
  make();
  for (int now = -1; now < 2; now++)
    for (int i = 0; i < 2; i++)
      for (int j = 0; j < 2; j++) {
        CUdeviceptr p = 0;
        int ordinal = 77;
        CUmemoryPool q = NULL;
        on(now);
        NAME(w, "%d current, pool of %d, stream of %d", now, i, j);
        ASK(w, cuMemAllocFromPoolAsync(&p, 4096, made[i], s[j]), "%d", cuStreamSynchronize(s[j]));
        if (!p) continue;
        ASK(W("%s: ordinal", w), cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p), "%d",
            ordinal);
        ASK(W("%s: pool", w), cuPointerGetAttribute(&q, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, p), "%d", which(q));
        ASK(W("%s: set by its device", w), cuMemsetD8Async(p, 0x44, 64, s[i]), "%d", cuStreamSynchronize(s[i]));
        ASK(W("%s: free in the other's stream", w), cuMemFreeAsync(p, s[!j]), "%d", cuStreamSynchronize(s[!j]));
        ASK(W("%s: free twice", w), cuMemFreeAsync(p, s[j]));
        p = 0;
        ASK(W("%s: plain", w), cuMemAllocAsync(&p, 4096, s[j]));
        if (p)
          ASK(W("%s: pool of the plain", w), cuPointerGetAttribute(&q, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, p), "%d",
              which(q));
        if (p) ASK(W("%s: free of the plain", w), cuMemFree(p));
      }
}

static void current_pools(void) {
  make();
  CUmemoryPool q = NULL;
  CUdeviceptr p = 0;
  for (int d = -1; d <= 2; d++)
    for (int i = 0; i < 2; i++) {
      ASK(W("set pool of %d for %d", i, d), cuDeviceSetMemPool(d, made[i]));
      for (int k = 0; k < 2; k++) ASK(W("pool of %d after that", k), cuDeviceGetMemPool(&q, k), "%d", which(q));
    }
  on(1);
  ASK("allocate on 1", cuMemAllocAsync(&p, 4096, s[1]));
  ASK("its pool", cuPointerGetAttribute(&q, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, p), "%d", which(q));
  ASK("destroy the current pool of 1", cuMemPoolDestroy(made[1]));
  ASK("pool of 1 then", cuDeviceGetMemPool(&q, 1), "%d", which(q));
  ASK("pool of 0 then", cuDeviceGetMemPool(&q, 0), "%d", which(q));
  ASK("free what was in it", cuMemFreeAsync(p, s[0]), "%d", cuStreamSynchronize(s[0]));
  ASK("destroy the default pool of 1", cuMemPoolDestroy(pool[1]));
  RISK("set NULL for 1", cuDeviceSetMemPool(1, NULL));
  ALONE("set the destroyed one for 1", cuDeviceSetMemPool(1, made[1]));
}

static void attributes(void) {
  make();
  CUdeviceptr p[2] = {0};
  for (int d = 0; d < 2; d++) DO(cuMemAllocFromPoolAsync(&p[d], MIB + MIB * d, made[d], s[d]));
  for (int step = 0; step < 4; step++) {
    on(!(step & 1));
    if (step == 1) ASK("free of 1's in a stream of 1", cuMemFreeAsync(p[1], s[1]), "%d", cuStreamSynchronize(s[1]));
    if (step == 2) ASK("trim of 1's, 1 current", cuMemPoolTrimTo(made[1], 0));
    if (step == 3) ASK("reset 1", cuDevicePrimaryCtxReset(1));
    for (int d = 0; d < 2; d++)
      for (int a = CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES; a <= CU_MEMPOOL_ATTR_USED_MEM_HIGH; a++) {
        cuuint64_t v = 0;
        const char *w = W("step %d, pool of %d, attribute %d", step, d, a);
        if (step == 3 && d)
          ALONE(w, cuMemPoolGetAttribute(made[d], a, &v), "%llu", (unsigned long long)v); /* it may be dead */
        else ASK(w, cuMemPoolGetAttribute(made[d], a, &v), "%llu", (unsigned long long)v);
      }
  }
}

CASES RUN(accesses) RUN(from_pools) RUN(current_pools) RUN(attributes) END
