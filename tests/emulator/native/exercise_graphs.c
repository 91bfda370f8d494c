/* A driver program that makes, copies, updates, launches and captures graphs, to be run plainly and with sanitizers.
 *
 *     exercise_graphs [rounds]
 *
 * Several threads do the same at once. Exit code 1 at the first answer that is not the expected one. */
#include <cuda.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "expect.h"

enum { THREADS = 4, DEPTH = 20000, SMALL_STACK = 512 << 10 };

static int rounds = 3;
static CUcontext context;

static void count(void *counter) { ++*(int *)counter; }

static CUDA_MEMSET_NODE_PARAMS fill_of(CUdeviceptr to, unsigned value) {
  return (CUDA_MEMSET_NODE_PARAMS){.dst = to, .value = value, .elementSize = 1, .width = 16, .height = 1};
}

static void nodes(CUstream stream) {
  CUgraph graph, child, clone;
  CUgraphNode filled, copied, called, other, found;
  CUgraphExec executable;
  CUuserObject object;
  CUdeviceptr memory;
  int calls = 0, destroyed = 0;
  unsigned char back[16] = {0};
  OK(cuMemAlloc(&memory, 16));
  OK(cuGraphCreate(&graph, 0));
  OK(cuGraphCreate(&child, 0));
  CUDA_MEMSET_NODE_PARAMS fill = fill_of(memory, 7);
  OK(cuGraphAddMemsetNode(&filled, graph, NULL, 0, &fill, context));
  CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = memory};
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = back;
  copy.WidthInBytes = sizeof back;
  copy.Height = copy.Depth = 1;
  OK(cuGraphAddMemcpyNode(&copied, graph, &filled, 1, &copy, context));
  CUDA_HOST_NODE_PARAMS host = {.fn = count, .userData = &calls};
  OK(cuGraphAddHostNode(&called, child, NULL, 0, &host));
  OK(cuGraphAddChildGraphNode(&other, graph, &copied, 1, child));
  CUstreamBatchMemOpParams operation = {.writeValue = {CU_STREAM_MEM_OP_WRITE_VALUE_32, memory, {9}, 0, 0}};
  CUDA_BATCH_MEM_OP_NODE_PARAMS batch = {.ctx = context, .count = 1, .paramArray = &operation};
  OK(cuGraphAddBatchMemOpNode(&found, graph, &other, 1, &batch));
  OK(cuUserObjectCreate(&object, &destroyed, count, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  OK(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
  OK(cuGraphClone(&clone, graph));
  OK(cuGraphNodeFindInClone(&found, filled, clone));
  TRUE(found != filled);
  fill.value = 8;
  OK(cuGraphMemsetNodeSetParams(found, &fill));
  OK(cuGraphInstantiate(&executable, graph, 0));
  OK(cuGraphLaunch(executable, stream));
  OK(cuStreamSynchronize(stream));
  TRUE(back[0] == 7 && back[15] == 7 && calls == 1);
  CUgraphExecUpdateResultInfo update;
  OK(cuGraphExecUpdate(executable, clone, &update));
  OK(cuGraphDestroy(clone));
  OK(cuGraphLaunch(executable, stream));
  OK(cuStreamSynchronize(stream));
  TRUE(back[0] == 8 && calls == 2);
  OK(cuGraphDestroyNode(copied));
  OK(cuGraphDestroy(child));
  OK(cuGraphDestroy(graph));
  TRUE(!destroyed);
  OK(cuGraphExecDestroy(executable));
  TRUE(destroyed == 1);
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphExecDestroy(executable));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(graph));
  OK(cuMemFree(memory));
}

static void conditions(CUstream stream) {
  CUgraph graph;
  CUgraphNode node, inner;
  CUgraphExec executable;
  CUgraphConditionalHandle handle;
  CUdeviceptr memory;
  unsigned char back[16] = {0};
  OK(cuMemAlloc(&memory, 16));
  OK(cuMemsetD8(memory, 0, 16));
  OK(cuGraphCreate(&graph, 0));
  OK(cuGraphConditionalHandleCreate(&handle, graph, context, 1, CU_GRAPH_COND_ASSIGN_DEFAULT));
  CUgraphNodeParams parameters = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
  parameters.conditional = (CUDA_CONDITIONAL_NODE_PARAMS){handle, CU_GRAPH_COND_TYPE_SWITCH, 3, NULL, context};
  OK(cuGraphAddNode(&node, graph, NULL, NULL, 0, &parameters));
  for (unsigned body = 0; body < 3; body++) {
    CUDA_MEMSET_NODE_PARAMS fill = fill_of(memory, 10 + body);
    OK(cuGraphAddMemsetNode(&inner, parameters.conditional.phGraph_out[body], NULL, 0, &fill, context));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(parameters.conditional.phGraph_out[body]));
  }
  OK(cuGraphInstantiate(&executable, graph, 0));
  OK(cuGraphLaunch(executable, stream));
  OK(cuMemcpyDtoH(back, memory, sizeof back));
  TRUE(back[3] == 11);
  OK(cuGraphExecDestroy(executable));
  OK(cuGraphDestroy(graph));
  OK(cuMemFree(memory));
}

