/* The frames of another thread, and a guard that opens gates which Python cannot open.

   A thread that waits behind a closed gate may hold the interpreter's lock. Then no code in Python runs until the gate
   is open, so that the guard is a thread which needs no Python. */
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum { FRAMES = 64, STACK_ROOM = 16384, ANSWER_MS = 200, PATIENCE = 10, OPEN = 1 << 30 };

static pthread_mutex_t asking = PTHREAD_MUTEX_INITIALIZER;
static int number; /* of the signal; 0: not chosen yet, -1: each is in use */
static sem_t answered;
static atomic_int asked; /* the thread that is to answer; ANSWERS: it does */
static void *frames[FRAMES];
static int depth;

enum { ANSWERS = -1 };

static int own_id(void) { return (int)syscall(SYS_gettid); }

static void answer(int signal) {
  (void)signal;
  int error = errno, self = own_id();
  if (atomic_compare_exchange_strong(&asked, &self, ANSWERS)) {
    depth = backtrace(frames, FRAMES);
    sem_post(&answered);
  }
  errno = error;
}

/* Takes a signal that nothing uses. backtrace() loads a library when it is called first, which no handler may. */
static void choose_signal(void) {
  struct sigaction action = {.sa_handler = answer, .sa_flags = SA_RESTART | SA_ONSTACK}, before;
  depth = backtrace(frames, FRAMES);
  sem_init(&answered, 0, 0);
  for (number = SIGRTMAX; number > SIGRTMIN; number--) {
    if (sigaction(number, NULL, &before) || before.sa_handler != SIG_DFL) continue;
    if (!sigaction(number, &action, NULL)) return;
  }
  number = -1;
}

static struct timespec after(clockid_t clock, long milliseconds) {
  struct timespec time;
  clock_gettime(clock, &time);
  time.tv_nsec += milliseconds % 1000 * 1000000;
  time.tv_sec += milliseconds / 1000 + time.tv_nsec / 1000000000;
  time.tv_nsec %= 1000000000;
  return time;
}

static bool wait_for_answer(int thread) {
  struct timespec end = after(CLOCK_REALTIME, ANSWER_MS);
  while (sem_timedwait(&answered, &end)) {
    if (errno == EINTR) continue;
    if (atomic_compare_exchange_strong(&asked, &thread, 0)) return false;
    while (sem_wait(&answered)) {} /* the thread has begun to answer */
    return true;
  }
  return true;
}

static size_t describe(char *text, size_t size) {
  size_t length = 0;
  for (int at = 0; at < depth; at++) {
    Dl_info where;
    if (!dladdr(frames[at], &where) || !where.dli_fname) memset(&where, 0, sizeof where);
    const char *file = where.dli_fname ? where.dli_fname : "?", *slash = strrchr(file, '/');
    int count = snprintf(text + length, size - length, "%.48s+0x%zx%s%.100s\n", slash ? slash + 1 : file,
                         (size_t)frames[at] - (size_t)where.dli_fbase, where.dli_sname ? " " : "",
                         where.dli_sname ? where.dli_sname : "");
    if (count < 0 || length + (size_t)count >= size) break;
    length += (size_t)count;
  }
  text[length] = 0;
  return length;
}

/* Writes the native frames of a thread, innermost first, a line for each; returns the bytes, or 0 if it gave none. */
EXPORT size_t cudalinkThreadStack(int thread, char *text, size_t size) {
  pthread_mutex_lock(&asking);
  if (!number) choose_signal();
  size_t length = 0;
  text[0] = 0;
  if (number > 0) {
    atomic_store(&asked, thread);
    if (syscall(SYS_tgkill, getpid(), thread, number)) atomic_store(&asked, 0);
    else if (wait_for_answer(thread)) length = describe(text, size);
    atomic_store(&asked, 0);
  }
  pthread_mutex_unlock(&asking);
  return length;
}

typedef struct {
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  _Atomic(uint32_t) **gates;
  size_t count;
  int watched;
  unsigned silence;
  bool ended;
  atomic_bool opened;
  atomic_uint beat;
  char stack[STACK_ROOM];
} Guard;

static void *keep_watch(void *given) {
  Guard *guard = given;
  unsigned silent = 0, seen = atomic_load(&guard->beat);
  pthread_mutex_lock(&guard->lock);
  while (!guard->ended) {
    struct timespec end = after(CLOCK_MONOTONIC, guard->silence);
    if (pthread_cond_timedwait(&guard->changed, &guard->lock, &end) != ETIMEDOUT || guard->ended) continue;
    unsigned beat = atomic_load(&guard->beat);
    silent = beat == seen ? silent + 1 : 0;
    seen = beat;
    if (!silent || atomic_load(&guard->opened)) continue;
    cudalinkThreadStack(guard->watched, guard->stack, sizeof guard->stack);
    if (!strstr(guard->stack, "libcuda.so") && silent < PATIENCE) continue; /* the machine is busy, perhaps */
    atomic_store(&guard->opened, true);
    for (size_t at = 0; at < guard->count; at++) atomic_store(guard->gates[at], OPEN);
  }
  pthread_mutex_unlock(&guard->lock);
  return NULL;
}

/* Starts a guard that sets the words `gates` to OPEN if no beat comes for `silence` ms; NULL if it cannot. */
EXPORT Guard *cudalinkStartGuard(uint32_t *const *gates, size_t count, int watched, unsigned silence) {
  Guard *guard = calloc(1, sizeof *guard);
  if (!guard) return NULL;
  guard->gates = malloc((count + !count) * sizeof *guard->gates);
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(&guard->changed, &attributes);
  pthread_condattr_destroy(&attributes);
  pthread_mutex_init(&guard->lock, NULL);
  guard->count = count, guard->watched = watched, guard->silence = silence;
  if (guard->gates) memcpy(guard->gates, gates, count * sizeof *guard->gates);
  sigset_t all, before; /* no handler of the program runs in this thread */
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  bool started = guard->gates && !pthread_create(&guard->thread, NULL, keep_watch, guard);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (started) return guard;
  free(guard->gates);
  free(guard);
  return NULL;
}

/* Says that Python runs. */
EXPORT void cudalinkGuardBeat(Guard *guard) { atomic_fetch_add(&guard->beat, 1); }

/* The frames of the watched thread from before the guard opened the gates; NULL if it has not. */
EXPORT const char *cudalinkGuardOpened(Guard *guard) { return atomic_load(&guard->opened) ? guard->stack : NULL; }

/* Ends a guard. */
EXPORT void cudalinkEndGuard(Guard *guard) {
  pthread_mutex_lock(&guard->lock);
  guard->ended = true;
  pthread_cond_signal(&guard->changed);
  pthread_mutex_unlock(&guard->lock);
  pthread_join(guard->thread, NULL);
  pthread_cond_destroy(&guard->changed);
  pthread_mutex_destroy(&guard->lock);
  free(guard->gates);
  free(guard);
}
