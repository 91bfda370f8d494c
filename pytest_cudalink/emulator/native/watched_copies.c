/* The watch on host memory between an asynchronous copy and its completion. */
#include "watched_copies.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "blocks.h"
#include "config.h"
#include "device_addresses.h"
#include "safe_memory.h"
#include "violations.h"

struct Watch {
  uint64_t number;
  const char *call;
  Stack stack;
  Range memory; /* of the host */
  bool reads;   /* the copy reads it */
};

static _Atomic uint64_t last_copy;

/* Whether memory is still there: a byte of each page of it. */
static bool is_there(const char *start, size_t size) {
  char byte;
  const uintptr_t page = cl_page_size();
  for (const char *at = start; at < start + size; at = (const char *)(((uintptr_t)at / page + 1) * page))
    if (!cl_read_safely(at, &byte, 1)) return false;
  return true;
}

/* Pageable memory is the host's, too: a copy of it stays pending only where unpromised waits are left out. */
static bool is_of_host(uintptr_t address) {
  HOLD_BLOCK(block, address);
  return block ? block->place == ON_HOST : !cl_is_device_address(address);
}

/* The bytes from the first one to the last one. */
static size_t span(const Range *range) {
  return (range->layers - 1) * range->layer + (range->rows - 1) * range->pitch + range->width;
}

/* Whether memory is what a copy read, one row behind the other. */
static bool is_same(const Range *range, const char *read) {
  for (size_t layer = 0; layer < range->layers; layer++)
    for (size_t row = 0; row < range->rows; row++, read += range->width)
      if (memcmp((const char *)range->start + layer * range->layer + row * range->pitch, read, range->width))
        return false;
  return true;
}

Watch *cl_watch_copy(const Range *memory, bool reads) {
  Watch *watch = cl_config()->lifetime && is_of_host(memory->start) ? calloc(1, sizeof *watch) : NULL;
  if (!watch) return NULL;
  *watch = (Watch){.number = ++last_copy, .call = cl_called(), .memory = *memory, .reads = reads};
  if (cl_notes_submitters()) cl_note_stack(&watch->stack);
  return watch;
}

void cl_watch_end(Watch *watch) {
  if (watch) cl_free_stack(&watch->stack);
  free(watch);
}

static void report(const Watch *watch, const char *what, const char *found, const char *call) {
  char expected[96];
  snprintf(expected, sizeof expected, "%zu bytes at %p until the copy is done", span(&watch->memory),
           (const void *)watch->memory.start);
  cl_note_violation_of(&(Violation){
      .kind = "copy",
      .number = watch->number,
      .rule = "asynchronous copy",
      .what = what,
      .call = call,
      .expected = expected,
      .found = found,
      .fix =
          "Keep host memory until its asynchronous copy is done: wait for the stream, or for an event behind the copy.",
      .maker = watch->call,
      .made = &watch->stack,
  });
}

bool cl_check_watched(const Work *work) {
  const Watch *watch = work->watch;
  if (!watch) return true;
  if (is_there((const char *)watch->memory.start, span(&watch->memory))) {
    /* only when a schedule had it begin: before, its owner may change what a gate or an event holds up */
    if (!watch->reads || !work->source || is_same(&watch->memory, work->source)) return true;
    report(watch, "the memory was changed", "other bytes than when the copy began", "the stream, when the copy ended");
    cl_report_violations();
    return true;
  }
  report(watch, "the memory was freed", "no memory there", "the stream, when it came to the copy");
  cl_report_violations();
  return false;
}

typedef struct {
  uintptr_t start;
  size_t size;
  const char *call;
} ReleasedMemory;

/* Goes on to the next one. */
static bool is_given_up(const Work *work, const void *data) {
  const ReleasedMemory *given = data;
  const Watch *watch = work->watch;
  const Range *memory = watch ? &watch->memory : NULL;
  if (memory && memory->start < given->start + given->size && given->start < memory->start + span(memory))
    report(watch, "the memory was given up before", "an unfinished copy", given->call);
  return false;
}

void cl_check_given_up(const void *start, const char *call) {
  if (!cl_any_pending() || !cl_config()->lifetime || cl_in_host_function) return;
  const Block *block = cl_block_lock((uintptr_t)start);
  ReleasedMemory given = {(uintptr_t)start, block && block->start == (uintptr_t)start ? block->size : 0, call};
  cl_block_unlock();
  if (!given.size) return;
  cl_streams_lock();
  cl_find_pending(is_given_up, &given);
  cl_streams_unlock(CUDA_SUCCESS);
  cl_report_violations();
}
