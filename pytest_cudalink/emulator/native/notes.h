/* Notes: lifetime violations and refused calls of this process, for the process that started it and fails for them. */
#pragma once

#include "event_log.h"

/* Notes a violation, unless the plugin in this process takes them itself. `event` has its members, and `sentence` says
   it in words. */
void cl_note_violation(const EventLine *event, const char *sentence, const char *fix);
/* Notes a refused call of a function, once between two looks of the process that reads the notes. Without such a
   process a call that is not emulated is said on stderr, once for each function. */
void cl_note_refusal(const char *function, const EventLine *event);
enum { SHARED_BY_RUN = 60 << 10 };
/* What the processes of a run share: zeros at first, mapped for as long as this process lives, but another place once
   the plugin has its own file. NULL: this process belongs to no run. */
void *cl_shared_by_run(void);
