/* Locks that are open again in a forked child, and what else it forgets. */
#define _GNU_SOURCE
#include "locks.h"

#include <stdlib.h>

enum { LOCKS = 96, FORGETTERS = 8 };
static pthread_mutex_t *locks[LOCKS];
static pthread_rwlock_t *shared[LOCKS];
static Forget *forgetters[FORGETTERS];
static unsigned lock_count, shared_count, forgetter_count;

static void open_all(void) {
  static const pthread_rwlock_t open = SHARED_LOCK;
  for (unsigned at = 0; at < lock_count; at++) pthread_mutex_init(locks[at], NULL);
  for (unsigned at = 0; at < shared_count; at++) *shared[at] = open;
  for (unsigned at = 0; at < forgetter_count; at++) forgetters[at]();
}

/* More than there is room for is our own fault, in every run. */
static unsigned next(unsigned *count, unsigned room) {
  if (!lock_count && !shared_count && !forgetter_count) pthread_atfork(NULL, NULL, open_all);
  if (*count == room) abort();
  return (*count)++;
}

void cl_open_in_children(pthread_mutex_t *lock) { locks[next(&lock_count, LOCKS)] = lock; }

void cl_open_shared_in_children(pthread_rwlock_t *lock) { shared[next(&shared_count, LOCKS)] = lock; }

void cl_forget_in_children(Forget *forget) { forgetters[next(&forgetter_count, FORGETTERS)] = forget; }
