/* Arrays and mipmapped arrays: formats, channels, dimensions, flags, descriptors, levels, planes. */
#include "ask.h"

static CUDA_ARRAY3D_DESCRIPTOR three(size_t w, size_t h, size_t d, unsigned flags) {
  CUDA_ARRAY3D_DESCRIPTOR a;
  SET(a);
  a.Width = w, a.Height = h, a.Depth = d, a.Format = CU_AD_FORMAT_FLOAT, a.NumChannels = 1, a.Flags = flags;
  return a;
}

static void plain(void) {
  CUarray a = NULL;
  CUDA_ARRAY_DESCRIPTOR p = {64, 64, CU_AD_FORMAT_FLOAT, 1}, q;
  ASK("plain", cuArrayCreate(&a, &p));
  SET(q);
  ASK("descriptor", cuArrayGetDescriptor(&q, a), "%zu %zu %d %d", q.Width, q.Height, q.Format, q.NumChannels);
  CUDA_ARRAY3D_DESCRIPTOR r;
  SET(r);
  ASK("descriptor of three", cuArray3DGetDescriptor(&r, a), "%zu %zu %zu %d %d %u", r.Width, r.Height, r.Depth,
      r.Format, r.NumChannels, r.Flags);
  for (int c = 0; c <= 5; c++) {
    p.NumChannels = c;
    ASK(W("channels %d", c), cuArrayCreate(&a, &p));
  }
  p.NumChannels = 1;
  int formats[] = {0,    1,    2,    3,    4,    8,    9,    10,   11,   0x10, 0x20,
                   0x50, 0x91, 0x95, 0x9d, 0x9f, 0xb0, 0xc0, 0xc1, 0xc2, 0xcb, 0xcc};
  for (int i = 0; i < 22; i++)
    for (int c = 1; c <= 4; c *= 2) {
      p.Format = formats[i], p.NumChannels = c;
      ASK(W("format %x of %d", formats[i], c), cuArrayCreate(&a, &p));
    }
  size_t widths[] = {0, 1, 131072, 131073, 262144};
  for (int i = 0; i < 5; i++) {
    CUDA_ARRAY_DESCRIPTOR one = {widths[i], 0, CU_AD_FORMAT_UNSIGNED_INT8, 1},
                          two = {widths[i], 2, CU_AD_FORMAT_UNSIGNED_INT8, 1};
    ASK(W("line of %zu", widths[i]), cuArrayCreate(&a, &one));
    ASK(W("two rows of %zu", widths[i]), cuArrayCreate(&a, &two));
  }
  CUDA_ARRAY_DESCRIPTOR tall = {2, 65537, CU_AD_FORMAT_UNSIGNED_INT8, 1};
  ASK("65537 rows", cuArrayCreate(&a, &tall));
  tall.Height = 65536;
  ASK("65536 rows", cuArrayCreate(&a, &tall));
  RISK("into NULL", cuArrayCreate(NULL, &p));
  RISK("from NULL", cuArrayCreate(&a, NULL));
  RISK("destroy NULL", cuArrayDestroy(NULL));
  RISK("descriptor of NULL", cuArrayGetDescriptor(&q, NULL));
  RISK("descriptor into NULL", cuArrayGetDescriptor(NULL, a));
  ALONE("destroy twice", (cuArrayDestroy(a), cuArrayDestroy(a)));
}

