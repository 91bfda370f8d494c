/* Writes to the record file which signal ended a process, in which test, with the frames that faulthandler wrote.

   faulthandler's handler runs before `handle`, and writes to the file `frames`; then it raises the signal again, which
   calls `handle`. What it wrote goes to the terminal too. Only async-signal-safe functions may be called. */
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include "../../base/native/own_file.h"

#define EXPORT __attribute__((visibility("default")))

enum { LINE_SIZE = 1 << 18, TEXT_SIZE = 1 << 15, NODEID_SIZE = 1 << 12, EVENT_SIZE = 1 << 12 };
enum { FRAMES = 20, EVENTS = 20 };

typedef uint64_t CountEvents(void);
typedef int ReadEvent(uint64_t number, char *out, size_t size);
typedef int IsDeviceAddress(uint64_t address);

static const struct {
  int number;
  const char *name;
} signals[] = {
    {SIGSEGV, "SIGSEGV"}, {SIGABRT, "SIGABRT"}, {SIGBUS, "SIGBUS"}, {SIGFPE, "SIGFPE"}, {SIGILL, "SIGILL"},
};
enum { SIGNALS = sizeof signals / sizeof *signals };

static struct {
  OwnFile record, frames, terminal;
  pid_t process;
  char worker[64];              /* JSON */
  char nodeid[NODEID_SIZE + 1]; /* JSON */
  CountEvents *count_events;
  ReadEvent *read_event;
  IsDeviceAddress *is_device_address;
  struct sigaction before[SIGNALS], above; /* `above`: faulthandler's, of SIGSEGV */
  bool installed;
} watch = {
    .record = {.number = -1}, .frames = {.number = -1}, .terminal = {.number = -1}, .worker = "null", .nodeid = "null"};

static const char hint[] =
    "\ncudalink: the tests after this crash are lost; --cudalink-processes=isolated runs each "
    "test in its own\nprocess, and --cudalink-processes=restarted runs what a crash would lose\n";

static const char device_memory[] =
    "cudalink: the host read or wrote an address of device memory, which only the driver can; copy with cuMemcpyDtoH or "
    "cuMemcpyHtoD,\nor allocate with cuMemAllocManaged or cuMemHostAlloc\n";

static _Atomic uintptr_t used_address; /* by the instruction that the signal stopped; 0: none */

/* Whether the emulated driver knows the address as one that the host cannot use. */
static bool is_of_device(void) {
  uintptr_t address = atomic_load(&used_address);
  return address && watch.is_device_address && watch.is_device_address(address);
}

static atomic_flag written = ATOMIC_FLAG_INIT;
static char line[LINE_SIZE], text[TEXT_SIZE + 1], event[EVENT_SIZE];
static size_t length;

static void append(const char *more) {
  if (length + strlen(more) >= LINE_SIZE) return;
  while (*more) line[length++] = *more++;
}

static void append_number(uint64_t value, int digits) {
  char number[21] = "";
  size_t at = sizeof number - 1;
  for (; value || digits > 0; value /= 10, digits--) number[--at] = (char)('0' + value % 10);
  append(number + at);
}

/* Appends a JSON string; what is not ASCII becomes a question mark. */
static void append_text(const char *from, size_t count) {
  if (count >= LINE_SIZE / 2 || length + 2 * count + 8 >= LINE_SIZE) return append("\"\"");
  append("\"");
  for (const char *c = from; c < from + count; c++) {
    if (*c == '"' || *c == '\\') line[length++] = '\\';
    line[length++] = *c >= ' ' && *c < 0x7f ? *c : '?';
  }
  append("\"");
}

/* Appends the first line of `text`, and those of the thread that crashed up to the first frame of pytest itself. */
static void append_frames(void) {
  int count = 0;
  bool other_thread = false;
  for (char *at = text, *end; *at && count < FRAMES; at = end) {
    end = at + strcspn(at, "\n");
    size_t size = (size_t)(end - at);
    if (*end) *end++ = 0;
    if (!strncmp(at, "Thread ", 7)) other_thread = true;
    if (!strncmp(at, "Current thread ", 15)) other_thread = false;
    if (other_thread || !size) continue;
    if (strstr(at, "/_pytest/") || strstr(at, "/pluggy/")) break;
    if (count++) append(", ");
    append_text(at, size);
    if (count == 1 && is_of_device()) append(", "), append_text(device_memory, sizeof device_memory - 2);
  }
}

static void append_events(void) {
  if (!watch.count_events || !watch.read_event) return;
  uint64_t count = watch.count_events();
  bool first = true;
  for (uint64_t number = count > EVENTS ? count - EVENTS : 0; number < count; number++) {
    if (watch.read_event(number, event, sizeof event) < 0) continue;
    if (!first) append(", ");
    append_text(event, strnlen(event, sizeof event));
    first = false;
  }
}

