/* Two devices: a process current on device 0 opens memory and events of device 1, and the other ways round. */
#include "two.h"

static int of_, now_; /* the device of what is shared, and the one that the opening process uses */
struct shared {
  CUipcMemHandle memory;
  CUipcEventHandle event;
};

static void opener(int end) {
  begin();
  both();
  on(now_);
  struct shared h;
  if (read(end, &h, sizeof h) != sizeof h) return;
  CUdeviceptr p = 0, q = 0;
  CUevent e = NULL;
  for (unsigned flags = 0; flags <= 2; flags += 2)
    ASK(W("open the memory, flags %u", flags), cuIpcOpenMemHandle(&q, h.memory, flags));
  ASK("open the memory", cuIpcOpenMemHandle(&p, h.memory, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  int ordinal = 77, type = 77;
  CUcontext c = NULL;
  char legacy = 7;
  ASK("ordinal", cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p), "%d", ordinal);
  ASK("type", cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p), "%d", type);
  ASK("context", cuPointerGetAttribute(&c, CU_POINTER_ATTRIBUTE_CONTEXT, p), "%d",
      c == of[0]   ? 0
      : c == of[1] ? 1
                   : -1);
  ASK("legacy", cuPointerGetAttribute(&legacy, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, p), "%d", legacy);
  CUdeviceptr base = 0;
  size_t size = 0;
  ASK("range", cuMemGetAddressRange(&base, &size, p), "%d", base == p);
  ASK("what it has, by the opener", 0, "%x", word(now_, p));
  ASK("what it has, by the other", 0, "%x", word(!now_, p));
  CUdeviceptr mine = memory(now_, 4096, 0x55);
  ASK("copy from it", cuMemcpyDtoD(mine, p, 64));
  DO(cuCtxSynchronize());
  ASK("the copy has", 0, "%x", word(now_, mine));
  ASK("set it", cuMemsetD8(p, 0x66, 64));
  ASK("end of the set", cuCtxSynchronize());
  ASK("was access on", cuCtxEnablePeerAccess(of[!now_], 0));
  ASK("open it twice", cuIpcOpenMemHandle(&q, h.memory, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), "%d", q == p);
  on(!now_);
  ASK("open it in the other context", cuIpcOpenMemHandle(&q, h.memory, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), "%d",
      q == p);
  on(now_);
  CUipcMemHandle again;
  ASK("a handle of what was opened", cuIpcGetMemHandle(&again, p));
  ASK("open the event", cuIpcOpenEventHandle(&e, h.event), "%d", e != NULL);
  ASK("query the event", cuEventQuery(e));
  ASK("wait for the event", cuStreamWaitEvent(NULL, e, 0));
  ASK("record the event", cuEventRecord(e, NULL));
  ASK("synchronize the event", cuEventSynchronize(e));
  CUevent f = NULL;
  ASK("open the event twice", cuIpcOpenEventHandle(&f, h.event), "%d", f != e);
  ASK("destroy the event", cuEventDestroy(e));
  ASK("free what was opened", cuMemFree(p));
  ASK("close in the other context", (on(!now_), cuIpcCloseMemHandle(p)));
  on(now_);
  ASK("close", cuIpcCloseMemHandle(p));
  ASK("close twice", cuIpcCloseMemHandle(p));
  ASK("ordinal after that", cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p));
  pass(end);
}

static void shared(void) {
  int end = -1;
  pid_t child = other(&end, opener);
  begin();
  both();
  struct shared h;
  SET(h);
  CUevent e = NULL;
  CUdeviceptr p = memory(of_, 2 * MIB, 0x31 + of_);
  on(of_);
  DO(cuEventCreate(&e, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
  DO(cuEventRecord(e, NULL));
  on(!of_);
  ASK("handle of the memory, the other current", cuIpcGetMemHandle(&h.memory, p));
  ASK("handle of the event, the other current", cuIpcGetEventHandle(&h.event, e));
  CUdeviceptr own = 0;
  ASK("open it where it was made", cuIpcOpenMemHandle(&own, h.memory, 1));
  on(of_);
  ASK("open it where it was made, its own current", cuIpcOpenMemHandle(&own, h.memory, 1));
  if (write(end, &h, sizeof h) != sizeof h) return;
  await(end);
  SAY("what it has at the end", "%x", word(of_, p));
  ASK("query the event at the end", cuEventQuery(e));
  ASK("free at the end", cuMemFree(p));
  waitpid(child, NULL, 0);
}

static void of_1_on_0(void) {
  of_ = 1, now_ = 0;
  shared();
}
static void of_1_on_1(void) {
  of_ = 1, now_ = 1;
  shared();
}
static void of_0_on_1(void) {
  of_ = 0, now_ = 1;
  shared();
}

static void what(void) {
  both();
  CUipcMemHandle h;
  CUipcEventHandle f;
  CUdeviceptr p = 0;
  void *host = NULL;
  CUevent e = NULL;
  on(1);
  DO(cuMemAllocManaged(&p, 65536, CU_MEM_ATTACH_GLOBAL));
  ASK("managed memory", cuIpcGetMemHandle(&h, p));
  DO(cuMemHostAlloc(&host, 4096, CU_MEMHOSTALLOC_PORTABLE));
  ASK("host memory", cuIpcGetMemHandle(&h, (CUdeviceptr)host));
  DO(cuMemAllocAsync(&p, 4096, NULL));
  ASK("stream-ordered memory", cuIpcGetMemHandle(&h, p));
  for (unsigned flags = 0; flags <= 7; flags++) {
    e = NULL;
    ASK(W("event with flags %u", flags), cuEventCreate(&e, flags));
    if (e) ASK(W("handle of it, flags %u", flags), cuIpcGetEventHandle(&f, e));
  }
  p = memory(1, 4096, 0);
  DO(cuCtxSetCurrent(NULL));
  ASK("memory of 1, none current", cuIpcGetMemHandle(&h, p));
  ASK("event, none current", cuIpcGetEventHandle(&f, e));
  SET(h);
  on(1);
  ASK("open zeros", cuIpcOpenMemHandle(&p, h, 1));
  SET(f);
  ASK("open an event of zeros", cuIpcOpenEventHandle(&e, f));
}

CASES RUN_COLD(of_1_on_0) RUN_COLD(of_1_on_1) RUN_COLD(of_0_on_1) RUN(what) END
