/* Starting the link worker: as an orphan from its first moment, in its own session, with an environment of its use. */
#include "spawn.h"

#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "../../../base/native/own_file.h"
#include "channel.h"
#include "protocol.h"

/* The functions that run on the caller's memory between clone() and execve() are not watched by sanitizers, whose
   bookkeeping belongs to the caller's thread. */
#if defined(__GNUC__)
#define UNWATCHED __attribute__((no_sanitize("address", "thread", "undefined")))
#else
#define UNWATCHED
#endif

/* ThreadSanitizer takes each clone() for a fork(), and then counts this thread's accesses wrongly; glibc's other name
   for it is left alone. */
#ifdef __GLIBC__
int __clone(int (*function)(void *), void *stack, int flags, void *argument, ...);
#define clone __clone
#endif

enum { STACK = 64 * 1024 };

typedef struct {
  const char *program;
  char *const *arguments;
  char *const *environment;
  int socket, output, parent;
  char *stack;
  int pid; /* of the worker; stays 0 where clone() gave it another memory than the caller's, as qemu-user does */
} Start;

static bool starts_with(const char *text, const char *start) { return !strncmp(text, start, strlen(start)); }

/* What is meant for the program that links, and would change or slow down what nvJitLink does. */
static bool left_out(const char *entry) {
  static const char *const prefixes[] = {"MALLOC_", "LD_PRELOAD=", "CUDALINK_EMULATOR_", "PYTHON", "GLIBC_TUNABLES="};
  for (size_t at = 0; at < sizeof prefixes / sizeof *prefixes; at++)
    if (starts_with(entry, prefixes[at])) return true;
  return false;
}

/* Whether a folder of the search path is the emulated driver's, which may be the library that this code is in: the
   worker's nvJitLink must not open that one. */
static bool is_emulator(const char *folder, size_t length) {
  static const char *const ends[] = {"/pytest_cudalink/emulator/lib", "/pytest_cudalink/emulator/lib/absent"};
  for (size_t at = 0; at < sizeof ends / sizeof *ends; at++) {
    size_t end = strlen(ends[at]);
    if (length >= end && !memcmp(folder + length - end, ends[at], end)) return true;
  }
  Dl_info own;
  const char *slash = dladdr((void *)lw_spawn, &own) && own.dli_fname ? strrchr(own.dli_fname, '/') : NULL;
  return slash && length == (size_t)(slash - own.dli_fname) && !memcmp(folder, own.dli_fname, length);
}

/* An entry LD_LIBRARY_PATH without the emulated driver. */
static char *search_path(const char *entry) {
  char *kept = strdup(entry);
  if (!kept) return NULL;
  const char *at = strchr(entry, '=') + 1;
  char *to = strchr(kept, '=') + 1, *first = to;
  while (*at) {
    size_t length = strcspn(at, ":");
    if (!is_emulator(at, length)) {
      if (to != first) *to++ = ':';
      memcpy(to, at, length);
      to += length;
    }
    at += length + (at[length] == ':');
  }
  *to = 0;
  return kept;
}

/* The worker's environment; the caller frees it, and `path` if that is not NULL. */
static char **worker_environment(char **path) {
  size_t count = 0, kept = 0;
  *path = NULL;
  while (environ && environ[count]) count++;
  char **list = malloc((count + 1) * sizeof *list);
  for (size_t at = 0; list && at < count && environ[at]; at++) {
    if (starts_with(environ[at], "LD_LIBRARY_PATH=")) {
      if (!*path) *path = search_path(environ[at]);
      if (*path) list[kept++] = *path;
    } else if (!left_out(environ[at])) list[kept++] = environ[at];
  }
  if (list) list[kept] = NULL;
  return list;
}

/* The worker's process, on the memory of the caller, with all signals blocked. */
UNWATCHED static int become_worker(void *argument) {
  const Start *start = argument;
  if (syscall(SYS_dup3, start->socket, WORKER_SOCKET, 0) >= 0 && syscall(SYS_dup3, start->output, 1, 0) >= 0 &&
      syscall(SYS_dup3, start->output, 2, 0) >= 0 &&
      (start->parent < 0 || syscall(SYS_dup3, start->parent, WORKER_PARENT, 0) >= 0)) {
    syscall(SYS_setsid);
    syscall(SYS_execve, start->program, start->arguments, start->environment);
  }
  Reply reply = {.reply = REPLY_NOT_STARTED, .code = errno};
  syscall(SYS_write, start->socket, &reply, sizeof reply);
  syscall(SYS_exit_group, 127);
  return 0;
}

