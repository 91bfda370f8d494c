/* The accesses to memory that later ones are compared with. All of it under the lock of happens_before.c. */
#ifndef CUDALINK_CONFLICTS_H
#define CUDALINK_CONFLICTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "order_findings.h"

/* How often each chain was counted, which it is for each work on it. Work on one chain is in order. */
typedef struct Clock {
  unsigned size;
  uint64_t counts[];
} Clock;

/* A piece of work or a step of the host, with all that happens before it. */
typedef struct Op Op;

typedef enum { ACCESS_READ, ACCESS_WRITE, ACCESS_VALUE, ACCESS_ALLOCATE, ACCESS_FREE } AccessKind;

/* Bytes of memory: rows of `width` bytes, `pitch` bytes apart, in layers. */
typedef struct {
  uintptr_t start;
  size_t width, pitch, rows, layer, layers;
} Range;

struct Op {
  unsigned holders, chain;
  bool queued, taken; /* taken: another work goes on with its chain */
  uint64_t count;
  Clock *clock; /* NULL once the work is done */
  Site *site;
  char where[48];
};

/* Of happens_before.c. */
uint64_t cl_clock_count(const Clock *clock, unsigned chain);
void cl_op_release(Op *op);

/* Names each pair that nothing orders; keeps the access if it is to be `kept`. */
void cl_conflicts_touch(Op *op, const Range *range, AccessKind kind, bool kept);
/* Forgets accesses that everything later is behind; NULL: all. */
void cl_conflicts_forget(const Clock *known);
/* Calls a function with each work that wrote a word. */
typedef void WriterHook(Op *op, const Op *writer);
void cl_conflicts_writers(uintptr_t word, Op *op, WriterHook *hook);

#endif
