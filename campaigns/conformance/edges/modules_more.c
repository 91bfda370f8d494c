/* Modules, libraries, kernels, functions' attributes, the linker with PTX text, globals, unloading, entry points by
 * version. */
#include "ask.h"

static const char MORE[] =
    ".version 8.0\n.target sm_90\n.address_size 64\n"
    ".visible .global .align 8 .u64 wide = 5;\n.visible .global .align 4 .b8 many[1000];\n.visible .const .align 4 .u32 three = 3;\n"
    ".global .align 4 .u32 hidden = 1;\n.visible .global .attribute(.managed) .align 4 .u32 managed = 11;\n"
    ".func (.reg .u32 r) helper(.reg .u32 a) { mov.u32 r, a; ret; }\n"
    ".visible .entry none() { ret; }\n"
    ".visible .entry shared() { .shared .align 16 .b8 s[1024]; .reg .u32 v; st.shared.u32 [s], 1; ld.shared.u32 v, [s]; st.global.u32 [many], v; ret; }\n"
    ".visible .entry bounded(.param .u64 a) .maxntid 128, 1, 1 .minnctapersm 2 { ret; }\n"
    ".visible .entry exact() .reqntid 64, 2, 1 { ret; }\n"
    ".visible .entry params(.param .u8 a, .param .u16 b, .param .u32 c, .param .u64 d, .param .align 16 .b8 e[40]) { ret; }\n"
    ".visible .entry clustered() .reqnctapercluster 2, 1, 1 { ret; }\n"
    ".entry local() { .local .align 16 .b8 l[512]; .reg .u32 v, i; mov.u32 i, %tid.x; st.local.u32 [l], i; ld.local.u32 v, [l]; st.global.u32 [many], v; ret; }\n";
static const char EXTERN[] =
    ".version 8.0\n.target sm_90\n.address_size 64\n.extern .global .align 4 .u32 variable;\n"
    ".visible .entry reads() { .reg .u32 v; ld.global.u32 v, [variable]; st.global.u32 [variable], v; ret; }\n";
static const char *const kernels[] = {"none", "shared", "bounded", "exact", "params", "clustered", "local"};

static int load(const char *text) {
  CUmodule m = NULL;
  int code = cuModuleLoadData(&m, text);
  if (m) cuModuleUnload(m);
  return code;
}
static const char *ptx(const char *head, const char *body) {
  static char text[4096];
  snprintf(text, sizeof text, "%s%s", head, body);
  return text;
}

