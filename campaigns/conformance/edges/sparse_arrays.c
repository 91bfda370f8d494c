/* Memory mapped into arrays: cuMemMapArrayAsync and what it asks. */
#include "ask.h"

static CUarray a;
static CUmipmappedArray m;
static CUmemGenericAllocationHandle h;
static CUarrayMapInfo info;

static void make(void) {
  CUDA_ARRAY3D_DESCRIPTOR p;
  CUmemAllocationProp q = pinned();
  SET(p);
  p.Width = p.Height = 1024, p.Format = CU_AD_FORMAT_FLOAT, p.NumChannels = 1, p.Flags = CUDA_ARRAY3D_SPARSE;
  ASK("sparse array", cuArray3DCreate(&a, &p));
  ASK("sparse mipmapped array", cuMipmappedArrayCreate(&m, &p, 4));
  q.allocFlags.usage = CU_MEM_CREATE_USAGE_TILE_POOL;
  ASK("memory for tiles", cuMemCreate(&h, 4 * MIB, &q, 0));
  SET(info);
  info.resourceType = CU_RESOURCE_TYPE_ARRAY, info.resource.array = a,
  info.subresourceType = CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL;
  info.subresource.sparseLevel.extentWidth = 128, info.subresource.sparseLevel.extentHeight = 128,
  info.subresource.sparseLevel.extentDepth = 1;
  info.memOperationType = CU_MEM_OPERATION_TYPE_MAP, info.memHandleType = CU_MEM_HANDLE_TYPE_GENERIC,
  info.memHandle.memHandle = h, info.deviceBitMask = 1;
}

static void mapping(void) {
  make();
  CUarrayMapInfo i = info;
  ASK("a tile", cuMemMapArrayAsync(&i, 1, 0));
  ASK("none", cuMemMapArrayAsync(&i, 0, 0));
  i.offset = 65536;
  ASK("at an offset", cuMemMapArrayAsync(&i, 1, 0));
  i.offset = 1;
  ASK("at an odd offset", cuMemMapArrayAsync(&i, 1, 0));
  i.offset = 4 * MIB;
  ASK("beyond the memory", cuMemMapArrayAsync(&i, 1, 0));
  i = info, i.subresource.sparseLevel.offsetX = 1;
  ASK("at x 1", cuMemMapArrayAsync(&i, 1, 0));
  i = info, i.subresource.sparseLevel.extentWidth = 100;
  ASK("an extent of 100", cuMemMapArrayAsync(&i, 1, 0));
  i = info, i.subresource.sparseLevel.offsetX = 1024;
  ASK("beyond the array", cuMemMapArrayAsync(&i, 1, 0));
  i = info, i.subresource.sparseLevel.level = 1;
  ASK("level 1 of one", cuMemMapArrayAsync(&i, 1, 0));
  i = info, i.subresource.sparseLevel.extentDepth = 0;
  ASK("depth 0", cuMemMapArrayAsync(&i, 1, 0));
  for (int mask = 0; mask <= 3; mask++) {
    i = info, i.deviceBitMask = mask;
    ASK(W("mask of devices %d", mask), cuMemMapArrayAsync(&i, 1, 0));
  }
  for (int flags = 1; flags <= 2; flags++) {
    i = info, i.flags = flags;
    ASK(W("flags %d", flags), cuMemMapArrayAsync(&i, 1, 0));
  }
  for (int op = 0; op <= 3; op++) {
    i = info, i.memOperationType = op;
    ASK(W("operation %d", op), cuMemMapArrayAsync(&i, 1, 0));
    i = info, i.subresourceType = op;
    i.subresource.miptail.size = 65536;
    ASK(W("subresource type %d", op), cuMemMapArrayAsync(&i, 1, 0));
    i = info, i.memHandleType = op;
    ASK(W("handle type %d", op), cuMemMapArrayAsync(&i, 1, 0));
    i = info, i.resourceType = op;
    RISK(W("resource type %d", op), cuMemMapArrayAsync(&i, 1, 0));
  }
  i = info, i.reserved[0] = 1;
  ASK("reserved", cuMemMapArrayAsync(&i, 1, 0));
  CUmemGenericAllocationHandle plain = 0;
  CUmemAllocationProp q = pinned();
  DO(cuMemCreate(&plain, 4 * MIB, &q, 0));
  i = info, i.memHandle.memHandle = plain;
  ASK("memory that is not for tiles", cuMemMapArrayAsync(&i, 1, 0));
  CUdeviceptr v = 0;
  DO(cuMemAddressReserve(&v, 4 * MIB, 0, 0, 0));
  ASK("memory for tiles in a range", cuMemMap(v, 4 * MIB, 0, h, 0));
  i = info, i.memOperationType = CU_MEM_OPERATION_TYPE_UNMAP, i.memHandle.memHandle = 0;
  ASK("unmap", cuMemMapArrayAsync(&i, 1, 0));
  DO(cuCtxSynchronize());
  CUDA_ARRAY_DESCRIPTOR d = {1024, 1024, CU_AD_FORMAT_FLOAT, 1};
  CUarray dense;
  DO(cuArrayCreate(&dense, &d));
  i = info, i.resource.array = dense;
  ASK("a dense array", cuMemMapArrayAsync(&i, 1, 0));
  RISK("from NULL", cuMemMapArrayAsync(NULL, 1, 0));
}

