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

CASES RUN(resets) END
