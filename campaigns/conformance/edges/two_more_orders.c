/* Two devices: which waits for which: events, values and host functions across the devices' streams. */
#include "two.h"

static CUstream s[2];
static volatile int ended[2], order[2], count;

static void CUDA_CB mark(void *i) {
  order[(intptr_t)i] = ++count;
  ended[(intptr_t)i] = 1;
}
static void CUDA_CB hold(void *i) {
  usleep(200000);
  mark(i);
}
static void make(unsigned flags) {
  both();
  for (int d = 0; d < 2; d++) {
    on(d);
    DO(cuStreamCreate(&s[d], flags));
  }
}
static void over(void) {
  for (int d = 0; d < 2; d++) DO(cuStreamSynchronize(s[d]));
  for (int d = 0; d < 2; d++) ended[d] = order[d] = 0;
  count = 0;
}

static void by_events(void) {
  make(CU_STREAM_NON_BLOCKING);
  CUevent e[2];
  for (int d = 0; d < 2; d++) {
    on(d);
    DO(cuEventCreate(&e[d], CU_EVENT_DISABLE_TIMING));
  }
  for (int now = -1; now < 2; now++)
    for (int d = 0; d < 2; d++) {
      on(now);
      ASK(W("%d current, hold %d", now, d), cuLaunchHostFunc(s[d], hold, (void *)(intptr_t)d));
      ASK(W("%d current, record of %d's event", now, d), cuEventRecord(e[d], s[d]));
      ASK(W("%d current, query of the held event of %d", now, d), cuEventQuery(e[d]));
      ASK(W("%d current, the other waits for %d", now, d), cuStreamWaitEvent(s[!d], e[d], 0));
      ASK(W("%d current, query of the stream that waits for %d", now, d), cuStreamQuery(s[!d]));
      ASK(W("%d current, mark of the one that waits for %d", now, d),
          cuLaunchHostFunc(s[!d], mark, (void *)(intptr_t)!d));
      ASK(W("%d current, synchronize the one that waits for %d", now, d), cuStreamSynchronize(s[!d]), "%d %d", order[d],
          order[!d]);
      ASK(W("%d current, query of %d then", now, d), cuStreamQuery(s[d]), "%d", cuEventQuery(e[d]));
      over();
    }
}

static void later_record(void) {
  make(CU_STREAM_NON_BLOCKING);
  CUevent e;
  on(1);
  DO(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
  ASK("0 waits before any record", cuStreamWaitEvent(s[0], e, 0));
  DO(cuLaunchHostFunc(s[1], hold, (void *)1));
  DO(cuEventRecord(e, s[1]));
  ASK("that wait is over", cuStreamSynchronize(s[0]), "%d", ended[1]);
  ASK("0 waits for the record", cuStreamWaitEvent(s[0], e, 0));
  DO(cuStreamSynchronize(s[1]));
  DO(cuLaunchHostFunc(s[1], hold, (void *)1));
  ended[1] = 0;
  DO(cuEventRecord(e, s[1]));
  ASK("a later record is not waited for", cuStreamSynchronize(s[0]), "%d", ended[1]);
  ASK("destroy the event that is not over", cuEventDestroy(e), "%d", ended[1]);
  over();
  on(0);
  DO(cuEventCreate(&e, 0));
  ASK("1 waits for 0's unrecorded event", cuStreamWaitEvent(s[1], e, 0));
  ASK("context 1 waits for 0's event", cuCtxWaitEvent(of[1], e));
  ASK("context 0 records it", cuCtxRecordEvent(of[0], e), "%d", cuEventSynchronize(e));
}

static void by_values(void) {
  make(CU_STREAM_NON_BLOCKING);
  for (int d = 0; d < 2; d++) {
    CUdeviceptr own = memory(d, 4096, 0), theirs = memory(!d, 4096, 0), host = 0;
    void *h = NULL;
    on(!d);
    DO(cuMemHostAlloc(&h, 4096, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
    memset(h, 0, 4096);
    host = (CUdeviceptr)h;
    ASK(W("%d waits for host memory made on the other", d),
        cuStreamWaitValue32(s[d], host, 5, CU_STREAM_WAIT_VALUE_GEQ));
    DO(cuLaunchHostFunc(s[d], mark, (void *)(intptr_t)d));
    DO(cuLaunchHostFunc(s[!d], hold, (void *)(intptr_t)!d));
    ASK(W("the other of %d writes it after a while", d), cuStreamWriteValue32(s[!d], host, 5, 0));
    ASK(W("query of %d that waits", d), cuStreamQuery(s[d]));
    if (!ended[d]) usleep(600000);
    *(volatile unsigned *)h = 5;
    ASK(W("end of the wait of %d", d), cuStreamSynchronize(s[d]), "%d %d", order[!d], order[d]);
    over();
    ASK(W("%d writes its own", d), cuStreamWriteValue32(s[d], own, 6, 0), "%d %x", cuStreamSynchronize(s[d]),
        word(d, own));
    ASK(W("%d writes the other's", d), cuStreamWriteValue32(s[d], theirs, 0, 0), "%x", word(!d, theirs));
  }
}

static void null_streams(void) {
  make(CU_STREAM_DEFAULT);
  for (int d = 0; d < 2; d++) {
    on(d);
    ASK(W("hold the NULL stream of %d", d), cuLaunchHostFunc(NULL, hold, (void *)(intptr_t)d));
    ASK(W("query of its stream, NULL of %d held", d), cuStreamQuery(s[d]));
    ASK(W("query of the other's, NULL of %d held", d), cuStreamQuery(s[!d]));
    ASK(W("mark of the other's, NULL of %d held", d), cuLaunchHostFunc(s[!d], mark, (void *)(intptr_t)!d), "%d",
        cuStreamSynchronize(s[!d]));
    SAY(W("ended, NULL of %d held", d), "%d %d", ended[d], ended[!d]);
    ASK(W("NULL of its own, stream of %d held", d), cuStreamSynchronize(NULL), "%d", ended[d]);
    over();
  }
}

CASES RUN(by_events) RUN(later_record) RUN(by_values) RUN(null_streams) END
