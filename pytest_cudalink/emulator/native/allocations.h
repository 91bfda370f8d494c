/* Allocating and freeing memory of the device. */
#pragma once

#include "abi.h"

/* Frees memory of a pool when its stream has come to that. */
CUresult cl_free_in_order(CUdeviceptr address);
