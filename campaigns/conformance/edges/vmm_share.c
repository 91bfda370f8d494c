/* Physical memory across processes: export as a file descriptor, import, what the child's handle says. */
#include "ask.h"

static CUmemGenericAllocationHandle shareable(int types) {
  CUmemAllocationProp p = pinned();
  CUmemGenericAllocationHandle h = 0;
  p.requestedHandleTypes = types;
  DO(cuMemCreate(&h, 2 * MIB, &p, 0));
  return h;
}

static void exporting(void) {
  int fd = -7;
  CUmemGenericAllocationHandle h = shareable(1), closed = shareable(0);
  ASK("not shareable", cuMemExportToShareableHandle(&fd, closed, 1, 0), "%d", fd == -7);
  for (int type = 0; type <= 8; type++) {
    fd = -7;
    if (type == 8 || type < 5) ASK(W("type %d", type), cuMemExportToShareableHandle(&fd, h, type, 0), "%d", fd >= 0);
  }
  for (int flag = 1; flag <= 2; flag++) ASK(W("flags %d", flag), cuMemExportToShareableHandle(&fd, h, 1, flag));
  int second = -7;
  DO(cuMemExportToShareableHandle(&fd, h, 1, 0));
  ASK("twice", cuMemExportToShareableHandle(&second, h, 1, 0), "%d", second != fd && second >= 0);
  SAY("closed on exec", "%d", fcntl(fd, F_GETFD));
  RISK("into NULL", cuMemExportToShareableHandle(NULL, h, 1, 0));
  RISK("handle 0", cuMemExportToShareableHandle(&fd, 0, 1, 0));
}

static void importing(void) {
  int fd = -7;
  CUmemGenericAllocationHandle h = shareable(1), in = 0, twice = 0;
  DO(cuMemExportToShareableHandle(&fd, h, 1, 0));
  for (int type = 0; type <= 8; type++)
    if (type == 8 || type < 5) {
      in = 7;
      RISK(W("type %d", type), cuMemImportFromShareableHandle(&in, (void *)(intptr_t)fd, type), "%d", in != 7);
    }
  DO(cuMemImportFromShareableHandle(&in, (void *)(intptr_t)fd, 1));
  SAY("the handle is the exporter's", "%d", in == h);
  ASK("again", cuMemImportFromShareableHandle(&twice, (void *)(intptr_t)fd, 1), "%d", twice == in);
  CUmemAllocationProp q;
  ASK("properties", cuMemGetAllocationPropertiesFromHandle(&q, in), "%d %d %d", q.type, q.requestedHandleTypes,
      q.location.id);
  int again = -7;
  ASK("export what was imported", cuMemExportToShareableHandle(&again, in, 1, 0), "%d", again >= 0);
  int ends[2];
  if (pipe(ends)) perror("pipe");
  ASK("a pipe", cuMemImportFromShareableHandle(&in, (void *)(intptr_t)ends[0], 1));
  int null = open("/dev/null", O_RDWR);
  ASK("/dev/null", cuMemImportFromShareableHandle(&in, (void *)(intptr_t)null, 1));
  ASK("-1", cuMemImportFromShareableHandle(&in, (void *)(intptr_t)-1, 1));
  ASK("a closed descriptor", cuMemImportFromShareableHandle(&in, (void *)(intptr_t)900, 1));
  close(fd);
  CUdeviceptr a = 0;
  DO(cuMemAddressReserve(&a, 2 * MIB, 0, 0, 0));
  ASK("map after the descriptor is closed", cuMemMap(a, 2 * MIB, 0, twice, 0));
  RISK("into NULL", cuMemImportFromShareableHandle(NULL, (void *)(intptr_t)fd, 1));
}

