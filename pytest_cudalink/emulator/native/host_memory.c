/* Memory of the host that the device may use: allocated by the driver, or registered. */
#include "accesses.h"
#include "calls.h"
#include "contexts.h"
#include "device_addresses.h"
#include "memory.h"
#include "watched_copies.h"

/* CU_MEMHOSTALLOC_*, CU_MEMHOSTREGISTER_* */
enum { ALLOCATION_FLAGS = 7, REGISTER_FLAGS = 11 }; /* memory of a device can only be refused */

static CUresult allocate(void **out, size_t size, unsigned flags) {
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  CUresult state;
  Context *context = cl_context(&state);
  if (state) return state;
  if (flags & ~(unsigned)ALLOCATION_FLAGS) return CUDA_ERROR_INVALID_VALUE;
  Block block = {
      .size = size,
      .origin = FROM_HOST_ALLOCATION,
      .place = ON_HOST,
      .flags = flags | CU_MEMHOSTALLOC_DEVICEMAP,
      .device = context->device,
      .context = context,
  };
  /* nothing is no error (measured: programs/core) */
  CUresult result = size ? cl_block_make(&block) : CUDA_SUCCESS;
  if (!result) *out = (void *)block.start;
  return result;
}

static CUresult mem_alloc_host(EventLine *line, void **out, size_t size) {
  cl_event_uint(line, "bytes", size);
  return allocate(out, size, 0);
}
EXPORTED(cuMemAllocHost_v2, (void **out, size_t size), mem_alloc_host(line, out, size))
EXPORTED(cuMemAllocHost, (void **out, unsigned size), mem_alloc_host(line, out, size))

static CUresult mem_host_alloc(EventLine *line, void **out, size_t size, unsigned flags) {
  cl_event_uint(line, "bytes", size);
  return allocate(out, size, flags);
}
EXPORTED(cuMemHostAlloc, (void **out, size_t size, unsigned flags), mem_host_alloc(line, out, size, flags))

/* It needs no context, but none that is dead (measured: programs/core). */
static CUresult mem_free_host(void *start) {
  Block taken;
  if (cl_check_context() == CUDA_ERROR_CONTEXT_IS_DESTROYED) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (!start) return CUDA_SUCCESS;
  if (cl_order_on) cl_touch_freed((uintptr_t)start, NULL);
  if (!cl_block_take((uintptr_t)start, FROM_HOST_ALLOCATION, &taken)) return CUDA_ERROR_INVALID_VALUE;
  cl_block_free(&taken);
  return CUDA_SUCCESS;
}
/* Looked at before the call waits for its context, which nobody promises. */
static CUresult give_up(const void *start, const char *call) {
  cl_check_given_up(start, call);
  return CUDA_SUCCESS;
}
EXPORTED_CHECKED(cuMemFreeHost, (void *start), give_up(start, "cuMemFreeHost"), mem_free_host(start))

static CUresult register_host(void *start, size_t size, unsigned flags) {
  if (!start) return CUDA_ERROR_INVALID_VALUE;
  CUresult state;
  Context *context = cl_context(&state);
  if (state) return state;
  uintptr_t end;
  if (!size || flags & ~(unsigned)REGISTER_FLAGS || __builtin_add_overflow((uintptr_t)start, size, &end))
    return CUDA_ERROR_INVALID_VALUE;
  if (cl_is_device_address((uintptr_t)start) && !cl_is_known((uintptr_t)start)) return CUDA_ERROR_INVALID_VALUE;
  Block block = {
      .start = (uintptr_t)start,
      .size = size,
      .origin = FROM_REGISTRATION,
      .place = ON_HOST,
      .flags = flags | CU_MEMHOSTALLOC_DEVICEMAP, /* whether it was asked for or not (measured: programs/pools) */
      .device = context->device,
      .context = context,
  };
  return cl_block_enter(&block);
}

static CUresult mem_host_register(EventLine *line, void *start, size_t size, unsigned flags) {
  cl_event_uint(line, "bytes", size);
  return register_host(start, size, flags);
}
EXPORTED(cuMemHostRegister_v2, (void *start, size_t size, unsigned flags), mem_host_register(line, start, size, flags))

static CUresult mem_host_unregister(void *start) {
  if (cl_check_context() == CUDA_ERROR_CONTEXT_IS_DESTROYED) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (!start) return CUDA_ERROR_INVALID_VALUE;
  if (cl_order_on) cl_touch_freed((uintptr_t)start, NULL);
  Block taken;
  if (!cl_block_take((uintptr_t)start, FROM_REGISTRATION, &taken))
    return cl_is_known((uintptr_t)start) ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  cl_block_free(&taken);
  return CUDA_SUCCESS;
}
EXPORTED_CHECKED(cuMemHostUnregister, (void *start), give_up(start, "cuMemHostUnregister"), mem_host_unregister(start))

static CUresult mem_host_get_device_pointer(CUdeviceptr *address, void *start, unsigned flags) {
  if (!address) return CUDA_ERROR_INVALID_VALUE;
  CUresult state = cl_check_context();
  if (state) return state;
  bool of_device = cl_is_device_address((uintptr_t)start);
  if (flags || of_device || !cl_within((CUdeviceptr)(uintptr_t)start, 1)) return CUDA_ERROR_INVALID_VALUE;
  *address = (CUdeviceptr)(uintptr_t)start;
  return CUDA_SUCCESS;
}
EXPORTED(cuMemHostGetDevicePointer_v2, (CUdeviceptr *address, void *start, unsigned flags),
         mem_host_get_device_pointer(address, start, flags))

static CUresult mem_host_get_flags(unsigned *flags, void *start) {
  if (!flags) return CUDA_ERROR_INVALID_VALUE;
  CUresult state = cl_check_context();
  if (state) return state;
  const Block *block = cl_block_lock((uintptr_t)start);
  bool found = block && block->origin & (FROM_HOST_ALLOCATION | FROM_REGISTRATION);
  if (found) *flags = block->slab ? block->slab->flags : block->flags; /* (measured: programs/order) */
  cl_block_unlock();
  return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
EXPORTED(cuMemHostGetFlags, (unsigned *flags, void *start), mem_host_get_flags(flags, start))
