/* Virtual memory: reserving addresses, mapping memory there, and access to it. */
#include "virtual_memory.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "device_addresses.h"
#include "devices.h"

typedef struct {
  AddressNode node;
  size_t size;
  bool ours; /* what a mapping covers behind the caller's: nothing else may come there meanwhile */
} Reservation;

/* Under the lock of the physical memory, like all here. */
static AddressTree reservations, mappings;

static bool contains(uintptr_t start, size_t size, uintptr_t address, size_t bytes) {
  return address >= start && bytes <= size && address - start <= size - bytes;
}

/* -- reserving -- */

API(cuMemAddressReserve, (CUdeviceptr *out, size_t size, size_t alignment, CUdeviceptr hint, unsigned long long flags),
    (out, size, alignment, hint, flags)) {
  cl_event_uint(line, "bytes", size);
  if (!out || flags || !size || size % GRANULARITY || hint % GRANULARITY || alignment & (alignment - 1) ||
      alignment > SIZE_MAX / 2) /* (measured: edges/vmm_more) */
    return CUDA_ERROR_INVALID_VALUE;
  Reservation *fresh = calloc(1, sizeof *fresh);
  if (!fresh) return CUDA_ERROR_OUT_OF_MEMORY;
  fresh->size = size;
  /* no user has addresses beyond (measured: edges/vmm_map) */
  if (hint >> 56 == 0)
    fresh->node.start = cl_addresses_take(size, alignment > GRANULARITY ? alignment : GRANULARITY, (uintptr_t)hint);
  if (!fresh->node.start) return free(fresh), CUDA_ERROR_OUT_OF_MEMORY;
  HOLD(cl_physical_lock);
  cl_tree_enter(&reservations, &fresh->node);
  *out = fresh->node.start;
  return CUDA_SUCCESS;
}

/* What is mapped or reserved at an address, or the last one before it; NULL: nothing is. */
static Mapping *mapping_at(uintptr_t address) { return (Mapping *)cl_tree_at(&mappings, address); }
static Reservation *reservation_at(uintptr_t address) { return (Reservation *)cl_tree_at(&reservations, address); }

static bool anything_mapped(uintptr_t start, size_t size) {
  const Mapping *last = mapping_at(start + size - 1);
  return last && start < last->node.start + last->size;
}

static void give(Reservation *old) {
  cl_tree_leave(&reservations, &old->node);
  cl_addresses_give(old->node.start, old->size);
  free(old);
}

API(cuMemAddressFree, (CUdeviceptr start, size_t size), (start, size)) {
  cl_event_uint(line, "bytes", size);
  HOLD(cl_physical_lock);
  Reservation *found = reservation_at(start);
  if (!found || found->node.start != start || found->size != size || anything_mapped(start, size))
    return CUDA_ERROR_INVALID_VALUE;
  give(found);
  return CUDA_SUCCESS;
}

/* Where the reservations end that an address is in, and those without a gap behind it, as far as a stop; 0: in none. */
static uintptr_t reserved_up_to(uintptr_t address, uintptr_t stop) {
  const Reservation *at = reservation_at(address);
  if (!at || !contains(at->node.start, at->size, address, 1)) return 0;
  uintptr_t end = at->node.start + at->size;
  for (; end < stop; end += at->size) {
    at = (const Reservation *)at->node.behind;
    if (!at || at->node.start != end) break;
  }
  return end;
}

bool cl_reservation_of(CUdeviceptr address, CUdeviceptr *start, size_t *size) {
  HOLD(cl_physical_lock);
  const Reservation *found = reservation_at((uintptr_t)address);
  if (!found || found->ours || !contains(found->node.start, found->size, (uintptr_t)address, 1)) return false;
  *start = found->node.start;
  *size = found->size;
  return true;
}

/* -- mapping -- */

