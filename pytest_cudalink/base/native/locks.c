/* Locks that are open again in a forked child, and what else it forgets. */
#include "locks.h"

#include <stdlib.h>

/* Where the linker lays the lists of this library; NULL for one that nothing is on. */
#define LAID __attribute__((weak, visibility("hidden")))
extern pthread_mutex_t *const __start_cl_locks[] LAID, *const __stop_cl_locks[] LAID;
extern pthread_rwlock_t *const __start_cl_shared_locks[] LAID, *const __stop_cl_shared_locks[] LAID;
extern Hook *const __start_cl_forgetters[] LAID, *const __stop_cl_forgetters[] LAID;
extern Hook *const __start_cl_starters[] LAID, *const __stop_cl_starters[] LAID;

static void open_all(void) {
  static const pthread_rwlock_t open = SHARED_LOCK;
  for (pthread_mutex_t *const *at = __start_cl_locks; at < __stop_cl_locks; at++) pthread_mutex_init(*at, NULL);
  for (pthread_rwlock_t *const *at = __start_cl_shared_locks; at < __stop_cl_shared_locks; at++) **at = open;
  for (Hook *const *at = __start_cl_forgetters; at < __stop_cl_forgetters; at++) (*at)();
}

/* Each library has a lock: an empty list is one that the linker dropped, our own fault in every run. */
__attribute__((constructor)) static void start(void) {
  if (&__start_cl_locks[0] >= &__stop_cl_locks[0]) abort();
  pthread_atfork(NULL, NULL, open_all);
  for (Hook *const *at = __start_cl_starters; at < __stop_cl_starters; at++) (*at)();
}
