/* Allocating and freeing memory of the device. */
#ifndef CUDALINK_ALLOCATIONS_H
#define CUDALINK_ALLOCATIONS_H

#include "abi.h"

/* Frees memory of a pool when its stream has come to that. */
CUresult cl_free_in_order(CUdeviceptr address);

#endif
