/* Memory pools: what makes one, its attributes, access, trimming, the device's current and default pool. */
#include "ask.h"

static CUmemoryPool pool;
static void make(void) {
  CUmemPoolProps p = pool_on_device(0);
  DO(cuMemPoolCreate(&pool, &p));
}

static void creating(void) {
  CUmemoryPool q = NULL;
  CUmemPoolProps p = pool_on_device(0);
  ASK("plain", cuMemPoolCreate(&q, &p), "%d", q != NULL);
  for (int type = 0; type <= 3; type++) {
    p = pool_on_device(0), p.allocType = type;
    ASK(W("type %d", type), cuMemPoolCreate(&q, &p));
  }
  for (int type = 0; type <= 5; type++) {
    p = pool_on_device(0), p.location.type = type;
    ASK(W("location type %d", type), cuMemPoolCreate(&q, &p));
  }
  int ids[] = {-1, 1, 99};
  for (int i = 0; i < 3; i++) {
    p = pool_on_device(0), p.location.id = ids[i];
    ASK(W("location id %d", ids[i]), cuMemPoolCreate(&q, &p));
  }
  for (int types = 1; types <= 16; types = types < 4 ? types + 1 : types * 2) {
    p = pool_on_device(types);
    ASK(W("handle types %d", types), cuMemPoolCreate(&q, &p));
  }
  size_t sizes[] = {1, 4096, 32 * MIB, (size_t)1 << 40};
  for (int i = 0; i < 4; i++) {
    p = pool_on_device(0), p.maxSize = sizes[i];
    ASK(W("largest size %zu", sizes[i]), cuMemPoolCreate(&q, &p));
  }
  for (int usage = 1; usage <= 3; usage++) {
    p = pool_on_device(0), p.usage = usage;
    ASK(W("usage %d", usage), cuMemPoolCreate(&q, &p));
  }
  p = pool_on_device(0), p.reserved[0] = 1;
  ASK("reserved byte 0", cuMemPoolCreate(&q, &p));
  p = pool_on_device(0), p.reserved[53] = 1;
  ASK("reserved byte 53", cuMemPoolCreate(&q, &p));
  p = pool_on_device(0), p.win32SecurityAttributes = &p;
  ASK("win32 attributes", cuMemPoolCreate(&q, &p));
  RISK("without a pool", cuMemPoolCreate(NULL, &p));
  RISK("without properties", cuMemPoolCreate(&q, NULL));
  RISK("destroy NULL", cuMemPoolDestroy(NULL));
}

static void attributes(void) {
  make();
  for (int a = 0; a <= 10; a++) {
    uint64_t value = 0;
    int small = a >= 1 && a <= 3;
    ASK(W("get %d of a new pool", a), cuMemPoolGetAttribute(pool, a, &value), "%llu",
        small ? value & 0xffffffff : value);
  }
  for (int a = 0; a <= 9; a++)
    for (int v = 0; v <= 2; v++) {
      uint64_t value = v, back = 0;
      ASK(W("set %d to %d", a, v), cuMemPoolSetAttribute(pool, a, &value));
      if (cuMemPoolGetAttribute(pool, a, &back) == 0) SAY(W("%d after %d", a, v), "%llu", (unsigned long long)back);
    }
  uint64_t all = UINT64_MAX;
  ASK("threshold of all", cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
  CUdeviceptr m = 0, n = 0;
  DO(cuMemAllocFromPoolAsync(&m, 1000, pool, 0));
  DO(cuMemAllocFromPoolAsync(&n, 3 * MIB, pool, 0));
  DO(cuCtxSynchronize());
  for (int a = 5; a <= 8; a++) {
    uint64_t value = 0;
    ASK(W("get %d after two allocations", a), cuMemPoolGetAttribute(pool, a, &value), "%llu",
        (unsigned long long)value);
  }
  DO(cuMemFreeAsync(m, 0));
  DO(cuMemFreeAsync(n, 0));
  DO(cuCtxSynchronize());
  for (int a = 5; a <= 8; a++) {
    uint64_t value = 0;
    ASK(W("get %d after the frees", a), cuMemPoolGetAttribute(pool, a, &value), "%llu", (unsigned long long)value);
  }
  ASK("trim to 1 MiB", cuMemPoolTrimTo(pool, MIB));
  uint64_t value = 0;
  ASK("reserved after that", cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &value), "%llu",
      (unsigned long long)value);
  ASK("trim to 0", cuMemPoolTrimTo(pool, 0));
  ASK("reserved after that too", cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &value), "%llu",
      (unsigned long long)value);
  value = 0;
  ASK("reset used high", cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &value));
  ASK("used high after that", cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &value), "%llu",
      (unsigned long long)value);
  RISK("get into NULL", cuMemPoolGetAttribute(pool, 1, NULL));
  RISK("set from NULL", cuMemPoolSetAttribute(pool, 1, NULL));
  RISK("get of a NULL pool", cuMemPoolGetAttribute(NULL, 1, &value));
  RISK("set of a NULL pool", cuMemPoolSetAttribute(NULL, 1, &value));
  RISK("trim a NULL pool", cuMemPoolTrimTo(NULL, 0));
}

