/* The table of memory: by address, with what each device has left. */
#include "blocks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "address_tree.h"
#include "device_addresses.h"
#include "devices.h"
#include "locks.h"
#include "processes.h"

enum { ALIGNMENT = 512, LARGE = 64 * 1024, SLAB = 2 << 20, REMEMBERED = 256 };

typedef struct {
  AddressNode node;
  Block block;
} Entry;

static struct {
  AddressTree blocks;
  Slab *slabs; /* that several blocks may share */
  uint64_t last_id;
  size_t orphans, orphans_size; /* blocks that died with their context, because they were not freed */
  struct {
    uintptr_t start;
    size_t size; /* 0: there is nothing in it */
    uint64_t id;
    Site *end;
  } freed[REMEMBERED]; /* the latest of the device, while lifetimes are checked */
  size_t freed_count;  /* how many ever */
} memory;

pthread_rwlock_t cl_memory_lock = SHARED_LOCK; /* a thread that copies holds it until the copy is done */

OPEN_SHARED_IN_CHILDREN(cl_memory_lock);

static Entry *first(void) { return (Entry *)memory.blocks.first; }
static Entry *behind(const Entry *entry) { return (Entry *)entry->node.behind; }

/* The block that holds an address, or the first one behind it; NULL: there is none. */
static Entry *find(uintptr_t address, bool *inside) {
  Entry *last = (Entry *)cl_tree_at(&memory.blocks, address);
  *inside = last && address - last->node.start < last->block.size;
  return *inside || !last ? last ? last : first() : behind(last);
}

static CUresult enter(Block *block) {
  bool inside;
  const Entry *at = find(block->start, &inside);
  if (inside || (at && at->node.start - block->start < block->size)) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  Entry *entry = malloc(sizeof *entry);
  if (!entry) return CUDA_ERROR_OUT_OF_MEMORY;
  block->id = ++memory.last_id;
  *entry = (Entry){.node = {.start = block->start, .number = block->id}, .block = *block};
  cl_tree_enter(&memory.blocks, &entry->node);
  cl_own_process->managed += block->place == MANAGED;
  return CUDA_SUCCESS;
}

CUresult cl_block_enter(Block *block) {
  HOLD_TO_WRITE(cl_memory_lock);
  return enter(block);
}

Block *cl_block_lock(CUdeviceptr address) {
  bool inside;
  pthread_rwlock_wrlock(&cl_memory_lock);
  Entry *at = find((uintptr_t)address, &inside);
  return inside ? &at->block : NULL;
}

Memory cl_memory_of(const Block *block) {
  return !block                                             ? MEMORY_PAGEABLE
         : block->place == ON_HOST                          ? MEMORY_PINNED
         : block->place == MANAGED                          ? MEMORY_MANAGED
         : block->origin & (FROM_POOL | FROM_POOL_OF_OTHER) ? MEMORY_POOL
                                                            : MEMORY_DEVICE;
}

Memory cl_memory_at(CUdeviceptr address) {
  HOLD_BLOCK(block, address);
  return cl_memory_of(block);
}

Block *cl_block_find(bool (*matches)(const Block *block, const Block *wanted), const Block *wanted) {
  pthread_rwlock_wrlock(&cl_memory_lock);
  for (Entry *at = first(); at; at = behind(at))
    if (matches(&at->block, wanted)) return &at->block;
  return NULL;
}

void cl_block_bar(const void *owner, uint64_t barred) {
  HOLD_TO_WRITE(cl_memory_lock);
  for (Entry *at = first(); at; at = behind(at))
    if (at->block.owner == owner) at->block.barred = barred;
}

void cl_block_export(const void *owner) {
  HOLD_TO_WRITE(cl_memory_lock);
  for (Entry *at = first(); at; at = behind(at))
    if (at->block.owner == owner) at->block.exported = true;
}

void cl_block_unlock(void) { pthread_rwlock_unlock(&cl_memory_lock); }

/* Whether the driver cuts a block from a slab. Managed memory keeps separate pages, of which advice is given. */
static bool is_cut(const Block *block) {
  return block->origin & (FROM_ALLOCATION | FROM_HOST_ALLOCATION) && block->place != MANAGED;
}

/* The first gap of a slab behind an offset; 0 if there is none. */
static uintptr_t gap(const Slab *slab, size_t offset, size_t size) {
  bool inside;
  uintptr_t start = slab->start + offset, end = slab->start + slab->size;
  for (const Entry *at = find(start, &inside);; at = behind(at)) {
    uintptr_t stop = at && at->node.start < end ? at->node.start : end;
    if (start < stop && stop - start >= size) return start;
    if (stop == end) return 0;
    start = cl_rounded(at->node.start + at->block.size, ALIGNMENT);
  }
}

