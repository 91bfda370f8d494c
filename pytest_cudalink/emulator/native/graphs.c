/* Graphs as host data. */
#include "graphs.h"

#include "grow.h"

static uint64_t last_graph, last_node;

/* Moves nodes to the places of those that were removed. */
static void close_holes(Graph *graph) {
  size_t count = 0;
  for (size_t at = 0; at < graph->count; at++) {
    Node *node = graph->nodes[at];
    if (!node) continue;
    node->place = count;
    graph->nodes[count++] = node;
  }
  graph->count = count;
  graph->holes = 0;
}

Graph *cl_graph_to_grow(const void *handle) {
  return cl_handle_is(handle, HANDLE_GRAPH) ? (Graph *)(uintptr_t)handle : NULL;
}

Graph *cl_graph(const void *handle) {
  Graph *graph = cl_graph_to_grow(handle);
  if (graph && graph->holes) close_holes(graph);
  return graph;
}

Node *cl_node(const void *handle) { return cl_handle_is(handle, HANDLE_GRAPH_NODE) ? (Node *)(uintptr_t)handle : NULL; }

Graph *cl_graph_make(bool hidden) {
  Graph *graph = cl_object_make(sizeof *graph, hidden ? NO_HANDLE : HANDLE_GRAPH, NULL, NULL);
  if (!graph) return NULL;
  graph->hidden = hidden;
  graph->id = ++last_graph;
  return graph;
}

/* -- edges -- */

static Edges *list_of(const Edge *edge, EdgeList list) {
  return list == EDGES_INTO ? &edge->to->into : &edge->from->out_of;
}

Edge *cl_edge(const Node *from, const Node *to) {
  Edge *in = to->into.first, *out = from->out_of.first;
  while (in && out && in->from != from && out->to != to) {
    in = in->behind[EDGES_INTO];
    out = out->behind[EDGES_OUT_OF];
  }
  if (!in || !out) return NULL; /* the shorter list has ended */
  return in->from == from ? in : out;
}

static Edge *make_edge(Node *from, Node *to, EdgeData data) {
  Edge *edge = calloc(1, sizeof *edge);
  if (edge) *edge = (Edge){.from = from, .to = to, .data = data};
  return edge;
}

static void enter(Edge *edge, EdgeList list) {
  Edges *edges = list_of(edge, list);
  edge->before[list] = edges->last;
  if (edges->last) edges->last->behind[list] = edge;
  else edges->first = edge;
  edges->last = edge;
}

bool cl_edge_add(Node *from, Node *to, EdgeData data) {
  Edge *edge = make_edge(from, to, data);
  for (EdgeList list = 0; edge && list < EDGE_LISTS; list++) enter(edge, list);
  return edge;
}

/* Takes an edge out of a list; the last one gets its place (measured: edges/graph_edges). */
static void take_out(Edge *edge, EdgeList list) {
  Edges *edges = list_of(edge, list);
  Edge *last = edges->last;
  edges->last = last->before[list];
  *(edges->last ? &edges->last->behind[list] : &edges->first) = NULL;
  if (last == edge) return;
  Edge *before = last->before[list] = edge->before[list], *behind = last->behind[list] = edge->behind[list];
  *(before ? &before->behind[list] : &edges->first) = last;
  *(behind ? &behind->before[list] : &edges->last) = last;
}

void cl_edge_remove(Edge *edge) {
  for (EdgeList list = 0; list < EDGE_LISTS; list++) take_out(edge, list);
  free(edge);
}

static void remove_edges(const Node *node) {
  for (EdgeList list = 0; list < EDGE_LISTS; list++)
    for (Edge *edge = (list == EDGES_INTO ? &node->into : &node->out_of)->last, *before; edge; edge = before) {
      before = edge->before[list];
      cl_edge_remove(edge);
    }
}

