/* Mappings that reach over the end of their reservation, and what can be done with them. */
#include "ask.h"
#define G (2 * MIB)

static CUmemGenericAllocationHandle made(size_t size) {
  CUmemAllocationProp p = pinned();
  CUmemGenericAllocationHandle h = 0;
  DO(cuMemCreate(&h, size, &p, 0));
  return h;
}
static void asks(const char *name, CUdeviceptr at, size_t size) {
  CUmemAccessDesc d = access_of(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  CUmemLocation l = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  unsigned long long flags = 77;
  CUdeviceptr base = 0;
  size_t found = 0;
  unsigned v = 77;
  ASK(W("%s: access to its first part", name), cuMemSetAccess(at, G, &d, 1));
  ASK(W("%s: access to all", name), cuMemSetAccess(at, size, &d, 1));
  ASK(W("%s: access of the first", name), cuMemGetAccess(&flags, &l, at), "%llu", flags);
  ASK(W("%s: access of the last", name), cuMemGetAccess(&flags, &l, at + size - G), "%llu", flags);
  ASK(W("%s: range of the last", name), cuMemGetAddressRange(&base, &found, at + size - 1), "%lld %zu",
      (long long)(base - at), found);
  ASK(W("%s: fill all", name), cuMemsetD8(at, 5, size));
  ASK(W("%s: read the last", name), cuMemcpyDtoH(&v, at + size - 4, 4), "%x", v);
  static const CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                                              CU_POINTER_ATTRIBUTE_MAPPED, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR};
  for (int i = 0; i < 4; i++) {
    unsigned long long x = 0;
    int code = cuPointerGetAttribute(&x, which[i], at + size - 1);
    SAY(W("%s: attribute %d of the last", name, which[i]), "%d %llu", code,
        i == 3 && x ? (unsigned long long)(x - at) : x);
  }
}
static void over(void) {
  CUdeviceptr p = 0, q = 0;
  DO(cuMemAddressReserve(&p, 2 * G, 0, 0, 0));
  ASK("over the end by one", cuMemMap(p + G, 2 * G, 0, made(2 * G), 0));
  asks("over", p + G, 2 * G);
  ASK("free the reservation", cuMemAddressFree(p, 2 * G));
  ASK("reserve behind it", cuMemAddressReserve(&q, G, 0, p + 2 * G, 0), "%lld", (long long)(q - p) / (long long)G);
  ASK("again over the end", cuMemMap(p + G, 2 * G, 0, made(2 * G), 0));
  ASK("map below it", cuMemMap(p, G, 0, made(G), 0));
  ASK("map in what is covered", cuMemMap(p + 2 * G, G, 0, made(G), 0));
  ASK("unmap the part inside", cuMemUnmap(p + G, G));
  ASK("unmap the part outside", cuMemUnmap(p + 2 * G, G));
  ASK("unmap all", cuMemUnmap(p + G, 2 * G));
  ASK("unmap all again", cuMemUnmap(p + G, 2 * G));
  ASK("unmap the one below", cuMemUnmap(p, G));
  ASK("unmap over the end of nothing", cuMemUnmap(p + G, 4 * G));
  ASK("free the reservation at last", cuMemAddressFree(p, 2 * G));
}
static void outside(void) {
  CUdeviceptr p = 0, q = 0, r = 0;
  DO(cuMemAddressReserve(&p, 4 * G, 0, 0, 0));
  ASK("just behind", cuMemMap(p + 4 * G, G, 0, made(G), 0));
  ASK("just before", cuMemMap(p - G, G, 0, made(G), 0));
  ASK("before and into", cuMemMap(p - G, 2 * G, 0, made(2 * G), 0));
  ASK("all and more", cuMemMap(p, 8 * G, 0, made(8 * G), 0));
  asks("all and more", p, 8 * G);
  DO(cuMemAlloc(&q, 64));
  DO(cuMemAddressReserve(&r, G, 0, 0, 0));
  ASK("the next reservation is inside", 0, "%d", r >= p && r < p + 8 * G);
  ASK("unmap more", cuMemUnmap(p, 9 * G));
  ASK("unmap less", cuMemUnmap(p, 4 * G));
  ASK("unmap", cuMemUnmap(p, 8 * G));
  ASK("free", cuMemAddressFree(p, 4 * G));
}
static void into_next(void) {
  CUdeviceptr p = 0, q = 0;
  DO(cuMemAddressReserve(&p, 4 * G, 0, 0, 0));
  DO(cuMemAddressFree(p, 4 * G));
  DO(cuMemAddressReserve(&q, G, 0, p, 0));
  CUdeviceptr first = q;
  DO(cuMemAddressReserve(&q, G, 0, p + 2 * G, 0)); /* a hole of one between them */
  SAY("places", "%d %d", first == p, q == p + 2 * G);
  ASK("the second first", cuMemMap(q, G, 0, made(G), 0));
  ASK("over the hole into what is mapped", cuMemMap(first, 4 * G, 0, made(4 * G), 0));
  ASK("over the hole up to what is mapped", cuMemMap(first, 2 * G, 0, made(2 * G), 0));
  ASK("unmap both as one", cuMemUnmap(first, 3 * G));
  ASK("map over the hole and the second", cuMemMap(first, 3 * G, 0, made(3 * G), 0));
  asks("three", first, 3 * G);
  ASK("free the second", cuMemAddressFree(q, G));
  ASK("free the first", cuMemAddressFree(first, G));
  ASK("unmap from the second on", cuMemUnmap(q, G));
  ASK("unmap", cuMemUnmap(first, 3 * G));
}
CASES RUN(over) RUN(outside) RUN(into_next) END
