/* Initialization, versions, errors, and what a device is. */
#ifndef CUDALINK_DEVICES_H
#define CUDALINK_DEVICES_H

#include <stdbool.h>
#include <stddef.h>

#include "abi.h"
#include "calls.h"

bool cl_is_device(CUdevice device);
int cl_device_attribute(int attribute, int *value); /* 0, or an error code */
size_t cl_device_memory(void);

#define NEED_DEVICE(device) \
  if (!cl_is_device(device)) LEAVE(CUDA_ERROR_INVALID_DEVICE, ",\"device\":%d", device)

#endif
