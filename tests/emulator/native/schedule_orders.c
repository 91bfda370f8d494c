/* Orders that schedules make, each of another small random program, and a checker that knows CUDA's rules of order
 * alone: not how the driver keeps them.
 *
 *     schedule_orders ORDERS [FIRST_SEED]
 *
 * A program submits host functions, written words, copies and graphs to two blocking streams, two others, the legacy
 * one and that of its thread, with events between them. After every call and in every host function the checker looks
 * at what was done: whatever must be done before must be done too. Prints how many orders there were, and how many of
 * them differ from those before; exit code 1 at the first that the rules forbid. */
#include <cuda.h>

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "expect.h"

/* Of schedule.h. */
int cudalinkStartSchedule(uint64_t seed, const uint32_t *displaced, size_t count, int all, int stacks);
void cudalinkEndSchedule(void);

enum { WORKS = 24, STEPS = 14, STREAMS = 6, LEGACY = 4, EVENTS = 3, NODES = 4, KEPT = 1 << 16 };
enum { A, B, FIRST_OTHER, SECOND_OTHER };

typedef struct {
  uint32_t before; /* works that must be done before */
  uint32_t *word;  /* 1: done; NULL: it calls the host */
} Work;

static CUstream streams[STREAMS];
static CUevent events[EVENTS];
static CUgraphExec diamond;
static uint32_t *words, *one; /* pinned */
static Work works[WORKS];
static unsigned count;
static uint32_t called;        /* works that called the host */
static uint32_t past[STREAMS]; /* what a stream has done before its next work */
static uint32_t recorded[EVENTS];
static unsigned slots[NODES]; /* numbers of the works of the launched graph */
static uint64_t order, seed;  /* a number for the order of the calls */

static uint32_t random_below(uint32_t limit) {
  seed = seed * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(seed >> 33) % limit;
}

static void forbid(const char *what, unsigned number) {
  fprintf(stderr, "forbidden: %s of work %u\n", what, number);
  _exit(1);
}

/* What is done; each of it only if all is that must be before. A word that is neither 0 nor 1 is poison: a copy began.
 */
static uint32_t look(void) {
  uint32_t done = __atomic_load_n(&called, __ATOMIC_ACQUIRE), begun = 0;
  for (unsigned at = 0; at < count; at++) {
    uint32_t word = works[at].word ? __atomic_load_n(works[at].word, __ATOMIC_ACQUIRE) : 0;
    if (word == 1) done |= 1u << at;
    else if (word) begun |= 1u << at;
  }
  for (unsigned at = 0; at < count; at++)
    if ((done | begun) >> at & 1 && works[at].before & ~done) forbid("the order", at);
  return done;
}

static void call(void *slot) {
  unsigned number = *(unsigned *)slot;
  if (called >> number & 1) forbid("a second call", number);
  __atomic_fetch_or(&called, 1u << number, __ATOMIC_ACQ_REL);
  order = (order + number + 1) * 0x9E3779B97F4A7C15u;
  look();
}

/* What precedes new work of a stream. */
static uint32_t before_of(unsigned stream) {
  if (stream == FIRST_OTHER || stream == SECOND_OTHER) return past[stream];
  if (stream != LEGACY) return past[stream] | past[LEGACY];
  uint32_t before = past[LEGACY];
  for (unsigned other = 0; other < STREAMS; other++)
    if (other != FIRST_OTHER && other != SECOND_OTHER) before |= past[other];
  return before;
}

static unsigned add(uint32_t before, uint32_t *word) {
  works[count] = (Work){before, word};
  return count++;
}

static void launch(unsigned stream) {
  uint32_t before = before_of(stream);
  for (unsigned at = 0; at < NODES; at++) {
    slots[at] = add(before, NULL);
    if (at != 1) before |= 1u << slots[at]; /* the second and the third are side by side */
    if (at == 2) before |= 1u << slots[1];
  }
  past[stream] = before;
  OK(cuGraphLaunch(diamond, streams[stream]));
}

static void submit(unsigned stream) {
  static unsigned numbers[WORKS];
  uint32_t before = before_of(stream);
  unsigned kind = random_below(4), number = add(before, kind ? &words[count] : NULL);
  past[stream] = before | 1u << number;
  numbers[number] = number;
  switch (kind) {
    case 0: OK(cuLaunchHostFunc(streams[stream], call, &numbers[number])); break;
    case 1: OK(cuStreamWriteValue32(streams[stream], (CUdeviceptr)&words[number], 1, 0)); break;
    case 2: OK(cuMemsetD32Async((CUdeviceptr)&words[number], 1, 1, streams[stream])); break;
    default: OK(cuMemcpyDtoDAsync((CUdeviceptr)&words[number], (CUdeviceptr)one, 4, streams[stream])); break;
  }
}

