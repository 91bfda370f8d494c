/* Memory of others, which may be dead. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Reads without a fault; false if some page is not there. */
bool cl_read_safely(const void *from, void *to, size_t size);
/* Writes without a fault; false if some page is not there. */
bool cl_write_if_there(void *to, const void *from, size_t size);
