/* Streams and events: everything is done when the call returns. */
#ifndef CUDALINK_STREAMS_H
#define CUDALINK_STREAMS_H

#include "abi.h"
#include "calls.h"

/* CUDA_ERROR_INVALID_HANDLE for what is neither a living stream nor one of the default ones. */
CUresult cl_check_stream(const void *stream);
/* The flags that an event was made with; CUDA_ERROR_INVALID_HANDLE if it is not alive. */
CUresult cl_flags_of_event(const void *event, unsigned *flags);
/* Makes an event; its flags were checked. */
CUresult cl_make_event(void **out, unsigned flags);

#endif
