/* Two devices: libraries with managed and plain variables, kernels with contexts of both, unloads while both live. */
#include "two.h"

static const char IMAGE[] =
    ".version 8.0\n.target sm_80\n.address_size 64\n"
    ".visible .global .attribute(.managed) .align 4 .u32 shared_by_all = 9;\n.visible .global .align 8 .b8 wide[64];\n"
    ".visible .entry k(){ret;}\n.visible .entry l(.param .u32 a, .param .u64 b){ret;}\n";
static CUlibrary lib;
static CUkernel k, l;

static void make(void) {
  both();
  DO(cuLibraryLoadData(&lib, IMAGE, NULL, NULL, 0, NULL, NULL, 0));
  DO(cuLibraryGetKernel(&k, lib, "k"));
  DO(cuLibraryGetKernel(&l, lib, "l"));
}
static int go(void *f, CUstream s) { return cuLaunchKernel((CUfunction)f, 1, 1, 1, 1, 1, 1, 0, s, NULL, NULL); }

static void managed(void) {
  make();
  CUdeviceptr p[3] = {0}, q = 0;
  size_t size = 77;
  for (int now = -1; now < 2; now++) {
    on(now);
    size = 77;
    ASK(W("managed, %d current", now), cuLibraryGetManaged(&p[now + 1], &size, lib, "shared_by_all"), "%zu %d", size,
        p[now + 1] == p[0]);
    ASK(W("the managed one as a global, %d current", now), cuLibraryGetGlobal(&q, &size, lib, "shared_by_all"), "%d",
        q == p[0]);
    ASK(W("a global as managed, %d current", now), cuLibraryGetManaged(&q, &size, lib, "wide"));
    ASK(W("no such managed, %d current", now), cuLibraryGetManaged(&q, &size, lib, "none"));
    ASK(W("only its size, %d current", now), cuLibraryGetManaged(NULL, &size, lib, "shared_by_all"), "%zu", size);
    RISK(W("neither, %d current", now), cuLibraryGetManaged(NULL, NULL, lib, "shared_by_all"));
    RISK(W("name NULL, %d current", now), cuLibraryGetManaged(&q, &size, lib, NULL));
  }
  SAY("one address", "%d %d", p[1] == p[2], p[0] == p[1]);
  for (int d = 0; d < 2; d++) SAY(W("first contents by %d", d), "%x", word(d, p[2]));
  on(0);
  DO(cuMemsetD32(p[2], 0x55, 1));
  DO(cuCtxSynchronize());
  ASK("after a set by 0, by 1", 0, "%x", word(1, p[2]));
  int yes = 7;
  for (int d = 0; d < 2; d++) {
    on(d);
    ASK(W("is it managed by %d", d), cuPointerGetAttribute(&yes, CU_POINTER_ATTRIBUTE_IS_MANAGED, p[2]), "%d", yes & 1);
    ASK(W("ordinal by %d", d), cuPointerGetAttribute(&yes, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p[2]), "%d", yes);
  }
}

static void kernels(void) {
  make();
  CUstream s[2];
  for (int d = 0; d < 2; d++) {
    on(d);
    DO(cuStreamCreate(&s[d], 0));
  }
  for (int now = -1; now < 2; now++) {
    on(now);
    for (int d = 0; d < 2; d++) ASK(W("a kernel as a function, %d current, stream of %d", now, d), go(k, s[d]));
    ASK(W("a kernel as a function, %d current, NULL stream", now), go(k, NULL));
    int v = 77, blocks = 77;
    ASK(W("attribute of a kernel as a function, %d current", now),
        cuFuncGetAttribute(&v, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, (CUfunction)k), "%d", v);
    ASK(W("occupancy of it, %d current", now),
        cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, (CUfunction)k, 256, 0), "%d", blocks);
    const char *name = "";
    ASK(W("name of it, %d current", now), cuKernelGetName(&name, k), "%s", name);
    size_t offset = 77, size = 77;
    for (int i = 0; i < 3; i++)
      ASK(W("parameter %d, %d current", i, now), cuKernelGetParamInfo(l, i, &offset, &size), "%zu %zu", offset, size);
  }
}

static void per_device(void) {
  make();
  CUfunction f = NULL;
  int v = 77;
  for (int a = 8; a <= 9; a++)
    for (int to = -1; to <= 2; to++) {
      on(0);
      ASK(W("set %d of %d with no function made", a, to), cuKernelSetAttribute(a, 16 + 8 * to, k, to));
      for (int d = 0; d < 2; d++)
        ASK(W("%d of %d after set of %d", a, d, to), cuKernelGetAttribute(&v, a, k, d), "%d", v);
    }
  for (int d = 0; d < 2; d++) {
    on(d);
    DO(cuKernelGetFunction(&f, k));
    for (int a = 8; a <= 9; a++) ASK(W("%d in the function of %d", a, d), cuFuncGetAttribute(&v, a, f), "%d", v);
    DO(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1000 + d));
    ASK(W("the kernel's after a set of the function of %d", d),
        cuKernelGetAttribute(&v, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, k, d), "%d", v);
    ASK(W("too much for %d", d), cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1 << 20, k, d));
    ASK(W("what cannot be set for %d", d), cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_NUM_REGS, 8, k, d));
  }
  CUcontext c = NULL;
  DO(cuCtxCreate(&c, NULL, 0, 1));
  ASK("function in another context of 1", cuKernelGetFunction(&f, k));
  ASK("its shared memory", cuFuncGetAttribute(&v, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, f), "%d", v);
  ASK("launch it", go(f, NULL), "%d", cuCtxSynchronize());
  ASK("destroy that context", cuCtxDestroy(c));
}

static void unloading(void) {
  make();
  CUdeviceptr g[2] = {0}, m = 0;
  CUfunction f[2] = {NULL};
  size_t size;
  for (int d = 0; d < 2; d++) {
    on(d);
    DO(cuLibraryGetGlobal(&g[d], &size, lib, "wide"));
    DO(cuKernelGetFunction(&f[d], k));
    DO(go(f[d], NULL));
  }
  DO(cuLibraryGetManaged(&m, &size, lib, "shared_by_all"));
  on(-1);
  ASK("unload with none current", cuLibraryUnload(lib));
  int v = 77;
  for (int d = 0; d < 2; d++) {
    on(d);
    ASK(W("ordinal of the global of %d", d), cuPointerGetAttribute(&v, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, g[d]), "%d",
        v);
    ASK(W("ordinal of the managed one by %d", d), cuPointerGetAttribute(&v, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, m),
        "%d", v);
    ALONE(W("launch of a gone function of %d", d), go(f[d], NULL));
  }
  ALONE("unload twice", cuLibraryUnload(lib));
  ALONE("attribute of a gone kernel", cuKernelGetAttribute(&v, CU_FUNC_ATTRIBUTE_NUM_REGS, k, 1));
  for (int d = 0; d < 2; d++) ASK(W("synchronize %d", d), cuCtxSynchronize_v2(of[d]));
}

CASES RUN(managed) RUN(kernels) RUN(per_device) RUN(unloading) END
