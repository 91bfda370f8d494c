/* Memory pools as the caller sees them: made, asked, shared. */
#include <string.h>

#include "accesses.h"
#include "capture.h"
#include "devices.h"
#include "graph_memory.h"
#include "pools.h"
#include "queues.h"

/* -- making -- */

/* What no machine has: a pool of more cannot be made, one of less may only be found too large when it is used. */
#define MOST_MEMORY ((uint64_t)1 << 48)

static CUresult check_handle_types(const PoolProperties *properties) {
  int types = properties->handle_types;
  bool shareable = properties->type == PINNED_TYPE && properties->location.type != CU_MEM_LOCATION_TYPE_HOST;
  if (types & ~(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_FABRIC) || (types && !shareable))
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

static CUresult check_size(const PoolProperties *properties) {
  if (!cl_are_zeros(properties->reserved, sizeof properties->reserved)) return CUDA_ERROR_INVALID_VALUE;
  if (properties->type == MANAGED_TYPE && properties->max_size) return CUDA_ERROR_INVALID_VALUE;
  return properties->max_size > MOST_MEMORY ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

API(cuMemPoolCreate, (void **out, const PoolProperties *properties), (out, properties)) {
  if (!out || !properties) return CUDA_ERROR_INVALID_VALUE;
  TRY(cl_pool_location(&properties->location, properties->type));
  TRY(check_handle_types(properties));
  TRY(check_size(properties));
  cl_event_int(line, "location", properties->location.type);
  FileHead head = {.kind = FILE_OF_POOL, .device = properties->location.id};
  memcpy(head.properties, properties, sizeof head.properties);
  int file = properties->handle_types ? cl_file_make(&head) : -1;
  if (properties->handle_types && file < 0) return CUDA_ERROR_OUT_OF_MEMORY;
  Pool *pool;
  HOLD(cl_pools_lock);
  CUresult result = cl_pool_make(properties, file, &head, false, &pool);
  if (!result) *out = pool;
  else if (file >= 0) close(file);
  return result;
}

/* -- attributes -- */

static uint64_t *counter(Pool *pool, int attribute) {
  switch (attribute) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD: return &pool->threshold;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT: return &pool->reserved;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH: return &pool->reserved_high;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH: return &pool->used_high;
    default: return NULL;
  }
}

static CUresult get_attribute(Pool *pool, int attribute, void *value) {
  if (attribute >= CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES &&
      attribute <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES) {
    memcpy(value, &pool->reuse[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES], sizeof(int));
    return CUDA_SUCCESS;
  }
  uint64_t used = pool->used;
  const uint64_t *known = attribute == CU_MEMPOOL_ATTR_USED_MEM_CURRENT ? &used : counter(pool, attribute);
  if (!known) return CUDA_ERROR_INVALID_VALUE;
  memcpy(value, known, sizeof *known);
  return CUDA_SUCCESS;
}

static CUresult set_attribute(Pool *pool, int attribute, const void *value) {
  if (attribute >= CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES &&
      attribute <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES) {
    int flag;
    memcpy(&flag, value, sizeof flag);
    pool->reuse[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES] = flag != 0;
    return CUDA_SUCCESS;
  }
  uint64_t *known = counter(pool, attribute), wanted;
  if (!known || attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) return CUDA_ERROR_INVALID_VALUE;
  memcpy(&wanted, value, sizeof wanted);
  if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) *known = wanted;
  else if (wanted) return CUDA_ERROR_INVALID_VALUE;
  else *known = attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH ? pool->reserved : pool->used; /* high since now */
  return CUDA_SUCCESS;
}

static CUresult pool_attribute(EventLine *line, void *handle, int attribute, void *value, bool set) {
  cl_event_int(line, "attribute", attribute);
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  HOLD_POOL(pool, handle);
  if (!cl_is_own(pool)) return NO_POOL;
  return set ? set_attribute(pool, attribute, value) : get_attribute(pool, attribute, value);
}
EXPORTED(cuMemPoolGetAttribute, (void *pool, int attribute, void *value),
         pool_attribute(line, pool, attribute, value, false))
EXPORTED(cuMemPoolSetAttribute, (void *pool, int attribute, void *value),
         pool_attribute(line, pool, attribute, value, true))

/* -- access -- */

