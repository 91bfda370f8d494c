/* Device memory, backed by host memory, every access checked against the allocation that it starts in. */
#define _GNU_SOURCE
#include "emulator.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

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
  pthread_mutex_lock(&cl_lock);
  bool fits = !on_device(kind) || memory.bytes <= cl_device_memory() - size, kept = fits && insert(fresh);
  pthread_mutex_unlock(&cl_lock);
  if (kept) *out = fresh.start;
  else free_block(&fresh);
  return kept ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Removes the allocation that starts at an address. */
static CUresult release(uintptr_t address, Kind kind, Kind or_kind) {
  bool inside;
  Allocation taken = {0};
  pthread_mutex_lock(&cl_lock);
  size_t at = find(address, &inside);
  bool found = inside && memory.list[at].start == address && (memory.list[at].kind == kind || memory.list[at].kind == or_kind);
  if (found) taken = take_out(at);
  pthread_mutex_unlock(&cl_lock);
  if (!found) return CUDA_ERROR_INVALID_VALUE;
  free_block(&taken);
  return CUDA_SUCCESS;
}

void cl_release_context(const Context *context) {
  for (size_t at = memory.count; at-- > 0;)
    if (memory.list[at].context == context) {
      Allocation taken = take_out(at);
      free_block(&taken);
    }
}

/* Whether a range lies within one allocation; an empty range always does. */
static bool within(CUdeviceptr address, size_t size) {
  bool inside;
  if (!size) return true;
  pthread_mutex_lock(&cl_lock);
  size_t at = find((uintptr_t)address, &inside);
  bool ok = inside && size <= memory.list[at].size - ((uintptr_t)address - memory.list[at].start);
  pthread_mutex_unlock(&cl_lock);
  return ok;
}

CUdeviceptr cl_allocate(size_t size) {
  uintptr_t address = 0;
  return allocate(&address, size, DEVICE, 0, NULL) ? 0 : (CUdeviceptr)address;
}

bool cl_release(CUdeviceptr address) { return release((uintptr_t)address, DEVICE, DEVICE) == CUDA_SUCCESS; }

/* -- the caller's memory -- */

/* The same by way of the kernel alone: write(2) and read(2) answer EFAULT where memory is not there. A pipe for each copy,
   because one that is kept would be shared with forked children. */
static bool copy_through_pipe(void *to, const void *from, size_t size) {
  enum { PIECE = 4096 }; /* a pipe takes that much without a reader */
  int ends[2];
  if (pipe2(ends, O_CLOEXEC)) { /* no descriptor is left: trust the caller */
    memcpy(to, from, size);
    return true;
  }
  size_t done = 0;
  while (done < size) {
    ssize_t given = write(ends[1], (const char *)from + done, size - done < PIECE ? size - done : PIECE);
    if (given <= 0 || read(ends[0], (char *)to + done, (size_t)given) != given) break;
    done += (size_t)given;
  }
  close(ends[0]);
  close(ends[1]);
  return done == size;
}

/* Whether a copy was made; only EFAULT says that memory is not there, anything else that a sandbox forbids the call. */
static bool copied(ssize_t count, void *to, const void *from, size_t size) {
  return count < 0 && errno != EFAULT ? copy_through_pipe(to, from, size) : count == (ssize_t)size;
}

bool cl_read_safely(const void *from, void *to, size_t size) {
  struct iovec here = {to, size}, there = {(void *)(uintptr_t)from, size};
  return !size || copied(process_vm_readv(getpid(), &here, 1, &there, 1, 0), to, from, size);
}

bool cl_write_safely(void *to, const void *from, size_t size) {
  struct iovec here = {(void *)(uintptr_t)from, size}, there = {to, size};
  if (!size) return true;
  if (cl_config()->punish) { /* as a real driver writes, so that valgrind and sanitizers see it */
    memcpy(to, from, size);
    return true;
  }
  return copied(process_vm_writev(getpid(), &here, 1, &there, 1, 0), to, from, size);
}

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

