/* Copies of bytes to and from the first row of an array. */
#include <stdint.h>

#include "arrays.h"
#include "calls.h"
#include "contexts.h"
#include "copies.h"
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

static CUresult copy(EventLine *line, uintptr_t to, unsigned to_type, uintptr_t from, unsigned from_type, size_t size) {
  CUresult result = cl_copy_line(to, to_type, from, from_type, size);
  if (!result) cl_event_uint(line, "size", size);
  return result;
}

static CUresult to_array(EventLine *line, const void *array, size_t offset, uintptr_t from, unsigned type,
                         size_t size) {
  uintptr_t start;
  CUresult result = cl_check_context();
  if (result || !size) return result;
  result = place(array, offset, size, &start);
  return result ? result : copy(line, start, CU_MEMORYTYPE_DEVICE, from, type, size);
}

static CUresult from_array(EventLine *line, uintptr_t to, unsigned type, const void *array, size_t offset,
                           size_t size) {
  uintptr_t start;
  CUresult result = cl_check_context();
  if (result || !size) return result;
  result = place(array, offset, size, &start);
  return result ? result : copy(line, to, type, start, CU_MEMORYTYPE_DEVICE, size);
}

static CUresult between_arrays(EventLine *line, const void *to, size_t to_offset, const void *from, size_t from_offset,
                               size_t size) {
  uintptr_t start, end;
  CUresult result = cl_check_context();
  if (result || !size) return result;
  result = place(from, from_offset, size, &start);
  if (!result) result = place(to, to_offset, size, &end);
  return result ? result : copy(line, end, CU_MEMORYTYPE_DEVICE, start, CU_MEMORYTYPE_DEVICE, size);
}

EXPORTED(cuMemcpyDtoA_v2, (void *array, size_t offset, CUdeviceptr from, size_t size),
         to_array(line, array, offset, (uintptr_t)from, CU_MEMORYTYPE_DEVICE, size))
EXPORTED(cuMemcpyHtoA_v2, (void *array, size_t offset, const void *from, size_t size),
         to_array(line, array, offset, (uintptr_t)from, CU_MEMORYTYPE_HOST, size))
EXPORTED(cuMemcpyAtoD_v2, (CUdeviceptr to, void *array, size_t offset, size_t size),
         from_array(line, (uintptr_t)to, CU_MEMORYTYPE_DEVICE, array, offset, size))
EXPORTED(cuMemcpyAtoH_v2, (void *to, void *array, size_t offset, size_t size),
         from_array(line, (uintptr_t)to, CU_MEMORYTYPE_HOST, array, offset, size))
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
         in_order(stream) ? CUDA_ERROR_INVALID_HANDLE
                          : to_array(line, array, offset, (uintptr_t)from, CU_MEMORYTYPE_HOST, size))
EXPORTED(cuMemcpyAtoHAsync_v2, (void *to, void *array, size_t offset, size_t size, void *stream),
         in_order(stream) ? CUDA_ERROR_INVALID_HANDLE
                          : from_array(line, (uintptr_t)to, CU_MEMORYTYPE_HOST, array, offset, size))