static void accesses(void) {
  make();
  CUmemAccess_flags f = 7;
  CUmemLocation l = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  ASK("of its own device", cuMemPoolGetAccess(&f, pool, &l), "%d", f);
  for (int type = 0; type <= 5; type++) {
    l.type = type, f = 7;
    ASK(W("get of location type %d", type), cuMemPoolGetAccess(&f, pool, &l), "%d", f);
  }
  l.type = 1, l.id = 99, f = 7;
  ASK("get of device 99", cuMemPoolGetAccess(&f, pool, &l), "%d", f);
  CUmemAccessDesc d;
  for (int flags = 0; flags <= 4; flags++) {
    d = access_of(0, flags);
    ASK(W("set own device to %d", flags), cuMemPoolSetAccess(pool, &d, 1));
  }
  d = access_of(99, 3);
  ASK("set device 99", cuMemPoolSetAccess(pool, &d, 1));
  for (int type = 0; type <= 5; type++) {
    d = access_of(0, 3), d.location.type = type;
    ASK(W("set location type %d", type), cuMemPoolSetAccess(pool, &d, 1));
  }
  ASK("set nothing", cuMemPoolSetAccess(pool, &d, 0));
  ASK("set nothing, NULL", cuMemPoolSetAccess(pool, NULL, 0));
  RISK("set one, NULL", cuMemPoolSetAccess(pool, NULL, 1));
  RISK("get into NULL", cuMemPoolGetAccess(NULL, pool, &l));
  RISK("get without location", cuMemPoolGetAccess(&f, pool, NULL));
  RISK("get of a NULL pool", cuMemPoolGetAccess(&f, NULL, &l));
}

static void current(void) {
  CUmemoryPool before = NULL, q = NULL;
  make();
  ASK("default", cuDeviceGetDefaultMemPool(&before, 0), "%d", before != NULL);
  ASK("current is the default", cuDeviceGetMemPool(&q, 0), "%d", q == before);
  ASK("set mine", cuDeviceSetMemPool(0, pool));
  ASK("current is mine", cuDeviceGetMemPool(&q, 0), "%d", q == pool);
  ASK("destroy the current pool", cuMemPoolDestroy(pool));
  ASK("current is the default again", cuDeviceGetMemPool(&q, 0), "%d", q == before);
  ASK("destroy the default", cuMemPoolDestroy(before));
  ASK("device 99", cuDeviceGetMemPool(&q, 99));
  ASK("default of device -1", cuDeviceGetDefaultMemPool(&q, -1));
  make();
  ASK("set mine to device 99", cuDeviceSetMemPool(99, pool));
  RISK("set NULL", cuDeviceSetMemPool(0, NULL));
  RISK("get into NULL", cuDeviceGetMemPool(NULL, 0));
  RISK("default into NULL", cuDeviceGetDefaultMemPool(NULL, 0));
  for (int type = 0; type <= 5; type++)
    for (int kind = 0; kind <= 3; kind++) {
      CUmemLocation l = {type, 0};
      q = NULL;
      ASK(W("default of location %d, type %d", type, kind), cuMemGetDefaultMemPool(&q, &l, kind), "%d %d", q != NULL,
          q == before);
      q = NULL;
      ASK(W("current of location %d, type %d", type, kind), cuMemGetMemPool(&q, &l, kind), "%d %d", q != NULL,
          q == before);
    }
  CUmemLocation l = {1, 0};
  ASK("set mine by location", cuMemSetMemPool(&l, 1, pool));
  ASK("get it by device", cuDeviceGetMemPool(&q, 0), "%d", q == pool);
  ASK("set mine as managed", cuMemSetMemPool(&l, 2, pool));
  l.type = 2;
  ASK("set mine for the host", cuMemSetMemPool(&l, 1, pool));
}

