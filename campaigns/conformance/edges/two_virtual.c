/* Two devices: virtual memory placed on either, access set for one, both, none; what each context may do. */
#include "two.h"

static size_t size_ = 2 * MIB;

static CUmemGenericAllocationHandle made(int d) {
  CUmemGenericAllocationHandle h = 0;
  CUmemAllocationProp p = pinned();
  p.location.id = d;
  DO(cuMemCreate(&h, size_, &p, 0));
  return h;
}

static CUdeviceptr mapped(int d) {
  CUdeviceptr a = 0;
  CUmemGenericAllocationHandle h = made(d);
  DO(cuMemAddressReserve(&a, size_, 0, 0, 0));
  DO(cuMemMap(a, size_, 0, h, 0));
  DO(cuMemRelease(h));
  return a;
}

static void told(const char *when, CUdeviceptr a) {
  for (int d = 0; d <= 2; d++) {
    unsigned long long flags = 77;
    CUmemLocation l = {CU_MEM_LOCATION_TYPE_DEVICE, d};
    ASK(W("%s: access of %d", when, d), cuMemGetAccess(&flags, &l, a), "%llu", flags);
  }
}

static void placing(void) {
  both();
  for (int d = -1; d <= 2; d++) {
    CUmemGenericAllocationHandle h = 0;
    CUmemAllocationProp p = pinned();
    p.location.id = d;
    size_t g = 7;
    ASK(W("granularity on %d", d), cuMemGetAllocationGranularity(&g, &p, CU_MEM_ALLOC_GRANULARITY_MINIMUM), "%zu", g);
    g = 7;
    ASK(W("recommended on %d", d), cuMemGetAllocationGranularity(&g, &p, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED), "%zu",
        g);
    ASK(W("create on %d", d), cuMemCreate(&h, size_, &p, 0));
    if (!h) continue;
    SET(p);
    ASK(W("properties on %d", d), cuMemGetAllocationPropertiesFromHandle(&p, h), "%d %d %d", p.type, p.location.type,
        p.location.id);
    ASK(W("release on %d", d), cuMemRelease(h));
  }
  DO(cuCtxSetCurrent(NULL));
  CUmemGenericAllocationHandle h = 0;
  CUmemAllocationProp p = pinned();
  p.location.id = 1;
  ASK("create on 1, none current", cuMemCreate(&h, size_, &p, 0));
  CUdeviceptr a = 0;
  ASK("reserve, none current", cuMemAddressReserve(&a, size_, 0, 0, 0));
  ASK("map, none current", cuMemMap(a, size_, 0, h, 0));
  CUmemAccessDesc x = access_of(1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  ASK("access, none current", cuMemSetAccess(a, size_, &x, 1));
  on(1);
  ASK("set on 1", cuMemsetD8(a, 0x41, 64));
  ASK("its end", cuCtxSynchronize(), "%x", word(1, a));
}

static void accesses(void) {
  both();
  for (int d = 0; d < 2; d++) {
    CUdeviceptr a = mapped(d);
    told(W("on %d, none", d), a);
    static const int kinds[] = {1, 3, 0, 2, 7};
    for (int f = 0; f <= 2; f++)
      for (int k = 0; k < 5; k++) {
        CUmemAccessDesc x = access_of(f, kinds[k]);
        ASK(W("on %d, %d for %d", d, kinds[k], f), cuMemSetAccess(a, size_, &x, 1));
        if (f < 2 && k < 3) told(W("on %d, %d for %d", d, kinds[k], f), a);
      }
    CUmemAccessDesc two[] = {access_of(0, 3), access_of(1, 3)}, same[] = {access_of(0, 1), access_of(0, 3)},
                    bad[] = {access_of(0, 1), access_of(4, 3)};
    ASK(W("on %d, both", d), cuMemSetAccess(a, size_, two, 2));
    told(W("on %d, both", d), a);
    ASK(W("on %d, one twice", d), cuMemSetAccess(a, size_, same, 2));
    told(W("on %d, one twice", d), a);
    ASK(W("on %d, one wrong", d), cuMemSetAccess(a, size_, bad, 2));
    told(W("on %d, one wrong", d), a);
    ASK(W("on %d, none of them", d), cuMemSetAccess(a, size_, two, 0));
    ASK(W("on %d, half", d), cuMemSetAccess(a, size_ / 2, two, 2));
  }
}

static void using(void) {
  both();
  for (int d = 0; d < 2; d++)
    for (int f = 0; f < 4; f++) {
      CUdeviceptr a = mapped(d), b = memory(0, 4096, 0x21);
      for (int i = 0; i < 2; i++) {
        CUmemAccessDesc x = access_of(i, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        if (f >> i & 1) DO(cuMemSetAccess(a, size_, &x, 1));
      }
      for (int now = 0; now < 2; now++) {
        on(now);
        int ordinal = 77, type = 77;
        CUcontext c = NULL;
        char host[64] = "";
        char w[100];
        snprintf(w, sizeof w, "on %d, access %d, %d current", d, f, now);
        ASK(W("%s: ordinal", w), cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, a), "%d",
            ordinal);
        ASK(W("%s: type", w), cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, a), "%d", type);
        ASK(W("%s: context", w), cuPointerGetAttribute(&c, CU_POINTER_ATTRIBUTE_CONTEXT, a), "%d", c != NULL);
        if (f >> now & 1) {
          ASK(W("%s: set", w), cuMemsetD8(a, 0x51, 64), "%d", cuCtxSynchronize());
          ASK(W("%s: to the host", w), cuMemcpyDtoH(host, a, 64), "%d", host[63]);
          ASK(W("%s: from the host", w), cuMemcpyHtoD(a + 64, host, 64));
          ASK(W("%s: from 0", w), cuMemcpyDtoD(a, b, 64), "%d %x", cuCtxSynchronize(), word(now, a));
        } else {
          ALONE(W("%s: set", w), cuMemsetD8(a, 0x51, 64), "%d", cuCtxSynchronize());
          if (!f) ALONE(W("%s: to the host", w), cuMemcpyDtoH(host, a, 64));
        }
      }
    }
}

