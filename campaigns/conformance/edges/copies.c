/* Copies of one, two and three dimensions, sets, batches, peers. */
#include "ask.h"

static CUdeviceptr d, e;
static char host[65536];
static void make(void) {
  DO(cuMemAlloc(&d, 65536));
  DO(cuMemAlloc(&e, 65536));
}

static void lines(void) {
  make();
  ASK("no bytes to 0", cuMemcpyHtoD(0, host, 0));
  ASK("no bytes from NULL", cuMemcpyHtoD(d, NULL, 0));
  ASK("beyond the end", cuMemcpyHtoD(d, host, 65537));
  ASK("the last byte", cuMemcpyHtoD(d + 65535, host, 1));
  ASK("device to device onto itself", cuMemcpyDtoD(d, d, 100));
  ASK("device to device, overlapping", cuMemcpyDtoD(d + 50, d, 100));
  ASK("generic, host to host", cuMemcpy((CUdeviceptr)host, (CUdeviceptr)(host + 100), 50));
  ASK("generic, host to device", cuMemcpy(d, (CUdeviceptr)host, 50));
  ASK("a device pointer as host source", cuMemcpyHtoD(d, (void *)e, 16));
  ASK("a host pointer as device source", cuMemcpyDtoD(d, (CUdeviceptr)host, 16));
  ASK("a host pointer as device target", cuMemcpyHtoD((CUdeviceptr)host, host + 64, 16));
  ASK("peer to itself", cuMemcpyPeer(d, context, e, context, 16));
  ASK("peer without contexts", cuMemcpyPeer(d, NULL, e, NULL, 16));
  RISK("to 0", cuMemcpyHtoD(0, host, 16));
  RISK("from NULL", cuMemcpyHtoD(d, NULL, 16));
  RISK("into NULL", cuMemcpyDtoH(NULL, d, 16));
  RISK("from an address that is not mapped", cuMemcpyHtoD(d, (void *)0x1000, 16));
  RISK("to device memory that is not", cuMemcpyHtoD(0x1000, host, 16));
  RISK("an enormous size", cuMemcpyDtoD(d, e, SIZE_MAX));
}

static CUDA_MEMCPY2D flat(size_t width, size_t height) {
  CUDA_MEMCPY2D c;
  SET(c);
  c.srcMemoryType = CU_MEMORYTYPE_HOST, c.srcHost = host, c.srcPitch = 256;
  c.dstMemoryType = CU_MEMORYTYPE_DEVICE, c.dstDevice = d, c.dstPitch = 512;
  c.WidthInBytes = width, c.Height = height;
  return c;
}

