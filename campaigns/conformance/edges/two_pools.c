/* Two devices: memory pools of each: default and current ones, allocations for the other, frees across, access. */
#include "two.h"

static CUstream s[2];

static void make(void) {
  both();
  for (int d = 0; d < 2; d++) {
    on(d);
    DO(cuStreamCreate(&s[d], CU_STREAM_NON_BLOCKING));
  }
  on(0);
}

static CUmemoryPool pool_of(int d) {
  CUmemoryPool p = NULL;
  CUmemPoolProps x = pool_on_device(CU_MEM_HANDLE_TYPE_NONE);
  x.location.id = d;
  DO(cuMemPoolCreate(&p, &x));
  return p;
}

static void defaults(void) {
  make();
  CUmemoryPool d[3] = {NULL}, c[3] = {NULL}, m = NULL;
  for (int i = -1; i <= 2; i++) {
    CUmemoryPool p = NULL;
    ASK(W("default of %d", i), cuDeviceGetDefaultMemPool(&p, i), "%d", p != NULL);
    if (i >= 0) d[i] = p;
    ASK(W("current of %d", i), cuDeviceGetMemPool(&p, i));
    if (i >= 0) c[i] = p;
    CUmemLocation l = {CU_MEM_LOCATION_TYPE_DEVICE, i};
    p = NULL;
    ASK(W("default at location %d", i), cuMemGetDefaultMemPool(&p, &l, CU_MEM_ALLOCATION_TYPE_PINNED), "%d",
        i >= 0 && p == d[i]);
    p = NULL;
    ASK(W("current at location %d", i), cuMemGetMemPool(&p, &l, CU_MEM_ALLOCATION_TYPE_PINNED), "%d",
        i >= 0 && p == c[i]);
  }
  SAY("they differ", "%d %d %d", d[0] != d[1], d[0] == c[0], d[1] == c[1]);
  CUmemoryPool mine = pool_of(1);
  ASK("0 takes the default of 1", cuDeviceSetMemPool(0, d[1]));
  ASK("0 takes a pool of 1", cuDeviceSetMemPool(0, mine));
  ASK("1 takes a pool of 1", cuDeviceSetMemPool(1, mine));
  ASK("2 takes it", cuDeviceSetMemPool(2, mine));
  ASK("current of 1 then", cuDeviceGetMemPool(&m, 1), "%d", m == mine);
  ASK("current of 0 then", cuDeviceGetMemPool(&m, 0), "%d", m == d[0]);
  CUdeviceptr p = 0;
  ASK("allocate in 1's stream", cuMemAllocAsync(&p, 4096, s[1]), "%d", where(p));
  CUmemoryPool of_p = NULL;
  ASK("from which", cuPointerGetAttribute(&of_p, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, p), "%d", of_p == mine);
  ASK("destroy the current pool of 1", cuMemPoolDestroy(mine));
  ASK("current of 1 after that", cuDeviceGetMemPool(&m, 1), "%d", m == d[1]);
  ASK("free of that memory", cuMemFreeAsync(p, s[1]));
  ASK("destroy a default one", cuMemPoolDestroy(d[1]));
  CUmemLocation l = {CU_MEM_LOCATION_TYPE_DEVICE, 1};
  ASK("set the pool of 0 at location 1", cuMemSetMemPool(&l, CU_MEM_ALLOCATION_TYPE_PINNED, d[0]));
  RISK("1 takes NULL", cuDeviceSetMemPool(1, NULL));
}

