/* Queues: a graph of works, whose edges are the order of streams, events and the legacy stream; and the engine. */
#include "queues.h"

#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "happens_before.h"
#include "locks.h"
#include "openers.h"
#include "sticky.h"
#include "waiters.h"

typedef struct {
  Work *first, **last;
} WorkList;

/* All of it under the lock of the streams. */
static WorkList ready = {NULL, &ready.first}, calls = {NULL, &calls.first};
static bool calling; /* a host function runs: they run one after the other, as on hardware */
static unsigned engines, idle_engines;
static bool polling;   /* an idle engine looks at the gates again and again, so that no other thread has to */
static bool gave_up;   /* a work that may stand at a gate was cancelled */
static uint64_t later; /* nanoseconds before which many gates are not looked at again */
static bool ending;
static pthread_cond_t changed, wanted; /* a work is done; the engine has something to do */

static const Scheduler *scheduler;
static uint64_t moves;    /* rounds of work under a schedule */
static pid_t host_thread; /* in which a host function runs */
static clockid_t host_clock;
static struct timespec host_time; /* what that thread had used of a processor before */
static _Thread_local bool is_engine;

bool cl_scheduled(void) { return scheduler; }
bool cl_is_engine(void) { return is_engine; }

/* Wakes the engine, or starts it; a second one where the first is in a host function and other work waits. */
static void call_engine(void);

/* Whether an engine has something to do that it has not begun, as on a busy machine; calls it once more. */
static bool engine_is_due(void) {
  bool due = engines && (ready.first || (calls.first && !calling));
  if (due) call_engine();
  return due;
}

void cl_start_queues(void) {
  cl_waiters_start(engine_is_due);
  cl_condition_make(&changed);
  cl_condition_make(&wanted);
}

/* A forked child has no engine, and its driver is not initialized: nothing of the parent's work will be done there. */
static void forget(void) {
  ready.first = calls.first = NULL;
  ready.last = &ready.first;
  calls.last = &calls.first;
  engines = idle_engines = 0;
  polling = calling = is_engine = cl_in_host_function = false;
  scheduler = NULL;
  cl_pending_forget();
  cl_start_queues();
}
FORGET_IN_CHILDREN(forget);

static void wait_for_context(const Context *context, bool of_device);

static void finish(const Context *context) {
  if (!cl_any_pending() || cl_in_host_function) return;
  HOLD_STREAMS();
  wait_for_context(context, false);
}

void cl_finish(const Context *context) {
  finish(context);
  bool waited = cl_order_on && !cl_in_host_function && cl_is_known_context(context); /* a caller's may be none */
  if (waited) cl_order_waited_context(context);
}

void cl_finish_by(const WaitRow *row, const Context *context) {
  if (!context) context = cl_current();
  bool of_all = row->waits_for == WAITS_FOR_DEVICES, of_device = row->waits_for == WAITS_FOR_DEVICE;
  if (!cl_any_pending() || cl_in_host_function || (!context && !of_all && !of_device)) return;
  Holder holder;
  HOLD_STREAMS();
  if (row->holds) cl_hold(&holder, row->holds, context);
  wait_for_context(of_all ? NULL : context, of_device);
  if (row->holds) cl_let_go(&holder);
}

void cl_cancel_works(const Context *context) {
  for (Work *work = cl_pending; work; work = work->behind)
    if (!context || work->context == context) work->cancelled = work->hurried = gave_up = true;
  if (polling) pthread_cond_broadcast(&wanted);
}

/* Nothing of a dead context is done any more; what is behind it goes on. */
void cl_end_works(const Context *context) {
  HOLD_STREAMS();
  cl_cancel_works(context);
}

/* -- lists -- */

static void put(WorkList *list, Work *work) {
  work->next = NULL;
  *list->last = work;
  list->last = &work->next;
}

static Work *take(WorkList *list) {
  Work *work = list->first;
  if (!work) return NULL;
  list->first = work->next;
  if (!list->first) list->last = &list->first;
  return work;
}

/* -- doing -- */

static void become_ready(Work *work) {
  if (scheduler) scheduler->ready(work);
  else put(cl_calls_host(work) ? &calls : &ready, work);
}

/* Whatever is behind a work knows what it learned while it waited for values. */
static void pass_on_order(Work *work) {
  for (size_t at = 0; at < work->dependent_count; at++) cl_order_after(work->dependents[at]->op, work->op);
  if (work->last_of) cl_order_keep(&work->last_of->clock, work->op);
  Event *event = work->parameters.type == NODE_RECORD ? work->parameters.event : NULL;
  if (event) cl_order_keep(&event->clock, work->op);
}

