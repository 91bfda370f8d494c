/* Modules, libraries, functions, kernels, their attributes and parameters; occupancy. */
#include "ask.h"

static void modules(void) {
  CUmodule m = NULL, second = NULL;
  CUfunction f = NULL, g = NULL;
  ASK("load", cuModuleLoadData(&m, PTX));
  ASK("load again", cuModuleLoadData(&second, PTX), "%d", second != m);
  ASK("nonsense", cuModuleLoadData(&second, "nonsense"));
  ASK("nothing", cuModuleLoadData(&second, ""));
  ASK("a file that is not there", cuModuleLoad(&second, "/nowhere"));
  ASK("a folder", cuModuleLoad(&second, "/tmp"));
  ASK("wrong PTX",
      cuModuleLoadData(&second, ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() { nonsense; }\n"));
  ASK("PTX of a later version", cuModuleLoadData(&second, ".version 99.0\n.target sm_80\n.address_size 64\n"));
  ASK("PTX of a later target",
      cuModuleLoadData(&second, ".version 9.0\n.target sm_120\n.address_size 64\n.visible .entry k() { ret; }\n"));
  ASK("PTX of 32 bits",
      cuModuleLoadData(&second, ".version 8.0\n.target sm_80\n.address_size 32\n.visible .entry k() { ret; }\n"));
  ASK("empty PTX", cuModuleLoadData(&second, ".version 8.0\n.target sm_80\n.address_size 64\n"));
  ASK("an undefined function",
      cuModuleLoadData(
          &second,
          ".version 8.0\n.target sm_80\n.address_size 64\n.extern .func h();\n.visible .entry k() { call h; ret; }\n"));
  ASK("fat binary", cuModuleLoadFatBinary(&second, PTX));
  ASK("function", cuModuleGetFunction(&f, m, "two"));
  ASK("the same function", cuModuleGetFunction(&g, m, "two"), "%d", f == g);
  ASK("no such function", cuModuleGetFunction(&g, m, "three"));
  ASK("an empty name", cuModuleGetFunction(&g, m, ""));
  ASK("a variable as a function", cuModuleGetFunction(&g, m, "variable"));
  CUdeviceptr d = 0;
  size_t size = 7;
  ASK("variable", cuModuleGetGlobal(&d, &size, m, "variable"), "%zu", size);
  int value = 0;
  ASK("its value", cuMemcpyDtoH(&value, d, 4), "%d", value);
  ASK("constant", cuModuleGetGlobal(&d, &size, m, "fixed"), "%zu", size);
  ASK("no such variable", cuModuleGetGlobal(&d, &size, m, "three"));
  ASK("a function as a variable", cuModuleGetGlobal(&d, &size, m, "two"));
  ASK("address only", cuModuleGetGlobal(&d, NULL, m, "variable"));
  ASK("size only", cuModuleGetGlobal(NULL, &size, m, "variable"));
  RISK("neither", cuModuleGetGlobal(NULL, NULL, m, "variable"));
  CUtexref t;
  CUsurfref s;
  ASK("texture", cuModuleGetTexRef(&t, m, "none"));
  ASK("surface", cuModuleGetSurfRef(&s, m, "none"));
  unsigned count = 7;
  ASK("number of functions", cuModuleGetFunctionCount(&count, m), "%u", count);
  CUfunction all[4] = {NULL};
  for (int n = 0; n <= 3; n++) {
    memset(all, 0, sizeof all);
    ASK(W("enumerate %d", n), cuModuleEnumerateFunctions(all, n, m), "%d %d %d", all[0] != NULL, all[1] != NULL,
        all[2] != NULL);
  }
  CUmoduleLoadingMode mode = 7;
  ASK("loading mode", cuModuleGetLoadingMode(&mode), "%d", mode);
  CUjit_option options[] = {CU_JIT_MAX_REGISTERS, 99};
  void *values[] = {(void *)32, (void *)1};
  ASK("an option", cuModuleLoadDataEx(&second, PTX, 1, options, values));
  ASK("an option that does not exist", cuModuleLoadDataEx(&second, PTX, 2, options, values));
  RISK("options NULL", cuModuleLoadDataEx(&second, PTX, 1, NULL, NULL));
  RISK("load into NULL", cuModuleLoadData(NULL, PTX));
  RISK("load of NULL", cuModuleLoadData(&second, NULL));
  RISK("load of a file NULL", cuModuleLoad(&second, NULL));
  RISK("unload NULL", cuModuleUnload(NULL));
  RISK("function of NULL", cuModuleGetFunction(&f, NULL, "two"));
  RISK("function of no name", cuModuleGetFunction(&f, m, NULL));
  RISK("function into NULL", cuModuleGetFunction(NULL, m, "two"));
  RISK("number into NULL", cuModuleGetFunctionCount(NULL, m));
  ALONE("unload twice", (cuModuleUnload(m), cuModuleUnload(m)));
  ALONE("function of an unloaded one", (cuModuleUnload(m), cuModuleGetFunction(&f, m, "two")));
}

static void functions(void) {
  CUmodule m = NULL, back = NULL;
  CUfunction f = NULL;
  int v;
  const char *name = NULL;
  DO(cuModuleLoadData(&m, PTX));
  DO(cuModuleGetFunction(&f, m, "two"));
  for (int a = -1; a <= 17; a++) {
    v = 77;
    if (a != 4) ASK(W("attribute %d", a), cuFuncGetAttribute(&v, a, f), "%d", v);
  }
  struct {
    int a, v;
  } sets[] = {{0, 1},      {1, 1},  {4, 1},  {8, -1}, {8, 0},  {8, 1024}, {8, 49152}, {8, 232448},
              {8, 232449}, {9, -2}, {9, -1}, {9, 0},  {9, 50}, {9, 100},  {9, 101},   {10, 0},
              {10, 1},     {11, 1}, {11, 2}, {12, 1}, {13, 1}, {11, 0},   {11, 16},   {11, -1},
              {14, 0},     {14, 1}, {14, 2}, {15, 0}, {15, 1}, {15, 2},   {15, 3},    {16, 0}};
  for (unsigned i = 0; i < sizeof sets / sizeof *sets; i++) {
    v = 77;
    ASK(W("set attribute %d to %d", sets[i].a, sets[i].v), cuFuncSetAttribute(f, sets[i].a, sets[i].v));
    if (sets[i].a >= 8 && !cuFuncGetAttribute(&v, sets[i].a, f))
      SAY(W("attribute %d after %d", sets[i].a, sets[i].v), "%d", v);
  }
  for (int c = -1; c <= 4; c++) {
    ASK(W("cache %d", c), cuFuncSetCacheConfig(f, c));
    ASK(W("shared %d", c), cuFuncSetSharedMemConfig(f, c));
  }
  ASK("name", cuFuncGetName(&name, f), "%s", name ? name : "NULL");
  ASK("module", cuFuncGetModule(&back, f), "%d", back == m);
  size_t offset, size;
  for (int i = 0; i <= 2; i++) {
    offset = size = 77;
    ASK(W("parameter %d", i), cuFuncGetParamInfo(f, i, &offset, &size), "%zu %zu", offset, size);
  }
  ASK("parameter without size", cuFuncGetParamInfo(f, 1, &offset, NULL));
  CUfunctionLoadingState state = 77;
  ASK("loaded", cuFuncIsLoaded(&state, f), "%d", state);
  ASK("load", cuFuncLoad(f));
  ASK("loaded after that", cuFuncIsLoaded(&state, f), "%d", state);
  RISK("attribute into NULL", cuFuncGetAttribute(NULL, 0, f));
  RISK("attribute of NULL", cuFuncGetAttribute(&v, 0, NULL));
  RISK("set of NULL", cuFuncSetAttribute(NULL, 8, 0));
  RISK("name into NULL", cuFuncGetName(NULL, f));
  RISK("name of NULL", cuFuncGetName(&name, NULL));
  RISK("module into NULL", cuFuncGetModule(NULL, f));
  RISK("module of NULL", cuFuncGetModule(&back, NULL));
  RISK("parameter of NULL", cuFuncGetParamInfo(NULL, 0, &offset, &size));
  RISK("parameter into NULL", cuFuncGetParamInfo(f, 0, NULL, &size));
  RISK("loaded of NULL", cuFuncIsLoaded(&state, NULL));
  RISK("load NULL", cuFuncLoad(NULL));
}

static void occupancy(void) {
  CUmodule m;
  CUfunction f;
  int n, g, b;
  size_t z;
  DO(cuModuleLoadData(&m, PTX));
  DO(cuModuleGetFunction(&f, m, "empty"));
  int blocks[] = {-1, 0, 1, 31, 32, 33, 128, 1024, 1025};
  for (int i = 0; i < 9; i++) {
    n = 77;
    ASK(W("blocks of %d threads", blocks[i]), cuOccupancyMaxActiveBlocksPerMultiprocessor(&n, f, blocks[i], 0), "%d",
        n);
    z = 77;
    ASK(W("shared memory for blocks of %d", blocks[i]), cuOccupancyAvailableDynamicSMemPerBlock(&z, f, 1, blocks[i]),
        "%zu", z);
  }
  size_t shared[] = {0, 1, 1024, 49152, 49153, 232448, 232449, SIZE_MAX};
  for (int i = 0; i < 8; i++) {
    n = 77;
    ASK(W("blocks with %zu shared", shared[i]), cuOccupancyMaxActiveBlocksPerMultiprocessor(&n, f, 128, shared[i]),
        "%d", n);
  }
  for (int flags = 0; flags <= 2; flags++)
    ASK(W("flags %d", flags), cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&n, f, 128, 0, flags));
  int limits[] = {-1, 0, 1, 100, 1024, 5000};
  for (int i = 0; i < 6; i++) {
    g = b = 77;
    ASK(W("block size up to %d", limits[i]), cuOccupancyMaxPotentialBlockSize(&g, &b, f, NULL, 0, limits[i]), "%d %d",
        g, b);
  }
  int counts[] = {-1, 0, 1, 8, 32, 33, 64};
  for (int i = 0; i < 7; i++) {
    z = 77;
    ASK(W("shared memory for %d blocks", counts[i]), cuOccupancyAvailableDynamicSMemPerBlock(&z, f, counts[i], 128),
        "%zu", z);
  }
  CUlaunchConfig c;
  CUlaunchAttribute a;
  SET(c);
  SET(a);
  c.gridDimX = 64, c.gridDimY = c.gridDimZ = 1, c.blockDimX = 128, c.blockDimY = c.blockDimZ = 1;
  n = 77;
  ASK("largest cluster", cuOccupancyMaxPotentialClusterSize(&n, f, &c), "%d", n);
  a.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, a.value.clusterDim.x = 2,
  a.value.clusterDim.y = a.value.clusterDim.z = 1;
  c.attrs = &a, c.numAttrs = 1;
  for (int x = 0; x <= 16; x = x ? x * 2 : 1) {
    a.value.clusterDim.x = x, n = 77;
    ASK(W("clusters of %d", x), cuOccupancyMaxActiveClusters(&n, f, &c), "%d", n);
  }
  c.numAttrs = 0;
  ASK("clusters without a size", cuOccupancyMaxActiveClusters(&n, f, &c), "%d", n);
  c.gridDimX = 0;
  ASK("largest cluster of no grid", cuOccupancyMaxPotentialClusterSize(&n, f, &c));
  RISK("blocks into NULL", cuOccupancyMaxActiveBlocksPerMultiprocessor(NULL, f, 128, 0));
  RISK("blocks of NULL", cuOccupancyMaxActiveBlocksPerMultiprocessor(&n, NULL, 128, 0));
  RISK("block size into NULL", cuOccupancyMaxPotentialBlockSize(NULL, &b, f, NULL, 0, 0));
  RISK("clusters without a configuration", cuOccupancyMaxActiveClusters(&n, f, NULL));
}

static void libraries(void) {
  CUlibrary l = NULL, second = NULL;
  CUkernel k = NULL, k2 = NULL;
  ASK("load", cuLibraryLoadData(&l, PTX, NULL, NULL, 0, NULL, NULL, 0));
  ASK("load again", cuLibraryLoadData(&second, PTX, NULL, NULL, 0, NULL, NULL, 0), "%d", second != l);
  ASK("nonsense", cuLibraryLoadData(&second, "nonsense", NULL, NULL, 0, NULL, NULL, 0));
  ASK("wrong PTX",
      cuLibraryLoadData(&second, ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() { nonsense; }\n",
                        NULL, NULL, 0, NULL, NULL, 0));
  ASK("a file that is not there", cuLibraryLoadFromFile(&second, "/nowhere", NULL, NULL, 0, NULL, NULL, 0));
  CUlibraryOption o[] = {CU_LIBRARY_BINARY_IS_PRESERVED, CU_LIBRARY_HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE, 7};
  void *v[] = {(void *)1, NULL, NULL};
  ASK("preserved", cuLibraryLoadData(&second, PTX, NULL, NULL, 0, o, v, 1));
  v[0] = NULL;
  ASK("not preserved", cuLibraryLoadData(&second, PTX, NULL, NULL, 0, o, v, 1));
  ASK("an option that does not exist", cuLibraryLoadData(&second, PTX, NULL, NULL, 0, o + 2, v, 1));
  RISK("a table NULL", cuLibraryLoadData(&second, PTX, NULL, NULL, 0, o + 1, v, 1));
  RISK("options NULL", cuLibraryLoadData(&second, PTX, NULL, NULL, 0, NULL, NULL, 1));
  ASK("kernel", cuLibraryGetKernel(&k, l, "two"));
  ASK("the same kernel", cuLibraryGetKernel(&k2, l, "two"), "%d", k == k2);
  ASK("no such kernel", cuLibraryGetKernel(&k2, l, "three"));
  unsigned count = 77;
  ASK("number of kernels", cuLibraryGetKernelCount(&count, l), "%u", count);
  CUkernel all[3] = {NULL};
  ASK("enumerate 3", cuLibraryEnumerateKernels(all, 3, l), "%d %d", all[1] != NULL, all[2] != NULL);
  CUmodule m = NULL, m2 = NULL;
  ASK("module", cuLibraryGetModule(&m, l));
  ASK("the same module", cuLibraryGetModule(&m2, l), "%d", m == m2);
  ASK("unload it as a module", cuModuleUnload(m));
  CUdeviceptr d = 0;
  size_t size = 77;
  ASK("variable", cuLibraryGetGlobal(&d, &size, l, "variable"), "%zu", size);
  ASK("no such variable", cuLibraryGetGlobal(&d, &size, l, "three"));
  ASK("managed variable", cuLibraryGetManaged(&d, &size, l, "variable"));
  void *fn;
  ASK("unified function", cuLibraryGetUnifiedFunction(&fn, l, "two"));
  CUfunction f = NULL, f2 = NULL;
  ASK("function of a kernel", cuKernelGetFunction(&f, k));
  ASK("function of its module", cuModuleGetFunction(&f2, m, "two"), "%d", f == f2);
  CUlibrary of = NULL;
  ASK("library of a kernel", cuKernelGetLibrary(&of, k), "%d", of == l);
  const char *name = NULL;
  ASK("name of a kernel", cuKernelGetName(&name, k), "%s", name ? name : "NULL");
  int n = 77;
  for (int a = -1; a <= 16; a++)
    if (a != 4) {
      n = 77;
      ASK(W("kernel attribute %d", a), cuKernelGetAttribute(&n, a, k, 0), "%d", n);
    }
  ASK("kernel attribute of device 99", cuKernelGetAttribute(&n, 0, k, 99));
  ASK("set a kernel's attribute", cuKernelSetAttribute(8, 1024, k, 0));
  ASK("the function's after that", cuFuncGetAttribute(&n, 8, f), "%d", n);
  ASK("set a kernel's attribute too high", cuKernelSetAttribute(8, 1 << 20, k, 0));
  ASK("set a kernel's attribute 0", cuKernelSetAttribute(0, 1, k, 0));
  for (int c = -1; c <= 4; c++) ASK(W("cache of a kernel %d", c), cuKernelSetCacheConfig(k, c, 0));
  size_t offset;
  ASK("parameter 1 of a kernel", cuKernelGetParamInfo(k, 1, &offset, &size), "%zu %zu", offset, size);
  ASK("parameter 2 of a kernel", cuKernelGetParamInfo(k, 2, &offset, &size));
  ASK("a kernel as a function", cuFuncGetAttribute(&n, 0, (CUfunction)k), "%d", n);
  RISK("unload NULL", cuLibraryUnload(NULL));
  ALONE("unload twice", (cuLibraryUnload(l), cuLibraryUnload(l)));
  RISK("kernel of NULL", cuLibraryGetKernel(&k, NULL, "two"));
  RISK("kernel of no name", cuLibraryGetKernel(&k, l, NULL));
  RISK("kernel into NULL", cuLibraryGetKernel(NULL, l, "two"));
  RISK("load NULL", cuLibraryLoadData(&l, NULL, NULL, NULL, 0, NULL, NULL, 0));
  RISK("load into NULL", cuLibraryLoadData(NULL, PTX, NULL, NULL, 0, NULL, NULL, 0));
  RISK("function of NULL", cuKernelGetFunction(&f, NULL));
  RISK("name of NULL", cuKernelGetName(&name, NULL));
}

CASES RUN(modules) RUN(functions) RUN(occupancy) RUN(libraries) END