static void making(void) {
  make();
  for (int d = -1; d <= 2; d++) {
    CUmemPoolProps x = pool_on_device(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    x.location.id = d;
    CUmemoryPool p = NULL;
    ASK(W("on %d", d), cuMemPoolCreate(&p, &x));
    for (int f = 0; f <= 2 && p; f++) {
      CUmemAccess_flags flags = 77;
      CUmemLocation l = {CU_MEM_LOCATION_TYPE_DEVICE, f};
      ASK(W("access of %d to it, on %d", f, d), cuMemPoolGetAccess(&flags, p, &l), "%d", flags);
    }
  }
}

static void across(void) {
  make();
  CUmemoryPool pools[2] = {pool_of(0), pool_of(1)};
  for (int now = -1; now < 2; now++) {
    DO(cuCtxSetCurrent(now < 0 ? NULL : of[now]));
    for (int i = 0; i < 2; i++)
      for (int j = 0; j < 2; j++) {
        CUdeviceptr p = 0;
        ASK(W("from %d's in %d's stream, %d current", i, j, now), cuMemAllocFromPoolAsync(&p, 4096, pools[i], s[j]),
            "%d", where(p));
        if (i == j) ASK(W("set it in %d's stream, %d current", j, now), cuMemsetD8Async(p, 0x61, 64, s[j]));
        else if (!now)
          ALONE(W("set it in %d's stream, from %d's", j, i), cuMemsetD8Async(p, 0x61, 64, s[j]), "%d", settled(s[j]));
        ASK(W("free it in %d's stream, from %d's, %d current", !j, i, now), cuMemFreeAsync(p, s[!j]));
        ASK(W("both at rest, %d's in %d's, %d current", i, j, now), settled(s[j]), "%d", settled(s[!j]));
      }
    for (int j = 0; j < 2; j++) {
      CUdeviceptr p = 0;
      ASK(W("in %d's stream, %d current", j, now), cuMemAllocAsync(&p, 4096, s[j]), "%d", where(p));
      DO(cuStreamSynchronize(s[j]));
      ASK(W("free at once, %d's stream, %d current", j, now), cuMemFree(p));
      ASK(W("free twice, %d's stream, %d current", j, now), cuMemFreeAsync(p, s[j]));
    }
    CUdeviceptr p = 0;
    ASK(W("in NULL, %d current", now), cuMemAllocAsync(&p, 4096, NULL), "%d", where(p));
    ASK(W("from 1's in NULL, %d current", now), cuMemAllocFromPoolAsync(&p, 4096, pools[1], NULL), "%d", where(p));
  }
}

static void accesses(void) {
  make();
  CUmemoryPool m = pool_of(1);
  CUdeviceptr p = 0, a = memory(0, 4096, 0x11);
  DO(cuMemAllocFromPoolAsync(&p, 4096, m, s[1]));
  DO(cuStreamSynchronize(s[1]));
  CUmemLocation l = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemAccess_flags flags = 77;
  ALONE("set without access", cuMemsetD8(p, 0x41, 64));
  ALONE("copy without access", cuMemcpyDtoD(p, a, 64));
  ASK("at rest without access", cuCtxSynchronize());
  static const int kinds[] = {0, 1, 3, 2, 7};
  for (int d = 0; d <= 2; d++)
    for (int k = 0; k < 5; k++) {
      CUmemAccessDesc x = access_of(d, kinds[k]);
      ASK(W("access %d of %d", kinds[k], d), cuMemPoolSetAccess(m, &x, 1));
      flags = 77;
      ASK(W("after %d of %d", kinds[k], d), cuMemPoolGetAccess(&flags, m, &l), "%d", flags);
    }
  CUmemAccessDesc two[] = {access_of(0, 3), access_of(1, 3)}, bad[] = {access_of(0, 0), access_of(5, 3)};
  ASK("both", cuMemPoolSetAccess(m, two, 2));
  ASK("one of them wrong", cuMemPoolSetAccess(m, bad, 2));
  ASK("what is left", cuMemPoolGetAccess(&flags, m, &l), "%d", flags);
  ASK("none of them", cuMemPoolSetAccess(m, two, 0));
  ASK("set with access", cuMemsetD8(p, 0x42, 64));
  ASK("its end", cuCtxSynchronize(), "%x", word(1, p));
  CUmemoryPool base = NULL;
  DO(cuDeviceGetDefaultMemPool(&base, 1));
  ASK("to the default one of 1", cuMemPoolSetAccess(base, two, 1));
  ASK("access to it", cuMemPoolGetAccess(&flags, base, &l), "%d", flags);
  RISK("NULL access", cuMemPoolSetAccess(m, NULL, 1));
}

static void ends(void) {
  make();
  CUmemoryPool m = pool_of(1);
  CUdeviceptr p = 0;
  DO(cuMemAllocFromPoolAsync(&p, 4096, m, s[1]));
  DO(cuStreamSynchronize(s[1]));
  cuuint64_t used = 7;
  ASK("used", cuMemPoolGetAttribute(m, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used), "%d", (int)used);
  ASK("reset 1", cuDevicePrimaryCtxReset(1));
  ASK("used after the reset", cuMemPoolGetAttribute(m, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used), "%d", (int)used);
  ASK("where the memory is then", 0, "%d", where(p));
  ASK("free it in 0's stream", cuMemFreeAsync(p, s[0]));
  ASK("destroy the pool", cuMemPoolDestroy(m));
}

CASES RUN(defaults) RUN(making) RUN(across) RUN(accesses) RUN(ends) END
