/* Streams and events. */
#include "streams.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "contexts.h"
#include "synchronize.h"

enum { STREAM_MAGIC = 0x7374726d, EVENT_MAGIC = 0x65766e74 };
enum { LAST_DEFAULT = 2 }; /* NULL, 1 and 2 are the default streams */
enum { NON_BLOCKING = 1 }; /* CUstream_flags */
enum { EXTERNAL = 1 };     /* CUevent_record_flags, CUevent_wait_flags */

typedef struct {
  uint32_t magic;
  unsigned flags;
  int priority;
  uint64_t id;
  Context *context;
} Stream;

typedef struct {
  uint32_t magic;
  unsigned flags;
  bool recorded;
  struct timespec time;
} Event;

/* Handles are kept in one table, so that a stale or foreign one is an error and not a crash. */
static struct {
  void **list;
  size_t count, room;
} handles;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the handles */

/* A thread may hold a lock while another one forks; in the child no thread would release it. */
static void unlock_in_child(void) { pthread_mutex_init(&lock, NULL); }

__attribute__((constructor)) static void watch_forks(void) { pthread_atfork(NULL, NULL, unlock_in_child); }

static bool remember(void *handle) {
  if (handles.count == handles.room) {
    size_t room = handles.room ? 2 * handles.room : 64;
    void **list = realloc(handles.list, room * sizeof *list);
    if (!list) return false;
    handles.list = list;
    handles.room = room;
  }
  handles.list[handles.count++] = handle;
  return true;
}

static bool knows(const void *handle, uint32_t magic, bool forget) {
  for (size_t at = handles.count; at-- > 0;) {
    if (handles.list[at] != handle || *(const uint32_t *)handle != magic) continue;
    if (forget) handles.list[at] = handles.list[--handles.count];
    return true;
  }
  return false;
}

