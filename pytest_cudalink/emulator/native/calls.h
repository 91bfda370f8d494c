/* Entering and leaving: what every exported function goes through. */
#pragma once

#include "abi.h"
#include "event_log.h"
#include "waits.h"

/* One call of an exported function: its answer, and what its event says besides. */
typedef struct {
  Sym symbol;
  int error;        /* the caller's errno, which no call changes */
  int cancelable;   /* pthread_setcancelstate of the caller */
  unsigned null_at; /* the number, from 1 on, of an argument that is NULL and of which a driver dies; 0: none */
  const char *null; /* its name */
  CUresult result;
  EventLine line;
} Call;

/* Whether this thread is in a host function or a callback, where no context is current and asking for it is refused. */
extern _Thread_local bool cl_in_host_function;
/* The name of the function that this thread called last. */
const char *cl_called(void);
/* Whether the thread that made this call may be cancelled: in the driver it is only where it waits. */
extern _Thread_local bool cl_cancelable;
/* What comes first in a call, before anything is locked or looked at. */
void cl_begin(Call *call);
/* Begins a call; false if it must return call->result at once: an injected fault, a lost device, no cuInit. */
bool cl_enter(Call *call, Sym symbol, bool needs_init);
/* What NULL means as a stream in the current call. Forms that functions.toml names jump to another form, and set this
   first, so that `cl_enter` knows: to ANNOUNCED those named `_ptsz` and `_ptds`, to their own symbol behind OLDER_FORM
   those that answer as the next form. */
enum { LEGACY_DEFAULT, PER_THREAD_DEFAULT, ANNOUNCED, OLDER_FORM };
extern _Thread_local unsigned cl_stream_form __attribute__((visibility("hidden"), tls_model("initial-exec")));
/* Ends it: writes the event and returns the result. */
CUresult cl_leave(Call *call, CUresult result);
/* Returns a result whose event explains it. */
CUresult cl_noted(EventLine *line, CUresult result, const char *note);
/* Returns 801 for what a real driver would do and this one does not; its event has "unsupported", by which a test that
   fails because of it is known. Where a real driver answers 801 too, use `cl_noted`. */
CUresult cl_unsupported(EventLine *line, const char *note);
/* The same for what is not a call itself, with the name of a function that it belongs to. */
EXPORT void cudalinkUnsupported(const char *function, const char *note);

/* Members of the event of this thread's call, if it fails: the image that it refused. Takes them over; NULL forgets. */
void cl_refused_image(char *members);
/* Hands them over, for a call that fails later; NULL if there are none. */
char *cl_take_refused_image(void);

/* The answer to a context that a function of two forms was given and that is not one, as when a caller of the first
   form gets the second. `first` is the first form with its arguments; the event says it, and stderr once for each
   function. */
CUresult cl_not_a_context(EventLine *line, Sym symbol, const void *given, const char *first);

/* The driver's signatures are fixed, so an exported function may leave some of its parameters unused. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

/* A whole exported function. Its work is `answer`, an expression of its parameters, mostly a call of a static function;
   that adds members to `line`, the event of the call, or needs none. */
