/* Attributes of pointers: every attribute of every kind of memory, setting, and ends. */
#include "ask.h"

static CUdeviceptr device, managed, pool_, mapped_;
static void *pinned_, *registered, *plain, *write_combined;

static void make(void) {
  CUmemGenericAllocationHandle h;
  CUmemAllocationProp p = pinned();
  CUmemAccessDesc d = access_of(0, 3);
  DO(cuMemAlloc(&device, 5000));
  DO(cuMemAllocManaged(&managed, 5000, 1));
  DO(cuMemAllocAsync(&pool_, 5000, 0));
  DO(cuCtxSynchronize());
  DO(cuMemHostAlloc(&pinned_, 5000, 0));
  DO(cuMemHostAlloc(&write_combined, 5000, CU_MEMHOSTALLOC_WRITECOMBINED | CU_MEMHOSTALLOC_DEVICEMAP));
  registered = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  plain = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  DO(cuMemHostRegister(registered, 8192, 0));
  DO(cuMemCreate(&h, 2 * MIB, &p, 0));
  DO(cuMemAddressReserve(&mapped_, 4 * MIB, 0, 0, 0));
  DO(cuMemMap(mapped_, 2 * MIB, 0, h, 0));
  DO(cuMemSetAccess(mapped_, 2 * MIB, &d, 1));
}

static void attribute(const char *name, CUdeviceptr p, int a) {
  union {
    unsigned char bytes[64];
    uint64_t number;
    int small;
    void *pointer;
  } v;
  memset(&v, 0xee, sizeof v);
  CUresult code = cuPointerGetAttribute(&v, a, p);
  const char *words = W("%d of %s", a, name);
  if (a == 5 || a == 20 || a == 7) { /* tokens, ids */
    ASK(words, code, "%d", v.number == 0xeeeeeeeeeeeeeeee ? -1 : v.number != 0);
    return;
  }
  int untouched = v.number == 0xeeeeeeeeeeeeeeee;
  if (untouched) ASK(words, code, "unwritten");
  else if (a == 1) ASK(words, code, "%d", v.pointer == context);
  else if (a == 3 || a == 4 || a == 11 || a == 19)
    ASK(words, code, "%s", v.number == p ? "the pointer" : v.number == 0 ? "0" : v.number < p ? "below" : "above");
  else if (a == 12 || a == 18) ASK(words, code, "%llu", (unsigned long long)v.number);
  else if (a == 17) ASK(words, code, "%d", v.pointer != NULL);
  else if (a == 8 || a == 10 || a == 13 || a == 15 || a == 21 || a == 6)
    ASK(words, code, "%d %s", v.bytes[0], v.bytes[1] == 0xee ? "byte" : "int");
  else ASK(words, code, "%d", v.small);
}

static void all(void) {
  make();
  struct {
    const char *name;
    CUdeviceptr p;
  } kinds[] = {{"device", device},
               {"managed", managed},
               {"pool", pool_},
               {"pinned", (CUdeviceptr)pinned_},
               {"write-combined", (CUdeviceptr)write_combined},
               {"registered", (CUdeviceptr)registered},
               {"plain", (CUdeviceptr)plain},
               {"mapped", mapped_},
               {"reserved only", mapped_ + 2 * MIB},
               {"0", 0},
               {"an inner byte", device + 77},
               {"an inner pinned byte", (CUdeviceptr)pinned_ + 77}};
  for (int k = 0; k < 12; k++)
    for (int a = 0; a <= 22; a++) attribute(kinds[k].name, kinds[k].p, a);
}

static void ends(void) {
  make();
  int type = 77;
  ASK("last byte of device memory", cuPointerGetAttribute(&type, 2, device + 4999), "%d", type);
  CUdeviceptr base = 7;
  size_t size = 7;
  ASK("range at the last byte", cuMemGetAddressRange(&base, &size, device + 4999), "%d %zu", base == device, size);
  base = 7, size = 7;
  ASK("range one past the end", cuMemGetAddressRange(&base, &size, device + 5000), "%d %zu", base == device, size);
  ASK("range at the end of its 512", cuMemGetAddressRange(&base, &size, device + 5119));
  CUdeviceptr others[] = {managed, pool_, (CUdeviceptr)pinned_, (CUdeviceptr)registered, (CUdeviceptr)plain, 0};
  const char *names[] = {"managed", "pool", "pinned", "registered", "plain", "0"};
  for (int i = 0; i < 6; i++) {
    base = 7, size = 7;
    ASK(W("range of %s", names[i]), cuMemGetAddressRange(&base, &size, others[i] + 5), "%d %zu", base == others[i],
        size);
  }
  DO(cuMemFree(device));
  type = 77;
  ASK("freed device memory", cuPointerGetAttribute(&type, 2, device), "%d", type);
  DO(cuMemHostUnregister(registered));
  type = 77;
  ASK("unregistered memory", cuPointerGetAttribute(&type, 2, (CUdeviceptr)registered), "%d", type);
  DO(cuMemFreeAsync(pool_, 0));
  DO(cuCtxSynchronize());
  type = 77;
  ASK("freed pool memory", cuPointerGetAttribute(&type, 2, pool_), "%d", type);
  RISK("into NULL", cuPointerGetAttribute(NULL, 2, managed));
}

