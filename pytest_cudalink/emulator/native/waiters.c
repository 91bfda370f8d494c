/* Threads that wait in the driver. */
#include "waiters.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "streams.h"

atomic_int cl_guarded;

/* All of it under the lock of the streams. */
static Holder *holders;
static pthread_cond_t released = PTHREAD_COND_INITIALIZER;

static pid_t this_thread(void) {
  return (pid_t)syscall(SYS_gettid);
} /* gettid is younger than the glibc of our wheels */

void cl_waiters_forget(void) {
  for (; holders; holders = holders->next) atomic_fetch_sub(&cl_guarded, 1);
  pthread_cond_init(&released, NULL);
}

void cl_hold(Holder *holder, unsigned locks, const Context *context) {
  *holder = (Holder){holders, locks, context, this_thread(), cl_called()};
  holders = holder;
  atomic_fetch_add(&cl_guarded, 1);
}

void cl_let_go(Holder *holder) {
  Holder **at = &holders;
  while (*at && *at != holder) at = &(*at)->next;
  if (!*at) return; /* forgotten in a forked child */
  *at = holder->next;
  atomic_fetch_sub(&cl_guarded, 1);
  pthread_cond_broadcast(&released);
}

static const Holder *find_holder(unsigned locks, const Context *context) {
  pid_t thread = this_thread();
  for (const Holder *holder = holders; holder; holder = holder->next)
    if (holder->locks & locks && holder->context == context && holder->thread != thread) return holder;
  return NULL;
}

void cl_wait_for_locks(Sym symbol) {
  unsigned locks = cl_symbols[symbol].held_up;
  if (!locks || cl_in_host_function) return;
  CUresult state;
  const Context *context = cl_context(&state);
  cl_streams_lock();
  while (find_holder(locks, context)) cl_streams_wait(&released, NULL);
  cl_streams_unlock(CUDA_SUCCESS);
}
