/* External memory and semaphores: every type, descriptors that are not what they should be. */
#include "ask.h"

static int exported(void) {
  CUmemGenericAllocationHandle h;
  CUmemAllocationProp p = pinned();
  int fd = -1;
  p.requestedHandleTypes = 1;
  DO(cuMemCreate(&h, 2 * MIB, &p, 0));
  DO(cuMemExportToShareableHandle(&fd, h, 1, 0));
  return fd;
}

static CUDA_EXTERNAL_MEMORY_HANDLE_DESC memory_of(int type, int fd, size_t size) {
  CUDA_EXTERNAL_MEMORY_HANDLE_DESC m;
  SET(m);
  m.type = type, m.handle.fd = fd, m.size = size;
  return m;
}

static void memory(void) {
  CUexternalMemory m = NULL;
  CUDA_EXTERNAL_MEMORY_HANDLE_DESC q;
  for (int type = 0; type <= 10; type++) {
    q = memory_of(type, type == 1 ? exported() : 0, 2 * MIB);
    if (type > 1 && type < 8) q.handle.win32.handle = (void *)0x1000;
    RISK(W("type %d", type), cuImportExternalMemory(&m, &q));
    q.handle.win32.handle = NULL;
    RISK(W("type %d, handle NULL", type), cuImportExternalMemory(&m, type == 1 ? (q.handle.fd = -1, &q) : &q));
  }
  q = memory_of(1, open("/dev/null", O_RDWR), 2 * MIB);
  ASK("/dev/null", cuImportExternalMemory(&m, &q));
  int ends[2];
  if (pipe(ends)) return;
  q = memory_of(1, ends[0], 2 * MIB);
  ASK("a pipe", cuImportExternalMemory(&m, &q));
  q = memory_of(1, 900, 2 * MIB);
  ASK("a closed descriptor", cuImportExternalMemory(&m, &q));
  q = memory_of(1, -1, 2 * MIB);
  ASK("descriptor -1", cuImportExternalMemory(&m, &q));
  size_t sizes[] = {0, 1, MIB, 4 * MIB};
  for (int i = 0; i < 4; i++) {
    q = memory_of(1, exported(), sizes[i]);
    ASK(W("size %zu", sizes[i]), cuImportExternalMemory(&m, &q));
  }
  for (int flags = 1; flags <= 4; flags *= 2) {
    q = memory_of(1, exported(), 2 * MIB), q.flags = flags;
    ASK(W("flags %d", flags), cuImportExternalMemory(&m, &q));
  }
  q = memory_of(1, exported(), 2 * MIB), q.reserved[0] = 1;
  ASK("reserved", cuImportExternalMemory(&m, &q));
  q = memory_of(1, exported(), 2 * MIB);
  RISK("into NULL", cuImportExternalMemory(NULL, &q));
  RISK("from NULL", cuImportExternalMemory(&m, NULL));
  RISK("destroy NULL", cuDestroyExternalMemory(NULL));
}

static void buffers(void) {
  CUexternalMemory m = NULL;
  CUDA_EXTERNAL_MEMORY_HANDLE_DESC q = memory_of(1, exported(), 2 * MIB);
  CUDA_EXTERNAL_MEMORY_BUFFER_DESC b;
  CUdeviceptr d = 0;
  ASK("import", cuImportExternalMemory(&m, &q));
  if (!m) return;
  SET(b);
  b.size = MIB;
  ASK("plain", cuExternalMemoryGetMappedBuffer(&d, m, &b), "%d", d != 0);
  CUdeviceptr e = 0;
  ASK("again", cuExternalMemoryGetMappedBuffer(&e, m, &b), "%d", e != d);
  b.offset = 1;
  ASK("offset 1", cuExternalMemoryGetMappedBuffer(&e, m, &b));
  b.offset = 4096;
  ASK("offset 4096", cuExternalMemoryGetMappedBuffer(&e, m, &b));
  b.offset = 2 * MIB;
  ASK("offset of the size", cuExternalMemoryGetMappedBuffer(&e, m, &b));
  b.offset = 0, b.size = 0;
  ASK("size 0", cuExternalMemoryGetMappedBuffer(&e, m, &b));
  b.size = 4 * MIB;
  ASK("beyond", cuExternalMemoryGetMappedBuffer(&e, m, &b));
  b.size = MIB, b.flags = 1;
  ASK("flags 1", cuExternalMemoryGetMappedBuffer(&e, m, &b));
  b.flags = 0, b.reserved[0] = 1;
  ASK("reserved", cuExternalMemoryGetMappedBuffer(&e, m, &b));
  b.reserved[0] = 0;
  RISK("into NULL", cuExternalMemoryGetMappedBuffer(NULL, m, &b));
  RISK("of NULL", cuExternalMemoryGetMappedBuffer(&e, NULL, &b));
  RISK("from NULL", cuExternalMemoryGetMappedBuffer(&e, m, NULL));
  ASK("set the buffer", cuMemsetD8(d, 3, MIB));
  int type = 77;
  ASK("its memory type", cuPointerGetAttribute(&type, 2, d), "%d", type);
  CUdeviceptr base = 7;
  size_t size = 7;
  ASK("its range", cuMemGetAddressRange(&base, &size, d + 1), "%d %zu", base == d, size);
  CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC a;
  SET(a);
  a.numLevels = 1, a.arrayDesc.Width = 64, a.arrayDesc.Height = 64, a.arrayDesc.Format = CU_AD_FORMAT_FLOAT,
  a.arrayDesc.NumChannels = 1;
  CUmipmappedArray mm = NULL;
  ASK("an array", cuExternalMemoryGetMappedMipmappedArray(&mm, m, &a), "%d", mm != NULL);
  a.numLevels = 0;
  ASK("an array of no levels", cuExternalMemoryGetMappedMipmappedArray(&mm, m, &a));
  a.numLevels = 1, a.offset = 2 * MIB;
  ASK("an array beyond", cuExternalMemoryGetMappedMipmappedArray(&mm, m, &a));
  ASK("destroy while it is mapped", cuDestroyExternalMemory(m));
  ASK("set the buffer after that", cuMemsetD8(d, 3, 16));
  ASK("free the buffer", cuMemFree(d));
}

