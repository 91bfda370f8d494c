/* Two devices: virtual memory made on 1: access of each location, granularity, handles exported and retained. */
#include "two.h"
#define NAME(w, ...) \
  char w[100];       \
  snprintf(w, sizeof w, __VA_ARGS__) /* W has room for only a few at a time */

#define SIZE (2 * MIB)
static CUmemAllocationProp prop(int d, int handles) {
  CUmemAllocationProp p = pinned();
  p.location.id = d, p.requestedHandleTypes = handles;
  return p;
}
static CUmemGenericAllocationHandle made(int d, int handles) {
  CUmemGenericAllocationHandle h = 0;
  CUmemAllocationProp p = prop(d, handles);
  DO(cuMemCreate(&h, SIZE, &p, 0));
  return h;
}
static CUdeviceptr mapped(CUmemGenericAllocationHandle h) {
  CUdeviceptr p = 0;
  DO(cuMemAddressReserve(&p, SIZE, 0, 0, 0));
  DO(cuMemMap(p, SIZE, 0, h, 0));
  return p;
}

static void creating(void) {
  both();
  for (int now = -1; now < 2; now++) {
    on(now);
    for (int d = -1; d <= 2; d++) {
      CUmemAllocationProp p = prop(d, 0);
      CUmemGenericAllocationHandle h = 0;
      size_t least = 77, best = 77;
      NAME(w, "%d current, on %d", now, d);
      ASK(W("%s: least granularity", w), cuMemGetAllocationGranularity(&least, &p, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
          "%zu", least);
      ASK(W("%s: best granularity", w), cuMemGetAllocationGranularity(&best, &p, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
          "%zu", best);
      ASK(W("%s: create", w), cuMemCreate(&h, SIZE, &p, 0));
      if (!h) continue;
      ASK(W("%s: properties", w), cuMemGetAllocationPropertiesFromHandle(&p, h), "%d %d %d", p.type, p.location.type,
          p.location.id);
      ASK(W("%s: release", w), cuMemRelease(h));
    }
  }
}

static void accesses(void) {
  both();
  CUdeviceptr p = mapped(made(1, 0)), mine = memory(0, 4096, 0);
  for (int now = 0; now < 2; now++) {
    on(now);
    for (int kind = 0; kind <= 4; kind++)
      for (int id = -1; id <= 2; id++)
        for (int flags = 0; flags <= 3; flags++) {
          if (kind != CU_MEM_LOCATION_TYPE_DEVICE && id != 0) continue;
          CUmemAccessDesc x = {{kind, id}, flags};
          NAME(w, "%d current, kind %d, %d, flags %d", now, kind, id, flags);
          ASK(w, cuMemSetAccess(p, SIZE, &x, 1));
          for (int d = 0; d < 2; d++) {
            CUmemLocation l = {CU_MEM_LOCATION_TYPE_DEVICE, d};
            unsigned long long f = 77;
            ASK(W("%s: then of %d", w, d), cuMemGetAccess(&f, &l, p), "%llu", f);
          }
        }
  }
  CUmemLocation l[] = {{CU_MEM_LOCATION_TYPE_HOST, 0},
                       {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0},
                       {CU_MEM_LOCATION_TYPE_DEVICE, 2},
                       {CU_MEM_LOCATION_TYPE_DEVICE, -1}};
  unsigned long long f = 77;
  for (int i = 0; i < 4; i++) ASK(W("access of location %d", i), cuMemGetAccess(&f, &l[i], p), "%llu", f);
  CUmemAccessDesc x[2] = {access_of(0, 3), access_of(1, 3)}, odd[2] = {access_of(0, 0), access_of(0, 3)},
                  bad[2] = {access_of(0, 0), access_of(5, 3)};
  ASK("both at once", cuMemSetAccess(p, SIZE, x, 2));
  ASK("one wrong of two", cuMemSetAccess(p, SIZE, bad, 2));
  l[0].type = CU_MEM_LOCATION_TYPE_DEVICE;
  ASK("0 after that", cuMemGetAccess(&f, &l[0], p), "%llu", f);
  ASK("the same twice", cuMemSetAccess(p, SIZE, odd, 2), "%d %llu", cuMemGetAccess(&f, &l[0], p), f);
  DO(cuMemSetAccess(p, SIZE, x, 2));
  on(0);
  ASK("set by 0", cuMemsetD8(p, 0x12, 64), "%d", cuCtxSynchronize());
  ASK("copy by 0", cuMemcpyDtoD(mine, p, 64), "%x", word(0, mine));
  RISK("access of NULL", cuMemGetAccess(&f, NULL, p));
  RISK("set NULL", cuMemSetAccess(p, SIZE, NULL, 1));
}

static void handles(void) {
  both();
  int fd = -1;
  CUmemGenericAllocationHandle h = made(1, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR), plain = made(1, 0), i = 0, r = 0;
  CUdeviceptr p = mapped(h), q;
  CUmemAllocationProp got = prop(7, 0);
  CUmemAccessDesc x = access_of(0, 3), y = access_of(1, 3);
  ASK("export what was not made for it",
      cuMemExportToShareableHandle(&fd, plain, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  on(0);
  ASK("export, 0 current", cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0), "%d",
      fd >= 0);
  ASK("import, 0 current",
      cuMemImportFromShareableHandle(&i, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR), "%d", i == h);
  ASK("where it is", cuMemGetAllocationPropertiesFromHandle(&got, i), "%d %d %d", got.location.type, got.location.id,
      got.requestedHandleTypes);
  q = mapped(i);
  ASK("access of 0 by the second mapping", cuMemSetAccess(q, SIZE, &x, 1));
  ASK("access of 1 by the first", cuMemSetAccess(p, SIZE, &y, 1));
  ASK("set by 0", cuMemsetD8(q, 0x34, 64), "%d", cuCtxSynchronize());
  int ordinal = 77;
  ASK("ordinal of the second", cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, q), "%d", ordinal);
  ASK("retain by the second", cuMemRetainAllocationHandle(&r, (void *)(q + 64)), "%d %d", r == h, r == i);
  ASK("release the import", cuMemRelease(i));
  ASK("release the first", cuMemRelease(h));
  ASK("unmap the first", cuMemUnmap(p, SIZE));
  ASK("what the second has by 0", 0, "%x", word(0, q));
  ASK("retain what is not mapped", cuMemRetainAllocationHandle(&r, (void *)p));
  ASK("retain plain memory of 1", cuMemRetainAllocationHandle(&r, (void *)memory(1, 4096, 0)));
  ASK("reset 1", cuDevicePrimaryCtxReset(1));
  ASK("what the second has after the reset", 0, "%x", word(0, q));
  ASK("unmap the second", cuMemUnmap(q, SIZE));
}

CASES RUN(creating) RUN(accesses) RUN(handles) END
