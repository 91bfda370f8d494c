/* Two devices: peer access enabled and disabled, twice, of itself, without a context, after an end. */
#include "two.h"

static void can(void) {
  int can = 7;
  for (int a = -1; a <= 2; a++)
    for (int b = -1; b <= 2; b++) {
      can = 7;
      ASK(W("can %d reach %d", a, b), cuDeviceCanAccessPeer(&can, a, b), "%d", can);
    }
  RISK("into NULL", cuDeviceCanAccessPeer(NULL, 0, 1));
  ASK("1000 and 1001", cuDeviceCanAccessPeer(&can, 1000, 1001));
}

static void enabling(void) {
  both();
  ASK("disable before", cuCtxDisablePeerAccess(of[1]));
  for (unsigned flags = 1; flags <= 4; flags++)
    ASK(W("enable with flags %u", flags), cuCtxEnablePeerAccess(of[1], flags));
  ASK("enable", cuCtxEnablePeerAccess(of[1], 0));
  ASK("enable twice", cuCtxEnablePeerAccess(of[1], 0));
  ASK("enable twice with flags 1", cuCtxEnablePeerAccess(of[1], 1));
  ASK("enable itself", cuCtxEnablePeerAccess(of[0], 0));
  ASK("disable itself", cuCtxDisablePeerAccess(of[0]));
  RISK("enable NULL", cuCtxEnablePeerAccess(NULL, 0));
  RISK("disable NULL", cuCtxDisablePeerAccess(NULL));
  on(1);
  ASK("disable the other way", cuCtxDisablePeerAccess(of[0]));
  ASK("enable the other way", cuCtxEnablePeerAccess(of[0], 0));
  ASK("enable the other way twice", cuCtxEnablePeerAccess(of[0], 0));
  ASK("1 enables itself", cuCtxEnablePeerAccess(of[1], 0));
  on(0);
  ASK("disable", cuCtxDisablePeerAccess(of[1]));
  ASK("disable twice", cuCtxDisablePeerAccess(of[1]));
  ASK("enable again", cuCtxEnablePeerAccess(of[1], 0));
  on(1);
  ASK("the other way is still on", cuCtxEnablePeerAccess(of[0], 0));
  ASK("disable the other way at the end", cuCtxDisablePeerAccess(of[0]));
  on(0);
  ASK("the first way is still on", cuCtxEnablePeerAccess(of[1], 0));
}

static void nothing_current(void) {
  both();
  DO(cuCtxSetCurrent(NULL));
  int can = 7;
  ASK("can", cuDeviceCanAccessPeer(&can, 0, 1), "%d", can);
  ASK("enable", cuCtxEnablePeerAccess(of[1], 0));
  ASK("disable", cuCtxDisablePeerAccess(of[1]));
  RISK("enable NULL", cuCtxEnablePeerAccess(NULL, 0));
}

static void created(void) {
  both();
  CUcontext a = NULL, b = NULL, c = NULL;
  DO(cuCtxCreate(&a, NULL, 0, 0));
  DO(cuCtxCreate(&c, NULL, 0, 0));
  DO(cuCtxCreate(&b, NULL, 0, 1));
  DO(cuCtxSetCurrent(a));
  ASK("a created one of 0 enables a created one of 1", cuCtxEnablePeerAccess(b, 0));
  ASK("and the primary one of 1", cuCtxEnablePeerAccess(of[1], 0));
  ASK("and the other created one of 0", cuCtxEnablePeerAccess(c, 0));
  ASK("and the primary one of 0", cuCtxEnablePeerAccess(of[0], 0));
  on(0);
  ASK("the primary one of 0 enables the created one of 1", cuCtxEnablePeerAccess(b, 0));
  ASK("destroy the created one of 1", cuCtxDestroy(b));
  ALONE("disable the destroyed one", cuCtxDisablePeerAccess(b));
  ALONE("enable the destroyed one", cuCtxEnablePeerAccess(b, 0));
  DO(cuCtxSetCurrent(a));
  ASK("disable the primary one of 1", cuCtxDisablePeerAccess(of[1]));
  ASK("destroy the created one of 0", cuCtxDestroy(a));
  ASK("which is current then", 0, "%d", current());
  on(1);
  ALONE("1 enables the destroyed one of 0", cuCtxEnablePeerAccess(a, 0));
}

static void resetting(void) {
  both();
  CUdeviceptr p = memory(1, 4096, 1);
  ASK("enable", cuCtxEnablePeerAccess(of[1], 0));
  ASK("reset 1", cuDevicePrimaryCtxReset(1));
  CUcontext again = NULL;
  ALONE("disable after the reset", cuCtxDisablePeerAccess(of[1]));
  ALONE("copy after the reset", cuMemcpyDtoD(p, p + 64, 64));
  ASK("retain again", cuDevicePrimaryCtxRetain(&again, 1), "%d", again == of[1]);
  ASK("enable after it", cuCtxEnablePeerAccess(again, 0));
  ASK("enable after it twice", cuCtxEnablePeerAccess(again, 0));
  ASK("reset 0", cuDevicePrimaryCtxReset(0));
  DO(cuDevicePrimaryCtxRetain(&of[0], 0));
  on(0);
  ASK("enable after the reset of 0", cuCtxEnablePeerAccess(again, 0));
}

CASES RUN(can) RUN(enabling) RUN(nothing_current) RUN(created) RUN(resetting) END
