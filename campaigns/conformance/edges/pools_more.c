/* Stream-ordered pools: properties, attributes, trims, access, export and import, frees in other streams. */
#include "ask.h"
#define THEN(a, b)           \
  ({                         \
    int then_ = (a);         \
    then_ + 1000 * (int)(b); \
  })

static CUstream s_, t_;
static void CUDA_CB slow(void *data) { usleep(100000), (void)data; }
static void streams(void) {
  alarm(10);
  DO(cuStreamCreate(&s_, CU_STREAM_NON_BLOCKING));
  DO(cuStreamCreate(&t_, CU_STREAM_NON_BLOCKING));
}

static void creating(void) {
  streams();
  CUmemPoolProps p;
  CUmemoryPool m = NULL;
  for (int t = 0; t <= 3; t++)
    for (int l = 0; l <= 5; l++) {
      SET(p);
      p.allocType = t, p.location.type = l, m = NULL;
      ASK(W("type %d location %d", t, l), cuMemPoolCreate(&m, &p), "%d", m != NULL);
      if (!m) continue;
      CUdeviceptr at = 0;
      ASK(W("allocate from type %d location %d", t, l), cuMemAllocFromPoolAsync(&at, 4096, m, s_), "%d", at != 0);
      if (at) ASK(W("free of type %d location %d", t, l), cuMemFreeAsync(at, s_));
      DO(cuStreamSynchronize(s_));
      ASK(W("destroy of type %d location %d", t, l), cuMemPoolDestroy(m));
    }
  for (int h = 0; h <= 9; h++) {
    p = pool_on_device(h), m = NULL;
    ASK(W("handle types %d", h), cuMemPoolCreate(&m, &p), "%d", m != NULL);
    if (m) cuMemPoolDestroy(m);
  }
  for (int i = -1; i <= 1; i++) {
    p = pool_on_device(0), p.location.id = i;
    ASK(W("device %d", i), cuMemPoolCreate(&m, &p));
  }
  for (int u = 0; u <= 4; u++) {
    p = pool_on_device(0), p.usage = u, m = NULL;
    ASK(W("usage %d", u), cuMemPoolCreate(&m, &p), "%d", m != NULL);
  }
  p = pool_on_device(0), p.reserved[0] = 1, m = NULL;
  ASK("reserved byte", cuMemPoolCreate(&m, &p), "%d", m != NULL);
  p = pool_on_device(0), p.win32SecurityAttributes = &p;
  ASK("win32 attributes", cuMemPoolCreate(&m, &p));
  RISK("into NULL", cuMemPoolCreate(NULL, &p));
  RISK("of NULL", cuMemPoolCreate(&m, NULL));
  RISK("destroy NULL", cuMemPoolDestroy(NULL));
  static const size_t most[] = {1, 4096, 2 * MIB, 3 * MIB, 32 * MIB, 33 * MIB, 64 * MIB};
  for (unsigned i = 0; i < sizeof most / sizeof *most; i++) {
    p = pool_on_device(0), p.maxSize = most[i], m = NULL;
    ASK(W("at most %zu", most[i]), cuMemPoolCreate(&m, &p), "%d", m != NULL);
    if (!m) continue;
    CUdeviceptr a = 0, b = 0;
    ASK(W("that much of %zu", most[i]), cuMemAllocFromPoolAsync(&a, most[i], m, s_), "%d", a != 0);
    ASK(W("a little more of %zu", most[i]), cuMemAllocFromPoolAsync(&b, 1, m, s_), "%d", b != 0);
    ASK(W("much more of %zu", most[i]), cuMemAllocFromPoolAsync(&b, 128 * MIB, m, s_));
    cuuint64_t v = 0;
    ASK(W("reserved of %zu", most[i]), cuMemPoolGetAttribute(m, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &v), "%llu",
        (unsigned long long)v);
    DO(cuStreamSynchronize(s_));
    cuMemPoolDestroy(m);
  }
}

