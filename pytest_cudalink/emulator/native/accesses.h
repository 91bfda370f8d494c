/* The accesses to memory of each kind of work, for the check of their order. */
#pragma once

#include "graph_parameters.h"
#include "happens_before.h"

/* All of these only if order is checked. */

/* What work of a queue or a node of a graph accesses; copies are `cl_touch_box`. */
void cl_touch_parameters(Op *op, const NodeParameters *parameters);
/* The block that begins at an address, if there is one. */
void cl_touch_block(Op *op, CUdeviceptr address, AccessKind kind);
/* The host frees such a block; behind all work of a context or, with NULL, whatever is unfinished. */
void cl_touch_freed(CUdeviceptr address, const Context *behind);
/* A value that was written, or a wait for one that ended, by the work that this thread does. */
void cl_touch_operation(const MemoryOperation *one);
