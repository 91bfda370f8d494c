/* Queues: a graph of works, whose edges are the order of streams, events and the legacy stream; and the engine. */
#include "queues.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "locks.h"
#include "sticky.h"
#include "synchronize.h"

typedef struct {
  Work *first, **last;
} List;

/* All of it under the lock of the streams. */
static Work *pending, *newest; /* works that are not done, in the order of their submission */
static List ready = {NULL, &ready.first}, calls = {NULL, &calls.first}, gates = {NULL, &gates.first};
static bool calling; /* a host function runs: they run one after the other, as on hardware */
static unsigned engines, idle_engines;
static bool ending;
static pthread_cond_t changed, wanted; /* a work is done; the engine has something to do */

static atomic_size_t pending_count;
static WorkRunner *run_work;
static WatchEnd *end_watch;
static _Thread_local bool is_engine;

bool cl_any_pending(void) { return atomic_load_explicit(&pending_count, memory_order_acquire); }
void cl_on_work(WorkRunner *runner) { run_work = runner; }
void cl_on_watch_end(WatchEnd *end) { end_watch = end; }

static void make_conditions(void) {
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(&changed, &attributes);
  pthread_cond_init(&wanted, &attributes);
  pthread_condattr_destroy(&attributes);
}

/* A forked child has no engine, and its driver is not initialized: nothing of the parent's work will be done there. */
static void forget(void) {
  pending = newest = ready.first = calls.first = gates.first = NULL;
  ready.last = &ready.first;
  calls.last = &calls.first;
  gates.last = &gates.first;
  engines = idle_engines = 0;
  calling = is_engine = cl_in_host_function = false;
  atomic_store(&pending_count, 0);
  make_conditions();
}

static void finish(const Context *context) {
  if (!cl_any_pending() || cl_in_host_function) return;
  cl_streams_lock();
  cl_wait_for_context(context);
  cl_streams_unlock(CUDA_SUCCESS);
}

static void finish_current(void) {
  CUresult state;
  const Context *context = cl_context(&state);
  if (context) finish(context);
}

/* Nothing of a dead context is done any more; what is behind it goes on. */
static void cancel(const Context *context) {
  cl_streams_lock();
  for (Work *work = pending; work; work = work->behind)
    if (work->context == context) work->cancelled = true;
  cl_streams_unlock(CUDA_SUCCESS);
}

__attribute__((constructor)) static void prepare(void) {
  make_conditions();
  cl_forget_in_children(forget);
  cl_on_finish(finish);
  cl_on_context_death(cancel);
  cl_call_barrier = finish_current;
}

/* -- lists -- */

static void put(List *list, Work *work) {
  work->next = NULL;
  *list->last = work;
  list->last = &work->next;
}

static Work *take(List *list) {
  Work *work = list->first;
  if (!work) return NULL;
  list->first = work->next;
  if (!list->first) list->last = &list->first;
  return work;
}

static bool calls_host(const Work *work) {
  return work->parameters.type == NODE_HOST || work->parameters.type == WORK_CALLBACK;
}

/* -- works -- */

const NodeParameters cl_no_work = {.type = NODE_EMPTY};

Work *cl_work_make(const NodeParameters *parameters, Context *context) {
  Work *work = calloc(1, sizeof *work);
  if (!work) return NULL;
  work->parameters = *parameters;
  work->context = context;
  work->unmet = 1;
  if (cl_parameters_own(&work->parameters)) return work;
  free(work);
  return NULL;
}

void cl_work_drop(Work *work) {
  cl_parameters_free(&work->parameters);
  if (work->watch) end_watch(work->watch);
  free(work->staged);
  free(work->dependents);
  free(work);
}

bool cl_work_after(Work *work, Work *earlier) {
  if (!earlier || earlier->done) return true;
  if (earlier->dependent_count == earlier->dependent_room) {
    size_t room = earlier->dependent_room ? 2 * earlier->dependent_room : 2;
    Work **list = realloc(earlier->dependents, room * sizeof *list);
    if (!list) return false;
    earlier->dependents = list;
    earlier->dependent_room = room;
  }
  earlier->dependents[earlier->dependent_count++] = work;
  work->unmet++;
  return true;
}

/* Whether a stream and the legacy one of a context wait for each other. */
static bool synchronizes(const Stream *stream, const Context *context) {
  return stream->home == context && !(stream->flags & CU_STREAM_NON_BLOCKING) && !stream->is_legacy;
}

