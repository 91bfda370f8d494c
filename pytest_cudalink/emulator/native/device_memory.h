/* How much memory of the devices is taken. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "abi.h"

/* Takes memory of a device, as far as the processes of the run have left some; gives it back. */
bool cl_memory_take(CUdevice device, size_t bytes);
void cl_memory_give(CUdevice device, size_t bytes);
size_t cl_memory_left(CUdevice device);
