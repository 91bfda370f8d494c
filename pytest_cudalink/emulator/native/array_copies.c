/* Copies of bytes to and from the first row of an array. */
#include <stdint.h>

#include "calls.h"
#include "copy_calls.h"

static Side of_array(void *array, size_t offset) {
  return (Side){.type = CU_MEMORYTYPE_ARRAY, .array = array, .x = offset};
}
static Side of_device(CUdeviceptr address) { return (Side){.type = CU_MEMORYTYPE_DEVICE, .device = address}; }
static Side of_host(const void *address) {
  return (Side){.type = CU_MEMORYTYPE_HOST, .host = (void *)(uintptr_t)address};
}

static CUresult copied(EventLine *line, CUresult result, size_t size) {
  if (!result && size) cl_event_uint(line, "size", size);
  return result;
}

static CUresult copy(EventLine *line, Side to, Side from, size_t size) {
  return copied(line, cl_copy_box_at_once(&(Box){from, to, size, 1, 1}), size);
}

static CUresult copy_async(EventLine *line, Side to, Side from, size_t size, const void *stream) {
  return copied(line, cl_copy_box_in_stream(&(Box){from, to, size, 1, 1}, stream), size);
}

EXPORTED(cuMemcpyDtoA_v2, (void *array, size_t offset, CUdeviceptr from, size_t size),
         copy(line, of_array(array, offset), of_device(from), size))
EXPORTED(cuMemcpyHtoA_v2, (void *array, size_t offset, const void *from, size_t size),
         copy(line, of_array(array, offset), of_host(from), size))
EXPORTED(cuMemcpyAtoD_v2, (CUdeviceptr to, void *array, size_t offset, size_t size),
         copy(line, of_device(to), of_array(array, offset), size))
EXPORTED(cuMemcpyAtoH_v2, (void *to, void *array, size_t offset, size_t size),
         copy(line, of_host(to), of_array(array, offset), size))
EXPORTED(cuMemcpyAtoA_v2, (void *to, size_t to_offset, void *from, size_t from_offset, size_t size),
         copy(line, of_array(to, to_offset), of_array(from, from_offset), size))
EXPORTED(cuMemcpyHtoAAsync_v2, (void *array, size_t offset, const void *from, size_t size, void *stream),
         copy_async(line, of_array(array, offset), of_host(from), size, stream))
EXPORTED(cuMemcpyAtoHAsync_v2, (void *to, void *array, size_t offset, size_t size, void *stream),
         copy_async(line, of_host(to), of_array(array, offset), size, stream))