static void attributes(void) {
  streams();
  CUmemPoolProps p = pool_on_device(0);
  CUmemoryPool m = NULL, d = NULL;
  DO(cuMemPoolCreate(&m, &p));
  DO(cuDeviceGetDefaultMemPool(&d, 0));
  for (int a = 0; a <= 10; a++) {
    cuuint64_t v = 0x7777777777777777;
    ASK(W("new %d", a), cuMemPoolGetAttribute(m, a, &v), "%llx", (unsigned long long)v);
    v = 0x7777777777777777;
    ASK(W("default's %d", a), cuMemPoolGetAttribute(d, a, &v), "%llx", (unsigned long long)v);
  }
  for (int a = 0; a <= 10; a++)
    for (int i = 0; i < 4; i++) {
      static const cuuint64_t to[] = {0, 1, 2, 12345};
      cuuint64_t v = to[i];
      ASK(W("set %d to %d", a, (int)v), cuMemPoolSetAttribute(m, a, &v));
      v = 0;
      if (a >= 1 && a <= 8)
        ASK(W("%d set to %d", a, (int)to[i]), cuMemPoolGetAttribute(m, a, &v), "%llu", (unsigned long long)v);
    }
  cuuint64_t v = (cuuint64_t)-1;
  ASK("threshold -1", cuMemPoolSetAttribute(m, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &v));
  ASK("its value", cuMemPoolGetAttribute(m, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &v), "%llx", (unsigned long long)v);
  for (int a = 1; a <= 4; a += 3) {
    RISK(W("get %d of NULL", a), cuMemPoolGetAttribute(NULL, a, &v));
    RISK(W("get %d into NULL", a), cuMemPoolGetAttribute(m, a, NULL));
    RISK(W("set %d of NULL", a), cuMemPoolSetAttribute(NULL, a, &v));
    RISK(W("set %d from NULL", a), cuMemPoolSetAttribute(m, a, NULL));
  }
}

static CUmemoryPool seen;
static void used(const char *when) {
  cuuint64_t v[4] = {0};
  for (int i = 0; i < 4; i++) cuMemPoolGetAttribute(seen, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT + i, &v[i]);
  SAY(when, "%llu %llu %llu %llu", (unsigned long long)v[0], (unsigned long long)v[1], (unsigned long long)v[2],
      (unsigned long long)v[3]);
}

static void counting(void) {
  streams();
  CUmemPoolProps p = pool_on_device(0);
  DO(cuMemPoolCreate(&seen, &p));
  CUdeviceptr a[8] = {0};
  used("at first");
  ASK("size 0", cuMemAllocFromPoolAsync(&a[0], 0, seen, s_), "%d", a[0] != 0);
  ASK("1 byte", cuMemAllocFromPoolAsync(&a[0], 1, seen, s_));
  used("after 1 byte");
  ASK("513 bytes", cuMemAllocFromPoolAsync(&a[1], 513, seen, s_), "%d", (int)(a[1] % 512));
  used("after 513 bytes");
  ASK("5 MiB", cuMemAllocFromPoolAsync(&a[2], 5 * MIB, seen, s_));
  used("after 5 MiB");
  ASK("40 MiB", cuMemAllocFromPoolAsync(&a[3], 40 * MIB, seen, s_));
  used("after 40 MiB");
  ASK("far too much", cuMemAllocFromPoolAsync(&a[4], (size_t)1 << 45, seen, s_));
  used("after far too much");
  ASK("free of 40 MiB", cuMemFreeAsync(a[3], s_));
  ASK("wait", cuStreamSynchronize(s_));
  used("after a free and a wait");
  for (int i = 5; i >= 0; i--) {
    ASK(W("trim to %d", i * 16), cuMemPoolTrimTo(seen, i * 16 * MIB));
    used(W("after trim to %d", i * 16));
  }
  ASK("trim to -1", cuMemPoolTrimTo(seen, (size_t)-1));
  cuuint64_t v = 0;
  ASK("reset the high mark of use", cuMemPoolSetAttribute(seen, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &v));
  ASK("reset the high mark of reserves", cuMemPoolSetAttribute(seen, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &v));
  used("after both");
  v = (cuuint64_t)-1;
  ASK("keep all", cuMemPoolSetAttribute(seen, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &v));
  ASK("40 MiB again", cuMemAllocFromPoolAsync(&a[3], 40 * MIB, seen, s_));
  used("after 40 MiB again");
  ASK("free it again", cuMemFreeAsync(a[3], s_));
  ASK("wait again", cuStreamSynchronize(s_));
  used("after that wait");
  ASK("cuMemFree of another", cuMemFree(a[2]));
  used("after cuMemFree");
  ASK("free the rest", THEN(cuMemFreeAsync(a[0], NULL), cuMemFreeAsync(a[1], CU_STREAM_LEGACY)));
  ASK("wait for all", cuCtxSynchronize());
  used("when all is free");
  ASK("trim at the end", cuMemPoolTrimTo(seen, 0));
  used("at the end");
  RISK("trim NULL", cuMemPoolTrimTo(NULL, 0));
  RISK("allocate into NULL", cuMemAllocFromPoolAsync(NULL, 64, seen, s_));
  RISK("allocate from NULL", cuMemAllocFromPoolAsync(&a[0], 64, NULL, s_));
}

