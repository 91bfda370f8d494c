/* Access to mapped memory, what queries say of it, and use without access. */
#include "ask.h"

static CUdeviceptr a;
static CUmemGenericAllocationHandle h;

static void map(int access) {
  CUmemAllocationProp p = pinned();
  DO(cuMemCreate(&h, 4 * MIB, &p, 0));
  DO(cuMemAddressReserve(&a, 8 * MIB, 0, 0, 0));
  DO(cuMemMap(a, 4 * MIB, 0, h, 0));
  CUmemAccessDesc d = access_of(0, access);
  if (access) DO(cuMemSetAccess(a, 4 * MIB, &d, 1));
}

static void setting(void) {
  map(0);
  CUmemAccessDesc d = access_of(0, 3), two[2] = {d, d};
  ASK("half of an allocation", cuMemSetAccess(a, 2 * MIB, &d, 1));
  ASK("size 0", cuMemSetAccess(a, 0, &d, 1));
  ASK("less than a granule", cuMemSetAccess(a, 65536, &d, 1));
  ASK("more than what is mapped", cuMemSetAccess(a, 8 * MIB, &d, 1));
  ASK("from its middle", cuMemSetAccess(a + 2 * MIB, 2 * MIB, &d, 1));
  ASK("an odd address", cuMemSetAccess(a + 1, 4 * MIB, &d, 1));
  ASK("address 0", cuMemSetAccess(0, 4 * MIB, &d, 1));
  ASK("what is not mapped", cuMemSetAccess(a + 4 * MIB, 4 * MIB, &d, 1));
  ASK("no descriptor", cuMemSetAccess(a, 4 * MIB, &d, 0));
  for (int flags = 0; flags <= 7; flags++) {
    d = access_of(0, flags);
    ASK(W("flags %d", flags), cuMemSetAccess(a, 4 * MIB, &d, 1));
  }
  d = access_of(99, 3);
  ASK("device 99", cuMemSetAccess(a, 4 * MIB, &d, 1));
  d = access_of(-1, 3);
  ASK("device -1", cuMemSetAccess(a, 4 * MIB, &d, 1));
  for (int type = 0; type <= 5; type++) {
    d = access_of(0, 3), d.location.type = type;
    ASK(W("location type %d", type), cuMemSetAccess(a, 4 * MIB, &d, 1));
  }
  ASK("the same device twice", cuMemSetAccess(a, 4 * MIB, two, 2));
  two[1].flags = 1;
  ASK("the same device twice, differently", cuMemSetAccess(a, 4 * MIB, two, 2));
  CUdeviceptr m = 0;
  DO(cuMemAlloc(&m, 4 * MIB));
  d = access_of(0, 3);
  ASK("of cuMemAlloc", cuMemSetAccess(m, 4 * MIB, &d, 1));
  RISK("no descriptors, NULL", cuMemSetAccess(a, 4 * MIB, NULL, 1));
}

static void getting(void) {
  map(0);
  CUmemLocation l = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  unsigned long long f = 77;
  ASK("mapped without access", cuMemGetAccess(&f, &l, a), "%llu", f);
  f = 77;
  ASK("reserved only", cuMemGetAccess(&f, &l, a + 4 * MIB), "%llu", f);
  for (int flags = 1; flags <= 3; flags += 2) {
    CUmemAccessDesc d = access_of(0, flags);
    DO(cuMemSetAccess(a, 4 * MIB, &d, 1));
    f = 77;
    ASK(W("after access %d", flags), cuMemGetAccess(&f, &l, a), "%llu", f);
    ASK(W("last byte after access %d", flags), cuMemGetAccess(&f, &l, a + 4 * MIB - 1), "%llu", f);
  }
  l.id = 99, f = 77;
  ASK("device 99", cuMemGetAccess(&f, &l, a), "%llu", f);
  for (int type = 0; type <= 5; type++) {
    l.type = type, l.id = 0, f = 77;
    ASK(W("location type %d", type), cuMemGetAccess(&f, &l, a), "%llu", f);
  }
  l.type = CU_MEM_LOCATION_TYPE_DEVICE, f = 77;
  ASK("address 0", cuMemGetAccess(&f, &l, 0), "%llu", f);
  ASK("an address of the stack", cuMemGetAccess(&f, &l, (CUdeviceptr)&l), "%llu", f);
  CUdeviceptr m = 0;
  DO(cuMemAlloc(&m, 4 * MIB));
  f = 77;
  ASK("of cuMemAlloc", cuMemGetAccess(&f, &l, m), "%llu", f);
  DO(cuMemUnmap(a, 4 * MIB));
  f = 77;
  ASK("unmapped", cuMemGetAccess(&f, &l, a), "%llu", f);
  RISK("into NULL", cuMemGetAccess(NULL, &l, a));
  RISK("without a location", cuMemGetAccess(&f, NULL, a));
}

