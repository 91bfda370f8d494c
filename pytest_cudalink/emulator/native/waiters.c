/* Threads that wait in the driver. */
#include "waiters.h"

#include <dirent.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "grow.h"
#include "openers.h"
#include "violations.h"

atomic_int cl_guarded;

/* All of it under the lock of the streams. */
static Holder *holders;
static Waiter *waiters, *looker; /* that wakes to look for deadlocks */
enum { ENGINES = 4 };
static pid_t resting[ENGINES]; /* engines that have nothing to do */
unsigned cl_working;
static uint64_t steps; /* how often anything went on */
static unsigned given_up;
static bool naming;
static bool (*engine_is_due)(void); /* whether an engine has something to do that it has not begun */
static _Atomic pid_t messenger;     /* hands on messages of another process, and so opens no gate */

static pid_t this_thread(void) { return (pid_t)syscall(SYS_gettid); } /* gettid is younger than our wheels' glibc */

void cl_waiters_start(bool (*is_due)(void)) {
  engine_is_due = is_due;
  for (; holders; holders = holders->next) atomic_fetch_sub(&cl_guarded, 1);
  waiters = looker = NULL;
  for (unsigned at = 0; at < ENGINES; at++) resting[at] = 0;
  cl_working = 0;
  naming = false;
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
  for (Waiter *waiter = waiters; waiter; waiter = waiter->next)
    if (waiter->locks) pthread_cond_signal(&waiter->woken);
}

/* Who holds up a call of a thread. */
static const Holder *find_holder(unsigned locks, const Context *context, pid_t thread) {
  for (const Holder *holder = holders; holder; holder = holder->next)
    if (holder->locks & locks && holder->context == context && holder->thread != thread) return holder;
  return NULL;
}

void cl_wait_for_locks(unsigned locks) {
  if (!locks || cl_in_host_function) return;
  const Context *context = cl_current();
  HOLD_STREAMS();
  if (find_holder(locks, context, this_thread())) {
    Waiter waiter;
    cl_waiter_begin(&waiter, NULL);
    waiter.locks = locks;
    waiter.context = context;
    while (find_holder(locks, context, waiter.thread)) {
      cl_waiter_rest(&waiter, UNTIL_WOKEN);
      cl_look_for_deadlock();
    }
    cl_waiter_end(&waiter);
  }
}

void cl_waiter_begin(Waiter *waiter, Work *work) {
  *waiter = (Waiter){.next = waiters, .thread = this_thread(), .call = cl_called(), .work = work};
  waiter->holds_python = cl_holds_python();
  waiter->given_up = given_up;
  cl_condition_make(&waiter->woken);
  waiters = waiter;
  if (!looker) looker = waiter;
  steps++;
}

static void have_look(Waiter *waiter) {
  looker = waiter;
  if (waiter) pthread_cond_signal(&waiter->woken);
}

void cl_wake_waiters(const Work *work) {
  for (Waiter *waiter = work && !work->holders ? NULL : waiters; waiter; waiter = waiter->next)
    if (!work || waiter->work == work) pthread_cond_signal(&waiter->woken);
}

void cl_waiter_end(Waiter *waiter) {
  UNLINK(waiters, waiter);
  if (looker == waiter) have_look(waiters);
  pthread_cond_destroy(&waiter->woken);
  steps++;
}

/* What a thread leaves that is cancelled while it waits. */
static void abandon(void *data) {
  Waiter *waiter = data;
  cl_waiter_end(waiter);
  for (Holder *holder = holders, *next; holder; holder = next) {
    next = holder->next;
    if (holder->thread == waiter->thread) cl_let_go(holder);
  }
  Work *work = waiter->work;
  if (work && !--work->holders && work->done) cl_work_drop(work);
  cl_streams_unlock(CUDA_SUCCESS);
}

/* Whether the wait is one in which a thread is cancelled: where it blocks, not where it looks again and again, unless
   it can be cancelled at any time. */
static bool may_be_cancelled(const Waiter *waiter, int type) {
  const Context *context = waiter->work ? waiter->work->context : NULL;
  if (!cl_cancelable) return false;
  if (!context) context = cl_current();
  return type == PTHREAD_CANCEL_ASYNCHRONOUS ||
         (context && (context->flags & CU_CTX_SCHED_MASK) == CU_CTX_SCHED_BLOCKING_SYNC);
}

void cl_waiter_rest(Waiter *waiter, long nanoseconds) {
  int type, state;
  /* here, not in a frame that cancellation leaves behind, which ASan would go on to guard */
  struct timespec until =
      cl_streams_later(waiter == looker && nanoseconds > DEADLOCK_LOOK ? DEADLOCK_LOOK : nanoseconds);
  pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &type);
  bool open = may_be_cancelled(waiter, type);
  pthread_cleanup_push(abandon, waiter);
  if (open) pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state);
  cl_streams_wait_until(&waiter->woken, &until);
  if (open) pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
  pthread_cleanup_pop(0);
  pthread_setcanceltype(type, &type);
}

