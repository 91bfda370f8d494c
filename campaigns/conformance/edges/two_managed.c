/* Two devices: managed memory advised for and prefetched to either and the host, attributes of its ranges. */
#include "two.h"

#define SIZE ((size_t)4 << 20)
static CUdeviceptr m;
static CUstream s[2];

static void make(void) {
  both();
  for (int d = 0; d < 2; d++) {
    on(d);
    DO(cuStreamCreate(&s[d], CU_STREAM_NON_BLOCKING));
  }
  on(0);
  DO(cuMemAllocManaged(&m, SIZE, CU_MEM_ATTACH_GLOBAL));
}

static void told(const char *words) {
  char when[100];
  snprintf(when, sizeof when, "%s", words);
  for (int a = 1; a <= 8; a++) {
    if (a == CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY) continue;
    int v = 77;
    ASK(W("%s: attribute %d", when, a), cuMemRangeGetAttribute(&v, 4, a, m, SIZE), "%d", v);
  }
  int by[4] = {77, 77, 77, 77};
  ASK(W("%s: accessed by", when), cuMemRangeGetAttribute(by, sizeof by, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, m, SIZE),
      "%d %d %d %d", by[0], by[1], by[2], by[3]);
}

static void advice(void) {
  make();
  told("fresh");
  static const struct {
    int type, id;
  } ls[] = {{1, 0}, {1, 1}, {1, 2}, {1, -1}, {2, 0}, {2, 1}, {3, 0}, {4, 0}, {0, 0}, {9, 0}};
  for (int what = 0; what <= 7; what++)
    for (int l = 0; l < 10; l++) {
      ASK(W("advice %d, location %d %d", what, ls[l].type, ls[l].id),
          cuMemAdvise(m, SIZE, what, at(ls[l].type, ls[l].id)));
      if (what && what < 7 && l < 2) told(W("advice %d, location %d %d", what, ls[l].type, ls[l].id));
    }
}

static void accessed(void) {
  make();
  for (int d = 0; d < 2; d++)
    ASK(W("accessed by %d", d), cuMemAdvise(m, SIZE, CU_MEM_ADVISE_SET_ACCESSED_BY, at(1, d)));
  ASK("accessed by the host", cuMemAdvise(m, SIZE, CU_MEM_ADVISE_SET_ACCESSED_BY, at(2, 0)));
  told("all");
  int by[1] = {77};
  ASK("into one", cuMemRangeGetAttribute(by, 4, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, m, SIZE), "%d", by[0]);
  ASK("not by 0", cuMemAdvise(m, SIZE, CU_MEM_ADVISE_UNSET_ACCESSED_BY, at(1, 0)));
  told("without 0");
  ASK("half of it for 0", cuMemAdvise(m, SIZE / 2, CU_MEM_ADVISE_SET_ACCESSED_BY, at(1, 0)));
  told("half for 0");
  ASK("half of it preferred on 1", cuMemAdvise(m, SIZE / 2, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, at(1, 1)));
  told("half preferred");
  ASK("the other half on 0", cuMemAdvise(m + SIZE / 2, SIZE / 2, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, at(1, 0)));
  told("halves");
}

static void prefetches(void) {
  make();
  static const struct {
    int type, id;
  } ls[] = {{1, 1}, {1, 0}, {2, 0}, {1, 2}, {1, -1}, {3, 0}, {4, 0}, {0, 0}};
  for (int l = 0; l < 8; l++)
    for (int d = 0; d < 2; d++) {
      ASK(W("to %d %d in %d's stream", ls[l].type, ls[l].id, d),
          cuMemPrefetchAsync(m, SIZE, at(ls[l].type, ls[l].id), 0, s[d]));
      ASK(W("end to %d %d in %d's stream", ls[l].type, ls[l].id, d), settled(s[d]));
      if (l < 3) told(W("at %d %d by %d's", ls[l].type, ls[l].id, d));
    }
  ASK("with flags", cuMemPrefetchAsync(m, SIZE, at(1, 1), 1, s[1]));
  ASK("in NULL", cuMemPrefetchAsync(m, SIZE, at(1, 1), 0, NULL));
  ASK("its end", cuCtxSynchronize());
  ASK("half to 0", cuMemPrefetchAsync(m, SIZE / 2, at(1, 0), 0, s[0]));
  ASK("end of the half", settled(s[0]));
  told("half");
  DO(cuCtxSetCurrent(NULL));
  ASK("none current", cuMemPrefetchAsync(m, SIZE, at(1, 1), 0, s[1]));
  ASK("none current, NULL", cuMemPrefetchAsync(m, SIZE, at(1, 1), 0, NULL));
}

static void contents(void) {
  make();
  volatile unsigned *w = (volatile unsigned *)m;
  for (int round = 0; round < 2; round++)
    for (int d = 0; d < 2; d++) {
      on(d);
      DO(cuMemPrefetchAsync(m, SIZE, at(1, d), 0, s[d]));
      ASK(W("set by %d, round %d", d, round), cuMemsetD32(m, 100 + 10 * round + d, 16));
      ASK(W("read, %d, round %d", d, round), cuCtxSynchronize(), "%u", w[3]);
      w[3] = 5;
      ASK(W("read by %d, round %d", !d, round), 0, "%u", word(!d, m + 12));
    }
  on(0);
  CUcontext c = NULL;
  int ordinal = 7;
  ASK("context", cuPointerGetAttribute(&c, CU_POINTER_ATTRIBUTE_CONTEXT, m), "%d", c == of[0]);
  ASK("ordinal", cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, m), "%d", ordinal);
  for (unsigned f = 0; f <= 4; f++) ASK(W("attach to 1's stream, flags %u", f), cuStreamAttachMemAsync(s[1], m, 0, f));
  ASK("end of attaching", settled(s[1]));
  on(1);
  ASK("free by 1", cuMemFree(m));
}

static void plain(void) {
  make();
  CUdeviceptr p = memory(1, 4096, 0);
  int v = 7;
  ASK("advice for plain memory of 1", cuMemAdvise(p, 4096, CU_MEM_ADVISE_SET_ACCESSED_BY, at(1, 0)));
  ASK("prefetch of plain memory of 1", cuMemPrefetchAsync(p, 4096, at(1, 0), 0, s[0]));
  ASK("attribute of plain memory of 1",
      cuMemRangeGetAttribute(&v, 4, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, p, 4096));
}

CASES RUN(advice) RUN(accessed) RUN(prefetches) RUN(contents) RUN(plain) END