static void deep(void) {
  CUarray a = NULL;
  CUDA_ARRAY3D_DESCRIPTOR p = three(16, 16, 16, 0), q;
  CUDA_ARRAY_DESCRIPTOR flat;
  ASK("plain", cuArray3DCreate(&a, &p));
  ASK("descriptor of two", cuArrayGetDescriptor(&flat, a), "%zu %zu", flat.Width, flat.Height);
  unsigned flags[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 33, 64, 65, 128, 129, 256, 512};
  size_t shapes[][3] = {{16, 0, 0}, {16, 16, 0}, {16, 16, 6}, {16, 16, 12}, {16, 8, 6}, {16, 0, 6}, {0, 16, 16}};
  for (int f = 0; f < 18; f++)
    for (int s = 0; s < 7; s++) {
      p = three(shapes[s][0], shapes[s][1], shapes[s][2], flags[f]);
      SET(q);
      CUresult code = cuArray3DCreate(&a, &p);
      ASK(W("flags %u, %zu %zu %zu", flags[f], shapes[s][0], shapes[s][1], shapes[s][2]), code);
      if (!code)
        ASK(W("flags of %u, %zu %zu %zu", flags[f], shapes[s][0], shapes[s][1], shapes[s][2]),
            cuArray3DGetDescriptor(&q, a), "%u", q.Flags);
    }
  CUarray plane = NULL;
  p = three(16, 16, 0, 0);
  DO(cuArray3DCreate(&a, &p));
  ASK("plane 0 of one plane", cuArrayGetPlane(&plane, a, 0));
  CUDA_ARRAY_SPARSE_PROPERTIES sparse;
  ASK("sparse properties of a dense array", cuArrayGetSparseProperties(&sparse, a));
  CUDA_ARRAY_MEMORY_REQUIREMENTS need;
  SET(need);
  ASK("memory requirements", cuArrayGetMemoryRequirements(&need, a, 0), "%zu %zu", need.size, need.alignment);
  p = three(1024, 1024, 0, CUDA_ARRAY3D_SPARSE);
  CUresult code = cuArray3DCreate(&a, &p);
  ASK("sparse", code);
  SET(sparse);
  if (!code)
    ASK("sparse properties", cuArrayGetSparseProperties(&sparse, a), "%u %u %u %u %llu %u", sparse.tileExtent.width,
        sparse.tileExtent.height, sparse.tileExtent.depth, sparse.miptailFirstLevel, sparse.miptailSize, sparse.flags);
  p = three(1024, 1024, 0, CUDA_ARRAY3D_DEFERRED_MAPPING);
  code = cuArray3DCreate(&a, &p);
  ASK("deferred", code);
  SET(need);
  if (!code)
    ASK("memory requirements of deferred", cuArrayGetMemoryRequirements(&need, a, 0), "%zu %zu", need.size,
        need.alignment);
  p = three(64, 64, 0, 0), p.Format = CU_AD_FORMAT_NV12, p.NumChannels = 3;
  code = cuArray3DCreate(&a, &p);
  ASK("NV12", code);
  if (!code)
    for (int i = 0; i <= 2; i++) {
      ASK(W("plane %d of NV12", i), cuArrayGetPlane(&plane, a, i));
      SET(q);
      if (i < 2)
        ASK(W("descriptor of plane %d", i), cuArray3DGetDescriptor(&q, plane), "%zu %zu %d %d", q.Width, q.Height,
            q.Format, q.NumChannels);
    }
  RISK("requirements into NULL", cuArrayGetMemoryRequirements(NULL, a, 0));
  RISK("plane into NULL", cuArrayGetPlane(NULL, a, 0));
  RISK("sparse into NULL", cuArrayGetSparseProperties(NULL, a));
}

static void levels(void) {
  CUmipmappedArray m = NULL;
  CUDA_ARRAY3D_DESCRIPTOR p = three(16, 8, 0, 0), q;
  for (int n = 0; n <= 7; n++) ASK(W("%d levels", n), cuMipmappedArrayCreate(&m, &p, n));
  DO(cuMipmappedArrayCreate(&m, &p, 5));
  CUarray a = NULL, again = NULL;
  for (int l = 0; l <= 5; l++) {
    CUresult code = cuMipmappedArrayGetLevel(&a, m, l);
    ASK(W("level %d", l), code);
    SET(q);
    if (!code)
      ASK(W("descriptor of level %d", l), cuArray3DGetDescriptor(&q, a), "%zu %zu %zu", q.Width, q.Height, q.Depth);
  }
  DO(cuMipmappedArrayGetLevel(&a, m, 1));
  ASK("the same level", cuMipmappedArrayGetLevel(&again, m, 1), "%d", a == again);
  ALONE("destroy a level", cuArrayDestroy(a));
  p = three(16, 16, 16, 0);
  ASK("in three dimensions", cuMipmappedArrayCreate(&m, &p, 5));
  DO(cuMipmappedArrayGetLevel(&a, m, 2));
  SET(q);
  ASK("level 2 of it", cuArray3DGetDescriptor(&q, a), "%zu %zu %zu", q.Width, q.Height, q.Depth);
  CUDA_ARRAY_MEMORY_REQUIREMENTS need;
  CUDA_ARRAY_SPARSE_PROPERTIES sparse;
  SET(need);
  ASK("requirements of a dense one", cuMipmappedArrayGetMemoryRequirements(&need, m, 0), "%zu %zu", need.size,
      need.alignment);
  ASK("sparse properties of a dense one", cuMipmappedArrayGetSparseProperties(&sparse, m));
  RISK("into NULL", cuMipmappedArrayCreate(NULL, &p, 1));
  RISK("from NULL", cuMipmappedArrayCreate(&m, NULL, 1));
  RISK("level into NULL", cuMipmappedArrayGetLevel(NULL, m, 0));
  RISK("level of NULL", cuMipmappedArrayGetLevel(&a, NULL, 0));
  RISK("destroy NULL", cuMipmappedArrayDestroy(NULL));
}

