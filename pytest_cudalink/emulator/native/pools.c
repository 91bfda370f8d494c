/* Memory pools: segments, and what of them is given out. */
#include "pools.h"

#include <limits.h>
#include <stdlib.h>

#include "device_addresses.h"
#include "capture.h"
#include "devices.h"
#include "processes.h"
#include "queues.h"
#include "sticky.h"

enum { CHUNK = 512, SEGMENT = 32 << 20 };

pthread_mutex_t cl_pools_lock = PTHREAD_MUTEX_INITIALIZER;
OPEN_IN_CHILDREN(cl_pools_lock);
static void free_pool(Object *object);
static Objects all = {.free = free_pool};

Pool *cl_pool(void *handle) { return cl_handle_is(handle, HANDLE_POOL) ? handle : NULL; }

enum { ANY_TYPE = INT_MIN };

static bool on_device(const Pool *pool) { return pool->properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE; }

/* -- gaps -- */

typedef struct {
  AddressNode node;
  size_t size, largest; /* of it, and of all that are below it in the tree */
} Gap;

static size_t largest(const AddressNode *node) { return node ? ((const Gap *)node)->largest : 0; }

static void sum_up(AddressNode *node) {
  Gap *gap = (Gap *)node;
  gap->largest = gap->size;
  if (gap->largest < largest(node->left)) gap->largest = largest(node->left);
  if (gap->largest < largest(node->right)) gap->largest = largest(node->right);
}

/* Gives out the first gap that is large enough; 0: there is none. */
static uintptr_t take(Pool *pool, size_t size) {
  AddressNode *node = pool->gaps.root;
  if (largest(node) < size) return 0;
  while (largest(node->left) >= size || ((Gap *)node)->size < size)
    node = largest(node->left) >= size ? node->left : node->right;
  Gap *gap = (Gap *)node;
  uintptr_t start = node->start;
  cl_tree_leave(&pool->gaps, node);
  node->start += size;
  gap->size -= size;
  if (gap->size) cl_tree_enter(&pool->gaps, node);
  else free(gap);
  return start;
}

static Segment *segment_of(const Pool *pool, uintptr_t address) {
  Segment *segment = (Segment *)cl_tree_at(&pool->by_address, address);
  return segment && address - segment->node.start < segment->size ? segment : NULL;
}

/* Whether what is at an address continues what is before it: a block may lie across. */
static bool is_joined(const Pool *pool, uintptr_t address) {
  const Segment *segment = segment_of(pool, address);
  return segment && (segment->node.start != address || segment->joined);
}

/* Enters a gap, which takes in its neighbours; false if memory is out. */
static bool enter_gap(Pool *pool, uintptr_t start, size_t size) {
  Gap *before = (Gap *)cl_tree_at(&pool->gaps, start), *behind = (Gap *)cl_tree_from(&pool->gaps, start + size);
  if (before && (before->node.start + before->size != start || !is_joined(pool, start))) before = NULL;
  if (behind && (behind->node.start != start + size || !is_joined(pool, start + size))) behind = NULL;
  Gap *gap = before ? before : malloc(sizeof *gap);
  if (!gap) return false;
  if (before) {
    cl_tree_leave(&pool->gaps, &before->node);
    start = before->node.start;
    size += before->size;
  }
  if (behind) {
    cl_tree_leave(&pool->gaps, &behind->node);
    size += behind->size;
    free(behind);
  }
  *gap = (Gap){.node.start = start, .size = size};
  cl_tree_enter(&pool->gaps, &gap->node);
  return true;
}

/* -- segments -- */

static void drop_segment(Pool *pool, Segment *segment) {
  Segment *behind = segment_of(pool, segment->node.start + segment->size);
  if (behind) behind->joined = false;
  cl_tree_leave(&pool->by_address, &segment->node);
  cl_pages_give(segment->node.start, segment->size);
  if (pool->file.number >= 0) cl_file_forget(own_descriptor(&pool->file), segment->offset, segment->size);
  if (on_device(pool)) cl_memory_give(pool->properties.location.id, segment->size);
  pool->reserved -= segment->size;
  free(segment);
}

