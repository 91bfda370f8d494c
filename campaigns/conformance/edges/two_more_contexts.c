/* Two devices: contexts of one ended, reset and flagged while the other's objects live; threads with one each. */
#include "two.h"

/* 0 or 1 for a primary context, 9 for another, -1 for none. */
static UNUSED int whose(CUcontext c) { return !c ? -1 : c == of[0] ? 0 : c == of[1] ? 1 : 9; }
static CUstream s[2];
static CUevent e[2];
static CUdeviceptr a[2];

static void make(void) {
  both();
  for (int d = 0; d < 2; d++) {
    a[d] = memory(d, 4096, 0x10 + 0x10 * d);
    on(d);
    DO(cuStreamCreate(&s[d], 0));
    DO(cuEventCreate(&e[d], 0));
  }
}
static int now_current(void) {
  CUcontext c = NULL;
  return cuCtxGetCurrent(&c) ? -2 : whose(c);
}
static void state(const char *w) {
  for (int d = 0; d < 2; d++) {
    unsigned flags = 77;
    int active = 77;
    ASK(W("%s: state of %d", w, d), cuDevicePrimaryCtxGetState(d, &flags, &active), "%u %d", flags, active);
  }
}

static void resets(void) {
  make();
  CUdevice d = 77;
  on(1);
  ASK("reset 0 while 1 is current", cuDevicePrimaryCtxReset(0), "%d", now_current());
  state("reset 0");
  ASK("1's memory", 0, "%x", word(1, a[1]));
  ASK("1's stream", cuStreamQuery(s[1]), "%d", cuEventRecord(e[1], s[1]));
  ASK("current 0 after its reset", cuCtxSetCurrent(of[0]), "%d", cuCtxGetDevice(&d));
  ASK("allocate on it", cuMemAlloc(&a[0], 4096));
  ALONE("0's old stream", cuStreamQuery(s[0]));
  CUcontext again = NULL;
  ASK("retain 0 again", cuDevicePrimaryCtxRetain(&again, 0), "%d", again == of[0]);
  ASK("allocate with it", (cuCtxSetCurrent(again), cuMemAlloc(&a[0], 4096)), "%d", cuMemsetD8(a[0], 1, 64));
  for (int n = 0; n < 4; n++) ASK(W("release 1, %d", n), cuDevicePrimaryCtxRelease(1));
  state("released");
  ALONE("1's memory under 0", cuMemsetD8(a[1], 2, 64));
  ALONE("current 1 after its release", cuCtxSetCurrent(of[1]), "%d", now_current());
}

static void flags(void) {
  make();
  unsigned f = 77;
  for (int d = -1; d <= 2; d++)
    for (unsigned x = 0; x <= 16; x = x ? x * 2 : 1) ASK(W("flags %u for %d", x, d), cuDevicePrimaryCtxSetFlags(d, x));
  state("flagged");
  for (int d = 0; d < 2; d++) {
    DO(cuDevicePrimaryCtxSetFlags(d, CU_CTX_SCHED_YIELD * !d));
    on(d);
    ASK(W("of the current %d", d), cuCtxGetFlags(&f), "%u", f);
    ASK(W("set of the current %d", d), cuCtxSetFlags(CU_CTX_SCHED_BLOCKING_SYNC));
    ASK(W("it then, %d", d), cuCtxGetFlags(&f), "%u", f);
  }
  state("set by the current");
}

static CUcontext mine;
static pthread_barrier_t meet;

static void *beside(void *none) {
  int code = cuCtxSetCurrent(mine), d = 77;
  pthread_barrier_wait(&meet); /* it is current here too */
  pthread_barrier_wait(&meet); /* it is destroyed */
  ASK("thread: set", code, "%d", now_current());
  ASK("thread: device", cuCtxGetDevice(&d), "%d", d);
  ASK("thread: synchronize", cuCtxSynchronize());
  CUcontext c = NULL;
  ASK("thread: pop", cuCtxPopCurrent(&c), "%d", whose(c));
  ASK("thread: current 1", cuCtxSetCurrent(of[1]));
  ASK("thread: 1's own memory", cuMemsetD8(a[1], 3, 64), "%x", word(1, a[1]));
  pthread_barrier_wait(&meet); /* the thread has 1, the process's first has 0 */
  pthread_barrier_wait(&meet);
  ASK("thread: current at the end", 0, "%d", now_current());
  return none;
}

static void threads(void) {
  make();
  pthread_t t;
  CUcontext c = NULL;
  pthread_barrier_init(&meet, NULL, 2);
  on(0);
  ASK("create on 1", cuCtxCreate(&mine, NULL, 0, 1), "%d", now_current());
  pthread_create(&t, NULL, beside, NULL);
  pthread_barrier_wait(&meet);
  ASK("destroy while it is current in both", cuCtxDestroy(mine), "%d", now_current());
  ASK("what is under it", cuCtxPopCurrent(&c), "%d", whose(c));
  pthread_barrier_wait(&meet);
  pthread_barrier_wait(&meet);
  ASK("current here", 0, "%d", now_current());
  on(0);
  ASK("1 by its handle", cuCtxSynchronize_v2(of[1]));
  DO(cuDevicePrimaryCtxReset(1));
  pthread_barrier_wait(&meet);
  pthread_join(t, NULL);
  ALONE("destroy twice", cuCtxDestroy(mine));
  ALONE("destroy a primary one", cuCtxDestroy(of[1]));
  for (int n = -1; n <= 2; n++) ASK(W("create on %d with wrong flags", n), cuCtxCreate(&c, NULL, 0x1000, n));
}

CASES RUN(resets) RUN(flags) RUN(threads) END
