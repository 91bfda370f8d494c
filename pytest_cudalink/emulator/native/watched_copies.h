/* The watch on host memory that a copy in a queue reads or writes: it must live until the copy is done. */
#pragma once

#include "happens_before.h"
#include "queues.h"

/* Notes a copy that is submitted, before the lock of the streams is taken, and one side of it; nothing if memory is not
   checked, or if that side is not pinned memory. */
Watch *cl_watch_copy(const Range *memory, bool reads);
/* Looks at the memory when the turn of the work has come; false if there is none any more. */
bool cl_check_watched(const Work *work);
/* Looks for copies that are not done, of host memory that a function gives up. */
void cl_check_given_up(const void *start, const char *call);
