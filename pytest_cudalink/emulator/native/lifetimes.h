/* The watch on the caller's memory: it must stay as it is for as long as a link may use it. */
#ifndef CUDALINK_LIFETIMES_H
#define CUDALINK_LIFETIMES_H

#include <stdint.h>

#include "link_state.h"

/* Looks at all that the caller gave to a state; `call` is the function that does. */
void cl_check_memory(State *state, const char *call);

/* Reports that a function was given the handle of a destroyed state. */
void cl_report_destroyed(uint64_t state, const char *call);

typedef struct {
  uint64_t state;
  const char *option;
} Overlap;

enum { OVERLAPS = 16 };

/* Memory of a new state that a live one already has: the live one's was freed. Under the lock of the states; gives how
   many there are. */
int cl_find_overlaps(const State *fresh, Overlap found[OVERLAPS]);
void cl_report_overlaps(const State *fresh, const Overlap *found, int count);

/* Tells what this thread found; never under a lock, because the hook waits for Python's, whose holder may wait for
   ours. */
void cl_tell_violations(void);

#endif