static void planes(void) {
  make();
  CUDA_MEMCPY2D c = flat(64, 4);
  ASK("plain", cuMemcpy2D(&c));
  size_t pitches[] = {0, 1, 63, 64, 65, (size_t)1 << 31, ((size_t)1 << 31) - 1};
  for (int i = 0; i < 7; i++) {
    c = flat(64, 1), c.srcPitch = pitches[i];
    ASK(W("source pitch %zu, one row", pitches[i]), cuMemcpy2D(&c));
    c = flat(64, 1), c.dstPitch = pitches[i];
    ASK(W("target pitch %zu, one row", pitches[i]), cuMemcpy2D(&c));
    if (i >= 5) continue;
    c = flat(64, 4), c.srcPitch = pitches[i];
    ASK(W("source pitch %zu", pitches[i]), cuMemcpy2D(&c));
    c = flat(64, 4), c.dstPitch = pitches[i];
    ASK(W("target pitch %zu", pitches[i]), cuMemcpy2D(&c));
    ASK(W("target pitch %zu, unaligned", pitches[i]), cuMemcpy2DUnaligned(&c));
  }
  c = flat(0, 4);
  ASK("width 0", cuMemcpy2D(&c));
  c = flat(64, 0);
  ASK("height 0", cuMemcpy2D(&c));
  for (int type = 0; type <= 5; type++) {
    c = flat(64, 4), c.srcMemoryType = type, c.srcDevice = e;
    ASK(W("source type %d", type), cuMemcpy2D(&c));
  }
  c = flat(64, 4), c.srcXInBytes = 200;
  ASK("x beyond the pitch", cuMemcpy2D(&c));
  c = flat(64, 4), c.dstXInBytes = 500;
  ASK("target x beyond the pitch", cuMemcpy2D(&c));
  c = flat(64, 200);
  ASK("rows beyond the memory", cuMemcpy2D(&c));
  c = flat(64, 4), c.dstY = 200;
  ASK("y beyond the memory", cuMemcpy2D(&c));
  RISK("from NULL", cuMemcpy2D(NULL));
  RISK("unaligned from NULL", cuMemcpy2DUnaligned(NULL));
  c = flat(64, 4), c.dstDevice = 0;
  ASK("target 0", cuMemcpy2D(&c));
  CUarray a;
  CUDA_ARRAY_DESCRIPTOR ad = {64, 16, CU_AD_FORMAT_FLOAT, 1};
  DO(cuArrayCreate(&a, &ad));
  struct {
    size_t x, y, w, h;
  } boxes[] = {{0, 0, 256, 16}, {0, 0, 260, 1},  {4, 0, 252, 1}, {2, 0, 4, 1},
               {0, 15, 256, 1}, {0, 15, 256, 2}, {0, 0, 6, 1},   {256, 0, 4, 1}};
  for (int i = 0; i < 8; i++) {
    c = flat(boxes[i].w, boxes[i].h), c.srcPitch = 512, c.dstMemoryType = CU_MEMORYTYPE_ARRAY, c.dstArray = a,
    c.dstXInBytes = boxes[i].x, c.dstY = boxes[i].y;
    ASK(W("array at %zu %zu, %zu by %zu", boxes[i].x, boxes[i].y, boxes[i].w, boxes[i].h), cuMemcpy2D(&c));
  }
  c.dstArray = NULL;
  RISK("array NULL", cuMemcpy2D(&c));
}

static void volumes(void) {
  make();
  CUDA_MEMCPY3D good, c;
  SET(good);
  good.srcMemoryType = CU_MEMORYTYPE_HOST, good.srcHost = host, good.srcPitch = 64, good.srcHeight = 4;
  good.dstMemoryType = CU_MEMORYTYPE_DEVICE, good.dstDevice = d, good.dstPitch = 64, good.dstHeight = 4;
  good.WidthInBytes = 64, good.Height = 4, good.Depth = 4;
  ASK("plain", cuMemcpy3D(&good));
  for (int h = 0; h <= 4; h++) {
    c = good, c.srcHeight = h;
    ASK(W("source height %d", h), cuMemcpy3D(&c));
    c = good, c.dstHeight = h;
    ASK(W("target height %d", h), cuMemcpy3D(&c));
  }
  for (int p = 0; p <= 64; p += 32) {
    c = good, c.srcPitch = p;
    ASK(W("source pitch %d", p), cuMemcpy3D(&c));
    c = good, c.dstPitch = p;
    ASK(W("target pitch %d", p), cuMemcpy3D(&c));
  }
  c = good, c.WidthInBytes = 0;
  ASK("width 0", cuMemcpy3D(&c));
  c = good, c.Height = 0;
  ASK("height 0", cuMemcpy3D(&c));
  c = good, c.Depth = 0;
  ASK("depth 0", cuMemcpy3D(&c));
  c = good, c.srcLOD = 1;
  ASK("source level 1", cuMemcpy3D(&c));
  c = good, c.dstLOD = 1;
  ASK("target level 1", cuMemcpy3D(&c));
  c = good, c.reserved0 = host;
  ASK("reserved 0", cuMemcpy3D(&c));
  c = good, c.reserved1 = host;
  ASK("reserved 1", cuMemcpy3D(&c));
  c = good, c.dstZ = 300;
  ASK("z beyond the memory", cuMemcpy3D(&c));
  RISK("from NULL", cuMemcpy3D(NULL));
  CUDA_MEMCPY3D_PEER p;
  SET(p);
  p.srcMemoryType = p.dstMemoryType = CU_MEMORYTYPE_DEVICE, p.srcDevice = e, p.dstDevice = d,
  p.srcPitch = p.dstPitch = 64, p.srcHeight = p.dstHeight = 4;
  p.srcContext = p.dstContext = context, p.WidthInBytes = 64, p.Height = 4, p.Depth = 4;
  ASK("peer to itself", cuMemcpy3DPeer(&p));
  p.srcContext = NULL;
  ASK("peer without a source context", cuMemcpy3DPeer(&p));
  RISK("peer from NULL", cuMemcpy3DPeer(NULL));
}

