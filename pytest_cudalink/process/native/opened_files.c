/* What Python code of this process opens and starts, by an audit hook.

   C and not a hook in Python: the interpreter calls a hook for each `id()` and each import, too, and never removes it.
   Nothing here is linked with Python; the caller hands over the functions of the interpreter. */
#include <stddef.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

typedef struct {
  int (*add_audit_hook)(int (*hook)(const char *, void *, void *), void *data);
  void *(*call_function)(void *callable, const char *format, ...);
  void (*release)(void *object);
  int (*has_error)(void *kind);
  void (*clear_error)(void);
  void *(*current_interpreter)(void);
  void **ordinary_error; /* PyExc_Exception */
} Python;

static Python python;
static void *listener, *home;
static int lost;

/* Returns whether an event is passed on. */
static int is_of_interest(const char *event) {
  static const char *const names[] = {
      "open", "subprocess.Popen", "os.system", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec",
  };
  if (*event != 'o' && *event != 's') return 0;
  for (size_t at = 0; at < sizeof names / sizeof *names; at++)
    if (!strcmp(event, names[at])) return 1;
  return 0;
}

/* Runs with the interpreter's lock held, in any thread and in the child of a fork; it waits for nothing. */
static int hear(const char *event, void *arguments, void *data) {
  (void)data;
  if (!listener || !is_of_interest(event)) return 0;
  if (python.current_interpreter() != home) {
    lost = 1; /* the Python function belongs to another interpreter */
    return 0;
  }
  void *result = python.call_function(listener, "sO", event, arguments);
  if (result) {
    python.release(result);
    return 0;
  }
  lost = 1;
  /* Ctrl-C, and what else ends a test from outside, goes on to the code that opens */
  if (!python.has_error(*python.ordinary_error)) return -1;
  python.clear_error();
  return 0;
}

/* Calls a Python function for each event from now on, with its name and its arguments; NULL ends that. The caller keeps
   the function alive until the process ends. Returns 0, or -1 where Python does not take the hook. */
EXPORT int cudalinkHearEvents(const Python *functions, void *callable) {
  if (callable && !python.add_audit_hook) {
    python = *functions;
    home = python.current_interpreter();
    if (python.add_audit_hook(hear, NULL)) {
      python.add_audit_hook = NULL;
      return -1;
    }
  }
  listener = callable;
  return 0;
}

/* Returns whether an event is lost: the Python function raised an error, or another interpreter opened something. */
EXPORT int cudalinkHasLostEvents(void) { return lost; }
