/* Entering and leaving a function, and whether the driver is initialized. */
#include "calls.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

#include "config.h"
#include "faults.h"
#include "handles.h"
#include "notes.h"
#include "sticky.h"
#include "sweep.h"
#include "violations.h"
#include "visible.h"

_Atomic(CallEnd *) cl_call_end;
_Atomic(CallWatch *) cl_call_watch;
_Atomic(WaitWatch *) cl_wait_watch;
_Atomic(WaitJudge *) cl_wait_judge;
_Thread_local bool cl_in_host_function, cl_cancelable;
_Thread_local unsigned cl_stream_form;

static _Atomic pid_t initialized_in; /* 0: not yet */

bool cl_initialized(void) { return atomic_load(&initialized_in) == getpid(); }

CUresult cl_initialize(unsigned flags) {
  if (flags) return CUDA_ERROR_INVALID_VALUE;
  TRY(cl_initialized() ? CUDA_SUCCESS : cl_see_devices());
  pid_t none = 0, here = getpid();
  /* a child that was forked after cuInit cannot initialize again (measured: test_fork) */
  if (!atomic_compare_exchange_strong(&initialized_in, &none, here) && none != here) return CUDA_ERROR_NOT_INITIALIZED;
  return CUDA_SUCCESS;
}

/* Has a forked child go on with the driver that it inherited, initialized and with all its objects. The process that
   forked it must have had one thread and no work that waits. */
EXPORT void cudalinkKeepDriver(void) {
  if (atomic_load(&initialized_in)) atomic_store(&initialized_in, getpid());
}

static bool forked(void) {
  pid_t there = atomic_load(&initialized_in);
  return there && there != getpid();
}

static _Thread_local Sym called;

const char *cl_called(void) { return cl_symbols[called].name; }

static _Thread_local bool waited;

bool cl_take_waited(void) {
  bool taken = waited;
  waited = false;
  return taken;
}

static _Thread_local bool left_out;

bool cl_waits_by(const WaitRow *row) {
  WaitJudge *judge = cl_wait_judge;
  left_out = judge && !(row && row->promised) && !judge(called, row);
  return !left_out;
}

bool cl_left_out(void) { return left_out; }

static CUresult wait_by(const WaitRow *row, const struct Context *context) {
  left_out = false;
  if (!row || cl_in_host_function) return CUDA_SUCCESS;
  WaitWatch *watch = cl_wait_watch;
  if (watch) watch(called, row);
  if (row->by_itself || !cl_waits_by(row)) return CUDA_SUCCESS;
  cl_finish_by(row, context);
  waited = true;
  CUresult answer = cl_take_given_up();
  return answer ? answer : cl_sticky_answer(called); /* what was waited for may have failed */
}

unsigned cl_called_locks(void) { return cl_symbols[called].held_up; }
const WaitRow *cl_called_row(const WaitFacts *facts) { return cl_wait_row(called, facts); }
CUresult cl_wait_by_table(const WaitFacts *facts) { return wait_by(cl_wait_row(called, facts), facts->context); }

void cl_will_wait(const WaitFacts *facts) {
  WaitWatch *watch = cl_wait_watch;
  const WaitRow *row = watch && !cl_in_host_function ? cl_wait_row(called, facts) : NULL;
  if (row) watch(called, row);
}

