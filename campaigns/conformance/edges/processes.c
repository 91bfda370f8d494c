/* Several processes and threads on one device: checkpoints, notifications, coredump attributes, logs. */
#include "ask.h"

static void checkpoints(void) {
  CUprocessState st = 77;
  int tid = 77, me = getpid();
  ASK("state of this process", cuCheckpointProcessGetState(me, &st), "%d", st);
  ASK("restore thread of this process", cuCheckpointProcessGetRestoreThreadId(me, &tid), "%d", tid > 0);
  ASK("state of process 0", cuCheckpointProcessGetState(0, &st));
  ASK("state of process -1", cuCheckpointProcessGetState(-1, &st));
  ASK("state of a process without a driver", cuCheckpointProcessGetState(getppid(), &st), "%d", st);
  ASK("unlock what is not locked", cuCheckpointProcessUnlock(me, NULL));
  ASK("checkpoint what is not locked", cuCheckpointProcessCheckpoint(me, NULL));
  ASK("restore what is not checkpointed", cuCheckpointProcessRestore(me, NULL));
  ASK("lock of process 0", cuCheckpointProcessLock(0, NULL));
  RISK("state into NULL", cuCheckpointProcessGetState(me, NULL));
  RISK("restore thread into NULL", cuCheckpointProcessGetRestoreThreadId(me, NULL));
}

static void locked(int end) {
  begin();
  CUdeviceptr d;
  DO(cuMemAlloc(&d, 4096));
  pass(end);
  await(end);
  ASK("the other allocates after its restore", cuMemAlloc(&d, 16));
  pass(end);
}
static void checkpoint_of_another(void) {
  int end, tid = 77;
  pid_t pid = other(&end, locked);
  DO(cuInit(0));
  await(end);
  CUprocessState st = 77;
  ASK("running", cuCheckpointProcessGetState(pid, &st), "%d", st);
  ASK("restore thread", cuCheckpointProcessGetRestoreThreadId(pid, &tid), "%d", tid > 0);
  ASK("checkpoint without a lock", cuCheckpointProcessCheckpoint(pid, NULL));
  CUcheckpointLockArgs l;
  SET(l);
  l.timeoutMs = 2000;
  ASK("lock", cuCheckpointProcessLock(pid, &l));
  ASK("locked", cuCheckpointProcessGetState(pid, &st), "%d", st);
  ASK("lock again", cuCheckpointProcessLock(pid, &l));
  ASK("checkpoint", cuCheckpointProcessCheckpoint(pid, NULL));
  ASK("checkpointed", cuCheckpointProcessGetState(pid, &st), "%d", st);
  ASK("checkpoint again", cuCheckpointProcessCheckpoint(pid, NULL));
  ASK("unlock what is checkpointed", cuCheckpointProcessUnlock(pid, NULL));
  ASK("restore", cuCheckpointProcessRestore(pid, NULL));
  ASK("restored", cuCheckpointProcessGetState(pid, &st), "%d", st);
  ASK("unlock", cuCheckpointProcessUnlock(pid, NULL));
  ASK("unlocked", cuCheckpointProcessGetState(pid, &st), "%d", st);
  pass(end);
  await(end);
  waitpid(pid, NULL, 0);
  ASK("state of what is dead", cuCheckpointProcessGetState(pid, &st), "%d", st);
}

