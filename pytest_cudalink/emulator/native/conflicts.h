/* The accesses to memory that later ones are compared with. All of it under the lock of happens_before.c. */
#pragma once

#include "clocks.h"

typedef enum { ACCESS_READ, ACCESS_WRITE, ACCESS_VALUE, ACCESS_ALLOCATE, ACCESS_FREE } AccessKind;

/* Bytes of memory: rows of `width` bytes, `pitch` bytes apart, in layers. */
typedef struct {
  uintptr_t start;
  size_t width, pitch, rows, layer, layers;
} Range;

/* Names each pair that nothing orders; keeps the access if it is to be `kept`. */
void cl_conflicts_touch(Op *op, const Range *range, AccessKind kind, bool kept);
/* Forgets accesses that everything later is behind; NULL: all. */
void cl_conflicts_forget(const Clock *known);
/* Calls a function with each work that wrote a word, and for a value with what happened before. */
typedef void WriterHook(Op *op, const Op *writer, const Clock *before);
void cl_conflicts_writers(uintptr_t word, Op *op, WriterHook *hook);
