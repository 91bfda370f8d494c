/* Pools, virtual memory, managed memory, batches of copies and handles for other processes, from several threads at
 * once, to be run plainly and with sanitizers. Built against the cuda.h of a toolkit, so that the compiler compares our
 * structures with its own.
 *
 *     exercise_memory [rounds]
 *
 * Exit code 1 at the first answer that is not the expected one. */
#include <cuda.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "expect.h"

enum { THREADS = 4, BLOCKS = 20, UNIT = 2 << 20 };

static CUcontext context;
static CUmemoryPool shared; /* by all threads */

static CUmemoryPool new_pool(CUmemAllocationHandleType handle_types) {
  CUmemPoolProps properties;
  CUmemoryPool pool;
  memset(&properties, 0, sizeof properties);
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.handleTypes = handle_types;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  OK(cuMemPoolCreate(&pool, &properties));
  return pool;
}

static void use_pool(CUmemoryPool pool) {
  CUdeviceptr blocks[BLOCKS];
  cuuint64_t value;
  for (int at = 0; at < BLOCKS; at++) {
    OK(cuMemAllocFromPoolAsync(&blocks[at], 100 + 1000 * (size_t)at, pool, NULL));
    OK(cuMemsetD8(blocks[at], (unsigned char)at, 100));
  }
  for (int at = 0; at < BLOCKS; at += 2) OK(cuMemFreeAsync(blocks[at], NULL));
  OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &value));
  OK(cuCtxSynchronize());
  for (int at = 1; at < BLOCKS; at += 2) {
    unsigned char first;
    OK(cuMemcpyDtoH(&first, blocks[at] + 99, 1));
    TRUE(first == at);
    OK(cuMemFree(blocks[at]));
  }
  OK(cuMemPoolTrimTo(pool, 0));
}

