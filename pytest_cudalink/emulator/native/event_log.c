/* Events: what the driver was asked and what it answered. */
#include "event_log.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "abi.h"
#include "config.h"
#include "locks.h"

#include "../../base/native/own_file.h"

enum { EVENT_SIZE = LIMIT_EVENT_SIZE, EVENTS_KEPT = LIMIT_EVENTS_KEPT };

/* One event, in words: they are read while another thread writes them. */
typedef union {
  char text[EVENT_SIZE];
  uint64_t words[EVENT_SIZE / sizeof(uint64_t)];
} Kept;

static struct {
  pthread_mutex_t lock; /* of writers: a crash handler reads, and what it interrupted may hold the lock for ever */
  Kept *ring;
  uint64_t begun, count; /* events ever begun and written; the ring keeps the last EVENTS_KEPT that were begun */
  OwnFile file;
  bool file_tried;
  uint64_t lost;  /* events that are not in the file, or not whole */
  int lost_error; /* errno of the first of them; 0: it was cut */
} events = {.lock = PTHREAD_MUTEX_INITIALIZER, .file = {.number = -1}};

OPEN_IN_CHILDREN(events.lock);

/* The bytes of the UTF-8 character beyond ASCII that begins here, of which `left` bytes are there; 0 if there is no
   such character (RFC 3629). */
static size_t utf8_length(const unsigned char *c, size_t left) {
  size_t length = c[0] >= 0xc2 && c[0] < 0xe0 ? 2 : (c[0] & 0xf0) == 0xe0 ? 3 : c[0] >= 0xf0 && c[0] < 0xf5 ? 4 : 0;
  if (!length || length > left) return 0;
  for (size_t at = 1; at < length; at++)
    if ((c[at] & 0xc0) != 0x80) return 0;
  bool longer_than_needed = (c[0] == 0xe0 && c[1] < 0xa0) || (c[0] == 0xf0 && c[1] < 0x90);
  bool no_character = (c[0] == 0xed && c[1] > 0x9f) || (c[0] == 0xf4 && c[1] > 0x8f);
  return longer_than_needed || no_character ? 0 : length;
}

void cl_event_begin(EventLine *line) {
  line->length = 0;
  line->unsupported = NULL;
  line->text[0] = 0;
}

/* What does not fit is cut. No printf: it would take longer than everything else of a call that writes no event. */
static void append_bytes(EventLine *line, const void *bytes, size_t count) {
  size_t room = sizeof line->text - 1 - line->length;
  if (count > room) count = room;
  memcpy(line->text + line->length, bytes, count);
  line->length += count;
  line->text[line->length] = 0;
}

static void append(EventLine *line, const char *text) { append_bytes(line, text, strlen(text)); }

/* Names are ours and need no escapes. */
static void append_name(EventLine *line, const char *name) {
  bool first = line->length && line->text[line->length - 1] == '['; /* in a list */
  if (!first) append(line, ",");
  if (!name) return;
  append(line, "\"");
  append(line, name);
  append(line, "\":");
}

static void append_number(EventLine *line, uint64_t value) {
  char digits[20];
  size_t at = sizeof digits;
  do {
    digits[--at] = (char)('0' + value % 10);
    value /= 10;
  } while (value);
  append_bytes(line, digits + at, sizeof digits - at);
}

void cl_event_int(EventLine *line, const char *name, int64_t value) {
  append_name(line, name);
  if (value < 0) append(line, "-");
  append_number(line, value < 0 ? -(uint64_t)value : (uint64_t)value);
}

void cl_event_uint(EventLine *line, const char *name, uint64_t value) {
  append_name(line, name);
  append_number(line, value);
}

void cl_event_bool(EventLine *line, const char *name, bool value) {
  append_name(line, name);
  append(line, value ? "true" : "false");
}

static void escape(EventLine *line, const char *text, size_t room) {
  const unsigned char *c = (const unsigned char *)text, *end = c + strlen(text);
  size_t start = line->length;
  while (c < end && line->length - start + 7 < room) {
    size_t length = utf8_length(c, (size_t)(end - c));
    char escaped[8];
    if (length || (*c >= 0x20 && *c < 0x7f && *c != '"' && *c != '\\')) append_bytes(line, c, length ? length : 1);
    else {
      snprintf(escaped, sizeof escaped, "\\u%04x", *c);
      append(line, escaped);
    }
    c += length ? length : 1;
  }
  if (c < end) append(line, "…");
}

void cl_event_text(EventLine *line, const char *name, const char *text, size_t room) {
  append_name(line, name);
  append(line, "\"");
  escape(line, text ? text : "", room);
  append(line, "\"");
}

