/* Two devices: cuMemcpy3DPeer, cuMemcpy3D and cuMemcpy2D between them, with host and arrays. */
#include "two.h"

static CUDA_MEMCPY3D_PEER plan(CUdeviceptr to, int dst, CUdeviceptr from, int src) {
  CUDA_MEMCPY3D_PEER p;
  SET(p);
  p.srcMemoryType = p.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  p.srcDevice = from, p.dstDevice = to;
  p.srcContext = src < 0 ? NULL : of[src], p.dstContext = dst < 0 ? NULL : of[dst];
  p.srcPitch = p.dstPitch = 64, p.srcHeight = p.dstHeight = 4;
  p.WidthInBytes = 32, p.Height = 4, p.Depth = 2;
  return p;
}

static void peers(void) {
  both();
  CUdeviceptr a = memory(0, 4096, 0x11), b = memory(1, 4096, 0x22);
  CUDA_MEMCPY3D_PEER p = plan(b, 1, a, 0);
  ASK("to 1", cuMemcpy3DPeer(&p));
  ASK("arrived", cuCtxSynchronize(), "%x %x %x %x", word(1, b), word(1, b + 32), word(1, b + 64),
      word(1, b + 256 + 192));
  for (int dst = -1; dst < 2; dst++)
    for (int src = -1; src < 2; src++) {
      p = plan(b + 1024, dst, a, src);
      if (dst < 0 || src < 0) RISK(W("contexts %d %d", dst, src), cuMemcpy3DPeer(&p));
      else ASK(W("contexts %d %d", dst, src), cuMemcpy3DPeer(&p));
    }
  for (int i = 0; i < 14; i++) {
    p = plan(b, 1, a, 0);
    switch (i) {
      case 0: p.WidthInBytes = 0; break;
      case 1: p.Height = 0; break;
      case 2: p.Depth = 0; break;
      case 3: p.srcPitch = 16; break;
      case 4: p.dstPitch = 16; break;
      case 5: p.srcHeight = 1; break;
      case 6: p.srcLOD = 1; break;
      case 7: p.dstLOD = 1; break;
      case 8: p.srcXInBytes = 48; break;
      case 9: p.srcMemoryType = 0; break;
      case 10: p.dstMemoryType = 9; break;
      case 11: p.srcMemoryType = CU_MEMORYTYPE_UNIFIED; break;
      case 12: p.dstMemoryType = CU_MEMORYTYPE_UNIFIED; break;
      case 13: p.srcPitch = p.dstPitch = 0; break;
    }
    ASK(W("variant %d", i), cuMemcpy3DPeer(&p));
  }
  RISK("NULL", cuMemcpy3DPeer(NULL));
  p = plan(b, 1, a, 0);
  DO(cuCtxSetCurrent(NULL));
  ASK("none current", cuMemcpy3DPeer(&p));
}

static void with_others(void) {
  both();
  CUdeviceptr a = memory(0, 4096, 0x11), b = memory(1, 4096, 0x22);
  static char host[4096];
  memset(host, 0x33, sizeof host);
  CUDA_MEMCPY3D_PEER p = plan(b, 1, 0, 0);
  p.srcMemoryType = CU_MEMORYTYPE_HOST, p.srcHost = host;
  ASK("host to 1", cuMemcpy3DPeer(&p), "%x", word(1, b));
  p = plan(0, 0, b, 1);
  p.dstMemoryType = CU_MEMORYTYPE_HOST, p.dstHost = host + 1024;
  ASK("1 to host", cuMemcpy3DPeer(&p), "%d %d", host[1024], host[1024 + 32]);
  CUarray r = NULL, q = NULL;
  CUDA_ARRAY_DESCRIPTOR d = {32, 4, CU_AD_FORMAT_UNSIGNED_INT8, 1};
  on(1);
  DO(cuArrayCreate(&r, &d));
  on(0);
  DO(cuArrayCreate(&q, &d));
  p = plan(0, 1, a, 0);
  p.dstMemoryType = CU_MEMORYTYPE_ARRAY, p.dstArray = r, p.Depth = 1;
  ASK("0 to 1's array", cuMemcpy3DPeer(&p));
  p = plan(a + 1024, 0, 0, 1);
  p.srcMemoryType = CU_MEMORYTYPE_ARRAY, p.srcArray = r, p.Depth = 1;
  ASK("1's array to 0", cuMemcpy3DPeer(&p));
  ASK("what came back", cuCtxSynchronize(), "%x", word(0, a + 1024));
  SET(p);
  p.srcMemoryType = p.dstMemoryType = CU_MEMORYTYPE_ARRAY, p.srcArray = r, p.dstArray = q;
  p.WidthInBytes = 32, p.Height = 4, p.Depth = 1;
  ASK("1's array to 0's, no contexts", cuMemcpy3DPeer(&p));
  p.srcContext = of[1], p.dstContext = of[0];
  ASK("1's array to 0's", cuMemcpy3DPeer(&p));
  p.srcContext = of[0], p.dstContext = of[1];
  ASK("1's array to 0's, contexts swapped", cuMemcpy3DPeer(&p));
  p.WidthInBytes = 33;
  ASK("too wide", cuMemcpy3DPeer(&p));
}

