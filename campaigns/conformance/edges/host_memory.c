/* Host memory: allocation, registration, flags, device pointers. */
#include "ask.h"

static void *pages(size_t size) { return mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); }

static void allocating(void) {
  void *p = (void *)7;
  ASK("size 0", cuMemAllocHost(&p, 0), "%d", p == (void *)7);
  p = (void *)7;
  ASK("size 0 with flags", cuMemHostAlloc(&p, 0, 0), "%d", p == (void *)7);
  ASK("an enormous size", cuMemAllocHost(&p, (size_t)1 << 60));
  for (int flags = 0; flags <= 16; flags++) {
    unsigned got = 77;
    p = NULL;
    ASK(W("flags %d", flags), cuMemHostAlloc(&p, 100, flags));
    if (p) ASK(W("flags of %d", flags), cuMemHostGetFlags(&got, p), "%u", got);
  }
  unsigned got = 77;
  DO(cuMemAllocHost(&p, 100));
  ASK("flags of cuMemAllocHost", cuMemHostGetFlags(&got, p), "%u", got);
  ASK("flags of an inner byte", cuMemHostGetFlags(&got, (char *)p + 50), "%u", got);
  ASK("flags one past the end", cuMemHostGetFlags(&got, (char *)p + 100));
  int local;
  ASK("flags of the stack", cuMemHostGetFlags(&got, &local));
  CUdeviceptr d = 7, m = 0;
  DO(cuMemAlloc(&m, 100));
  ASK("flags of device memory", cuMemHostGetFlags(&got, (void *)m));
  ASK("device pointer", cuMemHostGetDevicePointer(&d, p, 0), "%d", d == (CUdeviceptr)p);
  ASK("device pointer of an inner byte", cuMemHostGetDevicePointer(&d, (char *)p + 5, 0), "%d",
      d == (CUdeviceptr)p + 5);
  ASK("device pointer with flags 1", cuMemHostGetDevicePointer(&d, p, 1));
  ASK("device pointer of the stack", cuMemHostGetDevicePointer(&d, &local, 0));
  ASK("device pointer of device memory", cuMemHostGetDevicePointer(&d, (void *)m, 0));
  ASK("free an inner byte", cuMemFreeHost((char *)p + 8));
  ASK("free", cuMemFreeHost(p));
  ASK("free again", cuMemFreeHost(p));
  ASK("free NULL", cuMemFreeHost(NULL));
  ASK("free the stack", cuMemFreeHost(&local));
  ASK("free device memory", cuMemFreeHost((void *)m));
  DO(cuMemAllocHost(&p, 100));
  ASK("cuMemFree of host memory", cuMemFree((CUdeviceptr)p));
  RISK("alloc into NULL", cuMemAllocHost(NULL, 100));
  RISK("alloc with flags into NULL", cuMemHostAlloc(NULL, 100, 0));
  RISK("flags into NULL", cuMemHostGetFlags(NULL, p));
  RISK("flags of NULL", cuMemHostGetFlags(&got, NULL));
  RISK("device pointer into NULL", cuMemHostGetDevicePointer(NULL, p, 0));
  RISK("device pointer of NULL", cuMemHostGetDevicePointer(&d, NULL, 0));
}

