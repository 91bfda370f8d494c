/* What the devices of this process are, by the configuration; the driver and NVML say the same. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

int cl_profile_arch(void);
const char *cl_profile_name(void);
/* The value of an attribute by the number of CUdevice_attribute; false if there is no such attribute. */
bool cl_profile_attribute(int attribute, int *value);
/* Bytes of memory of each device. */
size_t cl_device_memory(void);
/* A device's number on its bus, the only one of its slot; and its UUID. */
int cl_profile_bus(int device);
void cl_profile_uuid(int device, unsigned char uuid[16]);
