/* Schedules: queued work is done early, late or between, as a seed says, in any order that CUDA allows. */
#ifndef CUDALINK_SCHEDULE_H
#define CUDALINK_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi.h"

enum { SCHEDULE_LATE = UINT32_MAX };

/* A piece of work that was submitted under a schedule. Times are numbers of calls that the program made; 0: not yet. */
typedef struct {
  uint32_t number; /* from 1 on */
  uint32_t delay;  /* for how many calls it stayed pending; SCHEDULE_LATE: until something waited for it, or 200 */
  uint32_t stream; /* number of the stream, in the order of their first work; 0: that of no stream */
  uint64_t submitted, started, ended;
  const char *kind, *function, *call; /* the function that submitted it, and the one that it ended in */
} ScheduledWork;

/* Whether who submits work is noted; only a schedule may do without. */
bool cl_notes_submitters(void);
/* Begins a schedule: work of the given numbers is displaced, or any if `all`; `stacks`: whether to note who submitted
   each. The one before ends. */
EXPORT int cudalinkStartSchedule(uint64_t seed, const uint32_t *displaced, size_t count, int all, int stacks);
/* Does what is pending, as far as no gate holds it up, and goes back to doing work as soon as it may be done. */
EXPORT void cudalinkEndSchedule(void);
/* How many pieces of work were submitted under the last schedule. */
EXPORT uint32_t cudalinkScheduledCount(void);
/* One of them, and the stack of its submission as lines; returns the size of that with the NUL, 0: there is none. */
EXPORT size_t cudalinkScheduledWork(uint32_t number, ScheduledWork *out, char *stack, size_t size);

#endif
