/* User objects: counts, moves to graphs, when their destructor runs. */
#include "ask.h"

static volatile int dead;
static void destroy(void *data) { __atomic_fetch_add(&dead, (int)(intptr_t)data, __ATOMIC_SEQ_CST); }
static int settled(int expected) { /* destructors may run in another thread */
  for (int i = 0; i < 200 && dead != expected; i++) usleep(5000);
  return dead;
}

static void creating(void) {
  CUuserObject o = NULL;
  ASK("plain", cuUserObjectCreate(&o, (void *)1, destroy, 1, 1), "%d", o != NULL);
  for (int flags = 0; flags <= 4; flags++)
    ASK(W("flags %d", flags), cuUserObjectCreate(&o, (void *)1, destroy, 1, flags));
  ASK("count 0", cuUserObjectCreate(&o, (void *)1, destroy, 0, 1));
  ASK("count INT_MAX", cuUserObjectCreate(&o, (void *)1, destroy, 0x7fffffff, 1));
  ASK("count INT_MAX + 1", cuUserObjectCreate(&o, (void *)1, destroy, 0x80000000u, 1));
  ASK("count UINT_MAX", cuUserObjectCreate(&o, (void *)1, destroy, 0xffffffffu, 1));
  ASK("data NULL", cuUserObjectCreate(&o, NULL, destroy, 1, 1));
  RISK("no destructor", cuUserObjectCreate(&o, (void *)1, NULL, 1, 1));
  RISK("into NULL", cuUserObjectCreate(NULL, (void *)1, destroy, 1, 1));
  RISK("retain NULL", cuUserObjectRetain(NULL, 1));
  RISK("release NULL", cuUserObjectRelease(NULL, 1));
}

static void counting(void) {
  CUuserObject o;
  DO(cuUserObjectCreate(&o, (void *)1, destroy, 2, 1));
  ASK("retain 0", cuUserObjectRetain(o, 0));
  ASK("retain 3", cuUserObjectRetain(o, 3));
  ASK("retain INT_MAX", cuUserObjectRetain(o, 0x7fffffff));
  ASK("retain UINT_MAX", cuUserObjectRetain(o, 0xffffffffu));
  ASK("release 0", cuUserObjectRelease(o, 0));
  ASK("release 4", cuUserObjectRelease(o, 4), "%d", dead);
}

static void over(void) {
  CUuserObject o;
  DO(cuUserObjectCreate(&o, (void *)1, destroy, 2, 1));
  ASK("release 3 of 2", cuUserObjectRelease(o, 3), "%d", settled(1));
  RISK("release after that", cuUserObjectRelease(o, 1), "%d", settled(1));
}

static void exactly(void) {
  CUuserObject o;
  DO(cuUserObjectCreate(&o, (void *)1, destroy, 2, 1));
  ASK("release 1 of 2", cuUserObjectRelease(o, 1), "%d", settled(0));
  ASK("release the last", cuUserObjectRelease(o, 1), "%d", settled(1));
  RISK("retain after that", cuUserObjectRetain(o, 1));
}

static void graphs(void) {
  CUuserObject o, p;
  CUgraph g, c;
  DO(cuGraphCreate(&g, 0));
  DO(cuUserObjectCreate(&o, (void *)1, destroy, 3, 1));
  ASK("retain 0", cuGraphRetainUserObject(g, o, 0, 0));
  for (int flags = 2; flags <= 4; flags++) ASK(W("flags %d", flags), cuGraphRetainUserObject(g, o, 1, flags));
  ASK("retain UINT_MAX", cuGraphRetainUserObject(g, o, 0xffffffffu, 0));
  ASK("move 1", cuGraphRetainUserObject(g, o, 1, CU_GRAPH_USER_OBJECT_MOVE));
  ASK("retain 2", cuGraphRetainUserObject(g, o, 2, 0));
  ASK("release 0 of the graph", cuGraphReleaseUserObject(g, o, 0));
  ASK("release 1 of the graph", cuGraphReleaseUserObject(g, o, 1));
  ASK("release the caller's 2", cuUserObjectRelease(o, 2), "%d", settled(0));
  ASK("release 5 of the graph's 2", cuGraphReleaseUserObject(g, o, 5), "%d", settled(1));
  DO(cuUserObjectCreate(&p, (void *)10, destroy, 1, 1));
  ASK("move the second", cuGraphRetainUserObject(g, p, 1, CU_GRAPH_USER_OBJECT_MOVE));
  ASK("clone", cuGraphClone(&c, g));
  ASK("destroy the graph", cuGraphDestroy(g), "%d", settled(1));
  ASK("release of the clone", cuGraphReleaseUserObject(c, p, 1), "%d", settled(11));
  ASK("destroy the clone", cuGraphDestroy(c), "%d", settled(11));
}