/* The 32-bit entry points of before CUDA 3.2: a real driver of today answers 201, whatever context is current. */
#define OLD_ENTRY_POINT(name, ...)                                                                     \
  EXPORT CUresult name(__VA_ARGS__) {                                                                  \
    ENTER(name);                                                                                       \
    LEAVE(CUDA_ERROR_INVALID_CONTEXT, ",\"note\":\"the 32-bit entry point of before CUDA 3.2\"");       \
  }

OLD_ENTRY_POINT(cuMemAlloc, void)
OLD_ENTRY_POINT(cuMemFree, void)
OLD_ENTRY_POINT(cuMemGetInfo, void)
OLD_ENTRY_POINT(cuMemAllocPitch, void)
OLD_ENTRY_POINT(cuMemGetAddressRange, void)
OLD_ENTRY_POINT(cuMemcpyHtoD, void)
OLD_ENTRY_POINT(cuMemcpyDtoH, void)
OLD_ENTRY_POINT(cuMemcpyDtoD, void)
OLD_ENTRY_POINT(cuMemcpyHtoDAsync, void)
OLD_ENTRY_POINT(cuMemcpyDtoHAsync, void)
OLD_ENTRY_POINT(cuMemcpyDtoDAsync, void)
OLD_ENTRY_POINT(cuMemcpy2D, void)
OLD_ENTRY_POINT(cuMemcpy2DUnaligned, void)
OLD_ENTRY_POINT(cuMemcpy2DAsync, void)
OLD_ENTRY_POINT(cuMemcpy3D, void)
OLD_ENTRY_POINT(cuMemcpy3DAsync, void)
OLD_ENTRY_POINT(cuMemsetD8, void)
OLD_ENTRY_POINT(cuMemsetD16, void)
OLD_ENTRY_POINT(cuMemsetD32, void)
OLD_ENTRY_POINT(cuMemsetD2D8, void)
OLD_ENTRY_POINT(cuMemsetD2D16, void)
OLD_ENTRY_POINT(cuMemsetD2D32, void)
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
  pthread_mutex_lock(&cl_lock);
  if (left) *left = cl_device_memory() - memory.bytes;
  if (total) *total = cl_device_memory();
  pthread_mutex_unlock(&cl_lock);
  LEAVE(CUDA_SUCCESS, "");
}

EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr address) {
  ENTER(cuMemGetAddressRange_v2);
  NEED_CONTEXT(context);
  bool inside;
  pthread_mutex_lock(&cl_lock);
  size_t at = find((uintptr_t)address, &inside);
  if (inside && base) *base = memory.list[at].start;
  if (inside && size) *size = memory.list[at].size;
  pthread_mutex_unlock(&cl_lock);
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
  pthread_mutex_lock(&cl_lock);
  size_t at = find((uintptr_t)block, &inside);
  bool next = !inside && at < memory.count && memory.list[at].start < (uintptr_t)block + size;
  Allocation fresh = {.start = (uintptr_t)block, .size = size, .kind = REGISTERED, .flags = flags, .context = context};
  if (inside || next) result = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  else if (!insert(fresh)) result = CUDA_ERROR_OUT_OF_MEMORY;
  pthread_mutex_unlock(&cl_lock);
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
  if (!address || flags || !within((CUdeviceptr)(uintptr_t)block, 1)) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  NEED_CONTEXT(context);
  *address = (CUdeviceptr)(uintptr_t)block;
  LEAVE(CUDA_SUCCESS, "");
}

EXPORT CUresult cuMemHostGetFlags(unsigned *flags, void *block) {
  ENTER(cuMemHostGetFlags);
  if (!flags) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  NEED_CONTEXT(context);
  bool inside;
  pthread_mutex_lock(&cl_lock);
  size_t at = find((uintptr_t)block, &inside);
  inside = inside && (memory.list[at].kind == HOST || memory.list[at].kind == REGISTERED);
  if (inside) *flags = memory.list[at].flags;
  pthread_mutex_unlock(&cl_lock);
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
  pthread_mutex_lock(&cl_lock);
  size_t at = find((uintptr_t)address, &inside);
  Allocation found = inside ? memory.list[at] : (Allocation){0};
  pthread_mutex_unlock(&cl_lock);
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

/* -- copying and setting -- */

static CUresult copy(CUdeviceptr to, bool to_device, CUdeviceptr from, bool from_device, size_t size) {
  CUresult result;
  cl_context(&result);
  if (result) return result;
  if (!size) return CUDA_SUCCESS;
  if (!to || !from || (to_device && !within(to, size)) || (from_device && !within(from, size)))
    return CUDA_ERROR_INVALID_VALUE;
  memmove((void *)(uintptr_t)to, (const void *)(uintptr_t)from, size);
  return CUDA_SUCCESS;
}

#define BYTES ",\"bytes\":%zu"
#define NEED_STREAM(stream) \
  if (cl_check_stream(stream)) LEAVE(CUDA_ERROR_INVALID_HANDLE, "")

EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t size) {
  ENTER(cuMemcpyHtoD_v2);
  LEAVE(copy(to, true, (uintptr_t)from, false, size), BYTES, size);
}