static void sets(void) {
  make();
  ASK("no bytes at 0", cuMemsetD8(0, 1, 0));
  ASK("beyond the end", cuMemsetD8(d, 1, 65537));
  ASK("16 at an odd address", cuMemsetD16(d + 1, 1, 4));
  ASK("32 at an address of 2", cuMemsetD32(d + 2, 1, 4));
  ASK("32 at an address of 2, none", cuMemsetD32(d + 2, 1, 0));
  ASK("32 beyond the end", cuMemsetD32(d, 1, 16385));
  ASK("host memory", cuMemsetD8((CUdeviceptr)host, 1, 16));
  size_t pitches[] = {0, 1, 15, 16, 17, 18, 20};
  for (int i = 0; i < 7; i++) {
    ASK(W("8, pitch %zu", pitches[i]), cuMemsetD2D8(d, pitches[i], 1, 16, 4));
    ASK(W("8, pitch %zu, one row", pitches[i]), cuMemsetD2D8(d, pitches[i], 1, 16, 1));
    ASK(W("16, pitch %zu", pitches[i]), cuMemsetD2D16(d, pitches[i], 1, 8, 4));
    ASK(W("32, pitch %zu", pitches[i]), cuMemsetD2D32(d, pitches[i], 1, 4, 4));
  }
  ASK("plane of width 0", cuMemsetD2D8(d, 16, 1, 0, 4));
  ASK("plane of height 0", cuMemsetD2D8(d, 16, 1, 16, 0));
  ASK("plane beyond", cuMemsetD2D8(d, 1024, 1, 16, 65));
  ASK("plane whose last row ends at the end", cuMemsetD2D8(d, 1024, 1, 1024, 64));
  RISK("at 0", cuMemsetD8(0, 1, 16));
  RISK("at an address that is not memory", cuMemsetD8(0x1000, 1, 16));
}

