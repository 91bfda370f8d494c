/* Two devices: arrays, mipmaps, textures and surfaces of the other device. */
#include "two.h"

static CUarray array_of(int d, unsigned flags) {
  CUarray r = NULL;
  CUcontext none;
  CUDA_ARRAY3D_DESCRIPTOR x = {64, 4, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, flags};
  DO(cuCtxPushCurrent(of[d]));
  DO(cuArray3DCreate(&r, &x));
  DO(cuCtxPopCurrent(&none));
  return r;
}

static void copies(void) {
  both();
  CUarray r[2] = {array_of(0, 0), array_of(1, 0)};
  CUdeviceptr m[2] = {memory(0, 4096, 0x11), memory(1, 4096, 0x22)};
  static char host[64];
  for (int access = 0; access < 2; access++) {
    if (access) DO(cuCtxEnablePeerAccess(of[1], 0));
    for (int now = 0; now < 2; now++) {
      on(now);
      for (int i = 0; i < 2; i++) {
        char w[100];
        snprintf(w, sizeof w, "access %d, %d current, array of %d", access, now, i);
        memset(host, 0x41 + i, 64);
        ASK(W("%s: from the host", w), cuMemcpyHtoA(r[i], 0, host, 64));
        memset(host, 0, 64);
        ASK(W("%s: to the host", w), cuMemcpyAtoH(host, r[i], 0, 64), "%d", host[5]);
        for (int j = 0; j < 2; j++) {
          ASK(W("%s: from %d's", w, j), cuMemcpyDtoA(r[i], 0, m[j], 64), "%d", cuCtxSynchronize());
          ASK(W("%s: to %d's", w, j), cuMemcpyAtoD(m[j] + 512, r[i], 0, 64), "%d", cuCtxSynchronize());
          ASK(W("%s: %d's has", w, j), 0, "%x", word(j, m[j] + 512));
        }
        ASK(W("%s: to the other's array", w), cuMemcpyAtoA(r[!i], 0, r[i], 0, 64), "%d", cuCtxSynchronize());
        ASK(W("%s: to it, in a stream", w), cuMemcpyHtoAAsync(r[i], 0, host, 64, NULL), "%d", cuCtxSynchronize());
      }
    }
  }
}

static void facts(void) {
  both();
  CUarray r = array_of(1, CUDA_ARRAY3D_SURFACE_LDST);
  for (int now = -1; now < 2; now++) {
    DO(cuCtxSetCurrent(now < 0 ? NULL : of[now]));
    CUDA_ARRAY_DESCRIPTOR d;
    CUDA_ARRAY3D_DESCRIPTOR e;
    SET(d), SET(e);
    ASK(W("descriptor, %d current", now), cuArrayGetDescriptor(&d, r), "%zu %zu", d.Width, d.Height);
    ASK(W("3D descriptor, %d current", now), cuArray3DGetDescriptor(&e, r), "%zu %u", e.Width, e.Flags);
    CUDA_ARRAY_MEMORY_REQUIREMENTS q;
    for (int on_ = 0; on_ <= 2; on_++) {
      SET(q);
      ASK(W("requirements on %d, %d current", on_, now), cuArrayGetMemoryRequirements(&q, r, on_));
    }
    CUDA_ARRAY_SPARSE_PROPERTIES p;
    ASK(W("sparse, %d current", now), cuArrayGetSparseProperties(&p, r));
    CUarray plane = NULL;
    ASK(W("plane, %d current", now), cuArrayGetPlane(&plane, r, 0));
  }
  CUmipmappedArray m = NULL;
  CUarray level = NULL;
  CUDA_ARRAY3D_DESCRIPTOR x = {64, 64, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0};
  on(1);
  ASK("mipmap on 1", cuMipmappedArrayCreate(&m, &x, 3));
  on(0);
  for (unsigned l = 0; l < 4; l++) ASK(W("its level %u, 0 current", l), cuMipmappedArrayGetLevel(&level, m, l));
  ASK("destroy the mipmap, 0 current", cuMipmappedArrayDestroy(m));
  ASK("destroy the array, 0 current", cuArrayDestroy(r));
  ALONE("destroy the array twice", cuArrayDestroy(r));
}

static void objects(void) {
  both();
  CUarray r[2] = {array_of(0, CUDA_ARRAY3D_SURFACE_LDST), array_of(1, CUDA_ARRAY3D_SURFACE_LDST)};
  CUdeviceptr m[2] = {memory(0, 4096, 0), memory(1, 4096, 0)};
  for (int access = 0; access < 2; access++) {
    on(0);
    if (access) DO(cuCtxEnablePeerAccess(of[1], 0));
    for (int now = -1; now < 2; now++) {
      DO(cuCtxSetCurrent(now < 0 ? NULL : of[now]));
      for (int i = 0; i < 2; i++) {
        char w[100];
        snprintf(w, sizeof w, "access %d, %d current, of %d", access, now, i);
        CUDA_RESOURCE_DESC d, got;
        CUDA_TEXTURE_DESC t;
        SET(d), SET(t), SET(got);
        CUtexObject o = 0;
        CUsurfObject f = 0;
        d.resType = CU_RESOURCE_TYPE_ARRAY, d.res.array.hArray = r[i];
        ASK(W("%s: texture of an array", w), cuTexObjectCreate(&o, &d, &t, NULL), "%d", o != 0);
        if (o) ASK(W("%s: its resource", w), cuTexObjectGetResourceDesc(&got, o), "%d", got.res.array.hArray == r[i]);
        if (o) ASK(W("%s: its end", w), cuTexObjectDestroy(o));
        ASK(W("%s: surface of an array", w), cuSurfObjectCreate(&f, &d), "%d", f != 0);
        if (f) ASK(W("%s: end of the surface", w), cuSurfObjectDestroy(f));
        SET(d);
        o = 0;
        d.resType = CU_RESOURCE_TYPE_LINEAR;
        d.res.linear.devPtr = m[i], d.res.linear.format = CU_AD_FORMAT_UNSIGNED_INT8, d.res.linear.numChannels = 1,
        d.res.linear.sizeInBytes = 4096;
        ASK(W("%s: texture of memory", w), cuTexObjectCreate(&o, &d, &t, NULL), "%d", o != 0);
        on(1);
        if (o) ASK(W("%s: end of it on 1", w), cuTexObjectDestroy(o));
        DO(cuCtxSetCurrent(now < 0 ? NULL : of[now]));
      }
    }
  }
}

static void reset(void) {
  both();
  CUarray r[2] = {array_of(0, 0), array_of(1, 0)};
  static char host[64];
  ASK("reset 1", cuDevicePrimaryCtxReset(1));
  ASK("array of 0", cuMemcpyHtoA(r[0], 0, host, 64));
  ALONE("array of 1", cuMemcpyHtoA(r[1], 0, host, 64));
  ALONE("end of 1's", cuArrayDestroy(r[1]));
  ASK("end of 0's", cuArrayDestroy(r[0]));
}

CASES RUN(copies) RUN(facts) RUN(objects) RUN(reset) END
