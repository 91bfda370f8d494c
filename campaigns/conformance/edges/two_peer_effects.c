/* Two devices: what peer access changes for copies, sets, pointers' attributes, and what it does not. */
#include "two.h"

static CUdeviceptr p[2];

static void told(const char *when, int d) {
  CUcontext c = NULL;
  int ordinal = 9, type = 9, mapped = 9;
  CUdeviceptr device = 0;
  unsigned long long access = 99;
  CUmemLocation l = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  ASK(W("%s: context of %d's", when, d), cuPointerGetAttribute(&c, CU_POINTER_ATTRIBUTE_CONTEXT, p[d]), "%d",
      c == of[0]   ? 0
      : c == of[1] ? 1
                   : -1);
  ASK(W("%s: ordinal of %d's", when, d), cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p[d]),
      "%d", ordinal);
  ASK(W("%s: type of %d's", when, d), cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p[d]), "%d", type);
  ASK(W("%s: device pointer of %d's", when, d),
      cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, p[d]), "%d", device == p[d]);
  ASK(W("%s: mapped of %d's", when, d), cuPointerGetAttribute(&mapped, CU_POINTER_ATTRIBUTE_MAPPED, p[d]), "%d",
      mapped & 1);
  unsigned flags = 77;
  ASK(W("%s: access flags of %d's", when, d), cuPointerGetAttribute(&flags, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, p[d]),
      "%u", flags);
  for (l.id = 0; l.id < 2; l.id++) {
    access = 99;
    ASK(W("%s: access of device %d to %d's", when, l.id, d), cuMemGetAccess(&access, &l, p[d]), "%llu", access);
  }
}

static void pointers(void) {
  both();
  p[0] = memory(0, 4096, 1), p[1] = memory(1, 4096, 2);
  told("before", 0), told("before", 1);
  DO(cuCtxEnablePeerAccess(of[1], 0));
  told("enabled", 0), told("enabled", 1);
  on(1);
  told("enabled, 1 current", 0), told("enabled, 1 current", 1);
  on(0);
  DO(cuCtxDisablePeerAccess(of[1]));
  told("disabled", 0), told("disabled", 1);
}

static void tried(const char *when) {
  CUdeviceptr a = p[0], b = p[1];
  static char host[256];
  CUstream s = NULL;
  ASK(W("%s: set bytes", when), cuMemsetD8(b, 3, 64));
  ASK(W("%s: synchronize", when), cuCtxSynchronize(), "%x", word(1, b));
  ASK(W("%s: set words", when), cuMemsetD32(b, 0x1234567, 16));
  ASK(W("%s: synchronize words", when), cuCtxSynchronize(), "%x", word(1, b));
  ASK(W("%s: set a plane", when), cuMemsetD2D8(b, 128, 5, 16, 4));
  ASK(W("%s: synchronize the plane", when), cuCtxSynchronize(), "%x %x", word(1, b), word(1, b + 128));
  DO(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  ASK(W("%s: set in a stream", when), cuMemsetD8Async(b, 6, 64, s));
  ASK(W("%s: synchronize it", when), cuStreamSynchronize(s), "%x", word(1, b));
  memset(host, 0x21, sizeof host);
  ASK(W("%s: from the host", when), cuMemcpyHtoD(b, host, 64), "%x", word(1, b));
  ASK(W("%s: to the host", when), cuMemcpyDtoH(host, b, 64), "%d", host[63]);
  ASK(W("%s: from the host in a stream", when), cuMemcpyHtoDAsync(b + 64, host, 64, s));
  ASK(W("%s: synchronize that", when), cuStreamSynchronize(s), "%x", word(1, b + 64));
  DO(cuMemsetD8(a, 0x41, 4096));
  ASK(W("%s: to the other", when), cuMemcpyDtoD(b, a, 64), "%x", word(1, b));
  ASK(W("%s: to the other, any", when), cuMemcpy(b + 512, a, 64));
  DO(cuCtxSynchronize());
  ASK(W("%s: the other has", when), 0, "%x", word(1, b + 512));
  ASK(W("%s: within the other", when), cuMemcpyDtoD(b + 1024, b, 64));
  DO(cuCtxSynchronize());
  ASK(W("%s: within it", when), 0, "%x", word(1, b + 1024));
  ASK(W("%s: in a stream", when), cuMemcpyDtoDAsync(b + 2048, a, 64, s));
  ASK(W("%s: its end", when), cuStreamSynchronize(s), "%x", word(1, b + 2048));
  ALONE(W("%s: past the end", when), cuMemcpyDtoD(b + 4095, a, 4096 * 1024));
  DO(cuStreamDestroy(s));
}

static void without(void) {
  both();
  p[0] = memory(0, 4096, 1), p[1] = memory(1, 4096, 2);
  tried("without");
}
static void with(void) {
  both();
  p[0] = memory(0, 4096, 1), p[1] = memory(1, 4096, 2);
  DO(cuCtxEnablePeerAccess(of[1], 0));
  tried("with");
}
static void after(void) {
  both();
  p[0] = memory(0, 4096, 1), p[1] = memory(1, 4096, 2);
  DO(cuCtxEnablePeerAccess(of[1], 0));
  DO(cuCtxDisablePeerAccess(of[1]));
  tried("after");
}

static void freeing(void) {
  both();
  p[1] = memory(1, 4096, 2), p[0] = memory(1, 4096, 2);
  ASK("free of the other's", cuMemFree(p[1]));
  ASK("free of it twice", cuMemFree(p[1]));
  DO(cuCtxSetCurrent(NULL));
  ASK("free with none current", cuMemFree(p[0]));
}

CASES RUN(pointers) RUN(without) RUN(with) RUN(after) RUN(freeing) END
