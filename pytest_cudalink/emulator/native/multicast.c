/* Multicast objects: no emulated device has them, as CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED says. */
#include <stddef.h>

#include "calls.h"

static const char no_multicast[] = "the emulated device has no multicast: MULTICAST_SUPPORTED is 0";

/* The answer where the pointers that a caller gave are all there. */
static CUresult refuse(EventLine *line, const void *first, const void *second) {
  return first && second ? cl_noted(line, CUDA_ERROR_NOT_SUPPORTED, no_multicast) : CUDA_ERROR_INVALID_VALUE;
}

EXPORTED(cuMulticastCreate, (uint64_t *handle, const void *properties), refuse(line, handle, properties))
EXPORTED(cuMulticastGetGranularity, (size_t *granularity, const void *properties, int option),
         refuse(line, granularity, properties))
/* There is no handle of a multicast object that could be given. */
EXPORTED(cuMulticastAddDevice, (uint64_t handle, CUdevice device), CUDA_ERROR_INVALID_VALUE)
EXPORTED(cuMulticastBindMem,
         (uint64_t handle, size_t offset, uint64_t memory, size_t memory_offset, size_t size, unsigned long long flags),
         CUDA_ERROR_INVALID_VALUE)
EXPORTED(cuMulticastBindAddr,
         (uint64_t handle, size_t offset, CUdeviceptr memory, size_t size, unsigned long long flags),
         CUDA_ERROR_INVALID_VALUE)
EXPORTED(cuMulticastUnbind, (uint64_t handle, CUdevice device, size_t offset, size_t size), CUDA_ERROR_INVALID_VALUE)
