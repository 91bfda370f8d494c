/* Two devices: streams and events of each, records, waits, queries and times across. */
#include "two.h"

static CUstream s[2];
static CUevent e[2];

static void make(void) {
  both();
  for (int d = 0; d < 2; d++) {
    on(d);
    DO(cuStreamCreate(&s[d], CU_STREAM_NON_BLOCKING));
    DO(cuEventCreate(&e[d], 0));
  }
  on(0);
}

static void facts(void) {
  make();
  for (int now = -1; now < 2; now++) {
    DO(cuCtxSetCurrent(now < 0 ? NULL : of[now]));
    for (int d = 0; d < 2; d++) {
      CUdevice v = 9;
      CUcontext c = NULL;
      unsigned flags = 9;
      int priority = 9;
      unsigned long long id = 0;
      ASK(W("device of %d's, %d current", d, now), cuStreamGetDevice(s[d], &v), "%d", v);
      ASK(W("context of %d's, %d current", d, now), cuStreamGetCtx(s[d], &c), "%d", c == of[d]);
      ASK(W("flags of %d's, %d current", d, now), cuStreamGetFlags(s[d], &flags), "%u", flags);
      ASK(W("priority of %d's, %d current", d, now), cuStreamGetPriority(s[d], &priority), "%d", priority);
      ASK(W("id of %d's, %d current", d, now), cuStreamGetId(s[d], &id), "%d", id != 0);
      ASK(W("query of %d's, %d current", d, now), cuStreamQuery(s[d]));
      ASK(W("synchronize %d's, %d current", d, now), cuStreamSynchronize(s[d]));
    }
    CUdevice v = 9;
    ASK(W("device of NULL, %d current", now), cuStreamGetDevice(NULL, &v), "%d", v);
    ASK(W("device of legacy, %d current", now), cuStreamGetDevice(CU_STREAM_LEGACY, &v), "%d", v);
    ASK(W("device of the thread's, %d current", now), cuStreamGetDevice(CU_STREAM_PER_THREAD, &v), "%d", v);
  }
  RISK("device into NULL", cuStreamGetDevice(s[1], NULL));
}

static void records(void) {
  make();
  for (int now = 0; now < 2; now++) {
    on(now);
    for (int i = 0; i < 2; i++)
      for (int j = 0; j < 2; j++) {
        ASK(W("record %d's event in %d's stream, %d current", i, j, now), cuEventRecord(e[i], s[j]));
        ASK(W("with flags, %d's event in %d's stream, %d current", i, j, now), cuEventRecordWithFlags(e[i], s[j], 0));
        ASK(W("%d's stream waits for %d's event, %d current", j, i, now), cuStreamWaitEvent(s[j], e[i], 0));
      }
    for (int i = 0; i < 2; i++) {
      ASK(W("record %d's event in NULL, %d current", i, now), cuEventRecord(e[i], NULL));
      ASK(W("NULL waits for %d's event, %d current", i, now), cuStreamWaitEvent(NULL, e[i], 0));
      ASK(W("synchronize %d's event, %d current", i, now), cuEventSynchronize(e[i]));
      ASK(W("query %d's event, %d current", i, now), cuEventQuery(e[i]));
      ASK(W("context %d records its own, %d current", i, now), cuCtxRecordEvent(of[i], e[i]));
      ASK(W("context %d records the other's, %d current", i, now), cuCtxRecordEvent(of[i], e[!i]));
      ASK(W("context %d waits for the other's, %d current", i, now), cuCtxWaitEvent(of[i], e[!i]));
    }
  }
  DO(cuCtxSetCurrent(NULL));
  ASK("record 1's in its own, none current", cuEventRecord(e[1], s[1]));
  ASK("record 0's in 1's, none current", cuEventRecord(e[0], s[1]));
  ASK("0's stream waits for 1's event, none current", cuStreamWaitEvent(s[0], e[1], 0));
}

static void times(void) {
  make();
  CUevent f[2] = {NULL};
  for (int d = 0; d < 2; d++) {
    on(d);
    DO(cuEventCreate(&f[d], 0));
    DO(cuEventRecord(e[d], s[d]));
    DO(cuEventRecord(f[d], s[d]));
    DO(cuStreamSynchronize(s[d]));
  }
  float t = 7;
  for (int now = 0; now < 2; now++) {
    on(now);
    for (int d = 0; d < 2; d++)
      ASK(W("within %d, %d current", d, now), cuEventElapsedTime(&t, e[d], f[d]), "%d", t >= 0 && t < 1000);
    t = 7;
    ASK(W("from 0 to 1, %d current", now), cuEventElapsedTime(&t, e[0], e[1]), "%d", t == 7);
    t = 7;
    ASK(W("from 1 to 0, %d current", now), cuEventElapsedTime(&t, e[1], e[0]), "%d", t == 7);
  }
  CUevent fresh = NULL;
  DO(cuEventCreate(&fresh, 0));
  ASK("from 0 to a fresh one of 1", cuEventElapsedTime(&t, e[0], fresh));
}

static void CUDA_CB slow(void *data) {
  usleep(100000);
  *(volatile int *)data = 1;
}

static void order(void) {
  make();
  static volatile int done;
  on(1);
  ASK("a slow function on 1", cuLaunchHostFunc(s[1], slow, (void *)&done));
  DO(cuEventRecord(e[1], s[1]));
  on(0);
  ASK("the event of 1, 0 current", cuEventQuery(e[1]));
  ASK("0 is not held", cuCtxSynchronize(), "%d", done);
  ASK("0's stream waits", cuStreamWaitEvent(s[0], e[1], 0));
  ASK("query 0's stream", cuStreamQuery(s[0]));
  ASK("synchronize 0's stream", cuStreamSynchronize(s[0]), "%d", done);
  ASK("the event of 1 after that", cuEventQuery(e[1]));
  ASK("destroy 1's stream, 0 current", cuStreamDestroy(s[1]));
  ASK("destroy 1's event, 0 current", cuEventDestroy(e[1]));
  ALONE("query the destroyed event", cuEventQuery(e[1]));
  ALONE("query the destroyed stream", cuStreamQuery(s[1]));
  ASK("reset 1", cuDevicePrimaryCtxReset(1));
  ASK("0's stream then", cuStreamQuery(s[0]));
  ASK("0's event then", cuEventRecord(e[0], s[0]));
}

static void attributes(void) {
  make();
  CUstreamAttrValue v;
  SET(v);
  v.syncPolicy = CU_SYNC_POLICY_YIELD;
  ASK("set 1's policy, 0 current", cuStreamSetAttribute(s[1], CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &v));
  SET(v);
  ASK("1's policy", cuStreamGetAttribute(s[1], CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &v), "%d", v.syncPolicy);
  ASK("copy attributes across", cuStreamCopyAttributes(s[0], s[1]));
  ASK("0's policy", cuStreamGetAttribute(s[0], CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &v), "%d", v.syncPolicy);
}

CASES RUN(facts) RUN(records) RUN(times) RUN(order) RUN(attributes) END
