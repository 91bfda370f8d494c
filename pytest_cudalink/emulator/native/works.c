/* Doing work of queues, when everything before it is done. */
#include "accesses.h"
#include "copied_bytes.h"
#include "graph_memory.h"
#include "openers.h"
#include "pools.h"
#include "sticky.h"
#include "violations.h"
#include "waiters.h"
#include "watched_copies.h"

/* Whether another process may write to memory: it has been shared by handles, or its pages are. */
bool cl_is_of_others(CUdeviceptr address) {
  const unsigned from_others = FROM_IPC | FROM_POOL_OF_OTHER | FROM_EXTERNAL;
  const Block *block = cl_block_lock(address);
  bool of_others = block && (block->exported || block->origin & from_others || (block->slab && block->slab->shared));
  bool on_host = block && block->place != ON_DEVICE;
  cl_block_unlock();
  return of_others || (on_host && cl_is_shared((uintptr_t)address));
}

static CUresult perform(Work *work) {
  NodeParameters *parameters = &work->parameters;
  const FillNode *fill = &parameters->fill;
  const HostNode *host = &parameters->host;
  switch (parameters->type) {
    case NODE_COPY:
      if (!cl_check_watched(work)) return CUDA_SUCCESS;
      return work->source && !work->reads_late ? cl_run_box_from(&parameters->copy.box, work->source)
                                               : cl_run_box(&parameters->copy.box);
    case NODE_FILL: return cl_run_fill(fill->to, fill->value, fill->element, fill->pitch, fill->width, fill->height);
    case NODE_HOST: host->function(host->data); return CUDA_SUCCESS;
    case WORK_CALLBACK: work->callback(work->handle, cl_sticky_error(), host->data); return CUDA_SUCCESS;
    case NODE_ALLOCATE: return LOCKED((cl_graph_memory_use(work->handle), CUDA_SUCCESS));
    case NODE_MEMORY_OPERATIONS:
      return cl_do_operations(parameters->operations.count, parameters->operations.list, &work->position);
    case WORK_FREE: return cl_pool_free(parameters->address, false) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    default: return CUDA_SUCCESS;
  }
}

/* What the host functions tell the host is not seen: it may know all that is before them. */
static void check_order(const Work *work) {
  int type = work->parameters.type;
  if (cl_calls_host(work)) cl_order_learn(work->op);
  else if (type == WORK_FREE) cl_touch_block(work->op, work->parameters.address, ACCESS_FREE);
  else if (type == NODE_COPY) cl_touch_box(work->op, &work->parameters.copy.box, work->staged);
  else cl_touch_parameters(work->op, &work->parameters);
}

CUresult cl_run_work(Work *work) {
  if (!work->op) return perform(work);
  check_order(work);
  cl_order_current = work->op;
  CUresult result = perform(work);
  cl_order_current = NULL;
  if (work->parameters.type != NODE_MEMORY_OPERATIONS) cl_report_violations(); /* else under the lock, maybe */
  return result;
}

void cl_begin_work(Work *work) {
  const FillNode *fill = &work->parameters.fill;
  if (work->parameters.type == NODE_COPY) work->source = cl_begin_box(&work->parameters.copy.box, &work->reads_late);
  if (work->parameters.type == NODE_FILL)
    cl_begin_fill(fill->to, fill->element, fill->pitch, fill->width, fill->height);
}