/* Takes a segment that nothing is given of out of the gaps; false if something is, or memory is out. */
static bool leave_gap(Pool *pool, const Segment *segment) {
  uintptr_t end = segment->node.start + segment->size;
  Gap *gap = (Gap *)cl_tree_at(&pool->gaps, segment->node.start);
  if (!gap || gap->node.start + gap->size < end) return false;
  size_t before = segment->node.start - gap->node.start, behind = gap->node.start + gap->size - end;
  Gap *rest = before && behind ? malloc(sizeof *rest) : NULL;
  if (before && behind && !rest) return false;
  cl_tree_leave(&pool->gaps, &gap->node);
  if (!before && !behind) return free(gap), true;
  if (rest) *rest = (Gap){.node.start = end, .size = behind};
  if (rest) cl_tree_enter(&pool->gaps, &rest->node);
  *gap = (Gap){.node.start = before ? gap->node.start : end, .size = before ? before : behind};
  cl_tree_enter(&pool->gaps, &gap->node);
  return true;
}

/* Gives back what is not in use, until no more than `most` bytes are reserved, and no fewer than `least`. */
static void trim(Pool *pool, uint64_t most, uint64_t least) {
  for (Segment **at = &pool->segments; *at && pool->reserved > most;) {
    Segment *segment = *at;
    if (pool->reserved - segment->size < least || !leave_gap(pool, segment)) {
      at = &segment->next;
      continue;
    }
    *at = segment->next;
    drop_segment(pool, segment);
  }
}

uintptr_t cl_pool_pages(const Pool *pool, size_t offset, size_t size, uintptr_t wanted) {
  bool of_device = on_device(pool) && pool->properties.type == PINNED_TYPE;
  if (pool->file.number < 0) return of_device ? cl_device_pages(size, wanted) : cl_pages(size);
  int file = own_descriptor(&pool->file);
  return of_device ? cl_device_file(file, offset, size, wanted) : cl_file_map(file, offset, size, 0);
}

/* A new segment, where it is wanted if that is free. */
static Segment *add_pages(Pool *pool, size_t size, uintptr_t wanted) {
  size_t limit = pool->properties.max_size ? cl_rounded(pool->properties.max_size, SEGMENT) : cl_device_memory();
  if (!size || size > limit || pool->reserved > limit - size) return NULL;
  if (pool->file.number >= 0 && !cl_file_reach(own_descriptor(&pool->file), pool->file_end + size)) return NULL;
  if (on_device(pool) && !cl_memory_take(pool->properties.location.id, size)) return NULL;
  Segment *segment = calloc(1, sizeof *segment);
  if (segment) segment->node.start = cl_pool_pages(pool, pool->file_end, size, wanted);
  if (!segment || !segment->node.start) {
    if (on_device(pool)) cl_memory_give(pool->properties.location.id, size);
    free(segment);
    return NULL;
  }
  cl_tree_enter(&pool->by_address, &segment->node);
  segment->size = size;
  segment->offset = pool->file_end;
  segment->joined = segment->node.start == wanted;
  pool->reserved += size;
  return segment;
}

/* Adds what is lacking behind the newest segment, where a block may lie across (measured: edges/pools_more), or else a
   whole one; false if the pool or the machine has none. */
static bool add_segment(Pool *pool, size_t least) {
  const Segment *newest = pool->segments;
  uintptr_t end = newest ? newest->node.start + newest->size : 0;
  const Gap *last = newest ? (Gap *)cl_tree_at(&pool->gaps, end - 1) : NULL;
  size_t left = last && last->node.start + last->size == end ? last->size : 0;
  if (newest && pool->file.number >= 0 && newest->offset + newest->size != pool->file_end) end = left = 0;
  Segment *segment = add_pages(pool, cl_rounded(least - left, SEGMENT), end);
  if (segment && left && !segment->joined) {
    drop_segment(pool, segment);
    segment = add_pages(pool, cl_rounded(least, SEGMENT), 0);
  }
  if (!segment) return false;
  segment->next = pool->segments;
  pool->segments = segment;
  if (!enter_gap(pool, segment->node.start, segment->size)) {
    pool->segments = segment->next;
    drop_segment(pool, segment);
    return false;
  }
  if (pool->file.number >= 0) pool->file_end += segment->size;
  if (pool->reserved > pool->reserved_high) pool->reserved_high = pool->reserved;
  return true;
}

