/* Device memory, backed by host memory: a table of allocations, and what a pointer is. */
#define _GNU_SOURCE
#include "memory.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "calls.h"
#include "contexts.h"
#include "devices.h"
#include "streams.h"

enum { ALIGNMENT = 512 };

typedef enum { DEVICE, HOST, MANAGED, REGISTERED } Kind;

typedef struct {
  uintptr_t start;
  size_t size;
  Kind kind;
  unsigned flags;
  bool mapped;      /* by mmap: pages of zeros that cost nothing before they are used */
  Context *context; /* that it dies with; NULL for variables of modules */
  uint64_t id;
} Allocation;

/* Sorted by address; `bytes` are those of the device. */
static struct {
  Allocation *list;
  size_t count, room, bytes;
  uint64_t last_id;
} memory;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the allocations */

/* A thread may hold a lock while another one forks; in the child no thread would release it. */
static void unlock_in_child(void) { pthread_mutex_init(&lock, NULL); }

__attribute__((constructor)) static void watch_forks(void) { pthread_atfork(NULL, NULL, unlock_in_child); }

/* Index of the allocation that holds an address, or of the first one behind it. */
static size_t find(uintptr_t address, bool *inside) {
  size_t low = 0, high = memory.count;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (memory.list[middle].start <= address) low = middle + 1;
    else high = middle;
  }
  *inside = low && address - memory.list[low - 1].start < memory.list[low - 1].size;
  return *inside ? low - 1 : low;
}

static bool on_device(Kind kind) { return kind == DEVICE || kind == MANAGED; }

static bool insert(Allocation allocation) {
  bool inside;
  if (memory.count == memory.room) {
    size_t room = memory.room ? 2 * memory.room : 64;
    Allocation *list = realloc(memory.list, room * sizeof *list);
    if (!list) return false;
    memory.list = list;
    memory.room = room;
  }
  size_t at = find(allocation.start, &inside);
  memmove(memory.list + at + 1, memory.list + at, (memory.count - at) * sizeof *memory.list);
  allocation.id = ++memory.last_id;
  memory.list[at] = allocation;
  memory.count++;
  if (on_device(allocation.kind)) memory.bytes += allocation.size;
  return true;
}

/* Frees the memory of an allocation that is no longer in the table. */
static void free_block(const Allocation *allocation) {
  if (allocation->kind == REGISTERED) return;
  if (allocation->mapped) munmap((void *)allocation->start, allocation->size);
  else free((void *)allocation->start);
}

static Allocation take_out(size_t at) {
  Allocation taken = memory.list[at];
  if (on_device(taken.kind)) memory.bytes -= taken.size;
  memory.count--;
  memmove(memory.list + at, memory.list + at + 1, (memory.count - at) * sizeof *memory.list);
  return taken;
}

enum { LARGE = 64 * 1024 };

