/* Vector clocks, and the works that have them. All of it under the lock of happens_before.c. */
#pragma once

#include "order_findings.h"

enum { CHAINS = 1024 };

/* How often each chain was counted, which it is for each work on it. Work on one chain is in order. */
typedef struct Clock {
  uint64_t size;
  uint64_t counts[];
} Clock;

/* A piece of work or a step of the host, with all that happens before it. */
typedef struct Op {
  unsigned holders, chain;
  bool queued, taken; /* taken: another work goes on with its chain */
  uint64_t count;
  Clock *clock; /* NULL once the work is done */
  Site *site;
  char where[48];
} Op;

uint64_t cl_clock_count(const Clock *clock, unsigned chain);
/* Adds what another clock knows. */
void cl_clock_join(Clock **to, const Clock *from);
/* Adds that one chain was counted so often. */
void cl_clock_tick(Clock **clock, unsigned chain, uint64_t count);
/* Drops one of the holders of a work; the last one frees it. */
void cl_op_release(Op *op);