CUresult cl_gather(const Graph *graph, int type, Node *const *nodes, const EdgeData *data, size_t count,
                   Dependencies *all, bool once) {
  static const EdgeData plain;
  if (count && !nodes) return CUDA_ERROR_INVALID_VALUE;
  for (size_t at = 0; at < count; at++) {
    Node *node = cl_node(nodes[at]);
    EdgeData edge = data ? data[at] : plain;
    if (!node || node->graph != graph || !cl_edge_may_be(node, type, edge)) return CUDA_ERROR_INVALID_VALUE;
    if (!cl_dependencies_add(all, node, edge)) return CUDA_ERROR_OUT_OF_MEMORY;
    if (once && all->count != at + 1) return CUDA_ERROR_INVALID_VALUE; /* it was there already */
  }
  return CUDA_SUCCESS;
}

/* -- nodes -- */

/* Where a node has a graph that it owns, by number; NULL behind the last. */
static Graph **inner_graph(Node *node, unsigned number) {
  NodeParameters *parameters = &node->parameters;
  if (parameters->type == NODE_CHILD) return number ? NULL : &parameters->child.graph;
  if (parameters->type != NODE_CONDITIONAL || number >= parameters->conditional.size) return NULL;
  return &parameters->conditional.bodies[number];
}

static bool owns_graphs(const Node *node) {
  return node->parameters.type == NODE_CHILD || node->parameters.type == NODE_CONDITIONAL;
}

/* Puts a graph on the list of those to be freed, unless a capture works in it: then it stays until that ends. */
static void doom(Graph *graph, Graph **doomed) {
  if (!graph) return;
  if (graph->capture) {
    graph->owner = NULL;
    graph->orphan = true;
    return;
  }
  graph->later = *doomed;
  *doomed = graph;
}

static void free_node(Node *node, Graph **doomed) {
  Graph **inner;
  if (node->memory && !--node->memory->nodes) node->memory->drop(node->memory);
  for (unsigned number = 0; (inner = inner_graph(node, number)); number++) doom(*inner, doomed);
  cl_parameters_free(&node->parameters);
  free(node->attributes);
  cl_object_end(&node->head);
}

Node *cl_node_add(Graph *graph, const NodeParameters *owned, const Dependencies *on) {
  if (graph->count == graph->room && 2 * graph->holes > graph->count) close_holes(graph);
  bool fits = cl_grow(&graph->nodes, graph->count, &graph->room, sizeof(Node *));
  Node *node = fits ? cl_object_make(sizeof *node, graph->hidden ? NO_HANDLE : HANDLE_GRAPH_NODE, NULL, NULL) : NULL;
  if (!node) return NULL;
  bool whole = true;
  node->graph = graph;
  for (size_t at = 0; whole && on && at < on->count; at++) whole = cl_edge_add(on->nodes[at], node, on->data[at]);
  if (!whole) {
    remove_edges(node);
    cl_object_end(&node->head);
    return NULL;
  }
  node->parameters = *owned;
  node->id = ++last_node;
  node->local = ++graph->last_local;
  graph->nests += owns_graphs(node);
  Graph **inner;
  for (unsigned number = 0; (inner = inner_graph(node, number)); number++)
    if (*inner) (*inner)->owner = node;
  node->place = graph->count++;
  return graph->nodes[node->place] = node;
}

static void free_doomed(Graph *doomed) {
  while (doomed) {
    Graph *graph = doomed;
    doomed = graph->later;
    for (size_t at = 0; at < graph->count; at++) {
      for (Edge *edge = graph->nodes[at]->out_of.first, *next; edge; edge = next) {
        next = edge->behind[EDGES_OUT_OF];
        free(edge);
      }
      free_node(graph->nodes[at], &doomed);
    }
    while (graph->conditionals) {
      Conditional *one = graph->conditionals;
      graph->conditionals = one->next;
      cl_object_end(&one->head);
    }
    cl_user_objects_drop(&graph->users);
    free(graph->nodes);
    cl_object_end(&graph->head);
  }
}