void cl_event_note(EventLine *line, const char *text) { cl_event_text(line, "note", text, sizeof line->text); }

void cl_event_list(EventLine *line, const char *name) {
  append_name(line, name);
  append(line, "[");
}

void cl_event_list_end(EventLine *line) { append(line, "]"); }
void cl_event_join(EventLine *line, const EventLine *other) { append_bytes(line, other->text, other->length); }
void cl_event_members(EventLine *line, const char *members) { append(line, members); }

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

/* Counts an event that is missing in the file; the first one is reported, because a program may never ask. */
static void lose_event(const char *what, const char *path, int error) {
  if (!events.lost++) {
    events.lost_error = error;
    cl_say("cudalink: CUDALINK_EMULATOR_EVENTS: cannot %s %s: %s\n", what, path,
           error ? strerror(error) : "an event was cut");
  }
}

/* Puts an event into the ring; under the lock. Each word is released after `begun`, and `count` after all of them. */
static void keep(const Kept *line) {
  if (!events.ring) { /* not calloc: with MALLOC_PERTURB_ that writes to all of it */
    void *pages =
        mmap(NULL, (size_t)EVENTS_KEPT * EVENT_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages != MAP_FAILED) __atomic_store_n(&events.ring, pages, __ATOMIC_RELEASE);
  }
  uint64_t number = events.count;
  __atomic_store_n(&events.begun, number + 1, __ATOMIC_RELAXED);
  size_t words = strlen(line->text) / sizeof *line->words + 1;
  for (size_t at = 0; events.ring && at < words; at++)
    __atomic_store_n(&events.ring[number % EVENTS_KEPT].words[at], line->words[at], __ATOMIC_RELEASE);
  __atomic_store_n(&events.count, number + 1, __ATOMIC_RELEASE);
}

void cl_event_end(const EventLine *members) {
  Kept kept;
  char *line = kept.text;
  HOLD(events.lock);
  size_t length = (size_t)snprintf(line, sizeof kept.text, "{\"n\":%llu,\"pid\":%d,\"thread\":%ld%s",
                                   (unsigned long long)events.count, (int)getpid(), syscall(SYS_gettid), members->text);
  close_event(line, length);
  keep(&kept);
  const char *path = cl_config()->events;
  int file = own_descriptor(&events.file);
  if (*path && file < 0 && (!events.file_tried || events.file.number >= 0)) { /* the first time, or it was closed */
    events.file_tried = true;
    events.file = own_file(moved_up(open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)));
    file = events.file.number;
  }
  if (*path && file < 0) lose_event("append to", path, errno); /* (only the first one counts) */
  if (file >= 0) {
    length = strlen(line);
    line[length++] = '\n';
    /* one write for one line, so that lines of several processes do not mix and a crash loses none */
    ssize_t written = write(file, line, length);
    if (written != (ssize_t)length) lose_event("write to", path, written < 0 ? errno : 0);
  }
}

/* How many events there were, of which the ring has the last; a signal handler may ask. */
EXPORT uint64_t cudalinkEventCount(void) { return __atomic_load_n(&events.count, __ATOMIC_ACQUIRE); }

/* Returns how many events the file lacks, and in `error` the errno of the first one; 0 for one that was cut. */
EXPORT uint64_t cudalinkLostEventCount(int *error) {
  HOLD(events.lock);
  *error = events.lost_error;
  return events.lost;
}

/* Copies what fits of event `number`; returns its length, or -1 if the ring does not hold it. A signal handler may ask:
   there is no lock, and an event whose place another thread takes meanwhile is not held. */
EXPORT int cudalinkEventRead(uint64_t number, char *out, size_t size) {
  const Kept *ring = __atomic_load_n(&events.ring, __ATOMIC_ACQUIRE);
  if (!ring || !size || number >= cudalinkEventCount()) return -1;
  const Kept *kept = &ring[number % EVENTS_KEPT];
  size_t length = 0;
  bool ended = false;
  for (size_t at = 0; !ended && at < sizeof kept->words / sizeof *kept->words; at++) {
    uint64_t word = __atomic_load_n(&kept->words[at], __ATOMIC_ACQUIRE);
    size_t more = strnlen((const char *)&word, sizeof word), room = size - 1 - length;
    ended = more < sizeof word || more >= room;
    if (more > room) more = room;
    memcpy(out + length, &word, more);
    length += more;
  }
  out[length] = 0;
  return number + EVENTS_KEPT < __atomic_load_n(&events.begun, __ATOMIC_RELAXED) ? -1 : (int)length;
}
