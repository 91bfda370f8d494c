/* Executable graphs: making, updating, destroying them. */
#include "graph_exec.h"

#include <stdlib.h>

#include "capture.h"
#include "graph_rules.h"

Executable *cl_executable(const void *handle) {
  return cl_handle_is(handle, HANDLE_GRAPH_EXEC) ? (Executable *)(uintptr_t)handle : NULL;
}

/* -- making -- */

typedef struct {
  uint64_t flags;
  void *stream;
  Node *failed;
  int result;
} Instantiation;
_Static_assert(sizeof(Instantiation) == 32, "CUDA_GRAPH_INSTANTIATE_PARAMS");

/* The conditional node that a graph is in the body of; NULL if it is in none. */
static const Node *conditional_of(const Graph *graph) {
  while (graph->owner && graph->owner->parameters.type != NODE_CONDITIONAL) graph = graph->owner->graph;
  return graph->owner;
}

/* Checks a graph, but for those within it. */
static CUresult check_outer(const Graph *graph, Instantiation *how) {
  how->result = CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE;
  Node **order = malloc((graph->count + 1) * sizeof *order);
  if (!order) return CUDA_ERROR_OUT_OF_MEMORY;
  how->failed = cl_graph_sort(graph, order);
  free(order);
  if (how->failed) return CUDA_ERROR_INVALID_VALUE;
  for (const Conditional *one = graph->conditionals; one; one = one->next)
    if (!one->node) {
      how->result = CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED;
      return CUDA_ERROR_INVALID_VALUE;
    }
  how->result = CUDA_GRAPH_INSTANTIATE_SUCCESS;
  bool by_device = how->flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH;
  const Node *in_body = conditional_of(graph);
  for (size_t at = 0; (by_device || in_body) && at < graph->count; at++) {
    const NodeParameters *parameters = &graph->nodes[at]->parameters;
    if (in_body) how->result = cl_body_takes(parameters, in_body->parameters.conditional.context);
    if (by_device && !cl_runs_on_device(parameters->type))
      how->result = CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED;
    if (how->result == CUDA_GRAPH_INSTANTIATE_SUCCESS) continue;
    how->failed = graph->nodes[at];
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

static CUresult make(Executable **out, Graph *graph, const Instantiation *how) {
  static uint64_t last;
  Graph *copy = cl_graph_copy(graph, true);
  Executable *made = copy ? cl_object_make(sizeof *made, HANDLE_GRAPH_EXEC, NULL, NULL) : NULL;
  if (!made) return cl_graph_free(copy), CUDA_ERROR_OUT_OF_MEMORY;
  made->graph = copy;
  made->flags =
      how->flags & ~(uint64_t)(CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY);
  made->source_id = graph->id;
  made->source = graph;
  made->sole = cl_graph_is_unique(graph);
  graph->sole_executables += made->sole;
  made->id = ++last;
  graph->executables++;
  *out = made;
  return CUDA_SUCCESS;
}

static CUresult instantiate(Executable **out, void *handle, Instantiation *how) {
  Graph *graph = cl_graph(handle);
  how->failed = NULL;
  if (!out || !graph) return CUDA_ERROR_INVALID_VALUE;
  if (graph->owner) return cl_graph_is_body(graph) ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
  for (Graph *one = graph; one; one = cl_graph_behind(graph, one)) TRY(check_outer(one, how));
  how->result = CUDA_GRAPH_INSTANTIATE_ERROR;
  if (graph->sole_executables || graph->of_itself || (graph->conditionals && graph->executables))
    return CUDA_ERROR_NOT_SUPPORTED; /* whose conditions came later, too (recorded programs) */
  if (how->flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH && !graph->count) return CUDA_ERROR_INVALID_VALUE;
  TRY(make(out, graph, how));
  how->result = CUDA_GRAPH_INSTANTIATE_SUCCESS;
  return CUDA_SUCCESS;
}

enum {
  PLAIN_FLAGS = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH |
      CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY,
  ALL_FLAGS = PLAIN_FLAGS | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD
};

static bool valid_flags(uint64_t flags, uint64_t allowed) {
  bool both =
      flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH && flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH;
  return !(flags & ~allowed) && !both;
}

/* In a context, and where no capture prohibits it; the graph that a caller names is looked at last. */
static CUresult instantiate_in_context(EventLine *line, Executable **out, void *graph, Instantiation *how) {
  Stream *stream;
  cl_event_uint(line, "flags", how->flags);
  TRY(cl_check_context());
  bool uploads = how->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD;
  TRY(uploads ? cl_refuse_captured(how->stream, &stream) : cl_prohibited());
  if (cl_graph(graph)) TRY(cl_prohibited());
  return instantiate(out, graph, how);
}

API_WHEN(valid_flags(flags, PLAIN_FLAGS), cuGraphInstantiateWithFlags,
         (Executable * *out, Graph *graph, uint64_t flags), (out, graph, flags)) {
  if (!valid_flags(flags, PLAIN_FLAGS)) return CUDA_ERROR_INVALID_VALUE;
  return LOCKED(instantiate_in_context(line, out, graph, &(Instantiation){.flags = flags}));
}

API_WHEN(how != NULL, cuGraphInstantiateWithParams, (Executable * *out, Graph *graph, Instantiation *how),
         (out, graph, how)) {
  if (!how) return CUDA_ERROR_INVALID_VALUE;
  how->result = CUDA_GRAPH_INSTANTIATE_ERROR;
  if (!valid_flags(how->flags, ALL_FLAGS)) return CUDA_ERROR_INVALID_VALUE;
  return LOCKED(instantiate_in_context(line, out, graph, how));
}

/* The functions of before 11.4, which say in words what failed. */
API(cuGraphInstantiate_v2, (Executable * *out, Graph *graph, Node **failed, char *words, size_t room),
    (out, graph, failed, words, room)) {
  Instantiation how = {0};
  CUresult result = LOCKED(instantiate_in_context(line, out, graph, &how));
  if (words && room) words[0] = 0;
  if (failed) *failed = how.failed;
  return result;
}

/* -- destroying -- */

void cl_executable_leave(Executable *executable) {
  if (executable->running || executable->head.kind == HANDLE_GRAPH_EXEC) return;
  const Graph *source = cl_graph(executable->source);
  if (source && source->id == executable->source_id) {
    executable->source->executables--;
    executable->source->sole_executables -= executable->sole;
  }
  cl_graph_free(executable->graph);
  free(executable->clock);
  cl_object_end(&executable->head);
}

API_LOCKED(cuGraphExecDestroy, (Executable * handle), (handle)) {
  CUresult result = cl_prohibited();
  Executable *executable = cl_executable(handle);
  if (result) return result;
  if (!executable) return CUDA_ERROR_INVALID_VALUE;
  cl_object_unname(&executable->head);
  cl_executable_leave(executable);
  return CUDA_SUCCESS;
}

GRAPH_ASK(cuGraphExecGetFlags, Executable, cl_executable, uint64_t *, one->flags)
GRAPH_ASK(cuGraphExecGetId, Executable, cl_executable, unsigned *, (unsigned)one->id)

/* -- updating as a whole -- */

typedef struct {
  int result;
  Node *node, *from;
} UpdateResult;
_Static_assert(sizeof(UpdateResult) == 24, "CUgraphExecUpdateResultInfo");

static bool differs(UpdateResult *how, int result, Node *node, Node *from) {
  *how = (UpdateResult){result, node, from};
  return true;
}

/* Whether a graph, but for those within it, differs from an executable one in more than parameters that may change;
   nodes are paired in the order of their making. */
static bool outer_differs(const Graph *old, const Graph *fresh, UpdateResult *how) {
  if (old->count != fresh->count) return differs(how, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, NULL, NULL);
  size_t roots = 0, fewer = 0;
  for (size_t at = 0; at < old->count; at++) {
    old->nodes[at]->mark = fresh->nodes[at]->mark = at;
    roots += !fresh->nodes[at]->into.first;
    fewer += !old->nodes[at]->into.first;
  }
  if (roots < fewer) return differs(how, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, NULL, NULL);
  for (size_t at = old->count; at-- > 0;) { /* the last one first (H200) */
    Node *was = old->nodes[at], *is = fresh->nodes[at];
    if (was->parameters.type != is->parameters.type)
      return differs(how, CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, is, NULL);
    const Edge *before = was->into.first, *now = is->into.first;
    for (; before && now; before = before->behind[EDGES_INTO], now = now->behind[EDGES_INTO])
      if (before->from->mark != now->from->mark)
        return differs(how, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, is, now->from);
    if (before || now) return differs(how, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, is, NULL);
  }
  for (size_t at = 0; at < old->count; at++) {
    const NodeParameters *was = &old->nodes[at]->parameters, *is = &fresh->nodes[at]->parameters;
    if (!cl_parameters_may_become(was, is, false))
      return differs(how,
                     was->type == NODE_KERNEL ? CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE
                                              : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED,
                     fresh->nodes[at], NULL);
  }
  return false;
}

static void exchange_outer(Graph *old, Graph *fresh) {
  for (size_t at = 0; at < old->count; at++) {
    Node *was = old->nodes[at], *is = fresh->nodes[at];
    NodeParameters kept = was->parameters;
    if (kept.type == NODE_CHILD) continue;
    if (kept.type == NODE_CONDITIONAL) {
      const Conditional *from = (const Conditional *)(uintptr_t)is->parameters.conditional.handle;
      Conditional *to = (Conditional *)(uintptr_t)kept.conditional.handle;
      to->value = from->value;
      to->flags = from->flags;
      continue;
    }
    was->parameters = is->parameters;
    is->parameters = kept;
  }
  cl_user_objects_exchange(&old->users, &fresh->users);
}

/* Gives a graph of an executable one the parameters of another graph, which must have its shape. */
static CUresult replace(Graph *old, Graph *fresh, UpdateResult *how) {
  /* graphs whose outer ones are alike own the same number of graphs, in the same order */
  for (Graph *was = old, *is = fresh; was; was = cl_graph_behind(old, was), is = cl_graph_behind(fresh, is))
    if (outer_differs(was, is, how)) return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  Graph *copy = cl_graph_copy(fresh, true);
  if (!copy) return CUDA_ERROR_OUT_OF_MEMORY;
  for (Graph *was = old, *is = copy; was; was = cl_graph_behind(old, was), is = cl_graph_behind(copy, is))
    exchange_outer(was, is);
  cl_graph_free(copy);
  how->result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
  return CUDA_SUCCESS;
}

static CUresult update(void *handle, void *graph_handle, UpdateResult *how) {
  const Executable *executable = cl_executable(handle);
  Graph *graph = cl_graph(graph_handle);
  UpdateResult unwanted;
  if (!how) how = &unwanted; /* (measured: test_update) */
  *how = (UpdateResult){.result = CU_GRAPH_EXEC_UPDATE_ERROR};
  if (!executable || !graph || graph->owner || graph->of_itself) return CUDA_ERROR_INVALID_VALUE;
  return replace(executable->graph, graph, how);
}
EXPORTED(cuGraphExecUpdate_v2, (Executable * executable, Graph *graph, UpdateResult *how),
         LOCKED(update(executable, graph, how)))

API(cuGraphExecUpdate, (Executable * executable, Graph *graph, Node **failed, int *result),
    (executable, graph, failed, result)) {
  UpdateResult how;
  CUresult answer = LOCKED(update(executable, graph, &how));
  if (failed) *failed = how.node;
  bool other_shape = how.result == CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED && !how.node;
  if (result)
    *result = other_shape ? CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED : how.result; /* (measured: edges/old_calls) */
  return answer;
}

/* -- one node -- */

Node *cl_stand_in(void *handle, void *node_handle) {
  const Executable *executable = cl_executable(handle);
  const Node *node = cl_node(node_handle);
  return executable && node ? cl_node_like(executable->graph, node->id, true) : NULL;
}

CUresult cl_put_child(void *executable, void *handle, void *child) {
  const Node *node = cl_stand_in(executable, handle);
  Graph *fresh = cl_graph(child);
  UpdateResult how;
  if (fresh && fresh->sole) return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE; /* before the node (recorded programs) */
  if (!node || !fresh || node->parameters.type != NODE_CHILD) return CUDA_ERROR_INVALID_VALUE;
  return replace(node->parameters.child.graph, fresh, &how);
}

static bool can_be_disabled(const Node *node) {
  int type = node ? node->parameters.type : NODE_EMPTY;
  return type == NODE_KERNEL || type == NODE_COPY || type == NODE_FILL;
}

API_LOCKED_WHEN(executable != NULL, cuGraphNodeSetEnabled, (Executable * executable, Node *handle, unsigned enabled),
                (executable, handle, enabled)) {
  Node *node = cl_stand_in(executable, handle);
  if (!can_be_disabled(node)) return CUDA_ERROR_INVALID_VALUE;
  node->disabled = !enabled;
  return CUDA_SUCCESS;
}

API_LOCKED_WHEN(executable != NULL, cuGraphNodeGetEnabled, (Executable * executable, Node *handle, unsigned *enabled),
                (executable, handle, enabled)) {
  const Node *node = cl_stand_in(executable, handle);
  if (!enabled || !can_be_disabled(node)) return CUDA_ERROR_INVALID_VALUE;
  *enabled = !node->disabled;
  return CUDA_SUCCESS;
}