/* How many calls wait now. */
EXPORT unsigned cudalinkWaitingCalls(void) {
  unsigned count = 0;
  HOLD_STREAMS();
  for (const Waiter *waiter = waiters; waiter; waiter = waiter->next) count++;
  return count;
}

bool cl_is_given_up(const Waiter *waiter) { return waiter->given_up != given_up; }
void cl_went_on(void) { steps++; }

void cl_engine_rests(bool rests) {
  pid_t thread = this_thread(), from = rests ? 0 : thread;
  for (unsigned at = 0; at < ENGINES; at++)
    if (resting[at] == from) {
      resting[at] = rests ? thread : 0;
      return;
    }
}

/* Whether a thread sleeps until another one of this process wakes it; `or_asks`: or for a time, as who waits for
   Python's lock. */
static bool sleeps_for_others(pid_t thread, bool or_asks) {
  char text[160], *at = text;
  if (!cl_read_task(thread, "syscall", text, sizeof text)) return false;
  long call = strtol(text, &at, 10);
  if (at == text || call != SYS_futex) return false;
  unsigned long long arguments[4]; /* the word, the operation, its value, the timeout */
  for (int argument = 0; argument < 4; argument++) arguments[argument] = strtoull(at, &at, 16);
  if (arguments[3] && !or_asks) return false;
  return arguments[1] & FUTEX_PRIVATE_FLAG || !cl_is_shared(arguments[0]); /* as the end of a thread is waited for */
}

static bool waits_here(pid_t thread) {
  for (unsigned at = 0; at < ENGINES; at++)
    if (resting[at] == thread) return true;
  for (const Waiter *waiter = waiters; waiter; waiter = waiter->next)
    if (waiter->thread == thread) return true;
  return false;
}

static bool is_before(const Work *earlier, const Work *work) {
  for (size_t at = 0; at < earlier->dependent_count; at++)
    if (earlier->dependents[at] == work) return true;
  return false;
}

/* A work that is not done, waits for nothing, and must be done before another. What is before a work was submitted
   earlier, so that one walk back finds it; the works of a graph alone stand before the one that begins them. */
static const Work *root_of(const Work *work) {
  const Work *after;
  do {
    after = work;
    for (const Work *earlier = cl_newest; earlier; earlier = earlier->before)
      if (is_before(earlier, work)) work = earlier;
  } while (work != after);
  return work;
}

/* The operation at which a gate stands; NULL: there is none. */
static const MemoryOperation *operation_at(const Work *gate) {
  const OperationsNode *all = &gate->parameters.operations;
  return all->count ? &all->list[gate->position < all->count ? gate->position : 0] : NULL;
}

/* Whether another process may open a gate: any, because what is behind that may open the others. */
static bool may_be_opened_outside(void) {
  bool outside = false;
  for (const Work *work = cl_pending; work && !outside; work = work->behind)
    if (cl_may_be_gate(work) && !work->unmet && operation_at(work))
      outside = cl_is_of_others(operation_at(work)->address);
  return outside;
}

/* Whether who waits for a host function of Python has the lock that this needs. */
static bool holds_back_python(void) {
  bool holds = false;
  for (const Waiter *waiter = waiters; waiter && !holds; waiter = waiter->next)
    holds = waiter->holds_python && waiter->work && cl_calls_host(root_of(waiter->work));
  return holds;
}

/* Takes the one other thread that reads for a messenger, as in a worker of pytest-xdist before its tests. */
EXPORT void cudalinkFindMessenger(void) {
  DIR *threads = opendir("/proc/self/task");
  pid_t found = 0;
  unsigned count = 0;
  for (const struct dirent *one = threads ? readdir(threads) : NULL; one; one = readdir(threads)) {
    char text[160], *end;
    pid_t thread = (pid_t)strtol(one->d_name, NULL, 10);
    if (!thread || thread == this_thread() || !cl_read_task(thread, "syscall", text, sizeof text)) continue;
    if (strtol(text, &end, 10) != SYS_read || end == text) continue;
    found = thread;
    count++;
  }
  if (threads) closedir(threads);
  messenger = count == 1 ? found : 0;
}

static bool everybody_waits(void) {
  DIR *threads = opendir("/proc/self/task");
  bool all = threads && !cl_working && !engine_is_due(), python = all && holds_back_python();
  for (const struct dirent *one = all ? readdir(threads) : NULL; all && one; one = readdir(threads)) {
    pid_t thread = (pid_t)strtol(one->d_name, NULL, 10);
    all = !thread || thread == messenger || waits_here(thread) || sleeps_for_others(thread, python);
  }
  if (threads) closedir(threads);
  return all;
}

static bool interrupts; /* Python's handler of SIGINT is the program's: asked before a deadlock is named */

/* What may go on although everybody waits; NULL: nothing. */
static const char *who_may_go_on(void) {
  if (cl_signal_may_come(waits_here(getpid()), interrupts)) return "a signal handler";
  if (may_be_opened_outside()) return "another process";
  return cl_is_traced() ? "a debugger" : NULL;
}