/* Memory of the host is what the host sees at the address itself, too, as far as it has access. */
static void show(Mapping *mapping) {
  static const int protections[] = {[CU_MEM_ACCESS_FLAGS_PROT_READ] = PROT_READ,
                                    [CU_MEM_ACCESS_FLAGS_PROT_READWRITE] = PROT_READ | PROT_WRITE};
  if (!mapping->shown && mapping->host_access == CU_MEM_ACCESS_FLAGS_PROT_NONE) return;
  if (!mapping->shown) mapping->shown = cl_physical_map(mapping->physical, mapping->node.start, mapping->size);
  if (mapping->shown) mprotect((void *)mapping->node.start, mapping->size, protections[mapping->host_access]);
}

static void hide(const Mapping *mapping) {
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
  if (!mapping->shown || mmap((void *)mapping->node.start, mapping->size, PROT_NONE, flags, -1, 0) != MAP_FAILED)
    return;
  mprotect((void *)mapping->node.start, mapping->size, PROT_NONE); /* what is left there is out of reach at least */
}

static void uncover(uintptr_t start, uintptr_t stop) {
  Reservation *at = (Reservation *)cl_tree_from(&reservations, start);
  for (Reservation *next; at && at->node.start < stop; at = next) {
    next = (Reservation *)at->node.behind;
    if (at->ours) give(at);
  }
}

/* Reserves what is not between the reservations of a mapping, of which only the start has to be (measured:
   edges/reservations). */
static CUresult cover(EventLine *line, uintptr_t start, uintptr_t stop) {
  for (uintptr_t end = start; (end = reserved_up_to(end, stop)) < stop;) {
    const Reservation *next = (Reservation *)cl_tree_from(&reservations, end);
    size_t size = (next && next->node.start < stop ? next->node.start : stop) - end;
    Reservation *fresh = malloc(sizeof *fresh);
    if (!fresh) return CUDA_ERROR_OUT_OF_MEMORY;
    *fresh = (Reservation){{.start = cl_addresses_take(size, GRANULARITY, end)}, size, true};
    if (!fresh->node.start) return free(fresh), CUDA_ERROR_OUT_OF_MEMORY;
    cl_tree_enter(&reservations, &fresh->node);
    if (fresh->node.start == end) continue;
    give(fresh);
    return cl_noted(line, CUDA_ERROR_INVALID_VALUE, "what is behind the reservation is in use");
  }
  return CUDA_SUCCESS;
}

static CUresult map(uintptr_t start, size_t size, Physical *physical) {
  Mapping *fresh = calloc(1, sizeof *fresh);
  if (!fresh) return CUDA_ERROR_OUT_OF_MEMORY;
  const Location *location = &physical->properties.location;
  bool on_device = location->type == CU_MEM_LOCATION_TYPE_DEVICE;
  Block block = {.start = start, .size = size, .origin = FROM_MAPPING, .owner = physical, .barred = UINT64_MAX};
  block.place = on_device ? ON_DEVICE : ON_HOST;
  block.device = on_device ? location->id : 0;
  block.exported = physical->exported;
  *fresh = (Mapping){.node.start = start, .size = size, .physical = physical};
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  if (cl_physical_map(physical, cl_bytes_of(start), size)) {
    result = cl_block_enter(&block);
    if (result) cl_addresses_empty(start, size);
  }
  if (result) return free(fresh), result;
  cl_physical_hold(physical);
  cl_tree_enter(&mappings, &fresh->node);
  return CUDA_SUCCESS;
}

API(cuMemMap, (CUdeviceptr start, size_t size, size_t offset, uint64_t handle, unsigned long long flags),
    (start, size, offset, handle, flags)) {
  cl_event_uint(line, "bytes", size);
  HOLD_PHYSICAL(physical, handle);
  bool for_tiles = physical && physical->properties.flags.usage & CU_MEM_CREATE_USAGE_TILE_POOL; /* of arrays only */
  if (!physical || for_tiles || flags || !size || !start) return CUDA_ERROR_INVALID_VALUE;
  if (offset || size != physical->size) return CUDA_ERROR_NOT_SUPPORTED; /* only all of it can be mapped */
  uintptr_t stop = (uintptr_t)start + size;
  if (!reserved_up_to((uintptr_t)start, 0) || start % GRANULARITY || anything_mapped((uintptr_t)start, size))
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result = cover(line, (uintptr_t)start, stop);
  if (!result) result = map((uintptr_t)start, size, physical);
  if (result) uncover((uintptr_t)start, stop);
  return result;
}

