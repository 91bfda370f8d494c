/* Two devices: captures that cross from a stream of one to a stream of the other by events. */
#include "two.h"

static CUstream s[2];
static CUevent e[2], join_;
static CUdeviceptr m[2];

static void make(void) {
  both();
  for (int d = 0; d < 2; d++) {
    on(d);
    DO(cuStreamCreate(&s[d], CU_STREAM_NON_BLOCKING));
    DO(cuEventCreate(&e[d], CU_EVENT_DISABLE_TIMING));
    m[d] = memory(d, 4096, 0);
  }
  DO(cuEventCreate(&join_, CU_EVENT_DISABLE_TIMING));
  on(0);
}

static int status(CUstream t) {
  CUstreamCaptureStatus v = 77;
  int code = cuStreamIsCapturing(t, &v);
  return code ? 1000 + code : (int)v;
}

static void crossing(void) {
  make();
  for (int mode = 0; mode < 3; mode++)
    for (int first = 0; first < 2; first++) {
      const char *kinds[] = {"global", "thread", "relaxed"}, *k = kinds[mode];
      CUgraph g = NULL;
      CUgraphExec x = NULL;
      CUstream a = s[first], b = s[!first];
      on(first);
      ASK(W("%s from %d: begin", k, first), cuStreamBeginCapture(a, mode), "%d %d", status(a), status(b));
      ASK(W("%s from %d: set", k, first), cuMemsetD32Async(m[first], 10 + mode, 4, a));
      ASK(W("%s from %d: record", k, first), cuEventRecord(e[first], a));
      if (mode == 2 && first) ASK(W("%s from %d: query of the event", k, first), cuEventQuery(e[first]));
      on(!first);
      ASK(W("%s from %d: the other waits", k, first), cuStreamWaitEvent(b, e[first], 0), "%d", status(b));
      ASK(W("%s from %d: set of the other", k, first), cuMemsetD32Async(m[!first], 20 + mode, 4, b));
      ASK(W("%s from %d: copy in the other", k, first),
          cuMemcpyPeerAsync(m[!first] + 256, of[!first], m[first], of[first], 16, b));
      ASK(W("%s from %d: record in the other", k, first), cuEventRecord(e[!first], b));
      on(first);
      ASK(W("%s from %d: join", k, first), cuStreamWaitEvent(a, e[!first], 0));
      ASK(W("%s from %d: end", k, first), cuStreamEndCapture(a, &g), "%d %d %d", g != NULL, status(a), status(b));
      size_t n = 77, edges = 77;
      if (!g) continue;
      ASK(W("%s from %d: nodes", k, first), cuGraphGetNodes(g, NULL, &n), "%zu", n);
      ASK(W("%s from %d: edges", k, first), cuGraphGetEdges(g, NULL, NULL, NULL, &edges), "%zu", edges);
      ASK(W("%s from %d: instantiate", k, first), cuGraphInstantiate(&x, g, 0));
      for (int d = 0; d < 2 && x; d++)
        ASK(W("%s from %d: launch in %d's", k, first, d), cuGraphLaunch(x, s[d]), "%d", settled(s[d]));
      SAY(W("%s from %d: what they have", k, first), "%u %u %u", word(0, m[0]), word(1, m[1]),
          word(!first, m[!first] + 256));
    }
}

static void unjoined(void) {
  make();
  CUgraph g = NULL;
  DO(cuStreamBeginCapture(s[0], CU_STREAM_CAPTURE_MODE_RELAXED));
  DO(cuEventRecord(e[0], s[0]));
  DO(cuStreamWaitEvent(s[1], e[0], 0));
  DO(cuMemsetD8Async(m[1], 1, 64, s[1]));
  ASK("end in the other's stream", cuStreamEndCapture(s[1], &g), "%d %d", status(s[0]), status(s[1]));
  ASK("end without a join", cuStreamEndCapture(s[0], &g), "%d %d %d", g != NULL, status(s[0]), status(s[1]));
  ASK("the other's stream is free", cuMemsetD8Async(m[1], 1, 64, s[1]), "%d", settled(s[1]));
  DO(cuStreamBeginCapture(s[0], CU_STREAM_CAPTURE_MODE_RELAXED));
  ASK("record of the other's event", cuEventRecord(e[1], s[0]));
  ASK("record in the other's stream of its event", cuEventRecord(join_, s[1]));
  ASK("wait for what is not captured", cuStreamWaitEvent(s[0], join_, 0), "%d", status(s[0]));
  ASK("end of it", cuStreamEndCapture(s[0], &g), "%d", g != NULL);
}