/* Finds room for a block in a slab: what was given back is taken again as late as possible. */
static bool fits(const Slab *slab, Block *block) {
  if (slab->context != block->context || slab->place != block->place ||
      (slab->flags ^ block->flags) & CU_MEMHOSTALLOC_WRITECOMBINED ||
      slab->size - slab->taken < cl_rounded(block->size, ALIGNMENT))
    return false;
  if (!slab->start) return true;
  block->start = gap(slab, slab->last, block->size);
  if (!block->start) block->start = gap(slab, 0, block->size);
  return block->start;
}

static Slab *new_slab(Block *block) {
  Slab *slab = calloc(1, sizeof *slab);
  if (!slab) return NULL;
  *slab = (Slab){.context = block->context, .place = block->place, .flags = block->flags};
  slab->size = cl_rounded(block->size, SLAB);
  if (slab->place == ON_DEVICE) {
    slab->start = block->start = cl_device_slab(slab->size, SLAB);
    if (!slab->start) return free(slab), NULL;
  }
  if (block->size >= SLAB) return slab;
  slab->next = memory.slabs;
  slab->link = &memory.slabs;
  if (slab->next) slab->next->link = &slab->next;
  return memory.slabs = slab;
}

/* Cuts a block as the driver does (measured: programs/core): what is smaller than a slab shares one with others of its
   context. */
static bool cut(Block *block) {
  Slab *slab = block->size < SLAB ? memory.slabs : NULL;
  while (slab && !fits(slab, block)) slab = slab->next;
  if (!slab) slab = new_slab(block);
  if (!slab) return false;
  block->slab = slab;
  slab->pieces++;
  slab->taken += cl_rounded(block->size, ALIGNMENT);
  if (!slab->start) return true;
  size_t from = block->start - slab->start, end = cl_rounded(from + block->size, ALIGNMENT);
  if (from < slab->reached) memset((void *)cl_bytes_of(block->start), 0, block->size);
  slab->last = end;
  if (slab->reached < end) slab->reached = end;
  return true;
}

/* Gives a block's part of its slab back; the last one takes the slab with it. */
static void uncut(Block *block) {
  Slab *slab = block->slab;
  slab->taken -= cl_rounded(block->size, ALIGNMENT);
  block->slab = NULL;
  if (--slab->pieces) return;
  if (slab->link) *slab->link = slab->next;
  if (slab->next) slab->next->link = slab->link;
  block->slab = slab;
}

static void free_slab(Slab *slab) {
  if (slab->start) cl_addresses_give(slab->start, slab->size);
  if (slab->shared) {
    uint64_t key;
    int file = cl_process_file(&key);
    if (key == slab->key) cl_file_forget(file, slab->offset, slab->size); /* else the program closed that */
  }
  free(slab);
}

static Block take_out(Entry *entry) {
  Block taken = entry->block;
  cl_tree_leave(&memory.blocks, &entry->node);
  free(entry);
  cl_own_process->managed -= taken.place == MANAGED;
  if (taken.slab) uncut(&taken);
  return taken;
}

static void remember(const Block *block) {
  size_t at = memory.freed_count++ % REMEMBERED;
  cl_site_drop(memory.freed[at].end);
  memory.freed[at].start = block->start;
  memory.freed[at].size = block->size;
  memory.freed[at].id = block->id;
  memory.freed[at].end = cl_site_keep(cl_site());
}

/* Notes that this thread's call uses memory that was freed, if an address is in such. */
static void note_freed(uintptr_t address) {
  for (size_t at = 0; at < REMEMBERED && at < memory.freed_count; at++)
    if (address - memory.freed[at].start < memory.freed[at].size)
      cl_note_dead_use(MEMORY_OF_DEVICE, memory.freed[at].id, memory.freed[at].end);
}

bool cl_block_take(CUdeviceptr start, unsigned origins, Block *taken) {
  bool inside;
  HOLD_TO_WRITE(cl_memory_lock);
  Entry *at = find((uintptr_t)start, &inside);
  bool found = inside && at->node.start == start && (at->block.origin & origins);
  if (found) *taken = take_out(at);
  if (found && cl_site() && taken->place == ON_DEVICE) remember(taken);
  return found;
}

size_t cl_blocks_alive(Origin origin, size_t *bytes) {
  size_t count = 0;
  *bytes = 0;
  HOLD_TO_READ(cl_memory_lock);
  for (const Entry *at = first(); at; at = behind(at)) {
    const Block *block = &at->block;
    if (block->origin != origin || block->freed) continue;
    count++;
    *bytes += block->size;
  }
  return count;
}

size_t cl_blocks_orphaned(size_t *bytes) {
  HOLD_TO_READ(cl_memory_lock);
  *bytes = memory.orphans_size;
  return memory.orphans;
}