static void done(Work *work, CUresult result) {
  if (work->op) pass_on_order(work);
  work->done = true;
  cl_went_on();
  cl_stick(result);
  if (scheduler) scheduler->done(work);
  cl_pending_remove(work);
  if (work->in) work->in->depth--;
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
  if (work->op) cl_order_done(work->op);
  for (size_t at = 0; at < work->dependent_count; at++)
    if (!--work->dependents[at]->unmet) become_ready(work->dependents[at]);
  cl_pending_end();
  cl_wake_waiters(scheduler ? NULL : work); /* under a schedule, each goes on with what is due then */
  if (!work->holders) cl_work_drop(work);
  pthread_cond_broadcast(&changed);
}

enum { FIRST_LOOK = 20000, SLOWER_FROM = 1000000, LAST_LOOK = 10000000 }; /* nanoseconds between two looks at values */
static long look = FIRST_LOOK;                                            /* until the engine's next one */

/* The time until the next look at a value that stays away: twice the last one, then a part of all the time before. */
static long next_look(long *nanoseconds) {
  long now = *nanoseconds, next = now < SLOWER_FROM ? now * 2 : now + now / 64;
  *nanoseconds = next < LAST_LOOK ? next : LAST_LOOK;
  return now;
}

static uint64_t nanoseconds_now(void) {
  struct timespec now = cl_streams_later(0);
  return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* What is looked at for a work that waits for a value; of none, an open gate. */
static Gate gate_of(Work *work) {
  return work ? (Gate){work, work->parameters.operations.list[work->position]} : (Gate){.work = NULL};
}

static void forget_open_gates(void) {
  size_t closed = 0;
  for (size_t at = 0; at < cl_gates.count; at++)
    if (cl_gates.list[at].work) cl_gates.list[closed++] = cl_gates.list[at];
  cl_gates.count = closed;
}

static void close_gate(Work *work) {
  cl_gates.list[cl_gates.count++] = gate_of(work);
  look = FIRST_LOOK;
  call_engine();
}

/* Why a work is not done any more: its context died, or an error stays, which is passed to callbacks. */
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
  bool host = cl_calls_host(work);
  if (host) {
    calling = true;
    if (scheduler) {                            /* for who waits until that returns or waits itself */
      host_thread = (pid_t)syscall(SYS_gettid); /* gettid is younger than the glibc of our wheels */
      pthread_getcpuclockid(pthread_self(), &host_clock);
      clock_gettime(host_clock, &host_time);
    }
    call_engine();
  }
  cl_working += !host;
  cl_streams_unlock(CUDA_SUCCESS);
  cl_in_host_function = host;
  CUresult result = cl_run_work(work);
  cl_in_host_function = false;
  cl_streams_lock();
  cl_working -= !host;
  if (host) calling = false;
  if (result == CUDA_ERROR_NOT_READY) close_gate(work);
  else done(work, result);
}

enum { FEW_GATES = 64, SHARE = 100 };

/* Looks whether the values are there that works wait for; at many gates no longer than a hundredth of the time, but
   under a schedule, which is the same in each run. */
static void look_at_gates(void) {
  if (!cl_gates.count) return;
  bool many = cl_gates.count > FEW_GATES && !scheduler, each = gave_up || cl_sticky_error();
  uint64_t begin = many ? nanoseconds_now() : 0;
  if (begin < later && many && !gave_up) return;
  gave_up = false;
  bool opened = false;
  for (size_t at = 0; (at = each ? at : cl_skip_closed_gates(at)) < cl_gates.count; at++) {
    Work *work = cl_gates.list[at].work;
    CUresult result = given_up(work);
    if (!result) result = cl_run_work(work);
    opened = opened || result != CUDA_ERROR_NOT_READY;
    cl_gates.list[at] = gate_of(result == CUDA_ERROR_NOT_READY ? work : NULL);
    if (result != CUDA_ERROR_NOT_READY) done(work, result);
  }
  if (opened) forget_open_gates();
  if (many) later = begin + SHARE * (nanoseconds_now() - begin);
}

static void hand_over(Work *work);

/* Does everything that can be done now and does not call the host; under a schedule, all that is due. */
void cl_progress(void) {
  moves++;
  for (;;) {
    look_at_gates();
    Work *work = scheduler ? scheduler->next(!calling) : take(&ready);
    if (!work) return;
    if (scheduler && cl_calls_host(work) && !is_engine)
      hand_over(work); /* else no engine may be left to call the host */
    else perform(work);
  }
}

