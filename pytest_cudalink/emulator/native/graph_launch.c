/* Launching graphs: everything in them but kernels is done at once, in the order of the edges. */
#include <stdlib.h>

#include "calls.h"
#include "capture.h"
#include "contexts.h"
#include "copies.h"
#include "graph_exec.h"
#include "graph_memory.h"
#include "graph_rules.h"
#include "stream_operations.h"

/* The body that a conditional node runs, or NULL: no kernel changes the value that it begins with. */
static Graph *body_of(const ConditionalNode *conditional) {
  unsigned value = ((const Conditional *)(uintptr_t)conditional->handle)->value;
  unsigned body = conditional->type == CONDITION_SWITCH ? value : !value;
  if (conditional->type == CONDITION_WHILE) return value ? conditional->bodies[0] : NULL;
  return body < conditional->size ? conditional->bodies[body] : NULL;
}

/* Why a graph cannot be run here; NULL if it can. */
static const char *obstacle(const Graph *graph) {
  for (size_t at = 0; at < graph->count; at++) {
    const Node *node = graph->nodes[at];
    const NodeParameters *parameters = &node->parameters;
    const char *found = NULL;
    if (node->disabled) continue;
    switch (parameters->type) {
      case NODE_KERNEL: return "the graph has a kernel node, and the emulated driver does not execute kernels";
      case NODE_SIGNAL_SEMAPHORES:
      case NODE_WAIT_SEMAPHORES: return "the graph has a node for external semaphores, which are not emulated";
      case NODE_CHILD: found = obstacle(parameters->child.graph); break;
      case NODE_CONDITIONAL:
        if (!body_of(&parameters->conditional)) break;
        found = obstacle(body_of(&parameters->conditional));
        if (!found && parameters->conditional.type == CONDITION_WHILE)
          found = "the graph has a loop that only a kernel can end";
        break;
      default: break;
    }
    if (found) return found;
  }
  return NULL;
}

/* Calls the host without the lock; the executable graph stays meanwhile. */
static void call_host(Executable *executable, HostNode host) {
  executable->running++;
  cl_streams_unlock(CUDA_SUCCESS);
  host.function(host.data);
  cl_streams_lock();
  executable->running--;
}

static CUresult run(EventLine *line, Executable *executable, const Graph *graph);

static CUresult run_node(EventLine *line, Executable *executable, const Node *node) {
  const NodeParameters *parameters = &node->parameters;
  const FillNode *fill = &parameters->fill;
  switch (parameters->type) {
    case NODE_COPY: return cl_copy_box(&parameters->copy.box);
    case NODE_FILL: return cl_fill(fill->to, fill->value, fill->element, fill->pitch, fill->width, fill->height);
    case NODE_HOST: call_host(executable, parameters->host); return CUDA_SUCCESS;
    case NODE_CHILD: return run(line, executable, parameters->child.graph);
    case NODE_RECORD:
      if (cl_event(parameters->event)) cl_event_stamp(parameters->event);
      return CUDA_SUCCESS;
    case NODE_ALLOCATE: return cl_graph_memory_take(node->memory);
    case NODE_FREE:
      if (!node->memory->live) return CUDA_ERROR_INVALID_VALUE;
      cl_graph_memory_give(node->memory);
      return CUDA_SUCCESS;
    case NODE_MEMORY_OPERATIONS:
      return cl_do_operations(line, parameters->operations.count, parameters->operations.list);
    case NODE_CONDITIONAL: {
      const Graph *body = body_of(&parameters->conditional);
      return body ? run(line, executable, body) : CUDA_SUCCESS;
    }
    default: return CUDA_SUCCESS;
  }
}

static CUresult run(EventLine *line, Executable *executable, const Graph *graph) {
  Node **order = malloc((graph->count + 1) * sizeof *order);
  if (!order) return CUDA_ERROR_OUT_OF_MEMORY;
  cl_graph_sort(graph, order);
  CUresult result = CUDA_SUCCESS;
  for (size_t at = 0; at < graph->count && !result; at++)
    if (!order[at]->disabled) result = run_node(line, executable, order[at]);
  free(order);
  return result;
}

/* Frees what earlier launches allocated and nothing freed. */
static void free_all(const Graph *graph) {
  for (size_t at = 0; at < graph->count; at++) {
    const Node *node = graph->nodes[at];
    if (node->parameters.type == NODE_ALLOCATE) cl_graph_memory_give(node->memory);
    if (node->parameters.type == NODE_CHILD) free_all(node->parameters.child.graph);
  }
}

/* Whether an allocation of an earlier launch is still there, which the graph makes again. */
static bool holds_memory(const Graph *graph) {
  for (size_t at = 0; at < graph->count; at++) {
    const Node *node = graph->nodes[at];
    if (node->parameters.type == NODE_ALLOCATE && node->memory->live) return true;
    if (node->parameters.type == NODE_CHILD && holds_memory(node->parameters.child.graph)) return true;
  }
  return false;
}

/* Neither a launch nor an upload can be captured (measured); the stream is looked at before the graph. */
static CUresult find(const void *stream_handle, void *handle, Executable **executable) {
  Stream *stream;
  CUresult result = cl_check_context();
  if (!result) result = cl_refuse_captured(stream_handle, &stream);
  *executable = cl_executable(handle);
  if (result) return result;
  return *executable ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult launch(EventLine *line, void *handle, const void *stream) {
  Executable *executable;
  CUresult result = find(stream, handle, &executable);
  if (result) return result;
  const char *why = obstacle(executable->graph);
  if (why) return cl_unsupported(line, why);
  if (executable->flags & AUTO_FREE) free_all(executable->graph);
  if (holds_memory(executable->graph)) return CUDA_ERROR_INVALID_VALUE;
  executable->running++;
  result = run(line, executable, executable->graph);
  executable->running--;
  cl_executable_leave(executable);
  return result;
}
EXPORTED(cuGraphLaunch, (Executable * executable, Stream *stream), LOCKED(launch(line, executable, stream)))

static CUresult upload(void *handle, const void *stream) {
  Executable *executable;
  return find(stream, handle, &executable);
}
EXPORTED(cuGraphUpload, (Executable * executable, Stream *stream), LOCKED(upload(executable, stream)))