#define EXPORTED_WHEN(needs_init, name, parameters, answer)           \
  EXPORT CUresult name parameters {                                   \
    Call call;                                                        \
    EventLine *line __attribute__((unused)) = &call.line;             \
    cl_begin(&call);                                                  \
    NULL_CHECKS_##name;                                               \
    if (!cl_enter(&call, SYM_##name, needs_init)) return call.result; \
    return cl_leave(&call, answer);                                   \
  }
#define EXPORTED(name, parameters, answer) EXPORTED_WHEN(true, name, parameters, answer)
/* One that looks at its arguments before it asks whether there was a cuInit: `refused` is their error, or 0. */
#define EXPORTED_CHECKED(name, parameters, refused, answer)       \
  EXPORT CUresult name parameters {                               \
    Call call;                                                    \
    EventLine *line __attribute__((unused)) = &call.line;         \
    cl_begin(&call);                                              \
    NULL_CHECKS_##name;                                           \
    CUresult early = (refused);                                   \
    if (!cl_enter(&call, SYM_##name, !early)) return call.result; \
    return cl_leave(&call, early ? early : (answer));             \
  }
/* The same where the work is the block that follows, which has the parameters and `line`; `names` are those of the
   parameters. LOCKED: under the lock of the streams. */
#define BEHIND_LINE(...) (EventLine * line, __VA_ARGS__)
#define AFTER_LINE(...) (line, __VA_ARGS__)
#define API_AS(exported, condition, locked, name, parameters, names) \
  static CUresult work_of_##name BEHIND_LINE parameters;             \
  exported(condition, name, parameters,                              \
           locked(work_of_##name AFTER_LINE names)) static CUresult work_of_##name BEHIND_LINE parameters
#define CHECKED_FIRST(refused, name, parameters, answer) EXPORTED_CHECKED(name, parameters, refused, answer)
#define API(...) API_AS(EXPORTED_WHEN, true, , __VA_ARGS__)
#define API_WHEN(needs_init, ...) API_AS(EXPORTED_WHEN, needs_init, , __VA_ARGS__)
#define API_CHECKED(refused, ...) API_AS(CHECKED_FIRST, refused, , __VA_ARGS__)
#define API_LOCKED(...) API_AS(EXPORTED_WHEN, true, LOCKED, __VA_ARGS__)
#define API_LOCKED_WHEN(needs_init, ...) API_AS(EXPORTED_WHEN, needs_init, LOCKED, __VA_ARGS__)
#define API_LOCKED_CHECKED(refused, ...) API_AS(CHECKED_FIRST, refused, LOCKED, __VA_ARGS__)
/* The error of a handle that is NULL. */
static inline CUresult cl_refuse_null(const void *handle) { return handle ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE; }
/* The same of a question whose answer has no place. */
static inline CUresult cl_refuse_nulls(const void *out, const void *handle) {
  return out ? cl_refuse_null(handle) : CUDA_ERROR_INVALID_VALUE;
}
/* One that answers before cuInit too. */
#define EXPORTED_ANY_TIME(name, parameters, answer) EXPORTED_WHEN(false, name, parameters, answer)

/* Asked before a function does its work: what it must answer instead, or 0. In capture.c. */
CUresult cl_guard_call(Sym symbol);

/* Called when a function leaves, while a schedule runs. Returns nothing, and is under no lock. */
typedef void CallEnd(void);
extern _Atomic(CallEnd *) cl_call_end;

/* Waits for all unfinished work of a context (NULL: the current one), or of all, as a row says. In queues.c. */
void cl_finish_by(const WaitRow *row, const struct Context *context);

/* Called for each call that waits by data/emulator/waits.toml, before it does; under no lock. NULL: there is no
 * watcher. */
typedef void WaitWatch(Sym symbol, const WaitRow *row);
extern _Atomic(WaitWatch *) cl_wait_watch;

/* Asked before a call waits for which CUDA's documentation promises no wait: whether it does. The row is NULL where a
   call reads pageable memory before it returns. Under no lock. NULL: all of them wait. */
typedef bool WaitJudge(Sym symbol, const WaitRow *row);
extern _Atomic(WaitJudge *) cl_wait_judge;
/* Whether this thread's call waits by a row, and whether it last did not. */
bool cl_waits_by(const WaitRow *row);
bool cl_left_out(void);

/* Waits for what this thread's call waits for, given these facts; returns what it must answer then. Under no lock. */
CUresult cl_wait_by_table(const WaitFacts *facts);
/* The same for a call that waits by itself, and for which `cl_any_pending` is true while there is a watcher. */
void cl_will_wait(const WaitFacts *facts);
/* The row of this thread's call. */
const WaitRow *cl_called_row(const WaitFacts *facts);
/* The locks by which the function is held up that this thread called last. */
unsigned cl_called_locks(void);
/* Whether this thread's calls waited so for a context since it was last asked. */
bool cl_take_waited(void);

/* Called as a function is entered, and as it is left; NULL: there is no watcher. */
typedef void CallWatch(Sym symbol, bool entered);
extern _Atomic(CallWatch *) cl_call_watch;

bool cl_initialized(void);
extern _Atomic(bool) cl_has_failed; /* a call of this process was refused */
CUresult cl_initialize(unsigned flags);
/* What is in the headers but not in this emulator: says so, and never pretends. */
CUresult cl_unimplemented(Sym symbol);
/* A form that a real driver of today refuses, whatever context is current; it writes 0 where there is something. */
CUresult cl_refused_form(Sym symbol, CUresult result, unsigned *first, unsigned *second);
