/* Two devices: primary contexts of both: state, counts, resets and ends that leave the other alone. */
#include "two.h"

static void state(const char *when) {
  for (int d = 0; d < 2; d++) {
    unsigned flags = 77;
    int active = 77;
    ASK(W("%s: state of %d", when, d), cuDevicePrimaryCtxGetState(d, &flags, &active), "%u %d", flags, active);
  }
}

static void states(void) {
  CUcontext one = NULL, again = NULL, zero = NULL;
  state("first");
  ASK("release 1 before a retain", cuDevicePrimaryCtxRelease(1));
  ASK("flags of 1 before a retain", cuDevicePrimaryCtxSetFlags(1, CU_CTX_SCHED_BLOCKING_SYNC));
  state("flags set");
  ASK("retain 1", cuDevicePrimaryCtxRetain(&one, 1), "%d", one != context);
  state("retained");
  ASK("retain 1 again", cuDevicePrimaryCtxRetain(&again, 1), "%d", again == one);
  ASK("retain 0 again", cuDevicePrimaryCtxRetain(&zero, 0), "%d", zero == context);
  of[0] = context, of[1] = one;
  ASK("who is current", 0, "%d", current());
  ASK("flags of 1 when active", cuDevicePrimaryCtxSetFlags(1, CU_CTX_SCHED_SPIN));
  state("flags set again");
  ASK("release 1", cuDevicePrimaryCtxRelease(1));
  state("released once");
  ASK("release 1 once more", cuDevicePrimaryCtxRelease(1));
  state("released twice");
  ASK("release 1 too often", cuDevicePrimaryCtxRelease(1));
  ASK("retain 1 anew", cuDevicePrimaryCtxRetain(&again, 1), "%d", again != NULL);
  state("anew");
  ASK("device 2", cuDevicePrimaryCtxRetain(&again, 2));
  ASK("device -1", cuDevicePrimaryCtxRetain(&again, -1));
  ASK("release 2", cuDevicePrimaryCtxRelease(2));
  ASK("reset 2", cuDevicePrimaryCtxReset(2));
  RISK("into NULL", cuDevicePrimaryCtxRetain(NULL, 1));
}

static void resets(void) {
  both();
  CUdeviceptr a = memory(0, 4096, 0x11), b = memory(1, 4096, 0x22);
  CUstream s = NULL, t = NULL;
  DO(cuStreamCreate(&s, 0));
  on(1);
  DO(cuStreamCreate(&t, 0));
  on(0);
  ASK("reset 1", cuDevicePrimaryCtxReset(1));
  state("after the reset");
  ASK("who is current", 0, "%d", current());
  ASK("memory of 0", cuMemsetD8(a, 1, 64), "%x", word(0, a));
  ASK("stream of 0", cuStreamQuery(s));
  ASK("synchronize 0", cuCtxSynchronize());
  ASK("memory of 1", cuMemsetD8(b, 1, 64));
  ALONE("free memory of 1", cuMemFree(b));
  ALONE("stream of 1", cuStreamQuery(t));
  ALONE("make the reset one current", cuCtxSetCurrent(of[1]));
  ALONE("its memory then", (cuCtxSetCurrent(of[1]), cuMemAlloc(&b, 4096)));
  CUcontext again = NULL;
  ASK("retain 1", cuDevicePrimaryCtxRetain(&again, 1), "%d", again == of[1]);
  DO(cuCtxSetCurrent(again));
  ASK("allocate on 1", cuMemAlloc(&b, 4096));
  ASK("reset 0 while 1 is current", cuDevicePrimaryCtxReset(0));
  state("after the reset of 0");
  ASK("set memory of 1", cuMemsetD8(b, 1, 64));
  ASK("synchronize 1", cuCtxSynchronize());
}

static void ends(void) {
  both();
  CUdeviceptr a = memory(0, 4096, 0x11), b = memory(1, 4096, 0x22);
  on(1);
  ASK("release 0 while 1 is current", cuDevicePrimaryCtxRelease(0));
  state("0 released");
  ASK("memory of 1", 0, "%x", word(1, b));
  ASK("set of 1", cuMemsetD8(b, 3, 64));
  ASK("set of 0", cuMemsetD8(a, 3, 64));
  ASK("retain 0 again", cuDevicePrimaryCtxRetain(&of[0], 0), "%d", of[0] == context);
  ASK("release 1 while it is current", cuDevicePrimaryCtxRelease(1));
  state("1 released");
  ALONE("allocate on the released one", cuMemAlloc(&b, 4096));
  ALONE("who is current", cuCtxSynchronize(), "%d", current());
  CUdevice d = 9;
  ALONE("its device", cuCtxGetDevice(&d), "%d", d);
  on(0);
  ASK("allocate on 0", cuMemAlloc(&a, 4096));
}

static void destroyed(void) {
  both();
  CUcontext a = NULL, b = NULL;
  ASK("destroy the primary one of 1", cuCtxDestroy(of[1]));
  state("primary one destroyed");
  DO(cuCtxCreate(&a, NULL, 0, 0));
  DO(cuCtxCreate(&b, NULL, CU_CTX_SCHED_YIELD, 1));
  state("others created");
  CUdevice d = 9;
  ASK("device of the created one", cuCtxGetDevice(&d), "%d", d);
  CUdeviceptr p = 0, q = 0;
  ASK("allocate there", cuMemAlloc(&p, 4096));
  ASK("destroy that of 1", cuCtxDestroy(b));
  ASK("whose is current", cuCtxGetDevice(&d), "%d", d);
  ASK("allocate", cuMemAlloc(&q, 4096));
  ALONE("free the dead one's memory", cuMemFree(p));
  ASK("destroy that of 0", cuCtxDestroy(a));
  ASK("whose is current at the end", 0, "%d", current());
  ASK("free of the dead one of 0", cuMemFree(q));
  ASK("release 1", cuDevicePrimaryCtxRelease(1));
}

CASES RUN(states) RUN(resets) RUN(ends) RUN(destroyed) END
