/* Physical memory: cuMemCreate and what it asks of its properties, handles, granularity. */
#include "ask.h"

static CUmemGenericAllocationHandle make(CUmemAllocationProp p, size_t size) {
  CUmemGenericAllocationHandle h = 0;
  DO(cuMemCreate(&h, size, &p, 0));
  return h;
}

static void properties(void) {
  CUmemGenericAllocationHandle h = 0;
  CUmemAllocationProp p = pinned();
  ASK("plain", cuMemCreate(&h, 2 * MIB, &p, 0), "%d", h != 0);
  for (int flag = 1; flag <= 4; flag *= 2) ASK(W("flags %d", flag), cuMemCreate(&h, 2 * MIB, &p, flag));
  size_t sizes[] = {0, 1, 4096, 65536, MIB, 2 * MIB + 1, 3 * MIB, 4 * MIB};
  for (int i = 0; i < 8; i++) ASK(W("size %zu", sizes[i]), cuMemCreate(&h, sizes[i], &p, 0));
  ASK("more than the device has", cuMemCreate(&h, (size_t)1 << 40, &p, 0));
  for (int type = 0; type <= 4; type++) {
    p = pinned(), p.type = type;
    ASK(W("type %d", type), cuMemCreate(&h, 2 * MIB, &p, 0));
  }
  for (int type = 0; type <= 6; type++) {
    p = pinned(), p.location.type = type;
    ASK(W("location type %d", type), cuMemCreate(&h, 2 * MIB, &p, 0));
  }
  for (int id = -2; id <= 1; id++) {
    p = pinned(), p.location.id = id ? id * 50 : 0;
    ASK(W("location id %d", p.location.id), cuMemCreate(&h, 2 * MIB, &p, 0));
  }
  for (int types = 1; types <= 16; types = types < 4 ? types + 1 : types * 2) {
    p = pinned(), p.requestedHandleTypes = types;
    ASK(W("handle types %d", types), cuMemCreate(&h, 2 * MIB, &p, 0));
  }
  p = pinned(), p.win32HandleMetaData = &p;
  ASK("win32 metadata", cuMemCreate(&h, 2 * MIB, &p, 0));
  for (int type = 0; type <= 3; type++) {
    p = pinned(), p.allocFlags.compressionType = type;
    ASK(W("compression %d", type), cuMemCreate(&h, 2 * MIB, &p, 0));
  }
  for (int capable = 0; capable <= 2; capable++) {
    p = pinned(), p.allocFlags.gpuDirectRDMACapable = capable;
    ASK(W("RDMA capable %d", capable), cuMemCreate(&h, 2 * MIB, &p, 0));
  }
  for (int usage = 1; usage <= 4; usage++) {
    p = pinned(), p.allocFlags.usage = usage;
    ASK(W("usage %d", usage), cuMemCreate(&h, 2 * MIB, &p, 0));
  }
  for (int i = 0; i < 4; i++) {
    p = pinned(), p.allocFlags.reserved[i] = 1;
    ASK(W("reserved byte %d", i), cuMemCreate(&h, 2 * MIB, &p, 0));
  }
}

static void nulls(void) {
  CUmemGenericAllocationHandle h = 7;
  CUmemAllocationProp p = pinned();
  size_t size = 7;
  RISK("create without a handle", cuMemCreate(NULL, 2 * MIB, &p, 0));
  RISK("create without properties", cuMemCreate(&h, 2 * MIB, NULL, 0), "%d", h == 7);
  RISK("granularity without a size", cuMemGetAllocationGranularity(NULL, &p, 0));
  RISK("granularity without properties", cuMemGetAllocationGranularity(&size, NULL, 0), "%zu", size);
  RISK("properties of 0", cuMemGetAllocationPropertiesFromHandle(&p, 0));
  h = make(p, 2 * MIB);
  RISK("properties into NULL", cuMemGetAllocationPropertiesFromHandle(NULL, h));
  RISK("release 0", cuMemRelease(0));
  RISK("release a number", cuMemRelease(12345));
  RISK("retain of NULL", cuMemRetainAllocationHandle(&h, NULL));
}

