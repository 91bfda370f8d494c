/* Graphs as host data. */
#include "graphs.h"

#include <stdlib.h>
#include <string.h>

#include "handles.h"

static uint64_t last_graph, last_node;

Graph *cl_graph(const void *handle) { return cl_handle_is(handle, HANDLE_GRAPH) ? (Graph *)(uintptr_t)handle : NULL; }

Node *cl_node(const void *handle) { return cl_handle_is(handle, HANDLE_GRAPH_NODE) ? (Node *)(uintptr_t)handle : NULL; }

Graph *cl_graph_make(bool hidden) {
  Graph *graph = calloc(1, sizeof *graph);
  if (!graph || (!hidden && !cl_handle_add(graph, HANDLE_GRAPH))) {
    free(graph);
    return NULL;
  }
  graph->hidden = hidden;
  graph->id = ++last_graph;
  return graph;
}

/* -- edges -- */

Edge *cl_edge(Graph *graph, const Node *from, const Node *to) {
  for (size_t at = 0; at < graph->edge_count; at++)
    if (graph->edges[at].from == from && graph->edges[at].to == to) return graph->edges + at;
  return NULL;
}

bool cl_edge_add(Graph *graph, Node *from, Node *to, EdgeData data) {
  if (graph->edge_count == graph->edge_room) {
    size_t room = graph->edge_room ? 2 * graph->edge_room : 8;
    Edge *edges = realloc(graph->edges, room * sizeof *edges);
    if (!edges) return false;
    graph->edges = edges;
    graph->edge_room = room;
  }
  graph->edges[graph->edge_count++] = (Edge){from, to, data};
  return true;
}

void cl_edge_remove(Graph *graph, Edge *edge) {
  Edge *end = graph->edges + --graph->edge_count;
  memmove(edge, edge + 1, (size_t)((char *)end - (char *)edge));
}

/* -- nodes -- */

static void free_all(NodeParameters *parameters) {
  if (parameters->type == NODE_CHILD) cl_graph_free(parameters->child.graph);
  for (unsigned at = 0; parameters->type == NODE_CONDITIONAL && at < parameters->conditional.size; at++)
    cl_graph_free(parameters->conditional.bodies[at]);
  cl_parameters_free(parameters);
}

static void free_node(Node *node) {
  if (!node->hidden) cl_handle_remove(node, HANDLE_GRAPH_NODE);
  if (node->memory && !--node->memory->nodes) node->memory->drop(node->memory);
  free_all(&node->parameters);
  free(node);
}

static bool make_room(Graph *graph) {
  if (graph->count < graph->room) return true;
  size_t room = graph->room ? 2 * graph->room : 8;
  Node **nodes = realloc(graph->nodes, room * sizeof *nodes);
  if (!nodes) return false;
  graph->nodes = nodes;
  graph->room = room;
  return true;
}

Node *cl_node_add(Graph *graph, const NodeParameters *owned, const Dependencies *on) {
  Node *node = make_room(graph) ? calloc(1, sizeof *node) : NULL;
  size_t edges = graph->edge_count;
  bool whole = node && (graph->hidden || cl_handle_add(node, HANDLE_GRAPH_NODE));
  for (size_t at = 0; whole && on && at < on->count; at++)
    whole = cl_edge_add(graph, on->nodes[at], node, on->data[at]);
  if (!whole) {
    graph->edge_count = edges;
    if (node && !graph->hidden) cl_handle_remove(node, HANDLE_GRAPH_NODE);
    free(node);
    return NULL;
  }
  node->parameters = *owned;
  node->graph = graph;
  node->id = ++last_node;
  node->local = ++graph->last_local;
  node->hidden = graph->hidden;
  if (owned->type == NODE_CHILD) owned->child.graph->owner = node;
  for (unsigned at = 0; owned->type == NODE_CONDITIONAL && at < owned->conditional.size; at++)
    owned->conditional.bodies[at]->owner = node;
  return graph->nodes[graph->count++] = node;
}

void cl_node_remove(Node *node) {
  Graph *graph = node->graph;
  size_t kept = 0;
  for (size_t at = 0; at < graph->edge_count; at++)
    if (graph->edges[at].from != node && graph->edges[at].to != node) graph->edges[kept++] = graph->edges[at];
  graph->edge_count = kept;
  kept = 0;
  for (size_t at = 0; at < graph->count; at++)
    if (graph->nodes[at] != node) graph->nodes[kept++] = graph->nodes[at];
  graph->count = kept;
  for (Conditional *one = graph->conditionals; one; one = one->next)
    if (one->node == node) one->node = NULL;
  free_node(node);
}

void cl_graph_free(Graph *graph) {
  if (!graph) return;
  for (size_t at = 0; at < graph->count; at++) free_node(graph->nodes[at]);
  while (graph->conditionals) {
    Conditional *one = graph->conditionals;
    graph->conditionals = one->next;
    if (!graph->hidden) cl_handle_remove(one, HANDLE_CONDITIONAL);
    free(one);
  }
  cl_user_objects_drop(&graph->users);
  if (!graph->hidden) cl_handle_remove(graph, HANDLE_GRAPH);
  free(graph->nodes);
  free(graph->edges);
  free(graph);
}

/* -- copies -- */

static Conditional *copy_conditional(Graph *graph, const Conditional *from) {
  Conditional *copy = calloc(1, sizeof *copy);
  if (!copy) return NULL;
  *copy = *from;
  copy->graph = graph;
  copy->node = NULL;
  copy->next = graph->conditionals;
  return graph->conditionals = copy;
}

