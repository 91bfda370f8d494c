/* Addresses of the device: ranges that the host can neither read nor write, each with a mirror that has the bytes. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "abi.h"

/* A reserved range. Its mirror follows it and is as large: the bytes of an address lie `size` behind it. */
typedef struct {
  uintptr_t start;
  size_t size;
} AddressRange;

/* One range is enough for nearly every program. A further one is larger than all before it, so that there are few. */
enum { ADDRESS_RANGES = 24 };
extern AddressRange cl_address_ranges[ADDRESS_RANGES];
extern atomic_uint cl_address_range_count;

/* The range that an address lies in, allocated or not; NULL for an address of the host. */
static inline const AddressRange *cl_address_range(CUdeviceptr address) {
  unsigned count = atomic_load_explicit(&cl_address_range_count, memory_order_acquire);
  for (unsigned at = 0; at < count; at++)
    if (address - cl_address_ranges[at].start < cl_address_ranges[at].size) return &cl_address_ranges[at];
  return NULL;
}

static inline bool cl_is_device_address(CUdeviceptr address) { return cl_address_range(address); }

/* Where the bytes of an address are: in a mirror if it is one of the device, else where it says. */
static inline uintptr_t cl_bytes_of(CUdeviceptr address) {
  const AddressRange *range = cl_address_range(address);
  return (uintptr_t)address + (range ? range->size : 0);
}

/* Takes addresses: those that the caller wants, if they are free, or any; 0 if there are none, which it says on stderr.
   There are no bytes yet. Addresses that were given back are taken again as late as possible. */
uintptr_t cl_addresses_take(size_t size, size_t alignment, uintptr_t wanted);
/* Gives them back with their bytes. */
void cl_addresses_give(uintptr_t start, size_t size);

/* Takes addresses, those that are wanted if they are free, with bytes that are zeros, or a part of a file; 0 if there
   are none. */
uintptr_t cl_device_pages(size_t size, uintptr_t wanted);
/* The same for blocks that come and go: addresses count as filled only where a block is. */
uintptr_t cl_device_slab(size_t size, size_t alignment);
uintptr_t cl_device_file(int file, size_t offset, size_t size, uintptr_t wanted);
/* Removes the bytes of addresses that stay taken. */
void cl_addresses_empty(uintptr_t start, size_t size);

/* HOLD_TO_READ of it keeps all bytes where they are; others may hold it too. */
extern pthread_rwlock_t cl_addresses_lock;
/* While it is held: whether addresses have bytes, be they allocated or not. Of a reservation of the caller's, which
   gets its bytes later, this says no. */
bool cl_held_filled(uintptr_t start, size_t size);