static void semaphores(void) {
  CUexternalSemaphore s = NULL;
  CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC q;
  for (int type = 0; type <= 12; type++) {
    SET(q);
    q.type = type;
    RISK(W("type %d, descriptor 0 or NULL", type), cuImportExternalSemaphore(&s, &q));
    q.handle.fd = -1;
    RISK(W("type %d, descriptor -1", type), cuImportExternalSemaphore(&s, &q));
    SET(q);
    q.type = type, q.handle.fd = exported();
    if (type == 1 || type == 9) RISK(W("type %d, a descriptor of memory", type), cuImportExternalSemaphore(&s, &q));
    q.handle.fd = open("/dev/null", O_RDWR);
    if (type == 1 || type == 9) RISK(W("type %d, /dev/null", type), cuImportExternalSemaphore(&s, &q));
    q.flags = 1;
    if (type == 1 || type == 9) RISK(W("type %d, flags 1", type), cuImportExternalSemaphore(&s, &q));
    q.handle.fd = 900, q.flags = 0;
    if (type == 1 || type == 9) RISK(W("type %d, a closed descriptor", type), cuImportExternalSemaphore(&s, &q));
  }
  RISK("into NULL", cuImportExternalSemaphore(NULL, &q));
  RISK("from NULL", cuImportExternalSemaphore(&s, NULL));
  RISK("destroy NULL", cuDestroyExternalSemaphore(NULL));
  CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS p;
  CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS w;
  SET(p);
  SET(w);
  CUexternalSemaphore none = NULL;
  RISK("signal none", cuSignalExternalSemaphoresAsync(&none, &p, 0, 0));
  RISK("wait for none", cuWaitExternalSemaphoresAsync(&none, &w, 0, 0));
  RISK("signal NULL", cuSignalExternalSemaphoresAsync(&none, &p, 1, 0));
  RISK("wait for NULL", cuWaitExternalSemaphoresAsync(&none, &w, 1, 0));
  RISK("signal with a NULL array", cuSignalExternalSemaphoresAsync(NULL, &p, 1, 0));
  RISK("signal without parameters", cuSignalExternalSemaphoresAsync(&none, NULL, 1, 0));
  CUgraph g;
  CUgraphNode n;
  CUDA_EXT_SEM_SIGNAL_NODE_PARAMS sp = {&none, &p, 0};
  DO(cuGraphCreate(&g, 0));
  RISK("a node that signals none", cuGraphAddExternalSemaphoresSignalNode(&n, g, NULL, 0, &sp));
  sp.numExtSems = 1;
  RISK("a node that signals NULL", cuGraphAddExternalSemaphoresSignalNode(&n, g, NULL, 0, &sp));
  CUDA_EXT_SEM_WAIT_NODE_PARAMS wp = {&none, &w, 0};
  RISK("a node that waits for none", cuGraphAddExternalSemaphoresWaitNode(&n, g, NULL, 0, &wp));
}

static void graphics(void) {
  CUgraphicsResource r = NULL;
  RISK("map none", cuGraphicsMapResources(0, &r, 0));
  RISK("map NULL", cuGraphicsMapResources(1, &r, 0));
  RISK("unmap none", cuGraphicsUnmapResources(0, &r, 0));
  RISK("unregister NULL", cuGraphicsUnregisterResource(NULL));
  CUdeviceptr d;
  size_t size;
  RISK("pointer of NULL", cuGraphicsResourceGetMappedPointer(&d, &size, NULL));
  RISK("flags of NULL", cuGraphicsResourceSetMapFlags(NULL, 0));
}

CASES RUN(memory) RUN(buffers) RUN(semaphores) RUN(graphics) END
