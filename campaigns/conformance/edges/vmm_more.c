/* Virtual memory: reserving, creating, mapping, access, unmapping and releasing, in orders good and bad; sizes,
 * granularity, fds. */
#include "ask.h"

static CUmemAllocationProp shared(void) {
  CUmemAllocationProp p = pinned();
  p.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return p;
}
static CUmemAllocationProp on(CUmemAllocationType type, CUmemLocationType where, int id) {
  CUmemAllocationProp p;
  SET(p);
  p.type = type, p.location.type = where, p.location.id = id;
  return p;
}

#define G (2 * MIB)

static void granularity(void) {
  alarm(10);
  for (int t = 0; t <= 3; t++)
    for (int l = 0; l <= 5; l++)
      for (int o = 0; o <= 1; o++) {
        CUmemAllocationProp p = on(t, l, 0);
        size_t g = 77;
        ASK(W("type %d location %d option %d", t, l, o), cuMemGetAllocationGranularity(&g, &p, o), "%zu", g);
      }
  CUmemAllocationProp p = pinned();
  size_t g = 77;
  ASK("option 2", cuMemGetAllocationGranularity(&g, &p, 2), "%zu", g);
  p.location.id = 1;
  ASK("device 1", cuMemGetAllocationGranularity(&g, &p, 0));
  p.location.id = -1;
  ASK("device -1", cuMemGetAllocationGranularity(&g, &p, 0));
  p = pinned(), p.requestedHandleTypes = 3;
  ASK("handle types 3", cuMemGetAllocationGranularity(&g, &p, 0));
  p = pinned(), p.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  g = 77;
  ASK("with fd", cuMemGetAllocationGranularity(&g, &p, 0), "%zu", g);
  p = pinned(), p.allocFlags.compressionType = 1, g = 77;
  ASK("compressed", cuMemGetAllocationGranularity(&g, &p, 0), "%zu", g);
  p = pinned(), p.allocFlags.gpuDirectRDMACapable = 1, g = 77;
  ASK("for RDMA", cuMemGetAllocationGranularity(&g, &p, 0), "%zu", g);
  p = pinned(), p.allocFlags.usage = CU_MEM_CREATE_USAGE_TILE_POOL, g = 77;
  ASK("tile pool", cuMemGetAllocationGranularity(&g, &p, 0), "%zu", g);
  p = pinned(), p.allocFlags.usage = 0x80, g = 77;
  ASK("usage 0x80", cuMemGetAllocationGranularity(&g, &p, 0), "%zu", g);
  p = pinned(), p.win32HandleMetaData = &p, g = 77;
  ASK("win32 data", cuMemGetAllocationGranularity(&g, &p, 0), "%zu", g);
  RISK("into NULL", cuMemGetAllocationGranularity(NULL, &p, 0));
  RISK("of NULL", cuMemGetAllocationGranularity(&g, NULL, 0));
}