static void texts(void) {
  alarm(15);
  static const char *const versions[] = {"1.0", "2.0", "3.0", "4.2", "5.0", "6.0",  "7.0", "8.0",
                                         "8.5", "8.8", "9.0", "9.1", "9.9", "10.0", "0.0"};
  for (int i = 0; i < 15; i++)
    ASK(W("version %s", versions[i]),
        load(ptx(W(".version %s\n.target sm_50\n.address_size 64\n", versions[i]), ".visible .entry e() { ret; }")));
  static const char *const targets[] = {"sm_10",   "sm_20",  "sm_30",  "sm_35",      "sm_50", "sm_60",  "sm_70",
                                        "sm_75",   "sm_80",  "sm_86",  "sm_89",      "sm_90", "sm_90a", "sm_100",
                                        "sm_100a", "sm_120", "sm_999", "compute_90", "x"};
  for (int i = 0; i < 19; i++)
    ASK(W("target %s", targets[i]),
        load(ptx(W(".version 8.0\n.target %s\n.address_size 64\n", targets[i]), ".visible .entry e() { ret; }")));
  for (int i = 0; i < 19; i++)
    ASK(W("newer target %s", targets[i]),
        load(ptx(W(".version 9.0\n.target %s\n.address_size 64\n", targets[i]), ".visible .entry e() { ret; }")));
  static const char head[] = ".version 8.0\n.target sm_90\n.address_size 64\n";
  ASK("nothing in it", load(head));
  ASK("empty text", load(""));
  ASK("a word", load("hello"));
  ASK("a space", load(" "));
  ASK("a comment before", load("// x\n.version 8.0\n.target sm_90\n.address_size 64\n.visible .entry e() { ret; }"));
  ASK("32 bits", load(".version 8.0\n.target sm_90\n.address_size 32\n.visible .entry e() { ret; }"));
  ASK("no size", load(".version 8.0\n.target sm_90\n.visible .entry e() { ret; }"));
  ASK("no version", load(".target sm_90\n.address_size 64\n.visible .entry e() { ret; }"));
  ASK("no target", load(".version 8.0\n.address_size 64\n.visible .entry e() { ret; }"));
  ASK("no ret", load(ptx(head, ".visible .entry e() { }")));
  ASK("no brace", load(ptx(head, ".visible .entry e() { ret;")));
  ASK("an unknown instruction", load(ptx(head, ".visible .entry e() { frob; ret; }")));
  ASK("an unknown register", load(ptx(head, ".visible .entry e() { mov.u32 r, 1; ret; }")));
  ASK("a kernel twice", load(ptx(head, ".visible .entry e() { ret; } .visible .entry e() { ret; }")));
  ASK("an unresolved variable", load(EXTERN));
  ASK("an unresolved function", load(ptx(head, ".extern .func f(); .visible .entry e() { call f; ret; }")));
  ASK("too much shared memory",
      load(ptx(
          head,
          ".visible .entry e() { .shared .b8 s[60000]; .reg .u32 v; ld.shared.u32 v, [s]; st.shared.u32 [s+4], v; ret; }")));
  ASK("too many constants", load(ptx(head, ".visible .const .b8 c[70000]; .visible .entry e() { ret; }")));
  ASK("all of them", load(MORE));
  ASK("an ELF's start only", load("\x7f"
                                  "ELF"));
  CUmodule m = NULL;
  ASK("a file that is not there", cuModuleLoad(&m, "/nonexistent"));
  ASK("an empty file", cuModuleLoad(&m, "/dev/null"));
  ASK("a folder", cuModuleLoad(&m, "/tmp"));
  static const unsigned char fat[64] = {0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0};
  ASK("an empty fat binary", cuModuleLoadFatBinary(&m, fat));
  ASK("text as a fat binary", cuModuleLoadFatBinary(&m, MORE));
  DO(cuCtxSetCurrent(NULL));
  ASK("none current", load(MORE));
}