static void batches(void) {
  make();
  CUstream s;
  DO(cuStreamCreate(&s, 1));
  CUdeviceptr to[3] = {d, d + 4096, d + 8192}, from[3] = {e, e + 4096, e + 8192};
  size_t sizes[3] = {100, 200, 300}, at[2] = {0, 2};
  CUmemcpyAttributes a[2];
  SET(a);
  a[0].srcAccessOrder = a[1].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  ASK("one attribute", cuMemcpyBatchAsync(to, from, sizes, 3, a, at, 1, s));
  ASK("two attributes", cuMemcpyBatchAsync(to, from, sizes, 3, a, at, 2, s));
  ASK("none", cuMemcpyBatchAsync(to, from, sizes, 0, a, at, 1, s));
  ASK("no attributes", cuMemcpyBatchAsync(to, from, sizes, 3, a, at, 0, s));
  ASK("the NULL stream", cuMemcpyBatchAsync(to, from, sizes, 3, a, at, 1, NULL));
  ASK("the legacy stream", cuMemcpyBatchAsync(to, from, sizes, 3, a, at, 1, CU_STREAM_LEGACY));
  ASK("the thread's stream", cuMemcpyBatchAsync(to, from, sizes, 3, a, at, 1, CU_STREAM_PER_THREAD));
  for (int order = 0; order <= 4; order++) {
    a[0].srcAccessOrder = order;
    ASK(W("order %d", order), cuMemcpyBatchAsync(to, from, sizes, 3, a, at, 1, s));
  }
  a[0].srcAccessOrder = 1;
  for (int flags = 1; flags <= 4; flags *= 2) {
    a[0].flags = flags;
    ASK(W("flags %d", flags), cuMemcpyBatchAsync(to, from, sizes, 3, a, at, 1, s));
  }
  a[0].flags = 0, at[0] = 1;
  ASK("the first index is 1", cuMemcpyBatchAsync(to, from, sizes, 3, a, at, 1, s));
  at[0] = 0, at[1] = 3;
  ASK("an index beyond", cuMemcpyBatchAsync(to, from, sizes, 3, a, at, 2, s));
  at[1] = 0;
  ASK("the same index twice", cuMemcpyBatchAsync(to, from, sizes, 3, a, at, 2, s));
  at[1] = 2, sizes[1] = 0;
  ASK("a size of 0", cuMemcpyBatchAsync(to, from, sizes, 3, a, at, 1, s));
  sizes[1] = 200, to[1] = 0;
  ASK("a target 0", cuMemcpyBatchAsync(to, from, sizes, 3, a, at, 1, s));
  to[1] = (CUdeviceptr)host;
  ASK("a pageable target", cuMemcpyBatchAsync(to, from, sizes, 3, a, at, 1, s));
  to[1] = d + 65000, sizes[1] = 1000;
  ASK("beyond the memory", cuMemcpyBatchAsync(to, from, sizes, 3, a, at, 1, s));
  to[1] = d + 4096, sizes[1] = 200;
  for (int type = 0; type <= 5; type++) {
    a[0].srcLocHint.type = type, a[0].srcLocHint.id = 0;
    ASK(W("hint of type %d", type), cuMemcpyBatchAsync(to, from, sizes, 3, a, at, 1, s));
  }
  a[0].srcLocHint.type = 1, a[0].srcLocHint.id = 99;
  ASK("hint of device 99", cuMemcpyBatchAsync(to, from, sizes, 3, a, at, 1, s));
  RISK("targets NULL", cuMemcpyBatchAsync(NULL, from, sizes, 3, a, at, 1, s));
  RISK("sources NULL", cuMemcpyBatchAsync(to, NULL, sizes, 3, a, at, 1, s));
  RISK("sizes NULL", cuMemcpyBatchAsync(to, from, NULL, 3, a, at, 1, s));
  RISK("attributes NULL", cuMemcpyBatchAsync(to, from, sizes, 3, NULL, at, 1, s));
  RISK("indices NULL", cuMemcpyBatchAsync(to, from, sizes, 3, a, NULL, 1, s));
  CUDA_MEMCPY3D_BATCH_OP op;
  SET(op);
  op.src.type = op.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER, op.src.op.ptr.ptr = e, op.dst.op.ptr.ptr = d,
  op.srcAccessOrder = 1;
  op.extent.width = 16, op.extent.height = 4, op.extent.depth = 1;
  CUDA_MEMCPY3D_BATCH_OP good = op;
  ASK("three dimensions", cuMemcpy3DBatchAsync(1, &op, 0, s));
  ASK("three dimensions, none", cuMemcpy3DBatchAsync(0, &op, 0, s));
  ASK("three dimensions, flags 1", cuMemcpy3DBatchAsync(1, &op, 1, s));
  ASK("three dimensions, the NULL stream", cuMemcpy3DBatchAsync(1, &op, 0, NULL));
  op.extent.width = 0;
  ASK("three dimensions, width 0", cuMemcpy3DBatchAsync(1, &op, 0, s));
  op = good, op.src.op.ptr.rowLength = 8;
  ASK("three dimensions, row below width", cuMemcpy3DBatchAsync(1, &op, 0, s));
  op = good, op.src.type = 0;
  ASK("three dimensions, type 0", cuMemcpy3DBatchAsync(1, &op, 0, s));
  op = good, op.srcAccessOrder = 0;
  ASK("three dimensions, order 0", cuMemcpy3DBatchAsync(1, &op, 0, s));
  RISK("three dimensions, NULL", cuMemcpy3DBatchAsync(1, NULL, 0, s));
  DO(cuStreamSynchronize(s));
}

CASES RUN(lines) RUN(planes) RUN(volumes) RUN(sets) RUN(batches) END