static void under_captures(void) {
  make();
  for (int mode = 0; mode < 3; mode++) {
    CUgraph g = NULL;
    CUdeviceptr p = 0;
    CUstream t = NULL;
    CUcontext none = NULL;
    on(0);
    DO(cuStreamBeginCapture(s[0], mode));
    on(1);
    ASK(W("mode %d: allocate on 1", mode), cuMemAlloc(&p, 4096));
    ASK(W("mode %d: set on 1", mode), cuMemsetD8(m[1], 1, 64));
    ASK(W("mode %d: set in 1's stream", mode), cuMemsetD8Async(m[1], 1, 64, s[1]));
    ASK(W("mode %d: query of 1's stream", mode), settled(s[1]));
    ASK(W("mode %d: synchronize 1", mode), cuCtxSynchronize());
    ASK(W("mode %d: a stream on 1", mode), cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
    ASK(W("mode %d: enable access", mode), cuCtxEnablePeerAccess(of[0], 0));
    ASK(W("mode %d: disable access", mode), cuCtxDisablePeerAccess(of[0]));
    ASK(W("mode %d: NULL on 1", mode), cuMemsetD8Async(m[1], 1, 64, NULL));
    ASK(W("mode %d: synchronize the capturing one", mode), cuStreamSynchronize(s[0]));
    ASK(W("mode %d: a context on 1", mode), cuCtxCreate(&none, NULL, 0, 1));
    on(0);
    ASK(W("mode %d: end", mode), cuStreamEndCapture(s[0], &g), "%d", g != NULL);
  }
}

static void two_at_once(void) {
  make();
  CUgraph g[2] = {NULL};
  for (int d = 0; d < 2; d++) ASK(W("begin on %d", d), cuStreamBeginCapture(s[d], CU_STREAM_CAPTURE_MODE_RELAXED));
  for (int d = 0; d < 2; d++) DO(cuMemsetD8Async(m[d], 1, 64, s[d]));
  DO(cuEventRecord(e[0], s[0]));
  ASK("one waits for the other's", cuStreamWaitEvent(s[1], e[0], 0), "%d %d", status(s[0]), status(s[1]));
  for (int d = 0; d < 2; d++) ASK(W("end on %d", d), cuStreamEndCapture(s[d], &g[d]), "%d", g[d] != NULL);
  on(1);
  ASK("begin of 0's, 1 current", cuStreamBeginCapture(s[0], CU_STREAM_CAPTURE_MODE_RELAXED));
  ASK("set, 1 current", cuMemsetD8Async(m[0], 2, 64, s[0]));
  ASK("set of 1's memory", cuMemsetD8Async(m[1], 2, 64, s[0]));
  ASK("copy to 1", cuMemcpyDtoDAsync(m[1], m[0], 64, s[0]));
  CUdeviceptr p = 0;
  ASK("allocate", cuMemAllocAsync(&p, 4096, s[0]), "%d", p != 0);
  ASK("free", cuMemFreeAsync(p, s[0]));
  ASK("end, 1 current", cuStreamEndCapture(s[0], &g[0]), "%d", g[0] != NULL);
  size_t n = 77;
  if (g[0]) ASK("nodes", cuGraphGetNodes(g[0], NULL, &n), "%zu", n);
}

CASES RUN(crossing) RUN(unjoined) RUN(under_captures) RUN(two_at_once) END