static void functions(void) {
  alarm(10);
  CUmodule m = NULL, of = NULL;
  CUfunction f = NULL, all[9] = {NULL};
  unsigned n = 0;
  DO(cuModuleLoadData(&m, MORE));
  ASK("count", cuModuleGetFunctionCount(&n, m), "%u", n);
  ASK("all", cuModuleEnumerateFunctions(all, 9, m), "%d %d", all[6] != NULL, all[7] != NULL);
  ASK("two", cuModuleEnumerateFunctions(all, 2, m));
  ASK("helper", cuModuleGetFunction(&f, m, "helper"));
  ASK("nothing", cuModuleGetFunction(&f, m, ""));
  ASK("unknown", cuModuleGetFunction(&f, m, "unknown"));
  ASK("a variable as a function", cuModuleGetFunction(&f, m, "wide"));
  for (int k = 0; k < 7; k++) {
    ASK(W("%s", kernels[k]), cuModuleGetFunction(&f, m, kernels[k]));
    CUfunction again = NULL;
    ASK(W("%s again", kernels[k]), cuModuleGetFunction(&again, m, kernels[k]), "%d", f == again);
    CUfunctionLoadingState st = 99;
    ASK(W("%s loaded", kernels[k]), cuFuncIsLoaded(&st, f), "%d", st);
    ASK(W("%s load", kernels[k]), cuFuncLoad(f));
    ASK(W("%s loaded then", kernels[k]), cuFuncIsLoaded(&st, f), "%d", st);
    ASK(W("%s module", kernels[k]), cuFuncGetModule(&of, f), "%d", of == m);
    const char *name = NULL;
    ASK(W("%s name", kernels[k]), cuFuncGetName(&name, f), "%s", name ? name : "none");
    for (int a = -1; a <= 16; a++) {
      int v = -77;
      if (a == CU_FUNC_ATTRIBUTE_NUM_REGS) {
        ASK(W("%s registers", kernels[k]), cuFuncGetAttribute(&v, a, f), "%d", v > 0);
        continue;
      }
      ASK(W("%s attribute %d", kernels[k], a), cuFuncGetAttribute(&v, a, f), "%d", v);
    }
    for (size_t i = 0; i <= 5; i++) {
      size_t offset = 77, size = 77;
      if (i < 2 || k == 4)
        ASK(W("%s parameter %zu", kernels[k], i), cuFuncGetParamInfo(f, i, &offset, &size), "%zu %zu", offset, size);
    }
    int blocks = -1;
    ASK(W("%s blocks of 64", kernels[k]), cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, 64, 0), "%d", blocks);
    ASK(W("%s blocks of 1024", kernels[k]), cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, 1024, 0), "%d",
        blocks);
  }
  DO(cuModuleGetFunction(&f, m, "none"));
  for (int a = -1; a <= 16; a++) {
    static const int to[] = {-2, -1, 0, 1, 100, 101, 49152, 232448, 232449};
    for (int i = 0; i < 9; i++) {
      if (a < 8 && i != 3) continue;
      int v = -77;
      int code = cuFuncSetAttribute(f, a, to[i]);
      cuFuncGetAttribute(&v, a < 0 || a > 15 ? 0 : a, f);
      if (a == CU_FUNC_ATTRIBUTE_NUM_REGS) v = 0;
      ASK(W("set attribute %d to %d", a, to[i]), code, "%d", v);
    }
  }
  for (int c = -1; c <= 4; c++) ASK(W("cache %d", c), cuFuncSetCacheConfig(f, c));
  for (int b = -1; b <= 1025; b = b < 1 ? b + 1 : b == 1 ? 32 : b * 2 + (b == 1024 ? -1023 : 0)) {
    int v = -1;
    ASK(W("occupancy of %d", b), cuOccupancyMaxActiveBlocksPerMultiprocessor(&v, f, b, 0), "%d", v);
    if (b == 1024) break;
  }
  int grid = 0, block = 0;
  for (int limit = -1; limit <= 2048; limit = limit < 1 ? limit + 1 : limit * 4)
    ASK(W("best size, limit %d", limit), cuOccupancyMaxPotentialBlockSize(&grid, &block, f, NULL, 0, limit), "%d %d",
        grid, block);
  size_t dynamic = 0;
  ASK("shared memory of 1 block", cuOccupancyAvailableDynamicSMemPerBlock(&dynamic, f, 1, 32), "%zu", dynamic);
  ASK("shared memory of 0 blocks", cuOccupancyAvailableDynamicSMemPerBlock(&dynamic, f, 0, 32));
  ASK("shared memory of 99 blocks", cuOccupancyAvailableDynamicSMemPerBlock(&dynamic, f, 99, 32), "%zu", dynamic);
}

static void globals(void) {
  alarm(10);
  CUmodule m = NULL, o = NULL;
  CUlibrary l = NULL;
  DO(cuModuleLoadData(&m, MORE));
  DO(cuModuleLoadData(&o, MORE));
  DO(cuLibraryLoadData(&l, MORE, NULL, NULL, 0, NULL, NULL, 0));
  static const char *const names[] = {"wide", "many", "three", "hidden", "managed", "none", "unknown", "", "Wide"};
  for (int i = 0; i < 9; i++) {
    CUdeviceptr a = 0, b = 0, c = 0, d = 0;
    size_t size = 77;
    unsigned v = 0, is = 77, type = 77;
    ASK(W("module's %s", names[i]), cuModuleGetGlobal(&a, &size, m, names[i]), "%d %zu", a != 0, size);
    ASK(W("other module's %s", names[i]), cuModuleGetGlobal(&b, NULL, o, names[i]), "%d", a == b);
    size = 77;
    ASK(W("library's %s", names[i]), cuLibraryGetGlobal(&c, &size, l, names[i]), "%d %zu", c == a, size);
    size = 77;
    ASK(W("library's managed %s", names[i]), cuLibraryGetManaged(&d, &size, l, names[i]), "%d %zu", d != 0, size);
    if (!a) continue;
    ASK(W("value of %s", names[i]), cuMemcpyDtoH(&v, a, 4), "%u", v);
    ASK(W("memory of %s", names[i]), cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, a), "%u", type);
    is = 0;
    ASK(W("managed or not, %s", names[i]), cuPointerGetAttribute(&is, CU_POINTER_ATTRIBUTE_IS_MANAGED, a), "%u", is);
    ASK(W("write %s", names[i]), cuMemsetD8(a, 1, 4));
    ASK(W("free %s", names[i]), cuMemFree(a));
  }
  void *p = NULL;
  ASK("unified function", cuLibraryGetUnifiedFunction(&p, l, "helper"));
  ASK("only the size", cuModuleGetGlobal(NULL, &(size_t){0}, m, "wide"));
  ASK("only the address", cuModuleGetGlobal(&(CUdeviceptr){0}, NULL, m, "wide"));
  ASK("unload", cuModuleUnload(m));
  CUmoduleLoadingMode mode = 77;
  ASK("loading mode", cuModuleGetLoadingMode(&mode), "%d", mode);
}