static void properties(void) {
  make();
  CUDA_ARRAY_SPARSE_PROPERTIES p;
  SET(p);
  ASK("of the array", cuArrayGetSparseProperties(&p, a), "%u %u %u %u %llu %u", p.tileExtent.width, p.tileExtent.height,
      p.tileExtent.depth, p.miptailFirstLevel, p.miptailSize, p.flags);
  SET(p);
  ASK("of the mipmapped array", cuMipmappedArrayGetSparseProperties(&p, m), "%u %u %u %u %llu %u", p.tileExtent.width,
      p.tileExtent.height, p.tileExtent.depth, p.miptailFirstLevel, p.miptailSize, p.flags);
  CUarray level;
  DO(cuMipmappedArrayGetLevel(&level, m, 1));
  ASK("of a level", cuArrayGetSparseProperties(&p, level));
  int formats[] = {1, 2, 3, 0x10, 0x20, 0xb0, 0xc0};
  for (int i = 0; i < 7; i++)
    for (int c = 1; c <= 4; c *= 2) {
      CUDA_ARRAY3D_DESCRIPTOR d;
      SET(d);
      d.Width = d.Height = 512, d.Format = formats[i], d.NumChannels = c, d.Flags = CUDA_ARRAY3D_SPARSE;
      CUarray x;
      SET(p);
      if (!cuArray3DCreate(&x, &d))
        ASK(W("of format %x, %d channels", formats[i], c), cuArrayGetSparseProperties(&p, x), "%u %u %u",
            p.tileExtent.width, p.tileExtent.height, p.tileExtent.depth);
      else SAY(W("format %x, %d channels", formats[i], c), "refused");
    }
  size_t shapes[][3] = {{16, 0, 0}, {1024, 0, 0}, {16, 16, 0}, {64, 64, 64}, {1024, 1024, 4}};
  for (int i = 0; i < 5; i++) {
    CUDA_ARRAY3D_DESCRIPTOR d;
    SET(d);
    d.Width = shapes[i][0], d.Height = shapes[i][1], d.Depth = shapes[i][2], d.Format = CU_AD_FORMAT_FLOAT,
    d.NumChannels = 1, d.Flags = CUDA_ARRAY3D_SPARSE;
    CUarray x;
    ASK(W("%zu %zu %zu", shapes[i][0], shapes[i][1], shapes[i][2]), cuArray3DCreate(&x, &d));
  }
}

CASES RUN(mapping) RUN(properties) END
