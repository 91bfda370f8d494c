/* Entering and leaving: what every exported function goes through. */
#ifndef CUDALINK_CALLS_H
#define CUDALINK_CALLS_H

#include <stdbool.h>

#include "abi.h"
#include "symbols.h"

/* One call of an exported function: its faults, its event. */
typedef struct {
  Sym symbol;
  CUresult result;
} Call;

/* Begins a call; false if it must return call->result at once: an injected fault, a lost device, no cuInit. */
bool cl_enter(Call *call, Sym symbol, bool needs_init);
/* Ends it: writes the event with the arguments that matter, as JSON members, and returns the result. */
CUresult cl_leave(Call *call, CUresult result, const char *arguments, ...) PRINTF(3, 4);

#define ENTER(name)                                   \
  Call call;                                          \
  if (!cl_enter(&call, SYM_##name, true)) return call.result
#define ENTER_ANY_TIME(name)                          \
  Call call;                                          \
  if (!cl_enter(&call, SYM_##name, false)) return call.result
#define LEAVE(result, ...) return cl_leave(&call, (result), __VA_ARGS__)

/* The 32-bit entry points of before CUDA 3.2: a real driver of today answers 201, whatever context is current. */
#define OLD_ENTRY_POINT(name, ...)                                                                     \
  EXPORT CUresult name(__VA_ARGS__) {                                                                  \
    ENTER(name);                                                                                       \
    LEAVE(CUDA_ERROR_INVALID_CONTEXT, ",\"note\":\"the 32-bit entry point of before CUDA 3.2\"");       \
  }

bool cl_initialized(void);
CUresult cl_initialize(unsigned flags);
/* What is in the headers but not in this emulator: says so, and never pretends. */
CUresult cl_unimplemented(Sym symbol);

#endif
