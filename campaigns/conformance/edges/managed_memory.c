/* Managed memory: advice and what it answers, prefetch, batches of prefetches and discards, several attributes at once.
 */
#include "ask.h"

static CUdeviceptr m, d;
static CUstream s;
static void make(void) {
  DO(cuMemAllocManaged(&m, 4 * MIB, 1));
  DO(cuMemAlloc(&d, 4 * MIB));
  DO(cuStreamCreate(&s, 1));
}
static CUmemLocation at(int type, int id) {
  CUmemLocation l = {type, id};
  return l;
}
static const char *state(void) {
  static char text[200];
  *text = 0;
  for (int a = 1; a <= 8; a++) {
    int v = 77, code = cuMemRangeGetAttribute(&v, 4, a, m, 4 * MIB);
    if (code) sprintf(text + strlen(text), " !%d", code);
    else sprintf(text + strlen(text), " %d", v);
  }
  return text;
}

static void advice(void) {
  make();
  SAY("fresh", "%s", state());
  const char *names[] = {
      "invalid",     "read mostly",    "not read mostly", "preferred location", "no preferred location",
      "accessed by", "not accessed by"};
  for (int a = 1; a <= 6; a++)
    for (int type = 1; type <= 4; type++) {
      ASK(W("%s, location type %d", names[a], type), cuMemAdvise(m, 4 * MIB, a, at(type, 0)), "%s", state());
    }
  ASK("device -1", cuMemAdvise(m, 4 * MIB, 3, at(1, -1)), "%s", state());
  ASK("NUMA node 99", cuMemAdvise(m, 4 * MIB, 3, at(3, 99)), "%s", state());
  DO(cuMemAdvise(m, 2 * MIB, 1, at(1, 0)));
  SAY("half is read mostly", "%s", state());
  DO(cuMemAdvise(m, 4 * MIB, 1, at(1, 0)));
  DO(cuMemAdvise(m, 2 * MIB, 3, at(1, 0)));
  SAY("half has a preferred location", "%s", state());
  ASK("an odd address", cuMemAdvise(m + 5, 4096, 1, at(1, 0)));
  ASK("an odd size", cuMemAdvise(m, 4095, 1, at(1, 0)));
  ASK("beyond", cuMemAdvise(m, 64 * MIB, 1, at(1, 0)));
  ASK("address 0", cuMemAdvise(0, 4096, 1, at(1, 0)));
  int local;
  ASK("the stack", cuMemAdvise((CUdeviceptr)&local & ~4095ull, 4096, 1, at(1, 0)));
}

static void prefetches(void) {
  make();
  for (int type = 1; type <= 4; type++) {
    ASK(W("to location type %d", type), cuMemPrefetchAsync(m, 4 * MIB, at(type, 0), 0, s));
    DO(cuStreamSynchronize(s));
    SAY(W("state after location type %d", type), "%s", state());
  }
  ASK("half", cuMemPrefetchAsync(m, 2 * MIB, at(1, 0), 0, s));
  DO(cuStreamSynchronize(s));
  SAY("state after half", "%s", state());
  ASK("an odd address", cuMemPrefetchAsync(m + 7, 100, at(1, 0), 0, s));
  ASK("address 0", cuMemPrefetchAsync(0, 4096, at(1, 0), 0, s));
  ASK("in the NULL stream", cuMemPrefetchAsync(m, 4096, at(1, 0), 0, NULL));
  void *pin;
  DO(cuMemAllocHost(&pin, 4096));
  ASK("pinned memory", cuMemPrefetchAsync((CUdeviceptr)pin, 4096, at(1, 0), 0, s));
}