static Mapping *behind(const Mapping *mapping) { return (Mapping *)mapping->node.behind; }

static const Mapping *mapping_of(uintptr_t address) {
  const Mapping *found = mapping_at(address);
  return found && contains(found->node.start, found->size, address, 1) ? found : NULL;
}

static void unmap(Mapping *mapping) {
  Block taken;
  cl_tree_leave(&mappings, &mapping->node);
  if (cl_block_take(mapping->node.start, FROM_MAPPING, &taken)) cl_block_free(&taken);
  cl_addresses_empty(mapping->node.start, mapping->size);
  hide(mapping);
  uncover(mapping->node.start, mapping->node.start + mapping->size);
  cl_physical_drop(mapping->physical);
  free(mapping);
}

/* The mapping that a range begins with, if one ends it too; holes may be between them (measured: edges/vmm_more). */
static Mapping *covering(uintptr_t start, size_t size) {
  const Mapping *last = size ? mapping_of(start + size - 1) : NULL;
  Mapping *first = last && last->node.start + last->size == start + size ? mapping_at(start) : NULL;
  return first && first->node.start == start ? first : NULL;
}

/* Whether a range has mappings as wholes only, and holes between them (measured: edges/vmm_access). */
static bool holds_wholes(uintptr_t start, size_t size) {
  const Mapping *first = mapping_of(start), *last = mapping_of(start + size - 1);
  return (!first || first->node.start == start) && (!last || last->node.start + last->size == start + size);
}

API(cuMemUnmap, (CUdeviceptr start, size_t size), (start, size)) {
  cl_event_uint(line, "bytes", size);
  HOLD(cl_physical_lock);
  uintptr_t stop = (uintptr_t)start + size;
  if (!size || !reserved_up_to((uintptr_t)start, 0) || !holds_wholes((uintptr_t)start, size))
    return CUDA_ERROR_INVALID_VALUE; /* where the reservation ends does not count */
  Mapping *at = (Mapping *)cl_tree_from(&mappings, (uintptr_t)start);
  for (Mapping *next; at && at->node.start < stop; at = next) {
    next = behind(at);
    unmap(at);
  }
  return CUDA_SUCCESS; /* where nothing is mapped, too */
}

API(cuMemRetainAllocationHandle, (uint64_t *handle, void *address), (handle, address)) {
  if (!handle) return CUDA_ERROR_INVALID_VALUE;
  HOLD(cl_physical_lock);
  const Mapping *found = mapping_of((uintptr_t)address);
  if (!found) return CUDA_ERROR_INVALID_VALUE;
  if (!cl_physical_retain(found->physical)) return CUDA_ERROR_OUT_OF_MEMORY;
  *handle = (uintptr_t)found->physical;
  return CUDA_SUCCESS;
}

bool cl_mapping_of(CUdeviceptr address, Mapping *mapping, PhysicalProperties *properties) {
  HOLD(cl_physical_lock);
  const Mapping *found = mapping_of((uintptr_t)address);
  if (!found) return false;
  *mapping = *found;
  *properties = found->physical->properties;
  return true;
}

/* -- access -- */

