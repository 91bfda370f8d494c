/* Graphs as host data: nodes with their parameters, edges, children. All of it under the lock of the streams. */
#pragma once

#include "graph_parameters.h"
#include "user_objects.h"

typedef struct Conditional Conditional;

/* Memory that a graph allocates: its address is there as long as a node knows it. */
typedef struct GraphMemory {
  CUdeviceptr address;
  size_t size;
  CUdevice device;
  unsigned nodes;                     /* that know it, those of executable graphs too */
  bool live;                          /* allocated by a launch, and not freed since */
  uint64_t freed_in;                  /* number of the graph with a free node for it */
  uint64_t owner;                     /* number of the graph with the allocating node */
  void (*drop)(struct GraphMemory *); /* called when no node knows it */
  struct GraphMemory *next;
} GraphMemory;

/* The lists that an edge is in, each in the order of making; the edges of a graph are those out of its nodes. */
typedef enum { EDGES_INTO, EDGES_OUT_OF, EDGE_LISTS } EdgeList;

typedef struct Edge {
  Node *from, *to;
  EdgeData data;
  struct Edge *before[EDGE_LISTS], *behind[EDGE_LISTS];
  struct Edge *twin; /* in the copy of its graph that is being made */
} Edge;

typedef struct {
  Edge *first, *last;
} Edges;

struct Node {
  Object head;               /* of an executable graph: without a handle */
  NodeParameters parameters; /* arrays behind pointers are the node's own */
  Graph *graph;
  uint64_t id, origin; /* origin: number of the node that it was cloned from */
  size_t place;        /* in its graph */
  unsigned local;
  bool disabled;

  GraphMemory *memory;
  AttributeValue *attributes; /* of a kernel, STREAM_ATTRIBUTES of them; NULL: all are 0, because few nodes have any */
  uint32_t attributes_set;
  Edges into, out_of;
  size_t mark; /* for walks through the graph */
  Node *found; /* the next one that a walk goes on from */
};

struct Conditional {
  Object head;
  Conditional *next;
  Graph *graph;
  Context *context;
  unsigned value, flags;
  Node *node;
};

struct Graph {
  Object head;
  uint64_t id, origin; /* origin: number of the graph that it was cloned from */
  Node **nodes;        /* in the order of their making */
  size_t count, room;
  size_t holes; /* NULL among the nodes, until the handle is looked up: nodes that were removed */
  size_t nests; /* nodes that own graphs */
  unsigned last_local;
  Node *owner;    /* that it is the child or a body of */
  bool hidden;    /* of an executable graph: no handle */
  bool moved;     /* into its parent, so that its handle stayed the same */
  bool of_itself; /* was moved into itself: a node without a graph stands for it */
  Capture *capture;
  bool orphan;                            /* its parent was destroyed: it goes with the capture that works in it */
  unsigned executables, sole_executables; /* made of it and not destroyed, and those of them made since it is `sole` */
  bool sole; /* has memory, or was to: it has one executable, is not copied by callers and loses no part */
  UserReference *users;
  Conditional *conditionals;
  Graph *later;        /* the next one that is to be freed, or whose children are to be copied */
  const Graph *source; /* that a graph is being copied from */
};

Graph *cl_graph(const void *handle);
/* The same for a graph of which no node is looked at: it may have holes. */
Graph *cl_graph_to_grow(const void *handle);
Node *cl_node(const void *handle);
Graph *cl_graph_make(bool hidden);
/* Frees a graph with its nodes, its handle and theirs, and the graphs within it; but those that a capture works in
   stay, as orphans. */
void cl_graph_free(Graph *graph);
/* Copies a graph with its children; NULL if memory is out. `hidden`: for an executable graph. */
Graph *cl_graph_copy(const Graph *graph, bool hidden);

/* Adds a condition to a graph; NULL if memory is out. */
Conditional *cl_conditional_make(Graph *graph, HandleKind kind, Context *context, unsigned value, unsigned flags);
/* Adds a node, which takes what the parameters own; NULL if memory is out, and then it takes nothing. */
Node *cl_node_add(Graph *graph, const NodeParameters *owned, const Dependencies *on);
void cl_node_remove(Node *node);
/* The node of a copied graph, or of its children, that stands for a node of the original. */
Node *cl_node_like(Graph *graph, uint64_t origin, bool deep);

static inline bool cl_is_plain(EdgeData data) { return !data.from_port && !data.to_port && !data.type; }
bool cl_edge_add(Node *from, Node *to, EdgeData data);
Edge *cl_edge(const Node *from, const Node *to);
void cl_edge_remove(Edge *edge);
/* Goes through the edges of a graph. */
// NOLINTBEGIN(bugprone-macro-parentheses): the name of a variable
#define EACH_EDGE(edge, graph)                   \
  for (size_t at = 0; at < (graph)->count; at++) \
    for (Edge *edge = (graph)->nodes[at]->out_of.first; edge; edge = edge->behind[EDGES_OUT_OF])
// NOLINTEND(bugprone-macro-parentheses)
/* The place of an attribute of a node, to be written to; NULL if memory is out. */
AttributeValue *cl_node_attribute(Node *node, unsigned attribute);
/* Puts nodes in an order in which each stands behind those that it depends on; a node of a circle, or NULL. */
Node *cl_graph_sort(const Graph *graph, Node **order);
/* Marks some nodes of a graph and all that they depend on with 1, and all others with 0. */
void cl_mark_needed(const Graph *graph, const Dependencies *from);
/* Walks through a graph and those within it, parents first: the graph behind another one, or NULL. */
Graph *cl_graph_behind(const Graph *root, Graph *graph);
/* Whether it is a body of a condition. */
static inline bool cl_graph_is_body(const Graph *graph) {
  return graph->owner && graph->owner->parameters.type == NODE_CONDITIONAL;
}
/* Whether callers may not copy a graph: it or one within it is `sole` or has a condition. */
bool cl_graph_is_unique(const Graph *graph);
/* The graph that is no child of another. */
Graph *cl_graph_root(Graph *graph);
/* Adds nodes that the next one, of a type, is to depend on; `once`: none of them twice. */
CUresult cl_gather(const Graph *graph, int type, Node *const *nodes, const EdgeData *data, size_t count,
                   Dependencies *all, bool once);
/* Whether an edge from a node to one of a type may have such data. In graph_rules.c. */
bool cl_edge_may_be(const Node *from, int to, EdgeData data);

/* A question to a node, a graph or an executable one; the answer is a member of it. */
#define GRAPH_ASK(name, kind, find, type, value)       \
  static CUresult ask_##name(void *handle, type out) { \
    const kind *one = find(handle);                    \
    if (!one || !out) return CUDA_ERROR_INVALID_VALUE; \
    *out = value;                                      \
    return CUDA_SUCCESS;                               \
  }                                                    \
  EXPORTED(name, (void *handle, type out), LOCKED(ask_##name(handle, out)))
