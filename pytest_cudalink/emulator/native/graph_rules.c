/* What parameters of nodes must be, and how they may change. */
#include "graph_rules.h"

#include "blocks.h"
#include "copied_bytes.h"
#include "devices.h"
#include "launches.h"

/* A context that a node names; NULL is the current one. */
static CUresult complete_context(Context **context) {
  if (!*context) {
    *context = cl_current();
    return cl_check_context() ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  }
  return !cl_is_known_context(*context) || (*context)->dead ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_SUCCESS;
}

static CUresult prepare_kernel(KernelNode *kernel) {
  const void *handle = kernel->function ? kernel->function : kernel->kernel;
  if (!handle) return CUDA_ERROR_INVALID_HANDLE;
  TRY(kernel->context ? CUDA_SUCCESS : cl_check_context());
  TRY(complete_context(&kernel->context));
  LaunchConfig config = {.shared = kernel->shared};
  memcpy(config.grid, kernel->grid, sizeof config.grid);
  memcpy(config.block, kernel->block, sizeof config.block);
  CUresult result = cl_check_launch(&config, handle, kernel->parameters, kernel->extra);
  if (result == CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES) return CUDA_ERROR_INVALID_VALUE; /* that is of launches (H200) */
  return result ? result : cl_kernel_own(kernel);
}

static CUresult prepare_copy(CopyNode *copy) {
  TRY(complete_context(&copy->context));
  if (copy->flags || copy->reserved || !copy->box.width || !copy->box.height || !copy->box.depth)
    return CUDA_ERROR_INVALID_VALUE;
  return cl_check_box(&copy->box);
}

/* Memory of a pool is of no context. */
static bool is_of_pool(CUdeviceptr address) {
  HOLD_BLOCK(block, address);
  return block && block->origin & (FROM_POOL | FROM_POOL_OF_OTHER);
}

static CUresult prepare_fill(FillNode *fill) {
  if (!fill->context && cl_check_context() == CUDA_ERROR_CONTEXT_IS_DESTROYED) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  /* NULL is not the current one here (measured: programs/order) */
  if (!fill->context && is_of_pool(fill->to)) return CUDA_ERROR_INVALID_VALUE;
  TRY(complete_context(&fill->context));
  if (fill->element != 1 && fill->element != 2 && fill->element != 4) return CUDA_ERROR_INVALID_VALUE;
  if (!fill->width || !fill->height) return CUDA_ERROR_INVALID_VALUE;
  return cl_check_fill(fill->to, fill->element, fill->pitch, fill->width, fill->height);
}

