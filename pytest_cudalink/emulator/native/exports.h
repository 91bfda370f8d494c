/* The addresses of the driver's functions. */
#pragma once

#include "symbols.h"

extern void *const cl_addresses[SYMBOL_COUNT];