static void libraries(void) {
  alarm(10);
  CUlibrary l = NULL, of = NULL, two = NULL;
  CUkernel k = NULL, all[9] = {NULL};
  CUfunction f = NULL, g = NULL;
  CUmodule m = NULL, n = NULL;
  unsigned count = 0;
  ASK("load", cuLibraryLoadData(&l, MORE, NULL, NULL, 0, NULL, NULL, 0));
  ASK("load again", cuLibraryLoadData(&two, MORE, NULL, NULL, 0, NULL, NULL, 0), "%d", l != two);
  ASK("count", cuLibraryGetKernelCount(&count, l), "%u", count);
  ASK("all", cuLibraryEnumerateKernels(all, 9, l), "%d %d", all[6] != NULL, all[7] != NULL);
  ASK("unknown", cuLibraryGetKernel(&k, l, "unknown"));
  ASK("module", cuLibraryGetModule(&m, l));
  ASK("module again", cuLibraryGetModule(&n, l), "%d", m == n);
  for (int i = 0; i < 7; i++) {
    const char *name = NULL;
    ASK(W("%s", kernels[i]), cuLibraryGetKernel(&k, l, kernels[i]));
    ASK(W("%s name", kernels[i]), cuKernelGetName(&name, k), "%s", name ? name : "none");
    ASK(W("%s library", kernels[i]), cuKernelGetLibrary(&of, k), "%d", of == l);
    ASK(W("%s function", kernels[i]), cuKernelGetFunction(&f, k));
    ASK(W("%s function from the module", kernels[i]), cuModuleGetFunction(&g, m, kernels[i]), "%d", f == g);
    ASK(W("%s function's module", kernels[i]), cuFuncGetModule(&n, f), "%d", n == m);
    int v = -77;
    ASK(W("%s kernel as a function", kernels[i]), cuFuncGetAttribute(&v, 0, (CUfunction)k), "%d", v);
    for (int a = 0; a <= 15; a += 3) {
      v = -77;
      ASK(W("%s attribute %d", kernels[i], a), cuKernelGetAttribute(&v, a, k, 0), "%d", v);
    }
    ASK(W("%s of device 1", kernels[i]), cuKernelGetAttribute(&v, 0, k, 1));
    ASK(W("%s set", kernels[i]), cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 4096, k, 0));
    ASK(W("%s function's then", kernels[i]), cuFuncGetAttribute(&v, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, f),
        "%d", v);
    size_t offset = 77, size = 77;
    ASK(W("%s parameter 0", kernels[i]), cuKernelGetParamInfo(k, 0, &offset, &size), "%zu %zu", offset, size);
  }
  ASK("unload its module", cuModuleUnload(m));
  ASK("a kernel after that", cuLibraryGetKernel(&k, l, "none"));
  CUlibraryOption options[] = {CU_LIBRARY_BINARY_IS_PRESERVED, 77};
  void *values[] = {(void *)1, NULL};
  ASK("preserved", cuLibraryLoadData(&two, MORE, NULL, NULL, 0, options, values, 1));
  ASK("an unknown option", cuLibraryLoadData(&two, MORE, NULL, NULL, 0, options + 1, values, 1));
  ASK("preserved from a file", cuLibraryLoadFromFile(&two, "/dev/null", NULL, NULL, 0, options, values, 1));
  ASK("no file", cuLibraryLoadFromFile(&two, "/nonexistent", NULL, NULL, 0, NULL, NULL, 0));
  ASK("bad text", cuLibraryLoadData(&two, "hello", NULL, NULL, 0, NULL, NULL, 0));
  DO(cuCtxSetCurrent(NULL));
  ASK("load, none current", cuLibraryLoadData(&two, MORE, NULL, NULL, 0, NULL, NULL, 0));
  ASK("kernel, none current", cuLibraryGetKernel(&k, two, "none"));
  ASK("function, none current", cuKernelGetFunction(&f, k));
  ASK("module, none current", cuLibraryGetModule(&m, two));
  ASK("attribute, none current", cuKernelGetAttribute(&(int){0}, 0, k, 0));
  ASK("unload", cuLibraryUnload(two));
}