static void mixing(void) {
  both();
  CUdeviceptr a = 0;
  CUmemGenericAllocationHandle h[2] = {made(0), made(1)}, got = 0;
  DO(cuMemAddressReserve(&a, 2 * size_, 0, 0, 0));
  for (int d = 0; d < 2; d++) ASK(W("half on %d", d), cuMemMap(a + d * size_, size_, 0, h[d], 0));
  CUmemAccessDesc two[] = {access_of(0, 3), access_of(1, 3)};
  ASK("access of both to both", cuMemSetAccess(a, 2 * size_, two, 2));
  ASK("set across the border", cuMemsetD8(a + size_ - 64, 0x61, 128));
  ASK("its end", cuCtxSynchronize(), "%x %x", word(0, a + size_ - 64), word(1, a + size_));
  int o[2] = {7, 7};
  for (int d = 0; d < 2; d++)
    ASK(W("ordinal of half %d", d), cuPointerGetAttribute(&o[d], CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, a + d * size_),
        "%d", o[d]);
  ASK("handle of 1's half", cuMemRetainAllocationHandle(&got, (void *)(a + size_)), "%d", got == h[1]);
  ASK("reset 1", cuDevicePrimaryCtxReset(1));
  told("after the reset", a + size_);
  ASK("set of 0's half", cuMemsetD8(a, 1, 64));
  ASK("end of that", cuCtxSynchronize());
  ASK("unmap both", cuMemUnmap(a, 2 * size_));
  ASK("free both", cuMemAddressFree(a, 2 * size_));
}

CASES RUN(placing) RUN(accesses) RUN(using) RUN(mixing) END
