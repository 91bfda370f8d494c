/* Two devices: every attribute of pointers of each kind of memory of 1, seen from both contexts and from none. */
#include "two.h"
#define NAME(w, ...) \
  char w[100];       \
  snprintf(w, sizeof w, __VA_ARGS__) /* W has room for only a few at a time */

/* 0 or 1 for a primary context, 9 for another, -1 for none. */
static UNUSED int whose(CUcontext c) { return !c ? -1 : c == of[0] ? 0 : c == of[1] ? 1 : 9; }
static const char *const kind[] = {
    "plain",      "pooled", "pooled with access of 0", "mapped", "mapped for both", "reserved", "managed", "host",
    "registered", "a stack"};
enum { KINDS = 10 };
static CUdeviceptr made[KINDS];
static char stack[4096];

static CUdeviceptr mapped(int count) {
  CUdeviceptr p = 0;
  CUmemGenericAllocationHandle h = 0;
  CUmemAllocationProp x = pinned();
  CUmemAccessDesc d[2] = {access_of(1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE),
                          access_of(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)};
  x.location.id = 1;
  DO(cuMemCreate(&h, 2 * MIB, &x, 0));
  DO(cuMemAddressReserve(&p, 4 * MIB, 0, 0, 0));
  DO(cuMemMap(p, 2 * MIB, 0, h, 0));
  DO(cuMemSetAccess(p, 2 * MIB, d, count));
  return p;
}
static void make(void) {
  both();
  void *h = NULL, *paged = aligned_alloc(4096, 8192);
  CUmemoryPool pool = NULL;
  CUmemPoolProps x = pool_on_device(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  CUmemAccessDesc d = access_of(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  x.location.id = 1;
  on(1);
  made[0] = memory(1, 8192, 0);
  DO(cuMemAllocAsync(&made[1], 8192, NULL));
  DO(cuMemPoolCreate(&pool, &x));
  DO(cuMemPoolSetAccess(pool, &d, 1));
  DO(cuMemAllocFromPoolAsync(&made[2], 8192, pool, NULL));
  made[3] = mapped(1), made[4] = mapped(2), made[5] = made[3] + 2 * MIB;
  DO(cuMemAllocManaged(&made[6], 65536, CU_MEM_ATTACH_GLOBAL));
  DO(cuMemHostAlloc(&h, 8192, 0));
  made[7] = (CUdeviceptr)h;
  DO(cuMemHostRegister(paged, 8192, 0));
  made[8] = (CUdeviceptr)paged, made[9] = (CUdeviceptr)stack;
  DO(cuCtxSynchronize());
}

static void all(void) {
  make();
  for (int now = -1; now < 2; now++)
    for (int i = 0; i < KINDS; i++)
      for (int a = 0; a <= 22; a++) {
        if (a == CU_POINTER_ATTRIBUTE_P2P_TOKENS) continue;
        unsigned long long v[2] = {0x7777777777777777, 0x7777777777777777};
        CUdeviceptr p = made[i] + 64;
        on(now);
        int code = cuPointerGetAttribute(v, a, p);
        NAME(w, "%s, %d current, attribute %d", kind[i], now, a);
        if (code || v[0] == 0x7777777777777777) ASK(w, code, "%d", v[0] == 0x7777777777777777);
        else if (a == CU_POINTER_ATTRIBUTE_CONTEXT) ASK(w, code, "%d", whose((CUcontext)v[0]));
        else if (v[0] > 0xffffffff && a != CU_POINTER_ATTRIBUTE_RANGE_SIZE &&
                 (v[0] & 0xffffffff00000000) != 0x7777777700000000 && v[0] >> 8 != 0x77777777777777)
          ASK(w, code, "address %d %d", v[0] == p, v[0] == made[i]);
        else if (a == CU_POINTER_ATTRIBUTE_BUFFER_ID || a == CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID)
          ASK(w, code, "%d", v[0] != 0);
        else ASK(w, code, "%llx", v[0]);
      }
}

static void several(void) {
  make();
  for (int now = -1; now < 2; now++)
    for (int i = 0; i < KINDS; i++) {
      CUcontext c = (CUcontext)7;
      unsigned type = 77, access = 77, managed = 0x77;
      int ordinal = 77;
      size_t size = 77;
      CUpointer_attribute what[] = {CU_POINTER_ATTRIBUTE_CONTEXT,        CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS,
                                    CU_POINTER_ATTRIBUTE_IS_MANAGED,     CU_POINTER_ATTRIBUTE_RANGE_SIZE};
      void *into[] = {&c, &type, &ordinal, &access, &managed, &size};
      on(now);
      ASK(W("%s, %d current, six", kind[i], now), cuPointerGetAttributes(6, what, into, made[i] + 64),
          "%d %u %d %u %u %zu", whose(c), type, ordinal, access, managed, size);
      what[5] = 99;
      ASK(W("%s, %d current, one wrong", kind[i], now), cuPointerGetAttributes(6, what, into, made[i]));
      what[5] = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
      ASK(W("%s, %d current, one twice", kind[i], now), cuPointerGetAttributes(6, what, into, made[i]));
      ASK(W("%s, %d current, none", kind[i], now), cuPointerGetAttributes(0, what, into, made[i]));
    }
  CUpointer_attribute one = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
  void *nowhere = NULL;
  RISK("kinds NULL", cuPointerGetAttributes(1, NULL, &nowhere, made[0]));
  RISK("data NULL", cuPointerGetAttributes(1, &one, NULL, made[0]));
  RISK("into NULL", cuPointerGetAttributes(1, &one, &nowhere, made[0]));
}

static void setting(void) {
  make();
  for (int i = 0; i < KINDS; i++)
    for (int now = 1; now >= -1; now--)
      for (int value = 1; value >= 0; value--) {
        int got = 0, v = value;
        on(now);
        NAME(w, "%s, %d current, to %d", kind[i], now, value);
        ASK(w, cuPointerSetAttribute(&v, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, made[i] + 64));
        for (int d = 0; d < 2; d++) {
          on(d);
          ASK(W("%s: seen from %d", w, d), cuPointerGetAttribute(&got, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, made[i]), "%d",
              got & 1);
        }
      }
  int v = 1;
  for (int a = 0; a <= 22; a++)
    if (a != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) ASK(W("attribute %d", a), cuPointerSetAttribute(&v, a, made[0]));
  RISK("value NULL", cuPointerSetAttribute(NULL, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, made[0]));
}

CASES RUN(all) RUN(several) RUN(setting) END
