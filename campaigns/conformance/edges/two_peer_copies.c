/* Two devices: cuMemcpyPeer and its like, which contexts they accept, and what arrives. */
#include "two.h"

static void fill(CUdeviceptr *a, CUdeviceptr *b) { *a = memory(0, 4096, 0x11), *b = memory(1, 4096, 0x22); }

static void across(void) {
  both();
  CUdeviceptr a, b;
  fill(&a, &b);
  ASK("to 1", cuMemcpyPeer(b, of[1], a, of[0], 64));
  DO(cuCtxSynchronize());
  ASK("arrived", 0, "%x %x", word(1, b), word(1, b + 64));
  ASK("to 0", cuMemcpyPeer(a + 128, of[0], b + 64, of[1], 64));
  DO(cuCtxSynchronize());
  ASK("arrived at 0", 0, "%x %x", word(0, a + 128), word(0, a + 192));
  on(1);
  ASK("to 1, with 1 current", cuMemcpyPeer(b + 256, of[1], a, of[0], 64));
  DO(cuCtxSynchronize());
  ASK("arrived with 1 current", 0, "%x", word(1, b + 256));
  DO(cuCtxSetCurrent(NULL));
  ASK("to 1, with none current", cuMemcpyPeer(b + 320, of[1], a, of[0], 64));
  usleep(50000);
  ASK("arrived with none current", 0, "%x", word(1, b + 320));
  on(0);
  DO(cuCtxEnablePeerAccess(of[1], 0));
  ASK("with access", cuMemcpyPeer(b + 384, of[1], a, of[0], 64));
  DO(cuCtxSynchronize());
  ASK("arrived with access", 0, "%x", word(1, b + 384));
}

static void wrong_contexts(void) {
  both();
  CUdeviceptr a, b;
  fill(&a, &b);
  ASK("both contexts swapped", cuMemcpyPeer(b, of[0], a, of[1], 64));
  ASK("what arrived", cuCtxSynchronize(), "%x", word(1, b));
  ASK("both contexts 0", cuMemcpyPeer(b + 64, of[0], a, of[0], 64));
  ASK("what arrived of that", cuCtxSynchronize(), "%x", word(1, b + 64));
  ASK("both contexts 1", cuMemcpyPeer(b + 128, of[1], a, of[1], 64));
  ASK("what arrived of this", cuCtxSynchronize(), "%x", word(1, b + 128));
  ASK("within 0", cuMemcpyPeer(a + 512, of[0], a, of[0], 64));
  ASK("within 1", cuMemcpyPeer(b + 512, of[1], b, of[1], 64));
  ASK("within 1 under 0's contexts", cuMemcpyPeer(b + 576, of[0], b, of[0], 64));
  ASK("itself onto itself", cuMemcpyPeer(a, of[0], a, of[0], 64));
  ASK("overlapping", cuMemcpyPeer(a + 16, of[0], a, of[0], 64));
  RISK("no destination context", cuMemcpyPeer(b, NULL, a, of[0], 64));
  RISK("no source context", cuMemcpyPeer(b, of[1], a, NULL, 64));
  RISK("no contexts", cuMemcpyPeer(b, NULL, a, NULL, 64));
  CUcontext dead = NULL, none;
  DO(cuCtxCreate(&dead, NULL, 0, 1));
  DO(cuCtxPopCurrent(&none));
  ASK("through another context of 1", cuMemcpyPeer(b + 640, dead, a, of[0], 64));
  ASK("what arrived through it", cuCtxSynchronize(), "%x", word(1, b + 640));
  DO(cuCtxDestroy(dead));
  ALONE("a destroyed context", cuMemcpyPeer(b, dead, a, of[0], 64));
}

