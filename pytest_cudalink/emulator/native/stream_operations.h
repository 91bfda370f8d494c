/* Memory operations of streams: waiting for a value, and writing one. */
#ifndef CUDALINK_STREAM_OPERATIONS_H
#define CUDALINK_STREAM_OPERATIONS_H

#include "abi.h"
#include "calls.h"
#include "graph_parameters.h"

enum { OPERATIONS_MAX = 255 };

/* Checks operations, or does them too. One that waits for a value that is not there is refused: nothing would come. */
CUresult cl_check_operations(unsigned count, const MemoryOperation *list, bool first_version);
CUresult cl_do_operations(EventLine *line, unsigned count, const MemoryOperation *list);

#endif
