/* Allocating and freeing memory of the device and of the host, and how much there is. */
#include <errno.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "accesses.h"
#include "capture.h"
#include "device_addresses.h"
#include "devices.h"
#include "graph_memory.h"
#include "pools.h"
#include "processes.h"
#include "watched_copies.h"

enum { ROW_ALIGNMENT = 512 };

static CUresult allocate(CUdeviceptr *out, size_t size, Origin origin, Place place, unsigned flags, Context *context) {
  Block block = {.size = size, .origin = origin, .place = place, .flags = flags, .context = context};
  block.device = context->device;
  block.sync_memops = place == MANAGED; /* until they are turned off (measured: edges/pointers) */
  CUresult result = cl_block_make(&block);
  if (!result) *out = block.start;
  return result;
}

API(cuMemAlloc_v2, (CUdeviceptr *out, size_t size), (out, size)) {
  cl_event_uint(line, "bytes", size);
  IN_CONTEXT(context);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  *out = 0; /* where there is no memory, too (measured: edges/host_memory) */
  return size ? allocate(out, size, FROM_ALLOCATION, ON_DEVICE, 0, context) : CUDA_ERROR_INVALID_VALUE;
}

API(cuMemAllocPitch_v2, (CUdeviceptr *out, size_t *pitch, size_t width, size_t height, unsigned element),
    (out, pitch, width, height, element)) {
  if (!out || !pitch) return CUDA_ERROR_INVALID_VALUE;
  IN_CONTEXT(context);
  *pitch = 0;
  if (!width || !height || (element != 4 && element != 8 && element != 16)) return CUDA_ERROR_INVALID_VALUE;
  size_t row = cl_rounded(width, ROW_ALIGNMENT);
  if (row * height == 0) return CUDA_ERROR_INVALID_VALUE; /* as a number of 64 bits (H200) */
  if (height > SIZE_MAX / row) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = allocate(out, row * height, FROM_ALLOCATION, ON_DEVICE, 0, context);
  if (!result) *pitch = row;
  cl_event_uint(line, "bytes", row * height);
  return result;
}

/* Checked even before cuInit (measured: programs/managed). */
static bool is_managed_request(size_t size, unsigned flags) {
  return size && (flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST);
}

API_WHEN(is_managed_request(size, flags), cuMemAllocManaged, (CUdeviceptr *out, size_t size, unsigned flags),
         (out, size, flags)) {
  cl_event_uint(line, "bytes", size);
  if (!out || !is_managed_request(size, flags)) return CUDA_ERROR_INVALID_VALUE;
  IN_CONTEXT(context);
  TRY(LOCKED(cl_prohibited()));
  return allocate(out, size, FROM_ALLOCATION, MANAGED, flags, context);
}

/* Whether cuMemFreeAsync has freed memory already; notes that this thread's call frees it again. */
static bool is_freed(Block *block) {
  if (block->freed) cl_note_dead_use(MEMORY_OF_POOL, block->id, block->end);
  return block->freed;
}

/* Frees what cuMemAlloc and its like gave, or a pool; it needs no context, but none that is dead (measured:
   programs/core). */
static CUresult free_memory(CUdeviceptr address, bool in_order) {
  Block taken;
  CUresult answer;
  if (cl_check_context() == CUDA_ERROR_CONTEXT_IS_DESTROYED) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (!address) return CUDA_SUCCESS;
  if (cl_graph_memory_released(address, &answer)) return answer;
  Block *block = cl_block_lock(address);
  bool freed = block && block->start == address && is_freed(block);
  cl_block_unlock();
  if (freed) return CUDA_ERROR_INVALID_VALUE; /* cuMemFree of a driver dies of it (measured: deaths-580.159.04-h200) */
  if (cl_pool_free(address, in_order)) return CUDA_SUCCESS;
  if (!cl_block_take(address, FROM_ALLOCATION | FROM_EXTERNAL, &taken)) return CUDA_ERROR_INVALID_VALUE;
  cl_block_free(&taken);
  return CUDA_SUCCESS;
}

/* Memory of a pool is dead for callers at once, and goes back to the pool when the stream is there.
   CUDA_ERROR_NOT_READY: it is not, and is to be freed at once. */
static CUresult free_later(const void *handle, CUdeviceptr address) {
  Stream *stream;
  TRY(cl_stream_ready(handle, &stream));
  Block *block = cl_block_lock(address);
  bool of_pool = block && block->start == address && block->origin & (FROM_POOL | FROM_POOL_OF_OTHER);
  bool freed = of_pool && is_freed(block);
  if (of_pool && !freed) {
    block->freed = true;
    block->end = cl_site_keep(cl_site());
    if (block->origin == FROM_POOL) ((Pool *)block->owner)->used -= block->size;
  }
  cl_block_unlock();
  if (freed) return CUDA_ERROR_INVALID_VALUE;
  if (!of_pool) return CUDA_ERROR_NOT_READY;
  return cl_queue(stream, &(NodeParameters){.type = WORK_FREE, .address = address}, false, NULL);
}

