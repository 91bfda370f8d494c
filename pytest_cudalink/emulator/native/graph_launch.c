/* Launching graphs: at once, in the order of the edges, or as works of a queue. */
#include <stdlib.h>

#include "accesses.h"
#include "capture.h"
#include "copied_bytes.h"
#include "graph_exec.h"
#include "graph_memory.h"
#include "queues.h"

/* The body that a conditional node runs, or NULL: no kernel changes the value that it begins with. */
static Graph *body_of(const ConditionalNode *conditional) {
  unsigned value = ((const Conditional *)(uintptr_t)conditional->handle)->value;
  unsigned body = conditional->type == CU_GRAPH_COND_TYPE_SWITCH ? value : !value;
  if (conditional->type == CU_GRAPH_COND_TYPE_WHILE) return value ? conditional->bodies[0] : NULL;
  return body < conditional->size ? conditional->bodies[body] : NULL;
}

/* The graph within a node that it runs; NULL if it runs none. */
static Graph *inner_of(const NodeParameters *parameters) {
  if (parameters->type == NODE_CHILD) return parameters->child.graph;
  return parameters->type == NODE_CONDITIONAL ? body_of(&parameters->conditional) : NULL;
}

/* Why a graph cannot be run here; NULL if it can. */
static const char *obstacle(const Graph *graph) {
  for (size_t at = 0; at < graph->count; at++) {
    const Node *node = graph->nodes[at];
    const NodeParameters *parameters = &node->parameters;
    if (node->disabled) continue;
    if (parameters->type == NODE_KERNEL)
      return "the graph has a kernel node, and the emulated driver does not execute kernels";
    if (parameters->type == NODE_SIGNAL_SEMAPHORES || parameters->type == NODE_WAIT_SEMAPHORES)
      return "the graph has a node for external semaphores, which are not emulated";
    const Graph *inner = inner_of(parameters);
    const char *found = inner ? obstacle(inner) : NULL;
    if (found) return found;
    if (inner && parameters->type == NODE_CONDITIONAL && parameters->conditional.type == CU_GRAPH_COND_TYPE_WHILE)
      return "the graph has a loop that only a kernel can end";
  }
  return NULL;
}

/* Whether a graph can be run in the call: nothing in it calls the host or waits. */
static bool is_plain(const Graph *graph) {
  for (size_t at = 0; at < graph->count; at++) {
    int type = graph->nodes[at]->parameters.type;
    if (graph->nodes[at]->disabled) continue;
    if (type == NODE_HOST || type == NODE_WAIT || type == NODE_MEMORY_OPERATIONS) return false;
    const Graph *inner = inner_of(&graph->nodes[at]->parameters);
    if (inner && !is_plain(inner)) return false;
  }
  return true;
}

static CUresult run(const Graph *graph);

static CUresult run_node(const Node *node) {
  const NodeParameters *parameters = &node->parameters;
  const FillNode *fill = &parameters->fill;
  const Graph *inner = inner_of(parameters);
  switch (parameters->type) {
    case NODE_COPY: return cl_copy_box(&parameters->copy.box);
    case NODE_FILL: return cl_fill(fill->to, fill->value, fill->element, fill->pitch, fill->width, fill->height);
    case NODE_CHILD:
    case NODE_CONDITIONAL: return inner ? run(inner) : CUDA_SUCCESS;
    case NODE_RECORD:
      if (cl_event(parameters->event)) {
        cl_event_follow(parameters->event, NULL);
        cl_event_stamp(parameters->event);
      }
      return CUDA_SUCCESS;
    case NODE_ALLOCATE: return cl_graph_memory_take(node->memory);
    case NODE_FREE:
      if (!node->memory->live) return CUDA_ERROR_INVALID_VALUE;
      cl_graph_memory_give(node->memory);
      return CUDA_SUCCESS;
    default: return CUDA_SUCCESS;
  }
}

static CUresult run(const Graph *graph) {
  Node **order = malloc((graph->count + 1) * sizeof *order);
  if (!order) return CUDA_ERROR_OUT_OF_MEMORY;
  cl_graph_sort(graph, order);
  CUresult result = CUDA_SUCCESS;
  for (size_t at = 0; at < graph->count && !result; at++)
    if (!order[at]->disabled) result = run_node(order[at]);
  free(order);
  return result;
}

static bool expand(const Graph *graph, Context *context, Work *start, Work *end);