/* The graphs that a node owns, copied into its copy's parameters; false if memory is out. */
static bool copy_children(NodeParameters *parameters, bool hidden) {
  if (parameters->type == NODE_CHILD) {
    parameters->child.graph = cl_graph_copy(parameters->child.graph, hidden);
    return parameters->child.graph;
  }
  if (parameters->type != NODE_CONDITIONAL) return true;
  unsigned copied = 0, size = parameters->conditional.size;
  Graph **bodies = parameters->conditional.bodies;
  for (; copied < size; copied++) {
    bodies[copied] = cl_graph_copy(bodies[copied], hidden);
    if (!bodies[copied]) break;
  }
  if (copied == size) return true;
  while (copied) cl_graph_free(bodies[--copied]);
  return false;
}

static Node *copy_node(Graph *graph, const Node *from) {
  NodeParameters parameters = from->parameters;
  if (!cl_parameters_own(&parameters)) return NULL;
  if (!copy_children(&parameters, graph->hidden)) {
    cl_parameters_free(&parameters);
    return NULL;
  }
  Node *node = cl_node_add(graph, &parameters, NULL);
  if (!node) {
    free_all(&parameters);
    return NULL;
  }
  node->origin = from->id;
  node->local = from->local;
  node->disabled = from->disabled;
  node->memory = from->memory;
  if (node->memory) node->memory->nodes++;
  memcpy(node->attributes, from->attributes, sizeof node->attributes);
  node->attributes_set = from->attributes_set;
  if (from->parameters.type == NODE_CONDITIONAL) {
    /* the copy's condition is its own, with the default value of the original's */
    const Conditional *old = (const Conditional *)(uintptr_t)from->parameters.conditional.handle;
    Conditional *copy = copy_conditional(graph, old);
    if (!copy) return NULL;
    copy->node = node;
    node->parameters.conditional.handle = (uintptr_t)copy;
  }
  return node;
}

Graph *cl_graph_copy(const Graph *graph, bool hidden) {
  Graph *copy = cl_graph_make(hidden);
  bool whole = copy;
  for (size_t at = 0; whole && at < graph->count; at++) {
    graph->nodes[at]->mark = at;
    whole = copy_node(copy, graph->nodes[at]);
  }
  /* without nodes there are no edges */
  for (size_t at = 0; whole && copy->nodes && at < graph->edge_count; at++) {
    const Edge *edge = graph->edges + at;
    whole = cl_edge_add(copy, copy->nodes[edge->from->mark], copy->nodes[edge->to->mark], edge->data);
  }
  if (whole) whole = cl_user_objects_share(&copy->users, graph->users);
  if (!whole) {
    cl_graph_free(copy);
    return NULL;
  }
  copy->origin = graph->id;
  copy->sole = graph->sole;
  copy->last_local = graph->last_local;
  return copy;
}

/* A graph that a node owns, by number; NULL behind the last. */
static Graph *inner_graph(const Node *node, unsigned number) {
  if (node->parameters.type == NODE_CHILD) return number ? NULL : node->parameters.child.graph;
  if (node->parameters.type != NODE_CONDITIONAL || number >= node->parameters.conditional.size) return NULL;
  return node->parameters.conditional.bodies[number];
}

Node *cl_node_like(Graph *graph, uint64_t origin, bool deep) {
  for (size_t at = 0; at < graph->count; at++) {
    if (graph->nodes[at]->origin == origin) return graph->nodes[at];
    Graph *inner = deep ? inner_graph(graph->nodes[at], 0) : NULL;
    for (unsigned number = 1; inner; inner = inner_graph(graph->nodes[at], number++)) {
      Node *found = cl_node_like(inner, origin, true);
      if (found) return found;
    }
  }
  return NULL;
}

bool cl_graph_is_unique(const Graph *graph) {
  const Graph *inner;
  if (graph->sole || graph->conditionals) return true;
  for (size_t at = 0; at < graph->count; at++)
    for (unsigned number = 0; (inner = inner_graph(graph->nodes[at], number)); number++)
      if (cl_graph_is_unique(inner)) return true;
  return false;
}

Graph *cl_graph_root(Graph *graph) {
  while (graph->owner) graph = graph->owner->graph;
  return graph;
}

/* -- order -- */

Node *cl_graph_sort(const Graph *graph, Node **order) {
  size_t placed = 0;
  for (size_t at = 0; at < graph->count; at++) graph->nodes[at]->mark = 0; /* how many it waits for */
  for (size_t at = 0; at < graph->edge_count; at++) graph->edges[at].to->mark++;
  for (size_t at = 0; at < graph->count; at++)
    if (!graph->nodes[at]->mark) order[placed++] = graph->nodes[at];
  for (size_t done = 0; done < placed; done++)
    for (size_t at = 0; at < graph->edge_count; at++)
      if (graph->edges[at].from == order[done] && !--graph->edges[at].to->mark) order[placed++] = graph->edges[at].to;
  for (size_t at = 0; at < graph->count && placed < graph->count; at++)
    if (graph->nodes[at]->mark) return graph->nodes[at];
  return NULL;
}

static bool reaches(Graph *graph, Node *node, const Node *other) {
  if (node == other) return true;
  if (node->mark) return false;
  node->mark = 1;
  for (size_t at = 0; at < graph->edge_count; at++)
    if (graph->edges[at].to == node && reaches(graph, graph->edges[at].from, other)) return true;
  return false;
}

bool cl_depends_on(Node *node, const Node *other) {
  Graph *graph = node->graph;
  for (size_t at = 0; at < graph->count; at++) graph->nodes[at]->mark = 0;
  return reaches(graph, node, other);
}