CUresult cl_check_stream(const void *stream) {
  if ((uintptr_t)stream <= LAST_DEFAULT) return CUDA_SUCCESS;
  pthread_mutex_lock(&lock);
  bool known = knows(stream, STREAM_MAGIC, false);
  pthread_mutex_unlock(&lock);
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* Copies a stream, so that it is not read while another thread destroys it. A default one has only its number. */
static CUresult read_stream(const Stream *stream, Stream *known) {
  *known = (Stream){.id = (uintptr_t)stream};
  if ((uintptr_t)stream <= LAST_DEFAULT) return CUDA_SUCCESS;
  pthread_mutex_lock(&lock);
  bool found = knows(stream, STREAM_MAGIC, false);
  if (found) *known = *stream;
  pthread_mutex_unlock(&lock);
  return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult check_event(const Event *event) {
  pthread_mutex_lock(&lock);
  bool known = event && knows(event, EVENT_MAGIC, false);
  pthread_mutex_unlock(&lock);
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult create_stream(Stream **out, unsigned flags, int priority) {
  CUresult result;
  Context *context = cl_context(&result);
  if (!out || flags > NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  if (result) return result;
  Stream *stream = calloc(1, sizeof *stream);
  if (!stream) return CUDA_ERROR_OUT_OF_MEMORY;
  stream->magic = STREAM_MAGIC;
  stream->flags = flags;
  stream->priority = priority > 0 ? 0 : priority < GREATEST_PRIORITY ? GREATEST_PRIORITY : priority;
  stream->context = context;
  pthread_mutex_lock(&lock);
  stream->id = cl_next_id();
  bool kept = remember(stream);
  pthread_mutex_unlock(&lock);
  if (!kept) {
    free(stream);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *out = stream;
  return CUDA_SUCCESS;
}

static CUresult stream_create(EventLine *line, Stream **stream, unsigned flags) {
  cl_event_uint(line, "flags", flags);
  return create_stream(stream, flags, 0);
}
EXPORTED(cuStreamCreate, (Stream **stream, unsigned flags), stream_create(line, stream, flags))

static CUresult stream_create_with_priority(EventLine *line, Stream **stream, unsigned flags, int priority) {
  cl_event_uint(line, "flags", flags);
  cl_event_int(line, "priority", priority);
  return create_stream(stream, flags, priority);
}
EXPORTED(cuStreamCreateWithPriority, (Stream **stream, unsigned flags, int priority),
         stream_create_with_priority(line, stream, flags, priority))

static CUresult destroy_stream(Stream *stream) {
  if ((uintptr_t)stream <= LAST_DEFAULT) return CUDA_ERROR_INVALID_HANDLE;
  pthread_mutex_lock(&lock);
  bool known = knows(stream, STREAM_MAGIC, true);
  pthread_mutex_unlock(&lock);
  if (known) free(stream);
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

EXPORTED(cuStreamDestroy_v2, (Stream *stream), destroy_stream(stream))
EXPORTED(cuStreamDestroy, (Stream *stream), destroy_stream(stream))

static CUresult stream_query(Stream *stream) {
  CUresult state = cl_check_context();
  return state ? state : cl_check_stream(stream);
}
EXPORTED(cuStreamQuery, (Stream *stream), stream_query(stream))

static CUresult stream_synchronize(Stream *stream) {
  CUresult result = stream_query(stream);
  if (!result) cl_synchronized();
  return result;
}
EXPORTED(cuStreamSynchronize, (Stream *stream), stream_synchronize(stream))

static CUresult stream_wait_event(Stream *stream, Event *event, unsigned flags) {
  CUresult state = cl_check_context();
  if (state) return state;
  if (cl_check_stream(stream)) return CUDA_ERROR_INVALID_HANDLE;
  if (check_event(event)) return CUDA_ERROR_INVALID_HANDLE;
  return flags > EXTERNAL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
EXPORTED(cuStreamWaitEvent, (Stream *stream, Event *event, unsigned flags), stream_wait_event(stream, event, flags))

static CUresult stream_get_flags(Stream *stream, unsigned *flags) {
  if (!flags) return CUDA_ERROR_INVALID_VALUE;
  Stream known;
  if (read_stream(stream, &known)) return CUDA_ERROR_INVALID_HANDLE;
  *flags = known.flags;
  return CUDA_SUCCESS;
}
EXPORTED(cuStreamGetFlags, (Stream *stream, unsigned *flags), stream_get_flags(stream, flags))

static CUresult stream_get_priority(Stream *stream, int *priority) {
  if (!priority) return CUDA_ERROR_INVALID_VALUE;
  Stream known;
  if (read_stream(stream, &known)) return CUDA_ERROR_INVALID_HANDLE;
  *priority = known.priority;
  return CUDA_SUCCESS;
}
EXPORTED(cuStreamGetPriority, (Stream *stream, int *priority), stream_get_priority(stream, priority))

static CUresult stream_get_id(Stream *stream, uint64_t *id) {
  if (!id) return CUDA_ERROR_INVALID_VALUE;
  Stream known;
  if (read_stream(stream, &known)) return CUDA_ERROR_INVALID_HANDLE;
  *id = known.id;
  return CUDA_SUCCESS;
}
EXPORTED(cuStreamGetId, (Stream *stream, uint64_t *id), stream_get_id(stream, id))

static CUresult stream_get_ctx(Stream *stream, Context **context) {
  if (!context) return CUDA_ERROR_INVALID_VALUE;
  CUresult state;
  Context *current = cl_context(&state);
  if (state) return state;
  Stream known;
  if (read_stream(stream, &known)) return CUDA_ERROR_INVALID_HANDLE;
  *context = known.context ? known.context : current;
  return CUDA_SUCCESS;
}
EXPORTED(cuStreamGetCtx, (Stream *stream, Context **context), stream_get_ctx(stream, context))

static CUresult stream_get_device(Stream *stream, CUdevice *device) {
  if (!device) return CUDA_ERROR_INVALID_VALUE;
  CUresult state;
  Context *current = cl_context(&state);
  if (state) return state;
  Stream known;
  if (read_stream(stream, &known)) return CUDA_ERROR_INVALID_HANDLE;
  *device = (known.context ? known.context : current)->device;
  return CUDA_SUCCESS;
}
EXPORTED(cuStreamGetDevice, (Stream *stream, CUdevice *device), stream_get_device(stream, device))

static CUresult stream_is_capturing(Stream *stream, int *status) {
  if (!status) return CUDA_ERROR_INVALID_VALUE;
  if (cl_check_stream(stream)) return CUDA_ERROR_INVALID_HANDLE;
  *status = 0;
  return CUDA_SUCCESS;
}
EXPORTED(cuStreamIsCapturing, (Stream *stream, int *status), stream_is_capturing(stream, status))

static CUresult stream_add_callback(Stream *stream, void (*callback)(Stream *, CUresult, void *), void *data,
                                    unsigned flags) {
  if (!callback || flags) return CUDA_ERROR_INVALID_VALUE;
  if (cl_check_stream(stream)) return CUDA_ERROR_INVALID_HANDLE;
  callback(stream, CUDA_SUCCESS, data);
  return CUDA_SUCCESS;
}
EXPORTED(cuStreamAddCallback,
         (Stream *stream, void (*callback)(Stream *, CUresult, void *), void *data, unsigned flags),
         stream_add_callback(stream, callback, data, flags))

static CUresult launch_host_func(Stream *stream, void (*function)(void *), void *data) {
  if (!function) return CUDA_ERROR_INVALID_VALUE;
  if (cl_check_stream(stream)) return CUDA_ERROR_INVALID_HANDLE;
  function(data);
  return CUDA_SUCCESS;
}
EXPORTED(cuLaunchHostFunc, (Stream *stream, void (*function)(void *), void *data),
         launch_host_func(stream, function, data))

static CUresult stream_get_ctx_v2(Stream *stream, Context **context, void **green) {
  if (!context && !green) return CUDA_ERROR_INVALID_VALUE;
  CUresult state;
  Context *current = cl_context(&state);
  if (state) return state;
  Stream known;
  if (read_stream(stream, &known)) return CUDA_ERROR_INVALID_HANDLE;
  if (context) *context = known.context ? known.context : current;
  if (green) *green = NULL; /* no stream is of a green context */
  return CUDA_SUCCESS;
}
EXPORTED(cuStreamGetCtx_v2, (Stream *stream, Context **context, void **green),
         stream_get_ctx_v2(stream, context, green))

/* -- events -- */

enum { EVENT_NO_TIMING = 2, EVENT_FLAGS = 7 };

CUresult cl_flags_of_event(const void *event, unsigned *flags) {
  pthread_mutex_lock(&lock);
  bool known = event && knows(event, EVENT_MAGIC, false);
  if (known) *flags = ((const Event *)event)->flags;
  pthread_mutex_unlock(&lock);
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cl_make_event(void **out, unsigned flags) {
  Event *event = calloc(1, sizeof *event);
  if (!event) return CUDA_ERROR_OUT_OF_MEMORY;
  event->magic = EVENT_MAGIC;
  event->flags = flags;
  pthread_mutex_lock(&lock);
  bool kept = remember(event);
  pthread_mutex_unlock(&lock);
  if (!kept) {
    free(event);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *out = event;
  return CUDA_SUCCESS;
}

static CUresult event_create(EventLine *line, Event **out, unsigned flags) {
  cl_event_uint(line, "flags", flags);
  if (!out || flags & ~(unsigned)EVENT_FLAGS) return CUDA_ERROR_INVALID_VALUE;
  CUresult state = cl_check_context();
  return state ? state : cl_make_event((void **)out, flags);
}
EXPORTED(cuEventCreate, (Event **out, unsigned flags), event_create(line, out, flags))

static CUresult destroy_event(Event *event) {
  pthread_mutex_lock(&lock);
  bool known = event && knows(event, EVENT_MAGIC, true);
  pthread_mutex_unlock(&lock);
  if (known) free(event);
  return known ? CUDA_SUCCESS : event ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_HANDLE;
}

EXPORTED(cuEventDestroy_v2, (Event *event), destroy_event(event))
EXPORTED(cuEventDestroy, (Event *event), destroy_event(event))

static CUresult record(Event *event, Stream *stream) {
  if (cl_check_stream(stream)) return CUDA_ERROR_INVALID_HANDLE;
  pthread_mutex_lock(&lock);
  bool known = event && knows(event, EVENT_MAGIC, false);
  if (known) {
    clock_gettime(CLOCK_MONOTONIC, &event->time);
    event->recorded = true;
  }
  pthread_mutex_unlock(&lock);
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

EXPORTED(cuEventRecord, (Event *event, Stream *stream), record(event, stream))

static CUresult event_record_with_flags(Event *event, Stream *stream, unsigned flags) {
  return flags > EXTERNAL ? CUDA_ERROR_INVALID_VALUE : record(event, stream);
}
EXPORTED(cuEventRecordWithFlags, (Event *event, Stream *stream, unsigned flags),
         event_record_with_flags(event, stream, flags))

static CUresult ctx_record_event(Context *context, Event *event) {
  return cl_is_known_context(context) ? record(event, NULL) : CUDA_ERROR_INVALID_CONTEXT;
}
EXPORTED(cuCtxRecordEvent, (Context *context, Event *event), ctx_record_event(context, event))

static CUresult ctx_wait_event(Context *context, Event *event) {
  return cl_is_known_context(context) ? check_event(event) : CUDA_ERROR_INVALID_CONTEXT;
}
EXPORTED(cuCtxWaitEvent, (Context *context, Event *event), ctx_wait_event(context, event))

EXPORTED(cuEventQuery, (Event *event), check_event(event))

static CUresult event_synchronize(Event *event) {
  CUresult result = check_event(event);
  if (!result) cl_synchronized();
  return result;
}
EXPORTED(cuEventSynchronize, (Event *event), event_synchronize(event))

/* Copies an event; false if it is unknown, was not recorded, or takes no time. */
static bool read_event(const Event *event, Event *known) {
  pthread_mutex_lock(&lock);
  bool found = event && knows(event, EVENT_MAGIC, false);
  if (found) *known = *event;
  pthread_mutex_unlock(&lock);
  return found && known->recorded && !(known->flags & EVENT_NO_TIMING);
}

static CUresult elapsed(float *milliseconds, const Event *from, const Event *to) {
  Event start, end;
  if (!milliseconds) return CUDA_ERROR_INVALID_VALUE;
  if (!read_event(from, &start) || !read_event(to, &end)) return CUDA_ERROR_INVALID_HANDLE;
  *milliseconds =
      (float)(end.time.tv_sec - start.time.tv_sec) * 1e3f + (float)(end.time.tv_nsec - start.time.tv_nsec) * 1e-6f;
  return CUDA_SUCCESS;
}

EXPORTED(cuEventElapsedTime, (float *milliseconds, Event *start, Event *end), elapsed(milliseconds, start, end))
EXPORTED(cuEventElapsedTime_v2, (float *milliseconds, Event *start, Event *end), elapsed(milliseconds, start, end))