/* -- the engine -- */

/* Waits until the engine has something to do, or is to look at values again, which one engine does. */
static void rest(void) {
  if (!cl_gates.count || polling) {
    cl_streams_wait(&wanted);
    return;
  }
  uint64_t now = nanoseconds_now(), until = now + (uint64_t)next_look(&look);
  if (cl_gates.count > FEW_GATES && until < later) until = later;
  polling = true;
  cl_streams_wait_at_most(&wanted, (long)(until - now));
  polling = false;
}

enum { IDLE_LOOK = 100000000, IDLE_LOOKS = 10 };

/* A program that waits for a change of memory calls nothing: after a second without a call, all work is done. */
static void watch_idleness(unsigned *looks) {
  uint64_t before = moves;
  cl_streams_wait_at_most(&wanted, IDLE_LOOK);
  *looks = moves == before ? *looks + 1 : 0;
  if (*looks < IDLE_LOOKS || !scheduler || !cl_pending) return;
  cl_hurry_all();
  cl_progress();
  *looks = IDLE_LOOKS - 1;
}

static void *run_engine(void *unused) {
  unsigned looks = 0;
  is_engine = true;
  HOLD_STREAMS();
  while (!ending) {
    if (!scheduler) cl_progress();
    Work *call = calling ? NULL : take(&calls);
    if (call) {
      perform(call);
      continue;
    }
    if (!scheduler && ready.first) continue;
    idle_engines++;
    cl_engine_rests(true);
    if (scheduler) watch_idleness(&looks);
    else rest();
    cl_engine_rests(false);
    idle_engines--;
  }
  engines--;
  pthread_cond_broadcast(&changed);
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
  bool gate = cl_gates.count && !polling;
  if (!calls.first && !gate && !ready.first && (!scheduler || engines)) return;
  if (idle_engines) pthread_cond_signal(&wanted);
  else if (!ending && (!engines || (engines == 1 && calling && (cl_gates.count || ready.first)))) start_engine();
}

/* At exit no work goes on. A host function that still runs is not waited for: it may wait for this thread. */
__attribute__((destructor)) static void end_engine(void) {
  if (!engines || is_engine) return;
  HOLD_STREAMS();
  ending = true;
  pthread_cond_broadcast(&wanted);
  while (engines && !calling) cl_streams_wait(&changed);
}

/* -- under a schedule -- */

enum { LATE_WAKE_UP = 200000, HOST_LOOK = 2000000, HOST_LOOP = 100000000, SLEEPING_LOOKS = 25 };

static bool is_asleep(pid_t thread) {
  char text[256];
  const char *end = cl_read_task(thread, "stat", text, sizeof text) ? strrchr(text, ')') : NULL; /* of its name */
  return end && end[1] && end[2] == 'S';
}

/* Whether the running host function has used so much of a processor that it waits for something in a loop. */
static bool is_in_loop(void) {
  struct timespec now;
  return !clock_gettime(host_clock, &now) &&
         (now.tv_sec - host_time.tv_sec) * 1000000000 + now.tv_nsec - host_time.tv_nsec > HOST_LOOP;
}

/* Has the engine call the host, and goes on when that returned, or waits itself for something that others must do. */
static void hand_over(Work *work) {
  unsigned asleep = 0;
  work->holders++;
  host_thread = 0;
  put(&calls, work);
  call_engine();
  while (!work->done && asleep < SLEEPING_LOOKS && !(host_thread && is_in_loop())) {
    cl_streams_wait_at_most(&changed, HOST_LOOK);
    asleep = host_thread && is_asleep(host_thread) ? asleep + 1 : 0;
  }
  if (!--work->holders && work->done) cl_work_drop(work);
}

void cl_asked_for(Work *work) {
  if (scheduler && scheduler->impatient()) cl_work_hurry(work);
}

static bool hurry_earlier(Work *unused, Work *earlier) {
  cl_work_hurry(earlier);
  return true;
}

void cl_asked_for_stream(const Stream *stream) {
  if (scheduler && scheduler->impatient()) cl_visit_earlier(stream, true, hurry_earlier, NULL);
}

