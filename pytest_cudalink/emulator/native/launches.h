/* Launches: checked as a driver checks them, and then refused, as no kernel is executed. */
#pragma once

#include "graph_parameters.h"
#include "occupancy.h"

/* What a launch answers before it would run: 0 if nothing is wrong with it. Context and stream are not looked at. */
CUresult cl_check_launch(const LaunchConfig *config, const void *handle, void *const *parameters, void *const *extra);
/* What is wrong with the sizes of a block, or 0; how many bytes the parameters have. Under the lock of the modules. */
CUresult cl_check_block(const unsigned sizes[3], const Function *function);
size_t cl_parameter_bytes(const Function *function);
/* What is wrong with the sizes of clusters of a kernel node, or 0. Takes the lock of the modules. */
CUresult cl_check_cluster(const KernelNode *kernel, const AttributeValue *value);
/* The answer to a launch in which nothing is wrong, with the name of the kernel in the event. */
CUresult cl_not_executed(EventLine *line, const void *handle);

/* Copies the values of a kernel's parameters, which were checked, so that they are a node's own. */
CUresult cl_kernel_own(KernelNode *kernel);