static void registering(void) {
  char *p = pages(65536);
  for (int flags = 0; flags <= 16; flags++) {
    unsigned got = 77;
    CUresult code = cuMemHostRegister(p, 8192, flags);
    ASK(W("flags %d", flags), code);
    if (!code) {
      ASK(W("flags of %d", flags), cuMemHostGetFlags(&got, p), "%u", got);
      DO(cuMemHostUnregister(p));
    }
  }
  ASK("size 0", cuMemHostRegister(p, 0, 0));
  ASK("an odd address", cuMemHostRegister(p + 100, 200, 0));
  ASK("what is in the same page", cuMemHostRegister(p + 1000, 200, 0));
  ASK("around it", cuMemHostRegister(p, 8192, 0));
  ASK("unregister by its page", cuMemHostUnregister(p));
  ASK("unregister by an inner byte", cuMemHostUnregister(p + 101));
  ASK("unregister", cuMemHostUnregister(p + 100));
  ASK("unregister again", cuMemHostUnregister(p + 100));
  DO(cuMemHostRegister(p, 4096, 0));
  ASK("twice", cuMemHostRegister(p, 4096, 0));
  ASK("a larger one", cuMemHostRegister(p, 8192, 0));
  ASK("the next page", cuMemHostRegister(p + 4096, 4096, 0));
  ASK("cuMemFreeHost of a registration", cuMemFreeHost(p));
  void *h, *unmapped = pages(8192), *read_only = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CUdeviceptr m = 0, managed = 0;
  DO(cuMemAllocHost(&h, 8192));
  DO(cuMemAlloc(&m, 8192));
  DO(cuMemAllocManaged(&managed, 8192, 1));
  ASK("pinned memory", cuMemHostRegister(h, 4096, 0));
  ASK("device memory", cuMemHostRegister((void *)m, 4096, 0));
  ASK("device memory as of a device", cuMemHostRegister((void *)m, 4096, CU_MEMHOSTREGISTER_IOMEMORY));
  ASK("managed memory", cuMemHostRegister((void *)managed, 4096, 0));
  ASK("read-only memory", cuMemHostRegister(read_only, 4096, 0));
  ASK("read-only memory, as such", cuMemHostRegister(read_only, 4096, CU_MEMHOSTREGISTER_READ_ONLY));
  ASK("ordinary memory as of a device", cuMemHostRegister(p + 32768, 4096, CU_MEMHOSTREGISTER_IOMEMORY));
  munmap(unmapped, 8192);
  ASK("unmapped memory", cuMemHostRegister(unmapped, 4096, 0));
  int local;
  ASK("unregister the stack", cuMemHostUnregister(&local));
  ASK("unregister pinned memory", cuMemHostUnregister(h));
  ASK("more than there is", cuMemHostRegister(p + 49152, (size_t)1 << 40, 0));
  RISK("NULL", cuMemHostRegister(NULL, 4096, 0));
  RISK("unregister NULL", cuMemHostUnregister(NULL));
}

static void device_memory(void) {
  CUdeviceptr m = 7, n = 7;
  size_t pitch = 7;
  ASK("size 0", cuMemAlloc(&m, 0), "%d", m == 7);
  ASK("too much", cuMemAlloc(&m, (size_t)1 << 40), "%d", m == 7);
  ASK("an enormous size", cuMemAlloc(&m, SIZE_MAX));
  ASK("plain", cuMemAlloc(&m, 1), "%d", m % 256 == 0);
  DO(cuMemAlloc(&n, 1));
  SAY("distance of two bytes", "%lld", (long long)(n - m));
  ASK("free a middle", cuMemFree(m + 1));
  ASK("free 0", cuMemFree(0));
  ASK("free", cuMemFree(m));
  ALONE("free again", cuMemFree(m));
  RISK("free an address that never was", cuMemFree(0x1000));
  int local;
  RISK("free the stack", cuMemFree((CUdeviceptr)&local));
  RISK("alloc into NULL", cuMemAlloc(NULL, 16));
  RISK("info without free", cuMemGetInfo(NULL, &pitch));
  RISK("info without total", cuMemGetInfo(&pitch, NULL));
  size_t widths[] = {0, 1, 100, 512, 513, 65536};
  for (int i = 0; i < 6; i++) {
    pitch = 7;
    ASK(W("pitch of width %zu", widths[i]), cuMemAllocPitch(&m, &pitch, widths[i], 4, 4), "%zu", pitch);
  }
  int elements[] = {0, 1, 2, 3, 4, 8, 12, 16, 32};
  for (int i = 0; i < 9; i++) {
    pitch = 7;
    ASK(W("pitch of elements of %d", elements[i]), cuMemAllocPitch(&m, &pitch, 100, 4, elements[i]), "%zu", pitch);
  }
  ASK("pitch of height 0", cuMemAllocPitch(&m, &pitch, 100, 0, 4));
  ASK("pitch too much", cuMemAllocPitch(&m, &pitch, (size_t)1 << 35, 64, 4));
  ASK("pitch that overflows", cuMemAllocPitch(&m, &pitch, (size_t)1 << 40, (size_t)1 << 40, 4));
  ASK("pitch of an enormous width", cuMemAllocPitch(&m, &pitch, SIZE_MAX, 1, 4));
  RISK("pitch without a pitch", cuMemAllocPitch(&m, NULL, 100, 4, 4));
  RISK("pitch into NULL", cuMemAllocPitch(NULL, &pitch, 100, 4, 4));
}