/* What a call answers instead of being made; -1: it is made. */
static CUresult refusal(EventLine *line, Sym symbol, bool needs_init, int lost) {
  /* where the engine calls host functions is not the program's doing: their calls would have other numbers each time */
  int code = cl_sweeping() && !cl_in_host_function ? cl_swept(line, symbol) : -1;
  if (code < 0 && cl_faults_active()) code = cl_fault_of(symbol);
  if (code >= 0) {
    cl_stick(code);
    cl_event_bool(line, "injected", true);
    return code;
  }
  int since = cl_symbols[symbol].since;
  bool uses_state = cl_symbols[symbol].uses_link_state;
  if (since > cl_config()->version) { /* by its symbol: cuGetProcAddress does not give it away */
    char note[64];
    snprintf(note, sizeof note, "newer than the emulated driver: introduced in %d.%d", since / 1000, since % 1000 / 10);
    return cl_noted(line, CUDA_ERROR_NOT_SUPPORTED, note);
  }
  if (cl_in_host_function && cl_symbols[symbol].refuses_host_calls) return CUDA_ERROR_NOT_PERMITTED;
  if ((needs_init || (forked() && uses_state)) && !cl_initialized()) return CUDA_ERROR_NOT_INITIALIZED;
  if (lost && (needs_init || uses_state) && symbol != SYM_cuLinkDestroy) {
    cl_event_bool(line, "device lost", true);
    return lost;
  }
  CUresult sticky = needs_init || uses_state ? cl_sticky_answer(symbol) : CUDA_SUCCESS;
  if (sticky) {
    cl_event_bool(line, "sticky", true);
    return sticky;
  }
  CUresult guarded = cl_guard_call(symbol);
  if (guarded) return cl_noted(line, guarded, "not permitted while a stream is captured");
  int waits = cl_symbols[symbol].at_entry;
  if (!waits || (waits == WAITS_BY_ITSELF && !cl_wait_watch)) return -1;
  sticky = wait_by(cl_wait_row(symbol, NULL), NULL);
  return sticky ? sticky : -1;
}

void cl_begin(Call *call) {
  call->error = errno;
  call->null_at = 0;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &call->cancelable);
  if (call->cancelable == PTHREAD_CANCEL_ENABLE)
    cl_cancelable = true; /* else it is the caller's wish, or a call within */
}

bool cl_enter(Call *call, Sym symbol, bool needs_init) {
  int lost = cudalinkDeviceLost();
  unsigned form = cl_stream_form;
  cl_stream_form = form == ANNOUNCED ? PER_THREAD_DEFAULT : LEGACY_DEFAULT;
  if (form >= OLDER_FORM) symbol = (Sym)(form - OLDER_FORM);
  call->symbol = called = symbol;
  cl_event_begin(&call->line);
  CallWatch *watch = cl_call_watch;
  if (watch) watch(symbol, true);
  if (cl_symbols[symbol].destroys && cl_config()->lifetime && !cl_site()) cl_site_note(cl_symbols[symbol].name);
  CUresult refused = refusal(&call->line, symbol, needs_init, lost);
  if (refused >= 0) call->result = cl_leave(call, refused);
  return refused < 0;
}

static _Atomic uint64_t refusals;
static _Thread_local char *refused_image;

void cl_refused_image(char *members) {
  free(refused_image);
  refused_image = members;
}

char *cl_take_refused_image(void) {
  char *members = refused_image;
  refused_image = NULL;
  return members;
}

static void note_image(Sym symbol, CUresult result, const char *image) {
  EventLine refused;
  cl_event_begin(&refused);
  cl_event_int(&refused, "result", result);
  cl_event_int(&refused, "version", cl_config()->version); /* the process that reads it may have another driver */
  cl_event_members(&refused, image);
  cl_note_refusal(cl_symbols[symbol].name, &refused);
}

static void note_call(const Call *call, CUresult result) {
  char *image = result ? cl_take_refused_image() : NULL;
  EventLine line;
  cl_event_begin(&line);
  cl_event_text(&line, "call", cl_symbols[call->symbol].name, sizeof line.text);
  cl_event_int(&line, "result", result);
  cl_event_join(&line, &call->line);
  if (image) {
    cl_event_members(&line, image);
    note_image(call->symbol, result, image);
    atomic_fetch_add(&refusals, 1);
    free(image);
  }
  cl_event_end(&line);
  if (call->line.unsupported) cl_note_refusal(cl_symbols[call->symbol].name, &call->line);
}

static void note_null(const Call *call) {
  cl_note_violation_of(&(Violation){
      .kind = "argument",
      .number = call->null_at,
      .rule = call->null,
      .what = "NULL, which ends a driver in SIGSEGV",
      .call = cl_symbols[call->symbol].name,
      .expected = "an address",
      .found = "NULL",
  });
  cl_report_violations();
}

