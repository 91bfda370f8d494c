/* Schedules: queued work is done early, late or between, as a seed says, in any order that CUDA allows. */
#pragma once

#include <stdbool.h>

/* Whether who submits work is noted; only a schedule may do without. */
bool cl_notes_submitters(void);
