/* A fault sweep: counting the calls of a test, and failing one of them by its number. */
#include "sweep.h"

#include <stdatomic.h>
#include <stdio.h>
#include <sys/types.h>
#include <unistd.h>

#include "call_stacks.h"
#include "faults.h"
#include "grow.h"
#include "locks.h"

enum { CALLS_KEPT = LIMIT_SWEPT_CALLS, SITE_ROOM = 900 };

/* What fails besides the call itself. */
typedef enum { ALONE, SAME_FUNCTION, WHOLE_DEVICE } Stays;

/* A call that was counted. Only a run in which none fails keeps the stack of each. */
typedef struct {
  const char *function; /* lives as long as the process */
  bool failed;
  bool noted; /* the stack is there */
  Stack stack;
} Swept;

static _Thread_local unsigned counted; /* number of the call that this thread makes; 0: of none that counts */

static struct {
  pthread_mutex_t lock;
  atomic_bool active;
  pid_t process;   /* that is swept: a forked one is another program */
  unsigned number; /* of the call that fails, from 1; 0: none fails */
  int code;
  Stays stays;
  const char *failed; /* function of the call that failed; NULL: none did */
  unsigned count;
  size_t room;
  Swept *calls; /* `room` of them */
} sweep = {.lock = PTHREAD_MUTEX_INITIALIZER};

OPEN_IN_CHILDREN(sweep.lock);

static void forget_calls(void) {
  for (unsigned at = 0; at < sweep.count && at < sweep.room; at++)
    if (sweep.calls[at].noted) cl_free_stack(&sweep.calls[at].stack);
  free(sweep.calls);
  sweep.calls = NULL;
  sweep.count = sweep.room = 0;
}

/* Makes room for a call by its number. */
static bool has_room(unsigned number) {
  return number <= CALLS_KEPT && cl_grow(&sweep.calls, number - 1, &sweep.room, sizeof *sweep.calls);
}

/* Counts the calls of this process from now on, and lets call `number` answer `code`: alone, with each later call of
   its function (1), or with everything that needs the device (2). Forgets what was counted before. */
EXPORT int cudalinkSweep(unsigned number, int code, int stays) {
  HOLD(sweep.lock);
  forget_calls();
  sweep.process = getpid();
  sweep.number = number;
  sweep.code = code;
  sweep.stays = (Stays)stays;
  sweep.failed = NULL;
  bool ready = has_room(1);
  atomic_store(&sweep.active, ready);
  return ready;
}

/* Stops counting and failing; a device that was lost comes back. Returns the number of calls, of which the list has the
   first ones. */
EXPORT unsigned cudalinkSweepEnd(void) {
  pthread_mutex_lock(&sweep.lock);
  bool lost = atomic_exchange(&sweep.active, false) && sweep.stays == WHOLE_DEVICE && sweep.failed;
  unsigned count = sweep.count;
  pthread_mutex_unlock(&sweep.lock);
  if (lost) cudalinkLoseDevice(0);
  return count;
}

/* Writes the calls that were counted, a line for each: "!" if it failed, by itself or by the sweep, " " otherwise, and
   its name. Returns the size with the NUL that this takes. */
EXPORT size_t cudalinkSweptCalls(char *out, size_t size) {
  size_t length = 0;
  if (size) *out = 0;
  HOLD(sweep.lock);
  for (unsigned at = 0; at < sweep.count && at < sweep.room; at++) {
    const Swept *call = &sweep.calls[at];
    size_t room = length < size ? size - length : 0;
    length += (size_t)snprintf(room ? out + length : NULL, room, "%c%s\n", call->failed ? '!' : ' ', call->function);
  }
  return length + 1;
}

/* Writes the stack of a call, each line as `cudalinkCreator` has it. Returns the size with the NUL that this takes; 0
   where it was not noted. */
EXPORT size_t cudalinkSweptStack(unsigned number, char *out, size_t size) {
  size_t length = 0;
  HOLD(sweep.lock);
  if (number && number <= sweep.count && number <= sweep.room && sweep.calls[number - 1].noted)
    length = cl_write_stack(&sweep.calls[number - 1].stack, out, size);
  return length;
}

bool cl_sweeping(void) { return atomic_load(&sweep.active); }

/* `line`: NULL for a call that has no event. */
static int swept(EventLine *line, const char *function) {
  if (sweep.process != getpid()) return -1;
  pthread_mutex_lock(&sweep.lock);
  unsigned number = atomic_load(&sweep.active) ? ++sweep.count : 0;
  counted = number;
  bool meant = number && number == sweep.number;
  bool again = number && sweep.stays == SAME_FUNCTION && sweep.failed && !strcmp(sweep.failed, function);
  bool kept = number && has_room(number), noted = kept && (meant || !sweep.number);
  int code = meant || again ? sweep.code : -1;
  if (meant) sweep.failed = function;
  if (kept) {
    sweep.calls[number - 1].function = function;
    sweep.calls[number - 1].failed = code >= 0;
  }
  bool lost = meant && sweep.stays == WHOLE_DEVICE;
  pthread_mutex_unlock(&sweep.lock);
  if (lost) cudalinkLoseDevice(code);
  if (code >= 0 && line) cl_event_uint(line, "swept", number);
  if (!noted) return code;
  Stack stack;
  cl_note_stack(&stack); /* without the lock: Python may have to wait for another thread that calls the driver */
  if (meant && line) cl_event_stack(line, "stack", &stack, SITE_ROOM);
  pthread_mutex_lock(&sweep.lock);
  bool there = number <= sweep.count && number <= sweep.room && !sweep.calls[number - 1].noted;
  if (there) {
    sweep.calls[number - 1].stack = stack;
    sweep.calls[number - 1].noted = true;
  }
  pthread_mutex_unlock(&sweep.lock);
  if (!there) cl_free_stack(&stack);
  return code;
}

int cl_swept(EventLine *line, Sym symbol) {
  counted = 0;
  return cl_symbols[symbol].not_swept ? -1 : swept(line, cl_symbols[symbol].name);
}

void cl_swept_failed(void) {
  if (!counted) return; /* nor in a forked process, where a thread that is not there may hold the lock */
  HOLD(sweep.lock);
  if (counted <= sweep.count && counted <= sweep.room) sweep.calls[counted - 1].failed = true;
}

/* Counts a call of another library; the code that it must answer instead of being made, or -1. */
EXPORT int cudalinkSweepOther(const char *function) { return cl_sweeping() ? swept(NULL, function) : -1; }