static void free_pool(Object *object) {
  Pool *pool = (Pool *)object;
  while (pool->segments) {
    Segment *segment = pool->segments;
    pool->segments = segment->next;
    drop_segment(pool, segment);
  }
  while (pool->gaps.first) {
    Gap *gap = (Gap *)pool->gaps.first;
    cl_tree_leave(&pool->gaps, &gap->node);
    free(gap);
  }
  close_own(&pool->file);
  free(pool);
}

/* Takes back what a caller wanted; if memory is out, it is no gap. */
static void take_back(Pool *pool, uintptr_t start, size_t size) {
  enter_gap(pool, start, cl_rounded(size, CHUNK));
  if (--pool->live == 0 && pool->destroyed) cl_object_end(&pool->head);
}

/* -- pools -- */

CUresult cl_pool_make(const PoolProperties *properties, int file, const FileHead *head, bool imported, Pool **out) {
  EACH (Pool, one, &all) /* what was imported before is the same (measured: edges/pools_imported) */
    if (imported && one->imported && !one->destroyed && one->file_head.key == head->key) {
      one->imports++;
      close(file);
      *out = one;
      return CUDA_SUCCESS;
    }
  Pool *pool = cl_object_make(sizeof *pool, HANDLE_POOL, NULL, &all);
  if (!pool) return CUDA_ERROR_OUT_OF_MEMORY;
  pool->properties = *properties;
  pool->file = own_file(file);
  if (head) pool->file_head = *head;
  pool->file_end = cl_file_begin();
  pool->imported = imported;
  pool->gaps.sum_up = sum_up;
  for (int at = 0; at < REUSE_FLAGS; at++) pool->reuse[at] = 1;
  if (on_device(pool) && properties->type == PINNED_TYPE)
    pool->access[properties->location.id] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  *out = pool;
  return CUDA_SUCCESS;
}