static void batches(void) {
  make();
  CUdeviceptr p[2] = {m, m + 2 * MIB};
  size_t sizes[2] = {MIB, MIB}, where[2] = {0, 1};
  CUmemLocation l[2] = {at(1, 0), at(2, 0)};
  ASK("prefetch two", cuMemPrefetchBatchAsync(p, sizes, 2, l, where, 2, 0, s));
  ASK("prefetch two to one", cuMemPrefetchBatchAsync(p, sizes, 2, l, where, 1, 0, s));
  ASK("prefetch none", cuMemPrefetchBatchAsync(p, sizes, 0, l, where, 1, 0, s));
  ASK("prefetch to nowhere", cuMemPrefetchBatchAsync(p, sizes, 2, l, where, 0, 0, s));
  ASK("prefetch with flags 1", cuMemPrefetchBatchAsync(p, sizes, 2, l, where, 1, 1, s));
  ASK("prefetch in the NULL stream", cuMemPrefetchBatchAsync(p, sizes, 2, l, where, 1, 0, NULL));
  where[0] = 1;
  ASK("prefetch, the first index is 1", cuMemPrefetchBatchAsync(p, sizes, 2, l, where, 1, 0, s));
  where[0] = 0, sizes[1] = 0;
  ASK("prefetch a size of 0", cuMemPrefetchBatchAsync(p, sizes, 2, l, where, 1, 0, s));
  sizes[1] = MIB, p[1] = d;
  ASK("prefetch device memory", cuMemPrefetchBatchAsync(p, sizes, 2, l, where, 1, 0, s));
  ASK("discard device memory", cuMemDiscardBatchAsync(p, sizes, 2, 0, s));
  p[1] = m + 2 * MIB;
  ASK("discard two", cuMemDiscardBatchAsync(p, sizes, 2, 0, s));
  ASK("discard none", cuMemDiscardBatchAsync(p, sizes, 0, 0, s));
  ASK("discard with flags 1", cuMemDiscardBatchAsync(p, sizes, 2, 1, s));
  ASK("discard and prefetch", cuMemDiscardAndPrefetchBatchAsync(p, sizes, 2, l, where, 2, 0, s));
  ASK("discard and prefetch to nowhere", cuMemDiscardAndPrefetchBatchAsync(p, sizes, 2, l, where, 0, 0, s));
  RISK("prefetch from NULL", cuMemPrefetchBatchAsync(NULL, sizes, 2, l, where, 1, 0, s));
  RISK("prefetch without sizes", cuMemPrefetchBatchAsync(p, NULL, 2, l, where, 1, 0, s));
  RISK("prefetch without locations", cuMemPrefetchBatchAsync(p, sizes, 2, NULL, where, 1, 0, s));
  RISK("discard from NULL", cuMemDiscardBatchAsync(NULL, sizes, 2, 0, s));
  DO(cuStreamSynchronize(s));
}

static void several(void) {
  make();
  int a = 77, b = 77;
  void *data[] = {&a, &b};
  size_t sizes[] = {4, 4};
  CUmem_range_attribute names[] = {1, 2};
  ASK("two", cuMemRangeGetAttributes(data, sizes, names, 2, m, 4 * MIB), "%d %d", a, b);
  ASK("none", cuMemRangeGetAttributes(data, sizes, names, 0, m, 4 * MIB));
  sizes[1] = 8;
  ASK("a wrong size", cuMemRangeGetAttributes(data, sizes, names, 2, m, 4 * MIB));
  sizes[1] = 4, names[1] = 99;
  ASK("one that does not exist", cuMemRangeGetAttributes(data, sizes, names, 2, m, 4 * MIB));
  names[1] = 2, data[1] = NULL;
  RISK("a NULL element", cuMemRangeGetAttributes(data, sizes, names, 2, m, 4 * MIB));
  RISK("data NULL", cuMemRangeGetAttributes(NULL, sizes, names, 2, m, 4 * MIB));
  RISK("names NULL", cuMemRangeGetAttributes(data, sizes, NULL, 2, m, 4 * MIB));
  int four[4] = {77, 77, 77, 77};
  for (size_t size = 0; size <= 16; size += 2)
    ASK(W("accessed by, in %zu bytes", size), cuMemRangeGetAttribute(four, size, 3, m, 4 * MIB), "%d %d %d", four[0],
        four[1], four[3]);
}

static void host_side(void) {
  make();
  *(volatile char *)m = 5;
  unsigned char byte = 0;
  ASK("the device reads what the host wrote", cuMemcpyDtoH(&byte, m, 1), "%d", byte);
  DO(cuMemsetD8(m, 6, 16));
  DO(cuCtxSynchronize());
  SAY("the host reads what the device wrote", "%d", *(volatile char *)m);
  ASK("a copy by the generic call", cuMemcpy(m + 100, m, 16));
  ASK("attach to one stream", cuStreamAttachMemAsync(s, m, 0, CU_MEM_ATTACH_SINGLE));
  DO(cuStreamSynchronize(s));
  ASK("set it in another stream", cuMemsetD8Async(m, 7, 16, NULL));
  ASK("set it in its stream", cuMemsetD8Async(m, 8, 16, s));
  DO(cuCtxSynchronize());
  ASK("free", cuMemFree(m));
  CUdeviceptr h = 0;
  DO(cuMemAllocManaged(&h, 4096, CU_MEM_ATTACH_HOST));
  ASK("set what is the host's", cuMemsetD8(h, 1, 16));
  ASK("copy what is the host's", cuMemcpyDtoH(&byte, h, 1));
  ASK("prefetch what is the host's", cuMemPrefetchAsync(h, 4096, at(1, 0), 0, s));
}

CASES RUN(advice) RUN(prefetches) RUN(batches) RUN(several) RUN(host_side) END
