/* Initialization, the version, and what a device is. */
#pragma once

#include "abi.h"
#include "event_log.h"
#include "profiles.h"

bool cl_is_device(CUdevice device);
CUresult cl_device_attribute(int attribute, int *value);
/* The value of an attribute that is there. */
size_t cl_device_has(int attribute);

/* What a question about a device answers instead of being asked: its other arguments are not valid, or there is no such
 * device. */
CUresult cl_asked_of(EventLine *line, bool valid, CUdevice device);
