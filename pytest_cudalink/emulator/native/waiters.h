/* Threads that wait in the driver, and what they hold meanwhile. */
#pragma once

#include <sys/types.h>

#include "work_order.h"

/* Captures and locks that are held: 0: no call needs a look at either. */
extern atomic_int cl_guarded;

/* A call that waits holds locks, by which calls of other threads in its context are held up. */
typedef struct Holder {
  struct Holder *next;
  unsigned locks;
  const Context *context;
  pid_t thread;
  const char *call;
} Holder;

/* A call that waits for work or, without work, for locks. */
typedef struct Waiter {
  struct Waiter *next;
  pid_t thread;
  const char *call;
  Work *work; /* of which it is a holder */
  unsigned locks;
  const Context *context;
  pthread_cond_t woken; /* its work is done, a lock was let go of, or all was given up */
  bool holds_python;    /* Python's lock, so that no other thread can run Python */
  unsigned given_up;    /* how often waiting was given up before */
} Waiter;

/* All of these under the lock of the streams. */

/* Works that are being done without the lock, but for host functions. */
extern unsigned cl_working;
void cl_waiter_begin(Waiter *waiter, Work *work);
void cl_waiter_end(Waiter *waiter);
/* Waits until it is woken, or for so long, without the lock meanwhile. A thread that is cancelled here, as on an H200,
 * waits and holds nothing any more. */
void cl_waiter_rest(Waiter *waiter, long nanoseconds);
/* Wakes the threads that wait for a work; NULL: all. */
void cl_wake_waiters(const Work *work);
/* Whether this waiting was given up. */
bool cl_is_given_up(const Waiter *waiter);
/* Something went on. */
void cl_went_on(void);
/* Called by threads that wait, again and again, one of which wakes for it: looks whether no thread can go on. Then it
   is noted, without the lock, and all unfinished work and all waiting are given up. */
void cl_look_for_deadlock(void);
enum { DEADLOCK_LOOK = 100000000 };                 /* nanoseconds between two looks */
static const long UNTIL_WOKEN = 3600L * 1000000000; /* an hour, in nanoseconds */
/* The driver's own thread has nothing to do, or something. */
void cl_engine_rests(bool rests);
void cl_hold(Holder *holder, unsigned locks, const Context *context);
void cl_let_go(Holder *holder);
void cl_waiters_start(bool (*engine_is_due)(void)); /* once more in a forked child */
/* Whether another process may write the value at an address. In works.c. */
bool cl_is_of_others(CUdeviceptr address);

/* Waits until no other thread holds one of these locks of the current context. Under no lock. */
void cl_wait_for_locks(unsigned locks);