/* Tells the processes that have a block of this one that it is freed. */
static void end_shared(const Block *block) {
  SharedEnd *end = block->shared_end;
  const Site *site = cl_site();
  uint64_t key;
  if (cl_process_file(&key) < 0 || key != block->key || atomic_load(&end->number) != block->end_number) return;
  snprintf(end->call, sizeof end->call, "%s", cl_called());
  snprintf(end->place, sizeof end->place, "process %d: %s", (int)getpid(),
           site && site->stack.python ? site->stack.python : "");
  atomic_store(&end->freed, true);
}

bool cl_is_freed_elsewhere(const Block *block) {
  const SharedEnd *end = block->shared_end;
  return end && block->origin == FROM_IPC && atomic_load(&end->number) == block->end_number && atomic_load(&end->freed);
}

void cl_note_freed_elsewhere(const Block *block) {
  if (!cl_is_freed_elsewhere(block)) return;
  int call = cl_symbol_named(block->shared_end->call);
  Site *site = NULL;
  if (call >= 0) site = cl_site_find(cl_symbols[call].name, &(Stack){.python = strdup(block->shared_end->place)});
  cl_note_dead_use(MEMORY_OF_PROCESS, block->id, site);
  cl_site_drop(site);
}

static void free_memory(const Block *block) {
  if (block->shared_end && block->origin == FROM_IPC)
    munmap((void *)((uintptr_t)block->shared_end & ~(cl_page_size() - 1)), cl_page_size());
  else if (block->shared_end) end_shared(block);
  free(block->advice.parts);
  if (block->on_heap) free((void *)block->start);
  else if (block->pages_size) cl_pages_give(block->pages, block->pages_size);
  if (block->slab) free_slab(block->slab);
}

void cl_block_free(const Block *block) {
  cl_site_drop(block->end);
  free_memory(block);
  if (block->counted) cl_memory_give(block->device, block->size);
}

/* Frees what a context owns, when it dies. */
void cl_end_memory(const Context *context) {
  HOLD_TO_WRITE(cl_memory_lock);
  for (Entry *at = first(), *next; at; at = next) {
    next = behind(at);
    if (at->block.context != context) continue;
    Block taken = take_out(at);
    free_memory(&taken);
    if (taken.origin != FROM_MODULE) {
      memory.orphans++;
      memory.orphans_size += taken.size;
    }
    if (taken.counted) cl_memory_give(taken.device, taken.size);
  }
}

static atomic_bool some_given;

void cl_block_give(Block *block) { some_given = block->given = true; }

void cl_free_given(void) {
  if (!atomic_exchange(&some_given, false)) return;
  HOLD_TO_WRITE(cl_memory_lock);
  for (Entry *at = first(), *next; at; at = next) {
    next = behind(at);
    if (!at->block.given) continue;
    Block taken = take_out(at);
    cl_block_free(&taken);
  }
}

uintptr_t cl_pages(size_t size) {
  void *pages = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return pages == MAP_FAILED ? 0 : (uintptr_t)pages;
}

void cl_pages_give(uintptr_t start, size_t size) {
  if (cl_is_device_address(start)) cl_addresses_give(start, size);
  else munmap((void *)start, size);
}

size_t cl_rounded(size_t size, size_t unit) {
  return size > SIZE_MAX - (unit - 1) ? 0 : (size + unit - 1) & ~(unit - 1);
}

/* Memory that is not cut from a slab: of the device, from pages or from malloc. */
static bool find_memory(Block *block) {
  bool on_device = block->place == ON_DEVICE, large = block->origin == FROM_ALLOCATION || block->size >= LARGE;
  if (on_device || large) {
    /* what is small begins within a page, as among others (measured: programs/core) */
    size_t before = large ? 0 : ALIGNMENT;
    block->pages_size = cl_rounded(before + (block->size ? block->size : 1), cl_page_size());
    if (!block->pages_size) return false;
    block->pages = on_device ? cl_device_pages(block->pages_size, 0) : cl_pages(block->pages_size);
    block->start = block->pages + before;
    return block->pages;
  }
  void *room = NULL;
  if (posix_memalign(&room, ALIGNMENT, block->size ? block->size : 1)) return false;
  memset(room, 0, block->size);
  block->start = (uintptr_t)room;
  block->on_heap = true;
  return true;
}

static CUresult cut_and_enter(Block *block) {
  HOLD_TO_WRITE(cl_memory_lock);
  CUresult result = is_cut(block) && !cut(block) ? CUDA_ERROR_OUT_OF_MEMORY : enter(block);
  if (result && block->slab) uncut(block);
  return result;
}

