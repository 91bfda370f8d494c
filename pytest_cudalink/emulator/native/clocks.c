/* Vector clocks, and the works that have them. */
#include "clocks.h"

#include <stdlib.h>
#include <string.h>

enum { CLOCK_STEP = 16 };

uint64_t cl_clock_count(const Clock *clock, unsigned chain) {
  return clock && chain < clock->size ? clock->counts[chain] : 0;
}

static bool reach(Clock **clock, unsigned size) {
  if (*clock && size <= (*clock)->size) return true;
  unsigned there = *clock ? (*clock)->size : 0;
  size = (size + CLOCK_STEP - 1) / CLOCK_STEP * CLOCK_STEP;
  Clock *grown = realloc(*clock, sizeof **clock + size * sizeof *grown->counts);
  if (!grown) return cl_order_ends("memory is out"), false;
  memset(grown->counts + there, 0, (size - there) * sizeof *grown->counts);
  grown->size = size;
  *clock = grown;
  return true;
}

void cl_clock_join(Clock **to, const Clock *from) {
  if (!from || *to == from || !reach(to, from->size)) return;
  for (unsigned chain = 0; chain < from->size; chain++)
    if ((*to)->counts[chain] < from->counts[chain]) (*to)->counts[chain] = from->counts[chain];
}

void cl_clock_tick(Clock **clock, unsigned chain, uint64_t count) {
  if (reach(clock, chain + 1)) (*clock)->counts[chain] = count;
}

void cl_op_release(Op *op) {
  if (--op->holders) return;
  cl_site_drop(op->site);
  free(op);
}