EXPORT CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t size) {
  ENTER(cuMemcpyDtoH_v2);
  LEAVE(copy((uintptr_t)to, false, from, true, size), BYTES, size);
}

EXPORT CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t size) {
  ENTER(cuMemcpyDtoD_v2);
  LEAVE(copy(to, true, from, true, size), BYTES, size);
}

EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t size, void *stream) {
  ENTER(cuMemcpyHtoDAsync_v2);
  NEED_STREAM(stream);
  LEAVE(copy(to, true, (uintptr_t)from, false, size), BYTES, size);
}

EXPORT CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t size, void *stream) {
  ENTER(cuMemcpyDtoHAsync_v2);
  NEED_STREAM(stream);
  LEAVE(copy((uintptr_t)to, false, from, true, size), BYTES, size);
}

EXPORT CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t size, void *stream) {
  ENTER(cuMemcpyDtoDAsync_v2);
  NEED_STREAM(stream);
  LEAVE(copy(to, true, from, true, size), BYTES, size);
}

/* With unified addressing either side may be the host's; what we allocated is checked, the rest is the caller's. */
static CUresult copy_unified(CUdeviceptr to, CUdeviceptr from, size_t size) {
  return copy(to, within(to, 1), from, within(from, 1), size);
}

EXPORT CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t size) {
  ENTER(cuMemcpy);
  LEAVE(copy_unified(to, from, size), BYTES, size);
}

EXPORT CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t size, void *stream) {
  ENTER(cuMemcpyAsync);
  NEED_STREAM(stream);
  LEAVE(copy_unified(to, from, size), BYTES, size);
}

EXPORT CUresult cuMemcpyPeer(CUdeviceptr to, Context *to_context, CUdeviceptr from, Context *from_context, size_t size) {
  ENTER(cuMemcpyPeer);
  (void)to_context, (void)from_context;
  LEAVE(copy(to, true, from, true, size), BYTES, size);
}

EXPORT CUresult cuMemcpyPeerAsync(CUdeviceptr to, Context *to_context, CUdeviceptr from, Context *from_context,
                                  size_t size, void *stream) {
  ENTER(cuMemcpyPeerAsync);
  (void)to_context, (void)from_context;
  NEED_STREAM(stream);
  LEAVE(copy(to, true, from, true, size), BYTES, size);
}

/* -- copying rectangles and boxes -- */

/* One side of CUDA_MEMCPY3D; CUDA_MEMCPY3D_PEER has a context where this has `other`. */
typedef struct {
  size_t x, y, z, level;
  unsigned type;
  void *host;
  CUdeviceptr device;
  void *array, *other;
  size_t pitch, height;
} Side;

typedef struct {
  Side from, to;
  size_t width, height, depth;
} Box;

/* One side of CUDA_MEMCPY2D. */
typedef struct {
  size_t x, y;
  unsigned type;
  void *host;
  CUdeviceptr device;
  void *array;
  size_t pitch;
} FlatSide;

typedef struct {
  FlatSide from, to;
  size_t width, height;
} Rectangle;

enum { TYPE_HOST = 1, TYPE_DEVICE, TYPE_ARRAY, TYPE_UNIFIED };