/* The work of a node, whose start differs from its end if it has a graph. */
static bool expand_node(const Node *node, Context *context, Work **start, Work **end) {
  const NodeParameters *parameters = node->disabled ? &cl_no_work : &node->parameters;
  const Graph *inner = inner_of(parameters);
  bool is_work =
      parameters->type != NODE_CHILD && parameters->type != NODE_CONDITIONAL && parameters->type != NODE_WAIT;
  *start = *end = cl_work_make(is_work ? parameters : &cl_no_work, context);
  if (!*start) return false;
  (*start)->handle = node->memory;
  if (cl_order_on) cl_order_place((*start)->op = cl_order_fork(true));
  Event *event = parameters->type == NODE_WAIT || parameters->type == NODE_RECORD ? parameters->event : NULL;
  if (event && parameters->type == NODE_WAIT && cl_event(event)) {
    cl_order_know((*start)->op, event->clock);
    return cl_work_after(*start, event->record);
  }
  if (event && cl_event(event)) cl_event_follow(event, *start);
  else if (event) (*start)->parameters.event = NULL;
  if (!inner) return true;
  *end = cl_work_make(&cl_no_work, context);
  if (*end && cl_order_on) cl_order_place((*end)->op = cl_order_fork(true));
  return *end && expand(inner, context, *start, *end);
}

/* Makes the works of a graph between two others; they are started, but `start` is not. */
static bool expand(const Graph *graph, Context *context, Work *start, Work *end) {
  Work **starts = calloc(2 * graph->count + 1, sizeof *starts), **ends = starts + graph->count;
  bool whole = starts;
  for (size_t at = 0; at < graph->count && whole; at++) {
    graph->nodes[at]->mark = at;
    whole = expand_node(graph->nodes[at], context, &starts[at], &ends[at]) && cl_work_after(starts[at], start) &&
            cl_work_after(end, ends[at]);
  }
  EACH_EDGE(edge, graph)
  whole = whole && cl_work_after(starts[edge->to->mark], ends[edge->from->mark]);
  for (size_t at = 0; at < graph->count && whole; at++) {
    starts[at]->stream = ends[at]->stream = start->stream;
    cl_work_start(starts[at]);
    if (ends[at] != starts[at]) cl_work_start(ends[at]);
  }
  free(starts);
  return whole && cl_work_after(end, start);
}

static void launched(Work *end) {
  Executable *executable = end->handle;
  if (end->op) cl_order_keep(&executable->clock, end->op);
  if (executable->last == end) executable->last = NULL;
  executable->running--;
  cl_executable_leave(executable);
}

/* Launches of one executable graph run one after the other, in whatever streams (a closed gate on an H100,
   driver 580.159.04). */
