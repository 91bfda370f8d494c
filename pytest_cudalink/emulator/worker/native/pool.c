/* The workers of this process, in a table of fixed places: a forked child closes what it finds and starts again. */
#include "pool.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "locks.h"
#include "spawn.h"

enum { PLACES = 32, MOST_OF_A_LIBRARY = 8, ACCEPTED = 16 };

static Worker workers[PLACES] = {[0 ... PLACES - 1] = {.lock = PTHREAD_MUTEX_INITIALIZER}};
STATIC_LOCK(pool_lock);
static uint64_t last_serial;

/* Options that a library accepted: a link with them can be opened together with its first input. */
static struct Accepted {
  char *library, *options;
  uint64_t size;
} accepted[ACCEPTED];
static unsigned accepted_count; /* ever */

/* The workers serve the parent, whose descriptors these are copies of. */
static void forget_in_child(void) {
  for (Worker *worker = workers; worker < workers + PLACES; worker++) {
    if (worker->serial) {
      close_own(&worker->socket);
      close_own(&worker->output);
    }
    worker->serial = 0;
    worker->users = worker->calls = 0;
    pthread_mutex_init(&worker->lock, NULL);
  }
}

FORGET_IN_CHILDREN(forget_in_child);

static bool serves(const Worker *worker, const char *program, const char *library) {
  return worker->library && !strcmp(worker->library, library) && !strcmp(worker->program, program);
}

static unsigned limit_of_a_library(void) {
  long cores = sysconf(_SC_NPROCESSORS_ONLN);
  return cores < 1 ? 1 : cores > MOST_OF_A_LIBRARY ? MOST_OF_A_LIBRARY : (unsigned)cores;
}

/* Gives a place, whose worker is not in use, to a library. */
static bool settle(Worker *worker, const char *program, const char *library) {
  char *kept_program = strdup(program), *kept_library = strdup(library);
  if (!kept_program || !kept_library) {
    free(kept_program);
    free(kept_library);
    errno = ENOMEM;
    return false;
  }
  free(worker->program);
  free(worker->library);
  worker->program = kept_program;
  worker->library = kept_library;
  return true;
}

/* The best worker for a new link: one without a call and with the fewest links, a new one, the one with the fewest
   calls. Under the lock of the pool. */
static Worker *choose(const char *program, const char *library) {
  Worker *idle = NULL, *busy = NULL, *empty = NULL, *unused = NULL;
  unsigned count = 0;
  for (Worker *worker = workers; worker < workers + PLACES; worker++) {
    if (!serves(worker, program, library)) {
      if (!worker->library) empty = empty ? empty : worker;
      else if (!worker->calls && (!worker->users || !worker->serial)) unused = unused ? unused : worker;
      continue;
    }
    count++;
    if (!worker->calls && (!idle || worker->users < idle->users)) idle = worker;
    if (!busy || worker->calls < busy->calls) busy = worker;
  }
  if (idle) return idle;
  if (!empty) empty = unused;
  if ((count >= limit_of_a_library() && busy) || !empty) return busy;
  if (empty == unused) lw_end(empty); /* no thread has its lock: there is no call */
  return settle(empty, program, library) ? empty : busy;
}

static bool start(Worker *worker) {
  Spawned spawned = lw_spawn(worker->program, worker->library);
  if (spawned.socket < 0) return false;
  worker->channel.start = worker->channel.end = 0;
  worker->channel.fd = spawned.socket;
  worker->socket = own_file(spawned.socket);
  worker->output = own_file(spawned.output);
  worker->pid = spawned.pid;
  worker->born = lw_started(spawned.pid); /* 0 for a process that there is not */
  worker->stained = false;
  pthread_mutex_lock(&pool_lock);
  worker->users = 0; /* of the process before */
  pthread_mutex_unlock(&pool_lock);
  worker->serial = __atomic_add_fetch(&last_serial, 1, __ATOMIC_RELAXED);
  return true;
}

