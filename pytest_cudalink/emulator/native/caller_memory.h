/* The caller's memory, which may be dead. */
#pragma once

#include "safe_memory.h"

/* Writes without a fault; false if some page is not there. */
bool cl_write_safely(void *to, const void *from, size_t size);
