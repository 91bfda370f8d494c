/* Memory that graphs allocate and free: addresses that stay, and what of it is in use. */
#pragma once

#include "graphs.h"

/* All under the lock of the streams. */
/* Finds an address for memory of a graph; NULL if memory is out. It is gone with the last node that knows it. */
GraphMemory *cl_graph_memory_make(size_t size, const PoolProperties *pool, const Graph *owner);
GraphMemory *cl_graph_memory_at(CUdeviceptr address);
/* Whether a graph may have a node that frees some memory; notes that it has. */
CUresult cl_graph_memory_free_in(GraphMemory *memory, const Graph *graph);
/* What a launch does. */
CUresult cl_graph_memory_take(GraphMemory *memory);
void cl_graph_memory_give(GraphMemory *memory);
/* Counts memory as in use. */
void cl_graph_memory_use(const GraphMemory *memory);
/* Has memory be what a launch allocated and nothing freed, or not. */
void cl_graph_memory_set(GraphMemory *memory, bool live);
/* Frees memory that a graph allocated, for a caller of cuMemFree; false if no graph did. Takes the lock. */
bool cl_graph_memory_released(CUdeviceptr address, CUresult *result);

/* Whether an address lies in memory that no launch of a graph has allocated yet, or whose last one freed it. Takes the
   lock. */
bool cl_graph_memory_waits(CUdeviceptr address);

/* cuMemAllocAsync and cuMemFreeAsync in a captured stream: the operation becomes a node. Take the lock. */
CUresult cl_capture_allocation(const void *handle, const PoolProperties *pool, size_t size, CUdeviceptr *out);
CUresult cl_capture_free(const void *handle, CUdeviceptr address);
