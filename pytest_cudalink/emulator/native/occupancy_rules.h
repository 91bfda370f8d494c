/* How many blocks of a kernel fit on one multiprocessor: rules over numbers, without handles. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* What a kernel needs of a multiprocessor, and what was preferred for it. */
typedef struct {
  int registers, shared, max_threads;
  int max_dynamic_shared, carveout, cache_config;
} KernelNeeds;

/* Blocks of so many threads that are resident at once; 0 if not even one fits. */
int cl_blocks_per_multiprocessor(const KernelNeeds *needs, int threads, size_t dynamic_shared);
/* Dynamic shared memory that each block may have where so many are resident; false if so many never fit. */
bool cl_shared_available(const KernelNeeds *needs, int blocks, int threads, size_t *bytes);
/* Threads that a block can have at most with so many registers each. */
int cl_threads_with_registers(int registers);
/* Clusters of so many blocks that are resident at once on the device, where so many blocks fit on a multiprocessor. */
int cl_clusters_on_device(int blocks_per_multiprocessor, int blocks_of_cluster);

/* Groups of multiprocessors: the smallest one, and the unit of larger ones. */
int cl_least_multiprocessors(void);
int cl_multiprocessor_unit(void);