static void child(int end) {
  int fd = receive_fd(end);
  begin();
  CUmemGenericAllocationHandle h = 0, again = 0;
  CUmemAllocationProp q;
  SET(q);
  ASK("child imports", cuMemImportFromShareableHandle(&h, (void *)(intptr_t)fd, 1));
  ASK("child imports again", cuMemImportFromShareableHandle(&again, (void *)(intptr_t)fd, 1), "%d", again == h);
  ASK("child's properties", cuMemGetAllocationPropertiesFromHandle(&q, h), "%d %d %d %d", q.type,
      q.requestedHandleTypes, q.location.type, q.location.id);
  int out = -7;
  ASK("child exports", cuMemExportToShareableHandle(&out, h, 1, 0), "%d", out >= 0);
  CUdeviceptr a = 0;
  DO(cuMemAddressReserve(&a, 2 * MIB, 0, 0, 0));
  ASK("child maps", cuMemMap(a, 2 * MIB, 0, h, 0));
  unsigned long long f = 77;
  CUmemAccessDesc d = access_of(0, 3);
  ASK("child's access before it asks", cuMemGetAccess(&f, &d.location, a), "%llu", f);
  ASK("child sets access", cuMemSetAccess(a, 2 * MIB, &d, 1));
  unsigned char byte = 0;
  ASK("child reads", cuMemcpyDtoH(&byte, a, 1), "%d", byte);
  ASK("child writes", cuMemsetD8(a, 6, 16));
  DO(cuCtxSynchronize());
  int types = 7;
  ASK("child's allowed handle types", cuPointerGetAttribute(&types, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, a), "%d",
      types);
  int legacy = 7;
  ASK("child's memory is IPC capable",
      cuPointerGetAttribute(&legacy, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, a), "%d", legacy);
  CUipcMemHandle ipc;
  ASK("child's IPC handle of it", cuIpcGetMemHandle(&ipc, a));
  pass(end);
  await(end);
  ASK("child reads after the exporter released", cuMemcpyDtoH(&byte, a, 1), "%d", byte);
  ASK("child unmaps", cuMemUnmap(a, 2 * MIB));
  ASK("child releases", cuMemRelease(h));
  ASK("child releases the second", cuMemRelease(h));
  ASK("child releases a third time", cuMemRelease(h));
  pass(end);
}

static void processes(void) {
  int end, fd;
  pid_t pid = other(&end, child);
  begin();
  CUmemGenericAllocationHandle h = shareable(1);
  CUdeviceptr a = 0;
  CUmemAccessDesc d = access_of(0, 3);
  DO(cuMemAddressReserve(&a, 2 * MIB, 0, 0, 0));
  DO(cuMemMap(a, 2 * MIB, 0, h, 0));
  DO(cuMemSetAccess(a, 2 * MIB, &d, 1));
  DO(cuMemsetD8(a, 5, 16));
  DO(cuCtxSynchronize());
  DO(cuMemExportToShareableHandle(&fd, h, 1, 0));
  send_fd(end, fd);
  await(end);
  unsigned char byte = 0;
  ASK("parent reads what the child wrote", cuMemcpyDtoH(&byte, a, 1), "%d", byte);
  DO(cuMemUnmap(a, 2 * MIB));
  ASK("parent releases", cuMemRelease(h));
  pass(end);
  await(end);
  waitpid(pid, NULL, 0);
}

static void ranges(void) {
  int fd = -7;
  CUdeviceptr m = 0;
  DO(cuMemAlloc(&m, 2 * MIB));
  int supported = 7;
  ASK("dma-buf supported", cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 0), "%d", supported);
  ASK("whole", cuMemGetHandleForAddressRange(&fd, m, 2 * MIB, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0), "%d", fd >= 0);
  ASK("a page", cuMemGetHandleForAddressRange(&fd, m, 65536, 1, 0));
  ASK("half a page", cuMemGetHandleForAddressRange(&fd, m, 2048, 1, 0));
  ASK("size 0", cuMemGetHandleForAddressRange(&fd, m, 0, 1, 0));
  ASK("beyond", cuMemGetHandleForAddressRange(&fd, m, 4 * MIB, 1, 0));
  ASK("odd address", cuMemGetHandleForAddressRange(&fd, m + 1, 4096, 1, 0));
  ASK("type 0", cuMemGetHandleForAddressRange(&fd, m, 2 * MIB, 0, 0));
  ASK("type 2", cuMemGetHandleForAddressRange(&fd, m, 2 * MIB, 2, 0));
  ASK("flags 1", cuMemGetHandleForAddressRange(&fd, m, 2 * MIB, 1, 1));
  ASK("flags 2", cuMemGetHandleForAddressRange(&fd, m, 2 * MIB, 1, 2));
  ASK("address 0", cuMemGetHandleForAddressRange(&fd, 0, 4096, 1, 0));
  RISK("into NULL", cuMemGetHandleForAddressRange(NULL, m, 2 * MIB, 1, 0));
}

CASES RUN(exporting) RUN(importing) RUN_COLD(processes) RUN(ranges) END
