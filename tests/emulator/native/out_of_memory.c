/* Every allocation of the emulated driver fails once, in every call that makes any; nvJitLink's own do not.
 *
 *     out_of_memory ARTIFACTS
 *
 * Exit code 1 if an answer is neither the usual one nor CUDA_ERROR_OUT_OF_MEMORY, or if the usual one does not come
 * once there is memory again. */
#define _GNU_SOURCE
#include <cuda.h>

#include <errno.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

uint64_t cudalinkViolationCount(void);
void cudalinkCheckOrder(int on);
int cudalinkStartSchedule(uint64_t seed, const uint32_t *displaced, size_t count, int all, int stacks);
void cudalinkEndSchedule(void);

/* -- this program's malloc, which the driver's calls reach too -- */

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *block, size_t size);
void __libc_free(void *block);

static uintptr_t driver, driver_end;
static long before_failure = -1; /* allocations until the one that fails; -1: none does */
static int every;                /* all fail after that one too */
static unsigned failures;
static _Thread_local unsigned own_failures; /* those of this thread; an engine may meet the one of another call */

/* The blocks that the driver has; what was freed leaves its place. */
enum { HELD_ROOM = 1 << 18 };
static _Atomic(void *) held[HELD_ROOM];
static atomic_long held_count;

static void *noted(void *block, const void *caller) {
  if (!block || (uintptr_t)caller < driver || (uintptr_t)caller >= driver_end) return block;
  size_t at = ((uintptr_t)block >> 4) * 0x9e3779b97f4a7c15u >> 46;
  for (void *none = NULL; !atomic_compare_exchange_strong(&held[at], &none, block); none = NULL)
    at = (at + 1) % HELD_ROOM;
  held_count++;
  return block;
}

static void forgotten(void *block) {
  size_t at = ((uintptr_t)block >> 4) * 0x9e3779b97f4a7c15u >> 46;
  for (size_t tries = 0; block && tries < 64; tries++, at = (at + 1) % HELD_ROOM) {
    void *known = block;
    if (!atomic_compare_exchange_strong(&held[at], &known, NULL)) continue;
    held_count--;
    return;
  }
}

static int find_driver(struct dl_phdr_info *info, size_t size, void *data) {
  (void)size, (void)data;
  if (!strstr(info->dlpi_name, "libcuda.so.1")) return 0;
  for (int at = 0; at < info->dlpi_phnum; at++) {
    uintptr_t start = info->dlpi_addr + info->dlpi_phdr[at].p_vaddr;
    if (info->dlpi_phdr[at].p_type != PT_LOAD || !(info->dlpi_phdr[at].p_flags & PF_X)) continue;
    driver = start;
    driver_end = start + info->dlpi_phdr[at].p_memsz;
  }
  return 1;
}

static int fails(const void *caller) {
  if (before_failure < 0 || (uintptr_t)caller < driver || (uintptr_t)caller >= driver_end) return 0;
  if (before_failure && before_failure--) return 0;
  if (!every) before_failure = -1;
  failures++;
  own_failures++;
  errno = ENOMEM;
  return 1;
}

void *malloc(size_t size) {
  const void *caller = __builtin_return_address(0);
  return fails(caller) ? NULL : noted(__libc_malloc(size), caller);
}
void *calloc(size_t count, size_t size) {
  const void *caller = __builtin_return_address(0);
  return fails(caller) ? NULL : noted(__libc_calloc(count, size), caller);
}
void *realloc(void *block, size_t size) {
  const void *caller = __builtin_return_address(0);
  if (fails(caller)) return NULL;
  forgotten(block);
  return noted(__libc_realloc(block, size), caller);
}
void free(void *block) {
  forgotten(block);
  __libc_free(block);
}
char *strdup(const char *text) {
  const void *caller = __builtin_return_address(0);
  char *copy = fails(caller) ? NULL : noted(__libc_malloc(strlen(text) + 1), caller);
  return copy ? strcpy(copy, text) : NULL;
}

void *mmap(void *where, size_t size, int access, int flags, int file, off_t offset) {
  bool fail = fails(__builtin_return_address(0));
  return fail ? MAP_FAILED : (void *)syscall(SYS_mmap, where, size, access, flags, file, offset);
}
int ftruncate(int file, off_t size) {
  return fails(__builtin_return_address(0)) ? -1 : (int)syscall(SYS_ftruncate, file, size);
}
int memfd_create(const char *name, unsigned flags) {
  return fails(__builtin_return_address(0)) ? -1 : (int)syscall(SYS_memfd_create, name, flags);
}

/* -- the calls -- */

static const char ptx[] =
    ".version 8.0\n.target sm_70\n.address_size 64\n.visible .global .align 4 .u32 answer = 42;\n"
    ".visible .entry small(.param .u64 out) { .reg .b64 %rd<2>; ld.param.u64 %rd1, [out]; st.global.u64 [%rd1], %rd1; ret; }\n";

static void expect(int line, const char *what, int actual, int expected) {
  if (actual == expected) return;
  fprintf(stderr, "out_of_memory.c:%d: %s is %d, not %d\n", line, what, actual, expected);
  exit(1);
}

static bool plenty; /* nothing fails */
static bool loose;  /* a checker is on, which ends without memory, and lets calls go on */

/* The number of the next file: another one if some file stays open, or is closed that was open. */
static int next_file(void) {
  int file = dup(0);
  close(file);
  return file;
}

#define EXPECT(code, expression) expect(__LINE__, #expression, (int)(expression), (int)(code))
#define OK(expression) EXPECT(CUDA_SUCCESS, expression)

/* The expression again and again, each time with another allocation that fails, until none does; `undo` after a
 * success. Where `tolerant`, some of them need not succeed. In the third sweep, where what grows has grown and what is
 * made once is there, an error keeps no memory and no file. In the end, neither does a success that is undone, but for
 * what is remembered of a few. */