static CUresult check_access(const Pool *pool, const AccessDescription *one) {
  const Location *own = &pool->properties.location;
  bool of_device = own->type == CU_MEM_LOCATION_TYPE_DEVICE && pool->properties.type == PINNED_TYPE;
  if (one->flags == CU_MEM_ACCESS_FLAGS_PROT_READ) return CUDA_ERROR_NOT_SUPPORTED;
  /* the host has access to what is not of a device, and keeps it */
  if (one->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
    return of_device || one->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
  if (!cl_is_device(one->location.id)) return CUDA_ERROR_INVALID_DEVICE;
  if (one->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && one->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
    return CUDA_ERROR_INVALID_VALUE;
  return of_device && own->id == one->location.id && one->flags == CU_MEM_ACCESS_FLAGS_PROT_NONE
             ? CUDA_ERROR_INVALID_DEVICE
             : CUDA_SUCCESS;
}

API(cuMemPoolSetAccess, (void *handle, const AccessDescription *map, size_t count), (handle, map, count)) {
  if (!map) return CUDA_ERROR_INVALID_VALUE;
  HOLD_POOL(pool, handle);
  CUresult result = pool ? CUDA_SUCCESS : NO_POOL;
  for (size_t at = 0; at < count && !result; at++) result = check_access(pool, &map[at]);
  for (size_t at = 0; at < count && !result; at++)
    if (map[at].location.type == CU_MEM_LOCATION_TYPE_DEVICE) pool->access[map[at].location.id] = map[at].flags;
  if (!result) cl_block_bar(pool, cl_pool_barred(pool));
  return result;
}

static CUresult access_of(const Pool *pool, const Location *location, int *flags) {
  if (!cl_can_have_access(location)) return CUDA_ERROR_INVALID_VALUE;
  bool shown = pool->properties.type == PINNED_TYPE && pool->properties.location.type != CU_MEM_LOCATION_TYPE_DEVICE;
  *flags = location->type == CU_MEM_LOCATION_TYPE_DEVICE ? pool->access[location->id]
           : shown                                       ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                                                         : CU_MEM_ACCESS_FLAGS_PROT_NONE;
  return CUDA_SUCCESS;
}

API(cuMemPoolGetAccess, (int *flags, void *handle, const Location *location), (flags, handle, location)) {
  if (!flags || !location) return CUDA_ERROR_INVALID_VALUE;
  HOLD_POOL(pool, handle);
  return pool ? access_of(pool, location, flags) : NO_POOL;
}

/* -- sharing with other processes -- */

static CUresult check_sharing(int type, unsigned long long flags) {
  if (flags || !cl_is_handle_type(type) || type == CU_MEM_HANDLE_TYPE_WIN32_KMT) return CUDA_ERROR_INVALID_VALUE;
  return type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

API(cuMemPoolExportToShareableHandle, (int *out, void *handle, int type, unsigned long long flags),
    (out, handle, type, flags)) {
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  HOLD_POOL(pool, handle);
  if (!cl_is_own(pool)) return NO_POOL;
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || flags || pool->file.number < 0)
    return CUDA_ERROR_INVALID_VALUE;
  int file = fcntl(own_descriptor(&pool->file), F_DUPFD, 3); /* a program that this one starts has it, too (H200) */
  if (file < 0) return CUDA_ERROR_OUT_OF_MEMORY;
  pool->exported = true;
  *out = file;
  return CUDA_SUCCESS;
}

API(cuMemPoolImportFromShareableHandle, (void **out, void *handle, int type, unsigned long long flags),
    (out, handle, type, flags)) {
  FileHead head;
  if (!out || !handle) return CUDA_ERROR_INVALID_VALUE;
  TRY(check_sharing(type, flags));
  int given = (int)(intptr_t)handle;
  *out = NULL;
  TRY(cl_file_check(given, FILE_OF_POOL, &head));
  if (!cl_is_device(head.device)) return CUDA_ERROR_INVALID_DEVICE;
  PoolProperties properties = {0};
  memcpy(&properties, head.properties, sizeof head.properties);
  int file = moved_up(cl_file_duplicate(given));
  if (file < 0) return CUDA_ERROR_OUT_OF_MEMORY;
  Pool *pool;
  HOLD(cl_pools_lock);
  CUresult result = cl_pool_make(&properties, file, &head, true, &pool);
  if (!result) *out = pool;
  else close(file);
  return result;
}

/* CUmemPoolPtrExportData, as we fill it */
typedef struct {
  uint64_t key, offset, size, unused[5];
} ExportedPointer;
_Static_assert(sizeof(ExportedPointer) == 64, "CUmemPoolPtrExportData");

API(cuMemPoolExportPointer, (ExportedPointer * out, CUdeviceptr address), (out, address)) {
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  HOLD(cl_pools_lock);
  HOLD_BLOCK(block, address);
  const Pool *pool = block && block->origin == FROM_POOL ? block->owner : NULL;
  if (!pool || !pool->exported || block->start != address) return CUDA_ERROR_INVALID_VALUE;
  block->exported = true;
  *out = (ExportedPointer){.key = pool->file_head.key, .offset = block->offset, .size = block->size};
  return CUDA_SUCCESS;
}

/* Maps what another process allocated; the pages at its ends may hold neighbours of it. */
static CUresult map_pointer(Pool *pool, const ExportedPointer *data, CUdeviceptr *out) {
  size_t before = data->offset & (cl_page_size() - 1), size;
  if (!data->size || __builtin_add_overflow(data->size, before, &size)) return CUDA_ERROR_INVALID_VALUE;
  uintptr_t pages = cl_pool_pages(pool, data->offset - before, size, 0);
  if (!pages) return CUDA_ERROR_OUT_OF_MEMORY;
  Block block = {.start = pages + before,
                 .size = data->size,
                 .origin = FROM_POOL_OF_OTHER,
                 .device = pool->file_head.device,
                 .pages = pages,
                 .pages_size = size,
                 .owner = pool,
                 .offset = data->offset,
                 .barred = cl_pool_barred(pool)};
  if (cl_block_enter(&block)) return cl_block_free(&block), CUDA_ERROR_OUT_OF_MEMORY;
  pool->live++;
  *out = block.start;
  return CUDA_SUCCESS;
}

static bool is_imported(const Block *block, const Block *wanted) {
  return block->origin == FROM_POOL_OF_OTHER && block->owner == wanted->owner && block->offset == wanted->offset;
}

API(cuMemPoolImportPointer, (CUdeviceptr *out, void *handle, const ExportedPointer *data), (out, handle, data)) {
  if (!out || !data) return CUDA_ERROR_INVALID_VALUE;
  HOLD_POOL(pool, handle);
  if (!pool || !pool->imported || pool->file_head.key != data->key) return NO_POOL;
  const Block *there =
      cl_block_find(is_imported, &(Block){.origin = FROM_POOL_OF_OTHER, .owner = pool, .offset = data->offset});
  if (there) *out = there->start;
  cl_block_unlock();
  return there ? CUDA_SUCCESS : map_pointer(pool, data, out);
}

/* -- in the order of a stream -- */

/* A captured stream allocates when its graph is launched. */
static CUresult capture(CUdeviceptr *out, size_t size, void *handle, CUdevice device, const void *stream) {
  PoolProperties properties = {.type = PINNED_TYPE, .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
  if (handle) {
    HOLD_POOL(pool, handle);
    if (!pool) return NO_POOL;
    properties = pool->properties;
  }
  *out = 0; /* nothing is no node */
  return size ? cl_capture_allocation(stream, &properties, size, out) : CUDA_SUCCESS;
}

/* Under a schedule the memory may be there that pending work is to free. */
static CUresult frees_some(CUresult result) {
  HOLD_STREAMS();
  bool freed = result == CUDA_ERROR_OUT_OF_MEMORY && cl_scheduled() && cl_hurry_all();
  if (freed) cl_progress();
  return freed ? CUDA_SUCCESS : result;
}

static CUresult allocate_in_stream(EventLine *line, CUdeviceptr *out, size_t size, void *pool, bool named,
                                   const void *stream) {
  cl_event_uint(line, "bytes", size);
  CUdevice device;
  if (out) *out = 0; /* also in no stream (measured: edges/green_devices) */
  TRY(cl_stream_device(stream, &device));
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  bool captured;
  TRY(cl_enter_stream(stream, &captured));
  if (!captured) TRY(LOCKED(cl_prohibited()));
  if (named && !pool) return CUDA_ERROR_INVALID_VALUE;
  if (captured) return capture(out, size, pool, device, stream);
  CUresult result = cl_pool_allocate(pool, device, stream, size, out);
  if (result) {
    result = frees_some(result);
    if (!result) result = cl_pool_allocate(pool, device, stream, size, out);
  }
  if (cl_order_on && !result) {
    Op *op = cl_order_enter(stream);
    cl_touch_block(op, *out, ACCESS_ALLOCATE);
    cl_order_drop(op);
  }
  return result;
}
EXPORTED(cuMemAllocAsync, (CUdeviceptr *out, size_t size, void *stream),
         allocate_in_stream(line, out, size, NULL, false, stream))
EXPORTED(cuMemAllocFromPoolAsync, (CUdeviceptr *out, size_t size, void *pool, void *stream),
         allocate_in_stream(line, out, size, pool, true, stream))
