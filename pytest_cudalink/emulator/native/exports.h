/* The addresses of the driver's functions. */
#ifndef CUDALINK_EXPORTS_H
#define CUDALINK_EXPORTS_H

#include "symbols.h"

extern void *const cl_addresses[SYMBOL_COUNT];

#endif
