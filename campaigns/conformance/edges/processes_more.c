/* Processes: forks before and after cuInit, IPC handles, exporters that end first, descriptors that are no handles. */
#include "ask.h"

static CUstream s_;
static int get(CUdeviceptr p) {
  unsigned char byte = 0;
  int code = cuMemcpyDtoH(&byte, p, 1);
  return code ? 1000 + code : byte;
}
/* All of a message; 0 if it did not come. */
static int have(int end, void *to, size_t n) { return read(end, to, n) == (ssize_t)n; }
static void give(int end, const void *from, size_t n) {
  if (write(end, from, n) != (ssize_t)n) SAY("no message sent", "%s", "");
}
static void ended(const char *words, pid_t child) {
  int status = 0;
  if (waitpid(child, &status, 0) < 0) SAY(words, "not there");
  else SAY(words, "%d %d", WIFSIGNALED(status) ? WTERMSIG(status) : 0, WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

static void child_after_init(void) {
  if (chosen_) return;
  CUdeviceptr d = 0;
  CUstream s = NULL;
  CUevent e = NULL;
  DO(cuMemAlloc(&d, 4096));
  DO(cuMemsetD8(d, 5, 4096));
  DO(cuStreamCreate(&s, 0));
  DO(cuEventCreate(&e, 0));
  DO(cuCtxSynchronize());
  fflush(stdout);
  pid_t child = fork();
  if (!child) {
    case_ = "child_after_init/child";
    alarm(20);
    CUdeviceptr n = 0;
    CUcontext c = NULL;
    CUdevice dev = 7;
    int count = -7, v = -7;
    const char *name = NULL;
    ASK("cuInit", cuInit(0));
    ASK("version", cuDriverGetVersion(&v), "%d", v >= 13000);
    ASK("name of an error", cuGetErrorName(CUDA_ERROR_NOT_INITIALIZED, &name), "%s", name ? name : "-");
    ASK("count", cuDeviceGetCount(&count), "%d", count > 0);
    ASK("device", cuDeviceGet(&dev, 0), "%d", dev);
    ASK("attribute", cuDeviceGetAttribute(&v, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0), "%d", v);
    ASK("current", cuCtxGetCurrent(&c), "%d", c == context);
    ASK("set current", cuCtxSetCurrent(context));
    ASK("allocate", cuMemAlloc(&n, 4096));
    ASK("read", 0, "%d", get(d));
    ASK("free", cuMemFree(d));
    ASK("attribute of memory", cuPointerGetAttribute(&v, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, d));
    ASK("query the stream", cuStreamQuery(s));
    ASK("query the event", cuEventQuery(e));
    ASK("new stream", cuStreamCreate(&s, 0));
    ASK("retain", cuDevicePrimaryCtxRetain(&c, 0));
    ASK("create", cuCtxCreate(&c, NULL, 0, 0));
    ASK("synchronize", cuCtxSynchronize());
    ASK("total memory", cuDeviceTotalMem(&(size_t){0}, 0));
    ASK("entry point", cuGetProcAddress("cuMemAlloc", (void **)&n, 12000, 0, NULL));
    ASK("reserve", cuMemAddressReserve(&n, 2 * MIB, 0, 0, 0));
    _exit(3);
  }
  ended("the child", child);
  ASK("the parent reads", 0, "%d", get(d));
  ASK("the parent's stream", cuStreamSynchronize(s));
  ASK("the parent frees", cuMemFree(d));
}

static void children_before_init(void) {
  if (chosen_) return;
  for (int k = 0; k < 3; k++) {
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
      char name[64];
      snprintf(name, sizeof name, "children_before_init/child %d", k);
      case_ = name;
      alarm(20);
      CUdeviceptr d = 0;
      ASK("before", cuMemAlloc(&d, 64));
      ASK("device before", cuDeviceGet(&(CUdevice){0}, 0));
      ASK("cuInit", cuInit(k == 1 ? 1 : 0));
      ASK("cuInit 0", cuInit(0));
      ASK("no context", cuMemAlloc(&d, 64));
      begin();
      ASK("allocate", cuMemAlloc(&d, 8 * MIB));
      ASK("write", cuMemsetD8(d, 1, 8 * MIB));
      ASK("read", 0, "%d", get(d));
      if (k == 0) _exit(0);
      if (k == 1) raise(SIGKILL);
      ASK("destroy nothing", cuDevicePrimaryCtxRelease(0));
      ASK("read released", 0, "%d", get(d) != 1);
      _exit(9);
    }
    ended(W("child %d", k), child);
  }
  ASK("the parent's cuInit", cuInit(0));
  begin();
  CUdeviceptr d = 0;
  ASK("the parent's memory", cuMemAlloc(&d, 8 * MIB));
  ASK("use", cuMemsetD8(d, 1, 8 * MIB));
}

struct handles {
  CUipcMemHandle m[3];
  CUipcEventHandle e;
};
static void ipc_reader(int end) {
  case_ = "ipc/reader";
  struct handles h;
  if (!have(end, &h, sizeof h)) return;
  begin();
  CUdeviceptr a[3] = {0}, twice = 0, base = 0;
  size_t size = 0;
  CUevent e = NULL, f = NULL;
  for (int i = 0; i < 3; i++) {
    ASK(W("open %d", i), cuIpcOpenMemHandle(&a[i], h.m[i], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), "%d", a[i] != 0);
    ASK(W("range %d", i), cuMemGetAddressRange(&base, &size, a[i]), "%d %zu", base == a[i], size);
    SAY(W("byte %d", i), "%d", get(a[i]));
  }
  for (int w = 1; w <= 20; w++) {
    unsigned long long v[2] = {0};
    if (w == 1 || w == 3 || w == 5 || w == 7 || w == 11 || w == 19 || w == 20) continue;
    ASK(W("attribute %d", w), cuPointerGetAttribute(v, w, a[0]), "%d", w == 4 ? v[0] != 0 : (int)v[0]);
  }
  ASK("open twice", cuIpcOpenMemHandle(&twice, h.m[0], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), "%d", twice == a[0]);
  ASK("close once", cuIpcCloseMemHandle(twice), "%d", get(a[0]));
  ASK("flags 0", cuIpcOpenMemHandle(&twice, h.m[1], 0));
  ASK("flags 2", cuIpcOpenMemHandle(&twice, h.m[1], 2));
  CUipcMemHandle zero, other_;
  SET(zero);
  ASK("open zeros", cuIpcOpenMemHandle(&twice, zero, 1));
  memset(&zero, 0xff, sizeof zero);
  ASK("open ones", cuIpcOpenMemHandle(&twice, zero, 1));
  ASK("handle of an opened", cuIpcGetMemHandle(&other_, a[0]), "%d", !memcmp(&other_, &h.m[0], sizeof other_));
  ASK("free an opened", cuMemFree(a[0]));
  ASK("free it async", cuMemFreeAsync(a[0], NULL));
  ASK("close its middle", cuIpcCloseMemHandle(a[1] + 16));
  ASK("close 0", cuIpcCloseMemHandle(0));
  ASK("write", cuMemsetD8(a[1], 77, 16));
  ASK("event", cuIpcOpenEventHandle(&e, h.e), "%d", e != NULL);
  ASK("event twice", cuIpcOpenEventHandle(&f, h.e), "%d", f != NULL);
  ASK("its query", cuEventQuery(e));
  ASK("its wait", cuEventSynchronize(e));
  ASK("a stream waits", cuStreamWaitEvent(NULL, e, 0));
  ASK("its record", cuEventRecord(e, NULL));
  ASK("its time", cuEventElapsedTime(&(float){0}, e, e));
  ASK("its handle", cuIpcGetEventHandle(&h.e, e));
  ASK("wait for all", cuCtxSynchronize());
  ASK("destroy it", cuEventDestroy(e));
  CUipcEventHandle no;
  SET(no);
  ASK("event of zeros", cuIpcOpenEventHandle(&f, no));
  pass(end);
  await(end);
  ASK("use after the owner's free", 0, "%d", get(a[1]) < 1000);
  ASK("close", cuIpcCloseMemHandle(a[1]));
  ASK("close again", cuIpcCloseMemHandle(a[1]));
  ASK("use the closed", 0, "%d", get(a[1]));
  ASK("open what was freed", cuIpcOpenMemHandle(&twice, h.m[2], 1), "%d", twice == a[2]);
  pass(end);
}
static void ipc(void) {
  if (chosen_) return;
  int end;
  pid_t child = other(&end, ipc_reader);
  begin();
  alarm(30);
  struct handles h;
  SET(h);
  CUdeviceptr a[3] = {0};
  CUevent e = NULL, plain = NULL;
  static const size_t sizes[] = {64, 3 * MIB, 4096};
  for (int i = 0; i < 3; i++) {
    DO(cuMemAlloc(&a[i], sizes[i]));
    DO(cuMemsetD8(a[i], 40 + i, sizes[i]));
    ASK(W("handle %d", i), cuIpcGetMemHandle(&h.m[i], a[i]));
  }
  CUipcMemHandle again;
  ASK("the same again", cuIpcGetMemHandle(&again, a[1]), "%d", !memcmp(&again, &h.m[1], sizeof again));
  ASK("of the middle", cuIpcGetMemHandle(&again, a[1] + 4096));
  ASK("open in the owner", cuIpcOpenMemHandle(&(CUdeviceptr){0}, h.m[0], 1));
  ASK("close in the owner", cuIpcCloseMemHandle(a[0]));
  CUdeviceptr managed = 0;
  void *host = NULL;
  DO(cuMemAllocManaged(&managed, 4096, 1));
  DO(cuMemHostAlloc(&host, 4096, 0));
  ASK("of managed memory", cuIpcGetMemHandle(&again, managed));
  ASK("of host memory", cuIpcGetMemHandle(&again, (CUdeviceptr)host));
  ASK("of the stack", cuIpcGetMemHandle(&again, (CUdeviceptr)&again));
  ASK("of 0", cuIpcGetMemHandle(&again, 0));
  ASK("event without timing flag", cuEventCreate(&plain, CU_EVENT_INTERPROCESS));
  DO(cuEventCreate(&plain, CU_EVENT_DISABLE_TIMING));
  ASK("handle of a plain event", cuIpcGetEventHandle(&h.e, plain));
  ASK("event", cuEventCreate(&e, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
  ASK("its handle", cuIpcGetEventHandle(&h.e, e));
  ASK("open in the owner too", cuIpcOpenEventHandle(&plain, h.e));
  ASK("record", cuEventRecord(e, NULL));
  DO(cuCtxSynchronize());
  fflush(stdout);
  give(end, &h, sizeof h);
  await(end);
  ASK("what the reader wrote", 0, "%d", get(a[1]));
  for (int i = 0; i < 3; i++) ASK(W("free %d", i), cuMemFree(a[i]));
  ASK("destroy the event", cuEventDestroy(e));
  fflush(stdout);
  pass(end);
  await(end);
  ended("the reader", child);
}

struct offer {
  CUipcMemHandle m;
  CUmemPoolPtrExportData d;
  CUipcEventHandle e;
};
static void dying(int end) {
  case_ = "orphans/exporter";
  begin();
  struct offer o;
  SET(o);
  CUdeviceptr a = 0, b = 0, r = 0;
  CUmemoryPool m = NULL;
  CUevent e = NULL;
  CUmemGenericAllocationHandle h = 0;
  int fd = -1, fd2 = -1;
  CUmemPoolProps p = pool_on_device(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  CUmemAllocationProp q = pinned();
  CUmemAccessDesc all = access_of(0, 3);
  q.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  DO(cuMemAlloc(&a, 4096));
  DO(cuMemsetD8(a, 11, 4096));
  DO(cuIpcGetMemHandle(&o.m, a));
  DO(cuEventCreate(&e, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
  DO(cuEventRecord(e, NULL));
  DO(cuIpcGetEventHandle(&o.e, e));
  DO(cuMemPoolCreate(&m, &p));
  DO(cuMemAllocFromPoolAsync(&b, 4096, m, NULL));
  DO(cuMemsetD8(b, 12, 4096));
  DO(cuMemPoolExportPointer(&o.d, b));
  DO(cuMemPoolExportToShareableHandle(&fd, m, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  DO(cuMemCreate(&h, 2 * MIB, &q, 0));
  DO(cuMemExportToShareableHandle(&fd2, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  DO(cuMemAddressReserve(&r, 2 * MIB, 0, 0, 0));
  DO(cuMemMap(r, 2 * MIB, 0, h, 0));
  DO(cuMemSetAccess(r, 2 * MIB, &all, 1));
  DO(cuMemsetD8(r, 13, 2 * MIB));
  DO(cuCtxSynchronize());
  give(end, &o, sizeof o);
  send_fd(end, fd);
  send_fd(end, fd2);
  await(end);
  fflush(stdout);
  _exit(0);
}
static void orphans(void) {
  if (chosen_) return;
  int ends[2];
  pid_t children[2];
  for (int i = 0; i < 2; i++) children[i] = other(&ends[i], dying);
  begin();
  alarm(40);
  for (int early = 0; early < 2; early++) {
    int end = ends[early];
    pid_t child = children[early];
    struct offer o;
    if (!have(end, &o, sizeof o)) return;
    int fd = receive_fd(end), fd2 = receive_fd(end);
    CUdeviceptr a = 0, b = 0, r = 0;
    CUmemoryPool m = NULL;
    CUevent e = NULL;
    CUmemGenericAllocationHandle h = 0;
    CUmemAccessDesc all = access_of(0, 3);
    CUmemAllocationProp q;
    if (early) pass(end), ended("the exporter ended before", child);
    const char *w = early ? "late" : "timely";
    ASK(W("%s open", w), cuIpcOpenMemHandle(&a, o.m, 1), "%d", a != 0);
    if (a) SAY(W("%s byte of it", w), "%d", get(a));
    ASK(W("%s event", w), cuIpcOpenEventHandle(&e, o.e), "%d", e != NULL);
    ASK(W("%s pool", w), cuMemPoolImportFromShareableHandle(&m, (void *)(intptr_t)fd, 1, 0), "%d", m != NULL);
    if (m) ASK(W("%s pointer", w), cuMemPoolImportPointer(&b, m, &o.d), "%d", b != 0);
    if (b) SAY(W("%s byte of the pool", w), "%d", get(b));
    ASK(W("%s handle", w), cuMemImportFromShareableHandle(&h, (void *)(intptr_t)fd2, 1), "%d", h != 0);
    if (h)
      ASK(W("%s properties", w), cuMemGetAllocationPropertiesFromHandle(&q, h), "%d %d", q.requestedHandleTypes,
          q.location.type);
    DO(cuMemAddressReserve(&r, 2 * MIB, 0, 0, 0));
    if (h) ASK(W("%s map", w), cuMemMap(r, 2 * MIB, 0, h, 0));
    if (h) ASK(W("%s access", w), cuMemSetAccess(r, 2 * MIB, &all, 1), "%d", get(r));
    if (!early) pass(end), ended("the exporter ended after", child);
    if (a) SAY(W("%s byte later", w), "%d", get(a));
    if (b) SAY(W("%s byte of the pool later", w), "%d", get(b));
    if (h) SAY(W("%s byte of the mapping later", w), "%d", get(r));
    if (e) ASK(W("%s event later", w), cuEventQuery(e));
    if (a) ASK(W("%s write later", w), cuMemsetD8(a, 1, 16));
    if (a) ASK(W("%s close", w), cuIpcCloseMemHandle(a));
    if (b) ASK(W("%s free", w), cuMemFree(b));
    if (m) ASK(W("%s destroy the pool", w), cuMemPoolDestroy(m));
    if (e) ASK(W("%s destroy the event", w), cuEventDestroy(e));
    if (h) ASK(W("%s unmap", w), cuMemUnmap(r, 2 * MIB));
    if (h) ASK(W("%s release", w), cuMemRelease(h));
    ASK(W("%s handle again", w), cuMemImportFromShareableHandle(&h, (void *)(intptr_t)fd2, 1), "%d", h != 0);
    close(fd), close(fd2), close(end);
  }
}

static void descriptors(void) {
  DO(cuStreamCreate(&s_, CU_STREAM_NON_BLOCKING));
  int p[2] = {-1, -1}, pair[2] = {-1, -1};
  if (pipe(p) || socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) return;
  CUmemAllocationProp q = pinned();
  CUmemPoolProps pp = pool_on_device(1);
  CUmemGenericAllocationHandle h = 0;
  CUmemoryPool m = NULL;
  q.requestedHandleTypes = 1;
  int mem = -1, pool = -1, closed = dup(p[0]);
  DO(cuMemCreate(&h, 2 * MIB, &q, 0));
  DO(cuMemExportToShareableHandle(&mem, h, 1, 0));
  DO(cuMemPoolCreate(&m, &pp));
  DO(cuMemPoolExportToShareableHandle(&pool, m, 1, 0));
  close(closed);
  struct {
    const char *name;
    int fd;
  } list[] = {{"pipe", p[0]},
              {"pipe's end", p[1]},
              {"socket", pair[0]},
              {"null", open("/dev/null", O_RDWR)},
              {"zero", open("/dev/zero", O_RDONLY)},
              {"memfd", memfd_create("a", 0)},
              {"memfd of 2 MiB", memfd_create("b", 0)},
              {"directory", open("/", O_RDONLY)},
              {"file", open("/etc/passwd", O_RDONLY)},
              {"closed", closed},
              {"-1", -1},
              {"-2", -2},
              {"999", 999},
              {"huge", 0x7fffffff},
              {"stdin's copy", dup(0)},
              {"memory", mem},
              {"pool", pool}};
  if (ftruncate(list[6].fd, 2 * MIB)) return;
  for (unsigned i = 0; i < sizeof list / sizeof *list; i++) {
    void *as = (void *)(intptr_t)list[i].fd;
    CUmemGenericAllocationHandle g = 0;
    CUmemoryPool n = NULL;
    CUexternalMemory x = NULL;
    CUexternalSemaphore y = NULL;
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC d;
    CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC sd;
    SET(d), SET(sd);
    ASK(W("memory from %s", list[i].name), cuMemImportFromShareableHandle(&g, as, 1), "%d", g != 0);
    if (g) cuMemRelease(g);
    ASK(W("pool from %s", list[i].name), cuMemPoolImportFromShareableHandle(&n, as, 1, 0), "%d", n != NULL);
    if (n) ASK(W("destroy the pool from %s", list[i].name), cuMemPoolDestroy(n));
    if (i >= 14) continue;
    d.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD, d.handle.fd = list[i].fd, d.size = 2 * MIB;
    ASK(W("external memory from %s", list[i].name), cuImportExternalMemory(&x, &d), "%d", x != NULL);
    sd.type =
        i & 1 ? CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD : CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD,
    sd.handle.fd = list[i].fd;
    ASK(W("semaphore from %s", list[i].name), cuImportExternalSemaphore(&y, &sd), "%d", y != NULL);
    SAY(W("still open: %s", list[i].name), "%d", list[i].fd >= 0 && fcntl(list[i].fd, F_GETFD) >= 0);
  }
  CUexternalMemory x = NULL;
  CUDA_EXTERNAL_MEMORY_HANDLE_DESC d;
  for (int t = 0; t <= 10; t++) {
    if (t >= 1 && t <= 8) continue;
    SET(d);
    d.type = t, d.handle.fd = p[0], d.size = 4096;
    ASK(W("external memory of type %d", t), cuImportExternalMemory(&x, &d));
  }
  SET(d);
  d.type = 1, d.handle.fd = dup(mem), d.size = 0;
  ASK("external memory of size 0", cuImportExternalMemory(&x, &d));
  d.size = 4096, d.flags = 8;
  ASK("external memory of flags 8", cuImportExternalMemory(&x, &d));
  RISK("external memory of NULL", cuImportExternalMemory(&x, NULL));
  RISK("external memory into NULL", cuImportExternalMemory(NULL, &d));
  RISK("destroy external NULL", cuDestroyExternalMemory(NULL));
  RISK("destroy semaphore NULL", cuDestroyExternalSemaphore(NULL));
  RISK("buffer of NULL",
       cuExternalMemoryGetMappedBuffer(&(CUdeviceptr){0}, NULL, &(CUDA_EXTERNAL_MEMORY_BUFFER_DESC){0, 4096, 0, {0}}));
  RISK("ipc into NULL", cuIpcGetMemHandle(NULL, 0));
  RISK("ipc open into NULL", cuIpcOpenMemHandle(NULL, (CUipcMemHandle){{0}}, 1));
  RISK("ipc event of NULL", cuIpcGetEventHandle(&(CUipcEventHandle){{0}}, NULL));
  RISK("ipc event into NULL", cuIpcOpenEventHandle(NULL, (CUipcEventHandle){{0}}));
}

static void leaver(int end) {
  case_ = "exits/leaver";
  begin();
  CUdeviceptr a = 0;
  CUstream s = NULL;
  ASK("allocate", cuMemAlloc(&a, 64 * MIB));
  ASK("stream", cuStreamCreate(&s, 0));
  ASK("pending work", cuMemsetD8Async(a, 1, 64 * MIB, s));
  ASK("async allocation", cuMemAllocAsync(&a, MIB, s));
  (void)end;
}
static void exits(void) {
  if (chosen_) return;
  for (int k = 0; k < 2; k++) {
    int end;
    pid_t child = other(&end, leaver);
    ended(W("leaver %d", k), child);
    close(end);
  }
  begin();
  for (int k = 0; k < 2; k++) {
    fflush(stdout);
    pid_t child = fork();
    {
      if (!child) { /* cuInit was before the fork */
        alarm(20), case_ = k ? "exits/late by exit" : "exits/late by _exit";
        ASK("cuInit", cuInit(0));
        ASK("free nothing", cuMemFree(0));
        fflush(stdout);
        if (k) exit(4);
        _exit(5);
      }
    }
    ended(W("end %d", k), child);
  }
  CUdeviceptr a = 0;
  ASK("the parent goes on", cuMemAlloc(&a, 4096));
  ASK("writes", cuMemsetD8(a, 3, 64), "%d", get(a));
  CUdeviceptr shared = 0;
  void *host = NULL;
  DO(cuMemHostAlloc(&host, 4096, CU_MEMHOSTALLOC_PORTABLE));
  DO(cuMemAllocManaged(&shared, 4096, CU_MEM_ATTACH_GLOBAL));
  *(int *)host = 1;
  *(int *)shared = 2;
  char *ordinary = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASK("register shared memory", cuMemHostRegister(ordinary, 4096, 0));
  fflush(stdout);
  pid_t child = fork();
  if (!child) {
    alarm(10);
    ordinary[0] = 9;
    _exit(0);
  }
  ended("a child that writes registered memory", child);
  SAY("what it wrote", "%d", ordinary[0]);
  ASK("copy it", cuMemcpyHtoD(a, ordinary, 1), "%d", get(a));
  ASK("unregister", cuMemHostUnregister(ordinary));
  SAY("host and managed", "%d %d", *(int *)host, *(int *)shared);
}

CASES RUN(child_after_init) RUN_COLD(children_before_init) RUN_COLD(ipc) RUN_COLD(orphans) RUN(descriptors)
    RUN_COLD(exits) END
