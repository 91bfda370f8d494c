/* What the kernel says of who may open a gate. */
#include "openers.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool cl_read_task(pid_t thread, const char *name, char *text, size_t size) {
  char path[48];
  snprintf(path, sizeof path, "/proc/self/task/%d/%s", (int)thread, name);
  int file = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t length = file < 0 ? 0 : read(file, text, size - 1);
  if (file >= 0) close(file);
  text[length > 0 ? length : 0] = 0;
  return length > 0;
}

typedef struct {
  unsigned long start, end;
  bool shared;
} Mapping;

/* The mapping of an address; false if it is not known. */
static bool find_mapping(uintptr_t address, Mapping *found) {
  char line[160], shared;
  FILE *maps = fopen("/proc/self/maps", "re");
  bool known = false, begins = true;
  while (maps && !known && fgets(line, sizeof line, maps)) {
    known = begins && sscanf(line, "%lx-%lx %*3c%c", &found->start, &found->end, &shared) == 3 &&
            address >= found->start && address < found->end;
    if (known) found->shared = shared == 's';
    begins = strchr(line, '\n'); /* else the rest of a long path comes next */
  }
  if (maps) fclose(maps);
  return known;
}

bool cl_is_shared(uintptr_t address) {
  Mapping mapping;
  return !find_mapping(address, &mapping) || mapping.shared;
}

/* Python's own check for signals, where Python runs: its handlers lie in the same code. */
extern int PyErr_CheckSignals(void) __attribute__((weak));

/* Raised by what a running thread does, and so not while all wait; or by a terminal that is made larger, for which
   readline has a handler in nearly every Python. */
static bool opens_nothing(int number) {
  static const int those[] = {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGPIPE, SIGSEGV, SIGSYS, SIGTRAP, SIGWINCH, SIGXFSZ};
  size_t at = 0;
  while (at < sizeof those / sizeof *those && those[at] != number) at++;
  return at < sizeof those / sizeof *those;
}

bool cl_signal_may_come(bool main_waits, bool interrupts) {
  Mapping python = {0, 0, false};
  uintptr_t known = (uintptr_t)PyErr_CheckSignals;
  if (known && !find_mapping(known, &python)) python.end = 0;
  for (int number = 1; number < NSIG; number++) {
    struct sigaction action;
    if (opens_nothing(number) || sigaction(number, NULL, &action)) continue; /* some are glibc's own */
    if (action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN) continue;
    uintptr_t handler = (uintptr_t)action.sa_handler;
    bool of_python = handler >= python.start && handler < python.end;
    /* every Python handles SIGINT, to raise KeyboardInterrupt */
    if (!of_python || (!main_waits && (interrupts || number != SIGINT))) return true;
  }
  return false;
}

bool cl_is_traced(void) {
  char text[1024];
  const char *line = cl_read_task(getpid(), "status", text, sizeof text) ? strstr(text, "\nTracerPid:") : NULL;
  return line && strtol(line + strlen("\nTracerPid:"), NULL, 10);
}
