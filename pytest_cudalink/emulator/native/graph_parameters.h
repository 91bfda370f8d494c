/* The kinds of nodes and their parameters, as the driver's API describes them. */
#pragma once

#include "streams.h"

typedef struct Graph Graph;

/* CUgraphNodeType */
typedef enum {
  NODE_KERNEL,
  NODE_COPY,
  NODE_FILL,
  NODE_HOST,
  NODE_CHILD,
  NODE_EMPTY,
  NODE_WAIT,
  NODE_RECORD,
  NODE_SIGNAL_SEMAPHORES,
  NODE_WAIT_SEMAPHORES,
  NODE_ALLOCATE,
  NODE_FREE,
  NODE_MEMORY_OPERATIONS,
  NODE_CONDITIONAL,
  NODE_TYPES,
} NodeType;

/* CUDA_KERNEL_NODE_PARAMS_v3 */
typedef struct {
  void *function;
  unsigned grid[3], block[3], shared;
  void **parameters, **extra;
  void *kernel;
  Context *context;
} KernelNode;

/* CUDA_MEMCPY_NODE_PARAMS */
typedef struct {
  int flags, reserved;
  Context *context;
  Box box;
} CopyNode;

/* CUDA_MEMSET_NODE_PARAMS_v2 */
typedef struct {
  CUdeviceptr to;
  size_t pitch;
  unsigned value, element;
  size_t width, height;
  Context *context;
} FillNode;

/* CUDA_HOST_NODE_PARAMS_v2 */
typedef struct {
  void (*function)(void *);
  void *data;
} HostNode;

/* CUDA_CHILD_GRAPH_NODE_PARAMS */
typedef struct {
  Graph *graph;
  int ownership;
} ChildNode;

/* CUDA_EXT_SEM_SIGNAL_NODE_PARAMS_v2, CUDA_EXT_SEM_WAIT_NODE_PARAMS_v2 */
typedef struct {
  void **semaphores;
  void *values; /* of 144 bytes each, in both */
  unsigned count;
} SemaphoreNode;
enum { SEMAPHORE_VALUE = 144 };

/* CUDA_MEM_ALLOC_NODE_PARAMS_v2 */
typedef struct {
  PoolProperties properties;
  const AccessDescription *accesses;
  size_t access_count, size;
  CUdeviceptr address;
} AllocateNode;

/* CUstreamBatchMemOpParams */
typedef struct {
  int operation;
  unsigned simple_flags; /* of a barrier or a flush */
  CUdeviceptr address;
  uint64_t value;
  unsigned flags;
  CUdeviceptr alias;
  uint64_t rest;
} MemoryOperation;
_Static_assert(sizeof(MemoryOperation) == 48, "CUstreamBatchMemOpParams");
/* These are in stream_operations.c. */
enum { OPERATIONS_MAX = 255 };
CUresult cl_check_operations(unsigned count, const MemoryOperation *list);
/* Does operations from a position on, which it moves; CUDA_ERROR_NOT_READY at one that waits for a value. */
CUresult cl_do_operations(unsigned count, const MemoryOperation *list, unsigned *position);

/* CUDA_BATCH_MEM_OP_NODE_PARAMS_v2 */
typedef struct {
  Context *context;
  unsigned count;
  MemoryOperation *list;
  unsigned flags;
} OperationsNode;

/* CUDA_CONDITIONAL_NODE_PARAMS */
typedef struct {
  uint64_t handle;
  int type;
  unsigned size;
  Graph **bodies;
  Context *context;
} ConditionalNode;

/* CUgraphNodeParams */
typedef struct {
  int type;
  int reserved0[3];
  union {
    int64_t reserved1[29];
    KernelNode kernel;
    CopyNode copy;
    FillNode fill;
    HostNode host;
    ChildNode child;
    Event *event;
    SemaphoreNode semaphores;
    AllocateNode allocate;
    CUdeviceptr address;
    OperationsNode operations;
    ConditionalNode conditional;
  };
  int64_t reserved2;
} NodeParameters;
_Static_assert(sizeof(NodeParameters) == 256, "CUgraphNodeParams");

/* Copies what parameters point to, so that they are a node's own; false if memory is out, and then nothing is copied.
   Those of a kernel must be a block of cl_kernel_block, or NULL. Graphs are left alone. */
bool cl_parameters_own(NodeParameters *parameters);
void cl_parameters_free(NodeParameters *parameters);
/* Copies the values of a kernel's parameters; NULL if memory is out. */
void **cl_kernel_block(size_t count, const size_t *sizes, void *const *values);
