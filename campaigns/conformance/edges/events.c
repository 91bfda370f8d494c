/* Events: flags, records, queries, times between them. */
#include "ask.h"

static CUevent made(unsigned flags) {
  CUevent e = NULL;
  DO(cuEventCreate(&e, flags));
  return e;
}

static void creating(void) {
  CUevent e;
  for (int flags = 0; flags <= 16; flags++) ASK(W("flags %d", flags), cuEventCreate(&e, flags));
  RISK("into NULL", cuEventCreate(NULL, 0));
  RISK("destroy NULL", cuEventDestroy(NULL));
  RISK("query NULL", cuEventQuery(NULL));
  RISK("synchronize NULL", cuEventSynchronize(NULL));
  RISK("record NULL", cuEventRecord(NULL, 0));
  ALONE("destroy twice", (e = made(0), cuEventDestroy(e), cuEventDestroy(e)));
  ALONE("query a destroyed one", (e = made(0), cuEventDestroy(e), cuEventQuery(e)));
  ALONE("record a destroyed one", (e = made(0), cuEventDestroy(e), cuEventRecord(e, 0)));
}

static void fresh(void) {
  CUevent e = made(0);
  ASK("query before a record", cuEventQuery(e));
  ASK("synchronize before a record", cuEventSynchronize(e));
  ASK("a stream waits for it before a record", cuStreamWaitEvent(0, e, 0));
  for (int flags = 0; flags <= 3; flags++) ASK(W("record with flags %d", flags), cuEventRecordWithFlags(e, 0, flags));
  for (int flags = 0; flags <= 3; flags++) ASK(W("wait with flags %d", flags), cuStreamWaitEvent(0, e, flags));
  CUevent third = made(0);
  ASK("record external outside a capture", cuEventRecordWithFlags(third, 0, CU_EVENT_RECORD_EXTERNAL));
  ASK("query after that", cuEventQuery(third));
}

static void times(void) {
  CUevent a = made(0), b = made(0), c = made(0), no = made(CU_EVENT_DISABLE_TIMING),
          ipc = made(CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS);
  float t = 7;
  ASK("neither recorded", cuEventElapsedTime(&t, a, b), "%d", t == 7);
  DO(cuEventRecord(a, 0));
  ASK("end not recorded", cuEventElapsedTime(&t, a, b), "%d", t == 7);
  ASK("start not recorded", cuEventElapsedTime(&t, b, a), "%d", t == 7);
  DO(cuEventRecord(b, 0));
  DO(cuCtxSynchronize());
  ASK("both", cuEventElapsedTime(&t, a, b), "%d", t >= 0 && t < 1000);
  ASK("backwards", cuEventElapsedTime(&t, b, a), "%d", t <= 0);
  ASK("the same", cuEventElapsedTime(&t, a, a), "%d", t == 0);
  t = 7;
  ASK("start without timing", cuEventElapsedTime(&t, no, a), "%d", t == 7);
  ASK("end without timing", cuEventElapsedTime(&t, a, no), "%d", t == 7);
  DO(cuEventRecord(no, 0));
  DO(cuEventRecord(ipc, 0));
  DO(cuCtxSynchronize());
  ASK("end without timing, recorded", cuEventElapsedTime(&t, a, no), "%d", t == 7);
  ASK("between processes", cuEventElapsedTime(&t, a, ipc), "%d", t == 7);
  RISK("into NULL", cuEventElapsedTime(NULL, a, b));
  RISK("start NULL", cuEventElapsedTime(&t, NULL, b), "%d", t == 7);
  RISK("end NULL", cuEventElapsedTime(&t, a, NULL), "%d", t == 7);
  RISK("both NULL", cuEventElapsedTime(&t, NULL, NULL));
  CUdeviceptr d = 0;
  CUstream s;
  DO(cuStreamCreate(&s, 1));
  DO(cuMemAlloc(&d, 4096));
  ASK("a gate", cuStreamWaitValue32(s, d, 12345, CU_STREAM_WAIT_VALUE_EQ));
  DO(cuEventRecord(c, s));
  ASK("query behind a gate", cuEventQuery(c));
  ASK("time to what waits", cuEventElapsedTime(&t, a, c));
  ASK("time from what waits", cuEventElapsedTime(&t, c, a));
  CUstream other_;
  DO(cuStreamCreate(&other_, 1));
  ASK("open it", cuStreamWriteValue32(other_, d, 12345, 0));
  ASK("synchronize", cuEventSynchronize(c));
  ASK("query after that", cuEventQuery(c));
}

static void contexts(void) {
  CUcontext two = NULL, none;
  CUevent e = made(0), theirs = NULL;
  CUstream s = NULL;
  DO(cuCtxCreate(&two, NULL, 0, 0));
  DO(cuEventCreate(&theirs, 0));
  DO(cuStreamCreate(&s, 0));
  ASK("record of another context's event", cuEventRecord(e, s));
  ASK("wait for another context's event", cuStreamWaitEvent(s, e, 0));
  ASK("record of its own", cuEventRecord(theirs, s));
  DO(cuStreamSynchronize(s));
  DO(cuCtxPopCurrent(&none));
  DO(cuEventRecord(e, 0));
  DO(cuCtxSynchronize());
  float t;
  ASK("time across contexts", cuEventElapsedTime(&t, e, theirs));
  ASK("query of the other context's", cuEventQuery(theirs));
  ASK("destroy the context", cuCtxDestroy(two));
  RISK("query after that", cuEventQuery(theirs));
  RISK("destroy after that", cuEventDestroy(theirs));
  DO(cuCtxSetCurrent(NULL));
  ASK("query without a context", cuEventQuery(e));
  ASK("create without a context", cuEventCreate(&theirs, 0));
  ASK("record without a context", cuEventRecord(e, 0));
  ASK("destroy without a context", cuEventDestroy(e));
}

static void of_contexts(void) {
  CUevent e = made(0);
  ASK("record of a context", cuCtxRecordEvent(context, e));
  ASK("wait of a context", cuCtxWaitEvent(context, e));
  RISK("record of a NULL context", cuCtxRecordEvent(NULL, e));
  RISK("record of a NULL event", cuCtxRecordEvent(context, NULL));
  RISK("wait of a NULL context", cuCtxWaitEvent(NULL, e));
  RISK("wait for a NULL event", cuCtxWaitEvent(context, NULL));
}

CASES RUN(creating) RUN(fresh) RUN(times) RUN(contexts) RUN(of_contexts) END
