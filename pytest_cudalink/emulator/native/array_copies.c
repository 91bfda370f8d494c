/* Copies of bytes to and from the first row of an array. */
#include <stdint.h>
#include <string.h>

#include "arrays.h"
#include "calls.h"
#include "contexts.h"
#include "memory.h"
#include "queues.h"
#include "streams.h"

/* Where so many bytes of an array begin. Nothing is asked of one of which no byte is copied. */
static CUresult place(const void *array, size_t offset, size_t size, uintptr_t *start) {
  ArrayMemory memory;
  CUresult result = cl_array_memory(array, &memory);
  if (result) return result;
  *start = (uintptr_t)memory.address + offset;
  return offset <= memory.row && size <= memory.row - offset ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult copy(EventLine *line, uintptr_t to, uintptr_t from, size_t size) {
  cl_event_uint(line, "size", size);
  memmove((void *)to, (const void *)from, size);
  return CUDA_SUCCESS;
}

static CUresult to_array(EventLine *line, const void *array, size_t offset, uintptr_t from, size_t size, bool ours) {
  uintptr_t start;
  CUresult result = cl_check_context();
  if (result || !size) return result;
  result = place(array, offset, size, &start);
  if (result) return result;
  if (!from || (ours && !cl_within(from, size))) return CUDA_ERROR_INVALID_VALUE;
  return copy(line, start, from, size);
}

static CUresult from_array(EventLine *line, uintptr_t to, const void *array, size_t offset, size_t size, bool ours) {
  uintptr_t start;
  CUresult result = cl_check_context();
  if (result || !size) return result;
  result = place(array, offset, size, &start);
  if (result) return result;
  if (!to || (ours && !cl_within(to, size))) return CUDA_ERROR_INVALID_VALUE;
  return copy(line, to, start, size);
}

static CUresult between_arrays(EventLine *line, const void *to, size_t to_offset, const void *from, size_t from_offset,
                               size_t size) {
  uintptr_t start, end;
  CUresult result = cl_check_context();
  if (result || !size) return result;
  result = place(from, from_offset, size, &start);
  if (!result) result = place(to, to_offset, size, &end);
  return result ? result : copy(line, end, start, size);
}

EXPORTED(cuMemcpyDtoA_v2, (void *array, size_t offset, CUdeviceptr from, size_t size),
         to_array(line, array, offset, (uintptr_t)from, size, true))
EXPORTED(cuMemcpyHtoA_v2, (void *array, size_t offset, const void *from, size_t size),
         to_array(line, array, offset, (uintptr_t)from, size, false))
EXPORTED(cuMemcpyAtoD_v2, (CUdeviceptr to, void *array, size_t offset, size_t size),
         from_array(line, (uintptr_t)to, array, offset, size, true))
EXPORTED(cuMemcpyAtoH_v2, (void *to, void *array, size_t offset, size_t size),
         from_array(line, (uintptr_t)to, array, offset, size, false))
EXPORTED(cuMemcpyAtoA_v2, (void *to, size_t to_offset, void *from, size_t from_offset, size_t size),
         between_arrays(line, to, to_offset, from, from_offset, size))

/* Waits for earlier work of the stream, as the synchronous forms do for that of the default one. */
static CUresult in_order(const void *handle) {
  CUresult result = cl_check_context();
  if (result) return CUDA_SUCCESS; /* which the copy says */
  cl_streams_lock();
  Stream *stream = cl_stream(handle);
  if (stream) cl_drain(stream);
  return cl_streams_unlock(stream ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE);
}
EXPORTED(cuMemcpyHtoAAsync_v2, (void *array, size_t offset, const void *from, size_t size, void *stream),
         in_order(stream) ? CUDA_ERROR_INVALID_HANDLE : to_array(line, array, offset, (uintptr_t)from, size, false))
EXPORTED(cuMemcpyAtoHAsync_v2, (void *to, void *array, size_t offset, size_t size, void *stream),
         in_order(stream) ? CUDA_ERROR_INVALID_HANDLE : from_array(line, (uintptr_t)to, array, offset, size, false))
