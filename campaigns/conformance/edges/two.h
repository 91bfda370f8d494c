/* What the programs for two devices have in common. */
#ifndef TWO_H
#define TWO_H
#include "ask.h"

static UNUSED CUcontext of[2]; /* the primary contexts of both devices */

static UNUSED void both(void) {
  of[0] = context;
  DO(cuDevicePrimaryCtxRetain(&of[1], 1));
}

/* Makes a device's primary context current; none for -1. */
static UNUSED void on(int d) { DO(cuCtxSetCurrent(d < 0 ? NULL : of[d])); }

/* Which context is current: 0 or 1 (a primary one), 9 (another), -1 (none), -2 (an error). */
static UNUSED int current(void) {
  CUcontext c = NULL;
  if (cuCtxGetCurrent(&c)) return -2;
  return !c ? -1 : c == of[0] ? 0 : c == of[1] ? 1 : 9;
}

/* Memory of a device, filled with a byte; the current context stays. */
static UNUSED CUdeviceptr memory(int d, size_t size, int byte) {
  CUdeviceptr p = 0;
  CUcontext none;
  DO(cuCtxPushCurrent(of[d]));
  DO(cuMemAlloc(&p, size));
  DO(cuMemsetD8(p, (unsigned char)byte, size));
  DO(cuCtxSynchronize());
  DO(cuCtxPopCurrent(&none));
  return p;
}

/* The word at an address, read under the context of a device; 0xbad000 and the code without success. */
static UNUSED unsigned word(int d, CUdeviceptr p) {
  unsigned v = 0xbad;
  CUcontext none;
  cuCtxPushCurrent(of[d]);
  unsigned code = cuMemcpyDtoH(&v, p, 4);
  cuCtxPopCurrent(&none);
  return code ? 0xbad000 + code : v;
}

/* What a stream's query gives, after at most half a second of CUDA_ERROR_NOT_READY. */
static UNUSED int settled(CUstream s) {
  int code = cuStreamQuery(s);
  for (int n = 0; n < 50 && code == CUDA_ERROR_NOT_READY; n++) usleep(10000), code = cuStreamQuery(s);
  return code;
}

/* The device of memory; 1000 and the code without success. */
static UNUSED int where(CUdeviceptr p) {
  int d = 77, code = cuPointerGetAttribute(&d, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p);
  return code ? 1000 + code : d;
}

static UNUSED CUmemLocation at(int type, int id) {
  CUmemLocation l = {type, id};
  return l;
}
#endif
