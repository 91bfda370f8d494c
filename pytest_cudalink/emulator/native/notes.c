/* Notes, one JSON object a line, in the file that the process above has made and looks at. */
#include "notes.h"

#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "abi.h"
#include "config.h"
#include "locks.h"

enum { PAGE = 4096, HEAD = PAGE + SHARED_BY_RUN };

/* The first page of the file; what the processes of a run share and lines follow it. Its reader asks
   `written` after each test, which costs it no call. */
typedef struct {
  atomic_uint_least64_t written; /* lines */
  atomic_uint_least64_t looks;   /* how often the lines were read */
  char kind[16];                 /* nothing is written to another file */
  char outermost[4064];          /* the file of the outermost process that sees the same devices */
} Header;
_Static_assert(sizeof(Header) == PAGE, "a page");

static const char kind_of_notes[16] = "cudalink notes";

enum { COMMAND_ROOM = 160, TEST_ROOM = 700, NAMES = 64, NAME_SIZE = 48, VIOLATIONS_MAX = 256, SAID_MAX = 10 };

/* A file of notes; an empty path: there is none. */
typedef struct {
  char path[PATH_MAX];
  Header *header;
} Notes;

static struct {
  pthread_mutex_t lock;
  void *shared;          /* NULL: not looked for, or not found */
  Notes above, below;    /* the file of the process above this one; that of the processes below it */
  bool read_environment; /* for `above` */
  pid_t owner;           /* the process that reads `below`; 0: none */
  bool ended;            /* the owner has looked for the last time */
  bool quiet;            /* what the owner does after that is for the process above */
  bool fails;            /* violations change the exit code */
  struct {
    char function[NAME_SIZE];
    uint64_t looks;
    bool said;
  } refused[NAMES];
  uint64_t violations, violations_looks; /* noted since that look; a loop must not fill the disk */
  pid_t guilty;                          /* the process whose exit code changes */
  int said;                              /* violations that were written to stderr, or will be */
  char command[COMMAND_ROOM];            /* of this process, when it last wrote */
  char late[1024]; /* what will be, when the process ends: before that pytest may have taken stderr */
  bool exits;
  int status;
} notes = {.lock = PTHREAD_MUTEX_INITIALIZER};

OPEN_IN_CHILDREN(notes.lock);

static void remember(Notes *file, const char *path) {
  snprintf(file->path, sizeof file->path, "%s", path);
  file->header = NULL;
}

/* The file that this process writes to; NULL: the plugin in this process sees for itself. */
static Notes *destination(void) {
  if (!notes.read_environment) {
    notes.read_environment = true;
    if (!notes.owner) remember(&notes.above, cl_config()->notes);
    notes.fails = cl_config()->fails;
  }
  if (notes.owner && notes.owner != getpid()) return &notes.below;
  return notes.owner && !notes.ended ? NULL : &notes.above;
}

/* Maps a part of a file of notes; NULL if it is not one. */
static void *map(int descriptor, size_t offset, size_t size) {
  struct stat found;
  char kind[sizeof kind_of_notes];
  if (fstat(descriptor, &found) || found.st_size < HEAD) return NULL;
  if (pread(descriptor, kind, sizeof kind, offsetof(Header, kind)) != sizeof kind ||
      memcmp(kind, kind_of_notes, sizeof kind))
    return NULL;
  void *pages = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, (off_t)offset);
  return pages == MAP_FAILED ? NULL : pages;
}

/* The file is opened each time: a program may close the descriptor, or give its number to another file. */
static bool append(Notes *file, const char *line, size_t length) {
  if (!*file->path) return false;
  int descriptor = open(file->path, O_RDWR | O_APPEND | O_CLOEXEC);
  if (descriptor < 0) return false;
  if (!file->header) file->header = map(descriptor, 0, PAGE);
  /* one write for one line, so that lines of several processes do not mix and a crash loses none; it begins with the
     end of a line that a full disk has cut */
  bool whole = file->header && write(descriptor, line, length) == (ssize_t)length;
  close(descriptor);
  if (whole) atomic_fetch_add(&file->header->written, 1);
  return whole;
}

void *cl_shared_by_run(void) {
  char path[sizeof(Header) - offsetof(Header, outermost)];
  HOLD(notes.lock);
  if (notes.shared) return notes.shared;
  destination();
  const char *own_path = notes.owner ? notes.below.path : notes.above.path;
  int file = *own_path ? open(own_path, O_RDONLY | O_CLOEXEC) : -1;
  bool named = file >= 0 && pread(file, path, sizeof path, offsetof(Header, outermost)) == sizeof path;
  if (file >= 0) close(file);
  path[sizeof path - 1] = 0;
  file = named ? open(path, O_RDWR | O_CLOEXEC) : -1;
  if (file < 0) return NULL;
  notes.shared = map(file, PAGE, SHARED_BY_RUN);
  close(file);
  return notes.shared;
}

/* Finds the command line of this process, cut to what helps to find it. */
static void read_command(void) {
  char *command = notes.command;
  int file = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  // NOLINTNEXTLINE(clang-analyzer-unix.BlockInCriticalSection): a file of the kernel does not block
  ssize_t length = file < 0 ? -1 : read(file, command, COMMAND_ROOM - 1);
  if (file >= 0) close(file);
  command[length > 0 ? length : 0] = 0;
  for (ssize_t at = 0; at + 1 < length; at++)
    if (!command[at] || command[at] == '\n') command[at] = ' ';
}