/* cuMemFree waits for the context that memory is of; of memory of a pool it takes for granted that nothing uses it
 * (CUDA Programming Guide, stream-ordered memory allocator). */
static void note_order_of_free(CUdeviceptr address) {
  const Block *block = cl_block_lock(address);
  const Context *behind = block && !cl_left_out() ? block->context : NULL;
  cl_block_unlock();
  cl_touch_freed(address, behind);
}

/* Waits as a call does that frees memory: for the context that it is of, whichever is current (two H200s:
   edges/two_more_waits). */
static CUresult wait_to_free(CUdeviceptr address) {
  if (!address || !(cl_any_pending() || cl_order_on)) return CUDA_SUCCESS;
  const Block *block = cl_block_lock(address);
  WaitFacts facts = {.memory = cl_memory_of(block), .context = block ? block->context : NULL};
  cl_block_unlock();
  return cl_wait_by_table(&facts);
}

API(cuMemFree_v2, (CUdeviceptr address), (address)) {
  cl_event_uint(line, "address", address);
  TRY(wait_to_free(address));
  if (cl_order_on) note_order_of_free(address);
  return free_memory(address, false);
}

API(cuMemFreeAsync, (CUdeviceptr address, void *stream), (address, stream)) {
  cl_event_uint(line, "address", address);
  bool captured;
  TRY(cl_enter_stream(stream, &captured));
  if (!captured) TRY(LOCKED(cl_prohibited()));
  if (captured && address) return cl_capture_free(stream, address);
  CUresult result = address && cl_must_wait(stream) ? LOCKED(free_later(stream, address)) : CUDA_ERROR_NOT_READY;
  if (result != CUDA_ERROR_NOT_READY) return result;
  Block *block = cl_block_lock(address);
  bool kept = address && block && block->origin == FROM_ALLOCATION && block->start == address;
  bool managed = kept && block->place == MANAGED;
  if (kept && !managed) cl_block_give(block);
  cl_block_unlock();
  if (managed) return cl_noted(line, CUDA_ERROR_NOT_SUPPORTED, "cuMemFree frees managed memory");
  /* until then, cuMemFree and everything else go on as if nothing had been freed (measured: edges/frees) */
  if (kept) return cl_noted(line, CUDA_SUCCESS, "what cuMemAlloc gave goes as the host waits");
  if (cl_order_on && address) {
    Op *op = cl_order_enter(stream);
    cl_touch_block(op, address, ACCESS_FREE);
    cl_order_drop(op);
  }
  return free_memory(address, true);
}

API(cuMemGetInfo_v2, (size_t *left, size_t *total), (left, total)) {
  IN_CONTEXT(context);
  if (left) *left = cl_memory_left(context->device);
  if (total) *total = cl_device_memory();
  return CUDA_SUCCESS;
}

/* -- memory of the host that the device may use: allocated by the driver, or registered -- */

/* CU_MEMHOSTALLOC_*, CU_MEMHOSTREGISTER_* */
enum { ALLOCATION_FLAGS = 7, REGISTER_FLAGS = 15 };

static CUresult allocate_for_host(void **out, size_t size, unsigned flags) {
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  IN_CONTEXT(context);
  *out = NULL; /* also with wrong flags (H200) */
  if (flags & ~(unsigned)ALLOCATION_FLAGS) return CUDA_ERROR_INVALID_VALUE;
  CUdeviceptr start = 0; /* nothing is no error (measured: programs/core) */
  flags |= CU_MEMHOSTALLOC_DEVICEMAP;
  if (size) TRY(allocate(&start, size, FROM_HOST_ALLOCATION, ON_HOST, flags, context));
  *out = (void *)(uintptr_t)start;
  return CUDA_SUCCESS;
}

EXPORTED(cuMemAllocHost_v2, (void **out, size_t size),
         (cl_event_uint(line, "bytes", size), allocate_for_host(out, size, 0)))

EXPORTED(cuMemHostAlloc, (void **out, size_t size, unsigned flags),
         (cl_event_uint(line, "bytes", size), allocate_for_host(out, size, flags)))