static void memory_nodes(CUstream stream) {
  CUgraph graph;
  CUgraphNode made, freed, filled;
  CUgraphExec executable;
  OK(cuGraphCreate(&graph, 0));
  CUDA_MEM_ALLOC_NODE_PARAMS allocation = {.bytesize = 4096};
  allocation.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  allocation.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  OK(cuGraphAddMemAllocNode(&made, graph, NULL, 0, &allocation));
  CUDA_MEMSET_NODE_PARAMS fill = fill_of(allocation.dptr, 3);
  OK(cuGraphAddMemsetNode(&filled, graph, &made, 1, &fill, context));
  EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuGraphDestroyNode(filled));
  OK(cuGraphInstantiate(&executable, graph, 0));
  OK(cuGraphLaunch(executable, stream));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch(executable, stream));
  OK(cuMemFreeAsync(allocation.dptr, stream));
  EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuGraphInstantiate(&executable, graph, 0)); /* one is alive */
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemFreeNode(&freed, graph, &filled, 1, allocation.dptr));
  OK(cuGraphExecDestroy(executable));
  OK(cuGraphAddMemFreeNode(&freed, graph, &filled, 1, allocation.dptr));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemFreeNode(&freed, graph, &filled, 1, allocation.dptr));
  OK(cuGraphInstantiate(&executable, graph, 0));
  OK(cuGraphLaunch(executable, stream));
  OK(cuGraphLaunch(executable, stream));
  OK(cuGraphDestroy(graph));
  OK(cuGraphLaunch(executable, stream));
  OK(cuGraphExecDestroy(executable));
  OK(cuDeviceGraphMemTrim(0));
}

/* A graph within another one makes memory, which is of a device, and is there until it is freed. */
static void memory_within(CUstream stream) {
  CUgraph graph, child;
  CUgraphNode made, node;
  CUgraphExec executable;
  unsigned managed = 7, type;
  OK(cuGraphCreate(&child, 0));
  CUDA_MEM_ALLOC_NODE_PARAMS allocation = {.bytesize = 4096};
  allocation.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  allocation.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  OK(cuGraphAddMemAllocNode(&made, child, NULL, 0, &allocation));
  OK(cuGraphCreate(&graph, 0));
  CUgraphNodeParams parameters = {.type = CU_GRAPH_NODE_TYPE_GRAPH};
  parameters.graph.graph = child;
  EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuGraphAddNode(&node, graph, NULL, NULL, 0, &parameters));
  parameters.graph.ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
  OK(cuGraphAddNode(&node, graph, NULL, NULL, 0, &parameters));
  OK(cuGraphInstantiate(&executable, graph, 0));
  OK(cuGraphLaunch(executable, stream));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch(executable, stream));
  OK(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, allocation.dptr));
  OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, allocation.dptr));
  TRUE((managed & 0xff) == 0 && type == CU_MEMORYTYPE_DEVICE);
  OK(cuMemFreeAsync(allocation.dptr, stream));
  OK(cuGraphLaunch(executable, stream));
  OK(cuMemFreeAsync(allocation.dptr, stream));
  OK(cuGraphExecDestroy(executable));
  OK(cuGraphDestroy(graph));
}