static void frees(void) {
  streams();
  CUdeviceptr a = 0, b = 0, c = 0;
  CUevent e = NULL;
  DO(cuEventCreate(&e, 0));
  ASK("allocate", cuMemAllocAsync(&a, MIB, s_));
  ASK("free in another stream", cuMemFreeAsync(a, t_));
  DO(cuCtxSynchronize());
  ALONE("free twice", cuMemFreeAsync(a, s_));
  ALONE("free twice, in a row", (cuMemAllocAsync(&b, MIB, s_), cuMemFreeAsync(b, s_), cuMemFreeAsync(b, s_)));
  ALONE("free twice, then cuMemFree", (cuMemAllocAsync(&b, MIB, s_), cuMemFreeAsync(b, s_), cuMemFree(b)));
  ALONE("memset after the free", (cuMemAllocAsync(&b, MIB, s_), cuMemFreeAsync(b, s_), cuMemsetD8Async(b, 1, 16, s_)));
  ALONE("memset after the free and a wait",
        (cuMemAllocAsync(&b, MIB, s_), cuMemFreeAsync(b, s_), cuStreamSynchronize(s_), cuMemsetD8Async(b, 1, 16, s_)));
  ASK("next", cuMemAllocAsync(&b, MIB, s_), "%d", b != 0);
  ASK("from its middle", cuMemFreeAsync(b + 4096, s_));
  ASK("cuMemFree from its middle", cuMemFree(b + 4096));
  ASK("in the NULL stream", cuMemFreeAsync(b, NULL));
  RISK("of NULL", cuMemFreeAsync(0, s_));
  RISK("of 1", cuMemFreeAsync(1, s_));
  DO(cuMemAlloc(&c, MIB));
  ASK("of cuMemAlloc's", cuMemFreeAsync(c, s_));
  DO(cuStreamSynchronize(s_));
  ASK("that again", cuMemFree(c));
  DO(cuMemAllocManaged(&c, MIB, CU_MEM_ATTACH_GLOBAL));
  ASK("of managed memory", cuMemFreeAsync(c, s_));
  void *host = NULL;
  DO(cuMemHostAlloc(&host, 4096, 0));
  ASK("of host memory", cuMemFreeAsync((CUdeviceptr)host, s_));
  RISK("of ordinary memory", cuMemFreeAsync((CUdeviceptr)&a, s_));
  DO(cuMemAllocAsync(&a, MIB, s_));
  DO(cuLaunchHostFunc(s_, slow, NULL));
  ASK("behind a slow function", cuMemFreeAsync(a, s_));
  ASK("query then", cuStreamQuery(s_));
  CUdeviceptr d = 0, f = 0;
  ASK("the same stream takes the same memory", cuMemAllocAsync(&d, MIB, s_), "%d", d == a);
  ASK("another stream does not", cuMemAllocAsync(&f, MIB, t_), "%d", f == a);
  DO(cuCtxSynchronize());
  DO(cuMemFreeAsync(d, s_));
  DO(cuEventRecord(e, s_));
  DO(cuStreamWaitEvent(t_, e, 0));
  CUdeviceptr g = 0;
  ASK("after an event", cuMemAllocAsync(&g, MIB, t_), "%d", g == d);
  ASK("the stream dies first", cuMemAllocAsync(&a, MIB, s_));
  ASK("destroy the stream", cuStreamDestroy(s_));
  ASK("write after it", cuMemsetD8(a, 1, MIB));
  ASK("free after it", cuMemFreeAsync(a, t_));
  ASK("size -1", cuMemAllocAsync(&a, (size_t)-1, t_));
  ASK("size 0", cuMemAllocAsync(&a, 0, t_), "%d", a != 0);
  ASK("per thread stream", cuMemAllocAsync(&a, 64, CU_STREAM_PER_THREAD));
  ASK("legacy stream frees it", cuMemFreeAsync(a, CU_STREAM_LEGACY));
  DO(cuCtxSetCurrent(NULL));
  ASK("none current", cuMemAllocAsync(&a, 64, t_), "%d", a != 0);
  ASK("none current, NULL stream", cuMemAllocAsync(&b, 64, NULL));
  ASK("none current, free", cuMemFreeAsync(a, t_));
}

