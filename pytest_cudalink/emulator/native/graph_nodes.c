/* Nodes: adding them, asking for their parameters, changing those. */
#include <stdlib.h>
#include <string.h>

#include "graph_exec.h"
#include "graph_memory.h"
#include "graph_rules.h"

enum { KERNEL_NODE_V1 = 56, FILL_NODE_V1 = 40 };

/* What a call of the API has at the parameters of a kind of node. */
static NodeParameters node_parameters(int type, const void *given, size_t size) {
  NodeParameters parameters = {.type = type};
  memcpy(parameters.reserved1, given, size);
  return parameters;
}

static NodeParameters copy_parameters(const Box *box, Context *context) {
  return (NodeParameters){.type = NODE_COPY, .copy = {.context = context, .box = *box}};
}

static NodeParameters fill_parameters(const void *given, Context *context) {
  NodeParameters parameters = node_parameters(NODE_FILL, given, FILL_NODE_V1);
  parameters.fill.context = context;
  return parameters;
}

/* -- adding -- */

typedef struct {
  Node **out;
  void *graph;
  Node *const *on;
  const EdgeData *data;
  size_t count;
} NewNode;

static CUresult adopt_child(ChildNode *child, Graph *parent) {
  Graph *graph = cl_graph(child->graph);
  if (!graph) return CUDA_ERROR_INVALID_VALUE;
  bool moves = child->ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE; /* any other number copies (H200) */
  if (moves ? graph->conditionals != NULL : cl_graph_is_unique(graph)) return CUDA_ERROR_NOT_SUPPORTED;
  if (moves && graph == parent && !graph->owner && !graph->capture) /* may be, and has no use (recorded programs) */
    return child->graph = NULL, graph->of_itself = true, CUDA_SUCCESS;
  if (cl_graph_root(parent) == graph) return CUDA_ERROR_INVALID_VALUE;
  if (moves) {
    if (graph->owner || graph->capture || graph->executables) return CUDA_ERROR_INVALID_VALUE;
    graph->moved = true;
    return CUDA_SUCCESS;
  }
  child->graph = cl_graph_copy(graph, parent->hidden);
  return child->graph ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult make_bodies(ConditionalNode *conditional, Graph *graph) {
  if (!cl_handle_is((void *)(uintptr_t)conditional->handle, HANDLE_CONDITIONAL)) return CUDA_ERROR_INVALID_VALUE;
  const Conditional *condition = (const Conditional *)(uintptr_t)conditional->handle;
  if (condition->node || cl_graph_root(graph) != cl_graph_root(condition->graph)) return CUDA_ERROR_INVALID_VALUE;
  if (condition->context != conditional->context) return CUDA_ERROR_INVALID_VALUE; /* (two H200s) */
  conditional->bodies = calloc(conditional->size, sizeof(Graph *));
  unsigned made = 0;
  for (; conditional->bodies && made < conditional->size; made++) {
    conditional->bodies[made] = cl_graph_make(false);
    if (!conditional->bodies[made]) break;
  }
  if (made == conditional->size) return CUDA_SUCCESS;
  while (made) cl_graph_free(conditional->bodies[--made]);
  free(conditional->bodies);
  conditional->bodies = NULL;
  return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Gives a node what only the graph knows: a child, bodies, memory. */
static CUresult complete(NodeParameters *parameters, Graph *graph, GraphMemory **memory) {
  switch (parameters->type) {
    case NODE_CHILD: return adopt_child(&parameters->child, graph);
    case NODE_CONDITIONAL: return make_bodies(&parameters->conditional, graph);
    case NODE_ALLOCATE:
      TRY(cl_allocation_possible(&parameters->allocate));
      graph->sole = true;
      *memory = cl_graph_memory_make(parameters->allocate.size, &parameters->allocate.properties, graph);
      if (*memory) parameters->allocate.address = (*memory)->address;
      return *memory ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    case NODE_FREE:
      if (graph->sole_executables) return CUDA_ERROR_INVALID_VALUE;
      graph->sole = true; /* even if it frees nothing (measured: programs/graphs) */
      *memory = cl_graph_memory_at(parameters->address);
      return *memory ? cl_graph_memory_free_in(*memory, graph) : CUDA_ERROR_INVALID_VALUE;
    default: return cl_parameters_check_handles(parameters);
  }
}

static CUresult add_to(Graph *graph, const NewNode *adding, NodeParameters *parameters, const Dependencies *on) {
  GraphMemory *memory = NULL;
  TRY(cl_graph_takes(graph, parameters->type));
  TRY(complete(parameters, graph, &memory));
  Node *node = cl_node_add(graph, parameters, on);
  if (!node) {
    if (memory && !memory->nodes) memory->drop(memory);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  node->memory = memory;
  if (memory) memory->nodes++;
  if (parameters->type == NODE_CONDITIONAL) ((Conditional *)(uintptr_t)parameters->conditional.handle)->node = node;
  *adding->out = node;
  return CUDA_SUCCESS;
}

/* Whether a child is refused even before its parent and the dependencies are looked at (measured: programs/graphs). */
static bool cannot_be_child(const NodeParameters *parameters) {
  if (parameters->type != NODE_CHILD || parameters->child.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE)
    return false;
  const Graph *graph = cl_graph(parameters->child.graph);
  return graph && cl_graph_is_unique(graph);
}

static CUresult add_locked(const NewNode *adding, NodeParameters *parameters) {
  Graph *graph = cl_graph_to_grow(adding->graph);
  if (cannot_be_child(parameters)) return CUDA_ERROR_NOT_SUPPORTED;
  if (!graph) return CUDA_ERROR_INVALID_VALUE;
  Dependencies on = {0};
  CUresult result = cl_gather(graph, parameters->type, adding->on, adding->data, adding->count, &on, true);
  if (!result) result = add_to(graph, adding, parameters, &on);
  cl_dependencies_clear(&on);
  return result;
}

/* Adds a node; the parameters are completed with what the driver chose. */
static CUresult add(EventLine *line, NewNode adding, NodeParameters *parameters) {
  bool unnamed = parameters->type == NODE_KERNEL && !parameters->kernel.function && !parameters->kernel.kernel;
  if (unnamed) return CUDA_ERROR_INVALID_HANDLE; /* before the graph (measured: programs/graphs) */
  /* the graph comes behind the child (measured: programs/graphs) and the condition (edges/graph_conditional) */
  bool graph_last = parameters->type == NODE_CHILD || parameters->type == NODE_CONDITIONAL;
  if (!adding.out || (!adding.graph && !graph_last)) return CUDA_ERROR_INVALID_VALUE;
  cl_event_int(line, "type", parameters->type);
  TRY(cl_parameters_prepare(parameters));
  CUresult result = LOCKED(add_locked(&adding, parameters));
  if (result) cl_parameters_free(parameters);
  return result;
}

static CUresult add_made(EventLine *line, NewNode adding, NodeParameters parameters) {
  return add(line, adding, &parameters);
}

#define ADDING(...) (Node * *out, Graph * graph, Node *const *on, size_t count, ##__VA_ARGS__)
#define PLAINLY ((NewNode){out, graph, on, NULL, count})

/* Adds a node whose parameters are a structure that begins as the one of a node does. */
static CUresult add_given(EventLine *line, NewNode adding, int type, const void *given, size_t size) {
  return given ? add_made(line, adding, node_parameters(type, given, size)) : CUDA_ERROR_INVALID_VALUE;
}
EXPORTED_WHEN(graph != NULL, cuGraphAddEmptyNode, ADDING(), add_given(line, PLAINLY, NODE_EMPTY, "", 0))
EXPORTED(cuGraphAddMemFreeNode, ADDING(CUdeviceptr address),
         add_given(line, PLAINLY, NODE_FREE, &address, sizeof address))
EXPORTED(cuGraphAddChildGraphNode, ADDING(Graph *child),
         add_given(line, PLAINLY, NODE_CHILD, &(ChildNode){.graph = child}, sizeof(ChildNode)))
EXPORTED(cuGraphAddMemcpyNode, ADDING(const Box *box, Context *context),
         box ? add_made(line, PLAINLY, copy_parameters(box, context)) : CUDA_ERROR_INVALID_VALUE)
EXPORTED(cuGraphAddMemsetNode, ADDING(const void *given, Context *context),
         given ? add_made(line, PLAINLY, fill_parameters(given, context)) : CUDA_ERROR_INVALID_VALUE)

static CUresult add_allocation(EventLine *line, NewNode adding, AllocateNode *given) {
  if (!given) return CUDA_ERROR_INVALID_VALUE;
  NodeParameters parameters = {.type = NODE_ALLOCATE, .allocate = *given};
  CUresult result = add(line, adding, &parameters);
  if (!result) given->address = parameters.allocate.address;
  return result;
}
EXPORTED(cuGraphAddMemAllocNode, ADDING(AllocateNode *given), add_allocation(line, PLAINLY, given))

/* Whether everything is zero that a caller must leave so. */
static bool is_clean(const NodeParameters *parameters) {
  bool has_rest = parameters->type == NODE_CONDITIONAL || parameters->type == NODE_EMPTY; /* (H200) */
  const size_t all = sizeof parameters->reserved1, used = parameters->type == NODE_EMPTY ? 0 : sizeof(ConditionalNode);
  if (has_rest && !cl_are_zeros((const char *)parameters->reserved1 + used, all - used)) return false;
  if (parameters->reserved1[28]) return false; /* behind the parameters of each kind (H200) */
  return cl_are_zeros(parameters->reserved0, sizeof parameters->reserved0) && !parameters->reserved2;
}

static CUresult add_any(EventLine *line, NewNode adding, NodeParameters *given) {
  if (!given || !is_clean(given)) return CUDA_ERROR_INVALID_VALUE;
  NodeParameters parameters = *given;
  TRY(add(line, adding, &parameters));
  if (given->type == NODE_ALLOCATE) given->allocate.address = parameters.allocate.address;
  if (given->type == NODE_CONDITIONAL) given->conditional.bodies = parameters.conditional.bodies;
  return CUDA_SUCCESS;
}
/* Nodes that are looked at before the graph is, which needs a cuInit. */
static bool needs_driver(const NodeParameters *given) {
  if (!given) return false;
  const unsigned all =
      1u << NODE_KERNEL | 1u << NODE_COPY | 1u << NODE_FILL | 1u << NODE_CHILD | 1u << NODE_ALLOCATE | 1u << NODE_FREE;
  return given->type >= 0 && given->type < NODE_TYPES && all >> given->type & 1;
}
EXPORTED_WHEN(graph || needs_driver(given), cuGraphAddNode, ADDING(NodeParameters *given),
              add_any(line, PLAINLY, given))
EXPORTED_WHEN(graph || needs_driver(given), cuGraphAddNode_v3,
              (Node * *out, Graph *graph, Node *const *on, const EdgeData *data, size_t count, NodeParameters *given),
              add_any(line, (NewNode){out, graph, on, data, count}, given))

/* -- asking -- */

static CUresult get(void *handle, int type, void *out, size_t offset, size_t size) {
  const Node *node = cl_node(handle);
  if (!node || !out || node->parameters.type != type) return CUDA_ERROR_INVALID_VALUE;
  memcpy(out, (const char *)node->parameters.reserved1 + offset, size);
  if (type == NODE_CHILD && !node->parameters.child.graph) *(Graph **)out = node->graph;
  return CUDA_SUCCESS;
}
EXPORTED_WHEN(node != NULL, cuGraphMemAllocNodeGetParams, (Node * node, void *out),
              LOCKED(get(node, NODE_ALLOCATE, out, 0, sizeof(AllocateNode))))
EXPORTED_WHEN(node != NULL, cuGraphMemFreeNodeGetParams, (Node * node, void *out),
              LOCKED(get(node, NODE_FREE, out, 0, sizeof(CUdeviceptr))))
EXPORTED(cuGraphMemsetNodeGetParams, (Node * node, void *out), LOCKED(get(node, NODE_FILL, out, 0, FILL_NODE_V1)))
EXPORTED(cuGraphChildGraphNodeGetGraph, (Node * node, Graph **out),
         LOCKED(get(node, NODE_CHILD, out, 0, sizeof(Graph *))))
EXPORTED(cuGraphMemcpyNodeGetParams, (Node * node, Box *out),
         LOCKED(get(node, NODE_COPY, out, offsetof(CopyNode, box), sizeof(Box))))

GRAPH_ASK(cuGraphNodeGetParams, Node, cl_node, NodeParameters *, one->parameters)

/* -- changing -- */

/* A node as a call names it: one of a graph, or what stands for it in an executable graph. */
typedef struct {
  bool is_executable;
  void *executable, *node;
} NodeReference;
#define OF_GRAPH ((NodeReference){.node = node})
#define OF_EXECUTABLE ((NodeReference){true, executable, node})

static Node *find(const NodeReference *named) {
  return named->is_executable ? cl_stand_in(named->executable, named->node) : cl_node(named->node);
}

static CUresult put(const NodeReference *named, NodeParameters *parameters) {
  Node *node = find(named);
  if (!node || node->parameters.type != parameters->type) return CUDA_ERROR_INVALID_VALUE;
  TRY(cl_parameters_check_handles(parameters));
  if (named->is_executable && !cl_parameters_may_become(&node->parameters, parameters, true))
    return CUDA_ERROR_INVALID_VALUE;
  cl_parameters_free(&node->parameters);
  node->parameters = *parameters;
  return CUDA_SUCCESS;
}

static CUresult type_of(const NodeReference *named, int *type) {
  const Node *node = find(named);
  if (node) *type = node->parameters.type;
  return node ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult change(NodeReference named, NodeParameters parameters) {
  int type = -1;
  CUresult result = LOCKED(type_of(&named, &type));
  if (result || type != parameters.type) return CUDA_ERROR_INVALID_VALUE;
  if (type == NODE_CHILD && named.is_executable)
    return LOCKED(cl_put_child(named.executable, named.node, parameters.child.graph));
  bool fixed = type == NODE_CHILD || type == NODE_ALLOCATE || type == NODE_FREE || type == NODE_CONDITIONAL;
  if (fixed) return CUDA_ERROR_NOT_SUPPORTED;
  TRY(cl_parameters_prepare(&parameters));
  result = LOCKED(put(&named, &parameters));
  if (result) cl_parameters_free(&parameters);
  return result;
}

static CUresult set(NodeReference named, int type, const void *given, size_t size) {
  return given ? change(named, node_parameters(type, given, size)) : CUDA_ERROR_INVALID_VALUE;
}
EXPORTED_WHEN(node != NULL, cuGraphMemcpyNodeSetParams, (Node * node, const Box *box),
              box ? change(OF_GRAPH, copy_parameters(box, NULL)) : CUDA_ERROR_INVALID_VALUE)
EXPORTED_WHEN(executable != NULL, cuGraphExecMemcpyNodeSetParams,
              (Executable * executable, Node *node, const Box *box, Context *context),
              box ? change(OF_EXECUTABLE, copy_parameters(box, context)) : CUDA_ERROR_INVALID_VALUE)
EXPORTED_WHEN(node != NULL, cuGraphMemsetNodeSetParams, (Node * node, const void *given),
              set(OF_GRAPH, NODE_FILL, given, FILL_NODE_V1))
EXPORTED_WHEN(executable != NULL, cuGraphExecMemsetNodeSetParams,
              (Executable * executable, Node *node, const void *given, Context *context),
              given ? change(OF_EXECUTABLE, fill_parameters(given, context)) : CUDA_ERROR_INVALID_VALUE)
EXPORTED_WHEN(executable != NULL, cuGraphExecChildGraphNodeSetParams,
              (Executable * executable, Node *node, Graph *child), LOCKED(cl_put_child(executable, node, child)))

EXPORTED_WHEN(node != NULL, cuGraphNodeSetParams_v2, (Node * node, NodeParameters *given),
              !given || !is_clean(given) ? CUDA_ERROR_INVALID_VALUE : change(OF_GRAPH, *given))
EXPORTED_WHEN(executable != NULL, cuGraphExecNodeSetParams,
              (Executable * executable, Node *node, NodeParameters *given),
              given &&is_clean(given) ? change(OF_EXECUTABLE, *given) : CUDA_ERROR_INVALID_VALUE)

/* -- kinds whose functions differ in nothing else -- */

/* cuGraphAddXNode, cuGraphXNodeGetParams, cuGraphXNodeSetParams and cuGraphExecXNodeSetParams, which take the beginning
   of the structure of a kind; some add without a cuInit where the graph is NULL. */
#define KIND(kind, version, add_when, type, size)                                                      \
  EXPORTED_WHEN(add_when, cuGraphAdd##kind##Node##version, ADDING(const void *given),                  \
                add_given(line, PLAINLY, type, given, size))                                           \
  EXPORTED_WHEN(node != NULL, cuGraph##kind##NodeGetParams##version, (Node * node, void *out),         \
                LOCKED(get(node, type, out, 0, size)))                                                 \
  EXPORTED_WHEN(node != NULL, cuGraph##kind##NodeSetParams##version, (Node * node, const void *given), \
                set(OF_GRAPH, type, given, size))                                                      \
  EXPORTED_WHEN(executable != NULL, cuGraphExec##kind##NodeSetParams##version,                         \
                (Executable * executable, Node * node, const void *given), set(OF_EXECUTABLE, type, given, size))
KIND(Kernel, , true, NODE_KERNEL, KERNEL_NODE_V1)
KIND(Kernel, _v2, true, NODE_KERNEL, sizeof(KernelNode))
KIND(Host, , graph, NODE_HOST, sizeof(HostNode))
KIND(ExternalSemaphoresSignal, , true, NODE_SIGNAL_SEMAPHORES, sizeof(SemaphoreNode))
KIND(ExternalSemaphoresWait, , true, NODE_WAIT_SEMAPHORES, sizeof(SemaphoreNode))
KIND(BatchMemOp, , graph, NODE_MEMORY_OPERATIONS, sizeof(OperationsNode))

/* The same of events, which are passed by themselves: cuGraphXNodeGetEvent and so on. */
#define EVENT_KIND(kind, type)                                                          \
  EXPORTED_WHEN(graph, cuGraphAdd##kind##Node, ADDING(Event *event),                    \
                add_given(line, PLAINLY, type, &event, sizeof(Event *)))                \
  EXPORTED_WHEN(node != NULL, cuGraph##kind##NodeGetEvent, (Node * node, void *out),    \
                LOCKED(get(node, type, out, 0, sizeof(Event *))))                       \
  EXPORTED_WHEN(node != NULL, cuGraph##kind##NodeSetEvent, (Node * node, Event *event), \
                set(OF_GRAPH, type, &event, sizeof(Event *)))                           \
  EXPORTED_WHEN(executable != NULL, cuGraphExec##kind##NodeSetEvent,                    \
                (Executable * executable, Node * node, Event *event),                   \
                set(OF_EXECUTABLE, type, &event, sizeof(Event *)))
EVENT_KIND(EventRecord, NODE_RECORD)
EVENT_KIND(EventWait, NODE_WAIT)