static void linking(void) {
  alarm(10);
  CUlinkState s = NULL;
  void *cubin = NULL;
  size_t size = 0;
  CUmodule m = NULL;
  CUfunction f = NULL;
  for (int t = -1; t <= 7; t++) {
    DO(cuLinkCreate(0, NULL, NULL, &s));
    int code = cuLinkAddData(s, t, (void *)PTX, sizeof PTX, "first", 0, NULL, NULL);
    ASK(W("add text as type %d", t), code);
    ASK(W("complete with type %d", t), cuLinkComplete(s, &cubin, &size), "%d", size > 0 && cubin != NULL);
    cuLinkDestroy(s), size = 0, cubin = NULL;
  }
  DO(cuLinkCreate(0, NULL, NULL, &s));
  ASK("complete nothing", cuLinkComplete(s, &cubin, &size));
  DO(cuLinkDestroy(s));
  DO(cuLinkCreate(0, NULL, NULL, &s));
  ASK("add one that refers",
      cuLinkAddData(s, CU_JIT_INPUT_PTX, (void *)EXTERN, sizeof EXTERN, "second", 0, NULL, NULL));
  ASK("complete unresolved", cuLinkComplete(s, &cubin, &size));
  DO(cuLinkDestroy(s));
  DO(cuLinkCreate(0, NULL, NULL, &s));
  ASK("add two: first", cuLinkAddData(s, CU_JIT_INPUT_PTX, (void *)PTX, sizeof PTX, "first", 0, NULL, NULL));
  ASK("add two: second", cuLinkAddData(s, CU_JIT_INPUT_PTX, (void *)EXTERN, sizeof EXTERN, NULL, 0, NULL, NULL));
  ASK("complete two", cuLinkComplete(s, &cubin, &size), "%d", size > 0);
  ASK("complete again", cuLinkComplete(s, &cubin, &size));
  ASK("add after completion", cuLinkAddData(s, CU_JIT_INPUT_PTX, (void *)PTX, sizeof PTX, "late", 0, NULL, NULL));
  ASK("load it", cuModuleLoadData(&m, cubin));
  ASK("its kernel", cuModuleGetFunction(&f, m, "reads"));
  ASK("the other's kernel", cuModuleGetFunction(&f, m, "empty"));
  DO(cuLinkDestroy(s));
  ASK("kernel after destroy", cuModuleGetFunction(&f, m, "two"));
  DO(cuLinkCreate(0, NULL, NULL, &s));
  ASK("the same twice: first", cuLinkAddData(s, CU_JIT_INPUT_PTX, (void *)PTX, sizeof PTX, "a", 0, NULL, NULL));
  ASK("the same twice: second", cuLinkAddData(s, CU_JIT_INPUT_PTX, (void *)PTX, sizeof PTX, "b", 0, NULL, NULL));
  ASK("complete the same twice", cuLinkComplete(s, &cubin, &size));
  DO(cuLinkDestroy(s));
  DO(cuLinkCreate(0, NULL, NULL, &s));
  ASK("bad text", cuLinkAddData(s, CU_JIT_INPUT_PTX, "hello", 6, "bad", 0, NULL, NULL));
  ASK("size 0", cuLinkAddData(s, CU_JIT_INPUT_PTX, (void *)PTX, 0, "none", 0, NULL, NULL));
  ASK("too short", cuLinkAddData(s, CU_JIT_INPUT_PTX, (void *)PTX, 100, "short", 0, NULL, NULL));
  ASK("without its end", cuLinkAddData(s, CU_JIT_INPUT_PTX, (void *)PTX, sizeof PTX - 1, "end", 0, NULL, NULL));
  ASK("no file", cuLinkAddFile(s, CU_JIT_INPUT_PTX, "/nonexistent", 0, NULL, NULL));
  ASK("empty file", cuLinkAddFile(s, CU_JIT_INPUT_PTX, "/dev/null", 0, NULL, NULL));
  RISK("data NULL", cuLinkAddData(s, CU_JIT_INPUT_PTX, NULL, 10, "x", 0, NULL, NULL));
  RISK("complete into NULL", cuLinkComplete(s, NULL, NULL));
  for (int o = 0; o <= 35; o++) {
    if (o == 3 || o == 5 || o == 2 || (o >= 17 && o <= 19) || (o >= 25 && o <= 28)) continue;
    CUjit_option option = o;
    void *value = (void *)1;
    CUmodule n = NULL;
    ASK(W("option %d of a module", o), cuModuleLoadDataEx(&n, PTX, 1, &option, &value));
    value = (void *)1;
    CUlinkState t = NULL;
    ASK(W("option %d of a link", o), cuLinkCreate(1, &option, &value, &t));
  }
  static char info[4096], error[4096];
  CUjit_option log[] = {CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, CU_JIT_ERROR_LOG_BUFFER,
                        CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, CU_JIT_WALL_TIME};
  void *values[] = {info, (void *)sizeof info, error, (void *)sizeof error, NULL};
  ASK("logs of a failure",
      cuModuleLoadDataEx(&m, ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry e() { frob; }", 5, log,
                         values),
      "%d %d", error[0] != 0, (size_t)values[3] == strlen(error));
  error[0] = 0, values[1] = values[3] = (void *)sizeof info;
  ASK("logs of a success", cuModuleLoadDataEx(&m, PTX, 5, log, values), "%d", error[0]);
  values[3] = (void *)5;
  ASK("a small buffer",
      cuModuleLoadDataEx(&m, ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry e() { frob; }", 4, log,
                         values),
      "%zu", strnlen(error, 5));
}