static int describe_work(const Work *root, char *text, size_t size) {
  if (cl_calls_host(root)) return snprintf(text, size, "a host function, which does not return");
  const MemoryOperation *operation = cl_may_be_gate(root) ? operation_at(root) : NULL;
  if (!operation) return snprintf(text, size, "unfinished work");
  return snprintf(text, size, "the value at 0x%llx, which nobody writes", (unsigned long long)operation->address);
}

static int describe(const Waiter *waiter, char *text, size_t size) {
  int length = snprintf(text, size, "thread %d waits in %s for ", (int)waiter->thread, waiter->call);
  if (length < 0 || (size_t)length >= size) return length;
  if (waiter->work) return length + describe_work(root_of(waiter->work), text + length, size - (size_t)length);
  const Holder *holder = find_holder(waiter->locks, waiter->context, waiter->thread);
  return length + snprintf(text + length, size - (size_t)length, "the context, which thread %d holds in %s",
                           holder ? (int)holder->thread : 0, holder ? holder->call : "a call");
}

enum { NAMED_THREADS = 8 }; /* more than a sentence has room for */

/* Notes who waits for what, without the lock; the other threads go on waiting meanwhile, so that their stacks can be
   seen. `instead`: what might have gone on, and did not; NULL: nothing. False if something may go on after all. */
static bool name(const char *instead) {
  static uint64_t number;
  char what[640] = "", fix[320];
  int threads[NAMED_THREADS + 1] = {0};
  size_t length = 0, named = 0, others = 0;
  const Waiter *first = waiters;
  for (const Waiter *waiter = waiters; waiter; waiter = waiter->next) {
    char waits[160];
    size_t more = (size_t)describe(waiter, waits, sizeof waits);
    if (named < NAMED_THREADS) threads[named++] = (int)waiter->thread;
    if (length + more < sizeof what / 2) length += (size_t)sprintf(what + length, "%s%s", length ? "; " : "", waits);
    else others++;
    if (waiter->work) first = waiter;
  }
  if (others) length += (size_t)sprintf(what + length, "; %zu more wait", others);
  if (instead) snprintf(what + length, sizeof what - length, "; %s might have ended this, and did not", instead);
  const Work *root = first && first->work ? root_of(first->work) : NULL;
  const char *call = first ? first->call : cl_called();
  if (root && cl_may_be_gate(root))
    snprintf(fix, sizeof fix, "Write the value before %s, or in a thread that waits for none of these.", call);
  else if (root && cl_calls_host(root))
    snprintf(fix, sizeof fix, "Let the host function wait for nothing that the thread in %s has or does.", call);
  else snprintf(fix, sizeof fix, "Let a thread that waits for none of these end what %s waits for.", call);
  uint64_t at = ++number;
  bool asks = !instead && !waits_here(getpid());
  naming = true;
  /* another one looks meanwhile: this one may come to wait for Python's lock */
  if (waiters != looker) have_look(waiters);
  else if (waiters && waiters->next) have_look(waiters->next);
  cl_streams_unlock(CUDA_SUCCESS);
  if (asks && cl_python_catches_interrupts()) {
    cl_streams_lock();
    naming = false;
    return !(interrupts = true);
  }
  Stack here;
  cl_note_stack(&here);
  cl_note_violation_of(&(Violation){
      .kind = "deadlock",
      .number = at,
      .rule = "deadlock",
      .what = what,
      .call = call,
      .expected = "a thread that can go on",
      .found = "none",
      .threads = threads,
      .fix = fix,
      .noticed = &here,
  });
  cl_free_stack(&here);
  cl_report_violations();
  cl_streams_lock();
  return true;
}

static bool anybody_at_gate(void) {
  for (const Waiter *waiter = waiters; waiter; waiter = waiter->next)
    if (waiter->work && cl_may_be_gate(root_of(waiter->work))) return true;
  return false;
}

enum { STUCK_LOOKS = 3, LOOKS_A_SECOND = 1000000000 / DEADLOCK_LOOK };
/* Looks and not seconds: while the process is stopped, no thread looks, and none could have opened a gate. */
static unsigned last_look = LIMIT_GATE_SECONDS * LOOKS_A_SECOND;

/* After how many looks a gate is given up that may still open, for tests. */
EXPORT void cudalinkGiveUpGates(unsigned looks) { last_look = looks; }

void cl_look_for_deadlock(void) {
  static double last;
  static uint64_t seen;
  static unsigned looks, stuck;
  struct timespec time = cl_streams_later(0);
  double now = (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
  if (now - last < 0.9e-9 * DEADLOCK_LOOK) return;
  last = now;
  if (steps != seen) {
    seen = steps;
    looks = stuck = 0;
    interrupts = false;
    return;
  }
  bool all = everybody_waits();
  const char *instead = all ? who_may_go_on() : "another thread";
  looks++;
  stuck = instead ? 0 : stuck + 1;
  if (stuck < STUCK_LOOKS && !(looks > last_look && (all || anybody_at_gate()))) return;
  stuck = 0;
  unsigned before = given_up;
  /* else the thread that names it waits for Python's lock, which one of the waiting threads has */
  if (!naming && !name(instead)) return;
  looks = 0;
  if (given_up != before) return;
  given_up++;
  naming = false;
  cl_cancel_works(NULL);
  cl_wake_waiters(NULL);
}