static void coredumps(void) {
  for (int global = 0; global <= 1; global++)
    for (int a = 0; a <= 8; a++) {
      char value[2048];
      size_t size = sizeof value;
      memset(value, 0, sizeof value);
      int code = global ? cuCoredumpGetAttributeGlobal(a, value, &size) : cuCoredumpGetAttribute(a, value, &size);
      ASK(W("get %d, %s", a, global ? "global" : "context"), code, "%zu", a == 5 || a == 6 ? 0 : size);
      int yes = 1;
      size = 4;
      if (a != 5 && a != 6)
        ASK(W("set %d, %s", a, global ? "global" : "context"),
            global ? cuCoredumpSetAttributeGlobal(a, &yes, &size) : cuCoredumpSetAttribute(a, &yes, &size));
    }
  size_t size = 1;
  unsigned char yes = 1;
  ASK("set in 1 byte", cuCoredumpSetAttribute(CU_COREDUMP_TRIGGER_HOST, &yes, &size));
  size = 0;
  ASK("set in 0 bytes", cuCoredumpSetAttribute(CU_COREDUMP_TRIGGER_HOST, &yes, &size));
  size = 1;
  ASK("get in 1 byte", cuCoredumpGetAttribute(CU_COREDUMP_LIGHTWEIGHT, &yes, &size), "%zu", size);
  RISK("get into NULL", cuCoredumpGetAttribute(CU_COREDUMP_LIGHTWEIGHT, NULL, &size), "%zu", size);
  RISK("get without a size", cuCoredumpGetAttribute(CU_COREDUMP_LIGHTWEIGHT, &yes, NULL));
  RISK("set from NULL", cuCoredumpSetAttribute(CU_COREDUMP_LIGHTWEIGHT, NULL, &size));
}

static void notified(CUasyncNotificationInfo *info, void *data, CUasyncCallbackHandle h) {
  (void)info, (void)data, (void)h;
}
static void logged(void *data, CUlogLevel level, char *text, size_t length) {
  (void)data, (void)level, (void)text, (void)length;
}
static void notifications(void) {
  CUasyncCallbackHandle h = NULL, h2 = NULL;
  ASK("register", cuDeviceRegisterAsyncNotification(0, notified, NULL, &h), "%d", h != NULL);
  ASK("register again", cuDeviceRegisterAsyncNotification(0, notified, NULL, &h2), "%d", h != h2);
  ASK("register for device 99", cuDeviceRegisterAsyncNotification(99, notified, NULL, &h2));
  ASK("unregister for device 99", cuDeviceUnregisterAsyncNotification(99, h));
  ASK("unregister", cuDeviceUnregisterAsyncNotification(0, h));
  RISK("unregister again", cuDeviceUnregisterAsyncNotification(0, h));
  RISK("unregister NULL", cuDeviceUnregisterAsyncNotification(0, NULL));
  RISK("register nothing", cuDeviceRegisterAsyncNotification(0, NULL, NULL, &h));
  RISK("register into NULL", cuDeviceRegisterAsyncNotification(0, notified, NULL, NULL));
  CUlogsCallbackHandle l = NULL, l2 = NULL;
  ASK("register for logs", cuLogsRegisterCallback(logged, NULL, &l), "%d", l != NULL);
  ASK("register for logs again", cuLogsRegisterCallback(logged, NULL, &l2), "%d", l != l2);
  ASK("unregister from logs", cuLogsUnregisterCallback(l));
  RISK("unregister from logs again", cuLogsUnregisterCallback(l));
  RISK("unregister NULL from logs", cuLogsUnregisterCallback(NULL));
  RISK("register NULL for logs", cuLogsRegisterCallback(NULL, NULL, &l));
  CUlogIterator at = 77;
  for (int flags = 0; flags <= 1; flags++) ASK(W("current, flags %d", flags), cuLogsCurrent(&at, flags));
  char text[4096] = "";
  size_t size = sizeof text;
  ASK("dump to memory, flags 1", cuLogsDumpToMemory(NULL, text, &size, 1));
  ASK("dump to a file that cannot be", cuLogsDumpToFile(NULL, "/nowhere/at/all", 0));
  RISK("dump to NULL", cuLogsDumpToMemory(NULL, NULL, &size, 0));
  RISK("current into NULL", cuLogsCurrent(NULL, 0));
}

CASES RUN(checkpoints) RUN_COLD(checkpoint_of_another) RUN(coredumps) RUN(notifications) END