static void addresses(void) {
  alarm(10);
  static const char *const names[] = {"cuInit",
                                      "cuMemAlloc",
                                      "cuMemAlloc_v2",
                                      "cuMemAlloc_v1",
                                      "cuCtxCreate",
                                      "cuCtxCreate_v2",
                                      "cuCtxCreate_v4",
                                      "cuStreamBeginCapture",
                                      "cuMemcpyHtoD",
                                      "cuMemcpyHtoDAsync",
                                      "cuGraphAddKernelNode",
                                      "cuGraphExecUpdate",
                                      "cuGraphInstantiate",
                                      "cuGraphInstantiateWithFlags",
                                      "cuGetProcAddress",
                                      "cuGetProcAddress_v2",
                                      "cuEventElapsedTime",
                                      "cuStreamGetCaptureInfo",
                                      "cuMemAdvise",
                                      "cuMemPrefetchAsync",
                                      "cuTensorMapEncodeTiled",
                                      "cuTensorMapEncodeIm2colWide",
                                      "cuGreenCtxCreate",
                                      "cuLogsCurrent",
                                      "cuMemcpyBatchAsync",
                                      "cuDevicePrimaryCtxRelease",
                                      "cuStreamSynchronize",
                                      "cuStreamSynchronize_ptsz",
                                      "cuCheckpointProcessLock",
                                      "cuTexRefCreate",
                                      "cuLaunch",
                                      "cuunknown",
                                      "",
                                      "malloc",
                                      "cuinit",
                                      "cudaMalloc"};
  static const int versions[] = {-1,    0,     1000,  2000,  3020,  4000,  5000,  6050,  7000,  8000,  9000,
                                 10000, 11000, 11030, 12000, 12030, 12050, 12080, 12090, 13000, 13010, 99000};
  for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
    void *before = NULL;
    char line[160] = "";
    int at = 0;
    for (unsigned v = 0; v < sizeof versions / sizeof *versions;
         v++) { /* one line for all: code, status, whether it is another than before */
      void *p = (void *)77;
      CUdriverProcAddressQueryResult r = 77;
      int code = cuGetProcAddress(names[i], &p, versions[v], 0, &r);
      if (at < 150)
        at += snprintf(line + at, sizeof line - at, "%d%d%c ", code > 9 ? code / 100 : code, r % 10,
                       p == NULL         ? '0'
                       : p == (void *)77 ? '7'
                       : p == before     ? '='
                                         : '+');
      before = p;
    }
    ASK(W("%s", names[i]), 0, "%s", line);
    void *plain = NULL;
    cuGetProcAddress(names[i], &plain, 13000, 0, NULL);
    for (unsigned long long f = 1; f <= 4; f++) {
      void *p = NULL;
      CUdriverProcAddressQueryResult r = 77;
      ASK(W("%s flags %llu", names[i], f), cuGetProcAddress(names[i], &p, 13000, f, &r), "%d %d %d", r, p != NULL,
          p == plain);
    }
  }
  void *p = NULL;
  ASK("no status", cuGetProcAddress("cuInit", &p, 13000, 0, NULL), "%d", p == (void *)cuInit);
  ASK("its own", cuGetProcAddress("cuMemAlloc", &p, 13000, 0, NULL), "%d", p == (void *)cuMemAlloc);
  RISK("no name", cuGetProcAddress(NULL, &p, 13000, 0, NULL));
  RISK("no place", cuGetProcAddress("cuInit", NULL, 13000, 0, NULL));
  int version = 0;
  ASK("driver at least 13000", cuDriverGetVersion(&version), "%d", version >= 13000);
}