/* A worker may have died since its last call, or have said that it does; or the program closed its socket. */
static bool is_gone(const Worker *worker) {
  if (own_descriptor(&worker->socket) < 0) return true;
  struct pollfd socket = {.fd = worker->channel.fd, .events = POLLIN};
  return poll(&socket, 1, 0) > 0;
}

bool lw_holds(const Worker *worker, uint64_t serial) { return worker && serial && worker->serial == serial; }

Worker *lw_take(Worker *holder, uint64_t serial, const char *program, const char *library) {
  pthread_mutex_lock(&pool_lock);
  errno = EMFILE; /* if every place is taken */
  Worker *worker = lw_holds(holder, serial) ? holder : choose(program, library);
  if (worker) worker->calls++;
  pthread_mutex_unlock(&pool_lock);
  if (!worker) return NULL;
  pthread_mutex_lock(&worker->lock);
  if (worker->serial && is_gone(worker)) lw_end(worker);
  if (worker->serial || start(worker)) return worker;
  int problem = errno;
  lw_give_back(worker);
  errno = problem;
  return NULL;
}

void lw_give_back(Worker *worker) {
  pthread_mutex_unlock(&worker->lock);
  pthread_mutex_lock(&pool_lock);
  worker->calls--;
  pthread_mutex_unlock(&pool_lock);
}

void lw_attach(Worker *worker) {
  HOLD(pool_lock);
  worker->users++;
}

void lw_detach(Worker *worker, uint64_t serial) {
  HOLD(pool_lock);
  if (lw_holds(worker, serial) && worker->users) worker->users--;
}

/* A worker that is stopped, or hangs in a library, does not see that its socket is closed. */
static void kill_worker(const Worker *worker) {
  enum { PIDFD_SEND_SIGNAL = 424 }; /* SYS_pidfd_send_signal, the same number on all machines */
  if (!worker->born) return;
  int process = (int)syscall(PIDFD_OPEN, worker->pid, 0);
  if (lw_started(worker->pid) == worker->born) {
    if (process >= 0) syscall(PIDFD_SEND_SIGNAL, process, SIGKILL, NULL, 0);
    else if (errno == ENOSYS) kill(worker->pid, SIGKILL);
  }
  if (process >= 0) close(process);
}

/* Workers end with the process that they serve; one that is stopped would not. */
__attribute__((destructor)) static void kill_at_exit(void) {
  for (Worker *worker = workers; worker < workers + PLACES; worker++)
    if (worker->serial) kill_worker(worker);
}

void lw_end(Worker *worker) {
  if (!worker->serial) return;
  kill_worker(worker);
  /* a forked child may have a copy, which close() would leave open */
  if (own_descriptor(&worker->socket) >= 0) shutdown(worker->channel.fd, SHUT_RDWR);
  close_own(&worker->socket);
  close_own(&worker->output);
  worker->serial = 0;
}

bool lw_accepted(const char *library, const char *options, uint64_t size) {
  bool found = false;
  HOLD(pool_lock);
  for (unsigned at = 0; !found && at < ACCEPTED && at < accepted_count; at++)
    found = accepted[at].size == size && !memcmp(accepted[at].options, options, size) &&
            !strcmp(accepted[at].library, library);
  return found;
}

void lw_accept(const char *library, const char *options, uint64_t size) {
  char *kept_library = strdup(library), *kept_options = malloc(size ? size : 1);
  if (kept_library && kept_options) {
    memcpy(kept_options, options, size);
    pthread_mutex_lock(&pool_lock);
    struct Accepted *place = &accepted[accepted_count++ % ACCEPTED], old = *place;
    *place = (struct Accepted){kept_library, kept_options, size};
    kept_library = old.library;
    kept_options = old.options;
    pthread_mutex_unlock(&pool_lock);
  }
  free(kept_library);
  free(kept_options);
}
