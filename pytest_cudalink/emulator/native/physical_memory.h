/* Physical memory: what cuMemCreate makes, and cuMemMap gives an address. */
#pragma once

#include "blocks.h"

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

/* Locks the physical memory; returns what a handle names, or NULL. To be unlocked in both cases. */
Physical *cl_physical_lock(uint64_t handle);
void cl_physical_unlock(void);
/* Locks likewise, until the block of the program ends. */
// NOLINTNEXTLINE(bugprone-macro-parentheses): it defines a variable
#define HOLD_PHYSICAL(name, handle) __attribute__((cleanup(cl_physical_end))) Physical *name = cl_physical_lock(handle)
static inline void cl_physical_end(void *unused) { cl_physical_unlock(); }
#define HOLD_MAPPINGS()             \
  HOLD_PHYSICAL(held_until_end, 0); \
  (void)held_until_end
/* Under the lock: one mapping more, or one fewer, which may free it. */
void cl_physical_hold(Physical *physical);
void cl_physical_drop(Physical *physical);
/* Under the lock: makes the handle of physical memory valid once more; false if memory is out. */
bool cl_physical_retain(Physical *physical);
/* Maps it over what is at an address. */
bool cl_physical_map(const Physical *physical, uintptr_t where, size_t size);
