/* Nodes as callers make, ask and change them. */
#ifndef CUDALINK_GRAPH_NODES_H
#define CUDALINK_GRAPH_NODES_H

#include "abi.h"
#include "graph_parameters.h"

/* What a call of the API has at the parameters of a kind of node. */
NodeParameters cl_copy_parameters(const Box *box, Context *context);
NodeParameters cl_fill_parameters(const void *given, Context *context);
NodeParameters cl_node_parameters(int type, const void *given, size_t size);

enum { KERNEL_NODE_V1 = 56, FILL_NODE_V1 = 40 };

#endif
