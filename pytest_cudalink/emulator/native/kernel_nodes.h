/* Kernels as nodes of graphs: the values of their parameters are the node's own. */
#ifndef CUDALINK_KERNEL_NODES_H
#define CUDALINK_KERNEL_NODES_H

#include "abi.h"
#include "graph_parameters.h"
#include "occupancy.h"

/* Copies the values of a kernel's parameters, which were checked. */
CUresult cl_kernel_own(KernelNode *kernel);
/* Captures a launch, which was checked. */
CUresult cl_capture_launch(const LaunchConfig *config, void *function, void **values, void **extra);

#endif