static void must(uint32_t done, const char *what, unsigned number) {
  if (done & ~look()) forbid(what, number);
}

static void step(bool *launched) {
  unsigned stream = random_below(STREAMS), event = random_below(EVENTS), kind = random_below(16);
  if (kind < 8) submit(stream);
  else if (kind < 10) {
    recorded[event] = stream == LEGACY ? before_of(stream) : past[stream];
    OK(cuEventRecord(events[event], streams[stream]));
  } else if (kind < 12) {
    past[stream] |= recorded[event];
    OK(cuStreamWaitEvent(streams[stream], events[event], 0));
  } else if (kind == 12 && !*launched) {
    *launched = true;
    launch(stream);
  } else if (kind == 13) {
    OK(cuStreamSynchronize(streams[stream]));
    must(past[stream], "the synchronized stream", stream);
  } else if (kind == 14) {
    CUresult answer = cuStreamQuery(streams[stream]);
    if (answer != CUDA_ERROR_NOT_READY) OK(answer);
    if (!answer) must(past[stream], "the finished stream", stream);
  } else {
    CUresult answer = cuEventQuery(events[event]);
    if (answer != CUDA_ERROR_NOT_READY) OK(answer);
    if (!answer) must(recorded[event], "the finished event", event);
  }
  look();
}

/* Whether a program was seen with this order of its calls; a few are forgotten. */
static bool is_new(uint64_t program) {
  static uint64_t seen[KEPT];
  uint64_t known = program * 31 + order;
  if (seen[known % KEPT] == known) return false;
  seen[known % KEPT] = known;
  return true;
}

static void prepare(void) {
  CUcontext context;
  CUgraph graph;
  CUgraphNode nodes[NODES];
  OK(cuInit(0));
  OK(cuDevicePrimaryCtxRetain(&context, 0));
  OK(cuCtxSetCurrent(context));
  OK(cuMemHostAlloc((void **)&words, 4096, 0));
  one = words + WORKS;
  *one = 1;
  for (unsigned at = 0; at < LEGACY; at++) OK(cuStreamCreate(&streams[at], at >= FIRST_OTHER));
  streams[LEGACY] = CU_STREAM_LEGACY;
  streams[LEGACY + 1] = CU_STREAM_PER_THREAD;
  for (unsigned at = 0; at < EVENTS; at++) OK(cuEventCreate(&events[at], CU_EVENT_DISABLE_TIMING));
  OK(cuGraphCreate(&graph, 0));
  for (unsigned at = 0; at < NODES; at++) {
    CUDA_HOST_NODE_PARAMS parameters = {.fn = call, .userData = &slots[at]};
    unsigned first = at == 3 ? 1 : 0, number = at == 3 ? 2 : !!at;
    OK(cuGraphAddHostNode(&nodes[at], graph, nodes + first, number, &parameters));
  }
  OK(cuGraphInstantiateWithFlags(&diamond, graph, 0));
}

int main(int argc, char **argv) {
  unsigned long orders = argc > 1 ? strtoul(argv[1], NULL, 10) : 1000,
                first = argc > 2 ? strtoul(argv[2], NULL, 10) : 0;
  unsigned long changed = 0;
  prepare();
  for (unsigned long at = first; at < first + orders; at++) {
    bool launched = false;
    unsigned long program = at / 8; /* each has eight schedules */
    seed = program * 0x9E3779B97F4A7C15u + 1;
    count = 0;
    order = called = 0;
    memset(words, 0, WORKS * sizeof *words);
    memset(past, 0, sizeof past);
    memset(recorded, 0, sizeof recorded);
    OK(cudalinkStartSchedule(at, NULL, 0, 1, 1));
    for (unsigned steps = 0; steps < STEPS && count <= WORKS - NODES; steps++) step(&launched);
    OK(cuCtxSynchronize());
    must((1u << count) - 1, "the end", count);
    changed += is_new(program);
    cudalinkEndSchedule();
  }
  printf("orders: %lu, different: %lu\n", orders, changed);
  return 0;
}