/* Where a box begins on one side, its rows and layers apart by *row and *layer; every byte of it is checked. */
static CUresult place(const Side *side, const Box *box, uintptr_t *start, size_t *row, size_t *layer) {
  size_t first, end, bytes;
  if (side->type == TYPE_ARRAY) return CUDA_ERROR_NOT_SUPPORTED;
  if (side->type < TYPE_HOST || side->type > TYPE_UNIFIED) return CUDA_ERROR_INVALID_VALUE;
  uintptr_t base = side->type == TYPE_HOST ? (uintptr_t)side->host : (uintptr_t)side->device;
  if (!base || __builtin_add_overflow(side->x, box->width, &end)) return CUDA_ERROR_INVALID_VALUE;
  *row = side->pitch;
  if (*row < end) { /* rows would overlap; a single row at the beginning needs no pitch */
    if (*row || box->height > 1 || box->depth > 1 || side->y || side->z) return CUDA_ERROR_INVALID_VALUE;
    *row = end;
  }
  size_t rows = side->height;
  if (box->depth > 1 || side->z) {
    if (rows < box->height || side->y > rows - box->height) return CUDA_ERROR_INVALID_VALUE;
  }
  size_t last_layer, last_row;
  if (__builtin_mul_overflow(rows, *row, layer) || __builtin_mul_overflow(side->z, *layer, &first) ||
      __builtin_mul_overflow(side->y, *row, &bytes) || __builtin_add_overflow(first, bytes, &first) ||
      __builtin_add_overflow(first, side->x, &first) || __builtin_mul_overflow(box->depth - 1, *layer, &last_layer) ||
      __builtin_mul_overflow(box->height - 1, *row, &last_row) || __builtin_add_overflow(last_layer, last_row, &bytes) ||
      __builtin_add_overflow(bytes, box->width, &bytes) || __builtin_add_overflow(base, first, start) ||
      __builtin_add_overflow(*start, bytes, &end))
    return CUDA_ERROR_INVALID_VALUE;
  bool ours = side->type == TYPE_DEVICE || (side->type == TYPE_UNIFIED && within(base, 1));
  return ours && !(within(base, 1) && within(*start, bytes) && within(base, first + bytes)) ? CUDA_ERROR_INVALID_VALUE
                                                                                        : CUDA_SUCCESS;
}

static CUresult copy_box(const Box *box) {
  CUresult result;
  uintptr_t from, to;
  size_t from_row, to_row, from_layer, to_layer;
  cl_context(&result);
  if (result) return result;
  if (!box->width || !box->height || !box->depth) return CUDA_SUCCESS;
  if (box->from.level || box->to.level) return CUDA_ERROR_INVALID_VALUE; /* levels are those of mipmapped arrays */
  result = place(&box->from, box, &from, &from_row, &from_layer);
  if (!result) result = place(&box->to, box, &to, &to_row, &to_layer);
  if (result) return result;
  for (size_t z = 0; z < box->depth; z++)
    for (size_t y = 0; y < box->height; y++)
      memmove((void *)(to + z * to_layer + y * to_row), (const void *)(from + z * from_layer + y * from_row), box->width);
  return CUDA_SUCCESS;
}

static CUresult copy_and_leave(Call *call, const Box *box, const void *stream, bool has_stream) {
  if (!box) return cl_leave(call, CUDA_ERROR_INVALID_VALUE, "%s", "");
  if (has_stream && cl_check_stream(stream)) return cl_leave(call, CUDA_ERROR_INVALID_HANDLE, "%s", "");
  CUresult result = copy_box(box);
  return cl_leave(call, result, ",\"width\":%zu,\"height\":%zu,\"depth\":%zu%s", box->width, box->height, box->depth,
                  result == CUDA_ERROR_NOT_SUPPORTED ? ",\"note\":\"arrays are not emulated\"" : "");
}

static Side deep(const FlatSide *flat) {
  return (Side){.x = flat->x, .y = flat->y, .type = flat->type, .host = flat->host, .device = flat->device,
                .array = flat->array, .pitch = flat->pitch};
}

static CUresult copy_flat_and_leave(Call *call, const Rectangle *flat, const void *stream, bool has_stream) {
  if (!flat) return cl_leave(call, CUDA_ERROR_INVALID_VALUE, "%s", "");
  Box box = {deep(&flat->from), deep(&flat->to), flat->width, flat->height, 1};
  return copy_and_leave(call, &box, stream, has_stream);
}

