/* Threads that must not wait for unfinished work: each call that would, by the table, is a violation. */
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "locks.h"
#include "violations.h"
#include "work_order.h"

enum { NAMED = 256 };

typedef struct Scope {
  struct Scope *outer;
  unsigned number;
  int64_t thread;         /* 0: all */
  unsigned (*task)(void); /* number of the block of the task that the thread now runs; NULL: it is of all its tasks */
  uint64_t named[NAMED];
  unsigned named_count;
  bool allowed[SYMBOL_COUNT];
} Scope;

STATIC_LOCK(lock);
static Scope *innermost;
static unsigned last_number;
static uint64_t violation_number;

static uint64_t site_of(Sym symbol) {
  Stack stack;
  cl_note_stack(&stack);
  uint64_t hash = cl_hash_stack(cl_hash(0, &symbol, sizeof symbol), &stack);
  cl_free_stack(&stack);
  return hash;
}

static bool is_of(const Scope *scope, int64_t thread) { return !scope->thread || scope->thread == thread; }

/* The number of the block that the task has which a thread runs; 0: none. Without the lock, because Python answers. */
static unsigned block_of_task(int64_t thread) {
  unsigned (*task)(void) = NULL;
  pthread_mutex_lock(&lock);
  for (const Scope *scope = innermost; scope && !task; scope = scope->outer)
    if (is_of(scope, thread)) task = scope->task;
  pthread_mutex_unlock(&lock);
  return task ? task() : 0;
}

/* Whether a call is a violation, and not yet named. Under the lock. */
static bool is_news(Sym symbol, int64_t thread, unsigned block, uint64_t site) {
  Scope *scope = innermost;
  while (scope && (!is_of(scope, thread) || (scope->task && scope->number != block))) scope = scope->outer;
  if (!scope || scope->allowed[symbol]) return false;
  for (unsigned at = 0; at < scope->named_count && at < NAMED; at++)
    if (scope->named[at] == site) return false;
  scope->named[scope->named_count++ % NAMED] = site;
  return true;
}

static void notice(Sym symbol, const WaitRow *row) {
  static const char *const names[] = {"own", "stream", "legacy", "event", "context", "device"};
  static const char *const what[] = {
      "waits for all that its stream was given",
      "waits for what new work of its stream would wait for",
      "waits for what new work of the legacy stream would wait for",
      "waits for what its event records",
      "waits for all unfinished work of its context",
      "waits for all unfinished work of all contexts",
  };
  uint64_t site = site_of(symbol);
  int64_t thread = syscall(SYS_gettid);
  unsigned block = block_of_task(thread);
  pthread_mutex_lock(&lock);
  bool news = is_news(symbol, thread, block, site);
  uint64_t number = news ? ++violation_number : 0;
  pthread_mutex_unlock(&lock);
  if (!news) return;
  cl_note_violation_of(&(Violation){
      .kind = "wait",
      .number = number,
      .rule = names[row->waits_for],
      .what = what[row->waits_for],
      .call = cl_symbols[symbol].name,
      .expected = "a call that waits for nothing",
      .found = "a call that waits",
      .fix = "Make a call that does not wait, or allow this one.",
  });
  cl_report_violations();
}

/* From now on a call of a thread (its number in the kernel; 0: of all) that would wait is a violation, whether anything
   is unfinished or not, unless its symbol is allowed. Of nested ones the innermost of a thread counts. Returns a
   number; 0 if memory is out. */
EXPORT unsigned cudalinkNoWait(int64_t thread, const char *const *allowed, size_t count) {
  Scope *scope = calloc(1, sizeof *scope);
  if (!scope) return 0;
  scope->thread = thread;
  for (size_t at = 0; at < count; at++) {
    int symbol = cl_symbol_named(allowed[at]);
    if (symbol >= 0) scope->allowed[symbol] = true;
  }
  pthread_mutex_lock(&lock);
  scope->outer = innermost;
  innermost = scope;
  unsigned number = scope->number = ++last_number;
  pthread_mutex_unlock(&lock);
  cl_pending_keep(true); /* a call that waits by itself is on the way on which it tells */
  atomic_store(&cl_wait_watch, notice);
  return number;
}

/* Lets a block be of the task alone in which it begins, of those that the thread runs in turn. `task` returns the
   number of the block of the task that now runs; 0: it has none. */
EXPORT void cudalinkNoWaitOfTask(unsigned number, unsigned (*task)(void)) {
  HOLD(lock);
  for (Scope *scope = innermost; scope; scope = scope->outer)
    if (scope->number == number) scope->task = task;
}

EXPORT void cudalinkEndNoWait(unsigned number) {
  pthread_mutex_lock(&lock);
  Scope **at = &innermost;
  while (*at && (*at)->number != number) at = &(*at)->outer;
  Scope *ended = *at;
  if (ended) *at = ended->outer;
  if (!innermost) atomic_store(&cl_wait_watch, NULL);
  pthread_mutex_unlock(&lock);
  if (ended) cl_pending_keep(false);
  free(ended);
}

/* In a forked child violations are not read, and nothing is pending. */
static void forget(void) {
  innermost = NULL; /* not freed: another thread may have been at it */
  atomic_store(&cl_wait_watch, NULL);
}

FORGET_IN_CHILDREN(forget);
