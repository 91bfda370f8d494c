/* A stream that waits: what is not ready, what other streams may go on with, and what the host is told. */
#include "ask.h"

static CUstream s, t, u;
static CUdeviceptr gate, d;
static void make(void) {
  DO(cuStreamCreate(&s, 1));
  DO(cuStreamCreate(&t, 1));
  DO(cuStreamCreate(&u, 0));
  DO(cuMemAlloc(&gate, 4096));
  DO(cuMemAlloc(&d, 4096));
  DO(cuMemsetD8(gate, 0, 4096));
  DO(cuCtxSynchronize());
  DO(cuStreamWaitValue32(s, gate, 1, CU_STREAM_WAIT_VALUE_GEQ));
}
static void open_gate(void) {
  DO(cuStreamWriteValue32(t, gate, 1, 0));
  DO(cuStreamSynchronize(s));
}

static void queries(void) {
  make();
  CUevent e, before;
  CUmemoryPool p;
  uint64_t v;
  int type = 77;
  DO(cuEventCreate(&e, 0));
  DO(cuEventCreate(&before, 0));
  ASK("query", cuStreamQuery(s));
  ASK("query of another", cuStreamQuery(t));
  ASK("query of one that blocks", cuStreamQuery(u));
  ASK("query of the NULL stream", cuStreamQuery(NULL));
  ASK("query of the thread's stream", cuStreamQuery(CU_STREAM_PER_THREAD));
  ASK("query of an event that was not recorded", cuEventQuery(before));
  ASK("record behind it", cuEventRecord(e, s));
  ASK("query of the event", cuEventQuery(e));
  ASK("wait for it in another", cuStreamWaitEvent(t, e, 0));
  ASK("query of the other", cuStreamQuery(t));
  ASK("record it again in a free stream", cuEventRecord(e, u));
  DO(cuStreamSynchronize(u));
  ASK("query of it after that", cuEventQuery(e));
  ASK("query of what waited for the first record", cuStreamQuery(t));
  CUstreamAttrValue av;
  ASK("attribute", cuStreamGetAttribute(s, 8, &av), "%d", av.priority);
  ASK("attribute of memory", cuPointerGetAttribute(&type, 2, d), "%d", type);
  ASK("pool", cuDeviceGetDefaultMemPool(&p, 0));
  ASK("pool's attribute", cuMemPoolGetAttribute(p, 7, &v), "%llu", (unsigned long long)v);
  ASK("destroy the event", cuEventDestroy(e));
  CUdeviceptr pooled = 0;
  ASK("allocate behind it", cuMemAllocAsync(&pooled, 100, s), "%d", pooled != 0);
  ASK("free behind it", cuMemFreeAsync(pooled, s));
  ASK("destroy the stream", cuStreamDestroy(s));
  DO(cuStreamWriteValue32(u, gate, 1, 0));
  DO(cuCtxSynchronize());
  unsigned value = 0;
  ASK("the gate", cuMemcpyDtoH(&value, gate, 4), "%u", value);
}

static void going_on(void) {
  make();
  unsigned char byte = 0;
  void *pin;
  DO(cuMemAllocHost(&pin, 4096));
  memset(pin, 3, 4096);
  ASK("copy in another", cuMemcpyHtoDAsync(d, pin, 16, t));
  ASK("synchronize the other", cuStreamSynchronize(t));
  ASK("set behind the gate", cuMemsetD8Async(d, 9, 16, s));
  DO(cuMemcpyDtoHAsync(pin, d, 16, t));
  DO(cuStreamSynchronize(t));
  SAY("what another sees", "%d", *(unsigned char *)pin);
  open_gate();
  ASK("what there is then", cuMemcpyDtoH(&byte, d, 1), "%d", byte);
}

static volatile int called;
static void count(void *data) {
  (void)data;
  called++;
}
static void functions(void) {
  make();
  ASK("host function behind it", cuLaunchHostFunc(s, count, NULL));
  ASK("host function in another", cuLaunchHostFunc(t, count, NULL));
  DO(cuStreamSynchronize(t));
  SAY("called", "%d", called);
  open_gate();
  SAY("called then", "%d", called);
}