static void accesses(void) {
  streams();
  CUmemPoolProps p = pool_on_device(0);
  CUmemoryPool m = NULL;
  DO(cuMemPoolCreate(&m, &p));
  for (int l = 0; l <= 5; l++)
    for (int i = 0; i <= 1; i++) {
      CUmemLocation where = {l, i};
      CUmemAccess_flags f = 77;
      ASK(W("get of type %d id %d", l, i), cuMemPoolGetAccess(&f, m, &where), "%d", f);
      for (int k = 0; k <= 3; k++) {
        CUmemAccessDesc d = {where, k};
        ASK(W("set of type %d id %d to %d", l, i, k), cuMemPoolSetAccess(m, &d, 1));
      }
    }
  CUmemAccessDesc d = access_of(0, 3);
  CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemAccess_flags f;
  ASK("none", cuMemPoolSetAccess(m, &d, 0));
  RISK("NULL descriptors", cuMemPoolSetAccess(m, NULL, 1));
  RISK("none of NULL", cuMemPoolSetAccess(m, NULL, 0));
  RISK("of NULL", cuMemPoolSetAccess(NULL, &d, 1));
  RISK("get of NULL", cuMemPoolGetAccess(&f, NULL, &here));
  RISK("get at NULL", cuMemPoolGetAccess(&f, m, NULL));
  RISK("get into NULL", cuMemPoolGetAccess(NULL, m, &here));
}

static void current(void) {
  streams();
  CUmemPoolProps p = pool_on_device(0);
  CUmemoryPool m = NULL, d = NULL, g = NULL;
  DO(cuMemPoolCreate(&m, &p));
  ASK("default", cuDeviceGetDefaultMemPool(&d, 0), "%d", d != NULL);
  ASK("current is the default", cuDeviceGetMemPool(&g, 0), "%d", g == d);
  ASK("set", cuDeviceSetMemPool(0, m));
  ASK("get", cuDeviceGetMemPool(&g, 0), "%d", g == m);
  CUdeviceptr a = 0;
  CUmemoryPool of = NULL;
  ASK("allocate", cuMemAllocAsync(&a, 4096, s_));
  ASK("its pool", cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, a), "%d %d", of == m, of == d);
  ASK("destroy the default", cuMemPoolDestroy(d));
  ASK("destroy the current", cuMemPoolDestroy(m));
  ASK("get after it", cuDeviceGetMemPool(&g, 0), "%d %d", g == m, g == d);
  ASK("use memory of a destroyed pool", cuMemsetD8(a, 1, 4096));
  ASK("free memory of a destroyed pool", cuMemFreeAsync(a, s_));
  ASK("allocate after it", cuMemAllocAsync(&a, 4096, s_));
  ASK("its pool after it", cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, a), "%d", of == d);
  ASK("set the default", cuDeviceSetMemPool(0, d));
  ASK("set on device 1", cuDeviceSetMemPool(1, d));
  ASK("get of device 1", cuDeviceGetMemPool(&g, 1));
  ASK("default of device -1", cuDeviceGetDefaultMemPool(&g, -1));
  RISK("set NULL", cuDeviceSetMemPool(0, NULL));
  RISK("get into NULL", cuDeviceGetMemPool(NULL, 0));
  RISK("default into NULL", cuDeviceGetDefaultMemPool(NULL, 0));
  for (int t = 0; t <= 3; t++)
    for (int l = 0; l <= 4; l++) {
      CUmemLocation where = {l, 0};
      g = NULL;
      ASK(W("default of location %d type %d", l, t), cuMemGetDefaultMemPool(&g, &where, t), "%d %d", g != NULL, g == d);
      g = NULL;
      ASK(W("current of location %d type %d", l, t), cuMemGetMemPool(&g, &where, t), "%d %d", g != NULL, g == d);
    }
  CUmemLocation where = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  p = pool_on_device(0);
  DO(cuMemPoolCreate(&m, &p));
  ASK("set for a location", cuMemSetMemPool(&where, CU_MEM_ALLOCATION_TYPE_PINNED, m));
  ASK("what the device has", cuDeviceGetMemPool(&g, 0), "%d", g == m);
  ASK("set for a wrong type", cuMemSetMemPool(&where, CU_MEM_ALLOCATION_TYPE_MANAGED, m));
  RISK("set of NULL for a location", cuMemSetMemPool(&where, CU_MEM_ALLOCATION_TYPE_PINNED, NULL));
  RISK("set for NULL", cuMemSetMemPool(NULL, CU_MEM_ALLOCATION_TYPE_PINNED, m));
}

