/* Address ranges: reserving, mapping, unmapping, freeing. */
#include "ask.h"

static CUmemGenericAllocationHandle physical(size_t size) {
  CUmemAllocationProp p = pinned();
  CUmemGenericAllocationHandle h = 0;
  DO(cuMemCreate(&h, size, &p, 0));
  return h;
}

static void reserve(void) {
  CUdeviceptr a = 0, b = 0;
  size_t sizes[] = {0, 1, 4096, 65536, MIB, 2 * MIB, 3 * MIB, (size_t)1 << 40};
  for (int i = 0; i < 8; i++) {
    b = 7;
    ASK(W("size %zu", sizes[i]), cuMemAddressReserve(&b, sizes[i], 0, 0, 0), "%d", b != 7);
  }
  size_t alignments[] = {1, 3, 512, 4096, 65536, 2 * MIB, 4 * MIB, 6 * MIB, 1024 * MIB};
  for (int i = 0; i < 9; i++) {
    b = 0;
    ASK(W("alignment %zu", alignments[i]), cuMemAddressReserve(&b, 2 * MIB, alignments[i], 0, 0), "%d",
        b && b % alignments[i] == 0);
  }
  for (int flag = 1; flag <= 4; flag *= 2) ASK(W("flags %d", flag), cuMemAddressReserve(&b, 2 * MIB, 0, 0, flag));
  DO(cuMemAddressReserve(&a, 64 * MIB, 0, 0, 0));
  ASK("a hint that is taken", cuMemAddressReserve(&b, 2 * MIB, 0, a, 0), "%d", b != a);
  DO(cuMemAddressFree(a, 64 * MIB));
  ASK("a hint that is free", cuMemAddressReserve(&b, 2 * MIB, 0, a, 0), "%d", b == a);
  ASK("a hint that is odd", cuMemAddressReserve(&b, 2 * MIB, 0, a + 1, 0), "%d", b % (2 * MIB) == 0);
  ASK("a hint beyond user addresses", cuMemAddressReserve(&b, 2 * MIB, 0, (CUdeviceptr)1 << 63, 0));
  RISK("without a pointer", cuMemAddressReserve(NULL, 2 * MIB, 0, 0, 0));
}

static void freeing(void) {
  CUdeviceptr a = 0, d = 0;
  DO(cuMemAddressReserve(&a, 8 * MIB, 0, 0, 0));
  ASK("half", cuMemAddressFree(a, 4 * MIB));
  ASK("more", cuMemAddressFree(a, 10 * MIB));
  ASK("of size 0", cuMemAddressFree(a, 0));
  ASK("from its middle", cuMemAddressFree(a + 4 * MIB, 4 * MIB));
  ASK("from its second byte", cuMemAddressFree(a + 1, 8 * MIB));
  CUmemGenericAllocationHandle h = physical(2 * MIB);
  DO(cuMemMap(a, 2 * MIB, 0, h, 0));
  ASK("with a mapping", cuMemAddressFree(a, 8 * MIB));
  ASK("cuMemFree of a mapping", cuMemFree(a));
  ASK("cuMemFreeAsync of a mapping", cuMemFreeAsync(a, 0));
  DO(cuMemUnmap(a, 2 * MIB));
  ASK("whole", cuMemAddressFree(a, 8 * MIB));
  ASK("again", cuMemAddressFree(a, 8 * MIB));
  ASK("address 0", cuMemAddressFree(0, 2 * MIB));
  DO(cuMemAlloc(&d, 2 * MIB));
  ASK("of cuMemAlloc", cuMemAddressFree(d, 2 * MIB));
}