static void several(void) {
  make();
  CUpointer_attribute names[] = {2, 9, 8, 99};
  int type = 77, ordinal = 77;
  int is_managed = 77;
  void *data[] = {&type, &ordinal, &is_managed, &type};
  ASK("three of device", cuPointerGetAttributes(3, names, data, device), "%d %d %d", type, ordinal, is_managed);
  type = ordinal = is_managed = 77;
  ASK("three of plain", cuPointerGetAttributes(3, names, data, (CUdeviceptr)plain), "%d %d %d", type, ordinal,
      is_managed);
  type = ordinal = is_managed = 77;
  ASK("three of 0", cuPointerGetAttributes(3, names, data, 0), "%d %d %d", type, ordinal, is_managed);
  ASK("one that does not exist", cuPointerGetAttributes(4, names, data, device));
  ASK("none", cuPointerGetAttributes(0, names, data, device));
  ASK("none of NULL", cuPointerGetAttributes(0, NULL, NULL, device));
  data[1] = NULL;
  RISK("a NULL element", cuPointerGetAttributes(3, names, data, device));
  RISK("names NULL", cuPointerGetAttributes(1, NULL, data, device));
  RISK("data NULL", cuPointerGetAttributes(1, names, NULL, device));
  uint64_t room[8];
  for (int a = 1; a <= 21; a++) {
    memset(room, 0xee, sizeof room);
    CUpointer_attribute one = a;
    void *into = room;
    ASK(W("%d of plain, in a list", a), cuPointerGetAttributes(1, &one, &into, (CUdeviceptr)plain), "%s",
        room[0] == 0xeeeeeeeeeeeeeeee
            ? "unwritten"
            : W("%lld", (a == 4 || a == 11 || a == 19 || a == 20 || a == 7 || a == 3) ? (long long)(room[0] != 0)
                        : a == 2 || a == 9                                            ? (int)room[0]
                                                                                      : (long long)(room[0] & 0xff)));
  }
}

static void setting(void) {
  make();
  struct {
    const char *name;
    CUdeviceptr p;
  } kinds[] = {{"device", device},
               {"managed", managed},
               {"pool", pool_},
               {"pinned", (CUdeviceptr)pinned_},
               {"registered", (CUdeviceptr)registered},
               {"plain", (CUdeviceptr)plain},
               {"mapped", mapped_},
               {"0", 0},
               {"an inner byte", device + 5}};
  for (int k = 0; k < 9; k++) {
    int one = 1, zero = 0;
    int now = 77;
    ASK(W("set of %s", kinds[k].name), cuPointerSetAttribute(&one, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, kinds[k].p));
    cuPointerGetAttribute(&now, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, kinds[k].p);
    SAY(W("now of %s", kinds[k].name), "%d", now & 255);
    ASK(W("unset of %s", kinds[k].name), cuPointerSetAttribute(&zero, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, kinds[k].p));
  }
  int two = 2;
  ASK("set to 2", cuPointerSetAttribute(&two, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, device));
  for (int a = 0; a <= 22; a++)
    if (a != 6) ASK(W("set of attribute %d", a), cuPointerSetAttribute(&two, a, device));
  RISK("set from NULL", cuPointerSetAttribute(NULL, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, device));
}

static void without_context(void) {
  make();
  CUcontext c;
  DO(cuCtxPopCurrent(&c));
  int type = 77;
  ASK("memory type", cuPointerGetAttribute(&type, 2, device), "%d", type);
  ASK("memory type of plain", cuPointerGetAttribute(&type, 2, (CUdeviceptr)plain));
  CUdeviceptr base = 7;
  ASK("range", cuMemGetAddressRange(&base, NULL, device));
  unsigned flags = 77;
  ASK("flags of pinned", cuMemHostGetFlags(&flags, pinned_), "%u", flags);
  ASK("free", cuMemFree(device));
  ASK("free host", cuMemFreeHost(pinned_));
  ASK("unregister", cuMemHostUnregister(registered));
  ASK("alloc", cuMemAlloc(&base, 16));
  CUmemGenericAllocationHandle h;
  CUmemAllocationProp p = pinned();
  ASK("create physical memory", cuMemCreate(&h, 2 * MIB, &p, 0));
  ASK("reserve", cuMemAddressReserve(&base, 2 * MIB, 0, 0, 0));
}

CASES RUN(all) RUN(ends) RUN(several) RUN(setting) RUN(without_context) END
