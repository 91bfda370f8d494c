/* Managed memory: advice and prefetches, remembered for each range of pages. */
#include <string.h>

#include "blocks.h"
#include "capture.h"
#include "config.h"
#include "devices.h"
#include "grow.h"

enum { LAST_PREFETCH = 7 }; /* besides CUmem_advise: what to remember */

/* What holds for some pages of a block, up to an offset. */
typedef struct Part {
  size_t end;
  bool read_mostly, accessed_by_host;
  uint64_t accessed_by; /* devices, one bit each */
  Location preferred, prefetched;
} Part;

/* -- remembering -- */

/* Makes room for two parts more in the advice of a block; false if memory is out. */
static bool make_room(Block *block) {
  Advice *advice = &block->advice;
  if (!cl_grow(&advice->parts, advice->count + 2, &advice->room, sizeof *advice->parts)) return false;
  if (!advice->count) advice->parts[advice->count++].end = cl_rounded(block->size, cl_page_size());
  return true;
}

/* Makes an offset the end of a part. */
static void split(Advice *advice, size_t offset) {
  size_t at = 0;
  while (at < advice->count && advice->parts[at].end < offset) at++;
  if (!offset || at == advice->count || advice->parts[at].end == offset) return;
  memmove(&advice->parts[at + 1], &advice->parts[at], (advice->count - at) * sizeof *advice->parts);
  advice->parts[at].end = offset;
  advice->count++;
}

static void apply(Part *part, int what, const Location *location) {
  uint64_t bit = location->type == CU_MEM_LOCATION_TYPE_DEVICE ? (uint64_t)1 << location->id : 0;
  switch (what) {
    case CU_MEM_ADVISE_SET_READ_MOSTLY: part->read_mostly = true; break;
    case CU_MEM_ADVISE_UNSET_READ_MOSTLY: part->read_mostly = false; break;
    case CU_MEM_ADVISE_SET_PREFERRED_LOCATION: part->preferred = *location; break;
    case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION: part->preferred = (Location){0}; break;
    case CU_MEM_ADVISE_SET_ACCESSED_BY:
      part->accessed_by |= bit;
      part->accessed_by_host |= location->type == CU_MEM_LOCATION_TYPE_HOST;
      break;
    case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
      part->accessed_by &= ~bit;
      part->accessed_by_host &= location->type != CU_MEM_LOCATION_TYPE_HOST;
      break;
    default: part->prefetched = *location; break;
  }
}

/* The managed block that holds a range, whose pages become offsets in it; NULL if none does. The table is locked. */
static Block *managed_block(CUdeviceptr start, size_t size, size_t *from, size_t *to) {
  Block *block = cl_block_lock(start);
  if (!block || !size || block->place != MANAGED || size > block->size - (start - block->start)) return NULL;
  *from = (size_t)(start - block->start) & ~(cl_page_size() - 1);
  *to = cl_rounded((size_t)(start - block->start) + size, cl_page_size());
  return block;
}

static CUresult remember(CUdeviceptr start, size_t size, int what, const Location *location) {
  size_t from, to;
  CUresult result = CUDA_ERROR_INVALID_VALUE;
  Block *block = managed_block(start, size, &from, &to);
  if (block && !make_room(block)) {
    result = CUDA_ERROR_OUT_OF_MEMORY;
  } else if (block) {
    Advice *advice = &block->advice;
    split(advice, from);
    split(advice, to);
    size_t begin = 0;
    for (size_t at = 0; at < advice->count; at++) {
      if (begin >= from && advice->parts[at].end <= to) apply(&advice->parts[at], what, location);
      begin = advice->parts[at].end;
    }
    result = CUDA_SUCCESS;
  }
  cl_block_unlock();
  return result;
}

static bool is_managed(CUdeviceptr start, size_t size) {
  size_t from, to;
  bool found = managed_block(start, size, &from, &to);
  cl_block_unlock();
  return found;
}

