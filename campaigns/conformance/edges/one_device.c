/* Peers on one device, what is free, decompression, profiler and other calls that have no area. */
#include "ask.h"

static void peers(void) {
  int v = 77;
  ASK("access to itself", cuDeviceCanAccessPeer(&v, 0, 0), "%d", v);
  for (int a = 0; a <= 6; a++) {
    v = 77;
    ASK(W("attribute %d of itself", a), cuDeviceGetP2PAttribute(&v, a, 0, 0), "%d", v);
    ASK(W("attribute %d of device 99", a), cuDeviceGetP2PAttribute(&v, a, 0, 99));
  }
  ASK("enable itself", cuCtxEnablePeerAccess(context, 0));
  ASK("enable with flags 1", cuCtxEnablePeerAccess(context, 1));
  CUcontext c;
  DO(cuCtxCreate(&c, NULL, 0, 0));
  ASK("enable another context of the device", cuCtxEnablePeerAccess(context, 0));
  ASK("disable another context of the device", cuCtxDisablePeerAccess(context));
  CUdeviceptr a, b;
  DO(cuMemAlloc(&a, 4096));
  DO(cuCtxSetCurrent(context));
  DO(cuMemAlloc(&b, 4096));
  ASK("copy between contexts", cuMemcpyPeer(a, c, b, context, 16));
  ASK("copy between contexts by the generic call", cuMemcpy(a, b, 16));
  ASK("copy with the contexts exchanged", cuMemcpyPeer(a, context, b, c, 16));
  ASK("set memory of another context", cuMemsetD8(a, 1, 16));
  ASK("free memory of another context", cuMemFree(a));
  CUcontext of = NULL;
  ASK("context of the freed memory", cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_CONTEXT, a));
  ASK("context of memory", cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_CONTEXT, b), "%d", of == context);
  unsigned caps[2] = {77, 77};
  CUatomicOperation ops[2] = {0, 1};
  ASK("atomics of the host", cuDeviceGetHostAtomicCapabilities(caps, ops, 2, 0));
  ASK("atomics of itself", cuDeviceGetP2PAtomicCapabilities(caps, ops, 2, 0, 0));
  ASK("no atomics", cuDeviceGetHostAtomicCapabilities(caps, ops, 0, 0));
  RISK("atomics into NULL", cuDeviceGetHostAtomicCapabilities(NULL, ops, 2, 0));
  RISK("attribute into NULL", cuDeviceGetP2PAttribute(NULL, 1, 0, 0));
}

static void decompression(void) {
  CUdeviceptr from, to, actual;
  CUstream s;
  size_t at = 77;
  int mask = 77;
  DO(cuStreamCreate(&s, 1));
  DO(cuMemAlloc(&from, 4096));
  DO(cuMemAlloc(&to, 4096));
  DO(cuMemAlloc(&actual, 4096));
  ASK("algorithms", cuDeviceGetAttribute(&mask, CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK, 0), "%d", mask);
  CUmemDecompressParams p;
  SET(p);
  p.srcNumBytes = 64, p.dstNumBytes = 64, p.dstActBytes = (cuuint32_t *)actual, p.src = (void *)from,
  p.dst = (void *)to, p.algo = CU_MEM_DECOMPRESS_ALGORITHM_SNAPPY;
  ASK("one", cuMemBatchDecompressAsync(&p, 1, 0, &at, s), "%zu", at);
  ASK("none", cuMemBatchDecompressAsync(&p, 0, 0, &at, s));
  ASK("flags 1", cuMemBatchDecompressAsync(&p, 1, 1, &at, s));
  p.algo = 0;
  ASK("algorithm 0", cuMemBatchDecompressAsync(&p, 1, 0, &at, s));
  p.algo = 99;
  ASK("algorithm 99", cuMemBatchDecompressAsync(&p, 1, 0, &at, s));
  RISK("from NULL", cuMemBatchDecompressAsync(NULL, 1, 0, &at, s));
  RISK("without an index", cuMemBatchDecompressAsync(&p, 1, 0, NULL, s));
}

static void multicast(void) { /* asks only; nothing is made */
  CUmulticastObjectProp p;
  size_t size = 77;
  int supported = 77;
  ASK("supported", cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, 0), "%d", supported);
  SET(p);
  p.numDevices = 1, p.size = 2 * MIB;
  for (int option = 0; option <= 2; option++)
    ASK(W("granularity, option %d", option), cuMulticastGetGranularity(&size, &p, option), "%zu", size);
  p.numDevices = 2;
  ASK("granularity of two devices", cuMulticastGetGranularity(&size, &p, 0), "%zu", size);
  p.numDevices = 0;
  ASK("granularity of no devices", cuMulticastGetGranularity(&size, &p, 0));
  p.numDevices = 1, p.size = 0;
  ASK("granularity of size 0", cuMulticastGetGranularity(&size, &p, 0));
  p.size = 2 * MIB, p.flags = 1;
  ASK("granularity with flags 1", cuMulticastGetGranularity(&size, &p, 0));
  RISK("granularity into NULL", cuMulticastGetGranularity(NULL, &p, 0));
  RISK("granularity of NULL", cuMulticastGetGranularity(&size, NULL, 0));
  RISK("add a device to 0", cuMulticastAddDevice(0, 0));
}

CASES RUN(peers) RUN(decompression) RUN(multicast) END
