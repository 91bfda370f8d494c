/* What streams do besides copies and launches: memory operations, calls of the host, attaching managed memory. */
#include "accesses.h"
#include "blocks.h"
#include "capture.h"
#include "device_addresses.h"
#include "locks.h"
#include "queues.h"

/* CUstreamWaitValue_flags, CUstreamWriteValue_flags */
enum { CONDITIONS = 4 };

static CUresult check_operation(const MemoryOperation *one) {
  size_t size =
      one->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 || one->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64 ? 8 : 4;
  switch (one->operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      if ((one->flags & ~(unsigned)CU_STREAM_WAIT_VALUE_FLUSH) >= CONDITIONS) return CUDA_ERROR_INVALID_VALUE;
      if (one->flags & (unsigned)CU_STREAM_WAIT_VALUE_FLUSH) return CUDA_ERROR_NOT_SUPPORTED; /* no device flushes */
      break;
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      if (one->flags) return CUDA_ERROR_INVALID_VALUE;
      break;
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES: return CUDA_ERROR_NOT_SUPPORTED;
    case CU_STREAM_MEM_OP_BARRIER: return one->simple_flags > 1 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  return one->address % size ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

/* Memory of a device comes in whole pages, so it is enough that the first byte is there (measured: programs/others). */
static bool is_there(const MemoryOperation *one) {
  return one->operation == CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES || one->operation == CU_STREAM_MEM_OP_BARRIER ||
         cl_within(one->address, 1);
}

CUresult cl_check_operations(unsigned count, const MemoryOperation *list) {
  if (!count || count > OPERATIONS_MAX || !list) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned at = 0; at < count; at++) TRY(check_operation(list + at));
  return CUDA_SUCCESS;
}

/* Whether a wait for a value is over, while the table of memory is held. */
static bool is_over(const MemoryOperation *one) {
  bool wide = one->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
  const void *bytes = (const void *)cl_bytes_of(one->address);
  uint64_t value = wide ? one->value : (uint32_t)one->value;
  uint64_t there = wide ? __atomic_load_n((const uint64_t *)bytes, __ATOMIC_ACQUIRE)
                        : __atomic_load_n((const uint32_t *)bytes, __ATOMIC_ACQUIRE);
  switch (one->flags) {
    case CU_STREAM_WAIT_VALUE_GEQ:
      return wide ? (int64_t)(there - value) >= 0 : (int32_t)(uint32_t)(there - value) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ: return there == value;
    case CU_STREAM_WAIT_VALUE_AND: return there & value;
    default: return ~(there | value) & (wide ? UINT64_MAX : UINT32_MAX);
  }
}

static CUresult wait_for_value(const MemoryOperation *one) {
  HOLD_TO_READ(cl_memory_lock);
  if (!cl_held_within(one->address, 1)) return CUDA_ERROR_ILLEGAL_ADDRESS;
  return is_over(one) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cl_do_operations(unsigned count, const MemoryOperation *list, unsigned *position) {
  for (; *position < count; ++*position) {
    const MemoryOperation *one = list + *position;
    bool wide = one->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
    CUresult result = CUDA_SUCCESS;
    if (wide || one->operation == CU_STREAM_MEM_OP_WRITE_VALUE_32) {
      if (!is_there(one)) return CUDA_ERROR_ILLEGAL_ADDRESS;
      cl_word_write(one->address, wide ? one->value : (uint32_t)one->value, wide);
    } else if (one->operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 || one->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64)
      result = wait_for_value(one);
    else continue;
    if (result) return result;
    if (cl_order_on) cl_touch_operation(one);
  }
  return CUDA_SUCCESS;
}

size_t cl_skip_closed_gates(size_t at) {
  const Block *block = NULL;
  HOLD_TO_READ(cl_memory_lock);
  for (; at < cl_gates.count; at++) {
    const MemoryOperation *one = &cl_gates.list[at].operation;
    if (!block || one->address - block->start >= block->size) block = cl_held_block(one->address);
    if (!block || is_over(one)) break;
  }
  return at;
}

static CUresult do_at_once(const void *stream, unsigned count, const MemoryOperation *list, unsigned *done) {
  if (!cl_order_on) return cl_do_operations(count, list, done);
  Op *op = cl_order_current = cl_order_enter(stream);
  CUresult result = cl_do_operations(count, list, done);
  cl_order_current = NULL;
  cl_order_leave(stream, op);
  return result;
}

static CUresult operate(const void *stream, unsigned count, const MemoryOperation *list, unsigned flags) {
  bool captured;
  TRY(cl_enter_stream(stream, &captured));
  if (flags) return CUDA_ERROR_INVALID_VALUE;
  if (!count) return CUDA_SUCCESS; /* (measured: programs/others) */
  TRY(cl_check_operations(count, list));
  Context *context = cl_context_in(stream);
  /* the stream's device must have access to the memory (two H200s: edges/two_wait_values) */
  for (unsigned at = 0; at < count; at++)
    if (!is_there(list + at) || !cl_reaches_address(context, list[at].address)) return CUDA_ERROR_INVALID_VALUE;
  unsigned done = 0;
  CUresult result = CUDA_SUCCESS;
  if (!captured && !cl_must_wait(stream)) result = do_at_once(stream, count, list, &done);
  if (!captured && done == count) return result;
  TRY(captured ? CUDA_SUCCESS : cl_make_room(stream, ROOM_WORK));
  NodeParameters parameters = {.type = NODE_MEMORY_OPERATIONS};
  parameters.operations = (OperationsNode){context, count - done, (MemoryOperation *)(uintptr_t)(list + done), 0};
  return cl_submit(stream, &parameters);
}
EXPORTED(cuStreamBatchMemOp_v2, (Stream *stream, unsigned count, MemoryOperation *list, unsigned flags),
         operate(stream, count, list, flags))

/* The functions for one operation. */
#define OPERATION(name, type, kind)                                                      \
  EXPORTED(name##_v2, (Stream *stream, CUdeviceptr address, type value, unsigned flags), \
           operate(stream, 1,                                                            \
                   &(MemoryOperation){.operation = (kind), .address = address, .value = value, .flags = flags}, 0))
OPERATION(cuStreamWaitValue32, uint32_t, CU_STREAM_MEM_OP_WAIT_VALUE_32)
OPERATION(cuStreamWaitValue64, uint64_t, CU_STREAM_MEM_OP_WAIT_VALUE_64)
OPERATION(cuStreamWriteValue32, uint32_t, CU_STREAM_MEM_OP_WRITE_VALUE_32)
OPERATION(cuStreamWriteValue64, uint64_t, CU_STREAM_MEM_OP_WRITE_VALUE_64)

typedef void Callback(Stream *, CUresult, void *);

/* A callback gets the stream and a result, and cannot be captured. */
API_LOCKED(cuStreamAddCallback, (Stream *handle, Callback *callback, void *data, unsigned flags),
           (handle, callback, data, flags)) {
  Stream *stream;
  Work *work;
  if (!callback || flags) return CUDA_ERROR_INVALID_VALUE;
  TRY(cl_refuse_captured(handle, &stream));
  TRY(cl_queue(stream, &(NodeParameters){.type = WORK_CALLBACK, .host.data = data}, false, &work));
  work->handle = handle;
  work->callback = callback;
  return CUDA_SUCCESS;
}

static CUresult launch_host_function(Stream *stream, void (*function)(void *), void *data) {
  if (!function) return CUDA_ERROR_INVALID_VALUE;
  return cl_submit(stream, &(NodeParameters){.type = NODE_HOST, .host = {function, data}});
}
EXPORTED(cuLaunchHostFunc, (Stream *stream, void (*function)(void *), void *data),
         launch_host_function(stream, function, data))

/* 13.1: a mode says how the host waits; here it makes no difference. */
EXPORTED(cuLaunchHostFunc_v2, (Stream *stream, void (*function)(void *), void *data, unsigned mode),
         mode > 1 ? CUDA_ERROR_INVALID_VALUE : launch_host_function(stream, function, data))

/* Whether an address is the beginning of managed memory of a size; 0 is any size. */
static bool is_managed(CUdeviceptr address, size_t size) {
  HOLD_BLOCK(block, address);
  return block && block->place == MANAGED && block->start == address && (!size || size == block->size);
}

API(cuStreamAttachMemAsync, (Stream *stream, CUdeviceptr address, size_t size, unsigned flags),
    (stream, address, size, flags)) {
  Stream *known;
  TRY(LOCKED(cl_refuse_captured(stream, &known))); /* under no context, too (two H200s) */
  bool single = flags == CU_MEM_ATTACH_SINGLE;
  if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST && !single) return CUDA_ERROR_INVALID_VALUE;
  if (single && cl_is_legacy(stream) && !stream) return CUDA_ERROR_INVALID_VALUE;
  return is_managed(address, size) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