/* Nodes of events and of semaphores, of which some are gone. */
static void gone(CUstream stream) {
  CUgraph graph;
  CUgraphNode node;
  CUgraphExec executable;
  CUgraphExecUpdateResultInfo update;
  CUevent event;
  CUexternalSemaphore semaphores[2];
  CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS signals[2] = {0};
  CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC file = {.type = CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD};
  OK(cuEventCreate(&event, 0));
  OK(cuGraphCreate(&graph, 0));
  OK(cuGraphAddEventRecordNode(&node, graph, NULL, 0, event));
  OK(cuGraphInstantiate(&executable, graph, 0));
  OK(cuEventDestroy(event));
  OK(cuGraphLaunch(executable, stream));
  OK(cuStreamSynchronize(stream));
  OK(cuGraphExecDestroy(executable));
  OK(cuGraphDestroy(graph));
  for (int at = 0; at < 2; at++) {
    file.handle.fd = (int)syscall(SYS_memfd_create, "semaphore", 0);
    OK(cuImportExternalSemaphore(&semaphores[at], &file));
  }
  CUDA_EXT_SEM_SIGNAL_NODE_PARAMS one = {semaphores, signals, 1}, two = {semaphores, signals, 2};
  OK(cuGraphCreate(&graph, 0));
  OK(cuGraphAddExternalSemaphoresSignalNode(&node, graph, NULL, 0, &one));
  OK(cuGraphInstantiate(&executable, graph, 0));
  OK(cuGraphExecExternalSemaphoresSignalNodeSetParams(executable, node, &one));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphExecExternalSemaphoresSignalNodeSetParams(executable, node, &two));
  OK(cuGraphExecUpdate(executable, graph, &update));
  OK(cuGraphExternalSemaphoresSignalNodeSetParams(node, &two));
  EXPECT(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate(executable, graph, &update));
  OK(cuDestroyExternalSemaphore(semaphores[1]));
  EXPECT(CUDA_ERROR_INVALID_HANDLE, cuGraphAddExternalSemaphoresSignalNode(&node, graph, NULL, 0, &two));
  OK(cuDestroyExternalSemaphore(semaphores[0]));
  OK(cuGraphExecDestroy(executable));
  OK(cuGraphDestroy(graph));
}

static void captures(CUstream stream) {
  CUstream other;
  CUevent fork, join;
  CUgraph graph;
  CUgraphExec executable;
  CUdeviceptr memory, inner;
  int calls = 0;
  size_t size;
  OK(cuMemAlloc(&memory, 64));
  OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  OK(cuEventCreate(&fork, 0));
  OK(cuEventCreate(&join, 0));
  OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  OK(cuMemsetD8Async(memory, 1, 64, stream));
  OK(cuEventRecord(fork, stream));
  OK(cuStreamWaitEvent(other, fork, 0));
  OK(cuLaunchHostFunc(other, count, &calls));
  OK(cuMemAllocAsync(&inner, 256, other));
  OK(cuMemFreeAsync(inner, other));
  OK(cuEventRecord(join, other));
  OK(cuStreamWaitEvent(stream, join, 0));
  OK(cuStreamDestroy(other));
  EXPECT(CUDA_ERROR_CAPTURED_EVENT, cuEventQuery(join) ? CUDA_ERROR_CAPTURED_EVENT : 0);
  EXPECT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(stream, &graph));
  TRUE(!graph && !calls);
  OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  OK(cuMemsetD8Async(memory, 1, 64, stream));
  OK(cuLaunchHostFunc(stream, count, &calls));
  OK(cuStreamEndCapture(stream, &graph));
  OK(cuGraphGetNodes(graph, NULL, &size));
  TRUE(size == 2);
  OK(cuGraphInstantiate(&executable, graph, 0));
  OK(cuGraphLaunch(executable, stream));
  OK(cuStreamSynchronize(stream));
  TRUE(calls == 1);
  OK(cuGraphExecDestroy(executable));
  OK(cuGraphDestroy(graph));
  OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  OK(cuStreamBeginCapture(other, CU_STREAM_CAPTURE_MODE_RELAXED));
  OK(cuMemsetD8Async(memory, 1, 64, other));
  OK(cuStreamDestroy(other));
  OK(cuEventDestroy(fork));
  OK(cuEventDestroy(join));
  OK(cuMemFree(memory));
}

/* A capture in a graph of a node, which is destroyed meanwhile, alone or with its parent. */
static void orphan(CUstream stream, int conditional, int alone) {
  CUgraph graph, child, inner, ended;
  CUgraphNode node;
  CUdeviceptr memory;
  OK(cuMemAlloc(&memory, 16));
  OK(cuGraphCreate(&graph, 0));
  CUgraphNodeParams parameters = {.type = CU_GRAPH_NODE_TYPE_GRAPH};
  if (conditional) {
    CUgraphConditionalHandle handle;
    OK(cuGraphConditionalHandleCreate(&handle, graph, context, 0, 0));
    parameters.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    parameters.conditional = (CUDA_CONDITIONAL_NODE_PARAMS){handle, CU_GRAPH_COND_TYPE_IF, 1, NULL, context};
    OK(cuGraphAddNode(&node, graph, NULL, NULL, 0, &parameters));
    inner = parameters.conditional.phGraph_out[0];
  } else {
    OK(cuGraphCreate(&child, 0));
    parameters.graph.graph = child;
    OK(cuGraphAddNode(&node, graph, NULL, NULL, 0, &parameters));
    OK(cuGraphDestroy(child));
    OK(cuGraphChildGraphNodeGetGraph(node, &inner));
  }
  OK(cuStreamBeginCaptureToGraph(stream, inner, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_RELAXED));
  OK(alone ? cuGraphDestroyNode(node) : cuGraphDestroy(graph));
  OK(cuMemsetD8Async(memory, 1, 16, stream));
  OK(cuStreamEndCapture(stream, &ended));
  TRUE(ended == inner);
  if (alone) OK(cuGraphDestroy(graph));
  OK(cuMemFree(memory));
}

