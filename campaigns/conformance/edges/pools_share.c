/* Pools and their pointers across processes. */
#include "ask.h"

static CUmemoryPool made(int types) {
  CUmemPoolProps p = pool_on_device(types);
  CUmemoryPool pool = NULL;
  DO(cuMemPoolCreate(&pool, &p));
  return pool;
}

static void exporting(void) {
  int fd = -7;
  CUmemoryPool pool = made(1), closed = made(0), standard = NULL;
  ASK("not shareable", cuMemPoolExportToShareableHandle(&fd, closed, 1, 0), "%d", fd == -7);
  DO(cuDeviceGetDefaultMemPool(&standard, 0));
  ASK("the default pool", cuMemPoolExportToShareableHandle(&fd, standard, 1, 0));
  for (int type = 0; type <= 8; type++)
    if (type == 8 || type < 5) {
      fd = -7;
      ASK(W("type %d", type), cuMemPoolExportToShareableHandle(&fd, pool, type, 0), "%d", fd >= 0);
    }
  ASK("flags 1", cuMemPoolExportToShareableHandle(&fd, pool, 1, 1));
  CUmemPoolPtrExportData data;
  CUdeviceptr m = 0, c = 0, d = 0;
  DO(cuMemAllocFromPoolAsync(&m, 4096, pool, 0));
  DO(cuMemAllocFromPoolAsync(&c, 4096, closed, 0));
  DO(cuMemAlloc(&d, 4096));
  DO(cuCtxSynchronize());
  ASK("a pointer", cuMemPoolExportPointer(&data, m));
  ASK("a pointer twice", cuMemPoolExportPointer(&data, m));
  ASK("an inner pointer", cuMemPoolExportPointer(&data, m + 512));
  ASK("an odd pointer", cuMemPoolExportPointer(&data, m + 1));
  ASK("one past the end", cuMemPoolExportPointer(&data, m + 4096));
  ASK("a pointer of a pool that is not shareable", cuMemPoolExportPointer(&data, c));
  ASK("a pointer of cuMemAlloc", cuMemPoolExportPointer(&data, d));
  ASK("pointer 0", cuMemPoolExportPointer(&data, 0));
  CUipcMemHandle ipc;
  ASK("an IPC handle of pool memory", cuIpcGetMemHandle(&ipc, m));
  DO(cuMemFreeAsync(m, 0));
  DO(cuCtxSynchronize());
  ASK("a freed pointer", cuMemPoolExportPointer(&data, m));
  RISK("pool into NULL", cuMemPoolExportToShareableHandle(NULL, pool, 1, 0));
  RISK("a NULL pool", cuMemPoolExportToShareableHandle(&fd, NULL, 1, 0));
  RISK("pointer into NULL", cuMemPoolExportPointer(NULL, m));
}

static void importing(void) {
  int fd = -7, null = open("/dev/null", O_RDWR);
  CUmemoryPool pool = made(1), in = NULL;
  DO(cuMemPoolExportToShareableHandle(&fd, pool, 1, 0));
  for (int type = 0; type <= 8; type++)
    if (type == 8 || type < 5)
      RISK(W("type %d", type), cuMemPoolImportFromShareableHandle(&in, (void *)(intptr_t)fd, type, 0));
  ASK("flags 1", cuMemPoolImportFromShareableHandle(&in, (void *)(intptr_t)fd, 1, 1));
  ASK("/dev/null", cuMemPoolImportFromShareableHandle(&in, (void *)(intptr_t)null, 1, 0));
  ASK("-1", cuMemPoolImportFromShareableHandle(&in, (void *)(intptr_t)-1, 1, 0));
  RISK("into NULL", cuMemPoolImportFromShareableHandle(NULL, (void *)(intptr_t)fd, 1, 0));
}

