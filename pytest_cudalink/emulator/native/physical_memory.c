/* Physical memory: made, released, and shared with other processes. */
#include "physical_memory.h"

#include <stdlib.h>
#include <string.h>

#include "devices.h"
#include "pools.h"
#include "processes.h"

enum { COMPRESSIONS = 1 }; /* CUmemAllocationCompType */

pthread_mutex_t cl_physical_lock = PTHREAD_MUTEX_INITIALIZER;
OPEN_IN_CHILDREN(cl_physical_lock);

Physical *cl_physical(uint64_t handle) {
  void *named = (void *)(uintptr_t)handle;
  return cl_handle_is(named, HANDLE_PHYSICAL_MEMORY) ? named : NULL;
}

/* The descriptor of its file; -1 if the program closed that. */
static int file_of(const Physical *physical) {
  uint64_t key;
  if (physical->file.number >= 0) return own_descriptor(&physical->file);
  int file = cl_process_file(&key);
  return key == physical->key ? file : -1;
}

/* Frees what has neither references nor mappings. */
static void free_unused(Physical *physical) {
  if (physical->references || physical->mappings) return;
  if (physical->file.number >= 0) close_own(&physical->file);
  else cl_file_forget(file_of(physical), physical->offset, physical->size);
  if (physical->counted) cl_memory_give(physical->properties.location.id, physical->size);
  cl_object_end(&physical->head);
}

void cl_physical_hold(Physical *physical) { physical->mappings++; }

void cl_physical_drop(Physical *physical) {
  physical->mappings--;
  free_unused(physical);
}

bool cl_physical_retain(Physical *physical) {
  if (!physical->references && !cl_object_enter(&physical->head, HANDLE_PHYSICAL_MEMORY, NULL, NULL)) return false;
  physical->references++;
  return true;
}

bool cl_physical_map(const Physical *physical, uintptr_t where, size_t size) {
  return cl_file_map(file_of(physical), physical->offset, size, where) != 0;
}

/* What a device refuses among the handle types: those of another system. */
enum { FOREIGN_HANDLE_TYPES = HANDLE_TYPES & ~(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_FABRIC) };