static void *all(void *unused) {
  CUstream stream;
  OK(cuCtxSetCurrent(context));
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  for (int round = 0; round < rounds; round++) {
    nodes(stream);
    conditions(stream);
    memory_nodes(stream);
    memory_within(stream);
    gone(stream);
    captures(stream);
    for (int way = 0; way < 4; way++) orphan(stream, way & 1, way & 2);
  }
  OK(cuStreamDestroy(stream));
  return unused;
}

static void update_and_destroy(CUgraph graph, CUgraphExec executable) {
  CUgraphExecUpdateResultInfo update;
  OK(cuGraphExecUpdate(executable, graph, &update));
  OK(cuGraphExecDestroy(executable));
  OK(cuGraphDestroy(graph));
}

/* A chain of nodes and one of graphs within graphs, each longer than this thread's stack has room for frames. */
static void *deep(void *unused) {
  CUstream stream, other;
  CUevent fork, join;
  CUgraph graph, outer;
  CUgraphNode node;
  CUgraphExec executable;
  CUdeviceptr memory;
  OK(cuCtxSetCurrent(context));
  OK(cuMemAlloc(&memory, 16));
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  OK(cuEventCreate(&fork, 0));
  OK(cuEventCreate(&join, 0));
  OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  OK(cuMemsetD8Async(memory, 1, 16, stream));
  OK(cuEventRecord(fork, stream));
  OK(cuStreamWaitEvent(other, fork, 0));
  OK(cuMemsetD8Async(memory, 1, 16, other));
  OK(cuEventRecord(join, other));
  OK(cuStreamWaitEvent(stream, join, 0));
  for (int at = 0; at < DEPTH; at++) OK(cuMemsetD8Async(memory, 1, 16, stream));
  OK(cuStreamEndCapture(stream, &graph));
  OK(cuGraphInstantiate(&executable, graph, 0));
  OK(cuGraphLaunch(executable, stream));
  update_and_destroy(graph, executable);
  OK(cuGraphCreate(&graph, 0));
  for (int at = 0; at < DEPTH; at++) {
    CUgraphNodeParams parameters = {.type = CU_GRAPH_NODE_TYPE_GRAPH};
    parameters.graph.graph = graph;
    parameters.graph.ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
    OK(cuGraphCreate(&outer, 0));
    OK(cuGraphAddNode(&node, outer, NULL, NULL, 0, &parameters));
    graph = outer;
  }
  OK(cuGraphInstantiate(&executable, graph, 0));
  update_and_destroy(graph, executable);
  OK(cuEventDestroy(fork));
  OK(cuEventDestroy(join));
  OK(cuStreamDestroy(other));
  OK(cuStreamDestroy(stream));
  OK(cuMemFree(memory));
  return unused;
}

/* Nodes of some types are looked at first, and need the driver; of others the graph is, which is none. */
static void before_init(void) {
  CUgraphNode node;
  for (int type = 0; type < 16; type++) {
    CUgraphNodeParams parameters = {.type = (CUgraphNodeType)type};
    bool first = type < 3 || type == CU_GRAPH_NODE_TYPE_GRAPH || type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
                 type == CU_GRAPH_NODE_TYPE_MEM_FREE;
    EXPECT(first ? CUDA_ERROR_NOT_INITIALIZED : CUDA_ERROR_INVALID_VALUE,
           cuGraphAddNode(&node, NULL, NULL, NULL, 0, &parameters));
  }
}

int main(int count_of_arguments, char **arguments) {
  pthread_t threads[THREADS];
  if (count_of_arguments > 1) rounds = atoi(arguments[1]);
  before_init();
  OK(cuInit(0));
  OK(cuDevicePrimaryCtxRetain(&context, 0));
  pthread_attr_t small;
  TRUE(!pthread_attr_init(&small) && !pthread_attr_setstacksize(&small, SMALL_STACK));
  TRUE(!pthread_create(threads, &small, deep, NULL) && !pthread_join(*threads, NULL));
  TRUE(!pthread_attr_destroy(&small));
  for (int at = 0; at < THREADS; at++) TRUE(!pthread_create(&threads[at], NULL, all, NULL));
  for (int at = 0; at < THREADS; at++) TRUE(!pthread_join(threads[at], NULL));
  OK(cuDevicePrimaryCtxRelease(0));
  puts("done");
  return 0;
}
