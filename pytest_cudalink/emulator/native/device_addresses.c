/* Addresses of the device, which the host can neither read nor write, and the mirror that has their bytes. */
#include "device_addresses.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "address_tree.h"
#include "locks.h"
#include "shared_memory.h"

AddressRange cl_address_ranges[ADDRESS_RANGES];
atomic_uint cl_address_range_count;

/* The first range has enough for most programs, and is small enough for valgrind and the sanitizers, which note every
   page of an address space. */
#define FIRST_RANGE ((size_t)16 << 30)
#define MOST_ADDRESSES ((size_t)1 << 46)
enum { RANGE_ALIGNMENT = 2 << 20 };

/* Taken addresses. */
typedef struct {
  AddressNode node;
  size_t size;
  bool filled; /* with bytes, all of it */
} Span;

static struct {
  AddressTree tree;
  uintptr_t next[ADDRESS_RANGES]; /* where the search begins in each range */
  struct {
    size_t size, alignment; /* of a gap that the range has not; 0: not known */
  } lacks[ADDRESS_RANGES];
} spans;

pthread_rwlock_t cl_addresses_lock = SHARED_LOCK; /* of both, and of the bytes */

OPEN_SHARED_IN_CHILDREN(cl_addresses_lock);

static uintptr_t rounded(uintptr_t address, size_t unit) { return (address + unit - 1) & ~(uintptr_t)(unit - 1); }

static void *out_of_reach(uintptr_t where, size_t size) {
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (where ? MAP_FIXED : 0);
  return mmap((void *)where, size, PROT_NONE, flags, -1, 0);
}

/* Says once why there are no addresses, for an ordinary amount of memory or in a limited process. */
static void say_why(size_t size, int error) {
  static bool said;
  struct rlimit limit;
  if (said || getrlimit(RLIMIT_AS, &limit) || (size > FIRST_RANGE && limit.rlim_cur == RLIM_INFINITY)) return;
  said = true;
  fprintf(stderr, "cudalink: the emulated driver cannot reserve %zu MiB of addresses for device memory: %s; ",
          2 * size >> 20, strerror(error));
  if (limit.rlim_cur == RLIM_INFINITY) fprintf(stderr, "have the process map less memory\n");
  else
    fprintf(stderr, "raise the limit of its address space (ulimit -v), which is %llu MiB\n",
            (unsigned long long)limit.rlim_cur >> 20);
}

/* Reserves a range that has room for some bytes, with its mirror; false if the process has no such addresses. */
static bool add_range(size_t least) {
  unsigned count = atomic_load(&cl_address_range_count);
  if (count == ADDRESS_RANGES) return false;
  size_t size = FIRST_RANGE;
  for (unsigned at = 0; at < count; at++) size += cl_address_ranges[at].size;
  while (size < least) size *= 2;
  least = rounded(least, RANGE_ALIGNMENT);
  void *found = out_of_reach(0, 2 * size + RANGE_ALIGNMENT);
  while (found == MAP_FAILED && size > least) {
    size = size / 2 > least ? size / 2 : least;
    found = out_of_reach(0, 2 * size + RANGE_ALIGNMENT);
  }
  if (found == MAP_FAILED) return say_why(least, errno), false;
  uintptr_t start = rounded((uintptr_t)found, RANGE_ALIGNMENT);
  cl_address_ranges[count] = (AddressRange){start, size};
  spans.next[count] = start;
  atomic_store_explicit(&cl_address_range_count, count + 1, memory_order_release);
  return true;
}

static uintptr_t end_of(const Span *span) { return span->node.start + span->size; }

/* The first span that ends behind an address, or NULL. */
static Span *find(uintptr_t address) {
  Span *span = (Span *)cl_tree_at(&spans.tree, address);
  return span && end_of(span) > address ? span : (Span *)cl_tree_from(&spans.tree, address);
}

/* The first gap at an address or behind it, up to an end; 0 if there is none. */
static uintptr_t gap(uintptr_t from, uintptr_t end, size_t size, size_t alignment) {
  for (const Span *at = find(from);; at = (const Span *)at->node.behind) {
    uintptr_t start = rounded(from, alignment);
    uintptr_t stop = at && at->node.start < end ? at->node.start : end;
    if (start < stop && stop - start >= size) return start;
    if (stop == end) return 0;
    from = end_of(at);
  }
}

