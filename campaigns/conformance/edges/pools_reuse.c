/* What a pool gives out again, and when; thresholds, sizes of its chunks, what frees leave. */
#include "ask.h"

static CUmemoryPool pool;
static CUstream s, t;
static void make(int threshold) {
  CUmemPoolProps p = pool_on_device(0);
  uint64_t all = threshold ? UINT64_MAX : 0;
  DO(cuMemPoolCreate(&pool, &p));
  DO(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
  DO(cuStreamCreate(&s, 1));
  DO(cuStreamCreate(&t, 1));
}
static CUdeviceptr get(size_t size, CUstream stream) {
  CUdeviceptr d = 0;
  DO(cuMemAllocFromPoolAsync(&d, size, pool, stream));
  return d;
}
static unsigned long long value(int attribute) {
  uint64_t v = 77;
  DO(cuMemPoolGetAttribute(pool, attribute, &v));
  return v;
}

static void sizes(void) {
  make(1);
  size_t all[] = {1,       511,         512,      513,      4096,     65536,    MIB,
                  2 * MIB, 2 * MIB + 1, 16 * MIB, 31 * MIB, 32 * MIB, 33 * MIB, 100 * MIB};
  for (int i = 0; i < 14; i++) {
    CUdeviceptr d = get(all[i], s);
    CUdeviceptr base = 0;
    size_t size = 0;
    DO(cuMemGetAddressRange(&base, &size, d));
    DO(cuStreamSynchronize(s));
    SAY(W("%zu bytes", all[i]), "used %llu, reserved %llu, range %zu", value(7), value(5), size);
    DO(cuMemFreeAsync(d, s));
    DO(cuStreamSynchronize(s));
    SAY(W("%zu bytes, freed", all[i]), "used %llu, reserved %llu", value(7), value(5));
    DO(cuMemPoolTrimTo(pool, 0));
    SAY(W("%zu bytes, trimmed", all[i]), "reserved %llu", value(5));
  }
  SAY("highest", "%llu %llu", value(6), value(8));
}

static void same_stream(void) {
  make(1);
  CUdeviceptr a = get(1000, s);
  DO(cuMemFreeAsync(a, s));
  CUdeviceptr b = get(1000, s);
  SAY("the same size again", "%d", a == b);
  DO(cuMemFreeAsync(b, s));
  CUdeviceptr c = get(100, s);
  SAY("a smaller size", "%d", a == c);
  CUdeviceptr e = get(100, s);
  SAY("the next", "%lld", (long long)(e - c));
  DO(cuMemFreeAsync(c, s));
  DO(cuMemFreeAsync(e, s));
  CUdeviceptr f = get(5000, s);
  SAY("a larger size", "%d", a == f);
  DO(cuStreamSynchronize(s));
}

static void other_stream(void) {
  make(1);
  CUdeviceptr gate = 0;
  DO(cuMemAlloc(&gate, 4096));
  DO(cuMemsetD8(gate, 0, 4096));
  DO(cuCtxSynchronize());
  CUdeviceptr a = get(1000, s);
  DO(cuStreamSynchronize(s));
  DO(cuMemFreeAsync(a, s));
  DO(cuStreamSynchronize(s));
  CUdeviceptr b = get(1000, t);
  SAY("what another stream has freed for good", "%d", a == b);
  DO(cuMemFreeAsync(b, t));
  DO(cuStreamSynchronize(t));
  a = get(1000, s);
  DO(cuStreamWaitValue32(s, gate, 1, CU_STREAM_WAIT_VALUE_GEQ));
  DO(cuMemFreeAsync(a, s));
  b = get(1000, t);
  SAY("what another stream will free", "%d", a == b);
  CUdeviceptr c = get(1000, s);
  SAY("what this stream will have freed", "%d", a == c);
  SAY("used while it is to be freed", "%llu", value(7));
  DO(cuStreamWriteValue32(t, gate, 1, 0));
  DO(cuCtxSynchronize());
  SAY("used then", "%llu", value(7));
}

static void threshold(void) {
  make(0);
  CUdeviceptr a = get(MIB, s);
  DO(cuStreamSynchronize(s));
  SAY("reserved with one", "%llu", value(5));
  DO(cuMemFreeAsync(a, s));
  SAY("reserved before a synchronization", "%d", value(5) > 0);
  DO(cuStreamSynchronize(s));
  SAY("reserved after it", "%llu", value(5));
  uint64_t half = 40 * MIB;
  DO(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &half));
  CUdeviceptr d[3];
  for (int i = 0; i < 3; i++) d[i] = get(30 * MIB, s);
  DO(cuStreamSynchronize(s));
  SAY("reserved with three", "%llu", value(5));
  for (int i = 0; i < 3; i++) DO(cuMemFreeAsync(d[i], s));
  DO(cuStreamSynchronize(s));
  SAY("reserved over the threshold", "%llu", value(5));
  DO(cuCtxSynchronize());
  SAY("reserved after the context", "%llu", value(5));
  size_t before = 0, during = 0, total;
  DO(cuMemGetInfo(&before, &total));
  CUdeviceptr big = get(64 * MIB, s);
  DO(cuStreamSynchronize(s));
  DO(cuMemGetInfo(&during, &total));
  SAY("free memory is less by", "%lld", (long long)(before - during) / (long long)MIB);
  DO(cuMemFreeAsync(big, s));
}

static void frees(void) {
  make(1);
  CUdeviceptr a = get(1000, s), b = get(1000, s);
  DO(cuStreamSynchronize(s));
  ASK("free in another stream", cuMemFreeAsync(a, t));
  ASK("free again in the first", cuMemFreeAsync(a, s));
  DO(cuCtxSynchronize());
  ASK("free for good", cuMemFree(b));
  ASK("use after that", cuMemsetD8(b, 1, 16));
  CUdeviceptr c = get(1000, s);
  CUgraph g;
  CUgraphNode n;
  DO(cuGraphCreate(&g, 0));
  ASK("a node that frees it", cuGraphAddMemFreeNode(&n, g, NULL, 0, c));
  CUgraphExec x;
  DO(cuGraphInstantiate(&x, g, 0));
  ASK("launch it", cuGraphLaunch(x, s));
  ASK("launch it again", cuGraphLaunch(x, s));
  DO(cuCtxSynchronize());
  ASK("free what a graph freed", cuMemFreeAsync(c, s));
}

CASES RUN(sizes) RUN(same_stream) RUN(other_stream) RUN(threshold) RUN(frees) END
