/* Two devices: one library in both contexts: functions, variables, attributes and settings for each device, its end. */
#include "two.h"

static CUlibrary lib;
static CUkernel k;

static void make(void) {
  both();
  DO(cuLibraryLoadData(&lib, PTX, NULL, NULL, 0, NULL, NULL, 0));
  DO(cuLibraryGetKernel(&k, lib, "empty"));
}

static void parts(void) {
  make();
  CUmodule m[2] = {NULL};
  CUfunction f[2] = {NULL}, again = NULL;
  CUdeviceptr v[2] = {0};
  size_t size = 7;
  for (int d = 0; d < 2; d++) {
    on(d);
    CUkernel same = NULL;
    CUmodule of_f = NULL;
    ASK(W("module of %d", d), cuLibraryGetModule(&m[d], lib));
    ASK(W("function of %d", d), cuKernelGetFunction(&f[d], k));
    ASK(W("function of %d again", d), cuKernelGetFunction(&again, k), "%d", again == f[d]);
    ASK(W("kernel on %d", d), cuLibraryGetKernel(&same, lib, "empty"), "%d", same == k);
    ASK(W("module of the function of %d", d), cuFuncGetModule(&of_f, f[d]), "%d", of_f == m[d]);
    ASK(W("variable of %d", d), cuLibraryGetGlobal(&v[d], &size, lib, "variable"), "%zu", size);
    int ordinal = 7;
    ASK(W("where the variable of %d is", d), cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, v[d]),
        "%d", ordinal);
    CUdeviceptr w = 0;
    ASK(W("the module's variable of %d", d), cuModuleGetGlobal(&w, &size, m[d], "variable"), "%d", w == v[d]);
    ASK(W("function of the module of %d", d), cuModuleGetFunction(&again, m[d], "empty"), "%d", again == f[d]);
    CUfunctionLoadingState state = 9;
    ASK(W("loaded on %d", d), cuFuncIsLoaded(&state, f[d]), "%d", state);
  }
  SAY("they differ", "%d %d %d", m[0] != m[1], f[0] != f[1], v[0] != v[1]);
  SAY("first contents", "%u %u", word(0, v[0]), word(1, v[1]));
  on(0);
  DO(cuMemsetD32(v[0], 50, 1));
  DO(cuCtxSynchronize());
  SAY("after a set of 0's", "%u %u", word(0, v[0]), word(1, v[1]));
  ASK("set of 1's, 0 current", cuMemsetD32(v[1], 60, 1));
  DO(cuCtxSynchronize());
  SAY("after a set of 1's", "%u %u", word(0, v[0]), word(1, v[1]));
  DO(cuCtxSetCurrent(NULL));
  ASK("module, none current", cuLibraryGetModule(&m[0], lib));
  ASK("function, none current", cuKernelGetFunction(&f[0], k));
  ASK("variable, none current", cuLibraryGetGlobal(&v[0], &size, lib, "variable"));
  unsigned n = 7;
  ASK("count, none current", cuLibraryGetKernelCount(&n, lib), "%u", n);
}

static void attributes(void) {
  make();
  CUfunction f[2] = {NULL};
  for (int a = -1; a <= 16; a++)
    for (int d = -1; d <= 2; d++) {
      int v = 77;
      ASK(W("attribute %d on %d", a, d), cuKernelGetAttribute(&v, a, k, d), "%d", v);
    }
  for (int d = 0; d < 2; d++) {
    on(d);
    DO(cuKernelGetFunction(&f[d], k));
  }
  static const int settable[] = {8, 9, 14, 15};
  static const int values[] = {4096, 50, 1, 1};
  for (int i = 0; i < 4; i++) {
    int v[4] = {77, 77, 77, 77}, a = settable[i];
    ASK(W("set %d for 1", a), cuKernelSetAttribute(a, values[i], k, 1));
    DO(cuKernelGetAttribute(&v[0], a, k, 0));
    DO(cuKernelGetAttribute(&v[1], a, k, 1));
    DO(cuFuncGetAttribute(&v[2], a, f[0]));
    DO(cuFuncGetAttribute(&v[3], a, f[1]));
    SAY(W("then %d", a), "%d %d %d %d", v[0], v[1], v[2], v[3]);
    ASK(W("set %d of 0's function, 1 current", a), cuFuncSetAttribute(f[0], a, values[i] / 2));
    DO(cuKernelGetAttribute(&v[0], a, k, 0));
    DO(cuKernelGetAttribute(&v[1], a, k, 1));
    DO(cuFuncGetAttribute(&v[2], a, f[0]));
    SAY(W("after that %d", a), "%d %d %d", v[0], v[1], v[2]);
    ASK(W("set %d for 2", a), cuKernelSetAttribute(a, values[i], k, 2));
  }
  for (int d = -1; d <= 2; d++) ASK(W("cache for %d", d), cuKernelSetCacheConfig(k, CU_FUNC_CACHE_PREFER_L1, d));
}

static void before_use(void) {
  both();
  CUkernel l = NULL;
  CUfunction f = NULL;
  DO(cuDevicePrimaryCtxRelease(1));
  DO(cuLibraryLoadData(&lib, PTX, NULL, NULL, 0, NULL, NULL, 0));
  DO(cuLibraryGetKernel(&l, lib, "two"));
  int v = 7, active = 7;
  unsigned flags;
  ASK("set for 1 without a context", cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 2048, l, 1));
  ASK("it", cuKernelGetAttribute(&v, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, l, 1), "%d", v);
  ASK("state of 1", cuDevicePrimaryCtxGetState(1, &flags, &active), "%d", active);
  DO(cuDevicePrimaryCtxRetain(&of[1], 1));
  on(1);
  ASK("function of 1", cuKernelGetFunction(&f, l));
  ASK("its attribute", cuFuncGetAttribute(&v, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, f), "%d", v);
  size_t offset = 7, size = 7;
  ASK("its parameter", cuFuncGetParamInfo(f, 1, &offset, &size), "%zu %zu", offset, size);
}

static void ends(void) {
  make();
  CUfunction f[2] = {NULL}, g = NULL;
  CUmodule m = NULL;
  CUdeviceptr v[2] = {0};
  size_t size;
  for (int d = 0; d < 2; d++) {
    on(d);
    DO(cuKernelGetFunction(&f[d], k));
    DO(cuLibraryGetGlobal(&v[d], &size, lib, "variable"));
  }
  DO(cuLibraryGetModule(&m, lib));
  ALONE("unload the library's module", cuModuleUnload(m));
  DO(cuMemsetD32(v[1], 99, 1));
  DO(cuCtxSynchronize());
  on(0);
  ASK("reset 1", cuDevicePrimaryCtxReset(1));
  ASK("launch on 0", cuLaunchKernel(f[0], 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
  ASK("its end", cuCtxSynchronize());
  DO(cuDevicePrimaryCtxRetain(&of[1], 1));
  on(1);
  ASK("function of 1 anew", cuKernelGetFunction(&g, k));
  ASK("launch it", cuLaunchKernel(g, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), "%d", cuCtxSynchronize());
  ASK("variable of 1 anew", cuLibraryGetGlobal(&v[1], &size, lib, "variable"), "%u", word(1, v[1]));
  ASK("unload, 1 current", cuLibraryUnload(lib));
  ALONE("launch after that", cuLaunchKernel(g, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
  ALONE("kernel after that", cuKernelGetFunction(&g, k));
  int ordinal = 77;
  ASK("variable of 0 after that", cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, v[0]), "%d",
      ordinal);
}

CASES RUN(parts) RUN(attributes) RUN(before_use) RUN(ends) END