static CUresult allocate(uintptr_t *out, size_t size, Kind kind, unsigned flags, Context *context) {
  Allocation fresh = {.size = size, .kind = kind, .flags = flags, .context = context, .mapped = size >= LARGE};
  if (size > cl_device_memory()) return CUDA_ERROR_OUT_OF_MEMORY;
  if (fresh.mapped) {
    void *pages = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    fresh.start = (uintptr_t)pages;
  } else {
    void *block = NULL;
    if (posix_memalign(&block, ALIGNMENT, size ? size : 1)) return CUDA_ERROR_OUT_OF_MEMORY;
    memset(block, 0, size);
    fresh.start = (uintptr_t)block;
  }
  pthread_mutex_lock(&lock);
  bool fits = !on_device(kind) || memory.bytes <= cl_device_memory() - size, kept = fits && insert(fresh);
  pthread_mutex_unlock(&lock);
  if (kept) *out = fresh.start;
  else free_block(&fresh);
  return kept ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Removes the allocation that starts at an address. */
static CUresult release(uintptr_t address, Kind kind, Kind or_kind) {
  bool inside;
  Allocation taken = {0};
  pthread_mutex_lock(&lock);
  size_t at = find(address, &inside);
  bool found =
      inside && memory.list[at].start == address && (memory.list[at].kind == kind || memory.list[at].kind == or_kind);
  if (found) taken = take_out(at);
  pthread_mutex_unlock(&lock);
  if (!found) return CUDA_ERROR_INVALID_VALUE;
  free_block(&taken);
  return CUDA_SUCCESS;
}

/* Frees what a context owns, when it dies. */
static void release_context(const Context *context) {
  pthread_mutex_lock(&lock);
  for (size_t at = memory.count; at-- > 0;)
    if (memory.list[at].context == context) {
      Allocation taken = take_out(at);
      free_block(&taken);
    }
  pthread_mutex_unlock(&lock);
}

__attribute__((constructor)) static void watch_contexts(void) { cl_on_context_death(release_context); }

bool cl_within(CUdeviceptr address, size_t size) {
  bool inside;
  if (!size) return true;
  pthread_mutex_lock(&lock);
  size_t at = find((uintptr_t)address, &inside);
  bool ok = inside && size <= memory.list[at].size - ((uintptr_t)address - memory.list[at].start);
  pthread_mutex_unlock(&lock);
  return ok;
}

CUdeviceptr cl_allocate(size_t size) {
  uintptr_t address = 0;
  return allocate(&address, size, DEVICE, 0, NULL) ? 0 : (CUdeviceptr)address;
}

bool cl_release(CUdeviceptr address) { return release((uintptr_t)address, DEVICE, DEVICE) == CUDA_SUCCESS; }

static FreeHook *free_hook;

void cl_on_free(FreeHook *hook) { free_hook = hook; }

/* -- allocation -- */

enum { ATTACH_GLOBAL = 1, ATTACH_HOST = 2 }; /* CUmemAttach_flags */

static CUresult mem_alloc(EventLine *line, CUdeviceptr *out, size_t size) {
  if (!out || !size) {
    cl_event_uint(line, "bytes", size);
    return CUDA_ERROR_INVALID_VALUE;
  }
  CUresult state;
  Context *context = cl_context(&state);
  if (state) return state;
  uintptr_t address = 0;
  CUresult result = allocate(&address, size, DEVICE, 0, context);
  if (!result) *out = address;
  cl_event_uint(line, "bytes", size);
  return result;
}
EXPORTED(cuMemAlloc_v2, (CUdeviceptr *out, size_t size), mem_alloc(line, out, size))

OLD_ENTRY_POINT(cuMemAlloc)
OLD_ENTRY_POINT(cuMemFree)
OLD_ENTRY_POINT(cuMemGetInfo)
OLD_ENTRY_POINT(cuMemAllocPitch)
OLD_ENTRY_POINT(cuMemGetAddressRange)
OLD_ENTRY_POINT(cuMemHostGetDevicePointer)

static CUresult mem_alloc_pitch(EventLine *line, CUdeviceptr *out, size_t *pitch, size_t width, size_t height,
                                unsigned element) {
  if (!out || !pitch || !width || !height || (element != 4 && element != 8 && element != 16))
    return CUDA_ERROR_INVALID_VALUE;
  CUresult state;
  Context *context = cl_context(&state);
  if (state) return state;
  uintptr_t address = 0;
  size_t row = (width + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  if (row < width || height > SIZE_MAX / row) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = allocate(&address, row * height, DEVICE, 0, context);
  if (!result) {
    *out = address;
    *pitch = row;
  }
  cl_event_uint(line, "bytes", row * height);
  return result;
}
EXPORTED(cuMemAllocPitch_v2, (CUdeviceptr *out, size_t *pitch, size_t width, size_t height, unsigned element),
         mem_alloc_pitch(line, out, pitch, width, height, element))

static CUresult mem_alloc_managed(EventLine *line, CUdeviceptr *out, size_t size, unsigned flags) {
  if (!out || !size || (flags != ATTACH_GLOBAL && flags != ATTACH_HOST)) {
    cl_event_uint(line, "bytes", size);
    return CUDA_ERROR_INVALID_VALUE;
  }
  CUresult state;
  Context *context = cl_context(&state);
  if (state) return state;
  uintptr_t address = 0;
  CUresult result = allocate(&address, size, MANAGED, flags, context);
  if (!result) *out = address;
  cl_event_uint(line, "bytes", size);
  return result;
}
EXPORTED(cuMemAllocManaged, (CUdeviceptr *out, size_t size, unsigned flags), mem_alloc_managed(line, out, size, flags))

static CUresult allocate_in_stream(CUdeviceptr *out, size_t size, const void *stream) {
  CUresult result;
  Context *context = cl_context(&result);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  if (result) return result;
  if (cl_check_stream(stream)) return CUDA_ERROR_INVALID_HANDLE;
  uintptr_t address = 0;
  result = allocate(&address, size, DEVICE, 0, context);
  if (!result) *out = address;
  return result;
}

static CUresult mem_alloc_async(EventLine *line, CUdeviceptr *out, size_t size, void *stream) {
  cl_event_uint(line, "bytes", size);
  return allocate_in_stream(out, size, stream);
}
EXPORTED(cuMemAllocAsync, (CUdeviceptr *out, size_t size, void *stream), mem_alloc_async(line, out, size, stream))

EXPORTED(cuMemAllocFromPoolAsync, (CUdeviceptr *out, size_t size, void *pool, void *stream),
         mem_alloc_async(line, out, size, stream))

static CUresult mem_free(EventLine *line, CUdeviceptr address) {
  CUresult state = cl_check_context();
  if (state) return state;
  cl_event_uint(line, "address", address);
  if (free_hook && free_hook(address, &state)) return state;
  return address ? release((uintptr_t)address, DEVICE, MANAGED) : CUDA_SUCCESS;
}
EXPORTED(cuMemFree_v2, (CUdeviceptr address), mem_free(line, address))

static CUresult mem_free_async(EventLine *line, CUdeviceptr address, void *stream) {
  CUresult state = cl_check_context();
  if (state) return state;
  if (cl_check_stream(stream)) return CUDA_ERROR_INVALID_HANDLE;
  cl_event_uint(line, "address", address);
  if (free_hook && free_hook(address, &state)) return state;
  return address ? release((uintptr_t)address, DEVICE, DEVICE) : CUDA_SUCCESS;
}
EXPORTED(cuMemFreeAsync, (CUdeviceptr address, void *stream), mem_free_async(line, address, stream))

static CUresult mem_get_info(size_t *left, size_t *total) {
  CUresult state = cl_check_context();
  if (state) return state;
  pthread_mutex_lock(&lock);
  if (left) *left = cl_device_memory() - memory.bytes;
  if (total) *total = cl_device_memory();
  pthread_mutex_unlock(&lock);
  return CUDA_SUCCESS;
}
EXPORTED(cuMemGetInfo_v2, (size_t *left, size_t *total), mem_get_info(left, total))

static CUresult mem_get_address_range(CUdeviceptr *base, size_t *size, CUdeviceptr address) {
  CUresult state = cl_check_context();
  if (state) return state;
  bool inside;
  pthread_mutex_lock(&lock);
  size_t at = find((uintptr_t)address, &inside);
  if (inside && base) *base = memory.list[at].start;
  if (inside && size) *size = memory.list[at].size;
  pthread_mutex_unlock(&lock);
  return inside ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
EXPORTED(cuMemGetAddressRange_v2, (CUdeviceptr *base, size_t *size, CUdeviceptr address),
         mem_get_address_range(base, size, address))

/* -- host memory -- */

enum { HOST_IS_MAPPED = 2, HOST_FLAGS = 7, REGISTER_FLAGS = 15 };

static CUresult allocate_host(void **out, size_t size, unsigned flags) {
  CUresult result;
  Context *context = cl_context(&result);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  if (result) return result;
  uintptr_t address = 0; /* nothing is no error (measured) */
  if (size) result = allocate(&address, size, HOST, flags | HOST_IS_MAPPED, context);
  if (!result) *out = (void *)address;
  return result;
}

static CUresult mem_alloc_host(EventLine *line, void **out, size_t size) {
  cl_event_uint(line, "bytes", size);
  return allocate_host(out, size, 0);
}
EXPORTED(cuMemAllocHost_v2, (void **out, size_t size), mem_alloc_host(line, out, size))

static CUresult mem_alloc_host_of_32_bits(EventLine *line, void **out, unsigned size) {
  cl_event_uint(line, "bytes", size);
  return allocate_host(out, size, 0);
}
EXPORTED(cuMemAllocHost, (void **out, unsigned size), mem_alloc_host_of_32_bits(line, out, size))

static CUresult mem_host_alloc(EventLine *line, void **out, size_t size, unsigned flags) {
  if (flags > HOST_FLAGS) return CUDA_ERROR_INVALID_VALUE;
  cl_event_uint(line, "bytes", size);
  return allocate_host(out, size, flags);
}
EXPORTED(cuMemHostAlloc, (void **out, size_t size, unsigned flags), mem_host_alloc(line, out, size, flags))

static CUresult mem_free_host(void *block) {
  CUresult state = cl_check_context();
  if (state) return state;
  return block ? release((uintptr_t)block, HOST, HOST) : CUDA_SUCCESS;
}
EXPORTED(cuMemFreeHost, (void *block), mem_free_host(block))

static CUresult register_host(void *block, size_t size, unsigned flags) {
  bool inside;
  CUresult result;
  Context *context = cl_context(&result);
  if (!block || !size || flags > REGISTER_FLAGS || size > UINTPTR_MAX - (uintptr_t)block)
    return CUDA_ERROR_INVALID_VALUE;
  if (result) return result;
  pthread_mutex_lock(&lock);
  size_t at = find((uintptr_t)block, &inside);
  bool next = !inside && at < memory.count && memory.list[at].start < (uintptr_t)block + size;
  Allocation fresh = {.start = (uintptr_t)block, .size = size, .kind = REGISTERED, .flags = flags, .context = context};
  if (inside || next) result = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  else if (!insert(fresh)) result = CUDA_ERROR_OUT_OF_MEMORY;
  pthread_mutex_unlock(&lock);
  return result;
}

static CUresult mem_host_register(EventLine *line, void *block, size_t size, unsigned flags) {
  cl_event_uint(line, "bytes", size);
  return register_host(block, size, flags);
}
EXPORTED(cuMemHostRegister_v2, (void *block, size_t size, unsigned flags), mem_host_register(line, block, size, flags))
EXPORTED(cuMemHostRegister, (void *block, size_t size, unsigned flags), mem_host_register(line, block, size, flags))

static CUresult mem_host_unregister(void *block) {
  CUresult state = cl_check_context();
  if (state) return state;
  return release((uintptr_t)block, REGISTERED, REGISTERED) ? CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED : CUDA_SUCCESS;
}
EXPORTED(cuMemHostUnregister, (void *block), mem_host_unregister(block))

static CUresult mem_host_get_device_pointer(CUdeviceptr *address, void *block, unsigned flags) {
  if (!address || flags || !cl_within((CUdeviceptr)(uintptr_t)block, 1)) return CUDA_ERROR_INVALID_VALUE;
  CUresult state = cl_check_context();
  if (state) return state;
  *address = (CUdeviceptr)(uintptr_t)block;
  return CUDA_SUCCESS;
}
EXPORTED(cuMemHostGetDevicePointer_v2, (CUdeviceptr *address, void *block, unsigned flags),
         mem_host_get_device_pointer(address, block, flags))

static CUresult mem_host_get_flags(unsigned *flags, void *block) {
  if (!flags) return CUDA_ERROR_INVALID_VALUE;
  CUresult state = cl_check_context();
  if (state) return state;
  bool inside;
  pthread_mutex_lock(&lock);
  size_t at = find((uintptr_t)block, &inside);
  inside = inside && (memory.list[at].kind == HOST || memory.list[at].kind == REGISTERED);
  if (inside) *flags = memory.list[at].flags;
  pthread_mutex_unlock(&lock);
  return inside ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
EXPORTED(cuMemHostGetFlags, (unsigned *flags, void *block), mem_host_get_flags(flags, block))

/* -- what a pointer is -- */

enum {
  POINTER_CONTEXT = 1,
  POINTER_MEMORY_TYPE = 2,
  POINTER_DEVICE = 3,
  POINTER_HOST = 4,
  POINTER_BUFFER_ID = 7,
  POINTER_IS_MANAGED = 8,
  POINTER_DEVICE_ORDINAL = 9,
  POINTER_RANGE_START = 11,
  POINTER_RANGE_SIZE = 12,
  POINTER_MAPPED = 13,
};

enum { ON_HOST = 1, ON_DEVICE = 2 }; /* CUmemorytype */

static bool is_wide(int attribute) {
  switch (attribute) {
    case POINTER_CONTEXT:
    case POINTER_DEVICE:
    case POINTER_HOST:
    case POINTER_BUFFER_ID:
    case POINTER_RANGE_START:
    case POINTER_RANGE_SIZE: return true;
    default: return false;
  }
}

static CUresult pointer_attribute(void *out, int attribute, CUdeviceptr address, const Context *current) {
  bool inside;
  pthread_mutex_lock(&lock);
  size_t at = find((uintptr_t)address, &inside);
  Allocation found = inside ? memory.list[at] : (Allocation){0};
  pthread_mutex_unlock(&lock);
  if (!inside) return CUDA_ERROR_INVALID_VALUE;
  switch (attribute) {
    case POINTER_CONTEXT: *(Context **)out = found.context; break;
    case POINTER_MEMORY_TYPE: *(unsigned *)out = on_device(found.kind) ? ON_DEVICE : ON_HOST; break;
    case POINTER_DEVICE: *(CUdeviceptr *)out = address; break;
    case POINTER_HOST:
      if (found.kind == DEVICE) return CUDA_ERROR_INVALID_VALUE;
      *(void **)out = (void *)(uintptr_t)address;
      break;
    case POINTER_BUFFER_ID: *(uint64_t *)out = found.id; break;
    case POINTER_IS_MANAGED: *(unsigned *)out = found.kind == MANAGED; break;
    case POINTER_DEVICE_ORDINAL: *(int *)out = found.context ? found.context->device : current->device; break;
    case POINTER_RANGE_START: *(CUdeviceptr *)out = found.start; break;
    case POINTER_RANGE_SIZE: *(size_t *)out = found.size; break;
    case POINTER_MAPPED: *(unsigned *)out = 1; break;
    default: return CUDA_ERROR_NOT_SUPPORTED;
  }
  return CUDA_SUCCESS;
}

static CUresult pointer_get_attribute(EventLine *line, void *out, int attribute, CUdeviceptr address) {
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  CUresult state;
  Context *context = cl_context(&state);
  if (state) return state;
  cl_event_int(line, "attribute", attribute);
  return pointer_attribute(out, attribute, address, context);
}
EXPORTED(cuPointerGetAttribute, (void *out, int attribute, CUdeviceptr address),
         pointer_get_attribute(line, out, attribute, address))

static CUresult pointer_get_attributes(unsigned count, const int *attributes, void **out, CUdeviceptr address) {
  if (!attributes || !out || !count) return CUDA_ERROR_INVALID_VALUE;
  CUresult state;
  Context *context = cl_context(&state);
  if (state) return state;
  /* an attribute that does not apply is set to zero, and is no error (CUDA Driver API, cuPointerGetAttributes) */
  for (unsigned at = 0; at < count; at++)
    if (out[at] && pointer_attribute(out[at], attributes[at], address, context))
      memset(out[at], 0, is_wide(attributes[at]) ? 8 : 4);
  return CUDA_SUCCESS;
}
EXPORTED(cuPointerGetAttributes, (unsigned count, const int *attributes, void **out, CUdeviceptr address),
         pointer_get_attributes(count, attributes, out, address))
