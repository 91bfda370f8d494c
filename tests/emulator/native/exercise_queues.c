/* A driver program with work that waits: gates, events, host functions, graphs and pools on streams of several threads,
 * with orders that CUDA promises, and forks in between, without schedules and with them; to be run plainly, under
 * valgrind and with sanitizers.
 *
 *     exercise_queues [rounds]
 *
 * Exit code 1 at the first answer that is not the expected one. */
#include <cuda.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "expect.h"

/* Of schedule.h. */
int cudalinkStartSchedule(uint64_t seed, const uint32_t *displaced, size_t count, int all, int stacks);
void cudalinkEndSchedule(void);

enum { THREADS = 3, STEPS = 20, SIZE = 256 };

static CUcontext primary;
static int rounds = 3;
static pthread_barrier_t done;

/* Numbers that a host function adds in the order in which it is called. */
typedef struct {
  pthread_mutex_t lock;
  int numbers[4 * STEPS], count;
} Calls;

typedef struct {
  Calls *calls;
  int number;
} Call;

static void add(void *data) {
  Call *call = data;
  pthread_mutex_lock(&call->calls->lock);
  call->calls->numbers[call->calls->count++] = call->number;
  pthread_mutex_unlock(&call->calls->lock);
}

static void CUDA_CB add_back(CUstream stream, CUresult result, void *data) {
  (void)stream;
  TRUE(result == CUDA_SUCCESS);
  EXPECT(CUDA_ERROR_NOT_PERMITTED, cuCtxSynchronize());
  add(data);
}

/* A stream behind a gate that another stream opens: everything behind it comes later, in order. */
static void gates(CUstream stream, CUstream opener, CUdeviceptr memory, unsigned *word, char *host) {
  Calls calls = {.lock = PTHREAD_MUTEX_INITIALIZER};
  Call list[STEPS];
  CUevent event;
  *word = 0;
  OK(cuEventCreate(&event, 0));
  OK(cuStreamWaitValue32(stream, (CUdeviceptr)word, 1, CU_STREAM_WAIT_VALUE_EQ));
  pthread_mutex_lock(&calls.lock); /* a host function takes it, which must not be called in the caller */
  for (int at = 0; at < STEPS; at++) {
    list[at] = (Call){&calls, at};
    OK(cuMemsetD8Async(memory, (unsigned char)at, SIZE, stream));
    if (at % 2) OK(cuLaunchHostFunc(stream, add, &list[at]));
    else OK(cuStreamAddCallback(stream, add_back, &list[at], 0));
  }
  OK(cuMemcpyDtoHAsync(host, memory, SIZE, stream));
  OK(cuEventRecord(event, stream));
  EXPECT(CUDA_ERROR_NOT_READY, cuEventQuery(event));
  OK(cuStreamWriteValue32(opener, (CUdeviceptr)word, 1, 0));
  pthread_mutex_unlock(&calls.lock);
  OK(cuEventSynchronize(event));
  EXPECT(STEPS, calls.count);
  for (int at = 0; at < STEPS; at++) EXPECT(at, calls.numbers[at]);
  EXPECT(STEPS - 1, host[SIZE - 1]);
  OK(cuEventDestroy(event));
}

/* Memory of a pool on one stream, filled, read on another one behind an event, and freed in its order. */
static void pools(CUstream stream, CUstream other, unsigned *word, char *host) {
  CUdeviceptr memory;
  CUevent made, used;
  *word = 0;
  OK(cuEventCreate(&made, CU_EVENT_DISABLE_TIMING));
  OK(cuEventCreate(&used, CU_EVENT_DISABLE_TIMING));
  OK(cuStreamWaitValue32(stream, (CUdeviceptr)word, 1, CU_STREAM_WAIT_VALUE_GEQ));
  OK(cuMemAllocAsync(&memory, SIZE, stream));
  OK(cuMemsetD8Async(memory, 9, SIZE, stream));
  OK(cuEventRecord(made, stream));
  OK(cuStreamWaitEvent(other, made, 0));
  OK(cuMemcpyDtoHAsync(host, memory, SIZE, other));
  OK(cuEventRecord(used, other));
  OK(cuStreamWaitEvent(stream, used, 0));
  OK(cuMemFreeAsync(memory, stream));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(memory, stream));
  OK(cuEventDestroy(made));
  OK(cuEventDestroy(used));
  __atomic_store_n(word, 1, __ATOMIC_RELEASE);
  OK(cuStreamSynchronize(stream));
  OK(cuStreamSynchronize(other));
  EXPECT(9, host[0]);
}

