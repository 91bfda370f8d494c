/* Occupancy: how many blocks of a kernel run at once, and of what size. */
#pragma once

#include "module_image.h"
#include "occupancy_rules.h"

KernelNeeds cl_needs(const Function *function);

/* One attribute of a launch, and a launch: CUlaunchAttribute and CUlaunchConfig of cuda.h. */
typedef struct {
  int id, padding;
  union {
    int number;
    unsigned dimensions[3];
    struct {
      void *event;
      int flags;
    } event;
    char bytes[64];
  } value;
} LaunchAttribute;

typedef struct {
  unsigned grid[3], block[3], shared;
  void *stream;
  const LaunchAttribute *attributes;
  unsigned count;
} LaunchConfig;

_Static_assert(sizeof(LaunchAttribute) == 72, "CUlaunchAttribute");
_Static_assert(sizeof(LaunchConfig) == 56, "CUlaunchConfig");

/* The blocks of a grid, and the threads of a block; 0 if there are none, or more than the device allows. */
unsigned long long cl_grid_blocks(const unsigned sizes[3]);
unsigned cl_block_threads(const unsigned sizes[3]);

enum { PORTABLE_CLUSTER = 8, LARGEST_CLUSTER = 16 };

/* The sizes of a launch's clusters, from its attributes or from the kernel; false if it has no clusters. */
bool cl_cluster_of(const LaunchConfig *config, const Function *function, unsigned sizes[3]);
/* Whether a kernel can be launched with such clusters in a grid. */
bool cl_clusters_fit(const unsigned sizes[3], const unsigned grid[3], const Function *function);