/* Visits the works that come before new work of a stream, until a visit is false; whether none was. `alone`: not those
   of the streams that synchronize with it. */
typedef bool Visit(Work *new, Work *earlier);
static bool visit_earlier(const Stream *stream, bool alone, Visit *visit, Work *new) {
  if (stream->last && !visit(new, stream->last)) return false;
  if (stream->flags & CU_STREAM_NON_BLOCKING || (alone && !stream->is_legacy)) return true;
  if (!stream->is_legacy) {
    const Stream *legacy = cl_legacy_of(stream->home);
    return !legacy || !legacy->last || visit(new, legacy->last);
  }
  for (const Stream *other = cl_first_stream(); other; other = other->behind)
    if (other->last && synchronizes(other, stream->home) && !visit(new, other->last)) return false;
  return true;
}

bool cl_work_in_order(Work *work, const Stream *stream, bool alone) {
  return visit_earlier(stream, alone, cl_work_after, work);
}

static bool is_nothing(Work *new, Work *earlier) {
  (void)new;
  return !earlier;
}

bool cl_is_busy(const Stream *stream, bool alone) {
  return cl_any_pending() && !visit_earlier(stream, alone, is_nothing, NULL);
}

bool cl_work_after_context(Work *work, const Context *context) {
  for (Work *other = pending; other; other = other->behind)
    if ((!context || other->context == context) && !cl_work_after(work, other)) return false;
  return true;
}

Work *cl_find_pending(bool (*is)(const Work *work, const void *data), const void *data) {
  Work *work = pending;
  while (work && !is(work, data)) work = work->behind;
  return work;
}

void cl_work_append(Work *work, Stream *stream) {
  if (stream->last) stream->last->last_of = NULL;
  stream->last = work;
  work->last_of = stream;
}

/* -- doing -- */

static void become_ready(Work *work) { put(calls_host(work) ? &calls : &ready, work); }

static void done(Work *work, CUresult result) {
  work->done = true;
  cl_stick(result);
  if (work->before) work->before->behind = work->behind;
  else pending = work->behind;
  if (work->behind) work->behind->before = work->before;
  else newest = work->before;
  Stream *stream = work->last_of;
  if (stream) {
    stream->last = NULL;
    if (stream->destroyed) cl_stream_free(stream);
  }
  if (work->parameters.type == NODE_RECORD && work->parameters.event) {
    work->parameters.event->record = NULL;
    cl_event_stamp(work->parameters.event);
  }
  if (work->end) work->end(work);
  for (size_t at = 0; at < work->dependent_count; at++)
    if (!--work->dependents[at]->unmet) become_ready(work->dependents[at]);
  atomic_fetch_sub_explicit(&pending_count, 1, memory_order_release);
  if (!work->holders) cl_work_drop(work);
  pthread_cond_broadcast(&changed);
}

/* Wakes the engine, or starts it; a second one where the first is in a host function and other work waits. */
static void call_engine(void);

/* Why a work is not done any more: its context died, or an error stays, of which callbacks are told. */
static CUresult given_up(const Work *work) {
  if (work->cancelled) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  return work->parameters.type == WORK_CALLBACK ? CUDA_SUCCESS : cl_sticky_error();
}

/* Does a work that is ready, without the lock. */
static void perform(Work *work) {
  CUresult reason = given_up(work);
  if (reason) {
    done(work, reason);
    return;
  }
  bool host = calls_host(work);
  if (host) {
    calling = true;
    call_engine();
  }
  cl_streams_unlock(CUDA_SUCCESS);
  cl_in_host_function = host;
  CUresult result = run_work(work);
  cl_in_host_function = false;
  cl_streams_lock();
  if (host) calling = false;
  if (result == CUDA_ERROR_NOT_READY) put(&gates, work);
  else done(work, result);
}

/* Looks whether the values are there that works wait for. */
static void look_at_gates(void) {
  for (Work **at = &gates.first; *at;) {
    Work *work = *at;
    CUresult result = given_up(work);
    if (!result) result = run_work(work);
    if (result == CUDA_ERROR_NOT_READY) {
      at = &work->next;
      continue;
    }
    *at = work->next;
    if (!*at) gates.last = at;
    done(work, result);
  }
}

/* Does everything that can be done now and does not call the host. */
static void progress(void) {
  for (;;) {
    look_at_gates();
    Work *work = take(&ready);
    if (!work) return;
    perform(work);
  }
}

/* -- the engine -- */

enum { FIRST_LOOK = 20000, LAST_LOOK = 1000000 }; /* nanoseconds between two looks at values */

