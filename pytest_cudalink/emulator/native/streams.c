/* The streams and events that are alive: making, finding, asking. */
#include "streams.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "handles.h"

static Stream legacy = {.id = 1, .policy = 1, .domains = {0, 1}},
              per_thread = {.id = 2, .policy = 1, .domains = {0, 1}};
static Stream *streams;
static Event *all_events;
static Deferred *deferred, **last_deferred = &deferred;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all of these, and of the graphs */

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

void cl_defer(Deferred *call) {
  call->next = NULL;
  *last_deferred = call;
  last_deferred = &call->next;
}

/* A thread may hold a lock while another one forks; in the child no thread would release it. */
static void unlock_in_child(void) { pthread_mutex_init(&lock, NULL); }

/* What belongs to a context dies with it. */
static void bury(const Context *context) {
  cl_streams_lock();
  for (Stream *stream = streams; stream; stream = stream->behind)
    if (stream->context == context) stream->dead = true;
  for (Event *event = all_events; event; event = event->behind)
    if (event->context == context) event->dead = true;
  cl_streams_unlock(CUDA_SUCCESS);
}

__attribute__((constructor)) static void watch(void) {
  pthread_atfork(NULL, NULL, unlock_in_child);
  cl_on_context_death(bury);
}

/* -- what the next node depends on -- */

bool cl_dependencies_add(Dependencies *to, Node *node, EdgeData data) {
  for (size_t at = 0; at < to->count; at++)
    if (to->nodes[at] == node) return true;
  if (to->count == to->room) {
    size_t room = to->room ? 2 * to->room : 4;
    Node **nodes = realloc(to->nodes, room * sizeof *nodes);
    if (nodes) to->nodes = nodes;
    EdgeData *all = realloc(to->data, room * sizeof *all);
    if (all) to->data = all;
    if (!nodes || !all) return false;
    to->room = room;
  }
  to->nodes[to->count] = node;
  to->data[to->count++] = data;
  return true;
}