_Atomic(bool) cl_has_failed;

CUresult cl_leave(Call *call, CUresult result) {
  CallEnd *end = atomic_load_explicit(&cl_call_end, memory_order_relaxed);
  if (__builtin_expect(end != NULL, 0)) end();
  if (result && cl_used_dead(cl_symbols[call->symbol].dead_kind)) result = cl_symbols[call->symbol].dead_answer;
  if (result == CUDA_ERROR_NOT_PERMITTED && cl_in_host_function)
    cl_event_note(&call->line, "a host function or a callback must not call the driver");
  if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) cl_has_failed = true;
  if (result != CUDA_SUCCESS || !cl_symbols[call->symbol].quiet) note_call(call, result);
  if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY && cl_sweeping() && !cl_in_host_function)
    cl_swept_failed();
  CallWatch *watch = cl_call_watch;
  if (watch) watch(call->symbol, false);
  cl_site_forget();
  cl_check_dead_use(cl_symbols[call->symbol].name, cl_symbols[call->symbol].dies_of);
  if (call->null_at && result == CUDA_ERROR_INVALID_VALUE && cl_config()->lifetime) note_null(call);
  if (call->cancelable == PTHREAD_CANCEL_ENABLE) cl_cancelable = false;
  pthread_setcancelstate(call->cancelable, &call->cancelable);
  errno = call->error;
  return result;
}

CUresult cl_noted(EventLine *line, CUresult result, const char *note) {
  cl_event_note(line, note);
  return result;
}

CUresult cl_not_a_context(EventLine *line, Sym symbol, const void *given, const char *first) {
  static atomic_bool said[SYMBOL_COUNT];
  const Symbol *called = &cl_symbols[symbol];
  char note[256];
  snprintf(note, sizeof note,
           "%s, introduced in %d.%d, was given the context %p, which is not one; a caller of %s must not be given this "
           "form, with which a real driver crashes",
           called->name, called->since / 1000, called->since % 1000 / 10, given, first);
  if (!atomic_exchange(&said[symbol], true)) cl_say("cudalink: %s\n", note);
  return cl_noted(line, CUDA_ERROR_INVALID_CONTEXT, note);
}

CUresult cl_unsupported(EventLine *line, const char *note) {
  atomic_fetch_add(&refusals, 1);
  line->unsupported = note;
  cl_event_bool(line, "unsupported", true);
  return cl_noted(line, CUDA_ERROR_NOT_SUPPORTED, note);
}

/* How many calls were refused as not emulated, or refused an image, so that a watcher need not read the events of every
   test. */
EXPORT uint64_t cudalinkRefusalCount(void) { return atomic_load(&refusals); }

/* A refusal of something that stands in for another library, such as the functions of the CUDA runtime in Python. */
EXPORT void cudalinkUnsupported(const char *function, const char *note) {
  EventLine line, refused;
  cl_event_begin(&line);
  cl_event_begin(&refused);
  cl_event_text(&line, "call", function, LIMIT_EVENT_SIZE / 4);
  cl_event_int(&line, "result", cl_unsupported(&refused, note));
  cl_event_join(&line, &refused);
  cl_event_end(&line);
  cl_note_refusal(function, &refused);
}

CUresult cl_unimplemented(Sym symbol) {
  Call call;
  cl_begin(&call);
  if (!cl_enter(&call, symbol, true)) return call.result;
  return cl_leave(&call, cl_unsupported(&call.line, "not implemented by the emulated driver"));
}

CUresult cl_refused_form(Sym symbol, CUresult result, unsigned *first, unsigned *second) {
  Call call;
  cl_begin(&call);
  if (!cl_enter(&call, symbol, true)) return call.result;
  if (first) *first = 0;
  if (second) *second = 0;
  bool narrow = result == CUDA_ERROR_INVALID_CONTEXT;
  const char *note = narrow ? "the 32-bit entry point of before CUDA 3.2" : "a form that drivers of today refuse";
  return cl_leave(&call, cl_noted(&call.line, result, note));
}