static void exporting(void) {
  streams();
  CUmemPoolProps p = pool_on_device(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR), q = pool_on_device(0);
  CUmemoryPool m = NULL, n = NULL, d = NULL, i = NULL, j = NULL;
  DO(cuMemPoolCreate(&m, &p));
  DO(cuMemPoolCreate(&n, &q));
  DO(cuDeviceGetDefaultMemPool(&d, 0));
  int fd = -1, f2 = -1;
  ASK("export", cuMemPoolExportToShareableHandle(&fd, m, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0), "%d", fd > 2);
  ASK("again", cuMemPoolExportToShareableHandle(&f2, m, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0), "%d",
      f2 > 2 && f2 != fd);
  ASK("of one that is not for it",
      cuMemPoolExportToShareableHandle(&f2, n, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  ASK("of the default", cuMemPoolExportToShareableHandle(&f2, d, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  for (int t = 0; t <= 8; t++) {
    char room[64];
    if (t != 1) ASK(W("as type %d", t), cuMemPoolExportToShareableHandle(room, m, t, 0));
  }
  ASK("with flags", cuMemPoolExportToShareableHandle(&f2, m, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 1));
  RISK("into NULL", cuMemPoolExportToShareableHandle(NULL, m, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  RISK("of NULL", cuMemPoolExportToShareableHandle(&f2, NULL, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  ASK("import",
      cuMemPoolImportFromShareableHandle(&i, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0), "%d",
      i != NULL && i != m);
  ASK("import again",
      cuMemPoolImportFromShareableHandle(&j, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0), "%d",
      j != i);
  ASK("import with flags",
      cuMemPoolImportFromShareableHandle(&j, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 1));
  ASK("import fd -1",
      cuMemPoolImportFromShareableHandle(&j, (void *)(intptr_t)-1, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  ASK("import /dev/null", cuMemPoolImportFromShareableHandle(&j, (void *)(intptr_t)open("/dev/null", O_RDWR),
                                                             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  RISK("import type 0", cuMemPoolImportFromShareableHandle(&j, (void *)(intptr_t)fd, 0, 0));
  RISK("import type 8", cuMemPoolImportFromShareableHandle(&j, NULL, CU_MEM_HANDLE_TYPE_FABRIC, 0));
  RISK("import into NULL",
       cuMemPoolImportFromShareableHandle(NULL, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  CUdeviceptr a = 0, b = 0, c = 0;
  CUmemPoolPtrExportData data, other_data;
  ASK("allocate", cuMemAllocFromPoolAsync(&a, 4096, m, s_));
  DO(cuMemAllocFromPoolAsync(&c, 4096, n, s_));
  ASK("export a pointer", cuMemPoolExportPointer(&data, a));
  ASK("export its middle", cuMemPoolExportPointer(&other_data, a + 16));
  ASK("export of another pool", cuMemPoolExportPointer(&other_data, c));
  DO(cuMemAlloc(&c, 4096));
  ASK("export of no pool", cuMemPoolExportPointer(&other_data, c));
  RISK("export of NULL's pointer", cuMemPoolExportPointer(&other_data, 0));
  RISK("export the pointer into NULL", cuMemPoolExportPointer(NULL, a));
  ASK("import a pointer", cuMemPoolImportPointer(&b, i, &data), "%d", b != a);
  ASK("import it again", cuMemPoolImportPointer(&c, i, &data), "%d", c == b);
  ASK("import with the exporter's pool", cuMemPoolImportPointer(&c, m, &data));
  ASK("import with another pool", cuMemPoolImportPointer(&c, n, &data));
  SET(other_data);
  ASK("import zeros", cuMemPoolImportPointer(&c, i, &other_data));
  RISK("import into NULL's pointer", cuMemPoolImportPointer(NULL, i, &data));
  RISK("import from NULL", cuMemPoolImportPointer(&c, i, NULL));
  RISK("import with NULL", cuMemPoolImportPointer(&c, NULL, &data));
  ASK("allocate from the import", cuMemAllocFromPoolAsync(&c, 4096, i, s_));
  ASK("trim the import", cuMemPoolTrimTo(i, 0));
  ASK("the import as current", cuDeviceSetMemPool(0, i));
  ASK("export the import", cuMemPoolExportToShareableHandle(&f2, i, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  for (int k = 1; k <= 8; k++) {
    cuuint64_t v = 0;
    ASK(W("attribute %d of the import", k), cuMemPoolGetAttribute(i, k, &v), "%d", v != 0);
    ASK(W("set attribute %d of the import", k), cuMemPoolSetAttribute(i, k, &v));
  }
  unsigned char byte = 0;
  ASK("write", THEN(cuMemsetD8(a, 5, 64), cuCtxSynchronize()));
  ASK("read", cuMemcpyDtoH(&byte, b, 1), "%d", byte);
  ASK("free the import", cuMemFreeAsync(b, s_));
  ASK("free the export", cuMemFreeAsync(a, s_));
  ASK("wait", cuStreamSynchronize(s_));
  ASK("destroy the export", cuMemPoolDestroy(m));
  ASK("destroy the import", cuMemPoolDestroy(i));
}

static void importer(int end) {
  case_ = "between/importer";
  begin();
  int fd = receive_fd(end);
  CUmemPoolPtrExportData data[3];
  if (read(end, data, sizeof data) != sizeof data) SAY("no data", "%s", "");
  CUmemoryPool m = NULL;
  CUdeviceptr a[3] = {0};
  unsigned char byte = 0;
  CUmemAccess_flags f = 77;
  CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  ASK("import",
      cuMemPoolImportFromShareableHandle(&m, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0), "%d",
      m != NULL);
  ASK("access", cuMemPoolGetAccess(&f, m, &here), "%d", f);
  for (int i = 0; i < 3; i++) ASK(W("pointer %d", i), cuMemPoolImportPointer(&a[i], m, &data[i]), "%d", a[i] != 0);
  for (int i = 0; i < 3; i++) ASK(W("read %d", i), cuMemcpyDtoH(&byte, a[i], 1), "%d", byte);
  CUdeviceptr base = 0;
  size_t size = 0;
  ASK("range", cuMemGetAddressRange(&base, &size, a[1]), "%d %zu", base == a[1], size);
  ASK("free one", cuMemFree(a[0]));
  ASK("free async", cuMemFreeAsync(a[1], NULL));
  ASK("wait", cuCtxSynchronize());
  pass(end);
  await(end);
  ASK("read after the exporter's free", cuMemcpyDtoH(&byte, a[2], 1));
  ASK("its free", cuMemFree(a[2]));
  ASK("destroy", cuMemPoolDestroy(m));
  pass(end);
}

static void between(void) {
  if (chosen_) return;
  int end;
  pid_t child = other(&end, importer);
  begin();
  streams();
  alarm(20);
  CUmemPoolProps p = pool_on_device(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  CUmemoryPool m = NULL;
  CUdeviceptr a[3];
  CUmemPoolPtrExportData data[3];
  int fd = -1;
  DO(cuMemPoolCreate(&m, &p));
  for (int i = 0; i < 3; i++) {
    DO(cuMemAllocFromPoolAsync(&a[i], 65536, m, s_));
    DO(cuMemsetD8Async(a[i], 10 + i, 65536, s_));
    DO(cuMemPoolExportPointer(&data[i], a[i]));
  }
  DO(cuStreamSynchronize(s_));
  DO(cuMemPoolExportToShareableHandle(&fd, m, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  send_fd(end, fd);
  if (write(end, data, sizeof data) < 0) perror("write");
  await(end);
  for (int i = 0; i < 3; i++) ASK(W("free %d", i), cuMemFreeAsync(a[i], s_));
  ASK("wait", cuStreamSynchronize(s_));
  ASK("destroy", cuMemPoolDestroy(m));
  pass(end);
  await(end);
  waitpid(child, NULL, 0);
}

CASES RUN(creating) RUN(attributes) RUN(counting) RUN(frees) RUN(accesses) RUN(current) RUN(exporting)
    RUN_COLD(between) END
