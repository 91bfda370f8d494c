/* Streams and events. */
#include "streams.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "contexts.h"

enum { STREAM_MAGIC = 0x7374726d, EVENT_MAGIC = 0x65766e74 };

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

/* A thread may hold a lock while another one forks; in the child nobody would release it. */
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

/* NULL, 1 and 2 are the default streams. */
CUresult cl_check_stream(const void *stream) {
  if ((uintptr_t)stream <= 2) return CUDA_SUCCESS;
  pthread_mutex_lock(&lock);
  bool known = knows(stream, STREAM_MAGIC, false);
  pthread_mutex_unlock(&lock);
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* What is known of a stream, so that none is looked at while another thread destroys it. Of a default one that is its
   number. */
static CUresult read_stream(const Stream *stream, Stream *known) {
  *known = (Stream){.id = (uintptr_t)stream};
  if ((uintptr_t)stream <= 2) return CUDA_SUCCESS;
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

#define NEED_EVENT(event) \
  if (check_event(event)) LEAVE(CUDA_ERROR_INVALID_HANDLE, "")

static CUresult create_stream(Stream **out, unsigned flags, int priority) {
  CUresult result;
  Context *context = cl_context(&result);
  if (!out || flags > 1) return CUDA_ERROR_INVALID_VALUE;
  if (result) return result;
  Stream *stream = calloc(1, sizeof *stream);
  if (!stream) return CUDA_ERROR_OUT_OF_MEMORY;
  stream->magic = STREAM_MAGIC;
  stream->flags = flags;
  stream->priority = priority > 0 ? 0 : priority < -5 ? -5 : priority;
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

EXPORT CUresult cuStreamCreate(Stream **stream, unsigned flags) {
  ENTER(cuStreamCreate);
  LEAVE(create_stream(stream, flags, 0), ",\"flags\":%u", flags);
}

EXPORT CUresult cuStreamCreateWithPriority(Stream **stream, unsigned flags, int priority) {
  ENTER(cuStreamCreateWithPriority);
  LEAVE(create_stream(stream, flags, priority), ",\"flags\":%u,\"priority\":%d", flags, priority);
}

static CUresult destroy_stream(Stream *stream) {
  if ((uintptr_t)stream <= 2) return CUDA_ERROR_INVALID_HANDLE;
  pthread_mutex_lock(&lock);
  bool known = knows(stream, STREAM_MAGIC, true);
  pthread_mutex_unlock(&lock);
  if (known) free(stream);
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

EXPORT CUresult cuStreamDestroy_v2(Stream *stream) {
  ENTER(cuStreamDestroy_v2);
  LEAVE(destroy_stream(stream), "");
}

EXPORT CUresult cuStreamDestroy(Stream *stream) {
  ENTER(cuStreamDestroy);
  LEAVE(destroy_stream(stream), "");
}

EXPORT CUresult cuStreamQuery(Stream *stream) {
  ENTER(cuStreamQuery);
  NEED_CONTEXT(context);
  NEED_STREAM(stream);
  LEAVE(CUDA_SUCCESS, "");
}

EXPORT CUresult cuStreamSynchronize(Stream *stream) {
  ENTER(cuStreamSynchronize);
  NEED_CONTEXT(context);
  NEED_STREAM(stream);
  LEAVE(CUDA_SUCCESS, "");
}

EXPORT CUresult cuStreamWaitEvent(Stream *stream, Event *event, unsigned flags) {
  ENTER(cuStreamWaitEvent);
  NEED_CONTEXT(context);
  NEED_STREAM(stream);
  NEED_EVENT(event);
  LEAVE(flags > 1 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS, "");
}

EXPORT CUresult cuStreamGetFlags(Stream *stream, unsigned *flags) {
  ENTER(cuStreamGetFlags);
  if (!flags) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  Stream known;
  if (read_stream(stream, &known)) LEAVE(CUDA_ERROR_INVALID_HANDLE, "");
  *flags = known.flags;
  LEAVE(CUDA_SUCCESS, "");
}

EXPORT CUresult cuStreamGetPriority(Stream *stream, int *priority) {
  ENTER(cuStreamGetPriority);
  if (!priority) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  Stream known;
  if (read_stream(stream, &known)) LEAVE(CUDA_ERROR_INVALID_HANDLE, "");
  *priority = known.priority;
  LEAVE(CUDA_SUCCESS, "");
}

EXPORT CUresult cuStreamGetId(Stream *stream, uint64_t *id) {
  ENTER(cuStreamGetId);
  if (!id) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  Stream known;
  if (read_stream(stream, &known)) LEAVE(CUDA_ERROR_INVALID_HANDLE, "");
  *id = known.id;
  LEAVE(CUDA_SUCCESS, "");
}

EXPORT CUresult cuStreamGetCtx(Stream *stream, Context **context) {
  ENTER(cuStreamGetCtx);
  if (!context) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  NEED_CONTEXT(current);
  Stream known;
  if (read_stream(stream, &known)) LEAVE(CUDA_ERROR_INVALID_HANDLE, "");
  *context = known.context ? known.context : current;
  LEAVE(CUDA_SUCCESS, "");
}

EXPORT CUresult cuStreamGetDevice(Stream *stream, CUdevice *device) {
  ENTER(cuStreamGetDevice);
  if (!device) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  NEED_CONTEXT(current);
  Stream known;
  if (read_stream(stream, &known)) LEAVE(CUDA_ERROR_INVALID_HANDLE, "");
  *device = (known.context ? known.context : current)->device;
  LEAVE(CUDA_SUCCESS, "");
}

EXPORT CUresult cuStreamIsCapturing(Stream *stream, int *status) {
  ENTER(cuStreamIsCapturing);
  if (!status) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  NEED_STREAM(stream);
  *status = 0;
  LEAVE(CUDA_SUCCESS, "");
}

EXPORT CUresult cuStreamAddCallback(Stream *stream, void (*callback)(Stream *, CUresult, void *), void *data,
                                    unsigned flags) {
  ENTER(cuStreamAddCallback);
  if (!callback || flags) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  NEED_STREAM(stream);
  callback(stream, CUDA_SUCCESS, data);
  LEAVE(CUDA_SUCCESS, "");
}

EXPORT CUresult cuLaunchHostFunc(Stream *stream, void (*function)(void *), void *data) {
  ENTER(cuLaunchHostFunc);
  if (!function) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  NEED_STREAM(stream);
  function(data);
  LEAVE(CUDA_SUCCESS, "");
}

EXPORT CUresult cuStreamGetCtx_v2(Stream *stream, Context **context, void **green) {
  ENTER(cuStreamGetCtx_v2);
  if (!context && !green) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  NEED_CONTEXT(current);
  Stream known;
  if (read_stream(stream, &known)) LEAVE(CUDA_ERROR_INVALID_HANDLE, "");
  if (context) *context = known.context ? known.context : current;
  if (green) *green = NULL; /* no stream is of a green context */
  LEAVE(CUDA_SUCCESS, "");
}

/* -- events -- */

enum { EVENT_NO_TIMING = 2, EVENT_FLAGS = 7 };

EXPORT CUresult cuEventCreate(Event **out, unsigned flags) {
  ENTER(cuEventCreate);
  if (!out || flags & ~(unsigned)EVENT_FLAGS) LEAVE(CUDA_ERROR_INVALID_VALUE, ",\"flags\":%u", flags);
  NEED_CONTEXT(context);
  Event *event = calloc(1, sizeof *event);
  if (!event) LEAVE(CUDA_ERROR_OUT_OF_MEMORY, "");
  event->magic = EVENT_MAGIC;
  event->flags = flags;
  pthread_mutex_lock(&lock);
  bool kept = remember(event);
  pthread_mutex_unlock(&lock);
  if (!kept) {
    free(event);
    LEAVE(CUDA_ERROR_OUT_OF_MEMORY, "");
  }
  *out = event;
  LEAVE(CUDA_SUCCESS, ",\"flags\":%u", flags);
}

static CUresult destroy_event(Event *event) {
  pthread_mutex_lock(&lock);
  bool known = event && knows(event, EVENT_MAGIC, true);
  pthread_mutex_unlock(&lock);
  if (known) free(event);
  return known ? CUDA_SUCCESS : event ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_HANDLE;
}

EXPORT CUresult cuEventDestroy_v2(Event *event) {
  ENTER(cuEventDestroy_v2);
  LEAVE(destroy_event(event), "");
}

EXPORT CUresult cuEventDestroy(Event *event) {
  ENTER(cuEventDestroy);
  LEAVE(destroy_event(event), "");
}

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

EXPORT CUresult cuEventRecord(Event *event, Stream *stream) {
  ENTER(cuEventRecord);
  LEAVE(record(event, stream), "");
}

EXPORT CUresult cuEventRecordWithFlags(Event *event, Stream *stream, unsigned flags) {
  ENTER(cuEventRecordWithFlags);
  if (flags > 1) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  LEAVE(record(event, stream), "");
}

EXPORT CUresult cuCtxRecordEvent(Context *context, Event *event) {
  ENTER(cuCtxRecordEvent);
  if (!cl_is_known_context(context)) LEAVE(CUDA_ERROR_INVALID_CONTEXT, "");
  LEAVE(record(event, NULL), "");
}

EXPORT CUresult cuCtxWaitEvent(Context *context, Event *event) {
  ENTER(cuCtxWaitEvent);
  if (!cl_is_known_context(context)) LEAVE(CUDA_ERROR_INVALID_CONTEXT, "");
  NEED_EVENT(event);
  LEAVE(CUDA_SUCCESS, "");
}

EXPORT CUresult cuEventQuery(Event *event) {
  ENTER(cuEventQuery);
  NEED_EVENT(event);
  LEAVE(CUDA_SUCCESS, "");
}

EXPORT CUresult cuEventSynchronize(Event *event) {
  ENTER(cuEventSynchronize);
  NEED_EVENT(event);
  LEAVE(CUDA_SUCCESS, "");
}

/* What was recorded of an event that can tell a time. */
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
  *milliseconds = (float)(end.time.tv_sec - start.time.tv_sec) * 1e3f +
                  (float)(end.time.tv_nsec - start.time.tv_nsec) * 1e-6f;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuEventElapsedTime(float *milliseconds, Event *start, Event *end) {
  ENTER(cuEventElapsedTime);
  LEAVE(elapsed(milliseconds, start, end), "");
}

EXPORT CUresult cuEventElapsedTime_v2(float *milliseconds, Event *start, Event *end) {
  ENTER(cuEventElapsedTime_v2);
  LEAVE(elapsed(milliseconds, start, end), "");
}
