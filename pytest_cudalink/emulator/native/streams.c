/* The streams and events that are alive: making, finding, asking. */
#include "streams.h"

#include "grow.h"
#include "locks.h"

enum { NO_POLICY = -1 }; /* what a stream has until one is set (measured: programs/core) */

static Stream nowhere = {.policy = NO_POLICY, .domains = {0, 1}}; /* of a thread without a context */
Objects cl_streams;
static _Thread_local Stream *own; /* the default streams of this thread, one for each context */
static pthread_key_t own_key;     /* frees them when the thread ends */
static Objects events;
static Deferred *deferred, **last_deferred = &deferred;

STATIC_LOCK(lock); /* of all of these, and of the graphs */

void cl_streams_lock(void) { pthread_mutex_lock(&lock); }

CUresult cl_streams_unlock(CUresult result) {
  Deferred *calls = deferred;
  deferred = NULL;
  last_deferred = &deferred;
  pthread_mutex_unlock(&lock);
  while (calls) {
    Deferred call = *calls; /* the function may free it */
    call.function(call.data);
    calls = call.next;
  }
  return result;
}

void cl_streams_leave(void) { pthread_mutex_unlock(&lock); }

void cl_defer(Deferred *call) {
  call->next = NULL;
  *last_deferred = call;
  last_deferred = &call->next;
}

static void end(const Object *object, const Context *context, bool *dead) {
  if (object->context != context) return;
  *dead = true;
  if (!context->green) cl_object_orphan(object);
}

/* What belongs to a context dies with it. */
void cl_end_streams(const Context *context) {
  HOLD_STREAMS();
  EACH (Stream, stream, &cl_streams) end(&stream->head, context, &stream->dead);
  EACH (Event, event, &events) end(&event->head, context, &event->dead);
}

/* What another thread of the parent was about to call is not the child's. */
static void forget(void) {
  deferred = NULL;
  last_deferred = &deferred;
}

FORGET_IN_CHILDREN(forget);

void cl_condition_make(pthread_cond_t *condition) {
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(condition, &attributes);
  pthread_condattr_destroy(&attributes);
}

void cl_streams_wait(pthread_cond_t *condition) { pthread_cond_wait(condition, &lock); }

struct timespec cl_streams_later(long nanoseconds) {
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_nsec += nanoseconds;
  until.tv_sec += until.tv_nsec / 1000000000;
  until.tv_nsec %= 1000000000;
  return until;
}

void cl_streams_wait_until(pthread_cond_t *condition, const struct timespec *until) {
  pthread_cond_timedwait(condition, &lock, until);
}

void cl_streams_wait_at_most(pthread_cond_t *condition, long nanoseconds) {
  struct timespec until = cl_streams_later(nanoseconds);
  cl_streams_wait_until(condition, &until);
}

/* -- what the next node depends on -- */

enum { FEW = 16 }; /* nodes that are looked through one by one */

/* The place of a node among many: 0 there, or its number from 1 on. */
static size_t *place_of(const Dependencies *in, const Node *node) {
  size_t last = 2 * in->room - 1, at = (size_t)(((uintptr_t)node >> 4) * 0x9E3779B97F4A7C15u >> 20) & last;
  while (in->places[at] && in->nodes[in->places[at] - 1] != node) at = (at + 1) & last;
  return &in->places[at];
}

static bool is_in(const Dependencies *all, const Node *node) {
  if (all->places) return *place_of(all, node);
  size_t at = 0;
  while (at < all->count && all->nodes[at] != node) at++;
  return at < all->count;
}

static bool grow(Dependencies *all) {
  size_t room = all->room, same = all->room;
  if (!cl_grow(&all->nodes, all->count, &room, sizeof *all->nodes) ||
      !cl_grow(&all->data, all->count, &same, sizeof *all->data))
    return false;
  size_t *places = room > FEW ? calloc(2 * room, sizeof *places) : NULL;
  if (room > FEW && !places) return false;
  free(all->places);
  all->places = places;
  all->room = room;
  for (size_t at = 0; places && at < all->count; at++) *place_of(all, all->nodes[at]) = at + 1;
  return true;
}

