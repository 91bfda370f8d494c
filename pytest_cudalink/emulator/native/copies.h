/* Copying and filling memory, for the functions that do it and for the graphs that do it later. */
#ifndef CUDALINK_COPIES_H
#define CUDALINK_COPIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi.h"

/* Checks a box, or copies it too. */
CUresult cl_check_box(const Box *box);
CUresult cl_copy_box(const Box *box);
/* Copies a box of an asynchronous form in the order of a stream, which is not captured: at once if nothing is before it,
   else in its queue, or the caller waits, as data/emulator/synchronization.toml says. */
CUresult cl_copy_box_in(const Box *box, const void *stream);
/* Checks rows of values of `width` bytes, `pitch` bytes apart, or fills them too. */
CUresult cl_check_fill(CUdeviceptr to, size_t width, size_t pitch, size_t count, size_t rows);
CUresult cl_fill(CUdeviceptr to, uint32_t value, size_t width, size_t pitch, size_t count, size_t rows);

#endif