/* A graph of host functions, launched twice in two streams, and destroyed meanwhile. */
static void graphs(CUstream stream, CUstream other) {
  Calls calls = {.lock = PTHREAD_MUTEX_INITIALIZER};
  Call list[3] = {{&calls, 0}, {&calls, 1}, {&calls, 2}};
  CUgraph graph;
  CUgraphExec executable;
  OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  for (int at = 0; at < 3; at++) OK(cuLaunchHostFunc(stream, add, &list[at]));
  OK(cuStreamEndCapture(stream, &graph));
  OK(cuGraphInstantiate(&executable, graph, 0));
  OK(cuGraphLaunch(executable, stream));
  OK(cuGraphLaunch(executable, other));
  OK(cuGraphExecDestroy(executable));
  OK(cuGraphDestroy(graph));
  OK(cuStreamSynchronize(other));
  OK(cuStreamSynchronize(stream));
  EXPECT(6, calls.count);
  for (int at = 0; at < 6; at++) EXPECT(at % 3, calls.numbers[at]);
}

static void fork_now(CUstream stream) {
  pid_t child = fork();
  if (!child) _exit(cuStreamQuery(stream) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1);
  int status;
  TRUE(waitpid(child, &status, 0) == child);
  EXPECT(0, status);
}

static void *all(void *unused) {
  CUstream stream, other, gone;
  CUdeviceptr memory;
  unsigned *word;
  char *host;
  CUevent last;
  OK(cuCtxSetCurrent(primary));
  OK(cuEventCreate(&last, CU_EVENT_DISABLE_TIMING));
  OK(cuMemAlloc(&memory, SIZE));
  OK(cuMemHostAlloc((void **)&word, 64, 0));
  OK(cuMemHostAlloc((void **)&host, SIZE, 0));
  for (int round = 0; round < rounds; round++) {
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    gates(stream, other, memory, word, host);
    gates(CU_STREAM_PER_THREAD, other, memory, word, host);
    pools(stream, other, word, host);
    graphs(stream, other);
    *word = 0;
    OK(cuStreamCreate(&gone, CU_STREAM_NON_BLOCKING));
    OK(cuStreamWaitValue32(gone, (CUdeviceptr)word, 1, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuMemsetD8Async(memory, 3, SIZE, gone));
    OK(cuEventRecord(last, gone));
    OK(cuStreamDestroy(gone));
    OK(cuStreamWriteValue32(stream, (CUdeviceptr)word, 1, 0));
    OK(cuEventSynchronize(last)); /* the context cannot be waited for while another thread captures */
    OK(cuStreamDestroy(other));
    OK(cuStreamDestroy(stream));
  }
  OK(cuEventDestroy(last));
  pthread_barrier_wait(&done); /* freeing holds up the other threads, which open their gates themselves */
  OK(cuMemFreeHost(host));
  OK(cuMemFreeHost(word));
  OK(cuMemFree(memory));
  return unused;
}

/* Schedules begin while the threads are at work. */
static void in_threads(bool scheduled) {
  pthread_t threads[THREADS];
  TRUE(!pthread_barrier_init(&done, NULL, THREADS));
  for (int at = 0; at < THREADS; at++) TRUE(!pthread_create(&threads[at], NULL, all, NULL));
  for (int at = 0; at < rounds; at++) {
    if (scheduled) OK(cudalinkStartSchedule((uint64_t)at, NULL, 0, 1, 1));
    fork_now(CU_STREAM_PER_THREAD);
  }
  for (int at = 0; at < THREADS; at++) pthread_join(threads[at], NULL);
  cudalinkEndSchedule();
  pthread_barrier_destroy(&done);
}

/* What a schedule has not let run runs once it ends, or another one begins, each in its order. */
static void schedules_end(void) {
  CUstream streams[2];
  OK(cuStreamCreate(&streams[0], CU_STREAM_NON_BLOCKING));
  OK(cuStreamCreate(&streams[1], CU_STREAM_NON_BLOCKING));
  for (uint64_t seed = 0; seed < 40; seed++) {
    Calls calls[2] = {{.lock = PTHREAD_MUTEX_INITIALIZER}, {.lock = PTHREAD_MUTEX_INITIALIZER}};
    Call list[2][STEPS];
    OK(cudalinkStartSchedule(seed, NULL, 0, 1, seed & 1));
    for (int at = 0; at < 2 * STEPS; at++) {
      list[at % 2][at / 2] = (Call){&calls[at % 2], at / 2};
      OK(cuLaunchHostFunc(streams[at % 2], add, &list[at % 2][at / 2]));
      if (at == STEPS && seed & 2) OK(cudalinkStartSchedule(seed + 40, NULL, 0, 1, 0));
    }
    if (seed & 4) cudalinkEndSchedule();
    for (int at = 0; at < 2; at++) {
      OK(cuStreamSynchronize(streams[at]));
      EXPECT(STEPS, calls[at].count);
      for (int step = 0; step < STEPS; step++) EXPECT(step, calls[at].numbers[step]);
    }
    cudalinkEndSchedule();
  }
  OK(cuStreamDestroy(streams[0]));
  OK(cuStreamDestroy(streams[1]));
}

/* A thread that waits at a closed gate, by each call that does. */
typedef struct {
  CUcontext context;
  CUstream stream;
  CUevent event;
  CUdeviceptr memory;
  char *host;
  int call;
  bool at_once; /* it can be cancelled at any time, not only where it blocks */
} Waiting;
enum { CALLS = 5 };

static void *wait_at_gate(void *data) {
  Waiting *waiting = data;
  OK(cuCtxSetCurrent(waiting->context));
  if (waiting->at_once) TRUE(!pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL));
  switch (waiting->call) {
    case 0: cuStreamSynchronize(waiting->stream); break;
    case 1: cuEventSynchronize(waiting->event); break;
    case 2: cuCtxSynchronize(); break;
    case 3: cuMemFree(waiting->memory); break;
    default: cuMemcpyDtoHAsync(waiting->host, waiting->memory, SIZE, waiting->stream);
  }
  return data;
}