void cl_dependencies_clear(Dependencies *of) {
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

/* NULL and 1 are the legacy stream. */
bool cl_is_legacy(const void *handle) { return (uintptr_t)handle < PER_THREAD; }

Stream *cl_stream(const void *handle) {
  if (cl_is_legacy(handle)) return &legacy;
  if ((uintptr_t)handle == PER_THREAD) return &per_thread;
  return cl_handle_is(handle, HANDLE_STREAM) ? (Stream *)(uintptr_t)handle : NULL;
}

Stream *cl_first_stream(void) { return streams; }

CUresult cl_stream_state(const void *handle, Stream **stream) {
  *stream = cl_stream(handle);
  if (!*stream) return CUDA_ERROR_INVALID_HANDLE;
  return (*stream)->dead ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_SUCCESS;
}

CUresult cl_check_stream(const void *handle) {
  Stream *stream;
  return LOCKED(cl_stream_state(handle, &stream));
}

static CUresult make_stream(Stream **out, unsigned flags, int priority, Context *context) {
  Stream *stream = calloc(1, sizeof *stream);
  if (!stream || !cl_handle_add(stream, HANDLE_STREAM)) {
    free(stream);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  stream->flags = flags;
  stream->priority = priority > 0 ? 0 : priority < GREATEST_PRIORITY ? GREATEST_PRIORITY : priority;
  stream->context = context;
  stream->id = cl_next_id();
  stream->policy = 1;
  stream->domains[1] = 1;
  stream->behind = streams;
  if (streams) streams->before = stream;
  streams = stream;
  *out = stream;
  return CUDA_SUCCESS;
}

static CUresult create_stream(EventLine *line, Stream **out, unsigned flags, int priority) {
  cl_event_uint(line, "flags", flags);
  CUresult result;
  Context *context = cl_context(&result);
  if (!out || flags > NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  return result ? result : LOCKED(make_stream(out, flags, priority, context));
}
EXPORTED(cuStreamCreate, (Stream **stream, unsigned flags), create_stream(line, stream, flags, 0))

static CUresult create_with_priority(EventLine *line, Stream **stream, unsigned flags, int priority) {
  cl_event_int(line, "priority", priority);
  return create_stream(line, stream, flags, priority);
}
EXPORTED(cuStreamCreateWithPriority, (Stream **stream, unsigned flags, int priority),
         create_with_priority(line, stream, flags, priority))

void cl_stream_free(Stream *stream) {
  cl_handle_remove(stream, HANDLE_STREAM);
  if (stream->before) stream->before->behind = stream->behind;
  else streams = stream->behind;
  if (stream->behind) stream->behind->before = stream->before;
  cl_dependencies_clear(&stream->next);
  free(stream);
}

/* Copies a stream, so that it is not read while another thread destroys it; its context is the current one's where it
   has none. These questions need a current context (measured). */
static CUresult read_stream(const void *handle, const void *out, Stream *known) {
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  CUresult result;
  Context *current = cl_context(&result);
  if (result) return result;
  cl_streams_lock();
  Stream *stream;
  result = cl_stream_state(handle, &stream);
  if (stream) *known = *stream;
  cl_streams_unlock(result);
  if (!result && !known->context) known->context = current;
  return result;
}

/* A question to a stream; the answer is a member of the copy. */
#define ASK(name, type, member)                               \
  static CUresult ask_##name(const void *stream, type *out) { \
    Stream known;                                             \
    CUresult result = read_stream(stream, out, &known);       \
    if (!result) *out = known.member;                         \
    return result;                                            \
  }                                                           \
  EXPORTED(name, (Stream *stream, type *out), ask_##name(stream, out))
ASK(cuStreamGetFlags, unsigned, flags)
ASK(cuStreamGetPriority, int, priority)
ASK(cuStreamGetId, uint64_t, id)
ASK(cuStreamGetCtx, Context *, context)
ASK(cuStreamGetDevice, CUdevice, context->device)

static CUresult get_ctx_v2(Stream *stream, Context **context, void **green) {
  Stream known;
  CUresult result = read_stream(stream, context ? (void *)context : green, &known);
  if (result) return result;
  if (context) *context = known.context;
  if (green) *green = NULL;
  return CUDA_SUCCESS;
}
EXPORTED(cuStreamGetCtx_v2, (Stream *stream, Context **context, void **green), get_ctx_v2(stream, context, green))

/* -- attributes of streams -- */

enum { ACCESS_POLICY_WINDOW = 1, SYNCHRONIZATION_POLICY = 3, PRIORITY = 8, DOMAIN_MAP = 9, DOMAIN = 10 };
enum { POLICIES = 4, DOMAINS = 4 }; /* CUsynchronizationPolicy counts from 1; sm_90 has four domains */

static CUresult get_attribute(const void *handle, int attribute, AttributeValue *value) {
  Stream *stream;
  CUresult result = cl_stream_state(handle, &stream);
  if (result) return result;
  AttributeValue answer = {{0}};
  switch (attribute) {
    case ACCESS_POLICY_WINDOW: answer = stream->window; break;
    case SYNCHRONIZATION_POLICY: answer.number = stream->policy; break;
    case PRIORITY: answer.number = stream->priority; break;
    case DOMAIN_MAP: memcpy(answer.bytes, stream->domains, sizeof stream->domains); break;
    case DOMAIN: answer.number = stream->domain; break;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  *value = answer;
  return CUDA_SUCCESS;
}

static CUresult set_attribute(const void *handle, int attribute, const AttributeValue *value) {
  Stream *stream;
  CUresult result = cl_stream_state(handle, &stream);
  if (result) return result;
  int number = value->number;
  switch (attribute) {
    case ACCESS_POLICY_WINDOW: stream->window = *value; break;
    case SYNCHRONIZATION_POLICY:
      if (number < 1 || number > POLICIES) return CUDA_ERROR_INVALID_VALUE;
      stream->policy = number;
      break;
    case PRIORITY: stream->priority = number > 0 ? 0 : number < GREATEST_PRIORITY ? GREATEST_PRIORITY : number; break;
    case DOMAIN_MAP:
      if ((uint8_t)value->bytes[0] >= DOMAINS || (uint8_t)value->bytes[1] >= DOMAINS) return CUDA_ERROR_INVALID_VALUE;
      memcpy(stream->domains, value->bytes, sizeof stream->domains);
      break;
    case DOMAIN:
      if (number < 0 || number > 1) return CUDA_ERROR_INVALID_VALUE;
      stream->domain = number;
      break;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

static CUresult copy_attributes(const void *to, const void *from) {
  Stream *target, *source;
  CUresult result = cl_stream_state(to, &target);
  if (!result) result = cl_stream_state(from, &source);
  if (result) return result;
  if (target->context != source->context && target->context && source->context) return CUDA_ERROR_INVALID_VALUE;
  target->window = source->window;
  target->policy = source->policy;
  target->priority = source->priority;
  target->domain = source->domain;
  memcpy(target->domains, source->domains, sizeof target->domains);
  return CUDA_SUCCESS;
}

/* What these calls answer before they look at the stream. */
static CUresult unless(bool missing) { return missing ? CUDA_ERROR_INVALID_VALUE : cl_check_context(); }

static CUresult stream_get_attribute(const void *stream, int attribute, AttributeValue *value) {
  CUresult result = unless(!value);
  return result ? result : LOCKED(get_attribute(stream, attribute, value));
}
EXPORTED(cuStreamGetAttribute, (Stream *stream, int attribute, AttributeValue *value),
         stream_get_attribute(stream, attribute, value))

static CUresult stream_set_attribute(const void *stream, int attribute, const AttributeValue *value) {
  CUresult result = unless(!value);
  return result ? result : LOCKED(set_attribute(stream, attribute, value));
}
EXPORTED(cuStreamSetAttribute, (Stream *stream, int attribute, const AttributeValue *value),
         stream_set_attribute(stream, attribute, value))

static CUresult stream_copy_attributes(const void *to, const void *from) {
  CUresult result = unless(false);
  return result ? result : LOCKED(copy_attributes(to, from));
}
EXPORTED(cuStreamCopyAttributes, (Stream *to, Stream *from), stream_copy_attributes(to, from))

/* -- events -- */

Event *cl_event(const void *handle) { return cl_handle_is(handle, HANDLE_EVENT) ? (Event *)(uintptr_t)handle : NULL; }

CUresult cl_event_make(unsigned flags, Context *context, Event **out) {
  Event *event = calloc(1, sizeof *event);
  if (!event || !cl_handle_add(event, HANDLE_EVENT)) {
    free(event);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  event->flags = flags;
  event->context = context;
  event->behind = all_events;
  if (all_events) all_events->before = event;
  all_events = event;
  *out = event;
  return CUDA_SUCCESS;
}

void cl_event_free(Event *event) {
  cl_handle_remove(event, HANDLE_EVENT);
  if (event->before) event->before->behind = event->behind;
  else all_events = event->behind;
  if (event->behind) event->behind->before = event->before;
  cl_dependencies_clear(&event->work);
  free(event);
}

void cl_event_stamp(Event *event) {
  clock_gettime(CLOCK_MONOTONIC, &event->time);
  event->recorded = true;
  event->captured = 0;
  cl_dependencies_clear(&event->work);
}

static CUresult flags_of(const void *handle, unsigned *flags) {
  const Event *event = cl_event(handle);
  if (event) *flags = event->flags;
  return event ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cl_flags_of_event(const void *event, unsigned *flags) { return LOCKED(flags_of(event, flags)); }

CUresult cl_make_event(void **out, unsigned flags) {
  CUresult result;
  Context *context = cl_context(&result);
  Event *event = NULL;
  if (!result) result = LOCKED(cl_event_make(flags, context, &event));
  if (!result) *out = event;
  return result;
}
