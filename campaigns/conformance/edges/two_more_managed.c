/* Two devices: managed memory advised and prefetched to either, ranges' attributes, batches. */
#include "two.h"
#define NAME(w, ...) \
  char w[100];       \
  snprintf(w, sizeof w, __VA_ARGS__) /* W has room for only a few at a time */

#define SIZE ((size_t)256 << 10)
static CUdeviceptr p;
static CUstream s[2];

static void make(void) {
  both();
  for (int d = 0; d < 2; d++) {
    on(d);
    DO(cuStreamCreate(&s[d], CU_STREAM_NON_BLOCKING));
  }
  DO(cuMemAllocManaged(&p, SIZE, CU_MEM_ATTACH_GLOBAL));
}
static void range(const char *w, CUdeviceptr q, size_t n) {
  for (int a = 1; a <= 8; a++) {
    int v[4] = {77, 77, 77, 77};
    ASK(W("%s: attribute %d", w, a),
        cuMemRangeGetAttribute(v, a == CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY ? 16 : 4, a, q, n), "%d %d %d", v[0], v[1],
        v[2]);
  }
}

static void advice(void) {
  make();
  for (int now = -1; now < 2; now++) {
    on(now);
    for (int a = 0; a <= 7; a++)
      for (int type = 0; type <= 4; type++)
        for (int id = -1; id <= 2; id++)
          if (type == CU_MEM_LOCATION_TYPE_DEVICE || id == 0)
            ASK(W("%d current, advice %d, kind %d, %d", now, a, type, id), cuMemAdvise(p, SIZE, a, at(type, id)));
    range(W("%d current, at the end", now), p, SIZE);
  }
}

static void halves(void) {
  make();
  CUmemLocation zero = at(CU_MEM_LOCATION_TYPE_DEVICE, 0), one = at(CU_MEM_LOCATION_TYPE_DEVICE, 1);
  DO(cuMemAdvise(p, SIZE / 2, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, zero));
  DO(cuMemAdvise(p + SIZE / 2, SIZE / 2, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, one));
  DO(cuMemAdvise(p, SIZE / 2, CU_MEM_ADVISE_SET_ACCESSED_BY, one));
  DO(cuMemAdvise(p, SIZE, CU_MEM_ADVISE_SET_ACCESSED_BY, zero));
  range("first half", p, SIZE / 2);
  range("second half", p + SIZE / 2, SIZE / 2);
  ASK("prefetch the first to 1", cuMemPrefetchAsync(p, SIZE / 2, one, 0, s[0]), "%d", cuStreamSynchronize(s[0]));
  range("first prefetched", p, SIZE);
  ASK("prefetch the second to 1", cuMemPrefetchAsync(p + SIZE / 2, SIZE / 2, one, 0, s[1]), "%d",
      cuStreamSynchronize(s[1]));
  range("both prefetched", p, SIZE);
  ASK("beyond its end", cuMemAdvise(p + SIZE / 2, 4 * MIB, CU_MEM_ADVISE_SET_READ_MOSTLY, zero));
  ASK("unset for 1 what 0 has", cuMemAdvise(p, SIZE, CU_MEM_ADVISE_UNSET_ACCESSED_BY, one));
  range("unset", p, SIZE);
  CUdeviceptr plain = memory(1, 4096, 0);
  ASK("advice for plain memory of 1", cuMemAdvise(plain, 4096, CU_MEM_ADVISE_SET_READ_MOSTLY, one));
  ASK("prefetch of plain memory of 1", cuMemPrefetchAsync(plain, 4096, zero, 0, s[0]));
  range("plain memory of 1", plain, 4096);
}

static void prefetches(void) {
  make();
  for (int now = -1; now < 2; now++)
    for (int i = 0; i < 2; i++)
      for (int type = 0; type <= 4; type++)
        for (int id = -1; id <= 2; id++) {
          if (type != CU_MEM_LOCATION_TYPE_DEVICE && id != 0) continue;
          int kind = 77, last = 77;
          on(now);
          NAME(w, "%d current, stream of %d, kind %d, %d", now, i, type, id);
          ASK(w, cuMemPrefetchAsync(p, SIZE, at(type, id), 0, s[i]), "%d", cuStreamSynchronize(s[i]));
          ASK(W("%s: kind", w),
              cuMemRangeGetAttribute(&kind, 4, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE, p, SIZE), "%d",
              kind);
          if (type != CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT)
            ASK(W("%s: where", w),
                cuMemRangeGetAttribute(&last, 4, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID, p, SIZE), "%d",
                last);
        }
  on(0);
  ASK("a set by 0 of what is on 1", cuMemsetD32(p, 0x99, 1), "%d", cuCtxSynchronize());
  ASK("the host reads it", 0, "%x", *(volatile unsigned *)p);
}

static void lists(void) {
  make();
  int mostly = 77, prefer = 77, last = 77, by[4] = {77, 77, 77, 77};
  void *into[] = {&mostly, &prefer, by, &last};
  size_t sizes[] = {4, 4, 16, 4};
  CUmem_range_attribute what[] = {CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION,
                                  CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION};
  DO(cuMemAdvise(p, SIZE, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, at(1, 1)));
  DO(cuMemAdvise(p, SIZE, CU_MEM_ADVISE_SET_ACCESSED_BY, at(1, 0)));
  for (int now = -1; now < 2; now++) {
    on(now);
    ASK(W("four, %d current", now), cuMemRangeGetAttributes(into, sizes, what, 4, p, SIZE), "%d %d %d %d %d", mostly,
        prefer, by[0], by[1], last);
  }
  sizes[0] = 8;
  ASK("a wrong size", cuMemRangeGetAttributes(into, sizes, what, 4, p, SIZE));
  sizes[0] = 4, sizes[2] = 4;
  ASK("room for one of two devices", cuMemRangeGetAttributes(into, sizes, what, 4, p, SIZE), "%d", by[0]);
  CUdeviceptr q[2] = {p, p + SIZE / 2};
  size_t n[2] = {SIZE / 2, SIZE / 2}, index[2] = {0, 1};
  CUmemLocation to[2] = {at(1, 1), at(1, 0)}, bad[2] = {at(1, 1), at(1, 2)};
  for (int i = 0; i < 2; i++) {
    on(!i);
    ASK(W("halves to 1 and 0 in a stream of %d", i), cuMemPrefetchBatchAsync(q, n, 2, to, index, 2, 0, s[i]), "%d",
        cuStreamSynchronize(s[i]));
    for (int k = 0; k < 2; k++)
      ASK(W("where half %d is, stream of %d", k, i),
          cuMemRangeGetAttribute(&last, 4, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID, q[k], n[k]), "%d", last);
    ASK(W("both to 1 in a stream of %d", i), cuMemPrefetchBatchAsync(q, n, 2, to, index, 1, 0, s[i]), "%d",
        cuStreamSynchronize(s[i]));
    ASK(W("a wrong one in a stream of %d", i), cuMemPrefetchBatchAsync(q, n, 2, bad, index, 2, 0, s[i]));
    ASK(W("discard, to 1 and 0 in a stream of %d", i),
        cuMemDiscardAndPrefetchBatchAsync(q, n, 2, to, index, 2, 0, s[i]), "%d", cuStreamSynchronize(s[i]));
  }
  ASK("in the NULL stream", cuMemPrefetchBatchAsync(q, n, 2, to, index, 2, 0, NULL));
}

CASES RUN(advice) RUN(halves) RUN(prefetches) RUN(lists) END
