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

/* A thread may hold a lock while another one forks; in the child nobody would release it. */
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

/* Gives the memory of an allocation back that is in no table any more. */
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
  bool found = inside && memory.list[at].start == address && (memory.list[at].kind == kind || memory.list[at].kind == or_kind);
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

/* -- allocation -- */

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t size) {
  ENTER(cuMemAlloc_v2);
  if (!out || !size) LEAVE(CUDA_ERROR_INVALID_VALUE, ",\"bytes\":%zu", size);
  NEED_CONTEXT(context);
  uintptr_t address = 0;
  CUresult result = allocate(&address, size, DEVICE, 0, context);
  if (!result) *out = address;
  LEAVE(result, ",\"bytes\":%zu", size);
}

OLD_ENTRY_POINT(cuMemAlloc, void)
OLD_ENTRY_POINT(cuMemFree, void)
OLD_ENTRY_POINT(cuMemGetInfo, void)
OLD_ENTRY_POINT(cuMemAllocPitch, void)
OLD_ENTRY_POINT(cuMemGetAddressRange, void)
OLD_ENTRY_POINT(cuMemHostGetDevicePointer, void)

EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr *out, size_t *pitch, size_t width, size_t height, unsigned element) {
  ENTER(cuMemAllocPitch_v2);
  if (!out || !pitch || !width || !height || (element != 4 && element != 8 && element != 16))
    LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  NEED_CONTEXT(context);
  uintptr_t address = 0;
  size_t row = (width + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  if (row < width || height > SIZE_MAX / row) LEAVE(CUDA_ERROR_OUT_OF_MEMORY, "");
  CUresult result = allocate(&address, row * height, DEVICE, 0, context);
  if (!result) *out = address, *pitch = row;
  LEAVE(result, ",\"bytes\":%zu", row * height);
}

EXPORT CUresult cuMemAllocManaged(CUdeviceptr *out, size_t size, unsigned flags) {
  ENTER(cuMemAllocManaged);
  if (!out || !size || (flags != 1 && flags != 2)) LEAVE(CUDA_ERROR_INVALID_VALUE, ",\"bytes\":%zu", size);
  NEED_CONTEXT(context);
  uintptr_t address = 0;
  CUresult result = allocate(&address, size, MANAGED, flags, context);
  if (!result) *out = address;
  LEAVE(result, ",\"bytes\":%zu", size);
}

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

EXPORT CUresult cuMemAllocAsync(CUdeviceptr *out, size_t size, void *stream) {
  ENTER(cuMemAllocAsync);
  LEAVE(allocate_in_stream(out, size, stream), ",\"bytes\":%zu", size);
}

EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr *out, size_t size, void *pool, void *stream) {
  ENTER(cuMemAllocFromPoolAsync);
  (void)pool;
  LEAVE(allocate_in_stream(out, size, stream), ",\"bytes\":%zu", size);
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr address) {
  ENTER(cuMemFree_v2);
  NEED_CONTEXT(context);
  LEAVE(address ? release((uintptr_t)address, DEVICE, MANAGED) : CUDA_SUCCESS, ",\"address\":%llu",
        (unsigned long long)address);
}

EXPORT CUresult cuMemFreeAsync(CUdeviceptr address, void *stream) {
  ENTER(cuMemFreeAsync);
  NEED_CONTEXT(context);
  if (cl_check_stream(stream)) LEAVE(CUDA_ERROR_INVALID_HANDLE, "");
  LEAVE(address ? release((uintptr_t)address, DEVICE, DEVICE) : CUDA_SUCCESS, ",\"address\":%llu",
        (unsigned long long)address);
}

EXPORT CUresult cuMemGetInfo_v2(size_t *left, size_t *total) {
  ENTER(cuMemGetInfo_v2);
  NEED_CONTEXT(context);
  pthread_mutex_lock(&lock);
  if (left) *left = cl_device_memory() - memory.bytes;
  if (total) *total = cl_device_memory();
  pthread_mutex_unlock(&lock);
  LEAVE(CUDA_SUCCESS, "");
}

EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr address) {
  ENTER(cuMemGetAddressRange_v2);
  NEED_CONTEXT(context);
  bool inside;
  pthread_mutex_lock(&lock);
  size_t at = find((uintptr_t)address, &inside);
  if (inside && base) *base = memory.list[at].start;
  if (inside && size) *size = memory.list[at].size;
  pthread_mutex_unlock(&lock);
  LEAVE(inside ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND, "");
}

/* -- host memory -- */

static CUresult allocate_host(void **out, size_t size, unsigned flags) {
  CUresult result;
  Context *context = cl_context(&result);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  if (result) return result;
  if (!size) return *out = NULL, CUDA_SUCCESS; /* measured */
  uintptr_t address = 0;
  result = allocate(&address, size, HOST, flags | 2, context);
  if (!result) *out = (void *)address;
  return result;
}