static void share_pool(void) {
  int file;
  CUdeviceptr block, imported, large;
  CUmemPoolPtrExportData data;
  CUmemoryPool pool = new_pool(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR), other;
  use_pool(pool);
  OK(cuMemPoolExportToShareableHandle(&file, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  OK(cuMemPoolImportFromShareableHandle(&other, (void *)(size_t)file, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  close(file);
  OK(cuMemAllocFromPoolAsync(&block, 1000, pool, NULL));
  OK(cuMemPoolExportPointer(&data, block));
  OK(cuMemPoolImportPointer(&imported, other, &data));
  OK(cuMemsetD8(block, 7, 1000));
  unsigned char last;
  OK(cuMemcpyDtoH(&last, imported + 999, 1));
  TRUE(last == 7);
  OK(cuMemAllocFromPoolAsync(&large, 64 << 20, pool, NULL)); /* a part of the file of its own */
  OK(cuMemsetD8(large, 9, 1000));
  OK(cuMemcpyDtoH(&last, block, 1));
  TRUE(last == 7);
  OK(cuMemFree(large));
  OK(cuMemPoolDestroy(pool)); /* with a block in use */
  OK(cuMemPoolDestroy(other));
  OK(cuMemFree(imported));
  OK(cuMemFree(block));
}

static void use_virtual_memory(CUmemAllocationHandleType handle_types) {
  CUdeviceptr base;
  CUmemAllocationProp properties;
  CUmemGenericAllocationHandle handle, again;
  CUmemAccessDesc access;
  unsigned long long flags;
  memset(&properties, 0, sizeof properties);
  memset(&access, 0, sizeof access);
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = handle_types;
  properties.location.type = access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  OK(cuMemAddressReserve(&base, 3 * UNIT, 0, 0, 0));
  OK(cuMemCreate(&handle, UNIT, &properties, 0));
  for (int at = 0; at < 3; at++) OK(cuMemMap(base + (size_t)at * UNIT, UNIT, 0, handle, 0));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemsetD8(base, 1, 1));
  OK(cuMemSetAccess(base, 3 * UNIT, &access, 1));
  OK(cuMemGetAccess(&flags, &access.location, base + UNIT));
  TRUE(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  OK(cuMemsetD8(base + UNIT - 2, 9, 4));
  unsigned char bytes[2];
  OK(cuMemcpyDtoH(bytes, base + 2 * UNIT, 2)); /* the same memory a third time */
  TRUE(bytes[0] == 9 && bytes[1] == 9);
  OK(cuMemRetainAllocationHandle(&again, (void *)(size_t)(base + UNIT + 5)));
  TRUE(again == handle);
  OK(cuMemRelease(again));
  if (handle_types) {
    int file;
    OK(cuMemExportToShareableHandle(&file, handle, handle_types, 0));
    OK(cuMemImportFromShareableHandle(&again, (void *)(size_t)file, handle_types));
    close(file);
    OK(cuMemGetAllocationPropertiesFromHandle(&properties, again));
    OK(cuMemRelease(again));
  }
  OK(cuMemRelease(handle));
  OK(cuMemUnmap(base, 3 * UNIT));
  OK(cuMemAddressFree(base, 3 * UNIT));
}

static void use_managed_memory(void) {
  CUdeviceptr block;
  CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  int value[2];
  OK(cuMemAllocManaged(&block, 5 * 4096, CU_MEM_ATTACH_GLOBAL));
  for (int at = 0; at < 5; at++)
    OK(cuMemAdvise(block + 4096 * (size_t)at, 100, CU_MEM_ADVISE_SET_ACCESSED_BY, location));
  OK(cuMemPrefetchAsync(block + 100, 8000, location, 0, NULL));
  OK(cuMemRangeGetAttribute(value, sizeof value, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, block, 5 * 4096));
  TRUE(value[0] == 0 && value[1] == CU_DEVICE_INVALID);
  OK(cuMemFree(block));
}

static void use_handles(void) {
  CUdeviceptr block, opened;
  CUipcMemHandle handle;
  CUipcEventHandle event_handle;
  CUevent event;
  unsigned char first;
  OK(cuMemAlloc(&block, 10000));
  OK(cuMemsetD8(block, 5, 10000));
  OK(cuIpcGetMemHandle(&handle, block));
  OK(cuMemcpyDtoH(&first, block + 9999, 1));
  TRUE(first == 5);
  EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuIpcOpenMemHandle(&opened, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  OK(cuMemFree(block));
  OK(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
  OK(cuIpcGetEventHandle(&event_handle, event));
  OK(cuEventDestroy(event));
}

static void use_pointers(void) {
  static char own[THREADS * 8192]; /* not ours to register twice, so this runs once */
  CUdeviceptr block;
  unsigned long long tokens[2];
  OK(cuMemHostRegister(own, sizeof own, 0));
  OK(cuMemAlloc(&block, 64));
  for (int attribute = 0; attribute < 30; attribute++) {
    unsigned char *exact = malloc(attribute == CU_POINTER_ATTRIBUTE_P2P_TOKENS ? sizeof tokens : 8);
    cuPointerGetAttribute(exact, (CUpointer_attribute)attribute, block);
    cuPointerGetAttribute(exact, (CUpointer_attribute)attribute, (CUdeviceptr)own);
    cuPointerGetAttribute(exact, (CUpointer_attribute)attribute, 4096);
    free(exact);
  }
  OK(cuMemFree(block));
  OK(cuMemHostUnregister(own));
}

static void copy_batches(void) {
  enum { COUNT = 3, BYTES = 4096 };
  CUdeviceptr from, to;
  CUstream stream;
  CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
  CUDA_MEMCPY3D_BATCH_OP box = {.extent = {64, 4, 2}, .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
  size_t first = 0, sizes[COUNT] = {1, 100, BYTES - 200};
  unsigned char bytes[BYTES];
  OK(cuMemAlloc(&from, BYTES));
  OK(cuMemAlloc(&to, BYTES));
  OK(cuMemsetD8(from, 7, BYTES));
  OK(cuMemsetD8(to, 0, BYTES));
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUdeviceptr sources[COUNT] = {from, from + 1, from + 200}, targets[COUNT] = {to, to + 1, to + 200};
  OK(cuMemcpyBatchAsync(targets, sources, sizes, COUNT, &attributes, &first, 1, stream));
  OK(cuMemcpyDtoH(bytes, to, BYTES));
  TRUE(bytes[100] == 7 && bytes[101] == 0 && bytes[BYTES - 1] == 7);
  sizes[COUNT - 1] = BYTES; /* beyond the end */
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyBatchAsync(targets, sources, sizes, COUNT, &attributes, &first, 1, stream));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyBatchAsync(targets, sources, sizes, COUNT, &attributes, &first, 1, NULL));
  box.src.type = box.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
  box.src.op.ptr.ptr = from;
  box.dst.op.ptr.ptr = to + 1024;
  OK(cuMemcpy3DBatchAsync(1, &box, 0, stream));
  box.extent.height = 4096;
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpy3DBatchAsync(1, &box, 0, stream));
  OK(cuStreamDestroy(stream));
  OK(cuMemFree(from));
  OK(cuMemFree(to));
}

static void use_external_memory(void) {
  FILE *backing = tmpfile();
  CUDA_EXTERNAL_MEMORY_HANDLE_DESC description;
  CUDA_EXTERNAL_MEMORY_BUFFER_DESC part;
  CUexternalMemory memory;
  CUdeviceptr block;
  TRUE(backing && !ftruncate(fileno(backing), 8192));
  memset(&description, 0, sizeof description);
  memset(&part, 0, sizeof part);
  description.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD;
  description.handle.fd = dup(fileno(backing));
  description.size = 8192;
  OK(cuImportExternalMemory(&memory, &description));
  part.offset = 100;
  part.size = 9000;
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuExternalMemoryGetMappedBuffer(&block, memory, &part));
  part.size = 5000;
  OK(cuExternalMemoryGetMappedBuffer(&block, memory, &part));
  OK(cuMemsetD8(block, 3, 5000));
  OK(cuMemFree(block));
  TRUE(!ftruncate(fileno(backing), 4096));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuExternalMemoryGetMappedBuffer(&block, memory, &part)); /* behind its end */
  OK(cuDestroyExternalMemory(memory));
  EXPECT(CUDA_ERROR_INVALID_HANDLE, cuDestroyExternalMemory(memory));
  fclose(backing);
}

/* A semaphore that one thread may destroy, or import again at the same address, while another one signals it. */
static _Atomic(CUexternalSemaphore) latest;

static void use_semaphores(void) {
  FILE *backing = tmpfile();
  CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC description;
  CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS signal;
  CUexternalSemaphore own, other;
  TRUE(backing);
  memset(&description, 0, sizeof description);
  memset(&signal, 0, sizeof signal);
  description.type = CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD;
  for (int time = 0; time < 200; time++) {
    description.handle.fd = dup(fileno(backing));
    OK(cuImportExternalSemaphore(&own, &description));
    atomic_store(&latest, own);
    for (int again = 0; again < 10; again++) {
      other = atomic_load(&latest);
      CUresult signaled = cuSignalExternalSemaphoresAsync(&other, &signal, 1, NULL);
      TRUE(signaled == CUDA_SUCCESS || signaled == CUDA_ERROR_INVALID_HANDLE);
    }
    OK(cuDestroyExternalSemaphore(own));
  }
  EXPECT(CUDA_ERROR_INVALID_HANDLE, cuDestroyExternalSemaphore(own));
  for (int type = -1; type < 13; type++) {
    bool known = type > 0 && type < 11;
    description.type = (CUexternalSemaphoreHandleType)type;
    description.handle.fd = dup(fileno(backing));
    CUresult imported = cuImportExternalSemaphore(&own, &description);
    EXPECT(type == 1 || type == 9 ? CUDA_SUCCESS
           : known                ? CUDA_ERROR_NOT_SUPPORTED
                                  : CUDA_ERROR_INVALID_VALUE,
           imported);
    OK(imported ? close(description.handle.fd) : (int)cuDestroyExternalSemaphore(own));
  }
  fclose(backing);
}

static void *work(void *rounds) {
  OK(cuCtxSetCurrent(context));
  for (int round = 0; round < *(int *)rounds; round++) {
    use_pool(shared);
    share_pool();
    use_virtual_memory(CU_MEM_HANDLE_TYPE_NONE);
    use_virtual_memory(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    use_managed_memory();
    use_handles();
    copy_batches();
    use_external_memory();
    use_semaphores();
  }
  return NULL;
}

int main(int count, char **arguments) {
  int rounds = count > 1 ? atoi(arguments[1]) : 1;
  pthread_t threads[THREADS];
  size_t before, after;
  OK(cuInit(0));
  OK(cuDevicePrimaryCtxRetain(&context, 0));
  OK(cuCtxSetCurrent(context));
  OK(cuMemGetInfo(&before, NULL));
  shared = new_pool(CU_MEM_HANDLE_TYPE_NONE);
  use_pointers();
  for (int at = 0; at < THREADS; at++) TRUE(!pthread_create(&threads[at], NULL, work, &rounds));
  for (int at = 0; at < THREADS; at++) pthread_join(threads[at], NULL);
  OK(cuMemPoolDestroy(shared));
  OK(cuMemGetInfo(&after, NULL));
  TRUE(before == after);
  OK(cuDevicePrimaryCtxRelease(0));
  puts("done");
  return 0;
}
