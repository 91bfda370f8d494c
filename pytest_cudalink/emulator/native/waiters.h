/* Threads that wait in the driver, and what they hold meanwhile. */
#ifndef CUDALINK_WAITERS_H
#define CUDALINK_WAITERS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#include "contexts.h"
#include "symbols.h"

/* Captures and locks that are held: 0: no call needs a look at either. */
extern atomic_int cl_guarded;

/* A call that waits holds locks, by which calls of other threads in its context are held up. */
typedef struct Holder Holder;
struct Holder {
  Holder *next;
  unsigned locks;
  const Context *context;
  pid_t thread;
  const char *call;
};

/* Under the lock of the streams. */
void cl_hold(Holder *holder, unsigned locks, const Context *context);
void cl_let_go(Holder *holder);
void cl_waiters_forget(void);

/* Waits until no other thread holds up a call. Under no lock. */
void cl_wait_for_locks(Sym symbol);

#endif
