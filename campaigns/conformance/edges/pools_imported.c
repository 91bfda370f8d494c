/* A pool that was imported once or twice, and destroyed as often, or less. */
#include "ask.h"

static CUmemPoolPtrExportData data;

static void use(const char *when, CUmemoryPool in) {
  uint64_t value = 7;
  CUmemAccess_flags flags = 7;
  CUmemAccessDesc d = access_of(0, 3);
  CUdeviceptr m = 0;
  CUmemoryPool again = NULL;
  unsigned char byte = 0;
  RISK(W("attribute %s", when), cuMemPoolGetAttribute(in, 1, &value));
  RISK(W("access %s", when), cuMemPoolGetAccess(&flags, in, &d.location), "%d", flags);
  RISK(W("set access %s", when), cuMemPoolSetAccess(in, &d, 1));
  RISK(W("pointer %s", when), cuMemPoolImportPointer(&m, in, &data), "%d", m != 0);
  if (m) {
    RISK(W("read %s", when), cuMemcpyDtoH(&byte, m, 1), "%d", byte);
    RISK(W("pool of it %s", when), cuPointerGetAttribute(&again, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, m), "%d",
         again == in);
    RISK(W("free %s", when), cuMemFreeAsync(m, 0));
    DO(cuCtxSynchronize());
  }
}

static void exporter(int end) {
  char byte;
  begin();
  share_pool(end);
  if (read(end, &byte, 1) != 1) return; /* a death of the importer is its line alone */
}

static void imported(int imports, int destroys) {
  int end;
  other(&end, exporter);
  int fd = receive_fd(end);
  begin();
  CUmemoryPool first = NULL, next = NULL;
  if (read(end, &data, sizeof data) != sizeof data) return;
  DO(cuMemPoolImportFromShareableHandle(&first, (void *)(intptr_t)fd, 1, 0));
  for (int i = 1; i < imports; i++)
    ASK(W("import %d", i + 1), cuMemPoolImportFromShareableHandle(&next, (void *)(intptr_t)fd, 1, 0), "%d",
        next == first);
  CUmemAccessDesc d = access_of(0, 3);
  DO(cuMemPoolSetAccess(first, &d, 1));
  for (int i = 0; i < destroys; i++) RISK(W("destroy %d", i + 1), cuMemPoolDestroy(first));
  use("then", first);
  RISK("import then", cuMemPoolImportFromShareableHandle(&next, (void *)(intptr_t)fd, 1, 0), "%d", next == first);
  use("of that", next);
  pass(end);
}
static void once_once(void) { imported(1, 1); }
static void twice_once(void) { imported(2, 1); }
static void twice_twice(void) { imported(2, 2); }

CASES RUN_COLD(once_once) RUN_COLD(twice_once) RUN_COLD(twice_twice) END