CUresult cl_block_make(Block *block) {
  if (block->size > cl_device_memory()) return CUDA_ERROR_OUT_OF_MEMORY;
  block->counted = block->place != ON_HOST;
  if (block->counted && !cl_memory_take(block->device, block->size)) return CUDA_ERROR_OUT_OF_MEMORY;
  if ((is_cut(block) && block->place == ON_DEVICE) || find_memory(block)) {
    if (!cut_and_enter(block)) return CUDA_SUCCESS;
    free_memory(block);
  }
  if (block->counted) cl_memory_give(block->device, block->size);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUdeviceptr cl_allocate(size_t size, Place place, const Context *context) {
  bool of_module = context && place == ON_DEVICE;
  if (!context) context = cl_current();
  Block block = {.size = size, .origin = FROM_MODULE, .place = place, .device = context ? context->device : 0};
  if (of_module) block.context = (Context *)(uintptr_t)context;
  return cl_block_make(&block) ? 0 : (CUdeviceptr)block.start;
}

void cl_release(CUdeviceptr address) {
  Block taken;
  if (cl_block_take(address, FROM_MODULE, &taken)) cl_block_free(&taken);
}

bool cl_held_known(CUdeviceptr address) {
  bool inside;
  find((uintptr_t)address, &inside);
  return inside;
}

bool cl_is_known(CUdeviceptr address) {
  HOLD_TO_READ(cl_memory_lock);
  return cl_held_known(address);
}

bool cl_reaches(const Context *context, const Block *block) {
  if (block->barred >> context->device & 1) return false;
  if (block->place != ON_DEVICE || block->device == context->device) return true;
  if (block->origin & (FROM_POOL | FROM_POOL_OF_OTHER | FROM_MAPPING)) return true;
  return cl_is_peer(context, block->context ? block->context : cl_primary_context(block->device));
}

bool cl_reaches_address(const Context *context, CUdeviceptr address) {
  HOLD_BLOCK(block, address);
  return !block || cl_reaches(context, block);
}

bool cl_is_open_to(const Context *context, CUdeviceptr address) {
  HOLD_BLOCK(block, address);
  return !block || !(block->barred >> context->device & 1);
}

enum { NO_DEVICE = -1 };

/* Whether a device may use a block; without a current one, if any device may. */
static bool is_open(const Block *block, CUdevice device) {
  if (block->freed) return false;
  cl_note_freed_elsewhere(block);
  return device == NO_DEVICE ? block->barred != UINT64_MAX : !(block->barred >> device & 1);
}

/* Whether blocks cover a range: a single one, or mappings side by side, which are one range. */
static bool covered(CUdeviceptr address, size_t size, bool any, CUdevice device) {
  bool inside;
  if (!size) return true;
  if (size > UINTPTR_MAX - (uintptr_t)address) return false;
  const Entry *at = find((uintptr_t)address, &inside);
  uintptr_t end = (uintptr_t)address + size;
  bool ok = inside && (any || is_open(&at->block, device));
  if (!inside) note_freed((uintptr_t)address);
  while (ok && end - at->node.start > at->block.size) {
    const Entry *next = behind(at);
    ok = at->block.origin == FROM_MAPPING && next && next->node.start == at->node.start + at->block.size &&
         next->block.origin == FROM_MAPPING && (any || is_open(&next->block, device));
    at = next;
  }
  return ok;
}

static CUdevice current_device(void) {
  const Context *context = cl_current();
  return context ? context->device : NO_DEVICE;
}

bool cl_held_within(CUdeviceptr address, size_t size) { return covered(address, size, false, current_device()); }
bool cl_held_open(CUdeviceptr address, size_t size) { return covered(address, size, false, NO_DEVICE); }

const Block *cl_held_block(CUdeviceptr address) {
  bool inside;
  const Entry *at = find((uintptr_t)address, &inside);
  return inside && is_open(&at->block, current_device()) ? &at->block : NULL;
}

bool cl_held_writable(CUdeviceptr address) {
  const Block *block = cl_held_block(address);
  CUdevice device = current_device();
  return !block || device == NO_DEVICE || !(block->read_only >> device & 1);
}

bool cl_held_range_known(CUdeviceptr address, size_t size) { return covered(address, size, true, NO_DEVICE); }

bool cl_within(CUdeviceptr address, size_t size) {
  HOLD_TO_READ(cl_memory_lock);
  return cl_held_within(address, size);
}

void cl_word_write(CUdeviceptr to, uint64_t word, bool wide) {
  HOLD_TO_READ(cl_memory_lock);
  if (!cl_held_within(to, wide ? 8 : 4)) return;
  void *there = (void *)cl_bytes_of(to);
  if (wide) __atomic_store_n((uint64_t *)there, word, __ATOMIC_RELEASE);
  else __atomic_store_n((uint32_t *)there, (uint32_t)word, __ATOMIC_RELEASE);
}

bool cl_memory_write(CUdeviceptr to, const void *from, size_t size) {
  HOLD_TO_READ(cl_memory_lock);
  bool ok = cl_held_within(to, size);
  if (ok) memcpy((void *)cl_bytes_of(to), from, size);
  return ok;
}