void cl_node_remove(Node *node) {
  Graph *graph = node->graph, *doomed = NULL;
  remove_edges(node);
  graph->nests -= owns_graphs(node);
  graph->nodes[node->place] = NULL;
  graph->holes++;
  if (graph->owner || graph->capture) close_holes(graph); /* those are not looked at by their handles alone */
  for (Conditional *one = graph->conditionals; one; one = one->next)
    if (one->node == node) one->node = NULL;
  free_node(node, &doomed);
  free_doomed(doomed);
}

void cl_graph_free(Graph *graph) {
  Graph *doomed = NULL;
  doom(graph, &doomed);
  free_doomed(doomed);
}

AttributeValue *cl_node_attribute(Node *node, unsigned attribute) {
  if (!node->attributes) node->attributes = calloc(STREAM_ATTRIBUTES, sizeof *node->attributes);
  return node->attributes ? node->attributes + attribute : NULL;
}

/* -- copies -- */

Conditional *cl_conditional_make(Graph *graph, HandleKind kind, Context *context, unsigned value, unsigned flags) {
  Conditional *made = cl_object_make(sizeof *made, kind, NULL, NULL);
  if (!made) return NULL;
  made->context = context;
  made->value = value;
  made->flags = flags;
  made->graph = graph;
  made->next = graph->conditionals;
  return graph->conditionals = made;
}

/* Copies a node, but for the graphs that it owns. */
static Node *copy_node(Graph *graph, const Node *from) {
  NodeParameters parameters = from->parameters;
  if (!cl_parameters_own(&parameters)) return NULL;
  if (parameters.type == NODE_CHILD) parameters.child.graph = NULL;
  for (unsigned at = 0; parameters.type == NODE_CONDITIONAL && at < parameters.conditional.size; at++)
    parameters.conditional.bodies[at] = NULL;
  Node *node = cl_node_add(graph, &parameters, NULL);
  if (!node) return cl_parameters_free(&parameters), NULL;
  node->origin = from->id;
  node->local = from->local;
  node->disabled = from->disabled;
  node->memory = from->memory;
  if (node->memory) node->memory->nodes++;
  if (from->attributes) {
    if (!cl_node_attribute(node, 0)) return NULL;
    memcpy(node->attributes, from->attributes, STREAM_ATTRIBUTES * sizeof *node->attributes);
  }
  node->attributes_set = from->attributes_set;
  if (from->parameters.type == NODE_CONDITIONAL) {
    /* the copy's condition is its own, with the default value of the original's */
    const Conditional *old = (const Conditional *)(uintptr_t)from->parameters.conditional.handle;
    Conditional *copy = cl_conditional_make(graph, NO_HANDLE, old->context, old->value, old->flags);
    if (!copy) return NULL;
    node->parameters.conditional.handle = (uintptr_t)copy;
  }
  return node;
}

/* Copies edges, each list in its order. */
static bool copy_edges(const Graph *graph, const Graph *copy) {
  EACH_EDGE(edge, graph) {
    edge->twin = make_edge(copy->nodes[edge->from->mark], copy->nodes[edge->to->mark], edge->data);
    if (!edge->twin) return false;
    enter(edge->twin, EDGES_OUT_OF);
  }
  for (size_t at = 0; at < graph->count; at++)
    for (Edge *edge = graph->nodes[at]->into.first; edge; edge = edge->behind[EDGES_INTO])
      enter(edge->twin, EDGES_INTO);
  return true;
}

/* Copies a graph, but for those within it. */
static Graph *copy_outer(const Graph *graph, bool hidden) {
  Graph *copy = cl_graph_make(hidden);
  bool whole = copy;
  for (size_t at = 0; whole && at < graph->count; at++) {
    graph->nodes[at]->mark = at;
    whole = copy_node(copy, graph->nodes[at]);
  }
  whole = whole && copy_edges(graph, copy) && cl_user_objects_share(&copy->users, graph->users);
  if (!whole) return cl_graph_free(copy), NULL;
  copy->source = graph;
  copy->origin = graph->id;
  copy->sole = graph->sole;
  copy->last_local = graph->last_local;
  return copy;
}

