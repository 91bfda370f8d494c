/* Copying in the order of a stream. */
#pragma once

#include "abi.h"

/* Copies a box of an asynchronous form in the order of a stream, which is not captured: at once if nothing is before
   it, else in its queue, or the caller waits, as data/emulator/synchronization.toml says. */
CUresult cl_copy_box_in(const Box *box, const void *stream);
