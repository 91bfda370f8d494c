/* The caller's memory, which may be dead. */
#ifndef CUDALINK_CALLER_H
#define CUDALINK_CALLER_H

#include "safe_memory.h"

/* Writes without a fault; false if some page is not there. */
bool cl_write_safely(void *to, const void *from, size_t size);

#endif
