/* The watch on the caller's memory: it must stay as it is for as long as a link may use it. */
#pragma once

#include "link_state.h"

/* Checks all memory that the caller gave to a state, for the function `call`. */
void cl_check_memory(State *state, const char *call);

/* Reports that a function was given the handle of a destroyed state. */
void cl_report_destroyed(uint64_t state, const char *call);

typedef struct {
  uint64_t state;
  const char *option;
} Overlap;

enum { OVERLAPS = 16 };

/* Finds memory of a new state that a live state already has: the caller freed the live one's. Under the lock of the
   states; returns how many overlaps there are. */
int cl_find_overlaps(const State *fresh, Overlap found[OVERLAPS]);
void cl_report_overlaps(const State *fresh, const Overlap *found, int count);