/* Checks where memory is to go; of the host, which has one node, there is one place. */
static CUresult check_location(Location *location) {
  switch (location->type) {
    case CU_MEM_LOCATION_TYPE_DEVICE: return cl_is_device(location->id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
      location->id = location->type == CU_MEM_LOCATION_TYPE_HOST ? CU_DEVICE_CPU : 0;
      return CUDA_SUCCESS;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
      return location->id <= 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; /* one node is shown */
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

static Location of_device(CUdevice device) {
  return device == CU_DEVICE_CPU ? (Location){CU_MEM_LOCATION_TYPE_HOST, CU_DEVICE_CPU}
                                 : (Location){CU_MEM_LOCATION_TYPE_DEVICE, device};
}

/* -- advice -- */

static bool is_known_type(const Location *location) {
  return location->type >= CU_MEM_LOCATION_TYPE_DEVICE && location->type <= CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
}

static bool is_accessed_by(int advice) {
  return advice == CU_MEM_ADVISE_SET_ACCESSED_BY || advice == CU_MEM_ADVISE_UNSET_ACCESSED_BY;
}

static CUresult advise(EventLine *line, CUdeviceptr start, size_t size, int advice, Location location) {
  cl_event_int(line, "advice", advice);
  TRY(cl_check_context());
  if (!start || !size || advice < CU_MEM_ADVISE_SET_READ_MOSTLY || advice > CU_MEM_ADVISE_UNSET_ACCESSED_BY)
    return CUDA_ERROR_INVALID_VALUE;
  if (advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION || is_accessed_by(advice)) TRY(check_location(&location));
  return remember(start, size, advice, &location);
}
EXPORTED(cuMemAdvise, (CUdeviceptr start, size_t size, int advice, CUdevice device),
         advise(line, start, size, advice, of_device(device)))

static bool is_numa(const Location *location) {
  return location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA || location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
}

/* Whether an advice fits its location, which is checked even before cuInit, when there is no device (measured:
   programs/managed). */
static bool is_possible(int advice, const Location *location) {
  if (advice < CU_MEM_ADVISE_SET_READ_MOSTLY || advice > CU_MEM_ADVISE_UNSET_ACCESSED_BY || !is_known_type(location))
    return false;
  bool placed = is_accessed_by(advice) || advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION;
  if (placed && location->type == CU_MEM_LOCATION_TYPE_DEVICE) return cl_initialized() && cl_is_device(location->id);
  if (is_accessed_by(advice)) return !is_numa(location);
  return advice != CU_MEM_ADVISE_SET_PREFERRED_LOCATION || location->type != CU_MEM_LOCATION_TYPE_HOST_NUMA ||
         location->id <= 0;
}

API_WHEN(is_possible(advice, &location) && !is_numa(&location), cuMemAdvise_v2,
         (CUdeviceptr start, size_t size, int advice, Location location), (start, size, advice, location)) {
  if (!is_possible(advice, &location)) return CUDA_ERROR_INVALID_VALUE;
  /* a system of one node answers it without looking at the range (measured: programs/managed) */
  return is_numa(&location) ? CUDA_SUCCESS : advise(line, start, size, advice, location);
}

/* -- prefetching -- */

/* Neither prefetching nor discarding can be captured (measured: edges/capture). A stream of a context needs no current
   one (two H200s: edges/two_managed). */
static CUresult check_stream(const void *stream) {
  Stream *known;
  CUresult state = cl_context_in(stream) ? CUDA_SUCCESS : cl_check_context();
  return state ? state : LOCKED(cl_refuse_captured(stream, &known));
}

static CUresult prefetch(EventLine *line, CUdeviceptr start, size_t size, Location location, unsigned flags,
                         const void *stream) {
  cl_event_uint(line, "bytes", size);
  if (flags || !is_known_type(&location)) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = check_stream(stream);
  if (!result && (!start || !size)) result = CUDA_ERROR_INVALID_VALUE;
  if (!result) result = check_location(&location);
  return result ? result : remember(start, size, LAST_PREFETCH, &location);
}
EXPORTED(cuMemPrefetchAsync, (CUdeviceptr start, size_t size, CUdevice device, void *stream),
         prefetch(line, start, size, of_device(device), 0, stream))
EXPORTED_WHEN(!flags && is_known_type(&location), cuMemPrefetchAsync_v2,
              (CUdeviceptr start, size_t size, Location location, unsigned flags, void *stream),
              prefetch(line, start, size, location, flags, stream))

/* Ranges that are prefetched or discarded together. */
typedef struct {
  const CUdeviceptr *starts;
  const size_t *sizes;
  size_t count;
} Ranges;

/* Checked even before cuInit (measured: programs/managed). */
static bool are_ranges(const Ranges *ranges, unsigned long long flags, const void *stream) {
  return ranges->starts && ranges->sizes && ranges->count && !flags && (uintptr_t)stream > CU_STREAM_LEGACY;
}

static CUresult check_ranges(const Ranges *ranges, unsigned long long flags, const void *stream) {
  if (!are_ranges(ranges, flags, stream)) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = check_stream(stream);
  for (size_t at = 0; at < ranges->count && !result; at++)
    if (!is_managed(ranges->starts[at], ranges->sizes[at])) result = CUDA_ERROR_INVALID_VALUE;
  return result;
}

/* The locations of a batch begin at the first range, and each where the next one of it begins. */
static CUresult check_locations(const Location *locations, const size_t *firsts, size_t count, size_t ranges) {
  if (!locations || !firsts || !count || count > ranges || firsts[0]) return CUDA_ERROR_INVALID_VALUE;
  for (size_t at = 0; at < count; at++) {
    Location location = locations[at];
    if (firsts[at] >= ranges || (at && firsts[at] <= firsts[at - 1])) return CUDA_ERROR_INVALID_VALUE;
    if (check_location(&location)) return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

static CUresult prefetch_batch(EventLine *line, const Ranges *ranges, const Location *locations, const size_t *firsts,
                               size_t count, unsigned long long flags, const void *stream) {
  cl_event_uint(line, "count", ranges->count);
  if (!are_ranges(ranges, flags, stream)) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = check_ranges(ranges, flags, stream);
  if (!result) result = check_locations(locations, firsts, count, ranges->count);
  for (size_t at = 0, of = 0; at < ranges->count && !result; at++) {
    if (of + 1 < count && firsts[of + 1] == at) of++;
    Location location = locations[of];
    check_location(&location);
    result = remember(ranges->starts[at], ranges->sizes[at], LAST_PREFETCH, &location);
  }
  return result;
}
/* What is discarded has any content from then on; here it keeps the one that it has. */
#define PREFETCH_BATCH(name)                                                                                         \
  EXPORTED_WHEN(                                                                                                     \
      are_ranges(&(Ranges){starts, sizes, count}, flags, stream), name,                                              \
      (CUdeviceptr *starts, size_t *sizes, size_t count, Location *locations, size_t *firsts, size_t location_count, \
       unsigned long long flags, void *stream),                                                                      \
      prefetch_batch(line, &(Ranges){starts, sizes, count}, locations, firsts, location_count, flags, stream))
PREFETCH_BATCH(cuMemPrefetchBatchAsync)
PREFETCH_BATCH(cuMemDiscardAndPrefetchBatchAsync)
EXPORTED_WHEN(are_ranges(&(Ranges){starts, sizes, count}, flags, stream), cuMemDiscardBatchAsync,
              (CUdeviceptr *starts, size_t *sizes, size_t count, unsigned long long flags, void *stream),
              check_ranges(&(Ranges){starts, sizes, count}, flags, stream))

/* -- asking -- */

/* What holds for all pages of a range. */
static Part common(const Advice *advice, size_t from, size_t to) {
  Part all = {0};
  size_t begin = 0;
  bool first = true;
  for (size_t at = 0; at < advice->count; begin = advice->parts[at++].end) {
    const Part *part = &advice->parts[at];
    if (part->end <= from || begin >= to) continue;
    if (first) all = *part;
    first = false;
    all.read_mostly &= part->read_mostly;
    all.accessed_by &= part->accessed_by;
    all.accessed_by_host &= part->accessed_by_host;
    if (memcmp(&all.preferred, &part->preferred, sizeof all.preferred)) all.preferred = (Location){0};
    if (memcmp(&all.prefetched, &part->prefetched, sizeof all.prefetched)) all.prefetched = (Location){0};
  }
  return all;
}

static int as_device(const Location *location) {
  return location->type == CU_MEM_LOCATION_TYPE_DEVICE    ? location->id
         : location->type == CU_MEM_LOCATION_TYPE_INVALID ? (CUdevice)CU_DEVICE_INVALID
                                                          : (CUdevice)CU_DEVICE_CPU;
}

static int as_id(const Location *location) {
  return location->type == CU_MEM_LOCATION_TYPE_INVALID ? (CUdevice)CU_DEVICE_INVALID : location->id;
}

static void list_devices(const Part *part, int *out, size_t room) {
  size_t count = 0;
  for (int device = 0; device < DEVICES_MAX && count < room; device++)
    if (part->accessed_by >> device & 1) out[count++] = device;
  if (part->accessed_by_host && count < room) out[count++] = CU_DEVICE_CPU;
  while (count < room) out[count++] = CU_DEVICE_INVALID;
}

static CUresult check_attribute(const void *out, size_t size, int attribute) {
  bool known =
      attribute >= CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY && attribute <= CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID;
  bool fits = attribute == CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY ? size && size % sizeof(int) == 0 : size == sizeof(int);
  return out && known && fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static void write_attribute(const Part *part, int *out, size_t size, int attribute) {
  switch (attribute) {
    case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY: *out = part->read_mostly; break;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION: *out = as_device(&part->preferred); break;
    case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY: list_devices(part, out, size / sizeof *out); break;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION: *out = as_device(&part->prefetched); break;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE: *out = part->preferred.type; break;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID: *out = as_id(&part->preferred); break;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE: *out = part->prefetched.type; break;
    default: *out = as_id(&part->prefetched); break;
  }
}

static CUresult range_attributes(void **out, const size_t *sizes, const int *attributes, size_t count,
                                 CUdeviceptr start, size_t size) {
  size_t from, to;
  TRY(cl_check_context());
  if (!out || !sizes || !attributes || !count) return CUDA_ERROR_INVALID_VALUE;
  for (size_t at = 0; at < count; at++)
    if (check_attribute(out[at], sizes[at], attributes[at])) return CUDA_ERROR_INVALID_VALUE;
  const Block *block = managed_block(start, size, &from, &to);
  Part part = block ? common(&block->advice, from, to) : (Part){0};
  cl_block_unlock();
  for (size_t at = 0; at < count && block; at++) write_attribute(&part, out[at], sizes[at], attributes[at]);
  return block ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
EXPORTED(cuMemRangeGetAttribute, (void *out, size_t bytes, int attribute, CUdeviceptr start, size_t size),
         range_attributes(&out, &bytes, &attribute, 1, start, size))
EXPORTED(cuMemRangeGetAttributes,
         (void **out, size_t *sizes, int *attributes, size_t count, CUdeviceptr start, size_t size),
         range_attributes(out, sizes, attributes, count, start, size))
