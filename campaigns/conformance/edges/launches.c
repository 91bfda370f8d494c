/* Launches that are refused: dimensions, shared memory, parameters, attributes, handles. Accepted ones need a device
 * that runs them. */
#include "ask.h"

static CUmodule m;
static CUfunction f, two;
static void make(void) {
  DO(cuModuleLoadData(&m, PTX));
  DO(cuModuleGetFunction(&f, m, "empty"));
  DO(cuModuleGetFunction(&two, m, "two"));
}

static void dimensions(void) {
  make();
  for (int k = 0; k < 6; k++) {
    unsigned v[6] = {1, 1, 1, 1, 1, 1};
    unsigned bad[] = {0, 0x80000000u, 65536, 1025};
    for (int i = 0; i < 4; i++) {
      if ((k == 0 && i >= 2) || (k < 3 && i == 3)) continue;
      v[k] = bad[i];
      ASK(W("dimension %d of %u", k, bad[i]), cuLaunchKernel(f, v[0], v[1], v[2], v[3], v[4], v[5], 0, 0, NULL, NULL));
      ASK(W("cooperative dimension %d of %u", k, bad[i]),
          cuLaunchCooperativeKernel(f, v[0], v[1], v[2], v[3], v[4], v[5], 0, 0, NULL));
    }
  }
  ASK("a block of 65 in z", cuLaunchKernel(f, 1, 1, 1, 1, 1, 65, 0, 0, NULL, NULL));
  ASK("a block of 2048 threads", cuLaunchKernel(f, 1, 1, 1, 64, 32, 1, 0, 0, NULL, NULL));
  ASK("shared memory of 49153", cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 49153, 0, NULL, NULL));
  ASK("shared memory of 1 << 30", cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 1 << 30, 0, NULL, NULL));
  ASK("a cooperative grid that is too large", cuLaunchCooperativeKernel(f, 1 << 20, 1, 1, 1024, 1, 1, 0, 0, NULL));
  RISK("parameters that are missing", cuLaunchKernel(two, 1, 1, 1, 1, 1, 1, 0, 0, NULL, NULL));
  RISK("no function", cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, 0, NULL, NULL));
  RISK("a number as a function", cuLaunchKernel((CUfunction)8, 1, 1, 1, 1, 1, 1, 0, 0, NULL, NULL));
  char buffer[16];
  size_t size = 12, small = 11;
  void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &small, CU_LAUNCH_PARAM_END};
  void *list[] = {buffer, buffer};
  ASK("a buffer that is too small", cuLaunchKernel(two, 1, 1, 1, 1, 1, 1, 0, 0, NULL, extra));
  extra[3] = &size;
  ASK("a buffer and parameters", cuLaunchKernel(two, 1, 1, 1, 1, 1, 1, 0, 0, list, extra));
  void *strange[] = {(void *)9, buffer, CU_LAUNCH_PARAM_END};
  RISK("an unknown extra", cuLaunchKernel(two, 1, 1, 1, 1, 1, 1, 0, 0, NULL, strange));
}

static void attributes(void) {
  make();
  CUlaunchConfig c;
  CUlaunchAttribute a;
  SET(c);
  SET(a);
  c.gridDimX = 3, c.gridDimY = c.gridDimZ = c.blockDimX = c.blockDimY = c.blockDimZ = 1, c.attrs = &a, c.numAttrs = 1;
  a.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, a.value.clusterDim.x = 2,
  a.value.clusterDim.y = a.value.clusterDim.z = 1;
  ASK("a grid that clusters do not divide", cuLaunchKernelEx(&c, f, NULL, NULL));
  c.gridDimX = 64;
  unsigned sizes[] = {9, 16, 32, 64};
  for (int i = 0; i < 4; i++) {
    c.gridDimX = sizes[i] * 4, a.value.clusterDim.x = sizes[i];
    ASK(W("clusters of %u", sizes[i]), cuLaunchKernelEx(&c, f, NULL, NULL));
  }
  a.value.clusterDim.x = 0;
  ASK("clusters of 0", cuLaunchKernelEx(&c, f, NULL, NULL));
  int ids[] = {15, 17, 18, 99, -1};
  for (int i = 0; i < 5; i++) {
    SET(a);
    a.id = ids[i];
    ASK(W("attribute %d", ids[i]), cuLaunchKernelEx(&c, f, NULL, NULL));
  }
  SET(a);
  a.id = CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN, a.value.memSyncDomain = 5;
  ASK("domain 5", cuLaunchKernelEx(&c, f, NULL, NULL));
  a.id = CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, a.value.sharedMemCarveout = 101;
  ASK("carveout 101", cuLaunchKernelEx(&c, f, NULL, NULL));
  RISK("configuration NULL", cuLaunchKernelEx(NULL, f, NULL, NULL));
  c.attrs = NULL;
  RISK("attributes NULL", cuLaunchKernelEx(&c, f, NULL, NULL));
}

static void old(void) {
  make();
  ASK("block shape", cuFuncSetBlockShape(f, 32, 1, 1));
  ASK("block shape of 0", cuFuncSetBlockShape(f, 0, 1, 1));
  ASK("block shape of 1025", cuFuncSetBlockShape(f, 1025, 1, 1));
  ASK("block shape of -1", cuFuncSetBlockShape(f, -1, 1, 1));
  ASK("shared size", cuFuncSetSharedSize(f, 1024));
  ASK("shared size of 1 MiB", cuFuncSetSharedSize(f, 1 << 20));
  ASK("parameter size", cuParamSetSize(two, 12));
  ASK("parameter size of 5000", cuParamSetSize(two, 5000));
  ASK("parameter at 8", cuParamSeti(two, 8, 5));
  ASK("parameter at 5000", cuParamSeti(two, 5000, 5));
  ASK("parameter at -4", cuParamSeti(two, -4, 5));
  uint64_t v = 0;
  ASK("bytes at 0", cuParamSetv(two, 0, &v, 8));
  ASK("a grid of 0", cuLaunchGrid(f, 0, 1));
  RISK("block shape of NULL", cuFuncSetBlockShape(NULL, 1, 1, 1));
  RISK("bytes from NULL", cuParamSetv(two, 0, NULL, 8));
  RISK("launch NULL", cuLaunch(NULL));
}

CASES RUN(dimensions) RUN(attributes) RUN(old) END
