/* Calls of libnvJitLink that are watched for what it prints. */
#define _GNU_SOURCE
#include "watched.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "locks.h"

#define EXPORT __attribute__((visibility("default")))

static const char MARK[] = "fatal   :";

static _Thread_local bool watching;
static _Thread_local char fatal_line[512];

#ifdef __GLIBC__ /* elsewhere stderr cannot be replaced, and nvJitLink has no library there */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static FILE *forwarder, *original; /* the stream that stands in for stderr; stderr while it does */
static unsigned watchers;

/* A forked child has none of the threads that watch. */
static void forget_in_child(void) {
  watchers = 0;
  if (forwarder && stderr == forwarder) stderr = original;
}

__attribute__((constructor)) static void watch_forks(void) {
  cl_open_in_children(&lock);
  cl_forget_in_children(forget_in_child);
}

/* The stream is unbuffered, so that each piece arrives here in the thread that printed it. nvJitLink prints a line in
   one piece (13.0 and 13.2). */
static ssize_t forward(void *context, const char *text, size_t size) {
  (void)context;
  const char *found = watching ? memmem(text, size, MARK, sizeof MARK - 1) : NULL;
  if (found) {
    size_t length = size - (size_t)(found - text);
    const char *end = memchr(found, '\n', length);
    if (end) length = (size_t)(end - found);
    if (length >= sizeof fatal_line) length = sizeof fatal_line - 1;
    memcpy(fatal_line, found, length);
    fatal_line[length] = 0;
  }
  for (size_t done = 0; done < size;) {
    ssize_t written = write(STDERR_FILENO, text + done, size - done);
    if (written < 0 && errno != EINTR) break; /* stderr is closed: nothing can be printed */
    if (written > 0) done += (size_t)written;
  }
  return (ssize_t)size;
}

static void replace_stderr(void) {
  pthread_mutex_lock(&lock);
  if (!forwarder) {
    forwarder = fopencookie(NULL, "w", (cookie_io_functions_t){.write = forward});
    if (forwarder) setvbuf(forwarder, NULL, _IONBF, 0);
  }
  if (watchers++ == 0 && forwarder) {
    original = stderr;
    stderr = forwarder;
  }
  pthread_mutex_unlock(&lock);
}

static void restore_stderr(void) {
  pthread_mutex_lock(&lock);
  if (watchers) watchers--;
  if (!watchers && forwarder && stderr == forwarder) stderr = original;
  pthread_mutex_unlock(&lock);
}

#else
static void replace_stderr(void) {}
static void restore_stderr(void) {}
#endif

static void begin(void) {
  fatal_line[0] = 0;
  watching = true;
  replace_stderr();
}

static int end(int result) {
  watching = false;
  restore_stderr();
  return fatal_line[0] ? result | PRINTED_FATAL : result;
}

EXPORT int cudalinkAddData(AddData *add, void *handle, int type, const void *data, size_t size, const char *name) {
  begin();
  return end(add(handle, type, data, size, name));
}

EXPORT int cudalinkComplete(Complete *complete, void *handle) {
  begin();
  return end(complete(handle));
}

EXPORT int cudalinkCreate(Create *create, void **handle, unsigned count, const char **options) {
  void *made = NULL;
  int result = create(&made, count, options);
  if (!result) *handle = made;
  return result;
}

EXPORT int cudalinkDestroy(Destroy *destroy, void **handle) {
  void *taken = *handle;
  *handle = NULL;
  return taken ? destroy(&taken) : 0;
}

EXPORT const char *cudalinkFatalLine(void) { return fatal_line; }
