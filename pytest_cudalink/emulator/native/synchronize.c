/* Synchronizing: waiting for work, and asking whoever keeps memory until then to give it back. */
#include "synchronize.h"

#include <stddef.h>

static SynchronizeHook *asked;
static FinishHook *finishes;

void cl_on_synchronize(SynchronizeHook *hook) { asked = hook; }

void cl_synchronized(void) {
  if (asked) asked();
}

void cl_on_finish(FinishHook *hook) { finishes = hook; }

void cl_finish(const struct Context *context) {
  if (finishes) finishes(context);
}