enum { TIMES = 16 };
#define SWEEPS(count, tolerant, expression, undo)                                                              \
  for (long number = 0, sweep = 1, last = 1; sweep <= (count); number = sweep == last ? number + 1 : 0) {      \
    unsigned before = failures, own_before = own_failures;                                                     \
    long had = held_count;                                                                                     \
    int file_before = next_file();                                                                             \
    last = sweep;                                                                                              \
    before_failure = plenty ? -1 : number;                                                                     \
    int code = (int)(expression);                                                                              \
    before_failure = -1;                                                                                       \
    if (failures == before) sweep++;                                                                           \
    if (code || sweep > last || !((tolerant) || loose || own_failures == own_before))                          \
      expect(__LINE__, #expression, code, sweep > last ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);             \
    if (code && last == 3 && !loose) {                                                                         \
      expect(__LINE__, "files that " #expression " keeps", next_file() - file_before, 0);                      \
      if (held_count > had) expect(__LINE__, "blocks that " #expression " keeps", (int)(held_count - had), 0); \
    }                                                                                                          \
    if (!code) {                                                                                               \
      undo;                                                                                                    \
    }                                                                                                          \
    for (int time = 1, kept = sweep > 3 && (plenty || !loose) && sizeof #undo > 1; kept > 0; time++) {         \
      expect(__LINE__, #expression " and its end keep some each time", time == TIMES, false);                  \
      had = held_count;                                                                                        \
      OK(expression);                                                                                          \
      undo;                                                                                                    \
      kept = held_count > had || next_file() != file_before;                                                   \
    }                                                                                                          \
  }
#define WITHOUT_MEMORY(expression, undo) SWEEPS(3, false, expression, undo)
#define ONCE_WITHOUT_MEMORY(expression, undo) \
  SWEEPS(1, false, expression, undo) /* it cannot be repeated, or keeps some */
#define TOLERANT(expression, undo) SWEEPS(3, true, expression, undo)

/* The same where the usual answer may be an error, which without memory may be another one. */
#define AS_EVER(expression, undo)                                                           \
  for (long number = -1, usual = 0, done = 0; !done; number++) {                            \
    unsigned before = failures;                                                             \
    before_failure = plenty ? -1 : number;                                                  \
    int code = (int)(expression);                                                           \
    before_failure = -1;                                                                    \
    if (number < 0) usual = code;                                                           \
    done = number >= 0 && failures == before;                                               \
    if (done || !code || (!usual && code != CUDA_ERROR_OUT_OF_MEMORY)) EXPECT(usual, code); \
    if (!code) {                                                                            \
      undo;                                                                                 \
    }                                                                                       \
  }

static CUresult link_once(void) {
  char log[256];
  CUjit_option keys[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, CU_JIT_CACHE_MODE};
  void *values[] = {log, (void *)sizeof log, (void *)1}, *image;
  size_t size;
  CUlinkState state;
  CUresult result = cuLinkCreate(3, keys, values, &state);
  if (result) return result;
  result = cuLinkAddData(state, CU_JIT_INPUT_PTX, (void *)ptx, sizeof ptx, "small", 0, NULL, NULL);
  if (!result) result = cuLinkComplete(state, &image, &size);
  OK(cuLinkDestroy(state));
  return result;
}

/* A violation is counted, though there is no memory to report it. */
static void violation(unsigned options) {
  CUjit_option keys[200];
  void *values[200];
  CUlinkState state;
  for (unsigned at = 0; at < options; at++) keys[at] = CU_JIT_LOG_VERBOSE, values[at] = NULL;
  OK(cuLinkCreate(options, keys, values, &state));
  values[options - 1] = (void *)7;
  uint64_t before = cudalinkViolationCount();
  before_failure = 0;
  every = 1;
  CUresult result = cuLinkDestroy(state);
  before_failure = -1;
  every = 0;
  OK(result);
  EXPECT(1, cudalinkViolationCount() - before);
}

static void *open_later(void *word) {
  usleep(10000);
  __atomic_store_n((unsigned *)word, 1, __ATOMIC_RELEASE);
  return NULL;
}

/* What waits does, without memory too, for all before it; and nothing is kept of it. */
static void waits(void) {
  CUstream stream;
  CUdeviceptr memory;
  unsigned *word;
  char host[64];
  pthread_t opener;
  OK(cuStreamCreate(&stream, 0));
  OK(cuMemHostAlloc((void **)&word, 64, 0));
  OK(cuStreamQuery(CU_STREAM_LEGACY)); /* it is made when it is first used */
  for (int call = 0; call < 4; call++)
    for (long number = 0, kept = 1; number < 3 || kept > 0; number++) {
      long had = held_count;
      EXPECT(1, number < 3 + TIMES);
      *word = 0;
      OK(cuMemAlloc(&memory, 64));
      OK(cuStreamWaitValue32(stream, (CUdeviceptr)word, 1, CU_STREAM_WAIT_VALUE_EQ));
      OK(cuMemsetD8Async(memory, 1, 64, stream));
      EXPECT(0, pthread_create(&opener, NULL, open_later, word));
      before_failure = number < 3 ? number : -1;
      every = number < 3;
      CUresult result = call == 0   ? cuStreamSynchronize(stream)
                        : call == 1 ? cuCtxSynchronize()
                        : call == 2 ? cuMemcpyDtoH(host, memory, 64)
                                    : cuMemFree(memory);
      unsigned opened = __atomic_load_n(word, __ATOMIC_ACQUIRE);
      before_failure = -1;
      every = 0;
      OK(result);
      EXPECT(1, opened);
      EXPECT(0, pthread_join(opener, NULL));
      EXPECT(CUDA_SUCCESS, cuStreamQuery(stream));
      if (call != 3) OK(cuMemFree(memory));
      kept = held_count - had;
    }
  OK(cuMemFreeHost(word));
  OK(cuStreamDestroy(stream));
}

static void unused(void *data) { (void)data; }
static void called(CUstream stream, CUresult result, void *data) { (void)stream, (void)result, (void)data; }
static void unnoted(CUasyncNotificationInfo *info, void *data, CUasyncCallbackHandle notes) {
  (void)info, (void)data, (void)notes;
}

static CUresult capture(CUstream stream, CUdeviceptr memory, CUfunction function, CUevent event) {
  CUgraph graph = NULL;
  void *arguments[] = {&memory};
  CUresult result = cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  if (result) return result;
  CUresult inside = cuMemsetD8Async(memory, 1, 64, stream);
  if (!inside) inside = cuLaunchHostFunc(stream, unused, NULL);
  if (!inside) inside = cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL);
  if (!inside) inside = cuEventRecord(event, stream);
  if (!inside) inside = cuStreamWaitEvent(stream, event, 0);
  result = cuStreamEndCapture(stream, &graph);
  size_t edges = 0;
  if (!inside && !result) OK(cuGraphGetEdges(graph, NULL, NULL, NULL, &edges));
  if (!inside && !result) EXPECT(2, edges);
  if (graph) OK(cuGraphDestroy(graph));
  return inside ? inside : result;
}

static void graphs(CUcontext context, CUfunction function, CUdeviceptr memory) {
  CUgraph graph, child, copy;
  CUgraphNode node, nodes[2];
  CUgraphExec exec;
  CUstream stream;
  CUuserObject object;
  CUDA_MEMSET_NODE_PARAMS fill = {.dst = memory, .elementSize = 1, .width = 64, .height = 1};
  CUDA_KERNEL_NODE_PARAMS kernel = {.func = function, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1};
  CUDA_HOST_NODE_PARAMS call = {.fn = unused};
  void *arguments[] = {&memory};
  kernel.blockDimX = kernel.blockDimY = kernel.blockDimZ = 1;
  kernel.kernelParams = arguments;
  OK(cuStreamCreate(&stream, 0));
  WITHOUT_MEMORY(cuGraphCreate(&graph, 0), OK(cuGraphDestroy(graph)));
  OK(cuGraphCreate(&graph, 0));
  WITHOUT_MEMORY(cuGraphAddEmptyNode(&nodes[0], graph, NULL, 0), );
  WITHOUT_MEMORY(cuGraphAddMemsetNode(&nodes[1], graph, nodes, 1, &fill, context), );
  WITHOUT_MEMORY(cuGraphAddKernelNode(&node, graph, nodes, 2, &kernel), OK(cuGraphDestroyNode(node)));
  WITHOUT_MEMORY(cuGraphAddHostNode(&node, graph, NULL, 0, &call), );
  WITHOUT_MEMORY(cuGraphAddDependencies(graph, nodes, &node, NULL, 1),
                 OK(cuGraphRemoveDependencies(graph, nodes, &node, NULL, 1)));
  OK(cuGraphCreate(&child, 0));
  OK(cuGraphAddHostNode(&nodes[0], child, NULL, 0, &call));
  ONCE_WITHOUT_MEMORY(cuGraphAddChildGraphNode(&node, graph, NULL, 0, child), OK(cuGraphDestroyNode(node)));
  WITHOUT_MEMORY(cuUserObjectCreate(&object, graph, unused, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC),
                 OK(cuUserObjectRelease(object, 1)));
  OK(cuUserObjectCreate(&object, graph, unused, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  WITHOUT_MEMORY(cuGraphRetainUserObject(graph, object, 1, 0), OK(cuGraphReleaseUserObject(graph, object, 1)));
  OK(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
  WITHOUT_MEMORY(cuGraphClone(&copy, graph), OK(cuGraphDestroy(copy)));
  WITHOUT_MEMORY(cuGraphInstantiate(&exec, graph, 0), OK(cuGraphExecDestroy(exec)));
  OK(cuGraphInstantiate(&exec, graph, 0));
  ONCE_WITHOUT_MEMORY(cuGraphLaunch(exec, stream), OK(cuStreamSynchronize(stream)));
  OK(cuGraphExecDestroy(exec));
  OK(cuGraphDestroy(child));
  OK(cuGraphDestroy(graph));
  CUevent event;
  OK(cuEventCreate(&event, 0));
  TOLERANT(capture(stream, memory, function, event), );
  OK(cuStreamDestroy(stream));
  OK(cuStreamCreateWithPriority(&stream, 0, -1));
  TOLERANT(capture(stream, memory, function, event), );
  WITHOUT_MEMORY(cuEventRecord(event, stream), );
  WITHOUT_MEMORY(cuStreamWaitEvent(stream, event, 0), );
  WITHOUT_MEMORY(cuCtxRecordEvent(context, event), );
  WITHOUT_MEMORY(cuCtxWaitEvent(context, event), );
  OK(cuStreamDestroy(stream));
  OK(cuEventDestroy(event));
}

static void changed_graphs(CUcontext context, CUfunction function, CUdeviceptr memory) {
  CUgraph graph, child;
  CUgraphNode node, nodes[3];
  CUgraphExec exec;
  CUgraphExecUpdateResultInfo outcome;
  CUgraphConditionalHandle handle;
  void *arguments[] = {&memory};
  CUDA_KERNEL_NODE_PARAMS kernel = {.func = function, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1};
  CUDA_HOST_NODE_PARAMS call = {.fn = unused};
  CUDA_MEM_ALLOC_NODE_PARAMS pages = {.bytesize = 64};
  CUlaunchAttributeValue value = {.priority = 0};
  kernel.blockDimX = kernel.blockDimY = kernel.blockDimZ = 1;
  kernel.kernelParams = arguments;
  pages.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  pages.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  OK(cuGraphCreate(&graph, 0));
  OK(cuGraphCreate(&child, 0));
  OK(cuGraphAddHostNode(&node, child, NULL, 0, &call));
  for (int at = 0; at < 2; at++) OK(cuGraphAddKernelNode(&nodes[at], graph, NULL, 0, &kernel));
  OK(cuGraphAddChildGraphNode(&nodes[2], graph, NULL, 0, child));
  WITHOUT_MEMORY(cuGraphKernelNodeSetAttribute(nodes[0], CU_LAUNCH_ATTRIBUTE_PRIORITY, &value), );
  WITHOUT_MEMORY(cuGraphKernelNodeCopyAttributes(nodes[1], nodes[0]), );
  WITHOUT_MEMORY(cuGraphKernelNodeSetParams(nodes[0], &kernel), );
  WITHOUT_MEMORY(cuGraphInstantiate(&exec, graph, 0), OK(cuGraphExecDestroy(exec)));
  OK(cuGraphInstantiate(&exec, graph, 0));
  WITHOUT_MEMORY(cuGraphExecKernelNodeSetParams(exec, nodes[0], &kernel), );
  WITHOUT_MEMORY(cuGraphExecChildGraphNodeSetParams(exec, nodes[2], child), );
  WITHOUT_MEMORY(cuGraphExecUpdate(exec, graph, &outcome), );
  OK(cuGraphExecDestroy(exec));
  WITHOUT_MEMORY(cuGraphConditionalHandleCreate(&handle, graph, context, 0, 0), );
  for (int kind = CU_GRAPH_COND_TYPE_IF; kind <= CU_GRAPH_COND_TYPE_SWITCH; kind++) {
    CUgraphNodeParams chosen = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
    chosen.conditional.type = (CUgraphConditionalNodeType)kind;
    chosen.conditional.size = kind == CU_GRAPH_COND_TYPE_SWITCH ? 3 : 1;
    chosen.conditional.ctx = context;
    OK(cuGraphConditionalHandleCreate(&chosen.conditional.handle, graph, context, 0, 0));
    ONCE_WITHOUT_MEMORY(cuGraphAddNode(&node, graph, NULL, NULL, 0, &chosen), );
  }
  OK(cuGraphDestroy(graph));
  OK(cuGraphCreate(&graph, 0));
  WITHOUT_MEMORY(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &pages), );
  OK(cuGraphDestroy(graph));
  OK(cuGraphDestroy(child));
}

/* Nodes of each kind that has memory of its own, made, changed, copied and captured. */
static void nodes_of_all_kinds(CUcontext context, CUdeviceptr memory) {
  CUgraph graph, copy;
  CUgraphNode node, nodes[6];
  CUgraphExec exec;
  CUgraphExecUpdateResultInfo outcome;
  CUexternalSemaphore semaphore;
  CUstream stream, other;
  CUevent event;
  CUarray array;
  CUdeviceptr inner, half = memory + 32;
  char host[64];
  size_t first = 0, count = 32;
  CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUDA_MEMCPY3D box = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = memory, .WidthInBytes = 64};
  CUDA_MEMSET_NODE_PARAMS fill = {.dst = memory, .elementSize = 1, .width = 64, .height = 1};
  CUDA_HOST_NODE_PARAMS call = {.fn = unused};
  CUstreamBatchMemOpParams writes[2] = {{.writeValue = {CU_STREAM_MEM_OP_WRITE_VALUE_32, memory, {9}, 0, 0}},
                                        {.writeValue = {CU_STREAM_MEM_OP_WRITE_VALUE_32, memory + 4, {9}, 0, 0}}};
  CUDA_BATCH_MEM_OP_NODE_PARAMS batch = {.ctx = context, .count = 2, .paramArray = writes};
  CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC file = {.type = CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD};
  CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS signal = {0};
  CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS await = {0};
  CUDA_EXT_SEM_SIGNAL_NODE_PARAMS signals = {&semaphore, &signal, 1};
  CUDA_EXT_SEM_WAIT_NODE_PARAMS awaits = {&semaphore, &await, 1};
  CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
  CUDA_ARRAY3D_DESCRIPTOR shape = {.Width = 16, .Height = 4, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
  box.dstMemoryType = CU_MEMORYTYPE_HOST;
  box.dstHost = host;
  box.Height = box.Depth = 1;
  file.handle.fd = memfd_create("signal", 0);
  OK(cuImportExternalSemaphore(&semaphore, &file));
  OK(cuStreamCreateWithPriority(&stream, 0, -1));
  OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  OK(cuGraphCreate(&graph, 0));
  WITHOUT_MEMORY(cuGraphAddMemcpyNode(&nodes[0], graph, NULL, 0, &box, context), OK(cuGraphDestroyNode(nodes[0])));
  WITHOUT_MEMORY(cuGraphAddBatchMemOpNode(&nodes[1], graph, NULL, 0, &batch), OK(cuGraphDestroyNode(nodes[1])));
  WITHOUT_MEMORY(cuGraphAddExternalSemaphoresSignalNode(&nodes[2], graph, NULL, 0, &signals),
                 OK(cuGraphDestroyNode(nodes[2])));
  WITHOUT_MEMORY(cuGraphAddExternalSemaphoresWaitNode(&nodes[3], graph, NULL, 0, &awaits),
                 OK(cuGraphDestroyNode(nodes[3])));
  WITHOUT_MEMORY(cuGraphAddEventRecordNode(&nodes[4], graph, NULL, 0, event), OK(cuGraphDestroyNode(nodes[4])));
  WITHOUT_MEMORY(cuGraphAddEventWaitNode(&nodes[5], graph, NULL, 0, event), OK(cuGraphDestroyNode(nodes[5])));
  OK(cuGraphAddMemcpyNode(&nodes[0], graph, NULL, 0, &box, context));
  OK(cuGraphAddBatchMemOpNode(&nodes[1], graph, &nodes[0], 1, &batch));
  OK(cuGraphAddExternalSemaphoresSignalNode(&nodes[2], graph, nodes, 2, &signals));
  OK(cuGraphAddExternalSemaphoresWaitNode(&nodes[3], graph, nodes, 3, &awaits));
  OK(cuGraphAddEventRecordNode(&nodes[4], graph, nodes, 4, event));
  OK(cuGraphAddHostNode(&nodes[5], graph, nodes, 5, &call));
  OK(cuGraphAddMemsetNode(&node, graph, nodes, 6, &fill, context));
  WITHOUT_MEMORY(cuGraphMemcpyNodeSetParams(nodes[0], &box), );
  WITHOUT_MEMORY(cuGraphBatchMemOpNodeSetParams(nodes[1], &batch), );
  WITHOUT_MEMORY(cuGraphExternalSemaphoresSignalNodeSetParams(nodes[2], &signals), );
  WITHOUT_MEMORY(cuGraphExternalSemaphoresWaitNodeSetParams(nodes[3], &awaits), );
  WITHOUT_MEMORY(cuGraphHostNodeSetParams(nodes[5], &call), );
  WITHOUT_MEMORY(cuGraphMemsetNodeSetParams(node, &fill), );
  WITHOUT_MEMORY(cuGraphClone(&copy, graph), OK(cuGraphDestroy(copy)));
  WITHOUT_MEMORY(cuGraphInstantiate(&exec, graph, 0), OK(cuGraphExecDestroy(exec)));
  OK(cuGraphInstantiate(&exec, graph, 0));
  WITHOUT_MEMORY(cuGraphExecMemcpyNodeSetParams(exec, nodes[0], &box, context), );
  WITHOUT_MEMORY(cuGraphExecBatchMemOpNodeSetParams(exec, nodes[1], &batch), );
  WITHOUT_MEMORY(cuGraphExecExternalSemaphoresSignalNodeSetParams(exec, nodes[2], &signals), );
  WITHOUT_MEMORY(cuGraphExecExternalSemaphoresWaitNodeSetParams(exec, nodes[3], &awaits), );
  WITHOUT_MEMORY(cuGraphExecUpdate(exec, graph, &outcome), );
  OK(cuGraphExecDestroy(exec));
  OK(cuGraphDestroy(graph));
  OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  WITHOUT_MEMORY(cuMemcpyDtoHAsync(host, memory, 64, stream), );
  WITHOUT_MEMORY(cuStreamWriteValue32(stream, memory, 1, 0), );
  WITHOUT_MEMORY(cuSignalExternalSemaphoresAsync(&semaphore, &signal, 1, stream), );
  WITHOUT_MEMORY(cuLaunchHostFunc(stream, unused, NULL), );
  WITHOUT_MEMORY(cuEventRecord(event, stream), );
  WITHOUT_MEMORY(cuStreamWaitEvent(other, event, 0), );
  WITHOUT_MEMORY(cuEventRecordWithFlags(event, stream, CU_EVENT_RECORD_EXTERNAL), );
  WITHOUT_MEMORY(cuStreamWaitEvent(stream, event, CU_EVENT_WAIT_EXTERNAL), );
  WITHOUT_MEMORY(cuMemAllocAsync(&inner, 64, stream), );
  OK(cuStreamDestroy(other));
  OK(cuStreamEndCapture(stream, &graph));
  OK(cuGraphDestroy(graph));
  OK(cuStreamSynchronize(stream));
  ONCE_WITHOUT_MEMORY(cuMemcpyBatchAsync(&memory, &half, &count, 1, &attributes, &first, 1, stream), );
  ONCE_WITHOUT_MEMORY(cuStreamBatchMemOp(stream, 2, writes, 0), );
  ONCE_WITHOUT_MEMORY(cuSignalExternalSemaphoresAsync(&semaphore, &signal, 1, stream), );
  ONCE_WITHOUT_MEMORY(cuMemsetD2D8Async(memory, 8, 1, 4, 4, stream), );
  ONCE_WITHOUT_MEMORY(cuMemcpyPeerAsync(memory, context, memory + 32, context, 16, stream), );
  OK(cuStreamSynchronize(stream));
  OK(cuArray3DCreate(&array, &shape));
  ONCE_WITHOUT_MEMORY(cuMemcpyHtoAAsync(array, 0, host, 64, stream), );
  OK(cuStreamSynchronize(stream));
  OK(cuArrayDestroy(array));
  OK(cuMemAllocManaged(&inner, 1 << 16, CU_MEM_ATTACH_GLOBAL));
  ONCE_WITHOUT_MEMORY(cuMemPrefetchAsync(inner, 1 << 16, here, 0, stream), );
  ONCE_WITHOUT_MEMORY(cuStreamAttachMemAsync(stream, inner, 0, CU_MEM_ATTACH_SINGLE), );
  OK(cuStreamSynchronize(stream));
  OK(cuMemFree(inner));
  OK(cuEventDestroy(event));
  OK(cuStreamDestroy(stream));
  OK(cuDestroyExternalSemaphore(semaphore));
}

/* What is kept of a library on a device, and of what other libraries and processes share. */
static void settings_and_shares(CUcontext context) {
  CUcontext other;
  CUlibrary library;
  CUkernel kernel;
  CUfunction function;
  CUtexref texture;
  CUdevResource resource;
  CUdevResourceDesc shape;
  CUgreenCtx green;
  CUstream stream;
  CUdeviceptr address;
  CUexternalSemaphore semaphore;
  CUexternalMemory external;
  CUDA_EXTERNAL_MEMORY_HANDLE_DESC file = {.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD, .size = 4096};
  CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC signal = {.type = CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD};
  char host[64];
  int blocks;
  OK(cuDevicePrimaryCtxRetain(&other, 1));
  OK(cuCtxSetCurrent(other));
  WITHOUT_MEMORY(cuCtxEnablePeerAccess(context, 0), OK(cuCtxDisablePeerAccess(context)));
  OK(cuCtxSetCurrent(context));
  OK(cuDevicePrimaryCtxRelease(1));
  for (long number = 0; number < 8; number++) { /* each time in a new library, which makes them once */
    OK(cuLibraryLoadData(&library, ptx, NULL, NULL, 0, NULL, NULL, 0));
    OK(cuLibraryGetKernel(&kernel, library, "small"));
    TOLERANT(number % 2 ? cuKernelGetFunction(&function, kernel)
                        : cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, (CUfunction)kernel, 32, 0), );
    WITHOUT_MEMORY(cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1024, kernel, 0), );
    OK(cuLibraryUnload(library));
  }
  WITHOUT_MEMORY(cuTexRefCreate(&texture), OK(cuTexRefDestroy(texture)));
  OK(cuDeviceGetDevResource(0, &resource, CU_DEV_RESOURCE_TYPE_SM));
  WITHOUT_MEMORY(cuDevResourceGenerateDesc(&shape, &resource, 1), );
  SWEEPS(2, false, cuGreenCtxCreate(&green, shape, 0, CU_GREEN_CTX_DEFAULT_STREAM), OK(cuGreenCtxDestroy(green)));
  OK(cuGreenCtxCreate(&green, shape, 0, CU_GREEN_CTX_DEFAULT_STREAM));
  WITHOUT_MEMORY(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0), OK(cuStreamDestroy(stream)));
  OK(cuGreenCtxDestroy(green));
  file.handle.fd = memfd_create("shared", 0);
  EXPECT(0, ftruncate(file.handle.fd, 4096));
  WITHOUT_MEMORY(cuImportExternalMemory(&external, &file), OK(cuDestroyExternalMemory(external));
                 file.handle.fd = memfd_create("shared", 0); EXPECT(0, ftruncate(file.handle.fd, 4096)));
  OK(cuImportExternalMemory(&external, &file));
  OK(cuDestroyExternalMemory(external));
  signal.handle.fd = memfd_create("signal", 0);
  WITHOUT_MEMORY(cuImportExternalSemaphore(&semaphore, &signal), OK(cuDestroyExternalSemaphore(semaphore));
                 signal.handle.fd = memfd_create("signal", 0));
  OK(cuMemAlloc(&address, 64));
  OK(cuStreamCreate(&stream, 0));
  WITHOUT_MEMORY(cuMemcpyHtoDAsync(address, host, 64, stream), );
  WITHOUT_MEMORY(cuMemcpyDtoHAsync(host, address, 64, stream), );
  WITHOUT_MEMORY(cuMemsetD8Async(address, 1, 64, stream), );
  ONCE_WITHOUT_MEMORY(cuLaunchHostFunc(stream, unused, NULL), );
  ONCE_WITHOUT_MEMORY(cuStreamAddCallback(stream, called, NULL, 0), );
  ONCE_WITHOUT_MEMORY(cuStreamWriteValue32(stream, address, 1, 0), );
  TOLERANT(cuMemFreeAsync(address, stream), OK(cuStreamSynchronize(stream)); OK(cuMemAlloc(&address, 64)));
  OK(cuStreamSynchronize(stream));
  OK(cuStreamDestroy(stream));
  OK(cuMemFree(address));
}

static void memory_of_all_kinds(void) {
  CUarray array;
  CUmipmappedArray levels;
  CUtexObject texture;
  CUsurfObject surface;
  CUmemoryPool pool;
  CUmemGenericAllocationHandle handle;
  CUdeviceptr address;
  CUDA_ARRAY3D_DESCRIPTOR shape = {.Width = 16, .Height = 16, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
  CUDA_TEXTURE_DESC sampling = {0};
  CUmemPoolProps pooled = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
  CUmemAllocationProp physical = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
  static char host[8192];
  enum { PAGE = 2 << 20 };
  shape.Flags = CUDA_ARRAY3D_SURFACE_LDST;
  WITHOUT_MEMORY(cuArray3DCreate(&array, &shape), OK(cuArrayDestroy(array)));
  WITHOUT_MEMORY(cuMipmappedArrayCreate(&levels, &shape, 3), OK(cuMipmappedArrayDestroy(levels)));
  OK(cuMipmappedArrayCreate(&levels, &shape, 3));
  WITHOUT_MEMORY(cuMipmappedArrayGetLevel(&array, levels, 1), );
  OK(cuMipmappedArrayDestroy(levels));
  OK(cuArray3DCreate(&array, &shape));
  CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_ARRAY, .res.array.hArray = array};
  WITHOUT_MEMORY(cuTexObjectCreate(&texture, &resource, &sampling, NULL), OK(cuTexObjectDestroy(texture)));
  WITHOUT_MEMORY(cuSurfObjectCreate(&surface, &resource), OK(cuSurfObjectDestroy(surface)));
  OK(cuArrayDestroy(array));
  WITHOUT_MEMORY(cuMemPoolCreate(&pool, &pooled), OK(cuMemPoolDestroy(pool)));
  OK(cuMemPoolCreate(&pool, &pooled));
  OK(cuStreamQuery(CU_STREAM_LEGACY)); /* it is made when it is first used */
  WITHOUT_MEMORY(cuMemAllocFromPoolAsync(&address, 64, pool, NULL), OK(cuMemFreeAsync(address, NULL)));
  OK(cuStreamSynchronize(NULL));
  OK(cuMemPoolDestroy(pool));
  WITHOUT_MEMORY(cuMemAllocManaged(&address, 64, CU_MEM_ATTACH_GLOBAL), OK(cuMemFree(address)));
  OK(cuMemAllocManaged(&address, 64, CU_MEM_ATTACH_GLOBAL));
  WITHOUT_MEMORY(cuMemAdvise(address, 64, CU_MEM_ADVISE_SET_READ_MOSTLY, physical.location), );
  OK(cuMemFree(address));
  WITHOUT_MEMORY(cuMemHostRegister(host, sizeof host, 0), OK(cuMemHostUnregister(host)));
  WITHOUT_MEMORY(cuMemCreate(&handle, PAGE, &physical, 0), OK(cuMemRelease(handle)));
  WITHOUT_MEMORY(cuMemAddressReserve(&address, PAGE, 0, 0, 0), OK(cuMemAddressFree(address, PAGE)));
  OK(cuMemCreate(&handle, PAGE, &physical, 0));
  OK(cuMemAddressReserve(&address, PAGE, 0, 0, 0));
  WITHOUT_MEMORY(cuMemMap(address, PAGE, 0, handle, 0), OK(cuMemUnmap(address, PAGE)));
  OK(cuMemMap(address, PAGE, 0, handle, 0));
  CUmemAccessDesc both = {.location = physical.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUmemGenericAllocationHandle again;
  WITHOUT_MEMORY(cuMemSetAccess(address, PAGE, &both, 1), );
  WITHOUT_MEMORY(cuMemRetainAllocationHandle(&again, (void *)address), OK(cuMemRelease(again)));
  OK(cuMemUnmap(address, PAGE));
  OK(cuMemAddressFree(address, PAGE));
  OK(cuMemRelease(handle));
}

/* What is made of several parts, or keeps texts. */
static void parts_and_texts(CUcontext context) {
  CUDA_ARRAY3D_DESCRIPTOR video = {.Width = 16, .Height = 8, .Format = CU_AD_FORMAT_NV12, .NumChannels = 3};
  CUDA_ARRAY3D_DESCRIPTOR sparse = {.Width = 512, .Height = 512, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
  CUDA_EXTERNAL_MEMORY_HANDLE_DESC file = {.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD, .size = 1 << 20};
  CUDA_EXTERNAL_MEMORY_BUFFER_DESC part = {.offset = 100, .size = 5000};
  CUmemPoolProps shared = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
  CUexternalMemory memory;
  CUarray array;
  CUmipmappedArray levels;
  CUdeviceptr address;
  CUmemoryPool pool;
  CUlibrary library;
  CUmodule module;
  CUstream stream;
  CUlogsCallbackHandle logs;
  CUgraph graph;
  size_t size, pitch;
  char text[256], log[256];
  void *pinned;
  CUjit_option keys[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, CU_JIT_MAX_REGISTERS};
  void *values[] = {log, (void *)sizeof log, (void *)64};
  video.Flags = CUDA_ARRAY3D_VIDEO_ENCODE_DECODE;
  sparse.Flags = CUDA_ARRAY3D_SPARSE;
  WITHOUT_MEMORY(cuArray3DCreate(&array, &video), OK(cuArrayDestroy(array)));
  WITHOUT_MEMORY(cuArray3DCreate(&array, &sparse), OK(cuArrayDestroy(array)));
  WITHOUT_MEMORY(cuMipmappedArrayCreate(&levels, &sparse, 5), OK(cuMipmappedArrayDestroy(levels)));
  TOLERANT(cuMemAllocPitch(&address, &pitch, 100, 100, 4), OK(cuMemFree(address)));
  WITHOUT_MEMORY(cuMemHostAlloc(&pinned, 100, CU_MEMHOSTALLOC_DEVICEMAP), OK(cuMemFreeHost(pinned)));
  file.handle.fd = memfd_create("shared", 0);
  EXPECT(0, ftruncate(file.handle.fd, 1 << 20));
  OK(cuImportExternalMemory(&memory, &file));
  for (long number = 2; number < 8; number++) { /* where there are no pages, it is an error of the file */
    unsigned before = own_failures;
    before_failure = number;
    CUresult result = cuExternalMemoryGetMappedBuffer(&address, memory, &part);
    before_failure = -1;
    EXPECT(own_failures > before ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS, result);
    if (!result) OK(cuMemFree(address));
  }
  OK(cuDestroyExternalMemory(memory));
  WITHOUT_MEMORY(cuMemPoolCreate(&pool, &shared), OK(cuMemPoolDestroy(pool)));
  WITHOUT_MEMORY(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, -1), OK(cuStreamDestroy(stream)));
  OK(cuStreamCreate(&stream, 0));
  WITHOUT_MEMORY(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED), OK(cuStreamEndCapture(stream, &graph));
                 OK(cuGraphDestroy(graph)));
  OK(cuGraphCreate(&graph, 0));
  WITHOUT_MEMORY(cuStreamBeginCaptureToGraph(stream, graph, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_RELAXED),
                 OK(cuStreamEndCapture(stream, &graph)));
  OK(cuGraphDestroy(graph));
  OK(cuStreamDestroy(stream));
  WITHOUT_MEMORY(cuLogsRegisterCallback((CUlogsCallback)(void *)unused, NULL, &logs),
                 OK(cuLogsUnregisterCallback(logs)));
  size = sizeof text;
  OK(cuCoredumpGetAttribute(CU_COREDUMP_FILE, text, &size));
  TOLERANT(cuCoredumpSetAttribute(CU_COREDUMP_FILE, text, &size), );
  for (long number = 0; number < 8; number++) {
    OK(cuLibraryLoadData(&library, ptx, NULL, NULL, 0, NULL, NULL, 0));
    TOLERANT(number % 2 ? cuLibraryGetGlobal(&address, &size, library, "answer")
                        : cuLibraryGetModule(&module, library), );
    OK(cuLibraryUnload(library));
  }
  TOLERANT(cuModuleLoadDataEx(&module, ptx, 3, keys, values), OK(cuModuleUnload(module)));
  OK(cuCtxSetCurrent(context));
}

static CUresult link_file(CUjitInputType type, const char *path) {
  void *image;
  size_t size;
  CUlinkState state;
  CUresult result = cuLinkCreate(0, NULL, NULL, &state);
  if (result) return result;
  result = cuLinkAddFile(state, type, path, 0, NULL, NULL);
  if (!result) result = cuLinkComplete(state, &image, &size);
  OK(cuLinkDestroy(state));
  return result;
}

/* Images in files, and what other processes may have. */
static void files(const char *folder) {
  static const struct {
    CUjitInputType type;
    const char *name;
  } inputs[] = {
      {CU_JIT_INPUT_CUBIN, "13.0/main.cubin"},
      {CU_JIT_INPUT_FATBINARY, "nvcc/user.fatbin"},
      {CU_JIT_INPUT_OBJECT, "nvcc/user.o"},
      {CU_JIT_INPUT_LIBRARY, "nvcc/user.a"},
      {CU_JIT_INPUT_FATBINARY, "nvcc/user-plain.fatbin"},
  };
  CUmodule module;
  CUlibrary library;
  CUdeviceptr address;
  CUevent event;
  CUmemoryPool pool, other;
  CUmemPoolPtrExportData part;
  CUipcMemHandle shared;
  CUipcEventHandle recorded;
  CUmemGenericAllocationHandle physical, again;
  CUmemPoolProps pooled = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
  CUmemAllocationProp kind = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
  int file;
  pooled.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  kind.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  for (size_t at = 0; at < sizeof inputs / sizeof *inputs; at++) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, inputs[at].name);
    AS_EVER(cuModuleLoad(&module, path), OK(cuModuleUnload(module)));
    AS_EVER(cuLibraryLoadFromFile(&library, path, NULL, NULL, 0, NULL, NULL, 0), OK(cuLibraryUnload(library)));
    AS_EVER(link_file(inputs[at].type, path), );
  }
  OK(cuMemAlloc(&address, 64));
  WITHOUT_MEMORY(cuIpcGetMemHandle(&shared, address), );
  WITHOUT_MEMORY(cuMemGetHandleForAddressRange(&file, address, 4096, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0),
                 close(file));
  OK(cuMemFree(address));
  WITHOUT_MEMORY(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING), OK(cuEventDestroy(event)));
  OK(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
  WITHOUT_MEMORY(cuIpcGetEventHandle(&recorded, event), );
  OK(cuEventDestroy(event));
  WITHOUT_MEMORY(cuMemPoolCreate(&pool, &pooled), OK(cuMemPoolDestroy(pool)));
  OK(cuMemPoolCreate(&pool, &pooled));
  OK(cuMemPoolExportToShareableHandle(&file, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  WITHOUT_MEMORY(
      cuMemPoolImportFromShareableHandle(&other, (void *)(intptr_t)file, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
      OK(cuMemPoolDestroy(other)));
  close(file);
  WITHOUT_MEMORY(cuMemAllocFromPoolAsync(&address, 64, pool, NULL), OK(cuMemFreeAsync(address, NULL)));
  OK(cuMemAllocFromPoolAsync(&address, 64, pool, NULL));
  WITHOUT_MEMORY(cuMemPoolExportPointer(&part, address), );
  OK(cuMemFreeAsync(address, NULL));
  OK(cuStreamSynchronize(NULL));
  OK(cuMemPoolDestroy(pool));
  WITHOUT_MEMORY(cuMemCreate(&physical, 2 << 20, &kind, 0), OK(cuMemRelease(physical)));
  OK(cuMemCreate(&physical, 2 << 20, &kind, 0));
  OK(cuMemExportToShareableHandle(&file, physical, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  WITHOUT_MEMORY(
      cuMemImportFromShareableHandle(&again, (void *)(intptr_t)file, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
      OK(cuMemRelease(again)));
  close(file);
  OK(cuMemRelease(physical));
}

int main(int count, char **arguments) {
  CUcontext context, own;
  CUgreenCtx green;
  CUasyncCallbackHandle notes = NULL;
  CUstream stream;
  CUevent event;
  CUmodule module;
  CUlibrary library;
  CUfunction function;
  CUkernel kernel, kernels[4];
  CUdeviceptr address;
  size_t bytes, offset;
  void *pinned;
  const char *name;
  OK(cuInit(0));
  dl_iterate_phdr(find_driver, NULL);
  OK(cuDevicePrimaryCtxRetain(&context, 0));
  WITHOUT_MEMORY(cuCtxPushCurrent(context), );
  SWEEPS(2, false, cuCtxCreate(&own, NULL, 0, 0), OK(cuCtxDestroy(own)));
  SWEEPS(2, false, cuGreenCtxCreate(&green, NULL, 0, CU_GREEN_CTX_DEFAULT_STREAM), OK(cuGreenCtxDestroy(green)));
  WITHOUT_MEMORY(cuDeviceRegisterAsyncNotification(0, unnoted, NULL, &notes),
                 OK(cuDeviceUnregisterAsyncNotification(0, notes)));
  WITHOUT_MEMORY(cuStreamCreate(&stream, 0), OK(cuStreamDestroy(stream)));
  WITHOUT_MEMORY(cuEventCreate(&event, 0), OK(cuEventDestroy(event)));
  TOLERANT(cuMemAlloc(&address, 100), OK(cuMemFree(address)));
  WITHOUT_MEMORY(cuMemAllocHost(&pinned, 100), OK(cuMemFreeHost(pinned)));
  OK(link_once()); /* what nvJitLink is loaded with is not repeated */
  TOLERANT(link_once(), );
  setenv("CUDA_CACHE_DISABLE", "1", 1);
  TOLERANT(cuModuleLoadData(&module, ptx), OK(cuModuleUnload(module)));
  unsetenv("CUDA_CACHE_DISABLE");
  for (int kept = 0; kept < 2; kept++) TOLERANT(cuModuleLoadData(&module, ptx), OK(cuModuleUnload(module)));
  for (long number = 0; number < 8; number++) { /* each time in a new module: functions and variables are made once */
    OK(cuModuleLoadData(&module, ptx));
    WITHOUT_MEMORY(cuModuleGetFunction(&function, module, "small"), OK(cuFuncGetName(&name, function)));
    EXPECT(0, strcmp(name, "small"));
    OK(cuFuncGetParamInfo(function, 0, &offset, &bytes));
    EXPECT(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&function, module, "large"));
    before_failure = number;
    CUresult result = cuModuleGetGlobal(&address, &bytes, module, "answer");
    before_failure = -1;
    if (result) EXPECT(CUDA_ERROR_OUT_OF_MEMORY, result);
    else EXPECT(1, address != 0 && bytes == 4);
    OK(cuModuleUnload(module));
  }
  memory_of_all_kinds();
  parts_and_texts(context);
  if (count > 1) files(arguments[1]);
  OK(cuModuleLoadData(&module, ptx));
  OK(cuModuleGetFunction(&function, module, "small"));
  OK(cuMemAlloc(&address, 64));
  for (int checked = 0; checked < 4; checked++) {
    loose = checked;
    plenty = checked == 3;
    cudalinkCheckOrder(checked & 1);
    if (checked == 2) OK(cudalinkStartSchedule(1, NULL, 0, 1, 1));
    graphs(context, function, address);
    changed_graphs(context, function, address);
    nodes_of_all_kinds(context, address);
    settings_and_shares(context);
    if (checked == 2) cudalinkEndSchedule();
  }
  cudalinkCheckOrder(0);
  loose = plenty = false;
  OK(cuMemFree(address));
  OK(cuModuleUnload(module));
  TOLERANT(cuLibraryLoadData(&library, ptx, NULL, NULL, 0, NULL, NULL, 0), OK(cuLibraryUnload(library)));
  OK(cuLibraryLoadData(&library, ptx, NULL, NULL, 0, NULL, NULL, 0));
  WITHOUT_MEMORY(cuLibraryEnumerateKernels(kernels, 4, library), OK(cuKernelGetName(&name, kernels[0])));
  WITHOUT_MEMORY(cuLibraryGetKernel(&kernel, library, "small"), );
  EXPECT(1, kernel == kernels[0]);
  OK(cuLibraryUnload(library));
  waits();
  violation(1);
  violation(200);
  EXPECT(1, failures > 20); /* the driver's calls do come here */
  puts("done");
  return 0;
}