static CUresult check_access(const Physical *physical, const AccessDescription *one) {
  if (one->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && one->flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
      one->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
    return CUDA_ERROR_INVALID_VALUE;
  if (!cl_can_have_access(&one->location)) return CUDA_ERROR_INVALID_VALUE;
  /* the host cannot use memory of a device */
  bool refused = one->location.type != CU_MEM_LOCATION_TYPE_DEVICE && one->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
                 physical->properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE;
  return refused ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

static void apply_access(Mapping *mapping) {
  uint64_t barred = 0, read_only = 0;
  for (int device = 0; device < DEVICES_MAX; device++) {
    barred |= (uint64_t)(mapping->access[device] == CU_MEM_ACCESS_FLAGS_PROT_NONE) << device;
    read_only |= (uint64_t)(mapping->access[device] == CU_MEM_ACCESS_FLAGS_PROT_READ) << device;
  }
  show(mapping);
  HOLD_BLOCK(block, mapping->node.start);
  if (!block) return;
  block->barred = barred;
  block->read_only = read_only;
}

API(cuMemSetAccess, (CUdeviceptr start, size_t size, const AccessDescription *list, size_t count),
    (start, size, list, count)) {
  if (!list || !count) return CUDA_ERROR_INVALID_VALUE;
  HOLD(cl_physical_lock);
  Mapping *first = covering((uintptr_t)start, size);
  if (!first) return CUDA_ERROR_INVALID_VALUE;
  for (size_t at = 0; at < count; at++) TRY(check_access(first->physical, &list[at]));
  for (Mapping *mapping = first; mapping && mapping->node.start < start + size; mapping = behind(mapping)) {
    for (size_t at = 0; at < count; at++)
      if (list[at].location.type == CU_MEM_LOCATION_TYPE_DEVICE) mapping->access[list[at].location.id] = list[at].flags;
      else mapping->host_access = list[at].flags;
    apply_access(mapping);
  }
  return CUDA_SUCCESS;
}

/* What is not memory is an error, and without access; memory that was not mapped has none, either
   (measured: edges/vmm_access). */
API(cuMemGetAccess, (unsigned long long *flags, const Location *location, CUdeviceptr address),
    (flags, location, address)) {
  Mapping mapping = {0};
  PhysicalProperties properties;
  if (!flags || !location || !address) return CUDA_ERROR_INVALID_VALUE;
  if (!cl_can_have_access(location)) return CUDA_ERROR_INVALID_DEVICE;
  bool known = cl_mapping_of(address, &mapping, &properties) || cl_is_known(address);
  bool elsewhere = location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA && location->id; /* one node is shown */
  /* the host's place is taken for the first device's, too */
  bool host = location->type == CU_MEM_LOCATION_TYPE_HOST && !mapping.host_access;
  *flags = host || location->type == CU_MEM_LOCATION_TYPE_DEVICE ? (unsigned)mapping.access[host ? 0 : location->id]
           : elsewhere                                           ? CU_MEM_ACCESS_FLAGS_PROT_NONE
                                                                 : (unsigned)mapping.host_access;
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* -- multicast objects: no emulated device has them, as CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED says -- */

static const char no_multicast[] = "the emulated device has no multicast: MULTICAST_SUPPORTED is 0";

/* Whatever a caller gave (measured: edges/one_device). */
EXPORTED(cuMulticastCreate, (uint64_t *handle, const void *properties),
         cl_noted(line, CUDA_ERROR_NOT_SUPPORTED, no_multicast))
EXPORTED(cuMulticastGetGranularity, (size_t *granularity, const void *properties, int option),
         cl_noted(line, CUDA_ERROR_NOT_SUPPORTED, no_multicast))
EXPORTED(cuMulticastAddDevice, (uint64_t handle, CUdevice device),
         cl_noted(line, CUDA_ERROR_NOT_SUPPORTED, no_multicast))
/* There is no handle of a multicast object that could be given. */
EXPORTED(cuMulticastBindMem,
         (uint64_t handle, size_t offset, uint64_t memory, size_t memory_offset, size_t size, unsigned long long flags),
         CUDA_ERROR_INVALID_VALUE)
EXPORTED(cuMulticastBindAddr,
         (uint64_t handle, size_t offset, CUdeviceptr memory, size_t size, unsigned long long flags),
         CUDA_ERROR_INVALID_VALUE)
EXPORTED(cuMulticastUnbind, (uint64_t handle, CUdevice device, size_t offset, size_t size), CUDA_ERROR_INVALID_VALUE)
