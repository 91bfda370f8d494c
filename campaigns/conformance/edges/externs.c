/* Variables and functions that a module leaves to others, and which version of PTX has which target. */
#include "ask.h"

#define HEAD ".version 8.0\n.target sm_80\n.address_size 64\n"
static const char *const texts[] = {
    HEAD ".extern .global .u32 v;\n.visible .entry k() { ret; }\n",
    HEAD
    ".extern .global .u32 v;\n.visible .entry k() { .reg .u32 r; ld.global.u32 r, [v]; st.global.u32 [v], r; ret; }\n",
    HEAD
    ".extern .const .u32 v;\n.visible .entry k() { .reg .u32 r; .reg .u64 p; ld.const.u32 r, [v]; mov.u64 p, 0; st.global.u32 [p], r; ret; }\n",
    HEAD
    ".extern .shared .align 4 .b8 v[];\n.visible .entry k() { .reg .u32 r; ld.shared.u32 r, [v]; st.shared.u32 [v], r; ret; }\n",
    HEAD
    ".extern .global .align 4 .b8 v[];\n.visible .entry k() { .reg .u32 r; ld.global.u32 r, [v]; st.global.u32 [v+4], r; ret; }\n",
    HEAD
    ".extern .global .align 4 .b8 v[64];\n.visible .entry k() { .reg .u32 r; ld.global.u32 r, [v]; st.global.u32 [v+4], r; ret; }\n",
    HEAD ".extern .global .u32 v;\n.visible .global .u64 w = v;\n.visible .entry k() { ret; }\n",
    HEAD ".extern .func f;\n.visible .entry k() { ret; }\n",
    HEAD ".extern .func f();\n.visible .entry k() { ret; }\n",
    HEAD ".extern .func f();\n.visible .entry k() { call f; ret; }\n",
    HEAD ".weak .func f();\n.visible .entry k() { call f; ret; }\n",
    HEAD
    ".extern .global .u32 v;\n.extern .func f();\n.visible .entry k() { .reg .u32 r; ld.global.u32 r, [v]; st.global.u32 [v], r; call f; ret; }\n",
    HEAD
    ".extern .global .u32 v;\n.visible .entry k() { ret; }\n.visible .entry l() { .reg .u32 r; ld.global.u32 r, [v]; st.global.u32 [v], r; ret; }\n",
    HEAD
    ".extern .global .u32 v;\n.global .u32 v = 3;\n.visible .entry k() { .reg .u32 r; ld.global.u32 r, [v]; st.global.u32 [v], r; ret; }\n",
    HEAD
    ".common .global .u32 v;\n.visible .entry k() { .reg .u32 r; ld.global.u32 r, [v]; st.global.u32 [v], r; ret; }\n",
    HEAD
    ".weak .global .u32 v;\n.visible .entry k() { .reg .u32 r; ld.global.u32 r, [v]; st.global.u32 [v], r; ret; }\n",
    HEAD ".extern .global .texref v;\n.visible .entry k() { ret; }\n",
};
enum { TEXTS = sizeof texts / sizeof *texts };
static const char DEFINES[] = HEAD ".visible .global .u32 v = 5;\n.visible .func f() { ret; }\n";