EXPORT CUresult cuMemcpy2D_v2(const Rectangle *flat) {
  ENTER(cuMemcpy2D_v2);
  return copy_flat_and_leave(&call, flat, NULL, false);
}

EXPORT CUresult cuMemcpy2DUnaligned_v2(const Rectangle *flat) {
  ENTER(cuMemcpy2DUnaligned_v2);
  return copy_flat_and_leave(&call, flat, NULL, false);
}

EXPORT CUresult cuMemcpy2DAsync_v2(const Rectangle *flat, void *stream) {
  ENTER(cuMemcpy2DAsync_v2);
  return copy_flat_and_leave(&call, flat, stream, true);
}

EXPORT CUresult cuMemcpy3D_v2(const Box *box) {
  ENTER(cuMemcpy3D_v2);
  return copy_and_leave(&call, box, NULL, false);
}

EXPORT CUresult cuMemcpy3DAsync_v2(const Box *box, void *stream) {
  ENTER(cuMemcpy3DAsync_v2);
  return copy_and_leave(&call, box, stream, true);
}

EXPORT CUresult cuMemcpy3DPeer(const Box *box) {
  ENTER(cuMemcpy3DPeer);
  return copy_and_leave(&call, box, NULL, false);
}

EXPORT CUresult cuMemcpy3DPeerAsync(const Box *box, void *stream) {
  ENTER(cuMemcpy3DPeerAsync);
  return copy_and_leave(&call, box, stream, true);
}

/* -- setting -- */

/* `rows` rows of `count` values of `width` bytes, `pitch` bytes apart. */
static CUresult set(CUdeviceptr to, uint32_t value, size_t width, size_t pitch, size_t count, size_t rows) {
  CUresult result;
  cl_context(&result);
  if (result) return result;
  if (!count || !rows) return CUDA_SUCCESS;
  if (to % width || (rows > 1 && pitch < count * width) || count > SIZE_MAX / width) return CUDA_ERROR_INVALID_VALUE;
  if (rows > 1 && (rows - 1) > (SIZE_MAX - count * width) / pitch) return CUDA_ERROR_INVALID_VALUE;
  if (!within(to, (rows - 1) * pitch + count * width)) return CUDA_ERROR_INVALID_VALUE;
  for (size_t row = 0; row < rows; row++) {
    char *at = (char *)(uintptr_t)to + row * pitch;
    for (size_t number = 0; number < count; number++, at += width) memcpy(at, &value, width); /* little-endian hosts */
  }
  return CUDA_SUCCESS;
}

#define MEMSET(bits, type)                                                                                    \
  EXPORT CUresult cuMemsetD##bits##_v2(CUdeviceptr to, type value, size_t count) {                            \
    ENTER(cuMemsetD##bits##_v2);                                                                              \
    LEAVE(set(to, value, bits / 8, 0, count, 1), ",\"count\":%zu", count);                                    \
  }                                                                                                           \
  EXPORT CUresult cuMemsetD##bits##Async(CUdeviceptr to, type value, size_t count, void *stream) {            \
    ENTER(cuMemsetD##bits##Async);                                                                            \
    NEED_STREAM(stream);                                                                                      \
    LEAVE(set(to, value, bits / 8, 0, count, 1), ",\"count\":%zu", count);                                    \
  }                                                                                                           \
  EXPORT CUresult cuMemsetD2D##bits##_v2(CUdeviceptr to, size_t pitch, type value, size_t width, size_t height) { \
    ENTER(cuMemsetD2D##bits##_v2);                                                                            \
    LEAVE(set(to, value, bits / 8, pitch, width, height), ",\"count\":%zu", width *height);                   \
  }                                                                                                           \
  EXPORT CUresult cuMemsetD2D##bits##Async(CUdeviceptr to, size_t pitch, type value, size_t width, size_t height, \
                                           void *stream) {                                                    \
    ENTER(cuMemsetD2D##bits##Async);                                                                          \
    NEED_STREAM(stream);                                                                                      \
    LEAVE(set(to, value, bits / 8, pitch, width, height), ",\"count\":%zu", width *height);                   \
  }

MEMSET(8, uint8_t)
MEMSET(16, uint16_t)
MEMSET(32, uint32_t)
