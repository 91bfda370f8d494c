/* IPC: handles of memory and events, across processes and within one. */
#include "ask.h"

static void memory(void) {
  CUipcMemHandle h, again;
  CUdeviceptr d, m, pool, other_ = 0;
  void *pin;
  SET(h);
  SET(again);
  DO(cuMemAlloc(&d, 4096));
  DO(cuMemAllocManaged(&m, 4096, 1));
  DO(cuMemAllocAsync(&pool, 4096, 0));
  DO(cuMemAllocHost(&pin, 4096));
  ASK("handle", cuIpcGetMemHandle(&h, d));
  ASK("handle again", cuIpcGetMemHandle(&again, d), "%d", memcmp(&h, &again, sizeof h) == 0);
  ASK("handle of an inner byte", cuIpcGetMemHandle(&again, d + 256), "%d", memcmp(&h, &again, sizeof h) == 0);
  ASK("handle of managed memory", cuIpcGetMemHandle(&h, m));
  ASK("handle of pool memory", cuIpcGetMemHandle(&h, pool));
  ASK("handle of pinned memory", cuIpcGetMemHandle(&h, (CUdeviceptr)pin));
  int local;
  ASK("handle of the stack", cuIpcGetMemHandle(&h, (CUdeviceptr)&local));
  ASK("handle of 0", cuIpcGetMemHandle(&h, 0));
  for (int flags = 0; flags <= 3; flags++)
    ASK(W("open in the same process, flags %d", flags), cuIpcOpenMemHandle(&other_, again, flags));
  memset(&h, 0x5a, sizeof h);
  ASK("open a damaged handle", cuIpcOpenMemHandle(&other_, h, 1));
  SET(h);
  ASK("open zeros", cuIpcOpenMemHandle(&other_, h, 1));
  ASK("close what is not open", cuIpcCloseMemHandle(d));
  ASK("close 0", cuIpcCloseMemHandle(0));
  DO(cuMemFree(d));
  RISK("handle of freed memory", cuIpcGetMemHandle(&h, d));
  ASK("open the handle of freed memory", cuIpcOpenMemHandle(&other_, again, 1));
  RISK("handle into NULL", cuIpcGetMemHandle(NULL, m));
  RISK("open into NULL", cuIpcOpenMemHandle(NULL, again, 1));
}

static void events(void) {
  CUevent plain, shared, timed = NULL, in = NULL;
  CUipcEventHandle h, again;
  DO(cuEventCreate(&plain, CU_EVENT_DISABLE_TIMING));
  DO(cuEventCreate(&shared, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS));
  ASK("shared with timing", cuEventCreate(&timed, CU_EVENT_INTERPROCESS));
  ASK("handle of one that is not shared", cuIpcGetEventHandle(&h, plain));
  ASK("handle", cuIpcGetEventHandle(&h, shared));
  ASK("handle again", cuIpcGetEventHandle(&again, shared), "%d", memcmp(&h, &again, sizeof h) == 0);
  ASK("open in the same process", cuIpcOpenEventHandle(&in, h));
  memset(&again, 0x5a, sizeof again);
  ASK("open a damaged handle", cuIpcOpenEventHandle(&in, again));
  RISK("handle into NULL", cuIpcGetEventHandle(NULL, shared));
  RISK("handle of NULL", cuIpcGetEventHandle(&h, NULL));
  RISK("open into NULL", cuIpcOpenEventHandle(NULL, h));
}

struct letter {
  CUipcMemHandle memory, inner;
  CUipcEventHandle event;
};