/* Formats of planes, and flags that other interfaces need. */
static void others(void) {
  CUarray a;
  CUmipmappedArray m;
  unsigned flags[] = {0, 1, 2, 8, 0x40, 0x80, 0x100, 0x102};
  int formats[] = {0xb0, 0x9f, 0xa2, 0xa5, 0xa8, 0xb2, 0x50};
  for (int f = 0; f < 7; f++)
    for (int k = 0; k < 8; k++) {
      CUDA_ARRAY3D_DESCRIPTOR p = three(64, 64, flags[k] & 1 ? 2 : 0, flags[k]);
      p.Format = formats[f], p.NumChannels = f == 3 || f == 4 || f == 6 ? 4 : 3;
      ASK(W("format %x, flags %u", formats[f], flags[k]), cuArray3DCreate(&a, &p));
    }
  int depths[] = {1, 2, 3, 0x10, 0x20};
  for (int f = 0; f < 5; f++)
    for (unsigned flag = 16; flag <= 32; flag *= 2) {
      CUDA_ARRAY3D_DESCRIPTOR p = three(64, 64, 0, flag);
      p.Format = depths[f];
      ASK(W("format %x, flags %u", depths[f], flag), cuArray3DCreate(&a, &p));
      ASK(W("format %x, flags %u, with levels", depths[f], flag), cuMipmappedArrayCreate(&m, &p, 2));
    }
  CUDA_ARRAY3D_DESCRIPTOR p = three(64, 64, 0, 0);
  CUdeviceptr d;
  CUDA_MEMCPY3D c;
  DO(cuArray3DCreate(&a, &p));
  DO(cuMemAlloc(&d, 65536));
  SET(c);
  c.srcMemoryType = CU_MEMORYTYPE_DEVICE, c.srcDevice = d, c.dstMemoryType = CU_MEMORYTYPE_ARRAY, c.dstArray = a;
  c.WidthInBytes = 64, c.Height = c.Depth = 1;
  ASK("copy to an array", cuMemcpy3D(&c));
  c.dstLOD = 1;
  ASK("copy to level 1 of an array", cuMemcpy3D(&c));
  c.dstLOD = 0, c.srcLOD = 1;
  ASK("copy from level 1 of memory to an array", cuMemcpy3D(&c));
}

static void copies(void) {
  CUarray a, b;
  CUdeviceptr d;
  char host[4096];
  CUDA_ARRAY_DESCRIPTOR one = {1024, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1}, two = {64, 16, CU_AD_FORMAT_FLOAT, 1};
  DO(cuArrayCreate(&a, &one));
  DO(cuArrayCreate(&b, &two));
  DO(cuMemAlloc(&d, 4096));
  ASK("to an array", cuMemcpyHtoA(a, 0, host, 1024));
  ASK("beyond its end", cuMemcpyHtoA(a, 0, host, 1025));
  ASK("at an offset", cuMemcpyHtoA(a, 1000, host, 24));
  ASK("at an offset beyond", cuMemcpyHtoA(a, 1025, host, 1));
  ASK("no bytes", cuMemcpyHtoA(a, 0, host, 0));
  ASK("a row of two dimensions", cuMemcpyHtoA(b, 0, host, 256));
  ASK("two rows", cuMemcpyHtoA(b, 0, host, 512));
  ASK("the second row", cuMemcpyHtoA(b, 256, host, 256));
  ASK("an offset in a row", cuMemcpyHtoA(b, 4, host, 252));
  ASK("an odd offset", cuMemcpyHtoA(b, 2, host, 4));
  ASK("from an array", cuMemcpyAtoH(host, a, 0, 1024));
  ASK("array to device", cuMemcpyAtoD(d, a, 0, 1024));
  ASK("device to array", cuMemcpyDtoA(a, 0, d, 1024));
  ASK("array to array", cuMemcpyAtoA(a, 0, a, 512, 100));
  ASK("arrays of two sizes", cuMemcpyAtoA(b, 0, a, 0, 256));
  RISK("to NULL", cuMemcpyHtoA(NULL, 0, host, 4));
  RISK("from NULL", cuMemcpyHtoA(a, 0, NULL, 4));
}

CASES RUN(plain) RUN(deep) RUN(levels) RUN(others) RUN(copies) END
