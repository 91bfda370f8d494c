/* Graphs in the DOT language. */
#include <stdio.h>
#include <string.h>

#include "calls.h"
#include "graphs.h"

static const char *const names[NODE_TYPES] = {
    "KERNEL",       "MEMCPY",           "MEMSET",         "HOST",      "GRAPH",    "EMPTY",        "EVENT_WAIT",
    "EVENT_RECORD", "EXT_SEMAS_SIGNAL", "EXT_SEMAS_WAIT", "MEM_ALLOC", "MEM_FREE", "BATCH_MEM_OP", "CONDITIONAL",
};

static void print_node(FILE *file, const Node *node, unsigned flags) {
  const NodeParameters *parameters = &node->parameters;
  unsigned graph = (unsigned)node->graph->id;
  fprintf(file, "\"graph_%u_node_%u\"[style=\"solid\" shape=\"rectangle\" label=\"%u\\n%s", graph, node->local,
          node->local, names[parameters->type]);
  if (flags & (CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE | CU_GRAPH_DEBUG_DOT_FLAGS_HANDLES))
    fprintf(file, "\\nnode handle: %p", (const void *)node);
  if (flags & CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE && parameters->type == NODE_FILL)
    fprintf(file, "\\ndptr: 0x%llx\\nvalue: %u\\nelement size: %u\\nwidth: %zu\\nheight: %zu",
            (unsigned long long)parameters->fill.to, parameters->fill.value, parameters->fill.element,
            parameters->fill.width, parameters->fill.height);
  if (flags & CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE && parameters->type == NODE_COPY)
    fprintf(file, "\\nwidth: %zu\\nheight: %zu\\ndepth: %zu", parameters->copy.box.width, parameters->copy.box.height,
            parameters->copy.box.depth);
  fprintf(file, "\"];\n");
}

static void print_graph(FILE *file, const Graph *graph, unsigned flags) {
  unsigned id = (unsigned)graph->id;
  fprintf(file, "subgraph cluster_%u {\nlabel=\"graph_%u\" graph[style=\"dashed\"];\n", id, id);
  for (size_t at = 0; at < graph->count; at++) print_node(file, graph->nodes[at], flags);
  for (const Edge *edge = graph->edges.first; edge; edge = edge->behind[EDGES_OF_GRAPH])
    fprintf(file, "\"graph_%u_node_%u\" -> \"graph_%u_node_%u\";\n", id, edge->from->local, id, edge->to->local);
  for (size_t at = 0; at < graph->count; at++) {
    const NodeParameters *parameters = &graph->nodes[at]->parameters;
    if (parameters->type == NODE_CHILD) print_graph(file, parameters->child.graph, flags);
    for (unsigned body = 0; parameters->type == NODE_CONDITIONAL && body < parameters->conditional.size; body++)
      print_graph(file, parameters->conditional.bodies[body], flags);
  }
  fprintf(file, "}\n");
}

static CUresult print(void *handle, const char *path, unsigned flags) {
  const Graph *graph = cl_graph(handle);
  if (!graph || !path) return CUDA_ERROR_INVALID_VALUE;
  FILE *file = fopen(path, "w");
  if (!file) return CUDA_ERROR_OPERATING_SYSTEM;
  fprintf(file, "digraph dot {\n");
  print_graph(file, graph, flags);
  fprintf(file, "}\n");
  return fclose(file) ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
}
EXPORTED_WHEN(graph != NULL, cuGraphDebugDotPrint, (Graph * graph, const char *path, unsigned flags),
              LOCKED(print(graph, path, flags)))
