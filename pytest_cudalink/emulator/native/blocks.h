/* The memory that the emulated device knows: a table of blocks. The host can use those that are not ON_DEVICE. */
#pragma once

#include "contexts.h"
#include "shared_memory.h"

/* Where a block came from, and so what frees it. */
typedef enum {
  FROM_ALLOCATION = 1, /* cuMemAlloc, cuMemAllocManaged */
  FROM_MODULE = 2,
  FROM_HOST_ALLOCATION = 4,
  FROM_REGISTRATION = 8,
  FROM_POOL = 16,
  FROM_POOL_OF_OTHER = 32, /* cuMemPoolImportPointer */
  FROM_IPC = 64,           /* cuIpcOpenMemHandle */
  FROM_MAPPING = 128,      /* cuMemMap */
  FROM_EXTERNAL = 256,     /* cuExternalMemoryGetMappedBuffer */
} Origin;

typedef enum { ON_DEVICE, ON_HOST, MANAGED } Place;
enum { PINNED_TYPE = 1, MANAGED_TYPE = 2 }; /* CUmemAllocationType */

/* Memory that allocations are cut from: several small ones, or a large one alone. */
typedef struct Slab {
  struct Slab *next, **link; /* of those that several may share; NULL of a large one */
  Context *context;
  Place place;
  unsigned flags;  /* of the allocation that it was made for */
  uintptr_t start; /* 0: memory of the host comes from elsewhere, and is counted here */
  size_t size, taken;
  size_t last, reached; /* where the last piece ends, and how far any did */
  unsigned pieces;
  bool shared; /* in the file of this process, that another process may open */
  uint64_t key;
  size_t offset;
} Slab;

/* What cuMemAdvise and cuMemPrefetchAsync said of a block: parts side by side that cover it; none: nothing. */
typedef struct {
  struct Part *parts;
  size_t count, room;
} Advice;

typedef struct {
  uintptr_t start;
  size_t size;
  Origin origin;
  Place place;
  unsigned flags; /* that it was made with */
  CUdevice device;
  Context *context;      /* that it dies with; NULL for what is of no context */
  bool on_heap;          /* from malloc; else it is pages, if `pages_size` says so */
  uintptr_t pages;       /* what is unmapped with it */
  size_t pages_size;     /* 0: nothing */
  Slab *slab;            /* that it is cut from; of memory that was taken out: what goes with it */
  bool freed;            /* by cuMemFreeAsync; its stream has not come to that yet */
  bool given;            /* to cuMemFreeAsync, though cuMemAlloc made it: it goes as the host waits */
  Site *end;             /* the call that freed it so; NULL: it is not known */
  bool counted;          /* as memory of its device */
  uint64_t barred;       /* devices that have no access to it, one bit each */
  uint64_t read_only;    /* those that must not write to it */
  bool sync_memops;      /* CU_POINTER_ATTRIBUTE_SYNC_MEMOPS */
  unsigned references;   /* how often it was opened */
  void *owner;           /* its pool, physical memory or external memory */
  size_t offset;         /* in the owner's file */
  bool shared;           /* in a file that another process may open */
  bool exported;         /* another process may have it, by a handle for it or for its owner */
  uint64_t key;          /* of the file that it was opened from, or that its `shared_end` is in */
  uint64_t end_number;   /* in `shared_end` */
  SharedEnd *shared_end; /* of memory that another process has, or that is of one; NULL: of other memory */
  uint64_t id;
  Advice advice; /* its parts are freed with it */
} Block;

/* Enters a block, and gives it its `id`; CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED if it overlaps another one. */
CUresult cl_block_enter(Block *block);
/* Whether a context uses a block as its own: memory of another device needs cuCtxEnablePeerAccess, or access to its
   pool (two H200s: edges/two_pointers). The table is locked. */