static void reserving(void) {
  alarm(10);
  static const size_t sizes[] = {0,
                                 1,
                                 4096,
                                 65536,
                                 MIB,
                                 G - 1,
                                 G,
                                 G + 1,
                                 3 * G,
                                 512 * MIB,
                                 (size_t)64 << 30,
                                 (size_t)1 << 46,
                                 (size_t)1 << 60,
                                 (size_t)-1};
  for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    CUdeviceptr at = 0;
    ASK(W("size %zx", sizes[i]), cuMemAddressReserve(&at, sizes[i], 0, 0, 0), "%d %d", at != 0, (int)(at % G == 0));
    if (at) ASK(W("free of size %zx", sizes[i]), cuMemAddressFree(at, sizes[i]));
  }
  static const size_t aligned[] = {1,
                                   3,
                                   256,
                                   4096,
                                   65536,
                                   MIB,
                                   G,
                                   3 * MIB,
                                   4 * MIB,
                                   512 * MIB,
                                   (size_t)1 << 30,
                                   (size_t)1 << 40,
                                   (size_t)1 << 50,
                                   (size_t)1 << 63};
  for (unsigned i = 0; i < sizeof aligned / sizeof *aligned; i++) {
    CUdeviceptr at = 0;
    ASK(W("alignment %zx", aligned[i]), cuMemAddressReserve(&at, G, aligned[i], 0, 0), "%d %d", at != 0,
        (int)(at % aligned[i] == 0));
    if (at) cuMemAddressFree(at, G);
  }
  for (unsigned long long f = 1; f <= 4; f++) {
    CUdeviceptr at = 0;
    ASK(W("flags %llu", f), cuMemAddressReserve(&at, G, 0, 0, f), "%d", at != 0);
  }
  CUdeviceptr a = 0, b = 0, c = 0;
  DO(cuMemAddressReserve(&a, 4 * G, 0, 0, 0));
  ASK("wish for a taken address", cuMemAddressReserve(&b, G, 0, a, 0), "%d %d", b == a, b != 0);
  ASK("free with half the size", cuMemAddressFree(a, 2 * G));
  ASK("free with twice the size", cuMemAddressFree(a, 8 * G));
  ASK("free with size 0", cuMemAddressFree(a, 0));
  ASK("free of its second half", cuMemAddressFree(a + 2 * G, 2 * G));
  ASK("free of address plus 1", cuMemAddressFree(a + 1, 4 * G));
  ASK("free", cuMemAddressFree(a, 4 * G));
  ALONE("free twice", cuMemAddressFree(a, 4 * G));
  ASK("wish for a free address", cuMemAddressReserve(&c, 4 * G, 0, a, 0), "%d", c == a);
  ASK("wish for an odd address", cuMemAddressReserve(&c, G, 0, a + 4097, 0), "%d", (int)(c % 4096 == 0));
  ASK("wish for address 1", cuMemAddressReserve(&c, G, 0, 1, 0), "%d", c > 1);
  RISK("free of NULL", cuMemAddressFree(0, G));
  RISK("free of 1", cuMemAddressFree(G, G));
  RISK("reserve into NULL", cuMemAddressReserve(NULL, G, 0, 0, 0));
  DO(cuMemAlloc(&c, G));
  ASK("free of cuMemAlloc's", cuMemAddressFree(c, G));
  ASK("range of a reservation", cuMemGetAddressRange(&b, NULL, a));
  DO(cuCtxSetCurrent(NULL));
  ASK("reserve, none current", cuMemAddressReserve(&b, G, 0, 0, 0));
  ASK("free, none current", cuMemAddressFree(b, G));
}

