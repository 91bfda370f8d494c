/* The call sites of works, and the pairs of accesses that nothing orders. */
#pragma once

#include <stdatomic.h>

#include "call_stacks.h"
#include "symbols.h"

/* Whether order is checked; `cl_order_ends` ends that, as what would be found without memory is wrong. */
extern atomic_bool cl_order_on;

/* A function is entered, and its call site noted; or it is left, and its violations reported. */
void cl_watch_site(Sym symbol, bool entered);

typedef struct {
  int kinds[2]; /* AccessKind, of the earlier one and of the later one */
  const Site *sites[2];
  const char *where[2]; /* the streams, in words */
  uintptr_t start;
  size_t size;
} Finding;

/* Notes a violation, once for two sites. */
void cl_order_finding(const Finding *pair);
void cl_forget_findings(void);
/* Notes that the check ends, and why: what comes later is not compared. */
void cl_order_ends(const char *why);
/* Notes, once, that so many streams have work which nothing waited for that some are taken for one. */
void cl_order_shares(void);