static void child(int end) {
  struct letter l;
  if (read(end, &l, sizeof l) != sizeof l) return;
  begin();
  CUdeviceptr d = 0, again = 0, inner = 0;
  for (int flags = 0; flags <= 3; flags++)
    ASK(W("child opens with flags %d", flags), cuIpcOpenMemHandle(&d, l.memory, flags));
  ASK("child opens again", cuIpcOpenMemHandle(&again, l.memory, 1), "%d", again == d);
  ASK("child opens an inner byte's", cuIpcOpenMemHandle(&inner, l.inner, 1), "%lld", (long long)(inner - d));
  CUdeviceptr base = 7;
  size_t size = 7;
  ASK("child's range", cuMemGetAddressRange(&base, &size, d), "%d %zu", base == d, size);
  unsigned char byte = 0;
  ASK("child reads", cuMemcpyDtoH(&byte, d, 1), "%d", byte);
  ASK("child writes", cuMemsetD8(d, 9, 16));
  ASK("child synchronizes", cuCtxSynchronize());
  CUipcMemHandle mine;
  ASK("child's handle of it", cuIpcGetMemHandle(&mine, d));
  int type = 77;
  ASK("child's memory type", cuPointerGetAttribute(&type, 2, d), "%d", type);
  int legacy = 77;
  ASK("child's is IPC capable", cuPointerGetAttribute(&legacy, 10, d), "%d", legacy & 255);
  ASK("child frees it", cuMemFree(d));
  CUevent e = NULL, second = NULL;
  CUipcEventHandle handle;
  ASK("child opens the event", cuIpcOpenEventHandle(&e, l.event));
  ASK("child opens the event again", cuIpcOpenEventHandle(&second, l.event), "%d", second != e);
  ASK("child queries it", cuEventQuery(e));
  ASK("child's handle of the event", cuIpcGetEventHandle(&handle, e));
  ASK("child records it", cuEventRecord(e, 0));
  ASK("child synchronizes with it", cuEventSynchronize(e));
  float t;
  ASK("child's time", cuEventElapsedTime(&t, e, second));
  ASK("child destroys the event", cuEventDestroy(e));
  pass(end);
  await(end); /* the exporter freed its memory */
  ASK("child reads after the free", cuMemcpyDtoH(&byte, d, 1), "%d", byte);
  ASK("child opens a freed one", cuIpcOpenMemHandle(&again, l.memory, 1));
  ASK("child closes", cuIpcCloseMemHandle(d));
  ASK("child closes the second opening", cuIpcCloseMemHandle(d));
  pass(end);
}

static void processes(void) {
  int end;
  pid_t pid = other(&end, child);
  begin();
  struct letter l;
  CUdeviceptr d;
  CUevent e;
  DO(cuMemAlloc(&d, 4 * MIB));
  DO(cuMemsetD8(d, 5, 4096));
  DO(cuCtxSynchronize());
  DO(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS));
  DO(cuIpcGetMemHandle(&l.memory, d));
  DO(cuIpcGetMemHandle(&l.inner, d + MIB));
  DO(cuIpcGetEventHandle(&l.event, e));
  if (write(end, &l, sizeof l) != sizeof l) perror("write");
  await(end);
  unsigned char byte = 0;
  ASK("parent reads what the child wrote", cuMemcpyDtoH(&byte, d, 1), "%d", byte);
  ASK("parent frees what the child has open", cuMemFree(d));
  pass(end);
  await(end);
  waitpid(pid, NULL, 0);
}

static void dead(int end) {
  begin();
  struct letter l;
  CUdeviceptr d;
  DO(cuMemAlloc(&d, 4096));
  DO(cuIpcGetMemHandle(&l.memory, d));
  if (write(end, &l, sizeof l) != sizeof l) perror("write");
  await(end);
}
static void orphans(void) {
  int end;
  pid_t pid = other(&end, dead);
  struct letter l;
  begin();
  if (read(end, &l, sizeof l) != sizeof l) return;
  pass(end);
  waitpid(pid, NULL, 0);
  CUdeviceptr d;
  ASK("open what a dead process exported", cuIpcOpenMemHandle(&d, l.memory, 1));
}

static void forked(void) { /* a child of fork after cuInit */
  CUdeviceptr d;
  DO(cuMemAlloc(&d, 4096));
  fflush(stdout);
  pid_t pid = fork();
  if (!pid) {
    alarm(10);
    int i;
    CUcontext c;
    ASK("Init in a forked child", cuInit(0));
    ASK("DeviceGetCount in a forked child", cuDeviceGetCount(&i));
    ASK("CtxGetCurrent in a forked child", cuCtxGetCurrent(&c));
    ASK("MemAlloc in a forked child", cuMemAlloc(&d, 16));
    ASK("MemFree in a forked child", cuMemFree(d));
    ASK("CtxSynchronize in a forked child", cuCtxSynchronize());
    ASK("DriverGetVersion in a forked child", cuDriverGetVersion(&i));
    ASK("DevicePrimaryCtxRetain in a forked child", cuDevicePrimaryCtxRetain(&c, 0));
    _exit(0);
  }
  int status;
  waitpid(pid, &status, 0);
  SAY("the forked child ended", "%d", status);
  ASK("the parent goes on", cuMemFree(d));
}

CASES RUN(memory) RUN(events) RUN_COLD(processes) RUN_COLD(orphans) RUN(forked) END
