/* Ids of streams of both devices, the default ones too. */
#include "ask.h"
static unsigned long long id_of(CUstream s) {
  unsigned long long id = 7777777;
  int code = cuStreamGetId(s, &id);
  return code ? 1000000ULL + code : id;
}
static void *thread(void *name) {
  DO(cuCtxSetCurrent(context));
  unsigned long long a = id_of(0), b = id_of(CU_STREAM_LEGACY), c = id_of(CU_STREAM_PER_THREAD);
  SAY(name, "%llu %llu %llu", a, b, c);
  return NULL;
}
static void *bare(void *name) {
  unsigned long long a = id_of(0), b = id_of(CU_STREAM_LEGACY), c = id_of(CU_STREAM_PER_THREAD);
  SAY(name, "%llu %llu %llu", a, b, c);
  return NULL;
}
static void run(void *(*what)(void *), const char *name) {
  pthread_t t;
  pthread_create(&t, NULL, what, (void *)name);
  pthread_join(t, NULL);
}
static void ids(void) {
  CUstream s[4];
  CUcontext c = NULL, none;
  thread("the defaults before any stream");
  for (int i = 0; i < 3; i++) {
    DO(cuStreamCreate(&s[i], i % 2));
    SAY(W("stream %d", i), "%llu", id_of(s[i]));
  }
  thread("the defaults behind three streams");
  DO(cuStreamDestroy(s[1]));
  DO(cuStreamCreate(&s[1], 0));
  SAY("a stream in place of one", "%llu", id_of(s[1]));
  run(thread, "another thread");
  run(thread, "a third thread");
  run(bare, "a thread without a context");
  DO(cuStreamCreate(&s[3], 0));
  SAY("a stream after the threads", "%llu", id_of(s[3]));
  DO(cuCtxCreate(&c, NULL, 0, 0));
  bare("the defaults of another context");
  DO(cuStreamCreate(&s[3], 0));
  SAY("a stream of another context", "%llu", id_of(s[3]));
  bare("the defaults of another context again");
  SAY("a stream of the first from there", "%llu", id_of(s[0]));
  DO(cuCtxPopCurrent(&none));
  thread("the defaults of the first again");
  unsigned long long i = 0, j = 0;
  ASK("id of the first context", cuCtxGetId(context, &i), "%llu", i);
  ASK("id of the other", cuCtxGetId(c, &j), "%llu", j);
  DO(cuCtxDestroy(c));
  DO(cuCtxCreate(&c, NULL, 0, 0));
  bare("the defaults of a third context");
  ASK("id of the third", cuCtxGetId(c, &j), "%llu", j);
  DO(cuStreamCreateWithPriority(&s[3], 1, -5));
  SAY("a stream with a priority there", "%llu", id_of(s[3]));
}
static void per_thread_first(void) {
  SAY("per thread", "%llu", id_of(CU_STREAM_PER_THREAD));
  SAY("legacy", "%llu", id_of(CU_STREAM_LEGACY));
  SAY("NULL", "%llu", id_of(0));
  CUstream s;
  DO(cuStreamCreate(&s, 1));
  SAY("a stream", "%llu", id_of(s));
}
static void stream_first(void) {
  CUstream s;
  DO(cuStreamCreate(&s, 1));
  SAY("a stream", "%llu", id_of(s));
  SAY("legacy", "%llu", id_of(CU_STREAM_LEGACY));
  SAY("per thread", "%llu", id_of(CU_STREAM_PER_THREAD));
}
static void second_device(void) {
  int n = 0;
  CUcontext d = NULL;
  CUstream s;
  DO(cuDeviceGetCount(&n));
  if (n < 2) return;
  SAY("legacy of the first", "%llu", id_of(0));
  DO(cuDevicePrimaryCtxRetain(&d, 1));
  DO(cuCtxSetCurrent(d));
  bare("the defaults of the second");
  DO(cuStreamCreate(&s, 0));
  SAY("a stream of the second", "%llu", id_of(s));
  DO(cuCtxSetCurrent(context));
  DO(cuStreamCreate(&s, 0));
  SAY("a stream of the first", "%llu", id_of(s));
}
CASES RUN(ids) RUN(per_thread_first) RUN(stream_first) RUN(second_device) END