EXPORT CUresult cuMemAllocHost_v2(void **out, size_t size) {
  ENTER(cuMemAllocHost_v2);
  LEAVE(allocate_host(out, size, 0), ",\"bytes\":%zu", size);
}

EXPORT CUresult cuMemAllocHost(void **out, unsigned size) {
  ENTER(cuMemAllocHost);
  LEAVE(allocate_host(out, size, 0), ",\"bytes\":%u", size);
}

EXPORT CUresult cuMemHostAlloc(void **out, size_t size, unsigned flags) {
  ENTER(cuMemHostAlloc);
  if (flags > 7) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  LEAVE(allocate_host(out, size, flags), ",\"bytes\":%zu", size);
}

EXPORT CUresult cuMemFreeHost(void *block) {
  ENTER(cuMemFreeHost);
  NEED_CONTEXT(context);
  LEAVE(block ? release((uintptr_t)block, HOST, HOST) : CUDA_SUCCESS, "");
}

static CUresult register_host(void *block, size_t size, unsigned flags) {
  bool inside;
  CUresult result;
  Context *context = cl_context(&result);
  if (!block || !size || flags > 15 || size > UINTPTR_MAX - (uintptr_t)block) return CUDA_ERROR_INVALID_VALUE;
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

EXPORT CUresult cuMemHostRegister_v2(void *block, size_t size, unsigned flags) {
  ENTER(cuMemHostRegister_v2);
  LEAVE(register_host(block, size, flags), ",\"bytes\":%zu", size);
}

EXPORT CUresult cuMemHostRegister(void *block, size_t size, unsigned flags) {
  ENTER(cuMemHostRegister);
  LEAVE(register_host(block, size, flags), ",\"bytes\":%zu", size);
}

EXPORT CUresult cuMemHostUnregister(void *block) {
  ENTER(cuMemHostUnregister);
  NEED_CONTEXT(context);
  LEAVE(release((uintptr_t)block, REGISTERED, REGISTERED) ? CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED : CUDA_SUCCESS, "");
}

EXPORT CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *address, void *block, unsigned flags) {
  ENTER(cuMemHostGetDevicePointer_v2);
  if (!address || flags || !cl_within((CUdeviceptr)(uintptr_t)block, 1)) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  NEED_CONTEXT(context);
  *address = (CUdeviceptr)(uintptr_t)block;
  LEAVE(CUDA_SUCCESS, "");
}

EXPORT CUresult cuMemHostGetFlags(unsigned *flags, void *block) {
  ENTER(cuMemHostGetFlags);
  if (!flags) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  NEED_CONTEXT(context);
  bool inside;
  pthread_mutex_lock(&lock);
  size_t at = find((uintptr_t)block, &inside);
  inside = inside && (memory.list[at].kind == HOST || memory.list[at].kind == REGISTERED);
  if (inside) *flags = memory.list[at].flags;
  pthread_mutex_unlock(&lock);
  LEAVE(inside ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE, "");
}

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

static CUresult pointer_attribute(void *out, int attribute, CUdeviceptr address, const Context *current) {
  bool inside;
  pthread_mutex_lock(&lock);
  size_t at = find((uintptr_t)address, &inside);
  Allocation found = inside ? memory.list[at] : (Allocation){0};
  pthread_mutex_unlock(&lock);
  if (!inside) return CUDA_ERROR_INVALID_VALUE;
  switch (attribute) {
    case POINTER_CONTEXT: *(Context **)out = found.context; break;
    case POINTER_MEMORY_TYPE: *(unsigned *)out = found.kind == DEVICE || found.kind == MANAGED ? 2 : 1; break;
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

EXPORT CUresult cuPointerGetAttribute(void *out, int attribute, CUdeviceptr address) {
  ENTER(cuPointerGetAttribute);
  if (!out) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  NEED_CONTEXT(context);
  LEAVE(pointer_attribute(out, attribute, address, context), ",\"attribute\":%d", attribute);
}

EXPORT CUresult cuPointerGetAttributes(unsigned count, const int *attributes, void **out, CUdeviceptr address) {
  ENTER(cuPointerGetAttributes);
  if (!attributes || !out || !count) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  NEED_CONTEXT(context);
  /* an attribute that does not apply is set to zero, and is no error (CUDA Driver API, cuPointerGetAttributes) */
  for (unsigned at = 0; at < count; at++)
    if (out[at] && pointer_attribute(out[at], attributes[at], address, context)) {
      bool wide = attributes[at] == POINTER_CONTEXT || attributes[at] == POINTER_DEVICE || attributes[at] == POINTER_HOST ||
                  attributes[at] == POINTER_BUFFER_ID || attributes[at] == POINTER_RANGE_START || attributes[at] == POINTER_RANGE_SIZE;
      memset(out[at], 0, wide ? 8 : 4);
    }
  LEAVE(CUDA_SUCCESS, "");
}