bool cl_dependencies_add(Dependencies *to, Node *node, EdgeData data) {
  if (is_in(to, node)) return true;
  if (to->count == to->room && !grow(to)) return false;
  to->nodes[to->count] = node;
  to->data[to->count++] = data;
  if (to->places) *place_of(to, node) = to->count;
  return true;
}

void cl_dependencies_empty(Dependencies *of) {
  of->count = 0;
  if (!of->places) return;
  free(of->places);
  of->places = NULL;
  of->room = FEW;
}

void cl_dependencies_clear(Dependencies *of) {
  free(of->places);
  free(of->nodes);
  free(of->data);
  *of = (Dependencies){0};
}

bool cl_dependencies_copy(Dependencies *to, const Dependencies *from) {
  Dependencies copy = {0};
  bool whole = true;
  for (size_t at = 0; at < from->count && whole; at++)
    whole = cl_dependencies_add(&copy, from->nodes[at], from->data[at]);
  cl_dependencies_clear(whole ? to : &copy);
  if (whole) *to = copy;
  return whole;
}

/* -- streams -- */

static Stream *new_stream(HandleKind kind, Context *context, Objects *list) {
  Stream *stream = cl_object_make(sizeof *stream, kind, context, list);
  if (!stream) return NULL;
  stream->policy = NO_POLICY;
  stream->domains[1] = 1;
  return stream;
}

bool cl_is_legacy(const void *handle) {
  return handle ? (uintptr_t)handle == LEGACY : cl_stream_form != PER_THREAD_DEFAULT;
}

Stream *cl_legacy_of(const Context *context) { return context->legacy; }

/* The default stream of the current context, or of this thread in it; made when first needed. */
static Stream *default_stream(bool of_thread) {
  Context *context = cl_current();
  if (!context) return &nowhere;
  if (!of_thread && context->legacy) return context->legacy;
  for (Stream *stream = own; of_thread && stream; stream = stream->sibling)
    if (stream->head.context == context && !stream->dead) return stream;
  Stream *made = new_stream(NO_HANDLE, context, of_thread ? &cl_streams : NULL);
  if (!made) return NULL;
  made->is_legacy = !of_thread;
  made->id = of_thread ? cl_next_id() : context->legacy_id;
  if (!of_thread) return context->legacy = made;
  made->sibling = own;
  own = made;
  pthread_setspecific(own_key, made);
  return made;
}

Stream *cl_stream(const void *handle) {
  if ((uintptr_t)handle <= CU_STREAM_PER_THREAD) return default_stream(!cl_is_legacy(handle));
  return cl_handle_is(handle, HANDLE_STREAM) ? (Stream *)(uintptr_t)handle : NULL;
}

