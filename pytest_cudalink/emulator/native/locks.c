/* Locks that are open again in a forked child. */
#include "locks.h"

#include <stdlib.h>

enum { LOCKS = 32 };
static pthread_mutex_t *locks[LOCKS];
static unsigned count;

static void open_all(void) {
  for (unsigned at = 0; at < count; at++) pthread_mutex_init(locks[at], NULL);
}

void cl_open_in_children(pthread_mutex_t *lock) {
  if (!count) pthread_atfork(NULL, NULL, open_all);
  if (count == LOCKS) abort(); /* more locks than LOCKS: a fault of the emulator, in every run */
  locks[count++] = lock;
}