void cl_schedule(const Scheduler *one) {
  const Scheduler *before = scheduler;
  scheduler = one;
  cl_wake_waiters(NULL);                                                     /* who looks at gates changes */
  for (Work *work = cl_pending; work; work = work->behind) work->number = 0; /* another schedule does not know them */
  if (one && !before) cl_pending_keep(true);                                 /* nothing goes by the queues */
  while (one && ready.first) one->ready(take(&ready)); /* the engine does not look there any more */
  if (one || !before) return;
  cl_pending_keep(false);
  for (Work *work; (work = before->next(true));) become_ready(work);
  call_engine();
}

/* -- submitting -- */

void cl_work_start(Work *work) {
  cl_pending_add(work);
  if (scheduler) scheduler->submitted(work);
  if (--work->unmet == 0) become_ready(work);
  call_engine();
}

CUresult cl_queue(Stream *stream, const NodeParameters *parameters, bool alone, Work **out) {
  return cl_queue_behind(NULL, stream, parameters, alone, out);
}

CUresult cl_queue_behind(Work *other, Stream *stream, const NodeParameters *parameters, bool alone, Work **out) {
  Work *work = cl_work_make(parameters, stream->head.context);
  if (!work) return CUDA_ERROR_OUT_OF_MEMORY;
  if (out) *out = work;
  if (cl_order_on) work->op = cl_order_submit(stream, alone, true);
  if (!cl_work_in_order(work, stream, alone) || !cl_work_after(work, other))
    return CUDA_ERROR_OUT_OF_MEMORY; /* kept: earlier works know it */
  cl_work_append(work, stream);
  cl_work_start(work);
  return CUDA_SUCCESS;
}

/* -- waiting -- */

/* Whether an engine looks at the gates, or will as soon as it rests. */
static bool engine_looks(void) { return !scheduler && engines > calling; }

void cl_wait_for(Work *work) {
  long own_look = FIRST_LOOK;
  Waiter waiter = {.call = NULL};
  work->holders++;
  if (scheduler) cl_work_hurry(work);
  for (;;) {
    cl_progress();
    if (work->done) break;
    if (waiter.call && cl_is_given_up(&waiter)) break;
    if (scheduler && cl_hurry_all()) continue; /* a gate or a host function may wait for any of it */
    call_engine();
    if (!waiter.call) {
      cl_waiter_begin(&waiter, work);
      look = FIRST_LOOK;
      if (polling) pthread_cond_broadcast(&wanted);
    }
    cl_waiter_rest(&waiter, engine_looks() ? UNTIL_WOKEN : cl_gates.count ? next_look(&own_look) : DEADLOCK_LOOK);
    cl_look_for_deadlock();
  }
  if (waiter.call) cl_waiter_end(&waiter);
  if (waiter.call && cl_is_given_up(&waiter)) cl_give_up_call();
  if (!--work->holders && work->done) cl_work_drop(work);
  if (scheduler && scheduler->is_late()) cl_streams_wait_at_most(&changed, LATE_WAKE_UP);
}

/* What comes before new work of a stream, one after the other, for want of memory for the new work. */
static Work *first_earlier;
static bool take_earlier(Work *unused, Work *earlier) {
  first_earlier = earlier;
  return !earlier;
}

static void wait_without_memory(const Stream *stream, bool alone) {
  while (!cl_visit_earlier(stream, alone, take_earlier, NULL)) cl_wait_for(first_earlier);
}

void cl_drain(Stream *stream) {
  Work *work;
  if (!cl_is_busy(stream, false)) return;
  if (cl_queue(stream, &cl_no_work, false, &work)) wait_without_memory(stream, false);
  else cl_wait_for(work);
}

void cl_wait_for_stream(Stream *stream) {
  if (!cl_is_busy(stream, true)) return;
  Work *work = cl_work_make(&cl_no_work, stream->head.context);
  if (!work || !cl_work_in_order(work, stream, true)) {
    wait_without_memory(stream, true);
    return;
  }
  cl_work_start(work);
  cl_wait_for(work);
}

static Work *pending_of(const Context *context, bool of_device) {
  Work *work = cl_pending;
  while (work && !cl_is_work_of(work, context, of_device)) work = work->behind;
  return work;
}

/* Waits for the work of a context as it is now (NULL: of all), or of all contexts of its device. */
static void wait_for_context(const Context *context, bool of_device) {
  if (!cl_any_pending()) return;
  Work *work = cl_work_make(&cl_no_work, NULL);
  if (!work || !cl_work_after_context(work, context, of_device)) {
    for (Work *one; (one = pending_of(context, of_device));) cl_wait_for(one);
    return;
  }
  cl_work_start(work);
  cl_wait_for(work);
}
