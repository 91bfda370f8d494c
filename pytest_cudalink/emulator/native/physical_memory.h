/* Physical memory: what cuMemCreate makes, and cuMemMap gives an address. */
#pragma once

#include "blocks.h"
#include "locks.h"

#include "../../base/native/own_file.h"

typedef struct {
  int type, handle_types;
  Location location;
  void *security;
  struct {
    unsigned char compression, rdma;
    unsigned short usage;
    unsigned char reserved[4]; /* three of them must be 0 (measured: edges/vmm_create) */
  } flags;
} PhysicalProperties;
_Static_assert(sizeof(PhysicalProperties) == 32, "CUmemAllocationProp");

enum { GRANULARITY = 2 << 20 };

typedef struct {
  Object head;
  PhysicalProperties properties;
  size_t size;
  OwnFile file; /* that other processes may map; none: it is a part of the file of this process */
  uint64_t key; /* of the latter */
  size_t offset;
  bool counted;      /* as memory of its device */
  bool exported;     /* or imported: another process may have it */
  size_t references; /* of the caller; while there are some, its address is a handle */
  size_t mappings;
} Physical;

extern pthread_mutex_t cl_physical_lock; /* of the physical memory, and of what is mapped */
/* What a handle names, or NULL; under the lock. */
Physical *cl_physical(uint64_t handle);
/* Finds it, and holds the lock until the block of the program ends. */
#define HOLD_PHYSICAL(name, handle) \
  HOLD(cl_physical_lock);           \
  Physical *const name = cl_physical(handle)
/* Under the lock: one mapping more, or one fewer, which may free it. */
void cl_physical_hold(Physical *physical);
void cl_physical_drop(Physical *physical);
/* Under the lock: makes the handle of physical memory valid once more; false if memory is out. */
bool cl_physical_retain(Physical *physical);
/* Maps it over what is at an address. */
bool cl_physical_map(const Physical *physical, uintptr_t where, size_t size);