static bool write_note(Notes *file, const EventLine *event) {
  char line[sizeof event->text + 5];
  EventLine note;
  read_command();
  cl_event_begin(&note);
  cl_event_int(&note, "pid", getpid());
  cl_event_text(&note, "command", notes.command, COMMAND_ROOM);
  cl_event_text(&note, "test", getenv("PYTEST_CURRENT_TEST"), TEST_ROOM); /* of the process that started this one */
  if (note.length + event->length >= sizeof note.text) return false;
  cl_event_join(&note, event);
  int length = snprintf(line, sizeof line, "\n{%s}\n", note.text + 1);
  return append(file, line, (size_t)length);
}

/* -- the end of a process for whose violations no other one fails -- */

static void note_status(int status, void *unused) {
  (void)unused;
  notes.exits = true, notes.status = status;
}

static void be_guilty(void) {
  if (notes.guilty == getpid()) return;
  notes.guilty = getpid();
  on_exit(note_status, NULL);
}

/* Runs after the exit handlers of the program. */
__attribute__((destructor)) static void end(void) {
  if (notes.guilty != getpid() || !notes.exits) return; /* without an exit this library is only closed */
  cl_say("%s", notes.late);
  if (!notes.fails || notes.status) return;
  fflush(NULL);
  _exit(1);
}

static void say(const char *sentence, const char *fix) {
  bool later = notes.owner == getpid();
  if (notes.guilty != getpid()) notes.said = 0, notes.late[0] = 0; /* those of a process that forked this one */
  be_guilty();
  if (notes.said++ >= (later ? 1 : SAID_MAX)) return;
  const char *end = notes.fails ? "An exit code of 0 becomes 1." : "The exit code stays as it is.";
  char text[sizeof notes.late];
  snprintf(text, sizeof text, "cudalink: process %d (%s): lifetime violation%s: %s.%s%s %s\n", (int)getpid(),
           notes.command, later ? " after pytest's last report" : "", sentence, fix ? " " : "", fix ? fix : "", end);
  if (later) memcpy(notes.late, text, sizeof text);
  else cl_say("%s", text);
}

void cl_note_violation(const EventLine *event, const char *sentence, const char *fix) {
  HOLD(notes.lock);
  Notes *file = destination();
  /* the owner reads its own file once more when its process ends */
  if (notes.owner == getpid() && notes.ended && !notes.quiet) file = &notes.below;
  uint64_t looks = file && file->header ? atomic_load(&file->header->looks) : 0;
  if (notes.violations_looks != looks) notes.violations = 0;
  notes.violations_looks = looks;
  if (file && notes.violations++ < VIOLATIONS_MAX && !write_note(file, event)) say(sentence, fix);
}

static void say_refusal(const char *function, const char *why) {
  cl_say(
      "cudalink: process %d (%s): %s was refused with CUDA_ERROR_NOT_SUPPORTED (801): %s. Run this program on a real "
      "driver.\n",
      (int)getpid(), notes.command, function, why);
}

void cl_note_refusal(const char *function, const EventLine *event) {
  HOLD(notes.lock);
  Notes *file = destination();
  if (!file) return;
  uint64_t looks = 1 + (file->header ? atomic_load(&file->header->looks) : 0);
  size_t at = 0;
  while (at < NAMES && *notes.refused[at].function && strncmp(notes.refused[at].function, function, NAME_SIZE - 1))
    at++;
  if (at == NAMES || notes.refused[at].looks == looks) return;
  snprintf(notes.refused[at].function, NAME_SIZE, "%s", function);
  EventLine named;
  cl_event_begin(&named);
  cl_event_text(&named, "call", function, NAME_SIZE);
  if (named.length + event->length < sizeof named.text) cl_event_join(&named, event);
  if (write_note(file, &named)) notes.refused[at].looks = looks;
  else if (event->unsupported && !notes.refused[at].said && notes.owner != getpid()) {
    notes.refused[at].said = true;
    say_refusal(function, event->unsupported);
  }
}

/* From now on the plugin in this process takes its violations itself, and reads the notes of the processes below it.
   `above` is the file that takes what happens after `cudalinkEndNotes`. */
EXPORT void cudalinkOwnNotes(const char *below, const char *above) {
  HOLD(notes.lock);
  if (strcmp(notes.below.path, below)) remember(&notes.below, below);
  if (strcmp(notes.above.path, above)) remember(&notes.above, above);
  notes.owner = getpid(), notes.ended = false, notes.shared = NULL;
}

/* The plugin has looked for the last time: violations go to the process above, if this one leaves its results to that;
   otherwise to stderr, and they change the exit code if they fail. */
EXPORT void cudalinkEndNotes(int quiet, int fails) {
  HOLD(notes.lock);
  notes.ended = true, notes.quiet = quiet, notes.fails = fails, notes.read_environment = true;
}

/* Changes the exit code of this process: something that the plugin has already said fails it. */
EXPORT void cudalinkFailAtExit(void) {
  HOLD(notes.lock);
  if (notes.guilty != getpid()) notes.late[0] = 0;
  be_guilty();
}
