/* The accesses to memory of each kind of work. */
#include "accesses.h"

#include "blocks.h"

static void touch_line(Op *op, CUdeviceptr start, size_t size, AccessKind kind) {
  cl_order_touch(op, &(Range){.start = start, .width = size, .pitch = size, .rows = 1, .layer = size, .layers = 1},
                 kind);
}

static void touch_fill(Op *op, const FillNode *fill) {
  size_t width = fill->width * fill->element, pitch = fill->height > 1 ? fill->pitch : width;
  cl_order_touch(op, &(Range){fill->to, width, pitch, fill->height, pitch * fill->height, 1}, ACCESS_WRITE);
}

static bool is_host_memory(CUdeviceptr address) {
  HOLD_BLOCK(block, address);
  return block && block->place != ON_DEVICE;
}

void cl_touch_operation(const MemoryOperation *one) {
  Op *op = cl_order_current;
  if (!op) return;
  bool wide = one->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
  if (wide || one->operation == CU_STREAM_MEM_OP_WRITE_VALUE_32) {
    touch_line(op, one->address, wide ? 8 : 4, ACCESS_VALUE);
    if (is_host_memory(one->address)) cl_order_learn(op); /* a thread may look at it unseen */
  } else if (one->operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 || one->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64)
    cl_order_released(op, one->address);
}

static bool find_block(CUdeviceptr address, size_t *size) {
  HOLD_BLOCK(block, address);
  bool found = block && block->start == address;
  if (found) *size = block->size;
  return found;
}

void cl_touch_block(Op *op, CUdeviceptr address, AccessKind kind) {
  size_t size;
  if (address && find_block(address, &size)) touch_line(op, address, size, kind);
}

void cl_touch_freed(CUdeviceptr address, const Context *behind) {
  Op *op = cl_order_host(behind);
  cl_touch_block(op, address, ACCESS_FREE);
  cl_order_drop(op);
}

void cl_touch_parameters(Op *op, const NodeParameters *parameters) {
  const AllocateNode *allocate = &parameters->allocate;
  switch (parameters->type) {
    case NODE_FILL: touch_fill(op, &parameters->fill); break;
    case NODE_ALLOCATE: touch_line(op, allocate->address, allocate->size, ACCESS_ALLOCATE); break;
    case NODE_FREE: cl_touch_block(op, parameters->address, ACCESS_FREE); break;
    default: break;
  }
}