CUresult cl_stream_state(const void *handle, Stream **stream) {
  *stream = cl_stream(handle);
  /* an event is taken for a stream of a dead context (recorded programs) */
  if (!*stream) return cl_event(handle) ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_HANDLE;
  if ((uintptr_t)handle <= CU_STREAM_PER_THREAD) return cl_check_context();
  if (!(*stream)->dead) return CUDA_SUCCESS;
  /* a primary context that was reset is still there, and so is a green one (measured: edges/threads; two H200s:
     edges/two_limits_green) */
  const Context *context = (*stream)->context;
  if (context && !context->dead && !context->green) return CUDA_ERROR_INVALID_HANDLE; /* it was made again (H200) */
  bool is_there = context && (context->references || context->green);
  return is_there || cl_check_context() == CUDA_ERROR_CONTEXT_IS_DESTROYED ? CUDA_ERROR_CONTEXT_IS_DESTROYED
                                                                           : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cl_check_stream(const void *handle) {
  Stream *stream;
  return LOCKED(cl_stream_state(handle, &stream));
}

Context *cl_context_of(const Stream *stream) { return stream && stream->context ? stream->context : cl_current(); }

Context *cl_context_in(const void *handle) {
  HOLD_STREAMS();
  return cl_context_of(cl_stream(handle));
}

CUresult cl_stream_device(const void *handle, CUdevice *device) {
  Stream *stream;
  HOLD_STREAMS();
  TRY(cl_stream_state(handle, &stream));
  *device = cl_context_of(stream)->device;
  return CUDA_SUCCESS;
}

static CUresult create_stream(EventLine *line, Stream **out, unsigned flags, int priority) {
  cl_event_uint(line, "flags", flags);
  IN_CONTEXT(context);
  HOLD_STREAMS();
  Stream *stream = new_stream(HANDLE_STREAM, context, &cl_streams);
  if (!stream) return CUDA_ERROR_OUT_OF_MEMORY;
  stream->flags = flags;
  stream->priority = priority > 0 ? 0 : priority < GREATEST_PRIORITY ? GREATEST_PRIORITY : priority;
  stream->context = context;
  stream->id = cl_next_id();
  *out = stream;
  return CUDA_SUCCESS;
}
/* Where the handle would go is looked at before cuInit is asked for, as the flags are (measured: programs/others). */
static CUresult refused(Stream *const *out, unsigned flags) {
  return out && flags <= CU_STREAM_NON_BLOCKING ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
EXPORTED_CHECKED(cuStreamCreate, (Stream **stream, unsigned flags), refused(stream, flags),
                 create_stream(line, stream, flags, 0))

EXPORTED_CHECKED(cuStreamCreateWithPriority, (Stream **stream, unsigned flags, int priority), refused(stream, flags),
                 (cl_event_int(line, "priority", priority), create_stream(line, stream, flags, priority)))

void cl_stream_free(Stream *stream) {
  cl_object_unname(&stream->head);
  stream->destroyed = true;
  if (stream->last) return; /* its work goes on */
  cl_dependencies_clear(&stream->next);
  cl_order_end_stream(stream);
  cl_object_end(&stream->head);
}

/* The end of a thread, whose default streams can no longer be used. */
static void drop_own(void *first) {
  HOLD_STREAMS();
  for (Stream *stream = first, *next; stream; stream = next) {
    next = stream->sibling;
    if (stream->capture) continue; /* the capture knows it */
    cl_stream_free(stream);
  }
  own = NULL;
}

void cl_start_streams(void) { pthread_key_create(&own_key, drop_own); }

/* -- events -- */

Event *cl_event(const void *handle) { return cl_handle_is(handle, HANDLE_EVENT) ? (Event *)(uintptr_t)handle : NULL; }

CUresult cl_event_make(unsigned flags, Context *context, Event **out) {
  Event *event = cl_object_make(sizeof *event, HANDLE_EVENT, context, &events);
  if (!event) return CUDA_ERROR_OUT_OF_MEMORY;
  event->flags = flags;
  *out = event;
  return CUDA_SUCCESS;
}

void cl_event_free(Event *event) {
  cl_dependencies_clear(&event->work);
  free(event->clock);
  cl_object_end(&event->head);
}

void cl_event_stamp(Event *event) {
  clock_gettime(CLOCK_MONOTONIC, &event->time);
  event->recorded = true;
  event->captured = 0;
  cl_dependencies_clear(&event->work);
}

CUresult cl_flags_of_event(const void *handle, unsigned *flags) {
  HOLD_STREAMS();
  const Event *event = cl_event(handle);
  if (event) *flags = event->flags;
  return event ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cl_make_event(void **out, unsigned flags) {
  IN_CONTEXT(context);
  Event *event;
  TRY(LOCKED(cl_event_make(flags, context, &event)));
  *out = event;
  return CUDA_SUCCESS;
}
