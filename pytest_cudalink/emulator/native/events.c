/* Events: what the driver was asked and what it answered. */
#define _GNU_SOURCE
#include "events.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "config.h"

enum { EVENT_SIZE = LIMIT_EVENT_SIZE, EVENTS_KEPT = LIMIT_EVENTS_KEPT };

static struct {
  pthread_mutex_t lock;
  char (*ring)[EVENT_SIZE];
  uint64_t count; /* events ever written; the ring keeps the last EVENTS_KEPT */
  int file;
  bool file_tried;
} events = {.lock = PTHREAD_MUTEX_INITIALIZER, .file = -1};

/* A thread may hold a lock while another one forks; in the child nobody would release it. */
static void unlock_in_child(void) { pthread_mutex_init(&events.lock, NULL); }

__attribute__((constructor)) static void watch_forks(void) { pthread_atfork(NULL, NULL, unlock_in_child); }

/* The bytes of the UTF-8 character beyond ASCII that begins here; 0 if none does (RFC 3629). */
static size_t utf8_length(const unsigned char *c) {
  size_t length = c[0] >= 0xc2 && c[0] < 0xe0 ? 2 : (c[0] & 0xf0) == 0xe0 ? 3 : c[0] >= 0xf0 && c[0] < 0xf5 ? 4 : 0;
  for (size_t at = 1; at < length; at++)
    if ((c[at] & 0xc0) != 0x80) return 0; /* a NUL too */
  bool longer_than_needed = (c[0] == 0xe0 && c[1] < 0xa0) || (c[0] == 0xf0 && c[1] < 0x90);
  bool no_character = (c[0] == 0xed && c[1] > 0x9f) || (c[0] == 0xf4 && c[1] > 0x8f);
  return longer_than_needed || no_character ? 0 : length;
}

const char *cl_json(const char *text, char *out, size_t size) {
  size_t at = 0, length;
  for (const unsigned char *c = (const unsigned char *)(text ? text : ""); *c && at + 7 < size; c++) {
    if ((length = utf8_length(c))) {
      memcpy(out + at, c, length);
      at += length;
      c += length - 1;
    } else if (*c == '"' || *c == '\\') {
      out[at++] = '\\';
      out[at++] = (char)*c;
    } else if (*c == '\n') {
      out[at++] = '\\';
      out[at++] = 'n';
    } else if (*c < 0x20 || *c >= 0x7f) {
      at += (size_t)snprintf(out + at, 7, "\\u%04x", *c);
    } else {
      out[at++] = (char)*c;
    }
  }
  out[at] = 0;
  return out;
}

/* Cuts an overlong event between two members, so that every line stays a JSON object. */
static void close_event(char *line, size_t length) {
  if (length + 2 >= EVENT_SIZE) {
    length = EVENT_SIZE - 24;
    bool quoted = false;
    size_t comma = 0;
    int depth = 0;
    for (size_t at = 0; at < length; at++) {
      if (line[at] == '\\') at++;
      else if (line[at] == '"') quoted = !quoted;
      else if (quoted) continue;
      else if (line[at] == '[') depth++;
      else if (line[at] == ']') depth--;
      else if (line[at] == ',' && !depth) comma = at;
    }
    length = comma ? comma : 1;
    length += (size_t)snprintf(line + length, EVENT_SIZE - length, "%s\"cut\":true", comma ? "," : "");
  }
  line[length++] = '}';
  line[length] = 0;
}

void cl_event(const char *format, ...) {
  char line[EVENT_SIZE];
  pthread_mutex_lock(&events.lock);
  size_t length = (size_t)snprintf(line, sizeof line, "{\"n\":%llu,\"pid\":%d,\"thread\":%ld,",
                                   (unsigned long long)events.count, (int)getpid(), (long)syscall(SYS_gettid));
  va_list arguments;
  va_start(arguments, format);
  length += (size_t)vsnprintf(line + length, sizeof line - length, format, arguments);
  va_end(arguments);
  close_event(line, length);
  if (!events.ring) { /* not calloc: with MALLOC_PERTURB_ that writes to all of the 16 MiB */
    void *pages = mmap(NULL, (size_t)EVENTS_KEPT * EVENT_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages != MAP_FAILED) events.ring = pages;
  }
  if (events.ring) memcpy(events.ring[events.count % EVENTS_KEPT], line, strlen(line) + 1);
  events.count++;
  if (!events.file_tried) {
    events.file_tried = true;
    const char *path = cl_config()->events;
    if (*path && (events.file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) < 0)
      fprintf(stderr, "cudalink: CUDALINK_EMULATOR_EVENTS: cannot append to %s: %s\n", path, strerror(errno));
  }
  if (events.file >= 0) {
    length = strlen(line);
    line[length++] = '\n';
    /* one write for one line, so that lines of several processes do not mix and a crash loses none */
    ssize_t written = write(events.file, line, length);
    (void)written;
  }
  pthread_mutex_unlock(&events.lock);
}

EXPORT uint64_t cudalinkEventCount(void) {
  pthread_mutex_lock(&events.lock);
  uint64_t count = events.count;
  pthread_mutex_unlock(&events.lock);
  return count;
}

/* Copies event `number`; returns its length, or -1 if it is not kept (any more). */
EXPORT int cudalinkEventRead(uint64_t number, char *out, size_t size) {
  int length = -1;
  pthread_mutex_lock(&events.lock);
  if (events.ring && number < events.count && number + EVENTS_KEPT >= events.count)
    length = snprintf(out, size, "%s", events.ring[number % EVENTS_KEPT]);
  pthread_mutex_unlock(&events.lock);
  return length;
}