static void allocating(void) {
  make();
  CUdeviceptr m = 0, n = 0;
  CUstream s;
  DO(cuStreamCreate(&s, 0));
  m = 7;
  ASK("size 0", cuMemAllocFromPoolAsync(&m, 0, pool, s), "%d", m == 7);
  ASK("size 0 of the default", cuMemAllocAsync(&m, 0, s));
  ASK("too much", cuMemAllocFromPoolAsync(&m, (size_t)1 << 40, pool, s));
  ASK("plain", cuMemAllocFromPoolAsync(&m, 100, pool, s));
  ASK("aligned", cuMemAllocFromPoolAsync(&n, 100, pool, s), "%d %d", m % 512 == 0, n % 512 == 0);
  CUdeviceptr base;
  size_t size = 0;
  ASK("range", cuMemGetAddressRange(&base, &size, m + 5), "%d %zu", base == m, size);
  ASK("range of a byte behind", cuMemGetAddressRange(&base, &size, m + 100));
  ASK("free a middle", cuMemFreeAsync(m + 1, s));
  ASK("free 0", cuMemFreeAsync(0, s));
  ASK("free", cuMemFreeAsync(m, s));
  ASK("free twice in the same stream", cuMemFreeAsync(m, s));
  DO(cuStreamSynchronize(s));
  ASK("free after that", cuMemFreeAsync(m, s));
  ASK("cuMemFree of pool memory", cuMemFree(n));
  ASK("cuMemFree again", cuMemFree(n));
  CUdeviceptr d = 0;
  DO(cuMemAlloc(&d, 100));
  ASK("free of cuMemAlloc in a stream", cuMemFreeAsync(d, s));
  DO(cuMemAllocFromPoolAsync(&m, 100, pool, s));
  DO(cuStreamSynchronize(s));
  ASK("destroy the pool with memory", cuMemPoolDestroy(pool));
  unsigned char byte = 3;
  ASK("its memory still works", cuMemcpyHtoD(m, &byte, 1));
  ASK("and is freed", cuMemFreeAsync(m, s));
  RISK("alloc into NULL", cuMemAllocAsync(NULL, 100, s));
  RISK("alloc of a NULL pool", cuMemAllocFromPoolAsync(&m, 100, NULL, s));
}

static void limited(void) {
  CUmemPoolProps p = pool_on_device(0);
  p.maxSize = 40 * MIB;
  DO(cuMemPoolCreate(&pool, &p));
  CUdeviceptr m[4] = {0};
  ASK("beyond the largest size", cuMemAllocFromPoolAsync(&m[0], 100 * MIB, pool, 0));
  ASK("half of it", cuMemAllocFromPoolAsync(&m[1], 20 * MIB, pool, 0));
  ASK("the other half", cuMemAllocFromPoolAsync(&m[2], 20 * MIB, pool, 0));
  ASK("rounded up to 64 MiB", cuMemAllocFromPoolAsync(&m[3], 20 * MIB, pool, 0));
  ASK("one more", cuMemAllocFromPoolAsync(&m[0], 20 * MIB, pool, 0));
  uint64_t value = 0;
  ASK("reserved", cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &value), "%llu",
      (unsigned long long)value);
  ASK("used", cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &value), "%llu", (unsigned long long)value);
}

CASES RUN(creating) RUN(attributes) RUN(accesses) RUN(current) RUN(allocating) RUN(limited) END