/* A gap of any range, in each from where the last one was found. */
static uintptr_t any_gap(size_t size, size_t alignment) {
  unsigned count = atomic_load(&cl_address_range_count);
  for (unsigned at = 0; at < count; at++) {
    const AddressRange *range = &cl_address_ranges[at];
    if (spans.lacks[at].size && size >= spans.lacks[at].size && alignment >= spans.lacks[at].alignment) continue;
    uintptr_t end = range->start + range->size, start = gap(spans.next[at], end, size, alignment);
    if (!start) start = gap(range->start, end, size, alignment);
    if (!start) {
      spans.lacks[at].size = size;
      spans.lacks[at].alignment = alignment;
      continue;
    }
    spans.next[at] = start + size;
    return start;
  }
  return 0;
}

static uintptr_t take(size_t size, size_t alignment, uintptr_t wanted) {
  Span *span = malloc(sizeof *span);
  if (!span) return 0;
  const AddressRange *range = wanted && wanted % alignment == 0 ? cl_address_range(wanted) : NULL;
  uintptr_t start = range ? gap(wanted, range->start + range->size, size, alignment) : 0;
  if (!start || start != wanted) start = any_gap(size, alignment);
  if (!start && add_range(size + alignment)) start = any_gap(size, alignment);
  if (!start) return free(span), 0;
  *span = (Span){.node.start = start, .size = size};
  cl_tree_enter(&spans.tree, &span->node);
  return start;
}

uintptr_t cl_addresses_take(size_t size, size_t alignment, uintptr_t wanted) {
  size_t page = cl_page_size();
  if (!size || size > MOST_ADDRESSES || alignment > MOST_ADDRESSES) return 0;
  HOLD_TO_WRITE(cl_addresses_lock);
  return take(rounded(size, page), alignment > page ? alignment : page, wanted);
}

/* Removes the bytes of some addresses. */
static void empty(uintptr_t start, size_t size) {
  uintptr_t bytes = cl_bytes_of(start);
  if (out_of_reach(bytes, size) != MAP_FAILED) return;
  /* the machine lets no process have more mappings: what stays is zeros */
  if (madvise((void *)bytes, size, MADV_DONTNEED)) memset((void *)bytes, 0, size);
}

void cl_addresses_give(uintptr_t start, size_t size) {
  HOLD_TO_WRITE(cl_addresses_lock);
  empty(start, size);
  Span *span = find(start);
  cl_tree_leave(&spans.tree, &span->node);
  free(span);
  memset(spans.lacks, 0, sizeof spans.lacks);
}

/* Notes that all addresses of a span have bytes from now on, or gives them back if they could get none. */
static uintptr_t filled(uintptr_t start, size_t size, bool done) {
  if (!done) return cl_addresses_give(start, size), 0;
  HOLD_TO_WRITE(cl_addresses_lock);
  find(start)->filled = true;
  return start;
}

static uintptr_t slab(size_t size, size_t alignment, uintptr_t wanted) {
  uintptr_t start = cl_addresses_take(size, alignment, wanted);
  if (!start || !mprotect((void *)cl_bytes_of(start), size, PROT_READ | PROT_WRITE)) return start;
  return cl_addresses_give(start, size), 0;
}

uintptr_t cl_device_slab(size_t size, size_t alignment) { return slab(size, alignment, 0); }

uintptr_t cl_device_pages(size_t size, uintptr_t wanted) {
  uintptr_t start = slab(size, 1, wanted);
  return start ? filled(start, size, true) : 0;
}

uintptr_t cl_device_file(int file, size_t offset, size_t size, uintptr_t wanted) {
  uintptr_t start = cl_addresses_take(size, 1, wanted);
  return start ? filled(start, size, cl_file_map(file, offset, size, cl_bytes_of(start)) != 0) : 0;
}

void cl_addresses_empty(uintptr_t start, size_t size) {
  HOLD_TO_WRITE(cl_addresses_lock);
  empty(start, size);
}

bool cl_held_filled(uintptr_t start, size_t size) {
  const Span *span = find(start);
  return span && start >= span->node.start && span->filled && size <= end_of(span) - start;
}

/* For a handler of signals: it reads two words of each range, and takes no lock. */
EXPORT int cudalinkIsDeviceAddress(CUdeviceptr address) { return cl_is_device_address(address); }