/* It needs no context, but none that is dead (measured: programs/core). */
static CUresult free_for_host(void *start, Origin origin) {
  Block taken;
  bool registered = origin == FROM_REGISTRATION;
  TRY(wait_to_free((uintptr_t)start));
  if (cl_check_context() == CUDA_ERROR_CONTEXT_IS_DESTROYED) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (!start) return registered ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  if (cl_order_on) cl_touch_freed((uintptr_t)start, NULL);
  if (!cl_block_take((uintptr_t)start, origin, &taken))
    return registered && !cl_is_known((uintptr_t)start) ? CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED
                                                        : CUDA_ERROR_INVALID_VALUE;
  cl_block_free(&taken);
  return CUDA_SUCCESS;
}
/* Looked at before the call waits for its context, which is not promised. */
static CUresult give_up(const void *start, const char *call) {
  cl_check_given_up(start, call);
  return CUDA_SUCCESS;
}
EXPORTED_CHECKED(cuMemFreeHost, (void *start), give_up(start, "cuMemFreeHost"),
                 free_for_host(start, FROM_HOST_ALLOCATION))
EXPORTED_CHECKED(cuMemHostUnregister, (void *start), give_up(start, "cuMemHostUnregister"),
                 free_for_host(start, FROM_REGISTRATION))

/* Whether the word of the host that a byte is in can be written, or read by a device that only reads: a change to what
   it is, by the kernel, which never faults. */
static bool is_there(uintptr_t byte, unsigned flags) {
  if (flags & CU_MEMHOSTREGISTER_READ_ONLY) return true;
  int none = 0, keep = FUTEX_OP(FUTEX_OP_OR, 0, FUTEX_OP_CMP_EQ, 0);
  return syscall(SYS_futex, &none, FUTEX_WAKE_OP_PRIVATE, 0, 0, byte & ~(uintptr_t)3, keep) >= 0 || errno != EFAULT;
}

/* Whether the host has all pages of a range; some need not be in memory. */
static bool is_mapped(uintptr_t start, uintptr_t end) {
  unsigned char unused[4096];
  const size_t page = cl_page_size(), most = page * sizeof unused;
  for (uintptr_t at = start & ~(page - 1); at < end; at += most)
    if (mincore((void *)at, end - at < most ? end - at : most, unused)) return false;
  return true;
}

API(cuMemHostRegister_v2, (void *start, size_t size, unsigned flags), (start, size, flags)) {
  cl_event_uint(line, "bytes", size);
  if (!start) return CUDA_ERROR_INVALID_VALUE;
  IN_CONTEXT(context);
  uintptr_t end;
  if (!size || flags & ~(unsigned)REGISTER_FLAGS || __builtin_add_overflow((uintptr_t)start, size, &end))
    return CUDA_ERROR_INVALID_VALUE;
  if (cl_is_device_address((uintptr_t)start) && !cl_is_known((uintptr_t)start)) return CUDA_ERROR_INVALID_VALUE;
  const unsigned kept = flags & ~(unsigned)CU_MEMHOSTREGISTER_READ_ONLY;
  Block block = {.start = (uintptr_t)start, .size = size, .origin = FROM_REGISTRATION, .place = ON_HOST};
  block.flags = kept | CU_MEMHOSTALLOC_DEVICEMAP; /* whether it was asked for or not (measured: programs/pools) */
  block.device = context->device;
  block.context = context;
  const Block *there = cl_block_lock((uintptr_t)start);
  bool known = there, registered = known && there->origin == FROM_REGISTRATION;
  cl_block_unlock();
  /* memory of the driver and of other devices cannot be registered (measured: edges/host_memory) */
  if (known ? !registered : flags & CU_MEMHOSTREGISTER_IOMEMORY) return CUDA_ERROR_INVALID_VALUE;
  if (!known && !is_there((uintptr_t)start, flags)) return CUDA_ERROR_INVALID_VALUE;
  TRY(cl_block_enter(&block)); /* what is registered in part is that first (measured: edges/host_memory) */
  if (known || is_mapped((uintptr_t)start, end)) return CUDA_SUCCESS;
  cl_block_take((uintptr_t)start, FROM_REGISTRATION, &block);
  return CUDA_ERROR_INVALID_VALUE;
}

API(cuMemHostGetDevicePointer_v2, (CUdeviceptr *address, void *start, unsigned flags), (address, start, flags)) {
  if (!address) return CUDA_ERROR_INVALID_VALUE;
  TRY(cl_check_context());
  *address = 0;
  bool of_device = cl_is_device_address((uintptr_t)start);
  if (flags || of_device || !cl_within((CUdeviceptr)(uintptr_t)start, 1)) return CUDA_ERROR_INVALID_VALUE;
  *address = (CUdeviceptr)(uintptr_t)start;
  return CUDA_SUCCESS;
}

API(cuMemHostGetFlags, (unsigned *flags, void *start), (flags, start)) {
  if (!flags) return CUDA_ERROR_INVALID_VALUE;
  TRY(cl_check_context());
  HOLD_BLOCK(block, (uintptr_t)start);
  bool found = block && block->origin & (FROM_HOST_ALLOCATION | FROM_REGISTRATION);
  if (found) *flags = block->slab ? block->slab->flags : block->flags; /* (measured: programs/order) */
  return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
