/* Memory pools: what is allocated in the order of a stream. */
#pragma once

#include "address_tree.h"
#include "blocks.h"
#include "config.h"
#include "locks.h"

#include "../../base/native/own_file.h"

/* CUmemAllocationHandleType, CUmemAccess_flags */
enum { HANDLE_TYPES = 15 };
/* Whether a number is one handle type, and not several. */
static inline bool cl_is_handle_type(int type) { return type && !(type & ~HANDLE_TYPES) && !(type & (type - 1)); }

/* Memory that a pool holds: a multiple of 32 MiB. */
typedef struct Segment {
  AddressNode node;
  size_t size, offset; /* the offset in the pool's file */
  bool joined;         /* it continues what lies before it, in the file too */
  struct Segment *next;
} Segment;

/* CU_MEMPOOL_ATTR_REUSE_* */
enum { FOLLOW_EVENTS, OPPORTUNISTIC, INTERNAL, REUSE_FLAGS };

typedef struct Pool {
  Object head;
  PoolProperties properties;
  bool is_default, imported, exported, destroyed;
  int reuse[REUSE_FLAGS];
  uint64_t threshold, reserved, reserved_high, used_high;
  _Atomic uint64_t used; /* what callers wanted, and have not freed */
  int access[DEVICES_MAX];
  size_t live, imports; /* blocks; imports after the first, each of which is destroyed */
  OwnFile file;         /* that other processes may map, if there is one */
  FileHead file_head;
  size_t file_end;
  Segment *segments;            /* the newest first */
  AddressTree by_address, gaps; /* the segments; what is not given out */
  struct Pool *current;         /* of a default one: the pool that stands in its place, or NULL */
} Pool;

/* The answer to what is not a pool. */
enum { NO_POOL = CUDA_ERROR_INVALID_VALUE };

extern pthread_mutex_t cl_pools_lock;
/* A pool that is alive, or NULL; under the lock. */
Pool *cl_pool(void *handle);
/* Finds it, and holds the lock until the block of the program ends. */
#define HOLD_POOL(name, handle) \
  HOLD(cl_pools_lock);          \
  Pool *const name = cl_pool(handle)
/* Whether it is a pool of this process: of one of another process only the pointers can be imported. */
static inline bool cl_is_own(const Pool *pool) { return pool && !pool->imported; }
/* Makes a pool under the lock, and enters its handle. It owns the file from then on. */
CUresult cl_pool_make(const PoolProperties *properties, int file, const FileHead *head, bool imported, Pool **out);
/* Allocates from a pool, in the order of a stream; from the current pool of a device, if it is NULL. */
CUresult cl_pool_allocate(void *handle, CUdevice device, const void *stream, size_t size, CUdeviceptr *out);
/* Under the lock: the devices that have no access to the memory of a pool, one bit each. */
uint64_t cl_pool_barred(const Pool *pool);
/* Pages of a pool, where they are wanted if they can be: a part of its file, if it has one; 0 if there are none. */
uintptr_t cl_pool_pages(const Pool *pool, size_t offset, size_t size, uintptr_t wanted);
/* Frees what starts at an address, if it is of a pool; false if it is not. `counted`: it is not in use any more. */
bool cl_pool_free(CUdeviceptr address, bool counted);
/* Whether a location with a type of memory can have a pool. */
CUresult cl_pool_location(const Location *location, int type);
