/* Launches: checked as a driver checks them, and then refused, as no kernel is executed. */
#pragma once

#include "graph_parameters.h"
#include "occupancy.h"

/* What a launch answers before it would run: 0 if nothing is wrong with it. Context and stream are not looked at. */
CUresult cl_check_launch(const LaunchConfig *config, const void *handle, void *const *parameters, void *const *extra);
/* What is wrong with the sizes of clusters of a kernel node, or 0. Takes the lock of the modules. */
CUresult cl_check_cluster(const KernelNode *kernel, const AttributeValue *value);

/* Copies the values of a kernel's parameters, which were checked, so that they are a node's own. */
CUresult cl_kernel_own(KernelNode *kernel);