static void managed(void) {
  CUdeviceptr m = 7;
  for (int flags = 0; flags <= 4; flags++) ASK(W("flags %d", flags), cuMemAllocManaged(&m, 100, flags));
  ASK("size 0", cuMemAllocManaged(&m, 0, 1));
  RISK("into NULL", cuMemAllocManaged(NULL, 100, 1));
  DO(cuMemAllocManaged(&m, 65536, 1));
  CUstream s;
  DO(cuStreamCreate(&s, 1));
  for (int flags = 0; flags <= 5; flags++)
    ASK(W("attach with flags %d", flags), cuStreamAttachMemAsync(s, m, 0, flags));
  ASK("attach half", cuStreamAttachMemAsync(s, m, 32768, 4));
  ASK("attach whole", cuStreamAttachMemAsync(s, m, 65536, 4));
  ASK("attach an inner byte", cuStreamAttachMemAsync(s, m + 5, 0, 4));
  ASK("attach to the NULL stream", cuStreamAttachMemAsync(NULL, m, 0, 4));
  CUdeviceptr d;
  DO(cuMemAlloc(&d, 4096));
  ASK("attach device memory", cuStreamAttachMemAsync(s, d, 0, 4));
  CUmemLocation where = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  for (int advice = 0; advice <= 7; advice++) ASK(W("advice %d", advice), cuMemAdvise(m, 65536, advice, where));
  for (int type = 0; type <= 5; type++) {
    where.type = type;
    ASK(W("preferred location type %d", type), cuMemAdvise(m, 65536, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, where));
    ASK(W("prefetch to location type %d", type), cuMemPrefetchAsync(m, 65536, where, 0, s));
  }
  where.type = 1, where.id = 99;
  ASK("advice for device 99", cuMemAdvise(m, 65536, CU_MEM_ADVISE_SET_ACCESSED_BY, where));
  ASK("prefetch to device 99", cuMemPrefetchAsync(m, 65536, where, 0, s));
  where.id = 0;
  ASK("advice of size 0", cuMemAdvise(m, 0, 1, where));
  ASK("advice of device memory", cuMemAdvise(d, 4096, 1, where));
  ASK("prefetch of size 0", cuMemPrefetchAsync(m, 0, where, 0, s));
  ASK("prefetch of device memory", cuMemPrefetchAsync(d, 4096, where, 0, s));
  ASK("prefetch with flags 1", cuMemPrefetchAsync(m, 65536, where, 1, s));
  ASK("prefetch beyond", cuMemPrefetchAsync(m, 16 * MIB, where, 0, s));
  DO(cuStreamSynchronize(s));
  int v[4];
  for (int a = 0; a <= 9; a++) {
    memset(v, 0xee, sizeof v);
    ASK(W("range attribute %d", a), cuMemRangeGetAttribute(v, 4, a, m, 65536), "%d", v[0]);
  }
  ASK("range attribute of size 3", cuMemRangeGetAttribute(v, 3, 1, m, 65536));
  ASK("range attribute of size 8", cuMemRangeGetAttribute(v, 8, 1, m, 65536));
  ASK("accessed by, of two", cuMemRangeGetAttribute(v, 8, 3, m, 65536), "%d %d", v[0], v[1]);
  ASK("range attribute of device memory", cuMemRangeGetAttribute(v, 4, 1, d, 4096));
  ASK("range attribute of length 0", cuMemRangeGetAttribute(v, 4, 1, m, 0));
  RISK("range attribute into NULL", cuMemRangeGetAttribute(NULL, 4, 1, m, 65536));
}

CASES RUN(allocating) RUN(registering) RUN(device_memory) RUN(managed) END