static void loading(const char *value) {
  alarm(10);
  if (value) setenv("CUDA_MODULE_LOADING", value, 1);
  else unsetenv("CUDA_MODULE_LOADING");
  CUmoduleLoadingMode mode = 77;
  ASK("mode before cuInit", cuModuleGetLoadingMode(&mode), "%d", mode);
  begin();
  ASK("mode", cuModuleGetLoadingMode(&mode), "%d", mode);
  CUmodule m = NULL;
  CUlibrary l = NULL;
  CUfunction f = NULL, g = NULL;
  CUkernel k = NULL;
  CUfunctionLoadingState st = 77;
  int v = 0;
  unsigned n = 0;
  DO(cuModuleLoadData(&m, PTX));
  ASK("count", cuModuleGetFunctionCount(&n, m), "%u", n);
  CUfunction all[2] = {NULL, NULL};
  ASK("all", cuModuleEnumerateFunctions(all, 2, m), "%d", all[1] != NULL);
  for (int i = 0; i < 2 && all[i]; i++) ASK(W("state of %d, listed", i), cuFuncIsLoaded(&st, all[i]), "%d", st);
  DO(cuModuleGetFunction(&f, m, "empty"));
  DO(cuModuleGetFunction(&g, m, "two"));
  ASK("state of a function found", cuFuncIsLoaded(&st, f), "%d", st);
  ASK("attribute", cuFuncGetAttribute(&v, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, f), "%d", v);
  ASK("state after the attribute", cuFuncIsLoaded(&st, f), "%d", st);
  ASK("load", cuFuncLoad(g));
  ASK("state after the load", cuFuncIsLoaded(&st, g), "%d", st);
  ASK("load again", cuFuncLoad(g));
  DO(cuLibraryLoadData(&l, PTX, NULL, NULL, 0, NULL, NULL, 0));
  DO(cuLibraryGetKernel(&k, l, "two"));
  ASK("kernel's attribute", cuKernelGetAttribute(&v, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, k, 0), "%d", v);
  ASK("kernel's function", cuKernelGetFunction(&f, k));
  ASK("its state", cuFuncIsLoaded(&st, f), "%d", st);
  ASK("state of the kernel itself", cuFuncIsLoaded(&st, (CUfunction)k), "%d", st);
  ASK("load the kernel itself", cuFuncLoad((CUfunction)k));
  ASK("its state then", cuFuncIsLoaded(&st, f), "%d", st);
}
static void loading_default(void) { loading(NULL); }
static void loading_eager(void) { loading("EAGER"); }
static void loading_lazy(void) { loading("LAZY"); }
static void loading_unknown(void) { loading("unknown"); }

CASES RUN(texts) RUN(functions) RUN(globals) RUN(libraries) RUN(linking) RUN(addresses) RUN_COLD(loading_default)
    RUN_COLD(loading_eager) RUN_COLD(loading_lazy) RUN_COLD(loading_unknown) END