static void child(int end) {
  int fd = receive_fd(end);
  begin();
  CUmemPoolPtrExportData data, broken;
  if (read(end, &data, sizeof data) != sizeof data) return;
  CUmemoryPool pool = NULL, second = NULL;
  ASK("child imports the pool", cuMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)fd, 1, 0));
  ASK("child imports it again", cuMemPoolImportFromShareableHandle(&second, (void *)(intptr_t)fd, 1, 0), "%d",
      second == pool);
  uint64_t value = 7;
  for (int a = 1; a <= 8; a++) {
    value = 77;
    ASK(W("child gets attribute %d", a), cuMemPoolGetAttribute(pool, a, &value), "%llu", (unsigned long long)value);
  }
  for (int a = 1; a <= 8; a++) {
    value = 0;
    ASK(W("child sets attribute %d", a), cuMemPoolSetAttribute(pool, a, &value));
  }
  ASK("child trims", cuMemPoolTrimTo(pool, 0));
  int out = -7;
  ASK("child exports the pool", cuMemPoolExportToShareableHandle(&out, pool, 1, 0), "%d", out >= 0);
  CUdeviceptr m = 0, n = 0, own = 0;
  ASK("child allocates from it", cuMemAllocFromPoolAsync(&own, 100, pool, 0));
  ASK("child makes it current", cuDeviceSetMemPool(0, pool));
  CUmemAccess_flags f = 7;
  CUmemAccessDesc d = access_of(0, 3);
  ASK("child asks for access", cuMemPoolGetAccess(&f, pool, &d.location), "%d", f);
  ASK("child imports the pointer", cuMemPoolImportPointer(&m, pool, &data), "%d", m != 0);
  ASK("child imports the pointer again", cuMemPoolImportPointer(&n, pool, &data), "%d", n == m);
  unsigned char byte = 0;
  ASK("child reads before it sets access", cuMemcpyDtoH(&byte, m, 1), "%d", byte);
  ASK("child sets access", cuMemPoolSetAccess(pool, &d, 1));
  ASK("child reads", cuMemcpyDtoH(&byte, m, 1), "%d", byte);
  CUdeviceptr base = 0;
  size_t size = 7;
  ASK("child's range", cuMemGetAddressRange(&base, &size, m), "%d %zu", base == m, size);
  CUmemoryPool mine = NULL;
  ASK("pool of the child's pointer", cuPointerGetAttribute(&mine, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, m), "%d",
      mine == pool);
  CUmemPoolPtrExportData again;
  ASK("child exports the pointer", cuMemPoolExportPointer(&again, m));
  memset(&broken, 0x5a, sizeof broken);
  ASK("child imports damaged data", cuMemPoolImportPointer(&n, pool, &broken));
  CUmemoryPool own_pool = made(1);
  ASK("child imports into another pool", cuMemPoolImportPointer(&n, own_pool, &data));
  ASK("child frees in a stream", cuMemFreeAsync(m, 0));
  DO(cuCtxSynchronize());
  ASK("child frees the second import", cuMemFree(m));
  ASK("child frees a third time", cuMemFree(m));
  ASK("child destroys the pool", cuMemPoolDestroy(pool));
  pass(end);
}

static void processes(void) {
  int end;
  pid_t pid = other(&end, child);
  begin();
  CUdeviceptr m = share_pool(end);
  await(end);
  waitpid(pid, NULL, 0);
  unsigned char byte = 0;
  ASK("the exporter's memory outlives the child", cuMemcpyDtoH(&byte, m, 1), "%d", byte);
  ASK("the exporter frees", cuMemFreeAsync(m, 0));
}

static void alone(void) {
  CUmemoryPool pool = made(1), in = NULL;
  int fd;
  CUdeviceptr m = 0, n = 0;
  CUmemPoolPtrExportData data;
  DO(cuMemAllocFromPoolAsync(&m, 4096, pool, 0));
  DO(cuCtxSynchronize());
  DO(cuMemPoolExportToShareableHandle(&fd, pool, 1, 0));
  DO(cuMemPoolExportPointer(&data, m));
  ASK("a process imports its own pool", cuMemPoolImportFromShareableHandle(&in, (void *)(intptr_t)fd, 1, 0), "%d",
      in == pool);
  ASK("and its own pointer", cuMemPoolImportPointer(&n, in, &data), "%d", n == m);
  ASK("into the pool itself", cuMemPoolImportPointer(&n, pool, &data));
  RISK("pointer into NULL", cuMemPoolImportPointer(NULL, in, &data));
  RISK("pointer of NULL", cuMemPoolImportPointer(&n, in, NULL));
  RISK("pointer of a NULL pool", cuMemPoolImportPointer(&n, NULL, &data));
}

CASES RUN(exporting) RUN(importing) RUN_COLD(processes) RUN(alone) END
