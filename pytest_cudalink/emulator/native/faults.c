/* Faults that a test injects: calls that fail or wait, and a device that is lost. */
#include "faults.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "config.h"
#include "locks.h"
#include "sticky.h"

#include "limits.inc"

enum { FAULTS = LIMIT_FAULTS };
enum { NOT_READY = 600 }; /* CUresult */

typedef struct {
  unsigned number; /* in the order in which they were made, from 1; 0: no fault */
  bool met;        /* by a call */
  Sym symbol;
  unsigned nth;   /* 1: the next call; 0: every call */
  CUresult code;  /* 0: do not fail */
  unsigned delay; /* milliseconds */
} Fault;

static struct {
  pthread_mutex_t lock;
  atomic_int active; /* faults in use; 0 lets calls pass without the lock */
  unsigned made;     /* number of the newest fault */
  Fault list[FAULTS];
  atomic_int lost; /* code that everything answers once the device is lost */
  atomic_int jit;  /* code that everything answers that needs the compiler of the driver */
} faults = {.lock = PTHREAD_MUTEX_INITIALIZER};

OPEN_IN_CHILDREN(faults.lock);

/* Adds a fault to one function. Returns its number, 0 if there is no such function or no room. */
static unsigned add_fault(const char *function, unsigned nth, int code, unsigned delay) {
  int symbol = cl_symbol_named(function);
  unsigned number = 0;
  if (symbol < 0) return 0;
  HOLD(faults.lock);
  for (int at = 0; at < FAULTS; at++) {
    if (faults.list[at].number) continue;
    number = ++faults.made;
    faults.list[at] = (Fault){.number = number, .symbol = (Sym)symbol, .nth = nth, .code = code, .delay = delay};
    atomic_fetch_add(&faults.active, 1);
    break;
  }
  return number;
}

/* CUDALINK_EMULATOR_FAULTS: FUNCTION:NTH=CODE[@MILLISECONDS], separated by semicolons; "lost=CODE" loses the device,
   "jit=CODE" the compiler. */
static void read_faults(void) {
  const char *text = getenv("CUDALINK_EMULATOR_FAULTS");
  char *copy = text ? strdup(text) : NULL, *rest = copy, *entry;
  if (text && !copy) cl_say("cudalink: CUDALINK_EMULATOR_FAULTS: no memory for its value, which is ignored\n");
  while ((entry = strsep(&rest, ";"))) {
    char name[128];
    unsigned nth = 0, delay = 0;
    int code = 0;
    if (sscanf(entry, "lost=%d", &code) == 1) atomic_store(&faults.lost, code);
    else if (sscanf(entry, "jit=%d", &code) == 1) atomic_store(&faults.jit, code);
    else if (sscanf(entry, "%127[^:]:%u=%d@%u", name, &nth, &code, &delay) >= 3) {
      if (!add_fault(name, nth, code, delay))
        cl_say("cudalink: CUDALINK_EMULATOR_FAULTS: no function %s, or too many faults\n", name);
    } else if (*entry)
      cl_say("cudalink: CUDALINK_EMULATOR_FAULTS: cannot read '%s'; expected FUNCTION:NTH=CODE[@MS]\n", entry);
  }
  free(copy);
}

static pthread_once_t faults_once = PTHREAD_ONCE_INIT;

/* `add_fault`, behind those of the environment, which therefore have the first numbers. */
EXPORT unsigned cudalinkInject(const char *function, unsigned nth, int code, unsigned delay) {
  pthread_once(&faults_once, read_faults);
  return add_fault(function, nth, code, delay);
}

/* Whether some call met a fault; if asked to, takes back what is left of it. One that is no longer there was met. */
EXPORT int cudalinkFaultMet(unsigned number, int take_back) {
  int met = 1;
  pthread_once(&faults_once, read_faults);
  HOLD(faults.lock);
  for (int at = 0; at < FAULTS; at++) {
    Fault *fault = &faults.list[at];
    if (fault->number != number) continue;
    met = fault->met;
    if (take_back) {
      fault->number = 0;
      atomic_fetch_sub(&faults.active, 1);
    }
    break;
  }
  return met;
}

/* Makes every function that needs the device answer `code`; 0 brings it back. What is on the host can still be freed.
 * Returns the code from before. */
EXPORT int cudalinkLoseDevice(int code) {
  pthread_once(&faults_once, read_faults);
  return atomic_exchange(&faults.lost, code);
}

EXPORT void cudalinkClearFaults(void) {
  pthread_once(&faults_once, read_faults);
  HOLD(faults.lock);
  memset(faults.list, 0, sizeof faults.list);
  atomic_store(&faults.active, 0);
  atomic_store(&faults.lost, 0);
  cl_sticky_end();
}

/* For NVML in the same process too. */
EXPORT int cudalinkDeviceLost(void) {
  pthread_once(&faults_once, read_faults);
  return atomic_load(&faults.lost);
}

CUresult cl_fault_of_jit(void) {
  pthread_once(&faults_once, read_faults);
  return atomic_load(&faults.jit);
}

bool cl_faults_active(void) { return atomic_load(&faults.active) > 0; }

/* Whether a fault gives this code to every call of a function; does not count as a call. */
static bool stands(Sym symbol, int code) {
  bool found = false;
  HOLD(faults.lock);
  for (int at = 0; at < FAULTS; at++) {
    const Fault *fault = &faults.list[at];
    found = found || (fault->number && !fault->nth && fault->symbol == symbol && fault->code == code);
  }
  return found;
}

/* What a context of the process would answer: the error that stays; 600 while a fault lets every cuStreamQuery answer
 * that, as a kernel that never ends does; 0. Leaves no event, and no fault is triggered by it. */
EXPORT int cudalinkContextState(void) {
  int sticky = cl_sticky_error();
  pthread_once(&faults_once, read_faults);
  return !sticky && cl_faults_active() && stands(SYM_cuStreamQuery, NOT_READY) ? NOT_READY : sticky;
}

int cl_fault_of(Sym symbol) {
  int code = -1;
  unsigned delay = 0;
  pthread_mutex_lock(&faults.lock);
  for (int at = 0; at < FAULTS; at++) {
    Fault *fault = &faults.list[at];
    if (!fault->number || fault->symbol != symbol) continue;
    if (fault->nth > 1) {
      fault->nth--;
      continue;
    }
    if (fault->code) code = fault->code;
    delay += fault->delay;
    fault->met = true;
    if (fault->nth == 1) {
      fault->number = 0;
      atomic_fetch_sub(&faults.active, 1);
    }
  }
  pthread_mutex_unlock(&faults.lock);
  if (delay) {
    struct timespec wait = {.tv_sec = delay / 1000, .tv_nsec = (long)(delay % 1000) * 1000000};
    nanosleep(&wait, NULL);
  }
  return code;
}
