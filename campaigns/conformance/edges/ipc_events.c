/* An event and memory that two processes share: who waits for whom, and what remains when one ends. */
#include "ask.h"

struct letter {
  CUipcMemHandle memory;
  CUipcEventHandle event;
};
static CUevent e;
static CUdeviceptr d;
static CUstream s;

static void share(int end) {
  struct letter l;
  DO(cuMemAlloc(&d, 2 * MIB));
  DO(cuMemsetD8(d, 0, 4096));
  DO(cuCtxSynchronize());
  DO(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS));
  DO(cuStreamCreate(&s, 1));
  DO(cuIpcGetMemHandle(&l.memory, d));
  DO(cuIpcGetEventHandle(&l.event, e));
  if (write(end, &l, sizeof l) != sizeof l) perror("write");
}
static void take(int end) {
  struct letter l;
  if (read(end, &l, sizeof l) != sizeof l) _exit(1);
  begin();
  DO(cuIpcOpenMemHandle(&d, l.memory, 1));
  DO(cuIpcOpenEventHandle(&e, l.event));
  DO(cuStreamCreate(&s, 1));
}

static void waiter(int end) {
  take(end);
  ASK("child queries before any record", cuEventQuery(e));
  pass(end);
  await(end);
  ASK("child queries what waits in the parent", cuEventQuery(e));
  ASK("child waits for it", cuStreamWaitEvent(s, e, 0));
  ASK("child sets behind it", cuMemsetD8Async(d + 8, 7, 4, s));
  ASK("child queries its stream", cuStreamQuery(s));
  pass(end);
  await(end);
  ASK("child synchronizes with the event", cuEventSynchronize(e));
  ASK("child synchronizes its stream", cuStreamSynchronize(s));
  unsigned char byte = 0;
  ASK("child reads", cuMemcpyDtoH(&byte, d + 8, 1), "%d", byte);
  pass(end);
}
static void across(void) {
  int end;
  pid_t pid = other(&end, waiter);
  begin();
  share(end);
  await(end);
  DO(cuStreamWaitValue32(s, d, 1, CU_STREAM_WAIT_VALUE_GEQ));
  ASK("parent records behind a gate", cuEventRecord(e, s));
  ASK("parent queries", cuEventQuery(e));
  pass(end);
  await(end);
  CUstream t;
  DO(cuStreamCreate(&t, 1));
  ASK("parent opens the gate", cuStreamWriteValue32(t, d, 1, 0));
  ASK("parent synchronizes", cuEventSynchronize(e));
  pass(end);
  await(end);
  waitpid(pid, NULL, 0);
}

static void opener(int end) {
  take(end);
  pass(end);
  await(end);
  ASK("child opens the parent's gate", cuStreamWriteValue32(s, d, 1, 0));
  ASK("child synchronizes", cuStreamSynchronize(s));
  ASK("child records", cuEventRecord(e, s));
  ASK("child destroys the event", cuEventDestroy(e));
  pass(end);
}
static void gate_from_outside(void) {
  int end;
  pid_t pid = other(&end, opener);
  begin();
  share(end);
  await(end);
  DO(cuStreamWaitValue32(s, d, 1, CU_STREAM_WAIT_VALUE_GEQ));
  ASK("parent queries its gate", cuStreamQuery(s));
  pass(end);
  ASK("parent synchronizes with what the child opens", cuStreamSynchronize(s));
  await(end);
  waitpid(pid, NULL, 0);
  ASK("parent queries the event that the child destroyed", cuEventQuery(e));
  ASK("parent records it", cuEventRecord(e, s));
  ASK("parent synchronizes with it", cuEventSynchronize(e));
}

static void dying(int end) {
  take(end);
  DO(cuMemsetD8(d, 5, 16));
  DO(cuCtxSynchronize());
  pass(end);
  kill(getpid(), SIGKILL);
}
static void one_dies(void) {
  int end, status;
  pid_t pid = other(&end, dying);
  begin();
  share(end);
  await(end);
  waitpid(pid, &status, 0);
  unsigned char byte = 0;
  ASK("parent reads what a dead child wrote", cuMemcpyDtoH(&byte, d, 1), "%d", byte);
  ASK("parent frees it", cuMemFree(d));
  ASK("parent queries the event", cuEventQuery(e));
}

static void parent_ends(int end) {
  begin();
  share(end);
  await(end);
}
static void exporter_ends(void) {
  int end;
  pid_t pid = other(&end, parent_ends);
  take(end);
  pass(end);
  waitpid(pid, NULL, 0);
  unsigned char byte = 9;
  ASK("memory of an exporter that ended", cuMemcpyDtoH(&byte, d, 1), "%d", byte);
  ASK("set it", cuMemsetD8(d, 3, 16));
  ASK("event of an exporter that ended", cuEventQuery(e));
  ASK("record it", cuEventRecord(e, s));
  ASK("synchronize with it", cuEventSynchronize(e));
  ASK("close", cuIpcCloseMemHandle(d));
  ASK("destroy", cuEventDestroy(e));
}

CASES RUN_COLD(across) RUN_COLD(gate_from_outside) RUN_COLD(one_dies) RUN_COLD(exporter_ends) END