static CUresult queue(Executable *executable, Stream *stream) {
  Work *start = cl_work_make(&cl_no_work, stream->head.context), *end = cl_work_make(&cl_no_work, stream->head.context);
  if (start && end && cl_order_on) {
    start->op = cl_order_submit(stream, false, true);
    cl_order_know(start->op, executable->clock);
    end->op = cl_order_submit(stream, false, true);
  }
  if (!start || !end || !cl_work_in_order(start, stream, false) || !cl_work_after(start, executable->last) ||
      !expand(executable->graph, stream->head.context, start, end))
    return CUDA_ERROR_OUT_OF_MEMORY; /* works that were made are never started */
  end->parameters.type = WORK_LAUNCHED;
  end->stream = stream->id;
  end->handle = executable;
  end->end = launched;
  executable->last = end;
  executable->running++;
  cl_work_append(end, stream);
  cl_work_start(end);
  cl_work_start(start);
  return CUDA_SUCCESS;
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

/* Has the memory of a graph be for callers, from the launch on, what its end makes it. */
static CUresult claim(const Graph *graph) {
  CUresult result = CUDA_SUCCESS;
  for (size_t at = 0; at < graph->count && !result; at++) {
    GraphMemory *memory = graph->nodes[at]->memory;
    switch (graph->nodes[at]->parameters.type) {
      case NODE_CHILD: result = claim(graph->nodes[at]->parameters.child.graph); break;
      case NODE_ALLOCATE:
        cl_graph_memory_set(memory, memory->freed_in != memory->owner);
        cl_graph_memory_use(memory);
        break;
      case NODE_FREE:
        if (memory->freed_in == memory->owner) break;
        if (!memory->live) return CUDA_ERROR_INVALID_VALUE;
        cl_graph_memory_set(memory, false);
        break;
      default: break;
    }
  }
  return result;
}

/* What a launch answers that is not run in the call but could be: a schedule changes no answer. */
static CUresult check(const Graph *graph) {
  CUresult result = CUDA_SUCCESS;
  for (size_t at = 0; at < graph->count && !result; at++) {
    const NodeParameters *parameters = &graph->nodes[at]->parameters;
    const FillNode *fill = &parameters->fill;
    if (graph->nodes[at]->disabled) continue;
    switch (parameters->type) {
      case NODE_ALLOCATE: return CUDA_SUCCESS; /* what is behind it is not there yet */
      case NODE_COPY: result = cl_check_box(&parameters->copy.box); break;
      case NODE_FILL: result = cl_check_fill(fill->to, fill->element, fill->pitch, fill->width, fill->height); break;
      case NODE_CHILD: result = check(parameters->child.graph); break;
      default: break;
    }
  }
  return result;
}

/* Neither a launch nor an upload can be captured (measured: programs/capture). The stream comes before the graph. */
static CUresult find(const void *stream_handle, void *handle, Stream **stream, Executable **executable) {
  /* each has its own context (measured: edges/host_functions) */
  bool apart = (uintptr_t)stream_handle > CU_STREAM_PER_THREAD;
  CUresult result = apart ? CUDA_SUCCESS : cl_check_context();
  if (!result) result = cl_refuse_captured(stream_handle, stream);
  *executable = cl_executable(handle);
  if (result) return result;
  return *executable ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* The order of a graph that was run at once: its end, behind all of its nodes. */
static Op *order_nodes(const Graph *graph, Op *start) {
  Node **sorted = malloc((graph->count + 1) * sizeof *sorted);
  Op **ends = calloc(graph->count + 1, sizeof *ends), *end = cl_order_fork(false);
  if (sorted && ends) cl_graph_sort(graph, sorted);
  for (size_t at = 0; at < graph->count; at++) graph->nodes[at]->mark = at;
  for (size_t at = 0; sorted && ends && at < graph->count; at++) {
    const Node *node = sorted[at];
    const NodeParameters *parameters = node->disabled ? &cl_no_work : &node->parameters;
    const Graph *inner = inner_of(parameters);
    Op *op = cl_order_fork(false);
    for (const Edge *edge = node->into.first; edge; edge = edge->behind[EDGES_INTO])
      cl_order_after(op, ends[edge->from->mark]);
    cl_order_after(op, start);
    cl_order_place(op);
    if (parameters->type == NODE_COPY) cl_touch_box(op, &parameters->copy.box, false);
    else cl_touch_parameters(op, parameters);
    if (parameters->type == NODE_RECORD && cl_event(parameters->event)) cl_order_keep(&parameters->event->clock, op);
    ends[node->mark] = inner ? order_nodes(inner, op) : op;
    if (inner) cl_order_drop(op);
    cl_order_after(end, ends[node->mark]);
  }
  cl_order_after(end, start);
  cl_order_place(end);
  for (size_t at = 0; ends && at < graph->count; at++) cl_order_drop(ends[at]);
  free(sorted);
  free(ends);
  return end;
}

static void order_launch(Executable *executable, Stream *stream) {
  Op *start = cl_order_submit(stream, false, false);
  cl_order_know(start, executable->clock);
  Op *end = order_nodes(executable->graph, start);
  cl_order_keep(&executable->clock, end);
  cl_order_keep(&stream->clock, end);
  cl_order_drop(start);
  cl_order_drop(end);
}

API_LOCKED(cuGraphLaunch, (Executable * handle, Stream *stream_handle), (handle, stream_handle)) {
  Stream *stream;
  Executable *executable;
  TRY(find(stream_handle, handle, &stream, &executable));
  const char *why = obstacle(executable->graph);
  if (why) return cl_unsupported(line, why);
  const Graph *graph = executable->graph;
  bool busy = executable->last || cl_is_busy(stream, false) || !is_plain(graph), waits = busy || cl_scheduled();
  if (executable->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) free_all(graph);
  if (holds_memory(graph)) return CUDA_ERROR_INVALID_VALUE;
  if (waits) {
    if (!busy) TRY(check(graph));
    TRY(claim(graph));
    return queue(executable, stream);
  }
  CUresult result = run(graph);
  if (cl_order_on && !result) order_launch(executable, stream);
  return result;
}

API_LOCKED(cuGraphUpload, (Executable * handle, Stream *stream_handle), (handle, stream_handle)) {
  Stream *stream;
  Executable *executable;
  return find(stream_handle, handle, &stream, &executable);
}