static void creating(void) {
  alarm(10);
  static const size_t sizes[] = {0,        1,       4096,  65536,           MIB,       G - 1, G, G + 1,
                                 G + 4096, 3 * MIB, 2 * G, (size_t)1 << 45, (size_t)-1};
  for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    CUmemAllocationProp p = pinned();
    CUmemGenericAllocationHandle h = 0;
    ASK(W("size %zx", sizes[i]), cuMemCreate(&h, sizes[i], &p, 0), "%d", h != 0);
    if (h) ASK(W("release of size %zx", sizes[i]), cuMemRelease(h));
  }
  for (int t = 0; t <= 3; t++)
    for (int l = 0; l <= 5; l++) {
      CUmemAllocationProp p = on(t, l, 0), q;
      CUmemGenericAllocationHandle h = 0;
      ASK(W("type %d location %d", t, l), cuMemCreate(&h, G, &p, 0), "%d", h != 0);
      if (!h) continue;
      SET(q);
      ASK(W("properties of type %d location %d", t, l), cuMemGetAllocationPropertiesFromHandle(&q, h), "%d %d %d",
          q.type, q.location.type, q.location.id);
      cuMemRelease(h);
    }
  for (int k = 0; k <= 9; k++) {
    CUmemAllocationProp p = pinned(), q;
    CUmemGenericAllocationHandle h = 0;
    p.requestedHandleTypes = k;
    ASK(W("handle types %d", k), cuMemCreate(&h, G, &p, 0), "%d", h != 0);
    if (!h) continue;
    SET(q);
    ASK(W("properties with handle types %d", k), cuMemGetAllocationPropertiesFromHandle(&q, h), "%d",
        q.requestedHandleTypes);
    cuMemRelease(h);
  }
  CUmemAllocationProp p, q;
  CUmemGenericAllocationHandle h = 0;
  for (int c = 0; c <= 2; c++)
    for (int r = 0; r <= 1; r++)
      for (int u = 0; u <= 3; u++) {
        p = pinned(), p.allocFlags.compressionType = c, p.allocFlags.gpuDirectRDMACapable = r, p.allocFlags.usage = u;
        SET(q), h = 0;
        ASK(W("compression %d rdma %d usage %d", c, r, u), cuMemCreate(&h, G, &p, 0), "%d", h != 0);
        if (!h) continue;
        ASK(W("properties of compression %d rdma %d usage %d", c, r, u), cuMemGetAllocationPropertiesFromHandle(&q, h),
            "%d %d %d", q.allocFlags.compressionType, q.allocFlags.gpuDirectRDMACapable, q.allocFlags.usage);
        cuMemRelease(h);
      }
  p = pinned();
  for (unsigned long long f = 1; f <= 2; f++) ASK(W("flags %llu", f), cuMemCreate(&h, G, &p, f));
  p.location.id = 1;
  ASK("device 1", cuMemCreate(&h, G, &p, 0));
  p = pinned(), p.allocFlags.reserved[0] = 1, h = 0;
  ASK("reserved byte", cuMemCreate(&h, G, &p, 0), "%d", h != 0);
  p = pinned(), p.win32HandleMetaData = &p, h = 0;
  ASK("win32 data", cuMemCreate(&h, G, &p, 0), "%d", h != 0);
  RISK("into NULL", cuMemCreate(NULL, G, &p, 0));
  RISK("of NULL", cuMemCreate(&h, G, NULL, 0));
  RISK("release 0", cuMemRelease(0));
  RISK("release 1", cuMemRelease(1));
  RISK("properties of 0", cuMemGetAllocationPropertiesFromHandle(&q, 0));
  p = pinned();
  DO(cuMemCreate(&h, G, &p, 0));
  RISK("properties into NULL", cuMemGetAllocationPropertiesFromHandle(NULL, h));
  DO(cuMemRelease(h));
  ALONE("release twice", cuMemRelease(h));
  ALONE("properties of a released one", cuMemGetAllocationPropertiesFromHandle(&q, h));
}

