/* Two devices: peer access enabled and disabled in wrong states, beside pools, VMM and other contexts. */
#include "two.h"

static void cold(void) {
  ASK("enable before cuInit", cuCtxEnablePeerAccess(NULL, 0));
  ASK("disable before cuInit", cuCtxDisablePeerAccess(NULL));
  DO(cuInit(0));
  ASK("enable NULL, none current", cuCtxEnablePeerAccess(NULL, 0));
  ASK("disable NULL, none current", cuCtxDisablePeerAccess(NULL));
}

static void wrongs(void) {
  both();
  CUcontext gone = NULL, none;
  for (int now = -1; now < 2; now++) {
    on(now);
    for (int peer = 0; peer < 2; peer++) {
      ASK(W("%d current, disable %d", now, peer), cuCtxDisablePeerAccess(of[peer]));
      ASK(W("%d current, enable %d with flags 1", now, peer), cuCtxEnablePeerAccess(of[peer], 1));
      ASK(W("%d current, enable %d", now, peer), cuCtxEnablePeerAccess(of[peer], 0));
      ASK(W("%d current, enable %d twice with flags", now, peer), cuCtxEnablePeerAccess(of[peer], 2));
      ASK(W("%d current, disable %d then", now, peer), cuCtxDisablePeerAccess(of[peer]));
      ASK(W("%d current, disable %d twice", now, peer), cuCtxDisablePeerAccess(of[peer]));
    }
    RISK(W("%d current, enable NULL", now), cuCtxEnablePeerAccess(NULL, 0));
    RISK(W("%d current, disable NULL", now), cuCtxDisablePeerAccess(NULL));
  }
  on(0);
  DO(cuCtxCreate(&gone, NULL, 0, 1));
  DO(cuCtxPopCurrent(&none));
  DO(cuCtxDestroy(gone));
  on(0);
  RISK("enable a destroyed one", cuCtxEnablePeerAccess(gone, 0));
  RISK("disable a destroyed one", cuCtxDisablePeerAccess(gone));
}

static void several(void) {
  both();
  CUcontext more[2] = {NULL}, none;
  for (int d = 0; d < 2; d++) {
    DO(cuCtxCreate(&more[d], NULL, 0, d));
    DO(cuCtxPopCurrent(&none));
  }
  on(0);
  ASK("another context of the same device", cuCtxEnablePeerAccess(more[0], 0));
  ASK("another context of the other device", cuCtxEnablePeerAccess(more[1], 0));
  ASK("the primary one beside it", cuCtxEnablePeerAccess(of[1], 0));
  DO(cuCtxSetCurrent(more[0]));
  ASK("from another context", cuCtxEnablePeerAccess(of[1], 0));
  ASK("from another context to another", cuCtxDisablePeerAccess(more[1]));
  DO(cuCtxSetCurrent(of[1]));
  ASK("destroy the peer", cuCtxDestroy(more[1]));
  on(0);
  ASK("the primary one stays", cuCtxEnablePeerAccess(of[1], 0));
  RISK("disable the destroyed peer", cuCtxDisablePeerAccess(more[1]));
  ASK("destroy the one that accesses", cuCtxDestroy(more[0]));
  ASK("disable the primary one", cuCtxDisablePeerAccess(of[1]));
}

/* What a copy by the other device's stream gives, with what comes of it. */
static void seen(const char *what, CUdeviceptr p, CUdeviceptr mine) {
  on(0);
  DO(cuMemsetD8(mine, 0, 64));
  DO(cuCtxSynchronize());
  ASK(W("%s: copy", what), cuMemcpyDtoD(mine, p, 64), "%d", cuCtxSynchronize());
  ASK(W("%s: has", what), 0, "%x", word(0, mine));
  ASK(W("%s: set", what), cuMemsetD8(p, 0x5a, 64), "%d", cuCtxSynchronize());
  unsigned flags = 77;
  ASK(W("%s: access flags", what), cuPointerGetAttribute(&flags, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, p), "%u", flags);
}

static void beside(void) {
  both();
  CUdeviceptr mine = memory(0, 4096, 0), plain = memory(1, 4096, 0x11), pooled = 0, mapped = 0;
  CUmemoryPool pool = NULL;
  CUmemAccess_flags f = 7;
  CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  unsigned long long a = 77;
  on(1);
  DO(cuMemAllocAsync(&pooled, 4096, 0));
  DO(cuMemsetD8(pooled, 0x22, 4096));
  DO(cuDeviceGetDefaultMemPool(&pool, 1));
  CUmemAllocationProp p = pinned();
  CUmemAccessDesc desc = access_of(1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  CUmemGenericAllocationHandle h = 0;
  p.location.id = 1;
  DO(cuMemCreate(&h, 2 * MIB, &p, 0));
  DO(cuMemAddressReserve(&mapped, 2 * MIB, 0, 0, 0));
  DO(cuMemMap(mapped, 2 * MIB, 0, h, 0));
  DO(cuMemSetAccess(mapped, 2 * MIB, &desc, 1));
  DO(cuMemsetD8(mapped, 0x33, 4096));
  DO(cuCtxSynchronize());
  for (int step = 0; step < 3; step++) {
    on(0);
    if (step == 1) ASK("enable", cuCtxEnablePeerAccess(of[1], 0));
    if (step == 2) ASK("disable", cuCtxDisablePeerAccess(of[1]));
    ASK(W("step %d: access of the pool", step), cuMemPoolGetAccess(&f, pool, &here), "%d", f);
    ASK(W("step %d: access of the mapping", step), cuMemGetAccess(&a, &here, mapped), "%llu", a);
    seen(W("step %d, plain", step), plain, mine);
    unsigned flags = 77;
    ASK(W("step %d, pooled: flags", step), cuPointerGetAttribute(&flags, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, pooled),
        "%u", flags);
    ASK(W("step %d, mapped: flags", step), cuPointerGetAttribute(&flags, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, mapped),
        "%u", flags);
  }
  desc.location.id = 0;
  ASK("give the mapping to 0", cuMemSetAccess(mapped, 2 * MIB, &desc, 1));
  seen("a mapping with access", mapped, mine);
  ASK("give the pool to 0", cuMemPoolSetAccess(pool, &desc, 1));
  seen("pooled memory with access", pooled, mine);
}

CASES RUN_COLD(cold) RUN(wrongs) RUN(several) RUN(beside) END