/* The process between: with its end the worker is an orphan. */
UNWATCHED static int start_worker(void *argument) {
  Start *start = argument;
  start->pid = clone(become_worker, start->stack + STACK, CLONE_VM | CLONE_VFORK | SIGCHLD, argument);
  if (start->pid < 0) {
    Reply reply = {.reply = REPLY_NOT_STARTED, .code = errno};
    syscall(SYS_write, start->socket, &reply, sizeof reply);
  }
  syscall(SYS_exit_group, 0);
  return 0;
}

/* Has no exit signal, so that no SIGCHLD comes and only a waiter that asks for such children sees the process.
   qemu-user refuses such a clone() with EINVAL; there the process has the exit signal of any other child. */
static bool run(Start *start) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  char *top = start->stack + (size_t)2 * STACK;
  int pid = clone(start_worker, top, CLONE_VM | CLONE_VFORK, start);
  if (pid < 0 && errno == EINVAL) pid = clone(start_worker, top, CLONE_VM | CLONE_VFORK | SIGCHLD, start);
  int problem = errno;
  while (pid > 0 && waitpid(pid, NULL, __WALL) < 0 && errno == EINTR) continue;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  errno = problem;
  return pid > 0;
}

/* A descriptor beyond those that the worker's own are put at: the caller may have closed 0 to 4. */
static int beyond(int fd) {
  int moved = moved_up(fd), problem = errno;
  if (moved < 0 || moved >= OWN_FILES_AT_LEAST_FROM) return moved;
  close(moved);
  errno = problem;
  return -1;
}

/* A file in memory for what the worker prints. */
static int output_file(void) {
#ifdef SYS_memfd_create
  int fd = (int)syscall(SYS_memfd_create, "cudalink-link-worker", 1U /* MFD_CLOEXEC */);
  if (fd >= 0 || errno != ENOSYS) return beyond(fd);
#endif
  char name[] = "/tmp/cudalink-XXXXXX";
  int file = mkostemp(name, O_CLOEXEC);
  if (file >= 0) unlink(name);
  return beyond(file);
}

static void close_all(const int *fds, int count) {
  int problem = errno;
  while (count--)
    if (fds[count] >= 0) close(fds[count]);
  errno = problem;
}

Spawned lw_spawn(const char *program, const char *library) {
  enum { OURS, ITS, OUTPUT, PARENT, FDS };
  int pair[2], fds[FDS] = {-1, -1, -1, -1};
  char number[16], *path = NULL;
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair)) return (Spawned){-1, -1, 0};
  fds[OURS] = beyond(pair[0]);
  fds[ITS] = beyond(pair[1]);
  if (fds[OURS] >= 0 && fds[ITS] >= 0) fds[OUTPUT] = output_file();
  if (fds[OUTPUT] < 0) return close_all(fds, FDS), (Spawned){-1, -1, 0};
  fcntl(fds[OUTPUT], F_SETFL, O_APPEND);
  fds[PARENT] = beyond((int)syscall(PIDFD_OPEN, getpid(), 0)); /* without it the worker looks at /proc */
  lw_channel_prepare(fds[OURS]);
  lw_channel_prepare(fds[ITS]);
  snprintf(number, sizeof number, "%d", (int)getpid());
  char *watched = fds[PARENT] < 0 ? NULL : "pidfd";
  char *arguments[] = {(char *)program, (char *)library, number, watched, NULL};
  char **environment = worker_environment(&path);
  void *stack = mmap(NULL, (size_t)2 * STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  Start start = {program, arguments, environment, fds[ITS], fds[OUTPUT], fds[PARENT], stack, 0};
  if (!environment) errno = ENOMEM;
  bool started = environment && stack != MAP_FAILED && run(&start);
  int problem = errno;
  if (stack != MAP_FAILED) munmap(stack, (size_t)2 * STACK);
  free(environment);
  free(path);
  close_all(fds + PARENT, 1);
  close_all(fds + ITS, 1);
  errno = problem;
  if (started) return (Spawned){fds[OURS], fds[OUTPUT], start.pid};
  close_all(fds, ITS);
  close_all(fds + OUTPUT, 1);
  return (Spawned){-1, -1, 0};
}