static void granularity(void) {
  for (int option = 0; option <= 2; option++)
    for (int kind = 0; kind < 6; kind++) {
      CUmemAllocationProp p = pinned();
      const char *what[] = {"plain", "compressed", "fd", "host", "numa 0", "type 0"};
      if (kind == 1) p.allocFlags.compressionType = 1;
      if (kind == 2) p.requestedHandleTypes = 1;
      if (kind == 3) p.location.type = CU_MEM_LOCATION_TYPE_HOST;
      if (kind == 4) p.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
      if (kind == 5) p.type = 0;
      size_t size = 7;
      ASK(W("%s, option %d", what[kind], option), cuMemGetAllocationGranularity(&size, &p, option), "%zu", size);
    }
  CUmemAllocationProp p = pinned();
  size_t size = 7;
  p.location.id = 99;
  ASK("device 99", cuMemGetAllocationGranularity(&size, &p, 0), "%zu", size);
  p = pinned(), p.allocFlags.reserved[0] = 1;
  ASK("reserved byte", cuMemGetAllocationGranularity(&size, &p, 0), "%zu", size);
}

static void handles(void) {
  CUmemAllocationProp p = pinned(), q;
  p.requestedHandleTypes = 1;
  p.allocFlags.gpuDirectRDMACapable = 1;
  CUmemGenericAllocationHandle h = make(p, 2 * MIB), again = 0;
  memset(&q, 0xee, sizeof q);
  ASK("properties", cuMemGetAllocationPropertiesFromHandle(&q, h), "%d %d %d %d %d %d %d %d", q.type,
      q.requestedHandleTypes, q.location.type, q.location.id, q.win32HandleMetaData != NULL,
      q.allocFlags.compressionType, q.allocFlags.gpuDirectRDMACapable, q.allocFlags.usage);
  SAY("reserved of properties", "%d %d", q.allocFlags.reserved[0], q.allocFlags.reserved[3]);
  CUdeviceptr a = 0;
  DO(cuMemAddressReserve(&a, 4 * MIB, 0, 0, 0));
  ASK("retain by an address without a mapping", cuMemRetainAllocationHandle(&again, (void *)a));
  DO(cuMemMap(a, 2 * MIB, 0, h, 0));
  ASK("retain by the mapping", cuMemRetainAllocationHandle(&again, (void *)a), "%d", again == h);
  ASK("retain by its last byte", cuMemRetainAllocationHandle(&again, (void *)(a + 2 * MIB - 1)), "%d", again == h);
  ASK("retain behind it", cuMemRetainAllocationHandle(&again, (void *)(a + 2 * MIB)));
  ASK("release one", cuMemRelease(h));
  ASK("release two", cuMemRelease(h));
  ASK("release three", cuMemRelease(h));
  ASK("properties of the mapping's memory", cuMemGetAllocationPropertiesFromHandle(&q, h));
  ASK("retain after every release", cuMemRetainAllocationHandle(&again, (void *)a));
  CUdeviceptr d = 0;
  DO(cuMemAlloc(&d, 2 * MIB));
  ASK("retain by memory of cuMemAlloc", cuMemRetainAllocationHandle(&again, (void *)d));
  int local = 0;
  ASK("retain by host memory", cuMemRetainAllocationHandle(&again, &local));
}

static void released(void) {
  CUmemGenericAllocationHandle h = make(pinned(), 2 * MIB), other_ = make(pinned(), 2 * MIB);
  CUmemAllocationProp q;
  int fd;
  ASK("release", cuMemRelease(h));
  ASK("release again", cuMemRelease(h));
  ASK("properties", cuMemGetAllocationPropertiesFromHandle(&q, h));
  ASK("export", cuMemExportToShareableHandle(&fd, h, 1, 0));
  CUdeviceptr a = 0;
  DO(cuMemAddressReserve(&a, 2 * MIB, 0, 0, 0));
  ALONE("map", cuMemMap(a, 2 * MIB, 0, h, 0));
  ASK("the other's properties", cuMemGetAllocationPropertiesFromHandle(&q, other_));
}

CASES RUN(properties) RUN(nulls) RUN(granularity) RUN(handles) RUN(released) END
