/* Memory operations of streams: waiting for a value, and writing one. */
#pragma once

#include "graph_parameters.h"

enum { OPERATIONS_MAX = 255 };

/* Checks operations. */
CUresult cl_check_operations(unsigned count, const MemoryOperation *list);
/* Does operations from a position on, which it moves; CUDA_ERROR_NOT_READY at one that waits for a value. */
CUresult cl_do_operations(unsigned count, const MemoryOperation *list, unsigned *position);
