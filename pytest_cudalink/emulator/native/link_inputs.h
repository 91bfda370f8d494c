/* The inputs of a link: what is added as what, and how it is judged. */
#pragma once

#include "link_state.h"

/* Of the last PTX that did not compile on this thread, in whatever state or module: it decides what an undefined symbol
   is at a later complete, and a second definition at a later add (recorded: later/undefined-after-wrong; nvJitLink
   remembers it in the same way). */
extern _Thread_local CUresult cl_ptx_failure;

CUresult cl_add_data(State *state, int type, const void *data, size_t size, const char *name, unsigned count,
                     const int *keys, void *const *values);
/* The bytes of an input that is a file; owned by the caller. */
CUresult cl_read_input(const char *path, void **data, size_t *size);