static void put(int file, const char *bytes, size_t count) {
  ssize_t ignored = write(file, bytes, count);
  (void)ignored;
}

/* Says that the driver refused its last call, where it did: a library that does not expect it ends like this. */
static void put_refusal(int file) {
  static const char before[] = "\ncudalink: the emulated driver refused the last call before this crash, ",
                    after[] = ", which a real driver performs\n";
  const char *call = strstr(event, "\"call\":\"");
  if (!call || !strstr(event, "\"unsupported\":true")) return;
  call += sizeof "\"call\":\"" - 1;
  put(file, before, sizeof before - 1);
  put(file, call, strcspn(call, "\""));
  put(file, after, sizeof after - 1);
}

static void write_event(int record, const char *name) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  append("{\"event\": \"crash\", \"time\": ");
  append_number((uint64_t)now.tv_sec, 1);
  append(".");
  append_number((uint64_t)now.tv_nsec, 9);
  const char *const parts[] = {", \"nodeid\": ",
                               watch.nodeid,
                               ", \"worker\": ",
                               watch.worker,
                               ", \"signal\": \"",
                               name,
                               "\", \"exitcode\": null, \"last_events\": ["};
  for (size_t at = 0; at < sizeof parts / sizeof *parts; at++) append(parts[at]);
  append_events();
  append("], \"frames\": [");
  append_frames();
  append("]}\n");
  put(record, line, length);
}

static void handle(int number) {
  size_t which = 0;
  while (which < SIGNALS - 1 && signals[which].number != number) which++;
  sigaction(number, &watch.before[which], NULL);
  if (!atomic_flag_test_and_set(&written)) {
    int record = own_descriptor(&watch.record), frames = own_descriptor(&watch.frames);
    int terminal = own_descriptor(&watch.terminal);
    ssize_t count = frames >= 0 ? pread(frames, text, TEXT_SIZE, 0) : 0;
    text[count > 0 ? count : 0] = 0;
    if (count > 0 && terminal >= 0) put(terminal, text, (size_t)count);
    if (terminal >= 0 && is_of_device()) put(terminal, device_memory, sizeof device_memory - 1);
    if (frames >= 0 && ftruncate(frames, 0)) text[0] = 0;
    if (record >= 0 && watch.process == getpid()) {
      write_event(record, signals[which].name);
      int shown = terminal >= 0 ? terminal : STDERR_FILENO;
      put_refusal(shown);
      if (!strcmp(watch.worker, "null")) put(shown, hint, sizeof hint - 1); /* xdist replaces its workers */
    }
  }
  raise(number);
}

/* Notes the address, which the signal that faulthandler's handler raises no longer has, and calls that handler. */
static void note_address(int number, siginfo_t *info, void *context) {
  if (info->si_code > 0) atomic_store(&used_address, (uintptr_t)info->si_addr); /* from the kernel */
  if (watch.above.sa_flags & SA_SIGINFO) watch.above.sa_sigaction(number, info, context);
  else watch.above.sa_handler(number);
}

/* Has the address be noted, from above the handler that is there. */
EXPORT void cudalinkLastWordsAddress(void) {
  struct sigaction there, ours = {.sa_sigaction = note_address, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
  sigemptyset(&ours.sa_mask);
  if (sigaction(SIGSEGV, NULL, &there) || there.sa_sigaction == note_address) return;
  if (there.sa_handler == SIG_DFL || there.sa_handler == SIG_IGN) return;
  watch.above = there;
  sigaction(SIGSEGV, &ours, NULL);
}

/* Writes the end of this process to `record` from now on; -1 for no more. */
EXPORT void cudalinkLastWords(int record, int frames, int terminal, const char *worker) {
  watch.frames = own_file(frames), watch.terminal = own_file(terminal), watch.process = getpid();
  if (strlen(worker) < sizeof watch.worker) memcpy(watch.worker, worker, strlen(worker) + 1);
  watch.record = own_file(record);
  for (size_t which = 0; which < SIGNALS && !watch.installed; which++) {
    struct sigaction ours = {.sa_handler = handle, .sa_flags = SA_ONSTACK};
    sigemptyset(&ours.sa_mask);
    sigaction(signals[which].number, &ours, &watch.before[which]);
  }
  watch.installed = true;
}

/* The test that runs, as JSON; null between tests. */
EXPORT void cudalinkLastWordsTest(const char *nodeid) {
  size_t count = strlen(nodeid);
  if (count > NODEID_SIZE) nodeid = "null", count = 4;
  memcpy(watch.nodeid, nodeid, count + 1);
}

/* Where the emulated driver keeps its events, and which addresses are of its device. */
EXPORT void cudalinkLastWordsDriver(CountEvents *count, ReadEvent *read, IsDeviceAddress *is_device_address) {
  watch.is_device_address = is_device_address;
  watch.read_event = read;
  watch.count_events = count;
}