static void mapping(void) {
  alarm(10);
  CUmemAllocationProp p = pinned();
  CUmemGenericAllocationHandle h = 0, k = 0, t = 0;
  CUdeviceptr at = 0;
  DO(cuMemAddressReserve(&at, 8 * G, 0, 0, 0));
  DO(cuMemCreate(&h, 2 * G, &p, 0));
  DO(cuMemCreate(&k, G, &p, 0));
  CUmemAccessDesc rw = access_of(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE),
                  ro = access_of(0, CU_MEM_ACCESS_FLAGS_PROT_READ), none = access_of(0, CU_MEM_ACCESS_FLAGS_PROT_NONE),
                  bad = access_of(0, 2), far = access_of(1, 3);
  unsigned long long flags = 99;
  CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, 0}, host = {CU_MEM_LOCATION_TYPE_HOST, 0},
                there = {CU_MEM_LOCATION_TYPE_DEVICE, 1}, numa = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0};
  ASK("access before a map", cuMemSetAccess(at, G, &rw, 1));
  ASK("access of no map", cuMemGetAccess(&flags, &here, at), "%llu", flags);
  ASK("unmap before a map", cuMemUnmap(at, G));
  ASK("memset before a map", cuMemsetD8(at, 1, 16));
  ASK("size 0", cuMemMap(at, 0, 0, h, 0));
  ASK("size 4096", cuMemMap(at, 4096, 0, h, 0));
  ASK("size above the allocation", cuMemMap(at, 4 * G, 0, h, 0));
  ASK("an offset", cuMemMap(at, G, G, h, 0));
  ASK("an odd offset", cuMemMap(at, G, 4096, h, 0));
  ASK("an offset at the end", cuMemMap(at, G, 2 * G, h, 0));
  ASK("a part", cuMemMap(at, G, 0, h, 0));
  ASK("unmap after those", cuMemUnmap(at, G));
  ASK("flags 1", cuMemMap(at, 2 * G, 0, h, 1));
  ASK("an odd address", cuMemMap(at + 4096, 2 * G, 0, h, 0));
  ASK("past the reservation", cuMemMap(at + 7 * G, 2 * G, 0, h, 0));
  ASK("outside of a reservation", cuMemMap(at + 64 * G, 2 * G, 0, h, 0));
  RISK("at NULL", cuMemMap(0, G, 0, h, 0));
  RISK("of handle 0", cuMemMap(at, G, 0, 0, 0));
  RISK("of handle 12345", cuMemMap(at, G, 0, 12345, 0));
  ASK("map", cuMemMap(at, 2 * G, 0, h, 0));
  ASK("map over it", cuMemMap(at, 2 * G, 0, h, 0));
  ASK("map over its half", cuMemMap(at + G, G, 0, k, 0));
  ASK("map the same elsewhere", cuMemMap(at + 4 * G, 2 * G, 0, h, 0));
  ASK("map the small one", cuMemMap(at + 2 * G, G, 0, k, 0));
  ASK("access before setting", cuMemGetAccess(&flags, &here, at), "%llu", flags);
  ASK("memset without access", cuMemsetD8(at, 1, 16));
  ASK("read access", cuMemSetAccess(at, 2 * G, &ro, 1));
  ASK("access then", cuMemGetAccess(&flags, &here, at), "%llu", flags);
  ASK("both mappings at once", cuMemSetAccess(at, 3 * G, &rw, 1));
  ASK("access of the second", cuMemGetAccess(&flags, &here, at + 2 * G), "%llu", flags);
  ASK("access in the middle", cuMemGetAccess(&flags, &here, at + G + 123), "%llu", flags);
  ASK("with a hole at the end", cuMemSetAccess(at, 4 * G, &rw, 1));
  ASK("with a hole in the middle", cuMemSetAccess(at, 6 * G, &rw, 1));
  ASK("of half a mapping", cuMemSetAccess(at, G, &ro, 1));
  ASK("access of that half", cuMemGetAccess(&flags, &here, at), "%llu", flags);
  ASK("access of the other half", cuMemGetAccess(&flags, &here, at + G), "%llu", flags);
  ASK("size 0 of access", cuMemSetAccess(at, 0, &rw, 1));
  ASK("an odd size of access", cuMemSetAccess(at, 4096, &rw, 1));
  ASK("an odd address of access", cuMemSetAccess(at + 4096, G, &rw, 1));
  ASK("no descriptors", cuMemSetAccess(at, 2 * G, &rw, 0));
  RISK("NULL descriptors", cuMemSetAccess(at, 2 * G, NULL, 1));
  RISK("none of NULL", cuMemSetAccess(at, 2 * G, NULL, 0));
  ASK("flags 2", cuMemSetAccess(at, 2 * G, &bad, 1));
  ASK("device 1", cuMemSetAccess(at, 2 * G, &far, 1));
  ASK("no access", cuMemSetAccess(at, 2 * G, &none, 1));
  ASK("access after none", cuMemGetAccess(&flags, &here, at), "%llu", flags);
  CUmemAccessDesc two[2] = {rw, ro};
  ASK("one device twice", cuMemSetAccess(at, 2 * G, two, 2));
  ASK("access after twice", cuMemGetAccess(&flags, &here, at), "%llu", flags);
  ASK("read and write", cuMemSetAccess(at, 2 * G, &rw, 1));
  for (int l = 0; l <= 5; l++) {
    CUmemAccessDesc d = {{l, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    ASK(W("access for location type %d", l), cuMemSetAccess(at, 2 * G, &d, 1));
    CUmemLocation where = {l, 0};
    flags = 99;
    ASK(W("access of location type %d", l), cuMemGetAccess(&flags, &where, at), "%llu", flags);
  }
  ASK("access of the host", cuMemGetAccess(&flags, &host, at));
  ASK("access of a node", cuMemGetAccess(&flags, &numa, at));
  ASK("access of device 1", cuMemGetAccess(&flags, &there, at));
  RISK("access into NULL", cuMemGetAccess(NULL, &here, at));
  RISK("access of NULL's place", cuMemGetAccess(&flags, NULL, at));
  RISK("access of address 0", cuMemGetAccess(&flags, &here, 0));
  DO(cuMemSetAccess(at + 4 * G, 2 * G, &rw, 1));
  ASK("write by one", cuMemsetD8(at, 0x5a, 2 * G));
  unsigned char byte = 0;
  ASK("read by the other", cuMemcpyDtoH(&byte, at + 4 * G + 100, 1), "%d", byte);
  ASK("across two mappings", cuMemsetD8(at + 2 * G - 16, 7, 32));
  ASK("retain", cuMemRetainAllocationHandle(&t, (void *)at), "%d", t == h);
  ASK("retain from the middle", cuMemRetainAllocationHandle(&t, (void *)(at + G + 5)), "%d", t == h);
  ASK("retain from the other", cuMemRetainAllocationHandle(&t, (void *)(at + 4 * G)), "%d", t == h);
  ASK("retain from a hole", cuMemRetainAllocationHandle(&t, (void *)(at + 3 * G)));
  RISK("retain from NULL", cuMemRetainAllocationHandle(&t, NULL));
  RISK("retain into NULL", cuMemRetainAllocationHandle(NULL, (void *)at));
  CUdeviceptr base = 0;
  size_t size = 0;
  ASK("range", cuMemGetAddressRange(&base, &size, at + 77), "%d %zu", base == at, size);
  ASK("range of the second", cuMemGetAddressRange(&base, &size, at + 2 * G), "%d %zu", base == at + 2 * G, size);
  ASK("range of a hole", cuMemGetAddressRange(&base, &size, at + 3 * G));
  ASK("cuMemFree of it", cuMemFree(at));
  ASK("cuMemFreeAsync of it", cuMemFreeAsync(at, NULL));
  ASK("address free while mapped", cuMemAddressFree(at, 8 * G));
  for (int i = 0; i < 4; i++) ASK(W("release %d while mapped", i), cuMemRelease(h));
  ALONE("release 5 while mapped", cuMemRelease(h));
  ASK("write after the releases", cuMemsetD8(at, 3, 16));
  ASK("retain after the releases", cuMemRetainAllocationHandle(&t, (void *)at), "%d", t == h);
  ASK("unmap of half", cuMemUnmap(at, G));
  ASK("unmap of one and a hole", cuMemUnmap(at + 2 * G, 2 * G));
  ASK("unmap of size 0", cuMemUnmap(at, 0));
  ASK("unmap of an odd address", cuMemUnmap(at + 4096, G));
  ASK("unmap of two at once", cuMemUnmap(at, 3 * G));
  ASK("unmap again", cuMemUnmap(at, 3 * G));
  ASK("write after unmap", cuMemsetD8(at, 3, 16));
  ASK("range after unmap", cuMemGetAddressRange(&base, &size, at));
  ASK("map the small one again", cuMemMap(at, G, 0, k, 0));
  ASK("its access is gone", cuMemGetAccess(&flags, &here, at), "%llu", flags);
  ASK("unmap of the rest", cuMemUnmap(at + 4 * G, 2 * G));
  ASK("unmap of the small one", cuMemUnmap(at, G));
  ASK("release of the small one", cuMemRelease(k));
  ASK("address free at the end", cuMemAddressFree(at, 8 * G));
  RISK("unmap of NULL", cuMemUnmap(0, G));
}

static void borders(void) { /* mappings in two adjacent reservations */
  alarm(10);
  CUmemAllocationProp p = pinned();
  CUmemGenericAllocationHandle h = 0, k = 0;
  CUdeviceptr a = 0, b = 0;
  CUmemAccessDesc rw = access_of(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  DO(cuMemAddressReserve(&a, 2 * G, 0, 0, 0));
  DO(cuMemAddressFree(a, 2 * G));
  ASK("first", cuMemAddressReserve(&b, G, 0, a, 0), "%d", b == a);
  ASK("second", cuMemAddressReserve(&b, G, 0, a + G, 0), "%d", b == a + G);
  DO(cuMemCreate(&h, 2 * G, &p, 0));
  DO(cuMemCreate(&k, G, &p, 0));
  ASK("map over both", cuMemMap(a, 2 * G, 0, h, 0));
  ASK("map in the first", cuMemMap(a, G, 0, k, 0));
  ASK("map in the second", cuMemMap(a + G, G, 0, k, 0));
  ASK("access over both", cuMemSetAccess(a, 2 * G, &rw, 1));
  ASK("write over both", cuMemsetD8(a, 1, 2 * G));
  ASK("unmap of both", cuMemUnmap(a, 2 * G));
  ASK("free of both", cuMemAddressFree(a, 2 * G));
  ASK("free of the first", cuMemAddressFree(a, G));
  ASK("free of the second", cuMemAddressFree(a + G, G));
}

static void fds(void) {
  alarm(10);
  CUmemAllocationProp p = shared(), q = pinned();
  CUmemGenericAllocationHandle h = 0, k = 0, i = 0, j = 0;
  DO(cuMemCreate(&h, G, &p, 0));
  DO(cuMemCreate(&k, G, &q, 0));
  int fd = -1, other_fd = -1;
  ASK("export", cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0), "%d", fd > 2);
  ASK("export again", cuMemExportToShareableHandle(&other_fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0), "%d",
      other_fd > 2 && other_fd != fd);
  ASK("close on exec", 0, "%d", fcntl(fd, F_GETFD));
  for (int t = 0; t <= 8; t++) {
    char room[64];
    if (t != 1) ASK(W("export as type %d", t), cuMemExportToShareableHandle(room, h, t, 0));
  }
  ASK("export with flags", cuMemExportToShareableHandle(&other_fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 1));
  ASK("export of one that is not for it",
      cuMemExportToShareableHandle(&other_fd, k, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  RISK("export into NULL", cuMemExportToShareableHandle(NULL, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  RISK("export of 0", cuMemExportToShareableHandle(&other_fd, 0, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  ASK("import", cuMemImportFromShareableHandle(&i, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
      "%d %d", i != 0, i == h);
  ASK("import again",
      cuMemImportFromShareableHandle(&j, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR), "%d %d",
      j == i, j == h);
  SET(q);
  ASK("properties of the import", cuMemGetAllocationPropertiesFromHandle(&q, i), "%d %d %d", q.type, q.location.type,
      q.requestedHandleTypes);
  ASK("fd is still open", 0, "%d", fcntl(fd, F_GETFD) >= 0);
  for (int t = 0; t <= 8; t++)
    if (t != 1) RISK(W("import as type %d", t), cuMemImportFromShareableHandle(&j, (void *)(intptr_t)fd, t));
  ASK("import of fd -1",
      cuMemImportFromShareableHandle(&j, (void *)(intptr_t)-1, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  ASK("import of fd 9999",
      cuMemImportFromShareableHandle(&j, (void *)(intptr_t)9999, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  int null = open("/dev/null", O_RDWR);
  ASK("import of /dev/null",
      cuMemImportFromShareableHandle(&j, (void *)(intptr_t)null, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  RISK("import into NULL",
       cuMemImportFromShareableHandle(NULL, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  int twin = dup(fd);
  close(fd);
  ASK("import of the closed one",
      cuMemImportFromShareableHandle(&j, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  ASK("import of its twin",
      cuMemImportFromShareableHandle(&j, (void *)(intptr_t)twin, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  CUdeviceptr at = 0;
  CUmemAccessDesc rw = access_of(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  DO(cuMemAddressReserve(&at, 2 * G, 0, 0, 0));
  ASK("map the original", cuMemMap(at, G, 0, h, 0));
  ASK("map the import", cuMemMap(at + G, G, 0, i, 0));
  ASK("access of both", cuMemSetAccess(at, 2 * G, &rw, 1));
  unsigned char byte = 0;
  ASK("write to one", cuMemsetD8(at, 9, 64));
  ASK("read from the other", cuMemcpyDtoH(&byte, at + G + 5, 1), "%d", byte);
  ASK("unmap of the original", cuMemUnmap(at, G));
  ASK("release of the original", cuMemRelease(h));
  ASK("read then", cuMemcpyDtoH(&byte, at + G + 5, 1), "%d", byte);
  ASK("export of the import", cuMemExportToShareableHandle(&other_fd, i, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  int dma = -1;
  ASK("range handle", cuMemGetHandleForAddressRange(&dma, at + G, G, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0), "%d",
      dma >= 0);
  ASK("range handle of a part",
      cuMemGetHandleForAddressRange(&dma, at + G + 100, 4096, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
  ASK("range handle of type 2", cuMemGetHandleForAddressRange(&dma, at + G, G, 2, 0));
  ASK("range handle with flags 2",
      cuMemGetHandleForAddressRange(&dma, at + G, G, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 2));
  RISK("range handle into NULL",
       cuMemGetHandleForAddressRange(NULL, at + G, G, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
}

static void importer(int end) {
  case_ = "between/importer";
  begin();
  int fd = receive_fd(end);
  CUmemGenericAllocationHandle h = 0;
  CUdeviceptr at = 0;
  CUmemAccessDesc rw = access_of(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  unsigned char byte = 0;
  ASK("import", cuMemImportFromShareableHandle(&h, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
      "%d", h != 0);
  DO(cuMemAddressReserve(&at, 2 * G, 0, 0, 0));
  ASK("map too much", cuMemMap(at, 2 * G, 0, h, 0));
  ASK("map", cuMemMap(at, G, 0, h, 0));
  ASK("access", cuMemSetAccess(at, G, &rw, 1));
  ASK("read", cuMemcpyDtoH(&byte, at, 1), "%d", byte);
  ASK("write", cuMemsetD8(at, 0x22, 64));
  ASK("write's end", cuCtxSynchronize());
  pass(end);
  await(end);
  ASK("read after the release", cuMemcpyDtoH(&byte, at + 1, 1), "%d", byte);
  ASK("import after the release",
      cuMemImportFromShareableHandle(&h, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  pass(end);
}

static void between(void) {
  if (chosen_) return;
  int end;
  pid_t child = other(&end, importer);
  begin();
  alarm(20);
  CUmemAllocationProp p = shared();
  CUmemGenericAllocationHandle h = 0;
  CUdeviceptr at = 0;
  CUmemAccessDesc rw = access_of(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  DO(cuMemCreate(&h, G, &p, 0));
  DO(cuMemAddressReserve(&at, G, 0, 0, 0));
  DO(cuMemMap(at, G, 0, h, 0));
  DO(cuMemSetAccess(at, G, &rw, 1));
  DO(cuMemsetD8(at, 0x11, G));
  DO(cuCtxSynchronize());
  int fd = -1;
  DO(cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  send_fd(end, fd);
  await(end);
  unsigned char byte = 0;
  ASK("what the other wrote", cuMemcpyDtoH(&byte, at, 1), "%d", byte);
  ASK("unmap", cuMemUnmap(at, G));
  ASK("release", cuMemRelease(h));
  close(fd);
  pass(end);
  await(end);
  waitpid(child, NULL, 0);
}

CASES RUN(granularity) RUN(reserving) RUN(creating) RUN(mapping) RUN(borders) RUN(fds) RUN_COLD(between) END
