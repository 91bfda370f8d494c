/* Initialization, versions, errors, and what a device is. */
#pragma once

#include "abi.h"
#include "events.h"
#include "profiles.h"

bool cl_is_device(CUdevice device);
CUresult cl_device_attribute(int attribute, int *value);
/* The value of an attribute that is there. */
size_t cl_device_has(int attribute);

/* The answer to a number that is not one of a device. */
CUresult cl_no_device(EventLine *line, CUdevice device);
