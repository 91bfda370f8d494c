/* Initialization, the version, and what a device is. */
#pragma once

#include "abi.h"
#include "event_log.h"
#include "profiles.h"

bool cl_is_device(CUdevice device);
/* Whether something could have access from a location. */
bool cl_can_have_access(const Location *location);
CUresult cl_device_attribute(int attribute, int *value);
/* The value of an attribute that is there. */
size_t cl_device_has(int attribute);

/* What a question about a device answers instead of being asked: its other arguments, or the device, are not valid. */
CUresult cl_asked_of(EventLine *line, bool valid, CUdevice device);
