/* Synchronizing: whoever keeps memory until then is asked to give it back. */
#include "synchronize.h"

#include <stddef.h>

static SynchronizeHook *asked;

void cl_on_synchronize(SynchronizeHook *hook) { asked = hook; }

void cl_synchronized(void) {
  if (asked) asked();
}
