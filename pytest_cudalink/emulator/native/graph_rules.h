/* What parameters of nodes must be, and how they may change. */
#pragma once

#include "graphs.h"

/* Checks a caller's parameters, completes them and makes what they point to their own; on an error they own nothing.
   Without the lock: contexts and modules are asked. */
CUresult cl_parameters_prepare(NodeParameters *parameters);
/* Whether a graph may allocate what a node says. */
CUresult cl_allocation_possible(const AllocateNode *allocate);
/* Checks those that name objects under the lock of the streams: events and semaphores. */
CUresult cl_parameters_check_handles(const NodeParameters *parameters);
/* Whether an executable graph takes new parameters for a node; `alone`: for this node only. */
bool cl_parameters_may_become(const NodeParameters *old, const NodeParameters *fresh, bool alone);
/* Whether a graph that the device launches may have a node of a type. */
bool cl_runs_on_device(int type);
/* What an instantiation says of a node in the body of a condition, at any depth (cuda.h, CUDA_CONDITIONAL_NODE_PARAMS);
   pageable memory and arrays are not in its context (measured: edges/graph_conditional). */
int cl_body_takes(const NodeParameters *parameters, const Context *context);
/* Whether a node of a type may stand in a graph. */
CUresult cl_graph_takes(const Graph *graph, int type);
