/* What a fresh process can do after another ended with a capture open, by its mode and how it ended. */
#include "ask.h"
static int mode_, end_;
static void leave(int end) {
  begin();
  CUstream s, t;
  CUevent e;
  CUdeviceptr p;
  CUgraph g;
  DO(cuStreamCreate(&s, 1));
  DO(cuStreamCreate(&t, 1));
  DO(cuEventCreate(&e, 0));
  DO(cuMemAlloc(&p, 4096));
  DO(cuStreamBeginCapture(s, mode_));
  DO(cuMemsetD8Async(p, 1, 64, s));
  DO(cuEventRecord(e, s));
  DO(cuStreamWaitEvent(t, e, 0));
  if (end_ == 3) DO(cuStreamQuery(s) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED ? 0 : 1);
  pass(end);
  await(end);
  if (end_ == 0) _exit(0);
  if (end_ == 1) exit(0);
  if (end_ == 2) kill(getpid(), SIGKILL);
  (void)g;
  _exit(0);
}
static void calls(const char *when) {
  CUstream s = NULL;
  CUdeviceptr p = 0;
  CUgraph g = NULL;
  CUgraphExec x = NULL;
  CUstreamCaptureStatus status = 77;
  CUmodule m = NULL;
  int host = 0;
  char *w = strdup(when);
  ASK(W("%s: allocate", w), cuMemAlloc(&p, 4096));
  ASK(W("%s: status of the legacy stream", w), cuStreamIsCapturing(0, &status), "%d", status);
  ASK(W("%s: status of the thread's", w), cuStreamIsCapturing(CU_STREAM_PER_THREAD, &status), "%d", status);
  ASK(W("%s: fill", w), cuMemsetD8(p, 1, 64));
  ASK(W("%s: copy", w), cuMemcpyDtoH(&host, p, 4), "%x", host);
  ASK(W("%s: synchronize", w), cuCtxSynchronize());
  ASK(W("%s: stream", w), cuStreamCreate(&s, 1));
  ASK(W("%s: begin", w), cuStreamBeginCapture(s, mode_));
  ASK(W("%s: fill in a capture", w), cuMemsetD8Async(p, 2, 64, s));
  ASK(W("%s: end", w), cuStreamEndCapture(s, &g), "%d", g != NULL);
  ASK(W("%s: instantiate", w), cuGraphInstantiate(&x, g, 0));
  ASK(W("%s: launch", w), cuGraphLaunch(x, s));
  ASK(W("%s: wait", w), cuStreamSynchronize(s));
  ASK(W("%s: load", w), cuModuleLoadData(&m, PTX));
  ASK(W("%s: free", w), cuMemFree(p));
}
static void one(int mode, int end) {
  int to = -1;
  mode_ = mode, end_ = end;
  pid_t child = other(&to, leave);
  await(to);
  begin();
  calls("meanwhile");
  pass(to);
  int status = 0;
  waitpid(child, &status, 0);
  SAY("the other ended", "%d %d", WIFEXITED(status) ? WEXITSTATUS(status) : -1,
      WIFSIGNALED(status) ? WTERMSIG(status) : 0);
  calls("afterwards");
}
static void global_exit(void) { one(0, 0); }
static void global_return(void) { one(0, 1); }
static void global_killed(void) { one(0, 2); }
static void thread_killed(void) { one(1, 2); }
static void relaxed_killed(void) { one(2, 2); }
static void invalidated(void) { one(0, 3); }
/* The same for a fork of a process that never touched the driver, and a thread that ends with its capture open. */
static CUstream left;
static void *begins(void *none) {
  DO(cuCtxSetCurrent(context));
  DO(cuStreamBeginCapture(left, (CUstreamCaptureMode)mode_));
  return none;
}
static void thread_of(int mode) {
  pthread_t t;
  CUgraph g = NULL;
  CUstreamCaptureStatus status = 77;
  CUdeviceptr p = 0;
  mode_ = mode;
  DO(cuStreamCreate(&left, 1));
  pthread_create(&t, NULL, begins, NULL);
  pthread_join(t, NULL);
  ASK("status", cuStreamIsCapturing(left, &status), "%d", status);
  ASK("allocate", cuMemAlloc(&p, 64));
  ASK("fill", cuMemsetD8(p, 0, 64));
  ASK("status behind it", cuStreamIsCapturing(left, &status), "%d", status);
  ASK("synchronize", cuCtxSynchronize());
  ASK("end", cuStreamEndCapture(left, &g), "%d", g != NULL);
  ASK("destroy", cuStreamDestroy(left));
  ASK("allocate again", cuMemAlloc(&p, 64));
}
static void global_thread(void) { thread_of(0); }
static void local_thread(void) { thread_of(1); }
static void relaxed_thread(void) { thread_of(2); }
CASES RUN_COLD(global_exit) RUN_COLD(global_return) RUN_COLD(global_killed) RUN_COLD(thread_killed)
    RUN_COLD(relaxed_killed) RUN_COLD(invalidated) RUN(global_thread) RUN(local_thread) RUN(relaxed_thread) END