/* Waits until something changed, or for a time that doubles with every look at a value that stays away. */
static void rest(pthread_cond_t *condition, long *nanoseconds) {
  if (!gates.first) {
    cl_streams_wait(condition, NULL);
    return;
  }
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_nsec += *nanoseconds;
  until.tv_sec += until.tv_nsec / 1000000000;
  until.tv_nsec %= 1000000000;
  cl_streams_wait(condition, &until);
  *nanoseconds = *nanoseconds * 2 < LAST_LOOK ? *nanoseconds * 2 : LAST_LOOK;
}

static void *run_engine(void *unused) {
  long look = FIRST_LOOK;
  is_engine = true;
  cl_streams_lock();
  while (!ending) {
    progress();
    Work *call = calling ? NULL : take(&calls);
    if (call) {
      perform(call);
      look = FIRST_LOOK;
      continue;
    }
    if (ready.first) continue;
    idle_engines++;
    rest(&wanted, &look);
    idle_engines--;
    if (!gates.first) look = FIRST_LOOK;
  }
  engines--;
  pthread_cond_broadcast(&changed);
  cl_streams_unlock(CUDA_SUCCESS);
  return unused;
}

/* A signal handler of the program must not run in a thread that it does not know. */
static bool start_engine(void) {
  sigset_t all, before;
  pthread_t thread;
  pthread_attr_t attributes;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  bool started = !pthread_create(&thread, &attributes, run_engine, NULL);
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  engines += started;
  return started;
}

static void call_engine(void) {
  if (!calls.first && !gates.first && !ready.first) return;
  if (idle_engines) pthread_cond_signal(&wanted);
  else if (!ending && (!engines || (engines == 1 && calling && (gates.first || ready.first)))) start_engine();
}

/* At exit no work goes on. A host function that still runs is not waited for: it may wait for this thread. */
__attribute__((destructor)) static void end_engine(void) {
  if (!engines || is_engine) return;
  cl_streams_lock();
  ending = true;
  pthread_cond_broadcast(&wanted);
  while (engines && !calling) cl_streams_wait(&changed, NULL);
  cl_streams_unlock(CUDA_SUCCESS);
}

/* -- submitting -- */

void cl_work_start(Work *work) {
  work->before = newest;
  if (newest) newest->behind = work;
  else pending = work;
  newest = work;
  atomic_fetch_add_explicit(&pending_count, 1, memory_order_release);
  if (--work->unmet == 0) become_ready(work);
  call_engine();
}

CUresult cl_queue(Stream *stream, const NodeParameters *parameters, bool alone, Work **out) {
  return cl_queue_behind(NULL, stream, parameters, alone, out);
}

CUresult cl_queue_behind(Work *other, Stream *stream, const NodeParameters *parameters, bool alone, Work **out) {
  Work *work = cl_work_make(parameters, stream->home);
  if (!work) return CUDA_ERROR_OUT_OF_MEMORY;
  if (out) *out = work;
  if (!cl_work_in_order(work, stream, alone) || !cl_work_after(work, other))
    return CUDA_ERROR_OUT_OF_MEMORY; /* kept: earlier works know it */
  cl_work_append(work, stream);
  cl_work_start(work);
  return CUDA_SUCCESS;
}

void cl_event_follow(Event *event, Work *work) {
  if (event->record) event->record->parameters.event = NULL; /* only the last record counts */
  event->record = work;
}

/* -- waiting -- */

void cl_wait_for(Work *work) {
  long look = FIRST_LOOK;
  work->holders++;
  for (;;) {
    progress();
    if (work->done) break;
    call_engine();
    rest(&changed, &look);
  }
  if (!--work->holders) cl_work_drop(work);
}

void cl_drain(Stream *stream) {
  Work *work;
  if (cl_is_busy(stream, false) && !cl_queue(stream, &cl_no_work, false, &work)) cl_wait_for(work);
}

void cl_wait_for_stream(Stream *stream) {
  if (!cl_is_busy(stream, true)) return;
  Work *work = cl_work_make(&cl_no_work, stream->home);
  if (!work || !cl_work_in_order(work, stream, true)) return;
  cl_work_start(work);
  cl_wait_for(work);
}

void cl_wait_for_context(const Context *context) {
  if (!cl_any_pending()) return;
  Work *work = cl_work_make(&cl_no_work, NULL);
  if (!work || !cl_work_after_context(work, context)) return;
  cl_work_start(work);
  cl_wait_for(work);
}