static void kinds(void) {
  make();
  open_gate();
  struct {
    const char *name;
    unsigned flags, value, gate;
  } all[] = {{"at least, less", 0, 5, 4},
             {"at least, equal", 0, 5, 5},
             {"at least, wrapped", 0, 0xffffffff, 1},
             {"at least, far", 0, 0x80000001, 1},
             {"equal, not", 1, 5, 6},
             {"equal", 1, 5, 5},
             {"and, none", 2, 6, 9},
             {"and, one", 2, 6, 12},
             {"and with 0", 2, 0, 0xffffffff},
             {"nor, all", 3, 0xfffffff0, 0xf},
             {"nor, some", 3, 0xf0, 0xf}};
  for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
    DO(cuStreamWriteValue32(t, gate, all[i].gate, 0));
    DO(cuStreamSynchronize(t));
    CUstream w;
    DO(cuStreamCreate(&w, 1));
    int code = cuStreamWaitValue32(w, gate, all[i].value, all[i].flags);
    usleep(100000);
    int state = cuStreamQuery(w);
    SAY(all[i].name, "%d %d", code, state);
    unsigned way_out[] = {all[i].value, all[i].value, 0xffffffff, 0};
    DO(cuStreamWriteValue32(t, gate, way_out[all[i].flags], 0));
    DO(cuStreamSynchronize(t));
    if (!(all[i].flags == 2 && !all[i].value)) DO(cuStreamSynchronize(w));
  }
}

static void graphs(void) {
  make();
  CUgraph g;
  CUgraphNode n;
  CUgraphExec x;
  CUDA_HOST_NODE_PARAMS p = {count, NULL};
  DO(cuGraphCreate(&g, 0));
  DO(cuGraphAddHostNode(&n, g, NULL, 0, &p));
  DO(cuGraphInstantiate(&x, g, 0));
  ASK("launch behind it", cuGraphLaunch(x, s));
  ASK("launch the same in another", cuGraphLaunch(x, t));
  usleep(200000);
  SAY("called", "%d", called);
  ASK("query of the other", cuStreamQuery(t));
  ASK("set a node while it waits", cuGraphExecHostNodeSetParams(x, n, &p));
  ASK("destroy it while it waits", cuGraphExecDestroy(x));
  DO(cuStreamWriteValue32(u, gate, 1, 0));
  DO(cuCtxSynchronize());
  SAY("called then", "%d", called);
}

static void legacy(void) {
  make();
  CUstream b;
  DO(cuStreamCreate(&b, 0));
  DO(cuStreamWaitValue32(b, gate, 1, CU_STREAM_WAIT_VALUE_GEQ));
  ASK("query of NULL behind one that blocks", cuStreamQuery(NULL));
  ASK("set in the NULL stream", cuMemsetD8Async(d, 1, 16, NULL));
  ASK("query of NULL after that", cuStreamQuery(NULL));
  ASK("query of another that blocks", cuStreamQuery(u));
  ASK("set in the other", cuMemsetD8Async(d, 1, 16, u));
  ASK("query of the other", cuStreamQuery(u));
  ASK("query of the thread's stream", cuStreamQuery(CU_STREAM_PER_THREAD));
  ASK("set in the thread's stream", cuMemsetD8Async(d, 1, 16, CU_STREAM_PER_THREAD));
  ASK("query of the thread's stream after that", cuStreamQuery(CU_STREAM_PER_THREAD));
  ASK("set in one that does not block", cuMemsetD8Async(d + 64, 1, 16, t));
  ASK("synchronize that", cuStreamSynchronize(t));
  open_gate();
  DO(cuCtxSynchronize());
  ASK("query of NULL at last", cuStreamQuery(NULL));
}

CASES RUN(queries) RUN(going_on) RUN(functions) RUN(kinds) RUN(graphs) RUN(legacy) END
