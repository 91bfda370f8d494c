/* Two devices: values written to and waited for in memory of the other device, host functions in its streams. */
#include "two.h"

static CUstream s[2];
static CUdeviceptr m[2];

static void make(void) {
  both();
  for (int d = 0; d < 2; d++) {
    on(d);
    DO(cuStreamCreate(&s[d], CU_STREAM_NON_BLOCKING));
    m[d] = memory(d, 4096, 0);
  }
  on(0);
}

static void written(int enabled) {
  make();
  if (enabled) DO(cuCtxEnablePeerAccess(of[1], 0));
  for (int now = -1; now < 2; now++) {
    DO(cuCtxSetCurrent(now < 0 ? NULL : of[now]));
    for (int i = 0; i < 2; i++)
      for (int j = 0; j < 2; j++) {
        unsigned v = 100 + 10 * i + j;
        CUdeviceptr at = m[j] + 64 * (now + 1) + 16 * i;
        ASK(W("write to %d's in %d's stream, %d current", j, i, now), cuStreamWriteValue32(s[i], at, v, 0), "%d",
            settled(s[i]));
        SAY(W("%d's has by %d's stream, %d current", j, i, now), "%u", word(j, at));
        ASK(W("write 64 to %d's in %d's stream, %d current", j, i, now), cuStreamWriteValue64(s[i], at + 8, v, 0), "%d",
            settled(s[i]));
        SAY(W("%d's has 64 by %d's stream, %d current", j, i, now), "%u", word(j, at + 8));
      }
    ASK(W("write to 1's in NULL, %d current", now), cuStreamWriteValue32(NULL, m[1] + 512, 7, 0));
  }
}

static void without(void) { written(0); }
static void with(void) { written(1); }

static void waits(int enabled) {
  make();
  if (enabled) DO(cuCtxEnablePeerAccess(of[1], 0));
  for (int i = 0; i < 2; i++)
    for (int j = 0; j < 2; j++) {
      unsigned v = word(j, m[j]);
      static const int flags[] = {CU_STREAM_WAIT_VALUE_EQ, CU_STREAM_WAIT_VALUE_GEQ, CU_STREAM_WAIT_VALUE_AND,
                                  CU_STREAM_WAIT_VALUE_NOR};
      for (int f = 0; f < 4; f++) {
        if (flags[f] == CU_STREAM_WAIT_VALUE_AND) DO(cuMemsetD32(m[j], v = 3, 1));
        DO(cuCtxSynchronize());
        ASK(W("%d's stream, memory of %d, kind %d", i, j, f), cuStreamWaitValue32(s[i], m[j], v, flags[f]), "%d",
            settled(s[i]));
      }
    }
}

static void waits_without(void) { waits(0); }
static void waits_with(void) { waits(1); }

static void gates(void) {
  make();
  for (int i = 0; i < 2; i++) {
    CUevent e = NULL;
    on(i);
    DO(cuEventCreate(&e, 0));
    ASK(W("gate in %d's stream at its own memory", i),
        cuStreamWaitValue32(s[i], m[i], 40 + i, CU_STREAM_WAIT_VALUE_EQ));
    DO(cuEventRecord(e, s[i]));
    ASK(W("query of %d's stream", i), cuStreamQuery(s[i]));
    on(!i);
    ASK(W("query of %d's event, the other current", i), cuEventQuery(e));
    ASK(W("the other's stream waits for %d's event", i), cuStreamWaitEvent(s[!i], e, 0));
    ASK(W("query of the other's stream, %d", i), cuStreamQuery(s[!i]));
    CUstream t = NULL;
    DO(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
    int opened = cuMemsetD32Async(m[i], 40 + i, 1, t);
    ASK(W("opened by the other's set, %d", i), opened, "%d", settled(t));
    if (settled(s[i])) {
      on(i);
      CUstream u = NULL;
      DO(cuStreamCreate(&u, CU_STREAM_NON_BLOCKING));
      ASK(W("opened by its own, %d", i), cuStreamWriteValue32(u, m[i], 40 + i, 0));
    }
    ASK(W("%d's stream at the end", i), settled(s[i]), "%d %d", settled(s[!i]), cuEventQuery(e));
  }
}

static void batches(void) {
  make();
  CUstreamBatchMemOpParams p[2];
  for (int i = 0; i < 2; i++) {
    SET(p);
    for (int d = 0; d < 2; d++) {
      p[d].operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
      p[d].writeValue.address = m[d] + 1024, p[d].writeValue.value = 70 + 10 * i + d;
    }
    ASK(W("both in %d's stream", i), cuStreamBatchMemOp(s[i], 2, p, 0), "%d", settled(s[i]));
    SAY(W("they have, %d's stream", i), "%u %u", word(0, m[0] + 1024), word(1, m[1] + 1024));
  }
  ASK("none in 1's stream", cuStreamBatchMemOp(s[1], 0, p, 0));
  RISK("at NULL", cuStreamBatchMemOp(s[1], 1, NULL, 0));
  ASK("to an unaligned word of 1", cuStreamWriteValue32(s[0], m[1] + 2, 1, 0));
  DO(cuMemFree(m[1]));
  RISK("to freed memory of 1", cuStreamWriteValue32(s[0], m[1], 1, 0));
}

static volatile int seen_[4];
static void CUDA_CB seen(void *data) { seen_[(intptr_t)data]++; }
static void CUDA_CB called(CUstream t, CUresult status, void *data) { seen_[(intptr_t)data] += t == s[1] && !status; }

static void functions(void) {
  make();
  for (int now = -1; now < 2; now++) {
    DO(cuCtxSetCurrent(now < 0 ? NULL : of[now]));
    seen_[0] = seen_[1] = seen_[2] = 0;
    for (intptr_t d = 0; d < 2; d++)
      ASK(W("function in %d's stream, %d current", (int)d, now), cuLaunchHostFunc(s[d], seen, (void *)d), "%d",
          settled(s[d]));
    ASK(W("callback in 1's stream, %d current", now), cuStreamAddCallback(s[1], called, (void *)2, 0), "%d",
        settled(s[1]));
    SAY(W("seen, %d current", now), "%d %d %d", seen_[0], seen_[1], seen_[2]);
  }
}

CASES RUN(without) RUN(with) RUN(waits_without) RUN(waits_with) RUN(gates) RUN(batches) RUN(functions) END
