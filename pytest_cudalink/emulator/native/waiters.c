/* Threads that wait in the driver. */
#define _GNU_SOURCE
#include "waiters.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "stacks.h"
#include "streams.h"
#include "violations.h"

atomic_int cl_guarded;

/* All of it under the lock of the streams. */
static Holder *holders;
static pthread_cond_t released;
static Waiter *waiters;
enum { ENGINES = 4 };
static pid_t resting[ENGINES]; /* engines that have nothing to do */
unsigned cl_working;
static uint64_t steps; /* how often anything went on */
static unsigned given_up;
static bool naming;
static _Atomic pid_t messenger; /* hands on messages of another process, and so opens no gate */

static pid_t this_thread(void) {
  return (pid_t)syscall(SYS_gettid);
} /* gettid is younger than the glibc of our wheels */

__attribute__((constructor)) static void prepare(void) { cl_condition_make(&released); }

void cl_waiters_forget(void) {
  for (; holders; holders = holders->next) atomic_fetch_sub(&cl_guarded, 1);
  waiters = NULL;
  for (unsigned at = 0; at < ENGINES; at++) resting[at] = 0;
  cl_working = 0;
  naming = false;
  cl_condition_make(&released);
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

/* Who holds up a call of a thread. */
static const Holder *find_holder(unsigned locks, const Context *context, pid_t thread) {
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
  if (find_holder(locks, context, this_thread())) {
    Waiter waiter;
    cl_waiter_begin(&waiter, NULL);
    waiter.locks = locks;
    waiter.context = context;
    while (find_holder(locks, context, waiter.thread)) {
      cl_streams_wait_at_most(&released, DEADLOCK_LOOK);
      cl_look_for_deadlock();
    }
    cl_waiter_end(&waiter);
  }
  cl_streams_unlock(CUDA_SUCCESS);
}

/* -- waiting -- */

void cl_waiter_begin(Waiter *waiter, const Work *work) {
  *waiter = (Waiter){
      .next = waiters,
      .thread = this_thread(),
      .call = cl_called(),
      .work = work,
      .holds_python = cl_holds_python(),
      .given_up = given_up,
  };
  waiters = waiter;
  steps++;
}

void cl_waiter_end(Waiter *waiter) {
  Waiter **at = &waiters;
  while (*at && *at != waiter) at = &(*at)->next;
  if (*at) *at = waiter->next;
  steps++;
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

/* -- deadlocks -- */

bool cl_read_task(pid_t thread, const char *name, char *text, size_t size) {
  char path[48];
  snprintf(path, sizeof path, "/proc/self/task/%d/%s", (int)thread, name);
  int file = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t length = file < 0 ? 0 : read(file, text, size - 1);
  if (file >= 0) close(file);
  text[length > 0 ? length : 0] = 0;
  return length > 0;
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
  return arguments[1] & FUTEX_PRIVATE_FLAG && (or_asks || !arguments[3]);
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

static bool is_host(const Work *work) {
  return work->parameters.type == NODE_HOST || work->parameters.type == WORK_CALLBACK;
}

static bool is_gate(const Work *work) { return work->parameters.type == NODE_MEMORY_OPERATIONS; }

/* The operation at which a gate stands; NULL: there is none. */
static const MemoryOperation *operation_at(const Work *gate) {
  const OperationsNode *all = &gate->parameters.operations;
  return all->count ? &all->list[gate->position < all->count ? gate->position : 0] : NULL;
}

/* Whether another process may open a gate that a call waits for. */
static bool may_be_opened_outside(void) {
  bool outside = false;
  for (const Waiter *waiter = waiters; waiter && !outside; waiter = waiter->next)
    outside = waiter->work && root_of(waiter->work)->outside;
  return outside;
}

/* Whether who waits for a host function of Python has the lock that this needs. */
static bool holds_back_python(void) {
  bool holds = false;
  for (const Waiter *waiter = waiters; waiter && !holds; waiter = waiter->next)
    holds = waiter->holds_python && waiter->work && is_host(root_of(waiter->work));
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
  bool all = threads && !cl_working, python = all && holds_back_python();
  for (const struct dirent *one = all ? readdir(threads) : NULL; all && one; one = readdir(threads)) {
    pid_t thread = (pid_t)strtol(one->d_name, NULL, 10);
    all = !thread || thread == messenger || waits_here(thread) || sleeps_for_others(thread, python);
  }
  if (threads) closedir(threads);
  return all && !may_be_opened_outside();
}

static int describe_work(const Work *root, char *text, size_t size) {
  if (is_host(root)) return snprintf(text, size, "a host function, which does not return");
  const MemoryOperation *operation = is_gate(root) ? operation_at(root) : NULL;
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

/* Notes who waits for what, without the lock; the other threads go on waiting meanwhile, so that their stacks can be
   seen. */
static void name(void) {
  static uint64_t number;
  char what[320] = "", fix[320];
  size_t length = 0;
  const Waiter *first = waiters;
  for (const Waiter *waiter = waiters; waiter && length < sizeof what; waiter = waiter->next) {
    if (length) length += (size_t)snprintf(what + length, sizeof what - length, "; ");
    if (length < sizeof what) length += (size_t)describe(waiter, what + length, sizeof what - length);
    if (waiter->work) first = waiter;
  }
  const Work *root = first && first->work ? root_of(first->work) : NULL;
  const char *call = first ? first->call : cl_called();
  if (root && is_gate(root))
    snprintf(fix, sizeof fix, "Write the value before %s, or in a thread that waits for none of these.", call);
  else if (root && is_host(root))
    snprintf(fix, sizeof fix, "Let the host function wait for nothing that the thread in %s has or does.", call);
  else snprintf(fix, sizeof fix, "Let a thread that waits for none of these end what %s waits for.", call);
  uint64_t at = ++number;
  naming = true;
  cl_streams_unlock(CUDA_SUCCESS);
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
      .fix = fix,
      .noticed = &here,
  });
  cl_free_stack(&here);
  cl_report_violations();
  cl_streams_lock();
}

static void give_up(void) {
  given_up++;
  naming = false;
  for (Work *work = cl_pending; work; work = work->behind) work->cancelled = work->hurried = true;
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static bool anybody_at_gate(void) {
  for (const Waiter *waiter = waiters; waiter; waiter = waiter->next)
    if (waiter->work && is_gate(root_of(waiter->work))) return true;
  return false;
}

enum { STUCK_LOOKS = 3 };

void cl_look_for_deadlock(void) {
  static double last, since;
  static uint64_t seen;
  static unsigned looks;
  double time = now();
  if (time - last < 0.9e-9 * DEADLOCK_LOOK) return;
  last = time;
  if (steps != seen) {
    seen = steps;
    since = time;
    looks = 0;
    return;
  }
  looks = everybody_waits() ? looks + 1 : 0;
  bool late = time - since > LIMIT_GATE_SECONDS && anybody_at_gate();
  if (looks < STUCK_LOOKS && !late) return;
  looks = 0;
  since = time;
  unsigned before = given_up;
  if (!naming) name(); /* else whoever names it waits for Python's lock, which one of the waiting threads has */
  if (given_up == before) give_up();
}
