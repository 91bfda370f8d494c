/* Streams and events: everything is done when the call returns. */
#ifndef CUDALINK_STREAMS_H
#define CUDALINK_STREAMS_H

#include "abi.h"
#include "calls.h"

/* CUDA_ERROR_INVALID_HANDLE for what is neither a living stream nor one of the default ones. */
CUresult cl_check_stream(const void *stream);

#endif
