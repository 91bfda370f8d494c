/* Two devices: a pool and memory of device 1 exported to a process that is current on device 0, and files of memory. */
#include "two.h"

static CUmemoryPool pool_of(int d) {
  CUmemoryPool p = NULL;
  CUmemPoolProps x = pool_on_device(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  x.location.id = d;
  DO(cuMemPoolCreate(&p, &x));
  return p;
}

static int now_; /* the device that the importing process uses */

static void importer(int end) {
  begin();
  both();
  on(now_);
  int fd = receive_fd(end);
  CUmemPoolPtrExportData data;
  if (read(end, &data, sizeof data) != sizeof data) return;
  CUmemoryPool m = NULL;
  ASK("import the pool",
      cuMemPoolImportFromShareableHandle(&m, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0), "%d",
      m != NULL);
  for (int d = 0; d < 2; d++) {
    CUmemAccess_flags flags = 77;
    CUmemLocation l = {CU_MEM_LOCATION_TYPE_DEVICE, d};
    ASK(W("access of %d", d), cuMemPoolGetAccess(&flags, m, &l), "%d", flags);
  }
  CUdeviceptr p = 0, q = 0;
  ASK("import the memory", cuMemPoolImportPointer(&p, m, &data), "%d", where(p));
  ASK("import it twice", cuMemPoolImportPointer(&q, m, &data), "%d", q == p);
  ASK("what it has, by 1", 0, "%x", word(1, p));
  ASK("what it has, by 0", 0, "%x", word(0, p));
  CUmemAccessDesc x = access_of(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  ASK("access for 0", cuMemPoolSetAccess(m, &x, 1));
  ASK("what it has then", 0, "%x", word(0, p));
  CUdeviceptr a = memory(0, 4096, 0);
  ASK("copy to 0", cuMemcpyDtoD(a, p, 64));
  ASK("what 0 has", cuCtxSynchronize(), "%x", word(0, a));
  ASK("set it", cuMemsetD8(p, 0x77, 64));
  ASK("its end", cuCtxSynchronize());
  ASK("allocate from an imported pool", cuMemAllocFromPoolAsync(&q, 4096, m, NULL));
  ASK("1 takes the imported pool", cuDeviceSetMemPool(1, m));
  ASK("0 takes the imported pool", cuDeviceSetMemPool(0, m));
  CUmemPoolPtrExportData again;
  ASK("export what was imported", cuMemPoolExportPointer(&again, p));
  int v = 7;
  ASK("attribute of it", cuMemPoolGetAttribute(m, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &v), "%d", v);
  ASK("free it", cuMemFree(p));
  ASK("destroy the pool", cuMemPoolDestroy(m));
  pass(end);
}

static void exporter(int end) {
  begin();
  both();
  CUmemoryPool m = pool_of(1);
  CUdeviceptr p = 0;
  CUstream s = NULL;
  on(1);
  DO(cuStreamCreate(&s, 0));
  DO(cuMemAllocFromPoolAsync(&p, 4096, m, s));
  DO(cuMemsetD8Async(p, 0x31, 4096, s));
  DO(cuStreamSynchronize(s));
  on(0);
  int fd = -1;
  CUmemPoolPtrExportData data;
  SET(data);
  ASK("export the pool of 1, 0 current",
      cuMemPoolExportToShareableHandle(&fd, m, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0), "%d", fd >= 0);
  ASK("export its memory, 0 current", cuMemPoolExportPointer(&data, p));
  send_fd(end, fd);
  if (write(end, &data, sizeof data) != sizeof data) return;
  await(end);
  ASK("what it has at the end", 0, "%x", word(1, p));
  ASK("free at the end", cuMemFree(p));
  ASK("destroy at the end", cuMemPoolDestroy(m));
}

static void shared(void) {
  int end = -1;
  pid_t child = other(&end, importer);
  exporter(end);
  waitpid(child, NULL, 0);
}
static void to_zero(void) {
  now_ = 0;
  shared();
}
static void to_one(void) {
  now_ = 1;
  shared();
}

static void within(void) {
  both();
  for (int d = 0; d < 2; d++) {
    CUmemoryPool m = pool_of(d), n = NULL, base = NULL;
    int fd = -1;
    DO(cuMemPoolExportToShareableHandle(&fd, m, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    ASK(W("import its own, of %d", d),
        cuMemPoolImportFromShareableHandle(&n, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    DO(cuDeviceGetDefaultMemPool(&base, d));
    ASK(W("export the default of %d", d),
        cuMemPoolExportToShareableHandle(&fd, base, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    CUmemPoolPtrExportData data;
    CUdeviceptr p = memory(d, 4096, 0);
    ASK(W("export plain memory of %d", d), cuMemPoolExportPointer(&data, p));
  }
}

static void importing_memory(int end) {
  begin();
  both();
  int fd = receive_fd(end);
  CUmemGenericAllocationHandle h = 0;
  ASK("import memory of 1",
      cuMemImportFromShareableHandle(&h, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  CUmemAllocationProp p;
  SET(p);
  ASK("its properties", cuMemGetAllocationPropertiesFromHandle(&p, h), "%d %d %d", p.type, p.location.type,
      p.location.id);
  CUdeviceptr a = 0;
  DO(cuMemAddressReserve(&a, 2 * MIB, 0, 0, 0));
  ASK("map it", cuMemMap(a, 2 * MIB, 0, h, 0));
  for (int d = 0; d < 2; d++) {
    CUmemAccessDesc x = access_of(d, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    ASK(W("access for %d", d), cuMemSetAccess(a, 2 * MIB, &x, 1));
    ASK(W("what it has, by %d", d), 0, "%x", word(d, a));
  }
  ASK("where", 0, "%d", where(a));
  ASK("unmap", cuMemUnmap(a, 2 * MIB));
  ASK("release", cuMemRelease(h));
  pass(end);
}

static void memory_file(void) {
  int end = -1, fd = -1;
  pid_t child = other(&end, importing_memory);
  begin();
  both();
  CUmemAllocationProp p = pinned();
  p.location.id = 1, p.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemGenericAllocationHandle h = 0;
  CUdeviceptr a = 0;
  CUmemAccessDesc x = access_of(1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  DO(cuMemCreate(&h, 2 * MIB, &p, 0));
  DO(cuMemAddressReserve(&a, 2 * MIB, 0, 0, 0));
  DO(cuMemMap(a, 2 * MIB, 0, h, 0));
  DO(cuMemSetAccess(a, 2 * MIB, &x, 1));
  on(1);
  DO(cuMemsetD8(a, 0x32, 4096));
  DO(cuCtxSynchronize());
  on(0);
  ASK("export memory of 1, 0 current",
      cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0), "%d", fd >= 0);
  send_fd(end, fd);
  await(end);
  waitpid(child, NULL, 0);
}

CASES RUN_COLD(to_zero) RUN_COLD(to_one) RUN(within) RUN_COLD(memory_file) END