Graph *cl_graph_copy(const Graph *graph, bool hidden) {
  Graph *copy = copy_outer(graph, hidden);
  Graph **inner;
  for (Graph *one = copy; one; one = one->later) /* the list grows behind it */
    for (size_t at = 0; one->nests && at < one->count; at++)
      for (unsigned number = 0; (inner = inner_graph(one->nodes[at], number)); number++) {
        Graph *fresh = copy_outer(*inner_graph(one->source->nodes[at], number), hidden);
        if (!fresh) return cl_graph_free(copy), NULL;
        fresh->owner = one->nodes[at];
        fresh->later = one->later;
        one->later = *inner = fresh;
      }
  return copy;
}

/* -- graphs within graphs -- */

/* The first graph that a node of a graph owns, from a place on. */
static Graph *first_inner(const Graph *graph, size_t place) {
  for (size_t at = place; graph->nests && at < graph->count; at++)
    if (owns_graphs(graph->nodes[at])) return *inner_graph(graph->nodes[at], 0);
  return NULL;
}

Graph *cl_graph_behind(const Graph *root, Graph *graph) {
  Graph *inner = first_inner(graph, 0);
  while (!inner && graph != root) {
    Node *owner = graph->owner;
    unsigned number = 0;
    while (*inner_graph(owner, number) != graph) number++;
    Graph **next = inner_graph(owner, number + 1);
    inner = next ? *next : first_inner(owner->graph, owner->place + 1);
    graph = owner->graph;
  }
  return inner;
}

/* The copy of a node in a graph that was copied: its nodes have the order of the original's, and new ones come last. */
static Node *copy_of(const Graph *graph, uint64_t origin) {
  size_t low = 0, high = graph->count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    uint64_t there = graph->nodes[middle]->origin;
    if (there && there < origin) low = middle + 1;
    else high = middle;
  }
  return low < graph->count && graph->nodes[low]->origin == origin ? graph->nodes[low] : NULL;
}

Node *cl_node_like(Graph *graph, uint64_t origin, bool deep) {
  Node *found = copy_of(graph, origin);
  for (Graph *one = graph; deep && !found && one; one = cl_graph_behind(graph, one)) found = copy_of(one, origin);
  return found;
}

bool cl_graph_is_unique(const Graph *graph) {
  if (cl_graph_is_body(graph) || graph->of_itself) return true;
  for (const Graph *one = graph; one; one = cl_graph_behind(graph, (Graph *)(uintptr_t)one))
    if (one->sole || one->conditionals) return true;
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
  EACH_EDGE(edge, graph) edge->to->mark++;
  for (size_t at = 0; at < graph->count; at++)
    if (!graph->nodes[at]->mark) order[placed++] = graph->nodes[at];
  for (size_t done = 0; done < placed; done++)
    for (const Edge *edge = order[done]->out_of.first; edge; edge = edge->behind[EDGES_OUT_OF])
      if (!--edge->to->mark) order[placed++] = edge->to;
  for (size_t at = 0; at < graph->count && placed < graph->count; at++)
    if (graph->nodes[at]->mark) return graph->nodes[at];
  return NULL;
}

/* Marks a node, and puts it on the list of those that a walk goes on from. */
static void mark(Node *node, Node **found) {
  if (node->mark) return;
  node->mark = 1;
  node->found = *found;
  *found = node;
}

void cl_mark_needed(const Graph *graph, const Dependencies *from) {
  Node *found = NULL;
  for (size_t at = 0; at < graph->count; at++) graph->nodes[at]->mark = 0;
  for (size_t at = 0; at < from->count; at++) mark(from->nodes[at], &found);
  while (found) {
    const Node *node = found;
    found = node->found;
    for (const Edge *edge = node->into.first; edge; edge = edge->behind[EDGES_INTO]) mark(edge->from, &found);
  }
}
