/* Waits that CUDA's documentation does not promise, and what happens without them. */
#ifndef CUDALINK_PROMISES_H
#define CUDALINK_PROMISES_H

#include <stddef.h>

#include "abi.h"

/* A wait that nobody promises, of a call that was made since they are left out. */
typedef struct {
  uint32_t row; /* of data/emulator/waits.toml, from 1 on; 0: none, the call reads pageable memory before it returns */
  uint32_t pending;     /* whether there was unfinished work */
  const char *function; /* that was called */
} UnpromisedWait;

/* From now on calls of the given numbers, or of all if `all`, do not wait where nobody promises it; only calls that
   could are counted, from 1 on. Other than 0 if memory is out. */
EXPORT int cudalinkLeaveOutWaits(const uint32_t *numbers, size_t count, int all);
/* Calls wait again. */
EXPORT void cudalinkKeepWaits(void);
/* How many calls were counted. */
EXPORT uint32_t cudalinkUnpromisedCount(void);
/* One of them, and its stack as lines; returns the size of that with the NUL, 0: there is none. */
EXPORT size_t cudalinkUnpromisedWait(uint32_t number, UnpromisedWait *out, char *stack, size_t size);

#endif