static void all(void) {
  for (int i = 0; i < TEXTS; i++) {
    CUmodule m = NULL;
    CUlibrary l = NULL;
    CUfunction f = NULL;
    CUkernel k = NULL;
    CUdeviceptr p = 0;
    size_t z = 7;
    int loaded = -1;
    unsigned n = 77;
    ASK(W("%d module", i), cuModuleLoadData(&m, texts[i]), "%d", m != NULL);
    if (m) {
      ASK(W("%d variable", i), cuModuleGetGlobal(&p, &z, m, "v"), "%d %zu", p != 0, z);
      ASK(W("%d functions", i), cuModuleGetFunctionCount(&n, m), "%u", n);
      ASK(W("%d function", i), cuModuleGetFunction(&f, m, "k"), "%d", f != NULL);
      if (f) {
        ASK(W("%d loaded", i), cuFuncIsLoaded((CUfunctionLoadingState *)&loaded, f), "%d", loaded);
        ASK(W("%d attribute", i), cuFuncGetAttribute(&loaded, 4, f));
        ASK(W("%d load function", i), cuFuncLoad(f));
      }
    }
    CUlinkState s = NULL;
    void *cubin = NULL;
    DO(cuLinkCreate(0, NULL, NULL, &s));
    if (s) {
      ASK(W("%d add", i),
          cuLinkAddData(s, CU_JIT_INPUT_PTX, (void *)texts[i], strlen(texts[i]) + 1, "x", 0, NULL, NULL));
      ASK(W("%d complete", i), cuLinkComplete(s, &cubin, &z), "%d", cubin != NULL);
      cuLinkDestroy(s);
    }
    s = NULL, cubin = NULL;
    DO(cuLinkCreate(0, NULL, NULL, &s));
    if (s) {
      cuLinkAddData(s, CU_JIT_INPUT_PTX, (void *)texts[i], strlen(texts[i]) + 1, "x", 0, NULL, NULL);
      ASK(W("%d add what defines", i),
          cuLinkAddData(s, CU_JIT_INPUT_PTX, (void *)DEFINES, sizeof DEFINES, "y", 0, NULL, NULL));
      ASK(W("%d complete with it", i), cuLinkComplete(s, &cubin, &z), "%d", cubin != NULL);
      m = NULL;
      if (cubin) ASK(W("%d module of that", i), cuModuleLoadData(&m, cubin));
      cuLinkDestroy(s);
    }
    ASK(W("%d library", i), cuLibraryLoadData(&l, texts[i], NULL, NULL, 0, NULL, NULL, 0), "%d", l != NULL);
    if (l) {
      ASK(W("%d kernel", i), cuLibraryGetKernel(&k, l, "k"));
      ASK(W("%d library's variable", i), cuLibraryGetGlobal(&p, &z, l, "v"));
      ASK(W("%d library's module", i), cuLibraryGetModule(&m, l));
    }
  }
}
static void lazily(void) { all(); }
static void eagerly(void) {
  setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  begin();
  all();
}
static void versions(void) {
  static const char *const v[] = {"0.9",  "1.0", "1.1",  "1.3",  "1.4", "1.5", "2.0",  "2.1", "2.3",
                                  "3.0",  "3.1", "3.2",  "4.0",  "4.1", "4.3", "5.0",  "6.0", "6.3",
                                  "6.5",  "7.0", "7.8",  "8.0",  "8.5", "8.8", "8.9",  "9.0", "9.1",
                                  "10.0", "8",   "8.10", "99.0", "x",   "",    "8.0.1"};
  static const char *const t[] = {
      "sm_10", "sm_13", "sm_20",  "sm_30",  "sm_35",      "sm_50", "sm_60",        "sm_70",
      "sm_80", "sm_90", "sm_90a", "sm_100", "compute_80", "sm_8",  "sm_80, debug", "texmode_independent"};
  static char text[512];
  for (size_t i = 0; i < sizeof v / sizeof *v; i++)
    for (int size = 0; size < 3; size++)
      for (int j = 0; j < 16; j++) {
        if (size && j % 4) continue;
        CUmodule m = NULL;
        snprintf(text, sizeof text, ".version %s\n.target %s\n%s.entry k() { ret; }\n", v[i], t[j],
                 size == 0   ? ""
                 : size == 1 ? ".address_size 64\n"
                             : ".address_size 32\n");
        ASK(W("%s of %s, size %d", v[i], t[j], size), cuModuleLoadData(&m, text));
        if (m) cuModuleUnload(m);
      }
}

CASES RUN(lazily) RUN(versions) RUN_COLD(eagerly) END