CUresult cl_pool_location(const Location *location, int type) {
  if (type != PINNED_TYPE && (type != MANAGED_TYPE || cl_config()->version < 13000)) return CUDA_ERROR_INVALID_VALUE;
  switch (location->type) {
    case CU_MEM_LOCATION_TYPE_INVALID: return type == MANAGED_TYPE ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_MEM_LOCATION_TYPE_DEVICE: return cl_is_device(location->id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_MEM_LOCATION_TYPE_HOST: return CUDA_SUCCESS;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
      return location->id == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; /* one node is shown */
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT: return type == MANAGED_TYPE ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    default: return type == MANAGED_TYPE ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
  }
}

static bool same_location(const Location *one, const Location *other) {
  return one->type == other->type &&
         (one->id == other->id || one->type == CU_MEM_LOCATION_TYPE_HOST || one->type == CU_MEM_LOCATION_TYPE_INVALID);
}

/* The default pool of a location, which is made when it is first asked for; under the lock. */
static CUresult default_pool(const Location *location, int type, Pool **out) {
  EACH (Pool, pool, &all)
    if (pool->is_default && pool->properties.type == type && same_location(&pool->properties.location, location)) {
      *out = pool;
      return CUDA_SUCCESS;
    }
  PoolProperties properties = {.type = type, .location = *location};
  TRY(cl_pool_make(&properties, -1, NULL, false, out));
  (*out)->is_default = true;
  return CUDA_SUCCESS;
}

/* The default or the current pool of a location. */
static CUresult get_pool(void **out, const Location *location, int type, bool current) {
  if (!out || !location) return CUDA_ERROR_INVALID_VALUE;
  if ((unsigned)location->type > CU_MEM_LOCATION_TYPE_HOST_NUMA) return CUDA_ERROR_NOT_SUPPORTED;
  TRY(cl_pool_location(location, type));
  Pool *pool;
  HOLD(cl_pools_lock);
  TRY(default_pool(location, type, &pool));
  *out = current && pool->current ? pool->current : pool;
  return CUDA_SUCCESS;
}

/* The type of memory is `type`, or any if it is ANY_TYPE. */
static CUresult set_pool(const Location *location, int type, void *handle) {
  Pool *of_location;
  HOLD_POOL(pool, handle);
  if (!pool) return NO_POOL;
  if ((unsigned)location->type > CU_MEM_LOCATION_TYPE_HOST_NUMA) return CUDA_ERROR_NOT_SUPPORTED;
  if (type != ANY_TYPE && pool->properties.type != type) return CUDA_ERROR_INVALID_VALUE;
  TRY(cl_pool_location(location, pool->properties.type));
  if (pool->imported || !same_location(&pool->properties.location, location)) return CUDA_ERROR_INVALID_VALUE;
  TRY(default_pool(location, pool->properties.type, &of_location));
  of_location->current = pool;
  return CUDA_SUCCESS;
}

EXPORTED(cuMemGetDefaultMemPool, (void **out, Location *location, int type), get_pool(out, location, type, false))
EXPORTED(cuMemGetMemPool, (void **out, Location *location, int type), get_pool(out, location, type, true))

EXPORTED(cuMemSetMemPool, (Location * location, int type, void *pool),
         location ? set_pool(location, type, pool) : CUDA_ERROR_INVALID_VALUE)

/* Of the three only the default one says that a number is not a device. */
API(cuDeviceGetDefaultMemPool, (void **out, CUdevice device), (out, device)) {
  TRY(cl_asked_of(line, true, device));
  return get_pool(out, &(Location){CU_MEM_LOCATION_TYPE_DEVICE, device}, PINNED_TYPE, false);
}
EXPORTED(cuDeviceGetMemPool, (void **out, CUdevice device),
         get_pool(out, &(Location){CU_MEM_LOCATION_TYPE_DEVICE, device}, PINNED_TYPE, true))
EXPORTED(cuDeviceSetMemPool, (CUdevice device, void *pool),
         set_pool(&(Location){CU_MEM_LOCATION_TYPE_DEVICE, device}, ANY_TYPE, pool))

API(cuMemPoolDestroy, (void *handle), (handle)) {
  HOLD_POOL(pool, handle);
  if (!pool || pool->is_default) return pool ? CUDA_ERROR_INVALID_VALUE : NO_POOL;
  if (pool->imports) return pool->imports--, CUDA_SUCCESS;
  cl_object_unname(&pool->head);
  EACH (Pool, at, &all)
    if (at->current == pool) at->current = NULL;
  pool->destroyed = true;
  if (!pool->live) cl_object_end(&pool->head);
  return CUDA_SUCCESS;
}

API(cuMemPoolTrimTo, (void *handle, size_t keep), (handle, keep)) {
  cl_event_uint(line, "bytes", keep);
  HOLD_POOL(pool, handle);
  if (!cl_is_own(pool)) return NO_POOL;
  trim(pool, keep, keep);
  return CUDA_SUCCESS;
}

/* -- allocating -- */

uint64_t cl_pool_barred(const Pool *pool) {
  uint64_t barred = 0;
  if (pool->properties.type == MANAGED_TYPE)
    return 0; /* a pool of the host is of no device by itself (measured: test_what_may_be_a_pool) */
  for (int device = 0; device < DEVICES_MAX; device++)
    if (pool->access[device] == CU_MEM_ACCESS_FLAGS_PROT_NONE) barred |= (uint64_t)1 << device;
  return barred;
}

static bool is_not_reached(Work *new, Work *earlier) { return !earlier->reached; }

/* Whether new work of a stream comes behind a work: one in the same stream, or one that it waits for by events. */
static bool is_behind(Work *work, const Stream *stream, bool by_events) {
  if (work->stream == stream->id || !by_events) return work->stream == stream->id;
  for (Work *at = work; at; at = at->behind) at->reached = at == work;
  for (const Work *at = work; at; at = at->behind) /* dependents are younger */
    for (size_t one = 0; at->reached && one < at->dependent_count; one++) at->dependents[one]->reached = true;
  return !cl_visit_earlier(stream, true, is_not_reached, NULL);
}

/* Takes the beginning of what a work is to free; the rest stays to be freed. */
static uintptr_t take_over(Pool *pool, Work *work, size_t size) {
  Block taken;
  if (!cl_block_take(work->parameters.address, FROM_POOL, &taken)) return 0;
  free(taken.advice.parts);
  Block rest = taken;
  rest.start = work->parameters.address = taken.start + size;
  rest.size = taken.size > size ? taken.size - size : 0;
  rest.offset += size;
  rest.advice = (Advice){0};
  if (rest.size && !cl_block_enter(&rest)) return taken.start;
  cl_site_drop(taken.end);
  work->parameters = cl_no_work;
  pool->live--;
  return taken.start;
}

enum { LOOKED_AT = 256 }; /* works, so that a long queue costs no more */

/* Gives out again what is to be freed before new work of a stream (measured: edges/pools_more). `other`: what another
   stream is to free, for which the stream then waits. */
static uintptr_t take_freed(Pool *pool, size_t size, const void *handle, bool other) {
  Stream *stream;
  if (!cl_any_pending()) return 0;
  HOLD_STREAMS();
  if (cl_stream_ready(handle, &stream)) return 0;
  Work *work = cl_newest;
  for (int at = 0; work && at < LOOKED_AT; at++, work = work->before) {
    if (work->parameters.type != WORK_FREE || !work->unmet) continue; /* or it may be done just now */
    const Block *block = cl_block_lock(work->parameters.address);
    size_t room = block && block->owner == pool ? cl_rounded(block->size, CHUNK) : 0;
    cl_block_unlock();
    if (room < size || !(other || is_behind(work, stream, pool->reuse[FOLLOW_EVENTS]))) continue;
    if (other && cl_queue_behind(work, stream, &cl_no_work, true, NULL)) continue;
    return take_over(pool, work, size);
  }
  return 0;
}

static CUresult allocate(Pool *pool, const void *stream, size_t size, CUdeviceptr *out) {
  size_t rounded = cl_rounded(size, CHUNK);
  uintptr_t start = rounded ? take_freed(pool, rounded, stream, false) : 0;
  if (rounded && !start) start = take(pool, rounded);
  if (rounded && !start && add_segment(pool, rounded)) start = take(pool, rounded);
  /* where there is no more memory (CUDA Programming Guide, stream-ordered memory allocator) */
  if (rounded && !start && pool->reuse[INTERNAL]) start = take_freed(pool, rounded, stream, true);
  if (!start) return CUDA_ERROR_OUT_OF_MEMORY;
  const Segment *segment = segment_of(pool, start);
  bool managed = pool->properties.type == MANAGED_TYPE;
  Block block = {.start = start,
                 .size = size,
                 .origin = FROM_POOL,
                 .place = managed           ? MANAGED
                          : on_device(pool) ? ON_DEVICE
                                            : ON_HOST,
                 .flags = managed ? 1 : 0,
                 .sync_memops = managed,
                 .device = on_device(pool) ? pool->properties.location.id : 0,
                 .owner = pool,
                 .barred = cl_pool_barred(pool),
                 .offset = segment->offset + (start - segment->node.start),
                 .shared = pool->file.number >= 0};
  pool->live++;
  if (cl_block_enter(&block)) {
    take_back(pool, start, size); /* the pool stays: it was not destroyed */
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  pool->used += size;
  if (pool->used > pool->used_high) pool->used_high = pool->used;
  *out = block.start;
  return CUDA_SUCCESS;
}

CUresult cl_pool_allocate(void *handle, CUdevice device, const void *stream, size_t size, CUdeviceptr *out) {
  HOLD(cl_pools_lock);
  Pool *pool = cl_pool(handle);
  CUresult result = CUDA_SUCCESS;
  if (!handle) {
    result = default_pool(&(Location){CU_MEM_LOCATION_TYPE_DEVICE, device}, PINNED_TYPE, &pool);
    if (!result && pool->current) pool = pool->current;
  } else if (!cl_is_own(pool)) result = NO_POOL;
  if (!result && !size) *out = 0; /* measured */
  else if (!result) result = allocate(pool, stream, size, out);
  return result;
}

bool cl_pool_free(CUdeviceptr address, bool counted) {
  Block taken;
  HOLD(cl_pools_lock);
  bool found = cl_block_take(address, FROM_POOL | FROM_POOL_OF_OTHER, &taken);
  if (found && taken.origin == FROM_POOL) {
    if (counted) ((Pool *)taken.owner)->used -= taken.size; /* cuMemFree counts nothing (measured: edges/pools_more) */
    take_back(taken.owner, taken.start, taken.size);
    cl_site_drop(taken.end);
    free(taken.advice.parts);
  } else if (found) {
    Pool *pool = taken.owner;
    if (--pool->live == 0 && pool->destroyed) cl_object_end(&pool->head);
    cl_block_free(&taken);
  }
  return found;
}

/* A pool gives back what is above its threshold when the host waits for the device. */
CUresult cl_synchronized(void) {
  if (!cl_any_pending()) cl_free_given();
  HOLD(cl_pools_lock);
  EACH (Pool, pool, &all) trim(pool, pool->threshold, 0);
  return cl_waited_answer();
}
