/* Waits that CUDA's documentation does not promise: each is counted, and left out or not. */

#include "grow.h"
#include "locks.h"
#include "work_order.h"

/* A wait that is not promised, of a call that was made since they are left out. */
typedef struct {
  uint32_t row; /* of data/emulator/waits.toml, from 1 on; 0: none, the call reads pageable memory before it returns */
  uint32_t pending;     /* whether there was unfinished work */
  const char *function; /* that was called */
} UnpromisedWait;

typedef struct {
  UnpromisedWait wait;
  Stack stack;
} Entry;

/* All of it under the lock of the streams. */
static Entry *entries;
static size_t entry_count, entry_room;
static uint32_t *wanted; /* numbers of those that are left out */
static size_t wanted_count;
static bool all_wanted;

static bool is_wanted(uint32_t number) {
  size_t at = 0;
  while (at < wanted_count && wanted[at] != number) at++;
  return all_wanted || at < wanted_count;
}

static bool judge(Sym symbol, const WaitRow *row) {
  Stack stack;
  cl_note_stack(&stack); /* never under the lock */
  cl_streams_lock();
  bool kept = cl_grow(&entries, entry_count, &entry_room, sizeof *entries);
  UnpromisedWait wait = {row ? row->number : 0, cl_pending != NULL, cl_symbols[symbol].name};
  if (kept) entries[entry_count++] = (Entry){wait, stack};
  bool waits = !kept || !is_wanted(entry_count);
  cl_streams_unlock(CUDA_SUCCESS);
  if (!kept) cl_free_stack(&stack);
  return waits;
}

/* From now on calls of the given numbers, or of all if `all`, do not wait where it is not promised; only calls that
   could are counted, from 1 on. Other than 0 if memory is out. */
EXPORT int cudalinkLeaveOutWaits(const uint32_t *numbers, size_t count, int all) {
  uint32_t *copy = malloc(count * sizeof *copy + 1);
  if (!copy) return CUDA_ERROR_OUT_OF_MEMORY;
  if (count) memcpy(copy, numbers, count * sizeof *copy);
  HOLD_STREAMS();
  while (entry_count) cl_free_stack(&entries[--entry_count].stack);
  free(wanted);
  wanted = copy;
  wanted_count = count;
  all_wanted = all;
  atomic_store(&cl_wait_judge, judge);
  return CUDA_SUCCESS;
}

/* Calls wait again. */
EXPORT void cudalinkKeepWaits(void) { atomic_store(&cl_wait_judge, NULL); }

/* How many calls were counted. */
EXPORT uint32_t cudalinkUnpromisedCount(void) {
  HOLD_STREAMS();
  return entry_count;
}

/* One of them, and its stack as lines; returns the size of that with the NUL, 0: there is none. */
EXPORT size_t cudalinkUnpromisedWait(uint32_t number, UnpromisedWait *out, char *stack, size_t size) {
  HOLD_STREAMS();
  bool known = number && number <= entry_count;
  if (known) *out = entries[number - 1].wait;
  return known ? cl_write_stack(&entries[number - 1].stack, stack, size) : 0;
}

/* A forked child has none of the work. */
static void forget(void) {
  entry_count = 0; /* not freed: another thread may have been at it */
  atomic_store(&cl_wait_judge, NULL);
}

FORGET_IN_CHILDREN(forget);