/* Where threads are cancelled that wait on a device, the driver goes on, and nothing is held up by them. */
static void cancel(int device, bool at_once) {
  Waiting waiting = {.at_once = at_once};
  pthread_t thread;
  unsigned *word;
  void *ended;
  OK(cuDevicePrimaryCtxRetain(&waiting.context, device));
  OK(cuCtxSetCurrent(waiting.context));
  OK(cuStreamCreate(&waiting.stream, CU_STREAM_NON_BLOCKING));
  OK(cuEventCreate(&waiting.event, CU_EVENT_DISABLE_TIMING));
  OK(cuMemHostAlloc((void **)&word, 64, 0));
  waiting.host = malloc(SIZE);
  for (; waiting.call < CALLS; waiting.call++) {
    OK(cuMemAlloc(&waiting.memory, SIZE));
    *word = 0;
    OK(cuStreamWaitValue32(waiting.stream, (CUdeviceptr)word, 1, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuEventRecord(waiting.event, waiting.stream));
    TRUE(!pthread_create(&thread, NULL, wait_at_gate, &waiting));
    usleep(5000); /* most often it waits then */
    TRUE(!pthread_cancel(thread));
    TRUE(!pthread_join(thread, &ended));
    TRUE(ended == PTHREAD_CANCELED);
    EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(waiting.stream));
    __atomic_store_n(word, 1, __ATOMIC_RELEASE);
    OK(cuCtxSynchronize());
    OK(cuMemFree(waiting.memory)); /* it was not freed: that would come after the wait */
  }
  free(waiting.host);
  OK(cuMemFreeHost(word));
  OK(cuEventDestroy(waiting.event));
  OK(cuStreamDestroy(waiting.stream));
  OK(cuDevicePrimaryCtxRelease(device));
}

int main(int count, char **arguments) {
  if (count > 1) rounds = atoi(arguments[1]);
  OK(cuInit(0));
  OK(cuDevicePrimaryCtxRetain(&primary, 0));
  OK(cuCtxSetCurrent(primary));
  in_threads(false);
  in_threads(true);
  schedules_end();
  OK(cuDevicePrimaryCtxSetFlags(1, CU_CTX_SCHED_BLOCKING_SYNC));
  cancel(0, true);
  cancel(1, false);
  cancel(1, true);
  OK(cuCtxSetCurrent(primary));
  OK(cuDevicePrimaryCtxRelease(0));
  puts("done");
  return 0;
}