static void sizes(void) {
  both();
  CUdeviceptr a, b;
  fill(&a, &b);
  ASK("nothing", cuMemcpyPeer(b, of[1], a, of[0], 0));
  ASK("nothing from 0", cuMemcpyPeer(b, of[1], 0, of[0], 0));
  ASK("from 0", cuMemcpyPeer(b, of[1], 0, of[0], 64));
  ASK("to 0", cuMemcpyPeer(0, of[1], a, of[0], 64));
  ASK("one byte", cuMemcpyPeer(b + 1, of[1], a + 3, of[0], 1));
  ASK("what arrived", cuCtxSynchronize(), "%x", word(1, b));
  ASK("all", cuMemcpyPeer(b, of[1], a, of[0], 4096), "%x", word(1, b + 4092));
  ALONE("more than all", cuMemcpyPeer(b, of[1], a, of[0], 64 * MIB));
  static char host[128] = {0x33, 0x33, 0x33, 0x33};
  RISK("from the host's memory", cuMemcpyPeer(b, of[1], (CUdeviceptr)host, of[0], 64));
  RISK("what came from the host", cuCtxSynchronize(), "%x", word(1, b));
  void *pinned_ = NULL;
  DO(cuMemHostAlloc(&pinned_, 4096, CU_MEMHOSTALLOC_PORTABLE));
  memset(pinned_, 0x44, 64);
  ASK("from pinned memory", cuMemcpyPeer(b, of[1], (CUdeviceptr)pinned_, of[0], 64));
  ASK("what came from it", cuCtxSynchronize(), "%x", word(1, b));
  CUdeviceptr gone = memory(1, 4096, 0);
  DO(cuMemFree(gone));
  ALONE("freed memory of 1", cuMemcpyPeer(gone, of[1], a, of[0], 4096));
}

static void in_streams(void) {
  both();
  CUdeviceptr a, b;
  fill(&a, &b);
  CUstream s[2] = {NULL};
  for (int d = 0; d < 2; d++) {
    on(d);
    DO(cuStreamCreate(&s[d], CU_STREAM_NON_BLOCKING));
  }
  for (int c = 0; c < 2; c++)
    for (int d = 0; d < 2; d++) {
      on(c);
      int at = 256 * (2 * c + d);
      ASK(W("to 1, stream of %d, %d current", d, c), cuMemcpyPeerAsync(b + at, of[1], a, of[0], 64, s[d]));
      ASK(W("end, stream of %d, %d current", d, c), settled(s[d]), "%x", word(1, b + at));
      ASK(W("plainly to 1, stream of %d, %d current", d, c), cuMemcpyDtoDAsync(b + at + 64, a, 64, s[d]));
      ASK(W("plain end, stream of %d, %d current", d, c), settled(s[d]), "%x", word(1, b + at + 64));
      ASK(W("any to 1, stream of %d, %d current", d, c), cuMemcpyAsync(b + at + 128, a, 64, s[d]));
      ASK(W("any end, stream of %d, %d current", d, c), settled(s[d]), "%x", word(1, b + at + 128));
    }
  on(0);
  ASK("in the NULL stream", cuMemcpyPeerAsync(b + 2048, of[1], a, of[0], 64, NULL));
  ASK("end of the NULL stream", settled(NULL), "%x", word(1, b + 2048));
  ASK("in the thread's", cuMemcpyPeerAsync(b + 2112, of[1], a, of[0], 64, CU_STREAM_PER_THREAD));
  ASK("end of the thread's", settled(CU_STREAM_PER_THREAD), "%x", word(1, b + 2112));
  DO(cuCtxSetCurrent(NULL));
  ASK("none current", cuMemcpyPeerAsync(b + 2176, of[1], a, of[0], 64, s[0]));
  ASK("none current, no stream", cuMemcpyPeerAsync(b + 2176, of[1], a, of[0], 64, NULL));
  RISK("no contexts", cuMemcpyPeerAsync(b, NULL, a, NULL, 64, s[0]));
  on(1);
  DO(cuStreamDestroy(s[1]));
  ALONE("a destroyed stream", cuMemcpyPeerAsync(b, of[1], a, of[0], 64, s[1]));
}

CASES RUN(across) RUN(wrong_contexts) RUN(sizes) RUN(in_streams) END