static void more_than_held(void) {
  CUuserObject o;
  CUgraph g;
  DO(cuGraphCreate(&g, 0));
  DO(cuUserObjectCreate(&o, (void *)1, destroy, 1, 1));
  ASK("move 2 of 1", cuGraphRetainUserObject(g, o, 2, CU_GRAPH_USER_OBJECT_MOVE), "%d", settled(0));
  ASK("release of the graph", cuGraphReleaseUserObject(g, o, 1), "%d", settled(0));
  ASK("destroy the graph", cuGraphDestroy(g), "%d", settled(1));
  CUgraph none;
  DO(cuGraphCreate(&none, 0));
  DO(cuUserObjectCreate(&o, (void *)10, destroy, 1, 1));
  ASK("release of a graph that has none", cuGraphReleaseUserObject(none, o, 1), "%d", settled(1));
  RISK("retain into a NULL graph", cuGraphRetainUserObject(NULL, o, 1, 0));
  RISK("retain a NULL object", cuGraphRetainUserObject(none, NULL, 1, 0));
  RISK("release of a NULL graph", cuGraphReleaseUserObject(NULL, o, 1));
  RISK("release a NULL object", cuGraphReleaseUserObject(none, NULL, 1));
}

static void executables(void) {
  CUuserObject o;
  CUgraph g;
  CUgraphNode n;
  CUgraphExec e = NULL;
  DO(cuGraphCreate(&g, 0));
  DO(cuGraphAddEmptyNode(&n, g, NULL, 0));
  DO(cuUserObjectCreate(&o, (void *)1, destroy, 1, 1));
  DO(cuGraphRetainUserObject(g, o, 1, CU_GRAPH_USER_OBJECT_MOVE));
  DO(cuGraphInstantiate(&e, g, 0));
  ASK("destroy the graph", cuGraphDestroy(g), "%d", settled(0));
  ASK("launch", cuGraphLaunch(e, 0));
  DO(cuCtxSynchronize());
  ASK("destroy the executable", cuGraphExecDestroy(e), "%d", settled(1));
  CUgraph child, outer;
  DO(cuGraphCreate(&child, 0));
  DO(cuGraphCreate(&outer, 0));
  DO(cuUserObjectCreate(&o, (void *)10, destroy, 1, 1));
  DO(cuGraphRetainUserObject(child, o, 1, CU_GRAPH_USER_OBJECT_MOVE));
  DO(cuGraphAddChildGraphNode(&n, outer, NULL, 0, child));
  ASK("destroy the child", cuGraphDestroy(child), "%d", settled(1));
  ASK("destroy the outer graph", cuGraphDestroy(outer), "%d", settled(11));
}

static CUresult inner = -1;
static void calling(void *data) {
  (void)data;
  int count = 0;
  inner = cuDeviceGetCount(&count);
  size_t free_;
  CUresult second = cuMemGetInfo(&free_, &free_);
  SAY("calls inside a destructor", "%d %d", inner, second);
  dead = 1;
}
static void inside(void) {
  CUuserObject o;
  DO(cuUserObjectCreate(&o, NULL, calling, 1, 1));
  ASK("release", cuUserObjectRelease(o, 1), "%d", settled(1));
}

CASES RUN(creating) RUN(counting) RUN(over) RUN(exactly) RUN(graphs) RUN(more_than_held) RUN(executables)
    RUN(inside) END
