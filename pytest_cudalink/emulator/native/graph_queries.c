/* Graphs as callers make, ask and change them: everything but what their nodes do. */
#include <stdio.h>

#include "graph_rules.h"
#include "launches.h"

API_LOCKED(cuGraphCreate, (Graph * *out, unsigned flags), (out, flags)) {
  if (!out || flags) return CUDA_ERROR_INVALID_VALUE;
  *out = cl_graph_make(false);
  return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* A graph that belongs to a node goes with that node, and one that is captured into with its capture. */
API_LOCKED(cuGraphDestroy, (Graph * handle), (handle)) {
  Graph *graph = cl_graph(handle);
  if (!graph || graph->owner || graph->of_itself) return CUDA_ERROR_INVALID_VALUE;
  if (graph->capture) return CUDA_ERROR_ILLEGAL_STATE;
  cl_graph_free(graph);
  return CUDA_SUCCESS;
}

API_LOCKED(cuGraphClone, (Graph * *out, Graph *handle), (out, handle)) {
  const Graph *graph = cl_graph(handle);
  if (!out || !graph) return CUDA_ERROR_INVALID_VALUE;
  if (cl_graph_is_unique(graph)) return CUDA_ERROR_NOT_SUPPORTED;
  *out = cl_graph_copy(graph, false);
  return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API_LOCKED(cuGraphNodeFindInClone, (Node * *out, Node *original, Graph *handle), (out, original, handle)) {
  const Node *node = cl_node(original);
  Graph *graph = cl_graph(handle);
  if (!out || !node || !graph || graph->origin != node->graph->id) return CUDA_ERROR_INVALID_VALUE;
  *out = cl_node_like(graph, node->id, false);
  return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* -- lists -- */

/* Writes an item of a list as far as there is room. */
typedef struct {
  Node **nodes, **others;
  EdgeData *data;
  size_t room, count;
} NodeList;

static void put(NodeList *list, Node *node, Node *other, EdgeData data) {
  size_t at = list->count++;
  if (at >= list->room) return;
  list->nodes[at] = node;
  if (list->others) list->others[at] = other;
  /* of nodes alone the rest stays (measured: programs/graphs) */
  if (list->data && (node || list->others)) list->data[at] = data;
}

static const EdgeData no_data;

/* Ends a list: with nowhere to write *count is how many there are; otherwise how many were written, and places behind
   the last one are cleared. */
static CUresult finish(NodeList *list, size_t *count) {
  size_t there = list->count;
  while (list->count < list->room) put(list, NULL, NULL, no_data);
  *count = list->nodes && list->room < there ? list->room : there;
  return CUDA_SUCCESS;
}

static CUresult get_nodes(void *handle, Node **nodes, size_t *count, bool roots) {
  const Graph *graph = cl_graph(handle);
  if (!graph || !count || (nodes && !*count)) return CUDA_ERROR_INVALID_VALUE;
  NodeList list = {.nodes = nodes, .room = nodes ? *count : 0};
  /* roots come with the youngest first (measured: programs/graphs) */
  for (size_t at = 0; at < graph->count; at++) {
    Node *node = graph->nodes[roots ? graph->count - 1 - at : at];
    if (!roots || !node->into.first) put(&list, node, NULL, no_data);
  }
  return finish(&list, count);
}
EXPORTED(cuGraphGetNodes, (Graph * graph, Node **nodes, size_t *count), LOCKED(get_nodes(graph, nodes, count, false)))
EXPORTED(cuGraphGetRootNodes, (Graph * graph, Node **nodes, size_t *count),
         LOCKED(get_nodes(graph, nodes, count, true)))

/* Lists an edge; false if its data would be lost. */
static bool put_edge(NodeList *list, const Edge *edge, EdgeList of, bool lossy) {
  if (lossy && list->nodes && !cl_is_plain(edge->data)) return false;
  put(list, of == EDGES_OUT_OF && !list->others ? edge->to : edge->from, edge->to, edge->data);
  return true;
}

static CUresult graph_edges(void *handle, Node **from, Node **to, EdgeData *data, size_t *count) {
  const Graph *graph = cl_graph(handle);
  if (!graph || !count || !from != !to || (data && !from) || (from && !*count)) return CUDA_ERROR_INVALID_VALUE;
  NodeList list = {.nodes = from, .others = to, .data = data, .room = from ? *count : 0};
  EACH_EDGE(edge, graph)
  if (!put_edge(&list, edge, EDGES_OUT_OF, !data)) return CUDA_ERROR_LOSSY_QUERY;
  return finish(&list, count);
}
EXPORTED(cuGraphGetEdges, (Graph * graph, Node **from, Node **to, size_t *count),
         LOCKED(graph_edges(graph, from, to, NULL, count)))
EXPORTED(cuGraphGetEdges_v2, (Graph * graph, Node **from, Node **to, EdgeData *data, size_t *count),
         LOCKED(graph_edges(graph, from, to, data, count)))

static CUresult node_edges(void *handle, EdgeList which, Node **nodes, EdgeData *data, size_t *count) {
  const Node *node = cl_node(handle);
  if (!node || !count || (data && !nodes) || (nodes && !*count)) return CUDA_ERROR_INVALID_VALUE;
  NodeList list = {.nodes = nodes, .data = data, .room = nodes ? *count : 0};
  for (const Edge *edge = (which == EDGES_INTO ? &node->into : &node->out_of)->first; edge; edge = edge->behind[which])
    if (!put_edge(&list, edge, which, !data)) return CUDA_ERROR_LOSSY_QUERY;
  return finish(&list, count);
}
#define LISTS_EDGES(name, which)                                                                                   \
  EXPORTED(name, (Node * node, Node * *nodes, size_t *count), LOCKED(node_edges(node, which, nodes, NULL, count))) \
  EXPORTED(name##_v2, (Node * node, Node * *nodes, EdgeData * data, size_t *count),                                \
           LOCKED(node_edges(node, which, nodes, data, count)))
LISTS_EDGES(cuGraphNodeGetDependencies, EDGES_INTO)
LISTS_EDGES(cuGraphNodeGetDependentNodes, EDGES_OUT_OF)

/* -- changing edges -- */

typedef struct {
  Node *const *from, *const *to;
  const EdgeData *data;
  size_t count;
} Pairs;

/* Whether all pairs are of nodes of a graph. */
static bool known_pairs(const Graph *graph, const Pairs *pairs) {
  if (pairs->count && (!pairs->from || !pairs->to)) return false;
  for (size_t at = 0; at < pairs->count; at++) {
    const Node *from = cl_node(pairs->from[at]), *to = cl_node(pairs->to[at]);
    if (!from || !to || from == to || from->graph != graph || to->graph != graph) return false;
  }
  return true;
}

/* Edges are added and removed one after the other: those before one that is refused stay so (measured:
   edges/graph_edges). */
static CUresult add_edges(void *handle, Pairs pairs) {
  Graph *graph = cl_graph(handle);
  if (!graph || !known_pairs(graph, &pairs)) return CUDA_ERROR_INVALID_VALUE;
  for (size_t at = 0; at < pairs.count; at++) {
    EdgeData data = pairs.data ? pairs.data[at] : no_data;
    if (!cl_edge_may_be(pairs.from[at], pairs.to[at]->parameters.type, data) || cl_edge(pairs.from[at], pairs.to[at]))
      return CUDA_ERROR_INVALID_VALUE;
    if (!cl_edge_add(pairs.from[at], pairs.to[at], data)) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  return CUDA_SUCCESS;
}
static CUresult remove_edges(void *handle, Pairs pairs) {
  Graph *graph = cl_graph(handle);
  if (!graph) return CUDA_ERROR_INVALID_VALUE;
  if (graph->sole) return CUDA_ERROR_NOT_SUPPORTED;
  if (!known_pairs(graph, &pairs)) return CUDA_ERROR_INVALID_VALUE;
  for (size_t at = 0; at < pairs.count; at++) {
    Edge *edge = cl_edge(pairs.from[at], pairs.to[at]); /* whatever its data are */
    if (!edge) return CUDA_ERROR_INVALID_VALUE;
    cl_edge_remove(edge);
  }
  return CUDA_SUCCESS;
}

/* Both forms of a function that changes edges. */
#define CHANGES_EDGES(name, change)                                                                      \
  EXPORTED_WHEN(graph != NULL, name, (Graph * graph, Node *const *from, Node *const *to, size_t count),  \
                LOCKED(change(graph, (Pairs){from, to, NULL, count})))                                   \
  EXPORTED_WHEN(graph != NULL, name##_v2,                                                                \
                (Graph * graph, Node *const *from, Node *const *to, const EdgeData *data, size_t count), \
                LOCKED(change(graph, (Pairs){from, to, data, count})))
CHANGES_EDGES(cuGraphAddDependencies, add_edges)
CHANGES_EDGES(cuGraphRemoveDependencies, remove_edges)

/* -- one node -- */

API_LOCKED(cuGraphDestroyNode, (Node * handle), (handle)) {
  Node *node = cl_node(handle);
  if (!node) return CUDA_ERROR_INVALID_VALUE;
  if (node->graph->sole) return CUDA_ERROR_NOT_SUPPORTED;
  if (node->graph->capture) return CUDA_ERROR_ILLEGAL_STATE;
  cl_node_remove(node);
  return CUDA_SUCCESS;
}

GRAPH_ASK(cuGraphNodeGetType, Node, cl_node, int *, one->parameters.type)
GRAPH_ASK(cuGraphNodeGetContainingGraph, Node, cl_node, Graph **, one->graph)
GRAPH_ASK(cuGraphNodeGetLocalId, Node, cl_node, unsigned *, one->local)
GRAPH_ASK(cuGraphNodeGetToolsId, Node, cl_node, uint64_t *, (one->graph->id << 32) | one->local)
GRAPH_ASK(cuGraphGetId, Graph, cl_graph, unsigned *, (unsigned)one->id)

/* -- attributes of kernel nodes -- */

static bool is_attribute(int attribute) {
  const unsigned all = 1u << CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW | 1u << CU_LAUNCH_ATTRIBUTE_COOPERATIVE |
                       1u << CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION | 1u << CU_LAUNCH_ATTRIBUTE_PRIORITY |
                       1u << CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE |
                       1u << CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP | 1u << CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN |
                       1u << CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE |
                       1u << CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT;
  return attribute >= 0 && attribute < STREAM_ATTRIBUTES && all >> attribute & 1;
}

static Node *kernel_node(void *handle) {
  Node *node = cl_node(handle);
  return node && node->parameters.type == NODE_KERNEL ? node : NULL;
}

API_LOCKED(cuGraphKernelNodeGetAttribute, (Node * handle, int attribute, AttributeValue *value),
           (handle, attribute, value)) {
  const Node *node = kernel_node(handle);
  if (!node || !value || !is_attribute(attribute)) return CUDA_ERROR_INVALID_VALUE;
  AttributeValue found = node->attributes ? node->attributes[attribute] : (AttributeValue){0};
  bool given = node->attributes_set & (1u << attribute);
  if (!given && attribute == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP) found.bytes[1] = 1;
  cl_write_attribute(value, &found, attribute);
  return CUDA_SUCCESS;
}

static CUresult set_attribute(void *handle, int attribute, const AttributeValue *value) {
  Node *node = kernel_node(handle);
  AttributeValue *place = node ? cl_node_attribute(node, (unsigned)attribute) : NULL;
  if (!place) return node ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
  *place = *value;
  node->attributes_set |= 1u << attribute;
  return CUDA_SUCCESS;
}

/* Reads what a node does; false if it does not launch a kernel. */
static bool read_kernel(void *handle, KernelNode *kernel) {
  HOLD_STREAMS();
  const Node *node = kernel_node(handle);
  if (node) *kernel = node->parameters.kernel;
  return node;
}

API(cuGraphKernelNodeSetAttribute, (Node * handle, int attribute, const AttributeValue *value),
    (handle, attribute, value)) {
  KernelNode kernel;
  if (!read_kernel(handle, &kernel) || !value) return CUDA_ERROR_INVALID_VALUE;
  if (attribute == CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING) return CUDA_SUCCESS; /* and cannot be asked */
  if (!is_attribute(attribute)) return CUDA_ERROR_INVALID_VALUE;
  AttributeValue fit = *value;
  if (!cl_fit_attribute(attribute, &fit)) return CUDA_ERROR_INVALID_VALUE;
  CUresult result =
      attribute == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION ? cl_check_cluster(&kernel, value) : CUDA_SUCCESS;
  return result ? result : LOCKED(set_attribute(handle, attribute, &fit));
}

API_LOCKED(cuGraphKernelNodeCopyAttributes, (Node * to, Node *from), (to, from)) {
  Node *target = kernel_node(to);
  const Node *source = kernel_node(from);
  if (!target || !source || target->parameters.kernel.context != source->parameters.kernel.context)
    return CUDA_ERROR_INVALID_VALUE;
  if (!cl_node_attribute(target, 0)) return CUDA_ERROR_OUT_OF_MEMORY;
  for (int at = 0; at < STREAM_ATTRIBUTES; at++)
    target->attributes[at] = source->attributes ? source->attributes[at] : (AttributeValue){0};
  target->attributes_set = source->attributes_set;
  return CUDA_SUCCESS;
}

/* -- what a graph holds besides nodes -- */

static CUresult retain(void *handle, void *object, unsigned count, unsigned flags) {
  Graph *graph = cl_graph(handle);
  if (!graph || flags > CU_GRAPH_USER_OBJECT_MOVE) return CUDA_ERROR_INVALID_VALUE;
  return cl_user_object_hold(&graph->users, object, count, flags == CU_GRAPH_USER_OBJECT_MOVE);
}
EXPORTED_WHEN(graph != NULL, cuGraphRetainUserObject, (Graph * graph, void *object, unsigned count, unsigned flags),
              cl_user_objects_report("cuGraphRetainUserObject", LOCKED(retain(graph, object, count, flags))))

static CUresult release(void *handle, void *object, unsigned count) {
  Graph *graph = cl_graph(handle);
  return graph ? cl_user_object_let_go(&graph->users, object, count) : CUDA_ERROR_INVALID_VALUE;
}
EXPORTED_WHEN(graph != NULL, cuGraphReleaseUserObject, (Graph * graph, void *object, unsigned count),
              cl_user_objects_report("cuGraphReleaseUserObject", LOCKED(release(graph, object, count))))

enum { ASSIGN_DEFAULT = 1 }; /* CU_GRAPH_COND_ASSIGN_DEFAULT */

static CUresult make_condition(uint64_t *out, void *handle, Context *context, unsigned value, unsigned flags) {
  Graph *graph = cl_graph(handle);
  if (!graph) return CUDA_ERROR_INVALID_VALUE;
  const Conditional *made =
      cl_conditional_make(graph, HANDLE_CONDITIONAL, context, flags & ASSIGN_DEFAULT ? value : 0, flags);
  if (made) *out = (uintptr_t)made;
  return made ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API_WHEN(graph != NULL, cuGraphConditionalHandleCreate,
         (uint64_t *out, Graph *graph, Context *context, unsigned value, unsigned flags),
         (out, graph, context, value, flags)) {
  if (!out || !graph || flags > ASSIGN_DEFAULT) return CUDA_ERROR_INVALID_VALUE;
  /* NULL is not the current one here (measured: programs/graphs) */
  if (!context || !cl_is_known_context(context)) return CUDA_ERROR_INVALID_CONTEXT;
  if (context->dead) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  return LOCKED(make_condition(out, graph, context, value, flags));
}

/* -- graphs as text -- */

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
  EACH_EDGE(edge, graph)
  fprintf(file, "\"graph_%u_node_%u\" -> \"graph_%u_node_%u\";\n", id, edge->from->local, id, edge->to->local);
  for (size_t at = 0; at < graph->count; at++) {
    const NodeParameters *parameters = &graph->nodes[at]->parameters;
    if (parameters->type == NODE_CHILD && parameters->child.graph) print_graph(file, parameters->child.graph, flags);
    for (unsigned body = 0; parameters->type == NODE_CONDITIONAL && body < parameters->conditional.size; body++)
      print_graph(file, parameters->conditional.bodies[body], flags);
  }
  fprintf(file, "}\n");
}

API_LOCKED_WHEN(handle != NULL, cuGraphDebugDotPrint, (Graph * handle, const char *path, unsigned flags),
                (handle, path, flags)) {
  const Graph *graph = cl_graph(handle);
  if (!graph || !path) return CUDA_ERROR_INVALID_VALUE;
  FILE *file = fopen(path, "w");
  if (!file) return CUDA_ERROR_OPERATING_SYSTEM;
  fprintf(file, "digraph dot {\n");
  print_graph(file, graph, flags);
  fprintf(file, "}\n");
  return fclose(file) ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
}