/* Whether a location can have memory with these handles. */
static CUresult check_location(const PhysicalProperties *properties) {
  const Location *location = &properties->location;
  bool plain = !properties->flags.compression && !properties->flags.rdma;
  switch (location->type) {
    case CU_MEM_LOCATION_TYPE_DEVICE: return CUDA_SUCCESS;
    case CU_MEM_LOCATION_TYPE_HOST: return plain && !properties->handle_types ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA: /* one node is shown */
      return plain && location->id == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

/* In the order of a real driver: the device before everything else. */
static CUresult check_properties(const PhysicalProperties *properties) {
  if (properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE && !cl_is_device(properties->location.id))
    return CUDA_ERROR_INVALID_DEVICE;
  if (properties->type != PINNED_TYPE || properties->handle_types & FOREIGN_HANDLE_TYPES || properties->security ||
      properties->flags.compression > COMPRESSIONS || !cl_are_zeros(properties->flags.reserved, 3))
    return CUDA_ERROR_INVALID_VALUE;
  if (properties->flags.usage && (properties->flags.compression ||
                                  (properties->flags.rdma && properties->flags.usage & CU_MEM_CREATE_USAGE_TILE_POOL)))
    return CUDA_ERROR_INVALID_VALUE;
  TRY(check_location(properties));
  /* no channel for it is shown */
  return properties->handle_types & CU_MEM_HANDLE_TYPE_FABRIC ? CUDA_ERROR_NOT_PERMITTED : CUDA_SUCCESS;
}

/* It is the same for all memory, so the properties are not looked at; neither does a real driver. */
API(cuMemGetAllocationGranularity, (size_t *granularity, const PhysicalProperties *properties, int option),
    (granularity, properties, option)) {
  if (!granularity || !properties || option < 0 || option > 1) return CUDA_ERROR_INVALID_VALUE;
  *granularity = GRANULARITY;
  return CUDA_SUCCESS;
}

/* Finds a file, and a place in it. */
static bool find_pages(Physical *physical) {
  physical->file = NO_FILE;
  if (!physical->properties.handle_types) {
    physical->offset = cl_process_part(physical->size);
    cl_process_file(&physical->key);
    return physical->offset;
  }
  FileHead head = {.kind = FILE_OF_MEMORY, .device = physical->properties.location.id, .size = physical->size};
  memcpy(head.properties, &physical->properties, sizeof physical->properties);
  physical->file = own_file(cl_file_make(&head));
  physical->offset = cl_file_begin();
  return physical->file.number >= 0;
}

/* Gives the caller a handle of physical memory whose pages are found; else frees it. */
static CUresult hand_out(Physical *physical, uint64_t *handle) {
  HOLD(cl_physical_lock);
  bool kept = cl_physical_retain(physical);
  if (kept) *handle = (uintptr_t)physical;
  else free_unused(physical);
  return kept ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult create(uint64_t *handle, size_t size, const PhysicalProperties *properties) {
  Physical *physical = calloc(1, sizeof *physical);
  if (!physical) return CUDA_ERROR_OUT_OF_MEMORY;
  physical->properties = *properties;
  physical->properties.handle_types &= HANDLE_TYPES;
  physical->properties.flags.rdma = !!properties->flags.rdma;
  physical->size = size;
  physical->counted = properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
  bool taken = size <= cl_device_memory() && (!physical->counted || cl_memory_take(properties->location.id, size));
  // NOLINTNEXTLINE(clang-analyzer-unix.Malloc): the handle is the address
  if (taken && find_pages(physical)) return hand_out(physical, handle);
  if (taken && physical->counted) cl_memory_give(properties->location.id, size);
  free(physical);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

API(cuMemCreate, (uint64_t *handle, size_t size, const PhysicalProperties *properties, unsigned long long flags),
    (handle, size, properties, flags)) {
  cl_event_uint(line, "bytes", size);
  if (!handle || !properties || flags || !size || size % GRANULARITY) return CUDA_ERROR_INVALID_VALUE;
  TRY(check_properties(properties));
  return create(handle, size, properties);
}

API(cuMemRelease, (uint64_t handle), (handle)) {
  HOLD_PHYSICAL(physical, handle);
  if (!physical) return CUDA_ERROR_INVALID_VALUE;
  if (--physical->references) return CUDA_SUCCESS;
  cl_object_unname(&physical->head);
  free_unused(physical);
  return CUDA_SUCCESS;
}

API(cuMemGetAllocationPropertiesFromHandle, (PhysicalProperties * properties, uint64_t handle), (properties, handle)) {
  if (!properties) return CUDA_ERROR_INVALID_VALUE;
  HOLD_PHYSICAL(physical, handle);
  if (!physical) return CUDA_ERROR_INVALID_VALUE;
  *properties = physical->properties;
  if (properties->location.type == CU_MEM_LOCATION_TYPE_HOST)
    properties->location = (Location){CU_MEM_LOCATION_TYPE_HOST_NUMA, 0}; /* measured */
  if (properties->flags.rdma) properties->flags.compression = 0;
  properties->flags.usage = 0;
  return CUDA_SUCCESS;
}

API(cuMemExportToShareableHandle, (int *out, uint64_t handle, int type, unsigned long long flags),
    (out, handle, type, flags)) {
  if (!out || flags) return CUDA_ERROR_INVALID_VALUE;
  HOLD_PHYSICAL(physical, handle);
  if (!physical || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || !(physical->properties.handle_types & type))
    return CUDA_ERROR_INVALID_VALUE;
  int file = cl_file_duplicate(file_of(physical));
  if (file < 0) return CUDA_ERROR_OUT_OF_MEMORY;
  physical->exported = true;
  cl_block_export(physical);
  *out = file;
  return CUDA_SUCCESS;
}

API(cuMemImportFromShareableHandle, (uint64_t *handle, void *shared, int type), (handle, shared, type)) {
  FileHead head;
  if (!handle || !shared || !cl_is_handle_type(type)) return CUDA_ERROR_INVALID_VALUE;
  if (type == CU_MEM_HANDLE_TYPE_FABRIC) return CUDA_ERROR_NOT_PERMITTED;
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
  int given = (int)(intptr_t)shared;
  TRY(cl_file_check(given, FILE_OF_MEMORY, &head));
  Physical *physical = calloc(1, sizeof *physical);
  if (!physical) return CUDA_ERROR_OUT_OF_MEMORY;
  memcpy(&physical->properties, head.properties, sizeof physical->properties);
  physical->properties.handle_types = 0; /* only what was made is shared further (measured: edges/vmm_share) */
  physical->size = head.size;
  physical->exported = true;
  physical->offset = cl_file_begin();
  physical->file = own_file(moved_up(cl_file_duplicate(given)));
  // NOLINTNEXTLINE(clang-analyzer-unix.Malloc): the handle is the address
  if (physical->file.number >= 0) return hand_out(physical, handle);
  free(physical);
  return CUDA_ERROR_OUT_OF_MEMORY;
}
