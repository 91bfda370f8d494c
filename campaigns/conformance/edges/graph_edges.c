/* Graphs: nodes and edges, their order, ports, and graphs that are no trees. */
#include "ask.h"

static CUgraph g;
static CUgraphNode n[6];

static void make(int count) {
  DO(cuGraphCreate(&g, 0));
  for (int i = 0; i < count; i++) DO(cuGraphAddEmptyNode(&n[i], g, NULL, 0));
}
static int index_of(CUgraphNode node) {
  for (int i = 0; i < 6; i++)
    if (n[i] == node) return i;
  return -1;
}
static const char *edges(void) {
  CUgraphNode from[16], to[16];
  CUgraphEdgeData data[16];
  size_t count = 16;
  static char text[256];
  *text = 0;
  int code = cuGraphGetEdges(g, from, to, data, &count);
  if (code) return W("code %d", code);
  for (size_t i = 0; i < count && i < 16; i++)
    sprintf(text + strlen(text), "%d>%d ", index_of(from[i]), index_of(to[i]));
  return text;
}

static void adding(void) {
  make(6);
  for (int flag = 1; flag <= 2; flag++) {
    CUgraph h;
    ASK(W("graph with flags %d", flag), cuGraphCreate(&h, flag));
  }
  ASK("an edge", cuGraphAddDependencies(g, &n[0], &n[1], NULL, 1), "%s", edges());
  ASK("the same edge", cuGraphAddDependencies(g, &n[0], &n[1], NULL, 1), "%s", edges());
  ASK("to itself", cuGraphAddDependencies(g, &n[2], &n[2], NULL, 1), "%s", edges());
  ASK("a cycle of two", cuGraphAddDependencies(g, &n[1], &n[0], NULL, 1), "%s", edges());
  ASK("remove what closed it", cuGraphRemoveDependencies(g, &n[1], &n[0], NULL, 1), "%s", edges());
  CUgraphNode from[3] = {n[2], n[3], n[3]}, to[3] = {n[4], n[4], n[5]};
  ASK("three edges", cuGraphAddDependencies(g, from, to, NULL, 3), "%s", edges());
  CUgraphNode from2[2] = {n[0], n[3]}, to2[2] = {n[5], n[5]};
  ASK("a new and an old edge", cuGraphAddDependencies(g, from2, to2, NULL, 2), "%s", edges());
  ASK("no edges", cuGraphAddDependencies(g, NULL, NULL, NULL, 0));
  ASK("remove an edge that is not there", cuGraphRemoveDependencies(g, &n[4], &n[5], NULL, 1), "%s", edges());
  ASK("remove the first of three", cuGraphRemoveDependencies(g, &n[2], &n[4], NULL, 1), "%s", edges());
  ASK("add it again", cuGraphAddDependencies(g, &n[2], &n[4], NULL, 1), "%s", edges());
  CUgraphNode from3[2] = {n[3], n[4]}, to3[2] = {n[4], n[5]};
  ASK("remove one that is there and one that is not", cuGraphRemoveDependencies(g, from3, to3, NULL, 2), "%s", edges());
  CUgraph second;
  CUgraphNode strange;
  DO(cuGraphCreate(&second, 0));
  DO(cuGraphAddEmptyNode(&strange, second, NULL, 0));
  ASK("to a node of another graph", cuGraphAddDependencies(g, &n[0], &strange, NULL, 1), "%s", edges());
  CUgraphNode node;
  ASK("a node that depends on another graph's", cuGraphAddEmptyNode(&node, g, &strange, 1));
  CUgraphNode twice[2] = {n[0], n[0]};
  ASK("a node that depends twice on one", cuGraphAddEmptyNode(&node, g, twice, 2));
  ASK("a node with a count and no dependencies", cuGraphAddEmptyNode(&node, g, NULL, 0));
  RISK("a count without dependencies", cuGraphAddEmptyNode(&node, g, NULL, 1));
  RISK("a NULL dependency", cuGraphAddEmptyNode(&node, g, (CUgraphNode[1]){NULL}, 1));
  RISK("a node of a NULL graph", cuGraphAddEmptyNode(&node, NULL, NULL, 0));
  RISK("a node into NULL", cuGraphAddEmptyNode(NULL, g, NULL, 0));
  RISK("edges of a NULL graph", cuGraphAddDependencies(NULL, &n[0], &n[2], NULL, 1));
  RISK("edges from NULL", cuGraphAddDependencies(g, NULL, &n[2], NULL, 1));
  RISK("edges to NULL", cuGraphAddDependencies(g, &n[0], NULL, NULL, 1));
  RISK("graph into NULL", cuGraphCreate(NULL, 0));
}