bool cl_reaches(const Context *context, const Block *block);
/* The same of what an address is in, if it is in a block. Under no lock. */
bool cl_reaches_address(const Context *context, CUdeviceptr address);
/* Locks the table, and returns the block that holds an address, or NULL. The table is to be unlocked in both cases. */
Block *cl_block_lock(CUdeviceptr address);
/* The kind of memory that a block is; of NULL, memory that is not known. The table is locked. */
Memory cl_memory_of(const Block *block);
/* The kind of memory that an address is in. */
Memory cl_memory_at(CUdeviceptr address);
/* Locks the table, and returns the first block that matches another one, or NULL. */
Block *cl_block_find(bool (*matches)(const Block *block, const Block *wanted), const Block *wanted);
void cl_block_unlock(void);
/* Locks likewise, until the block of the program ends. */
// NOLINTNEXTLINE(bugprone-macro-parentheses): it defines a variable
#define HOLD_BLOCK(name, address) __attribute__((cleanup(cl_block_drop))) Block *name = cl_block_lock(address)
static inline void cl_block_drop(void *unused) { cl_block_unlock(); }
/* Says which devices have no access to the blocks of an owner. */
void cl_block_bar(const void *owner, uint64_t barred);
/* Notes that other processes may have the blocks of an owner. */
void cl_block_export(const void *owner);
/* Removes the block that starts at an address and is of one of some origins; false if there is none. */
bool cl_block_take(CUdeviceptr start, unsigned origins, Block *taken);
/* Whether the process that memory is of has freed it; notes that this thread's call uses it nevertheless. */
bool cl_is_freed_elsewhere(const Block *block);
void cl_note_freed_elsewhere(const Block *block);
/* Frees the memory of a block that was removed. */
void cl_block_free(const Block *block);
/* Has a block freed, while it is locked, when all that were given so are freed. */
void cl_block_give(Block *block);
void cl_free_given(void);

/* How many blocks of an origin are not freed; adds up their sizes. */
size_t cl_blocks_alive(Origin origin, size_t *bytes);
/* How many blocks were not freed before their context died, without variables of modules; adds up their sizes. */
size_t cl_blocks_orphaned(size_t *bytes);

/* Makes a block: its size, origin and place are given, its memory is found. */
CUresult cl_block_make(Block *block);
/* Pages of zeros for host and device, that cost nothing before they are used; 0 if the machine has none. */
uintptr_t cl_pages(size_t size);
/* Gives back pages, for both or of the device alone. */
void cl_pages_give(uintptr_t start, size_t size);
/* A size as a multiple of a unit, which is a power of two; 0 if there is no such number. */
size_t cl_rounded(size_t size, size_t unit);

/* Allocates memory of the device of a context, or for the host too; NULL is the current one. 0 if memory is out. */
CUdeviceptr cl_allocate(size_t size, Place place, const Context *context);
void cl_release(CUdeviceptr address);
/* Whether an address is one of ours, whichever device may use it. */
bool cl_is_known(CUdeviceptr address);
/* Whether a range lies within one allocation, or within mappings side by side, and the current device may use it; an
   empty range always does. */
bool cl_within(CUdeviceptr address, size_t size);
/* Whether the device of a context may use what is at an address, if that is ours. */
bool cl_is_open_to(const Context *context, CUdeviceptr address);
/* Writes bytes within an allocation; false if they are not. */
bool cl_memory_write(CUdeviceptr to, const void *from, size_t size);
/* Writes a word of 4 or 8 bytes, aligned to its size, which host threads may use at the same time; none that is not
   within an allocation. */
void cl_word_write(CUdeviceptr to, uint64_t word, bool wide);

/* HOLD_TO_READ of it keeps the table as it is, so that what is checked stays while it is used; others may hold it too.
   No function above may be called, and no other lock be taken, meanwhile. */
extern pthread_rwlock_t cl_memory_lock;
/* While it is held: the two questions above, and whether a range is known whichever device may use it. */
bool cl_held_known(CUdeviceptr address);
bool cl_held_within(CUdeviceptr address, size_t size);
bool cl_held_range_known(CUdeviceptr address, size_t size);
/* The same as cl_held_within, if any device may use it. */
bool cl_held_open(CUdeviceptr address, size_t size);
/* While it is held: whether the current device may write to memory that it may use. */
bool cl_held_writable(CUdeviceptr address);
/* While it is held: the block that holds an address, if the current device may use it; NULL if not. */
const Block *cl_held_block(CUdeviceptr address);
