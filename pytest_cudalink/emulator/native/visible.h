/* Which devices this process sees, and in which order: what CUDA_VISIBLE_DEVICES says. NVML sees all of them. */
#pragma once

#include "abi.h"

/* Read the variable; the result of a cuInit that finds these devices. */
CUresult cl_see_devices(void);
int cl_visible_devices(void);
/* The number of a device among all of them, as the profiles and other processes count; and the way back, -1 for a
   device that this process does not see. */
int cl_place_of_device(CUdevice device);
CUdevice cl_device_at_place(int place);