static void removing(void) {
  make(5);
  for (int i = 0; i < 4; i++) DO(cuGraphAddDependencies(g, &n[i], &n[4], NULL, 1));
  SAY("four edges", "%s", edges());
  ASK("remove the second", cuGraphRemoveDependencies(g, &n[1], &n[4], NULL, 1), "%s", edges());
  ASK("add the second", cuGraphAddDependencies(g, &n[1], &n[4], NULL, 1), "%s", edges());
  CUgraphNode found[6];
  size_t count = 6;
  ASK("dependencies of the fifth", cuGraphNodeGetDependencies(n[4], found, NULL, &count), "%zu %d %d %d %d", count,
      index_of(found[0]), index_of(found[1]), index_of(found[2]), index_of(found[3]));
  for (int i = 1; i < 4; i++) DO(cuGraphAddDependencies(g, &n[0], &n[i], NULL, 1));
  ASK("remove from the first", cuGraphRemoveDependencies(g, &n[0], &n[2], NULL, 1), "%s", edges());
  count = 6;
  ASK("dependents of the first", cuGraphNodeGetDependentNodes(n[0], found, NULL, &count), "%zu %d %d %d", count,
      index_of(found[0]), index_of(found[1]), index_of(found[2]));
  ASK("destroy the third node", cuGraphDestroyNode(n[2]), "%s", edges());
  count = 6;
  ASK("nodes", cuGraphGetNodes(g, found, &count), "%zu %d %d %d %d", count, index_of(found[0]), index_of(found[1]),
      index_of(found[2]), index_of(found[3]));
  count = 6;
  ASK("roots", cuGraphGetRootNodes(g, found, &count), "%zu %d", count, index_of(found[0]));
  CUgraphNode fresh;
  DO(cuGraphAddEmptyNode(&fresh, g, NULL, 0));
  n[2] = fresh;
  count = 6;
  ASK("nodes with a new one", cuGraphGetNodes(g, found, &count), "%zu %d %d %d %d %d", count, index_of(found[0]),
      index_of(found[1]), index_of(found[2]), index_of(found[3]), index_of(found[4]));
}

static void reading(void) {
  make(4);
  for (int i = 0; i < 3; i++) DO(cuGraphAddDependencies(g, &n[i], &n[3], NULL, 1));
  CUgraphNode from[8], to[8];
  size_t sizes[] = {0, 1, 2, 3, 5};
  for (int i = 0; i < 5; i++) {
    size_t count = sizes[i];
    for (int k = 0; k < 8; k++) from[k] = to[k] = (CUgraphNode)7;
    ASK(W("edges into %zu", sizes[i]), cuGraphGetEdges(g, from, to, NULL, &count), "%zu %d %d %d", count,
        from[0] == (CUgraphNode)7, from[3] == NULL, from[4] == NULL);
  }
  size_t count = 9;
  ASK("number of edges", cuGraphGetEdges(g, NULL, NULL, NULL, &count), "%zu", count);
  count = 9;
  ASK("number of nodes", cuGraphGetNodes(g, NULL, &count), "%zu", count);
  count = 9;
  ASK("number of roots", cuGraphGetRootNodes(g, NULL, &count), "%zu", count);
  count = 9;
  ASK("number of dependencies", cuGraphNodeGetDependencies(n[3], NULL, NULL, &count), "%zu", count);
  count = 9;
  ASK("number of dependents", cuGraphNodeGetDependentNodes(n[0], NULL, NULL, &count), "%zu", count);
  count = 2;
  ASK("two of the nodes", cuGraphGetNodes(g, from, &count), "%zu", count);
  count = 6;
  ASK("six of the nodes", cuGraphGetNodes(g, from, &count), "%zu %d", count, from[5] == NULL);
  RISK("edges without a count", cuGraphGetEdges(g, from, to, NULL, NULL));
  count = 4;
  RISK("edges with from only", cuGraphGetEdges(g, from, NULL, NULL, &count));
  RISK("edges of NULL", cuGraphGetEdges(NULL, from, to, NULL, &count));
  RISK("nodes without a count", cuGraphGetNodes(g, from, NULL));
  RISK("nodes of NULL", cuGraphGetNodes(NULL, from, &count));
  RISK("roots of NULL", cuGraphGetRootNodes(NULL, from, &count));
  RISK("dependencies of NULL", cuGraphNodeGetDependencies(NULL, from, NULL, &count));
  RISK("dependents of NULL", cuGraphNodeGetDependentNodes(NULL, from, NULL, &count));
  RISK("dependencies without a count", cuGraphNodeGetDependencies(n[3], from, NULL, NULL));
  CUgraphNodeType type;
  RISK("type of NULL", cuGraphNodeGetType(NULL, &type));
  RISK("type into NULL", cuGraphNodeGetType(n[0], NULL));
  RISK("destroy a NULL node", cuGraphDestroyNode(NULL));
  RISK("destroy a NULL graph", cuGraphDestroy(NULL));
}