static void plain(void) {
  both();
  CUdeviceptr a = memory(0, 4096, 0x11), b = memory(1, 4096, 0x22);
  CUDA_MEMCPY3D p;
  for (int access = 0; access < 2; access++) {
    if (access) DO(cuCtxEnablePeerAccess(of[1], 0));
    DO(cuMemsetD8(a, 0x51 + access, 4096));
    SET(p);
    p.srcMemoryType = p.dstMemoryType = CU_MEMORYTYPE_DEVICE, p.srcDevice = a, p.dstDevice = b;
    p.srcPitch = p.dstPitch = 64, p.srcHeight = p.dstHeight = 4, p.WidthInBytes = 32, p.Height = 4, p.Depth = 2;
    ASK(W("3D, access %d", access), cuMemcpy3D(&p));
    ASK(W("3D arrived, access %d", access), cuCtxSynchronize(), "%x %x", word(1, b), word(1, b + 256));
    p.srcMemoryType = p.dstMemoryType = CU_MEMORYTYPE_UNIFIED, p.dstDevice = b + 512;
    ASK(W("3D unified, access %d", access), cuMemcpy3D(&p));
    ASK(W("3D unified arrived, access %d", access), cuCtxSynchronize(), "%x", word(1, b + 512));
    CUDA_MEMCPY2D t;
    SET(t);
    t.srcMemoryType = t.dstMemoryType = CU_MEMORYTYPE_DEVICE, t.srcDevice = a, t.dstDevice = b + 1024;
    t.srcPitch = t.dstPitch = 64, t.WidthInBytes = 32, t.Height = 4;
    ASK(W("2D, access %d", access), cuMemcpy2D(&t));
    ASK(W("2D arrived, access %d", access), cuCtxSynchronize(), "%x", word(1, b + 1024));
    t.dstDevice = b + 2048;
    ASK(W("2D unaligned, access %d", access), cuMemcpy2DUnaligned(&t));
    ASK(W("2D unaligned arrived, access %d", access), cuCtxSynchronize(), "%x", word(1, b + 2048));
  }
}

static void in_streams(void) {
  both();
  CUdeviceptr a = memory(0, 4096, 0x11), b = memory(1, 4096, 0x22);
  CUstream s[2] = {NULL};
  for (int d = 0; d < 2; d++) {
    on(d);
    DO(cuStreamCreate(&s[d], CU_STREAM_NON_BLOCKING));
  }
  for (int c = 0; c < 2; c++)
    for (int d = 0; d < 2; d++) {
      on(c);
      CUDA_MEMCPY3D_PEER p = plan(b + 512 * (2 * c + d), 1, a, 0);
      ASK(W("stream of %d, %d current", d, c), cuMemcpy3DPeerAsync(&p, s[d]));
      ASK(W("end, stream of %d, %d current", d, c), settled(s[d]), "%x", word(1, p.dstDevice));
    }
  RISK("NULL", cuMemcpy3DPeerAsync(NULL, s[0]));
}

CASES RUN(peers) RUN(with_others) RUN(plain) RUN(in_streams) END
