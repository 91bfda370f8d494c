/* Two devices: the stack of contexts across them, devices, ids and versions, threads' own current contexts. */
#include "two.h"

static int device(void) {
  CUdevice d = 77;
  int code = cuCtxGetDevice(&d);
  return code ? 1000 + code : d;
}

static void pushing(void) {
  both();
  CUcontext got = NULL;
  ASK("first", 0, "%d %d", current(), device());
  ASK("push 1", cuCtxPushCurrent(of[1]), "%d %d", current(), device());
  ASK("push 1 again", cuCtxPushCurrent(of[1]), "%d", current());
  ASK("push 0", cuCtxPushCurrent(of[0]), "%d", current());
  ASK("set 1 on top", cuCtxSetCurrent(of[1]), "%d", current());
  ASK("pop 1", cuCtxPopCurrent(&got), "%d %d", got == of[1], current());
  ASK("pop 1 again", cuCtxPopCurrent(&got), "%d %d", got == of[1], current());
  ASK("set none on top", cuCtxSetCurrent(NULL), "%d", current());
  ASK("pop what is left", cuCtxPopCurrent(&got), "%d %d", got == of[0], current());
  ASK("pop again", cuCtxPopCurrent(&got), "%d", current());
  ASK("pop of nothing", cuCtxPopCurrent(&got), "%d", current());
  ASK("device of nothing", 0, "%d", device());
  for (int i = 0; i < 64; i++) DO(cuCtxPushCurrent(of[i & 1]));
  int right = 0;
  for (int i = 63; i >= 0; i--) right += !cuCtxPopCurrent(&got) && got == of[i & 1];
  SAY("64 of them, in order", "%d", right);
  RISK("push NULL", cuCtxPushCurrent(NULL));
  ASK("push 1 at the end", cuCtxPushCurrent(of[1]), "%d", current());
  ASK("pop into NULL", cuCtxPopCurrent(NULL), "%d", current());
}

static void creating(void) {
  both();
  CUcontext a = NULL, b = NULL, got = NULL;
  ASK("create on 1", cuCtxCreate(&a, NULL, 0, 1), "%d %d", current(), device());
  ASK("create on 0", cuCtxCreate(&b, NULL, 0, 0), "%d %d", current(), device());
  ASK("create on 2", cuCtxCreate(&got, NULL, 0, 2), "%d", device());
  ASK("create on -1", cuCtxCreate(&got, NULL, 0, -1), "%d", device());
  ASK("push the first", cuCtxPushCurrent(a), "%d", device());
  ASK("destroy the one below", cuCtxDestroy(b), "%d", device());
  ASK("pop", cuCtxPopCurrent(&got), "%d", got == a);
  ALONE("what is below", cuCtxSynchronize(), "%d", device());
  ALONE("pop the destroyed one", cuCtxPopCurrent(&got), "%d %d", got == b, device());
  DO(cuCtxSetCurrent(a));
  ASK("destroy the top", cuCtxDestroy(a), "%d", current());
  ASK("pop after that", cuCtxPopCurrent(&got), "%d", current());
  ASK("pop at the end", cuCtxPopCurrent(&got), "%d", current());
}

static void of_each(void) {
  both();
  unsigned long long ids[2] = {0}, now = 0;
  unsigned v[2] = {7, 8}, f = 77;
  for (int d = 0; d < 2; d++) {
    ASK(W("id of %d", d), cuCtxGetId(of[d], &ids[d]));
    ASK(W("version of %d", d), cuCtxGetApiVersion(of[d], &v[d]), "%u", v[d]);
  }
  SAY("ids differ", "%d", ids[0] != ids[1]);
  for (int d = 0; d < 2; d++) {
    on(d);
    ASK(W("id of the current one, %d", d), cuCtxGetId(NULL, &now), "%d", now == ids[d]);
    ASK(W("flags, %d", d), cuCtxGetFlags(&f), "%u", f);
    int low = 7, high = 7;
    ASK(W("priorities, %d", d), cuCtxGetStreamPriorityRange(&low, &high), "%d %d", low, high);
    ASK(W("synchronize, %d", d), cuCtxSynchronize());
    CUexecAffinityParam x;
    SET(x);
    ASK(W("affinity, %d", d), cuCtxGetExecAffinity(&x, CU_EXEC_AFFINITY_TYPE_SM_COUNT), "%d", x.type);
  }
}

static void *thread(void *unused) {
  (void)unused;
  ASK("a thread's first", 0, "%d", current());
  ASK("a thread sets 1", cuCtxSetCurrent(of[1]), "%d %d", current(), device());
  CUdeviceptr p = 0;
  ASK("it allocates", cuMemAlloc(&p, 4096));
  int ordinal = 9;
  ASK("where", cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p), "%d", ordinal);
  return (void *)p;
}

static void threads(void) {
  both();
  pthread_t t;
  void *p = NULL;
  pthread_create(&t, NULL, thread, NULL);
  pthread_join(t, &p);
  ASK("here", 0, "%d", current());
  ASK("set the thread's memory", cuMemsetD8((CUdeviceptr)p, 5, 64));
  ASK("it holds", 0, "%x", word(1, (CUdeviceptr)p));
  ASK("free the thread's memory", cuMemFree((CUdeviceptr)p));
}

static void forked(void) {
  both();
  int status = 0;
  pid_t child = fork();
  if (!child) {
    alarm(4);
    int d = 77;
    _exit(cuCtxGetDevice(&d) ? 1 : cuCtxSetCurrent(of[1]) ? 2 : 3);
  }
  waitpid(child, &status, 0);
  SAY("a forked child ends", "%d", WIFEXITED(status));
  ASK("the parent after that", cuCtxSetCurrent(of[1]), "%d", device());
}

CASES RUN(pushing) RUN(creating) RUN(of_each) RUN(threads) RUN(forked) END
