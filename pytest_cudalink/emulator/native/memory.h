/* Device memory, backed by host memory. */
#ifndef CUDALINK_MEMORY_H
#define CUDALINK_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

#include "abi.h"

/* Allocates memory and returns its address, which is one of host memory; 0 if memory is out. */
CUdeviceptr cl_allocate(size_t size);
bool cl_release(CUdeviceptr address);
/* Whether a range lies within one allocation; an empty range always does. */
bool cl_within(CUdeviceptr address, size_t size);
/* Asked by the functions that free memory for a caller: true if the memory was the hook's, and *result answers. */
typedef bool FreeHook(CUdeviceptr address, CUresult *result);
/* To be registered before main: there is no lock. */
void cl_on_free(FreeHook *hook);

#endif
