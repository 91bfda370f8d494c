/* The linker of the driver: its calls in and out of order, options, kinds of input. */
#include "ask.h"

static const char HALF[] =
    ".version 8.0\n.target sm_90\n.address_size 64\n.extern .func other();\n.visible .entry k() { call other; ret; }\n";
static const char REST[] = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .func other() { ret; }\n";

static CUresult add(CUlinkState l, int kind, const char *text, size_t size) {
  return cuLinkAddData(l, kind, (void *)text, size, "input", 0, NULL, NULL);
}

static void order(void) {
  CUlinkState l = NULL;
  void *image = NULL;
  size_t size = 77;
  ASK("create", cuLinkCreate(0, NULL, NULL, &l), "%d", l != NULL);
  ASK("complete without input", cuLinkComplete(l, &image, &size), "%d %d", image != NULL, size > 0);
  ASK("add after complete", add(l, CU_JIT_INPUT_PTX, PTX, sizeof PTX));
  ASK("complete again", cuLinkComplete(l, &image, &size));
  ASK("destroy", cuLinkDestroy(l));
  DO(cuLinkCreate(0, NULL, NULL, &l));
  ASK("half", add(l, CU_JIT_INPUT_PTX, HALF, sizeof HALF));
  ASK("complete half", cuLinkComplete(l, &image, &size));
  ASK("add the rest after that", add(l, CU_JIT_INPUT_PTX, REST, sizeof REST));
  DO(cuLinkDestroy(l));
  DO(cuLinkCreate(0, NULL, NULL, &l));
  ASK("the half", add(l, CU_JIT_INPUT_PTX, HALF, sizeof HALF));
  ASK("the rest", add(l, CU_JIT_INPUT_PTX, REST, sizeof REST));
  image = NULL;
  ASK("complete both", cuLinkComplete(l, &image, &size), "%d", image != NULL);
  CUmodule m = NULL;
  ASK("load what was linked", cuModuleLoadData(&m, image));
  CUfunction f;
  ASK("its kernel", cuModuleGetFunction(&f, m, "k"));
  ASK("its device function", cuModuleGetFunction(&f, m, "other"));
  unsigned count = 77;
  ASK("its functions", cuModuleGetFunctionCount(&count, m), "%u", count);
  ASK("destroy after the load", cuLinkDestroy(l));
  ASK("the kernel after that", cuModuleGetFunction(&f, m, "k"));
  ASK("unload", cuModuleUnload(m));
  DO(cuLinkCreate(0, NULL, NULL, &l));
  ASK("twice the same", (add(l, CU_JIT_INPUT_PTX, REST, sizeof REST), add(l, CU_JIT_INPUT_PTX, REST, sizeof REST)));
  ASK("complete twice the same", cuLinkComplete(l, &image, &size));
  RISK("complete into NULL", cuLinkComplete(l, NULL, &size));
  RISK("complete without a size", cuLinkComplete(l, &image, NULL));
  RISK("complete NULL", cuLinkComplete(NULL, &image, &size));
  RISK("destroy NULL", cuLinkDestroy(NULL));
  RISK("create into NULL", cuLinkCreate(0, NULL, NULL, NULL));
  RISK("add to NULL", add(NULL, CU_JIT_INPUT_PTX, PTX, sizeof PTX));
  RISK("options NULL", cuLinkCreate(1, NULL, NULL, &l));
}

static void inputs(void) {
  CUlinkState l = NULL;
  for (int kind = -1; kind <= 7; kind++) {
    DO(cuLinkCreate(0, NULL, NULL, &l));
    ASK(W("PTX as kind %d", kind), add(l, kind, PTX, sizeof PTX));
    ASK(W("nonsense as kind %d", kind),
        add(l, kind, "nonsense that is long enough to be looked at, as sixty-four bytes are", 64));
    ASK(W("a file that is not there, kind %d", kind), cuLinkAddFile(l, kind, "/nowhere", 0, NULL, NULL));
  }
  DO(cuLinkCreate(0, NULL, NULL, &l));
  ASK("size 0", add(l, CU_JIT_INPUT_PTX, PTX, 0));
  ASK("size 1", add(l, CU_JIT_INPUT_PTX, PTX, 1));
  ASK("without its end", add(l, CU_JIT_INPUT_PTX, REST, sizeof REST - 1));
  ASK("without a name", cuLinkAddData(l, CU_JIT_INPUT_PTX, (void *)REST, sizeof REST, NULL, 0, NULL, NULL));
  RISK("data NULL", add(l, CU_JIT_INPUT_PTX, NULL, 10));
  RISK("path NULL", cuLinkAddFile(l, CU_JIT_INPUT_PTX, NULL, 0, NULL, NULL));
}

static void options(void) {
  struct {
    int option;
    size_t value;
  } all[] = {{0, 32}, {0, 0},  {0, 1000}, {1, 128}, {1, 0},   {7, 0},  {7, 4},  {7, 5},  {8, 0},  {9, 90},
             {9, 80}, {9, 35}, {9, 120},  {9, 99},  {10, 0},  {10, 1}, {10, 2}, {11, 1}, {12, 1}, {13, 1},
             {14, 0}, {14, 1}, {14, 2},   {14, 3},  {17, 0},  {18, 0}, {20, 1}, {21, 1}, {22, 1}, {23, 1},
             {24, 1}, {29, 1}, {30, 1},   {31, 64}, {32, 32}, {33, 1}, {34, 1}, {35, 0}};
  for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
    CUlinkState l = NULL;
    CUjit_option o = all[i].option;
    void *v = (void *)all[i].value;
    int code = cuLinkCreate(1, &o, &v, &l);
    ASK(W("option %d of %zu", all[i].option, all[i].value), code);
    if (!code) {
      void *image = NULL;
      size_t size = 0;
      ASK(W("add with option %d of %zu", all[i].option, all[i].value), add(l, CU_JIT_INPUT_PTX, PTX, sizeof PTX));
      ASK(W("complete with option %d of %zu", all[i].option, all[i].value), cuLinkComplete(l, &image, &size), "%d",
          image != NULL);
      DO(cuLinkDestroy(l));
    }
    CUmodule m;
    ASK(W("load with option %d of %zu", all[i].option, all[i].value), cuModuleLoadDataEx(&m, PTX, 1, &o, &v));
  }
}

static void logs(void) {
  static char info[512], error[512];
  CUjit_option o[] = {CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, CU_JIT_ERROR_LOG_BUFFER,
                      CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void *v[] = {info, (void *)512, error, (void *)512};
  CUmodule m;
  ASK("load with logs", cuModuleLoadDataEx(&m, PTX, 4, o, v), "%d %d", (int)(uintptr_t)v[1], (int)(uintptr_t)v[3]);
  v[1] = v[3] = (void *)512;
  ASK("load an error with logs",
      cuModuleLoadDataEx(&m, ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() { nonsense; }\n", 4, o,
                         v),
      "%d %d %s", (int)(uintptr_t)v[1], (int)(uintptr_t)v[3] == (int)strlen(error),
      strstr(error, "nonsense") ? "named" : "not named");
  v[1] = v[3] = (void *)10;
  ASK("load an error with short logs",
      cuModuleLoadDataEx(&m, ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() { nonsense; }\n", 4, o,
                         v),
      "%d %d %zu", (int)(uintptr_t)v[1], (int)(uintptr_t)v[3], strlen(error));
}

CASES RUN(order) RUN(inputs) RUN(options) RUN(logs) END