static void data(void) {
  for (int field = 0; field < 9; field++)
    for (int value = 1; value <= 3; value += field < 3 ? 1 : 3) {
      make(2);
      CUgraphEdgeData e;
      SET(e);
      const char *names[] = {"from port",  "to port",    "type",       "reserved 0", "reserved 1",
                             "reserved 2", "reserved 3", "reserved 4", "nothing"};
      if (field < 8) ((unsigned char *)&e)[field] = value;
      ASK(W("%s %d between empty nodes", names[field], value), cuGraphAddDependencies(g, &n[0], &n[1], &e, 1), "%s",
          edges());
    }
  make(3);
  CUgraphEdgeData e[2], back[2];
  SET(e);
  DO(cuGraphAddDependencies(g, &n[0], &n[1], NULL, 1));
  ASK("the same edge with zero data", cuGraphAddDependencies(g, &n[0], &n[1], e, 1), "%s", edges());
  size_t count = 2;
  memset(back, 0xee, sizeof back);
  ASK("data of the edges", cuGraphGetEdges(g, n, &n[3], back, &count), "%zu %d %d %d", count, back[0].from_port,
      back[0].to_port, back[0].type);
  make(3);
  DO(cuGraphAddDependencies(g, &n[0], &n[1], NULL, 1));
  ASK("remove with zero data", cuGraphRemoveDependencies(g, &n[0], &n[1], e, 1), "%s", edges());
  DO(cuGraphAddDependencies(g, &n[0], &n[1], NULL, 1));
  e[0].type = 1;
  ASK("remove with another type", cuGraphRemoveDependencies(g, &n[0], &n[1], e, 1), "%s", edges());
}

static void clones(void) {
  make(3);
  CUgraph c = NULL, h;
  CUgraphNode found = NULL, other_;
  DO(cuGraphAddDependencies(g, &n[0], &n[1], NULL, 1));
  ASK("clone", cuGraphClone(&c, g), "%d", c != g);
  ASK("find", cuGraphNodeFindInClone(&found, n[0], c), "%d", found != n[0]);
  ASK("find in the original", cuGraphNodeFindInClone(&other_, n[0], g));
  DO(cuGraphCreate(&h, 0));
  ASK("find in another graph", cuGraphNodeFindInClone(&other_, n[0], h));
  ASK("find the clone's node in the clone", cuGraphNodeFindInClone(&other_, found, c));
  ASK("destroy the clone's node", cuGraphDestroyNode(found));
  ASK("find it after that", cuGraphNodeFindInClone(&other_, n[0], c));
  ASK("destroy an original node", cuGraphDestroyNode(n[1]));
  DO(cuGraphDestroy(g));
  size_t count = 0;
  ASK("the clone outlives the original", cuGraphGetNodes(c, NULL, &count), "%zu", count);
  RISK("clone into NULL", cuGraphClone(NULL, h));
  RISK("clone NULL", cuGraphClone(&c, NULL));
  RISK("find into NULL", cuGraphNodeFindInClone(NULL, n[2], c));
  RISK("find NULL", cuGraphNodeFindInClone(&found, NULL, c));
}

CASES RUN(adding) RUN(removing) RUN(reading) RUN(data) RUN(clones) END
