/* Two devices: captures that go across them by events: forks, joins, invalidations, what may be called meanwhile. */
#include "two.h"
#define NAME(w, ...) \
  char w[100];       \
  snprintf(w, sizeof w, __VA_ARGS__) /* W has room for only a few at a time */

static CUstream s[2];
static CUevent e[2];
static CUfunction f[2];
static CUdeviceptr a[2];

static void make(void) {
  both();
  for (int d = 0; d < 2; d++) {
    CUmodule m = NULL;
    a[d] = memory(d, 4096, 0x10 + 0x10 * d);
    on(d);
    DO(cuStreamCreate(&s[d], CU_STREAM_NON_BLOCKING));
    DO(cuEventCreate(&e[d], CU_EVENT_DISABLE_TIMING));
    DO(cuModuleLoadData(&m, PTX));
    DO(cuModuleGetFunction(&f[d], m, "empty"));
  }
}
static void states(const char *w) {
  CUstreamCaptureStatus x[2] = {7, 7};
  for (int d = 0; d < 2; d++) ASK(W("%s: state of %d", w, d), cuStreamIsCapturing(s[d], &x[d]), "%d", x[d]);
}
static CUgraph end(const char *w, int d) {
  CUgraph g = NULL;
  size_t n = 77;
  ASK(W("%s: end in %d", w, d), cuStreamEndCapture(s[d], &g), "%d", g != NULL);
  if (g) ASK(W("%s: nodes", w), cuGraphGetNodes(g, NULL, &n), "%zu", n);
  return g;
}
static int launch(int d) { return cuLaunchKernel(f[d], 1, 1, 1, 1, 1, 1, 0, s[d], NULL, NULL); }

static void joined(void) {
  make();
  for (int now = -1; now < 2; now++)
    for (int d = 0; d < 2; d++)
      for (int mode = 0; mode < 3; mode++) {
        CUgraph g[2] = {NULL};
        CUgraphExec x = NULL;
        on(now);
        NAME(w, "%d current, from %d, mode %d", now, d, mode);
        ASK(W("%s: begin", w), cuStreamBeginCapture(s[d], mode));
        ASK(W("%s: launch", w), launch(d));
        ASK(W("%s: record", w), cuEventRecord(e[d], s[d]));
        ASK(W("%s: the other waits", w), cuStreamWaitEvent(s[!d], e[d], 0));
        states(w);
        ASK(W("%s: launch in the other", w), launch(!d));
        ASK(W("%s: copy across in the other", w), cuMemcpyAsync(a[!d], a[d], 64, s[!d]));
        for (int k = 0; k < 2; k++)
          DO(cuStreamGetCaptureInfo(s[k], &(CUstreamCaptureStatus){0}, NULL, &g[k], NULL, NULL, NULL));
        SAY(W("%s: one graph", w), "%d", g[0] == g[1] && g[0]);
        ASK(W("%s: record in the other", w), cuEventRecord(e[!d], s[!d]));
        ASK(W("%s: join", w), cuStreamWaitEvent(s[d], e[!d], 0));
        CUgraph got = end(w, d);
        if (!got) continue;
        ASK(W("%s: instantiate", w), cuGraphInstantiate(&x, got, 0));
        for (int k = 0; k < 2; k++)
          ASK(W("%s: launch on %d", w, k), cuGraphLaunch(x, s[k]), "%d %x", cuStreamSynchronize(s[k]), word(!d, a[!d]));
      }
}

static void wrongs(void) {
  make();
  for (int d = 0; d < 2; d++)
    for (int what = 0; what < 6; what++) {
      CUgraph g = NULL;
      NAME(w, "from %d, wrong %d", d, what);
      on(d);
      DO(cuStreamBeginCapture(s[d], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
      DO(launch(d));
      DO(cuEventRecord(e[d], s[d]));
      if (what != 4) DO(cuStreamWaitEvent(s[!d], e[d], 0));
      if (what == 0) ASK(W("%s: the other ends", w), cuStreamEndCapture(s[!d], &g), "%d", g != NULL);
      if (what == 2) ASK(W("%s: synchronize the other", w), cuStreamSynchronize(s[!d]));
      if (what == 3) ASK(W("%s: query the event", w), cuEventQuery(e[d]));
      if (what == 4)
        ASK(W("%s: the other begins too", w), cuStreamBeginCapture(s[!d], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
      if (what == 4) ASK(W("%s: it waits for the first", w), cuStreamWaitEvent(s[!d], e[d], 0));
      if (what == 5)
        ASK(W("%s: begin in the other", w), cuStreamBeginCapture(s[!d], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
      states(w); /* wrong 1 is only that nothing is joined */
      end(w, d);
      if (what == 4) end("the other of them", !d);
      ASK(W("%s: launch after that", w), launch(!d), "%d", cuStreamSynchronize(s[!d]));
    }
}

/* Calls while a stream of 1 captures: what they give and whether the capture lives. */
#define DURING(words, call)                                                                                    \
  for (int mode = 0; mode < 3; mode++)                                                                         \
    for (int now = 0; now < 2; now++) {                                                                        \
      CUstreamCaptureStatus x = 7;                                                                             \
      CUgraph g = NULL;                                                                                        \
      DO(cuStreamBeginCapture(s[1], mode));                                                                    \
      on(now);                                                                                                 \
      ASK(W("%s, mode %d, %d current", words, mode, now), call);                                               \
      ASK(W("%s, mode %d, %d current: then", words, mode, now), cuStreamIsCapturing(s[1], &x), "%d", x);       \
      ASK(W("%s, mode %d, %d current: end", words, mode, now), cuStreamEndCapture(s[1], &g), "%d", g != NULL); \
    }

static void meanwhile(void) {
  make();
  CUdeviceptr p = 0;
  DURING("synchronize", cuCtxSynchronize());
  DURING("synchronize the stream of 0", cuStreamSynchronize(s[0]));
  DURING("launch on 0", launch(0));
  DURING("allocate", cuMemAlloc(&p, 4096));
  DURING("set of 0's", cuMemsetD8(a[0], 1, 64));
  DURING("copy across", cuMemcpy(a[0], a[1], 64));
  DURING("enable access", cuCtxEnablePeerAccess(now ? of[0] : of[1], 0));
}

CASES RUN(joined) RUN(wrongs) RUN(meanwhile) END
