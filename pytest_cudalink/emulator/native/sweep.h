/* A fault sweep: counting the calls of a test, and failing one of them by its number. */
#pragma once

#include "event_log.h"
#include "symbols.h"

/* Whether calls are counted; costs no lock. */
bool cl_sweeping(void);
/* Counts a call; the code that it must answer instead of being made, or -1. The event says which call it was, and from
   where. Never under a lock. */
int cl_swept(EventLine *line, Sym symbol);
/* Notes that the call of this thread which was counted last has failed. */
void cl_swept_failed(void);
