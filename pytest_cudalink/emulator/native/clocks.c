/* Vector clocks, and the works that have them. */
#include "clocks.h"

#include <stdlib.h>

#include "grow.h"

uint64_t cl_clock_count(const Clock *clock, unsigned chain) {
  return clock && chain < clock->size ? clock->counts[chain] : 0;
}

/* A clock is an array of words, of which the first counts the others. */
static bool reach(Clock **clock, uint64_t size) {
  size_t words = *clock ? (*clock)->size + 1 : 0;
  if (!cl_grow(clock, size, &words, sizeof(uint64_t))) return cl_order_ends("memory is out"), false;
  (*clock)->size = words - 1;
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