static void ranges(void) {
  map(0);
  CUdeviceptr base = 7;
  size_t size = 7;
  ASK("range of what has no access", cuMemGetAddressRange(&base, &size, a), "%d %zu", base == a, size);
  base = 7, size = 7;
  ASK("range of reserved only", cuMemGetAddressRange(&base, &size, a + 4 * MIB), "%d %zu", base == 7, size);
  CUmemAccessDesc d = access_of(0, 3);
  DO(cuMemSetAccess(a, 4 * MIB, &d, 1));
  ASK("range with access", cuMemGetAddressRange(&base, &size, a + 5), "%d %zu", base == a, size);
  ASK("base only", cuMemGetAddressRange(&base, NULL, a));
  ASK("size only", cuMemGetAddressRange(NULL, &size, a));
  ASK("neither", cuMemGetAddressRange(NULL, NULL, a));
}

static void no_access_set(void) {
  map(0);
  ASK("set without access", cuMemsetD8(a, 1, 16));
  ASK("synchronize", cuCtxSynchronize());
}
static void no_access_copy(void) {
  map(0);
  char bytes[16];
  ASK("copy without access", cuMemcpyDtoH(bytes, a, 16));
  ASK("synchronize", cuCtxSynchronize());
}
static void no_access_async(void) {
  map(0);
  void *host;
  DO(cuMemAllocHost(&host, 4096));
  ASK("copy without access, asynchronous", cuMemcpyDtoHAsync(host, a, 16, 0));
  ASK("synchronize", cuCtxSynchronize());
}
static void reserved_only(void) {
  map(3);
  ASK("set of reserved only", cuMemsetD8(a + 4 * MIB, 1, 16));
  ASK("synchronize", cuCtxSynchronize());
}
static void beyond(void) {
  map(3);
  ASK("set beyond the mapping", cuMemsetD8(a + 4 * MIB - 8, 1, 16));
  ASK("synchronize", cuCtxSynchronize());
}
static void read_only(void) {
  map(1);
  char bytes[16];
  ASK("copy of what is only read", cuMemcpyDtoH(bytes, a, 16));
  ASK("copy to what is only read", cuMemcpyHtoD(a, bytes, 16));
  ASK("synchronize", cuCtxSynchronize());
}
static void taken_away(void) {
  map(3);
  ASK("set", cuMemsetD8(a, 1, 16));
  DO(cuCtxSynchronize());
  CUmemAccessDesc d = access_of(0, 0);
  ASK("take access away", cuMemSetAccess(a, 4 * MIB, &d, 1));
  unsigned long long f = 77;
  ASK("access now", cuMemGetAccess(&f, &d.location, a), "%llu", f);
  d.flags = 3;
  DO(cuMemSetAccess(a, 4 * MIB, &d, 1));
  unsigned char byte = 0;
  ASK("the content is still there", cuMemcpyDtoH(&byte, a, 1), "%d", byte);
}

static void on_host(void) {
  CUmemAllocationProp p = pinned();
  p.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
  ASK("create on NUMA node 0", cuMemCreate(&h, 4 * MIB, &p, 0));
  DO(cuMemAddressReserve(&a, 4 * MIB, 0, 0, 0));
  DO(cuMemMap(a, 4 * MIB, 0, h, 0));
  CUmemAccessDesc d = access_of(0, 3), host = {{CU_MEM_LOCATION_TYPE_HOST_NUMA, 0}, 3};
  ASK("access of the device", cuMemSetAccess(a, 4 * MIB, &d, 1));
  unsigned long long f = 77;
  ASK("access of the host, not set", cuMemGetAccess(&f, &host.location, a), "%llu", f);
  ASK("access of the host", cuMemSetAccess(a, 4 * MIB, &host, 1));
  ASK("access of the host, set", cuMemGetAccess(&f, &host.location, a), "%llu", f);
  host.location.type = CU_MEM_LOCATION_TYPE_HOST;
  ASK("access of the host at large", cuMemSetAccess(a, 4 * MIB, &host, 1));
  ASK("set", cuMemsetD8(a, 5, 16));
  RISK("the host reads", cuCtxSynchronize(), "%d", *(char *)a);
  int kind = 7;
  ASK("its memory type", cuPointerGetAttribute(&kind, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, a), "%d", kind);
}

CASES RUN(setting) RUN(getting) RUN(ranges) RUN(no_access_set) RUN(no_access_copy) RUN(no_access_async)
    RUN(reserved_only) RUN(beyond) RUN(read_only) RUN(taken_away) RUN(on_host) END