static void mapping(void) {
  CUdeviceptr a = 0, d = 0;
  DO(cuMemAddressReserve(&a, 16 * MIB, 0, 0, 0));
  CUmemGenericAllocationHandle h = physical(4 * MIB);
  ASK("size 0", cuMemMap(a, 0, 0, h, 0));
  ASK("less than a granule", cuMemMap(a, 65536, 0, h, 0));
  ASK("half of the memory", cuMemMap(a, 2 * MIB, 0, h, 0));
  ASK("more than the memory", cuMemMap(a, 6 * MIB, 0, h, 0));
  ASK("offset of half", cuMemMap(a, 2 * MIB, 2 * MIB, h, 0));
  ASK("offset that is odd", cuMemMap(a, 4 * MIB, 1, h, 0));
  ASK("flags 1", cuMemMap(a, 4 * MIB, 0, h, 1));
  ASK("an odd address", cuMemMap(a + 1, 4 * MIB, 0, h, 0));
  ASK("an address between granules", cuMemMap(a + MIB, 4 * MIB, 0, h, 0));
  ASK("beyond the range", cuMemMap(a + 14 * MIB, 4 * MIB, 0, h, 0));
  ASK("address 0", cuMemMap(0, 4 * MIB, 0, h, 0));
  ASK("whole", cuMemMap(a, 4 * MIB, 0, h, 0));
  ASK("again at the same place", cuMemMap(a, 4 * MIB, 0, h, 0));
  ASK("overlapping", cuMemMap(a + 2 * MIB, 4 * MIB, 0, h, 0));
  ASK("at a second place", cuMemMap(a + 8 * MIB, 4 * MIB, 0, h, 0));
  ASK("unmap half", cuMemUnmap(a, 2 * MIB));
  ASK("unmap across a gap", cuMemUnmap(a, 12 * MIB));
  ASK("unmap size 0", cuMemUnmap(a, 0));
  ASK("unmap from the middle", cuMemUnmap(a + 2 * MIB, 2 * MIB));
  ASK("unmap address 0", cuMemUnmap(0, 4 * MIB));
  ASK("unmap", cuMemUnmap(a, 4 * MIB));
  ASK("unmap again", cuMemUnmap(a, 4 * MIB));
  ASK("unmap what was never mapped", cuMemUnmap(a + 4 * MIB, 4 * MIB));
  DO(cuMemAlloc(&d, 4 * MIB));
  ASK("unmap of cuMemAlloc", cuMemUnmap(d, 4 * MIB));
  ASK("map over cuMemAlloc", cuMemMap(d, 4 * MIB, 0, h, 0));
  RISK("handle 0", cuMemMap(a, 4 * MIB, 0, 0, 0));
}

static void neighbours(void) {
  CUdeviceptr a = 0, b = 0;
  DO(cuMemAddressReserve(&a, 4 * MIB, 0, 0, 0));
  DO(cuMemAddressReserve(&b, 4 * MIB, 0, a + 4 * MIB, 0));
  SAY("the second follows the first", "%d", b == a + 4 * MIB);
  CUmemGenericAllocationHandle h = physical(4 * MIB), one = physical(2 * MIB), two = physical(2 * MIB);
  ASK("map across both", cuMemMap(a + 2 * MIB, 4 * MIB, 0, h, 0));
  cuMemUnmap(a + 2 * MIB, 4 * MIB);
  DO(cuMemMap(a, 2 * MIB, 0, one, 0));
  DO(cuMemMap(a + 2 * MIB, 2 * MIB, 0, two, 0));
  CUmemAccessDesc both = access_of(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  ASK("access to two mappings", cuMemSetAccess(a, 4 * MIB, &both, 1));
  ASK("set two mappings", cuMemsetD8(a, 1, 4 * MIB));
  ASK("set across their border", cuMemsetD8(a + 2 * MIB - 8, 2, 16));
  unsigned char bytes[16] = {0};
  ASK("copy across their border", cuMemcpyDtoH(bytes, a + 2 * MIB - 8, 16), "%d %d", bytes[0], bytes[15]);
  CUdeviceptr base = 0;
  size_t size = 0;
  ASK("range of the first", cuMemGetAddressRange(&base, &size, a), "%d %zu", base == a, size);
  ASK("range of the second", cuMemGetAddressRange(&base, &size, a + 3 * MIB), "%d %zu", base == a + 2 * MIB, size);
  ASK("unmap both at once", cuMemUnmap(a, 4 * MIB));
}

CASES RUN(reserve) RUN(freeing) RUN(mapping) RUN(neighbours) END