static CUresult prepare_allocation(const AllocateNode *allocate) {
  const PoolProperties *pool = &allocate->properties;
  const Location *location = &pool->location;
  bool known = pool->type == CU_MEM_ALLOCATION_TYPE_PINNED || pool->type == CU_MEM_ALLOCATION_TYPE_MANAGED;
  if (!allocate->size || !known) return CUDA_ERROR_INVALID_VALUE;
  if (location->type < (pool->type == CU_MEM_ALLOCATION_TYPE_PINNED) || location->type > CU_MEM_LOCATION_TYPE_HOST_NUMA)
    return CUDA_ERROR_INVALID_VALUE;
  if (location->type == CU_MEM_LOCATION_TYPE_DEVICE && !cl_is_device(location->id)) return CUDA_ERROR_INVALID_VALUE;
  if (allocate->access_count && (!allocate->accesses || !cl_is_device((int)allocate->access_count - 1)))
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

CUresult cl_allocation_possible(const AllocateNode *allocate) {
  if (allocate->properties.location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED; /* (H200) */
  if (allocate->properties.handle_types) return CUDA_ERROR_NOT_SUPPORTED; /* (measured: edges/graph_memory) */
  for (size_t at = 0; at < allocate->access_count; at++)
    if (allocate->accesses[at].location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
        !cl_is_device(allocate->accesses[at].location.id))
      return CUDA_ERROR_INVALID_DEVICE;
  for (size_t at = 0; at < allocate->access_count; at++)
    if (allocate->accesses[at].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) return CUDA_ERROR_NOT_SUPPORTED;
  return allocate->size > cl_device_memory() ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

static CUresult prepare_operations(OperationsNode *operations) {
  /* NULL is not the current one here (measured: test_arguments) */
  if (!operations->context) return CUDA_ERROR_INVALID_VALUE;
  TRY(complete_context(&operations->context));
  if (operations->flags) return CUDA_ERROR_INVALID_VALUE;
  if (!operations->count) return CUDA_SUCCESS; /* a node may do nothing (measured: test_arguments) */
  return cl_check_operations(operations->count, operations->list);
}

static CUresult prepare_conditional(ConditionalNode *conditional) {
  static const unsigned most[] = {2, 1, UINT32_MAX};
  conditional->bodies = NULL; /* the caller's may be what another node owns */
  if (conditional->type < CU_GRAPH_COND_TYPE_IF || conditional->type > CU_GRAPH_COND_TYPE_SWITCH)
    return CUDA_ERROR_INVALID_VALUE;
  if (!conditional->size || conditional->size > most[conditional->type]) return CUDA_ERROR_INVALID_VALUE;
  if (!conditional->context)
    return CUDA_ERROR_INVALID_CONTEXT; /* NULL is not the current one here (measured: edges/graph_conditional) */
  return complete_context(&conditional->context);
}

CUresult cl_parameters_prepare(NodeParameters *parameters) {
  const SemaphoreNode *given = &parameters->semaphores;
  switch (parameters->type) {
    case NODE_KERNEL: return prepare_kernel(&parameters->kernel);
    case NODE_COPY: return prepare_copy(&parameters->copy);
    case NODE_FILL: return prepare_fill(&parameters->fill);
    case NODE_HOST: return parameters->host.function ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case NODE_CHILD:
    case NODE_EMPTY:
    case NODE_FREE: return CUDA_SUCCESS;
    case NODE_WAIT:
    case NODE_RECORD: return parameters->event ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case NODE_SIGNAL_SEMAPHORES:
    case NODE_WAIT_SEMAPHORES:
      if (given->count && (!given->semaphores || !given->values)) return CUDA_ERROR_INVALID_VALUE;
      break;
    case NODE_ALLOCATE: TRY(prepare_allocation(&parameters->allocate)); break;
    case NODE_MEMORY_OPERATIONS: TRY(prepare_operations(&parameters->operations)); break;
    case NODE_CONDITIONAL: return prepare_conditional(&parameters->conditional);
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  return cl_parameters_own(parameters) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cl_parameters_check_handles(const NodeParameters *parameters) {
  bool semaphores = parameters->type == NODE_SIGNAL_SEMAPHORES || parameters->type == NODE_WAIT_SEMAPHORES;
  for (unsigned at = 0; semaphores && at < parameters->semaphores.count; at++)
    if (parameters->semaphores.semaphores[at] && /* NULL is found out later (measured: edges/external) */
        !cl_handle_is(parameters->semaphores.semaphores[at], HANDLE_EXTERNAL_SEMAPHORE))
      return CUDA_ERROR_INVALID_HANDLE;
  bool event = parameters->type == NODE_WAIT || parameters->type == NODE_RECORD;
  return event && !cl_event(parameters->event) ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

bool cl_runs_on_device(int type) {
  return type == NODE_KERNEL || type == NODE_COPY || type == NODE_FILL || type == NODE_CHILD;
}

/* Arrays and pageable memory. */
static bool is_elsewhere(const Side *side) {
  return side->type == CU_MEMORYTYPE_ARRAY || cl_memory_at(cl_side_address(side)) == MEMORY_PAGEABLE;
}

int cl_body_takes(const NodeParameters *parameters, const Context *context) {
  const CopyNode *copy = &parameters->copy;
  bool elsewhere = parameters->type == NODE_COPY
                       ? copy->context != context || is_elsewhere(&copy->box.from) || is_elsewhere(&copy->box.to)
                       : parameters->type == NODE_FILL && parameters->fill.context != context;
  if (elsewhere) return CUDA_GRAPH_INSTANTIATE_MULTIPLE_CTXS_NOT_SUPPORTED;
  return cl_runs_on_device(parameters->type) || parameters->type == NODE_EMPTY || parameters->type == NODE_CONDITIONAL
             ? CUDA_GRAPH_INSTANTIATE_SUCCESS
             : CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED;
}

enum { LAUNCH_ORDER = 2 }; /* CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER */

bool cl_edge_may_be(const Node *from, int to, EdgeData data) {
  if (data.to_port || !cl_are_zeros(data.reserved, sizeof data.reserved)) return false;
  if (!data.from_port && !data.type) return true;
  bool kernels = from->parameters.type == NODE_KERNEL && to == NODE_KERNEL;
  return data.from_port <= 2 && data.type <= 1 &&
         (data.type ? kernels && data.from_port
                    : data.from_port == LAUNCH_ORDER && from->parameters.type == NODE_KERNEL);
}

/* The device whose memory an address is in; -1 if it is not in memory of a device. */
static CUdevice device_at(CUdeviceptr address) {
  HOLD_BLOCK(block, address);
  return block && block->place == ON_DEVICE ? block->device : -1;
}

/* What was memory of a device may become that of no other one (cuda.h, cuGraphExecMemsetNodeSetParams: "allocated from
   the same contexts"; two H200s: edges/two_graph_changes). */
static bool same_device(CUdeviceptr old, CUdeviceptr fresh) {
  CUdevice was = device_at(old), is = device_at(fresh);
  return was < 0 || is < 0 || was == is;
}

static bool same_fill(const FillNode *old, const FillNode *fresh) {
  if (!same_device(old->to, fresh->to)) return false;
  if (old->height == 1 && fresh->height == 1) return true;
  return old->height == fresh->height && old->width == fresh->width && old->element == fresh->element &&
         old->pitch == fresh->pitch;
}

/* The context that allocated the memory of an address. */
static const Context *owner_of(CUdeviceptr address) {
  HOLD_BLOCK(block, address);
  return block ? block->context : NULL;
}

/* A copy alone may become one of memory of a peer (two H200s). */
static bool may_go(CUdeviceptr old, CUdeviceptr fresh, bool alone) {
  if (same_device(old, fresh)) return true;
  const Context *was = owner_of(old), *is = owner_of(fresh);
  return alone && was && is && cl_is_peer(was, is);
}

static bool same_copy(const Box *old, const Box *fresh, bool alone) {
  bool lines = old->height == 1 && old->depth == 1 && fresh->height == 1 && fresh->depth == 1;
  if (old->from.type != fresh->from.type || old->to.type != fresh->to.type) return false;
  if (!may_go(cl_side_address(&old->from), cl_side_address(&fresh->from), alone) ||
      !may_go(cl_side_address(&old->to), cl_side_address(&fresh->to), alone))
    return false;
  if (lines) return true;
  return !alone && old->width == fresh->width && old->height == fresh->height && old->depth == fresh->depth;
}

bool cl_parameters_may_become(const NodeParameters *old, const NodeParameters *fresh, bool alone) {
  switch (old->type) {
    case NODE_KERNEL: return old->kernel.context == fresh->kernel.context; /* (two H200s) */
    case NODE_FILL: return same_fill(&old->fill, &fresh->fill);
    case NODE_RECORD:
    case NODE_WAIT: /* (two H200s) */
      return !alone || !cl_handle_is(old->event, HANDLE_EVENT) ||
             old->event->head.context == fresh->event->head.context;
    case NODE_COPY: return same_copy(&old->copy.box, &fresh->copy.box, alone);
    case NODE_SIGNAL_SEMAPHORES:
    case NODE_WAIT_SEMAPHORES: return old->semaphores.count == fresh->semaphores.count;
    case NODE_MEMORY_OPERATIONS: return old->operations.count == fresh->operations.count;
    case NODE_ALLOCATE: return !alone && old->allocate.address == fresh->allocate.address;
    case NODE_FREE: return !alone && old->address == fresh->address;
    case NODE_CONDITIONAL:
      return !alone && old->conditional.type == fresh->conditional.type &&
             old->conditional.size == fresh->conditional.size;
    default: return true;
  }
}

CUresult cl_graph_takes(const Graph *graph, int type) {
  bool memory = type == NODE_ALLOCATE || type == NODE_FREE;
  return memory && graph->owner && graph->owner->parameters.type == NODE_CHILD ? CUDA_ERROR_NOT_SUPPORTED
                                                                               : CUDA_SUCCESS;
}
