/* What waits: for streams, for events, and streams for events; captured or not. */
#include "capture.h"
#include "happens_before.h"
#include "queues.h"
#include "sticky.h"

/* -- streams -- */

static CUresult may_wait_for(const void *handle, Stream **stream) {
  TRY(cl_refuse_captured(handle, stream));
  return cl_prohibited();
}

API_LOCKED(cuStreamQuery, (Stream *handle), (handle)) {
  Stream *stream;
  CUresult result = may_wait_for(handle, &stream);
  if (!result && cl_is_busy(stream, true)) return cl_asked_for_stream(stream), CUDA_ERROR_NOT_READY;
  if (cl_order_on && !result) cl_order_waited_stream(stream);
  return result;
}

static CUresult wait_for(const void *handle) {
  Stream *stream;
  CUresult result = may_wait_for(handle, &stream);
  if (!result) cl_wait_for_stream(stream);
  if (cl_order_on && !result) cl_order_waited_stream(stream);
  return result;
}

API(cuStreamSynchronize, (Stream *stream), (stream)) {
  TRY(LOCKED(wait_for(stream)));
  return cl_synchronized();
}

API_LOCKED_CHECKED(cl_refuse_null(handle), cuStreamDestroy_v2, (Stream *handle), (handle)) {
  if ((uintptr_t)handle <= CU_STREAM_PER_THREAD) return CUDA_ERROR_INVALID_HANDLE;
  Stream *stream = cl_stream(handle);
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->dead && cl_check_context() == CUDA_ERROR_CONTEXT_IS_DESTROYED) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  /* its context died, but is there again, as only a primary one can be (measured: test_a_capture_dies_with_its_context)
   */
  bool stale = stream->dead && !stream->context->dead;
  cl_capture_abandon(stream);
  cl_stream_free(stream);
  return stale ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

/* -- recording -- */

static CUresult find_event(void *handle, Event **event) {
  *event = cl_event(handle);
  /* NULL is no event, and what is gone has no context (measured: programs/core) */
  if (!*event) return handle ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_HANDLE;
  return (*event)->dead ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_SUCCESS;
}

/* Events for other processes cannot be captured (measured: test_events_of_captures). */
static CUresult refuse_interprocess(const Event *event, const Stream *stream) {
  bool refused = stream->capture && event->flags & CU_EVENT_INTERPROCESS;
  return refused ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

static CUresult record_captured(Event *event, Stream *stream, bool external) {
  if (external) {
    NodeParameters parameters = {.type = NODE_RECORD, .event = event};
    return cl_capture_node(stream, &parameters, NULL, NULL);
  }
  if (!cl_dependencies_copy(&event->work, &stream->next)) return CUDA_ERROR_OUT_OF_MEMORY;
  cl_event_follow(event, NULL);
  event->captured = stream->capture->id;
  event->recorded = true;
  return CUDA_SUCCESS;
}

/* Starts a work that is in no stream's queue and records the event. */
static CUresult record_by(Work *work, Event *event) {
  cl_event_follow(event, work);
  cl_work_start(work);
  return CUDA_SUCCESS;
}

/* Records behind the legacy stream's work, and leaves the stream itself without work. */
static CUresult record_beside(Event *event, Stream *stream, const NodeParameters *parameters) {
  Work *work = cl_work_make(parameters, stream->head.context);
  return work && cl_work_in_order(work, stream, false) ? record_by(work, event) : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Records when earlier work is done, of a blocking stream also that of the legacy one. Where that is all, an event of
   this process without a time is no work of the stream itself (recorded programs, theme "order"). */
static CUresult record_in_order(Event *event, Stream *stream) {
  bool mark = (event->flags & (CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS)) == CU_EVENT_DISABLE_TIMING;
  cl_event_follow(event, NULL);
  cl_event_stamp(event);
  if (cl_order_on) cl_order_record(event, stream);
  if (!cl_scheduled() && !cl_is_busy(stream, false)) return CUDA_SUCCESS;
  NodeParameters parameters = {.type = NODE_RECORD, .event = event};
  if (mark && !cl_scheduled() && !cl_is_busy(stream, true)) return record_beside(event, stream, &parameters);
  Work *work;
  CUresult result = cl_queue(stream, &parameters, false, &work);
  if (!result) cl_event_follow(event, work);
  return result;
}

static CUresult record(void *handle, const Context *current, const void *stream_handle, unsigned flags) {
  Stream *stream;
  Event *event;
  TRY(cl_stream_ready(stream_handle, &stream));
  TRY(find_event(handle, &event));
  if (flags > CU_EVENT_RECORD_EXTERNAL) return CUDA_ERROR_INVALID_VALUE;
  if (flags == CU_EVENT_RECORD_EXTERNAL && !stream->capture) return CUDA_ERROR_ILLEGAL_STATE;
  if (!cl_shares(stream->context ? stream->context : current, event->head.context)) return CUDA_ERROR_INVALID_HANDLE;
  TRY(refuse_interprocess(event, stream));
  if (stream->capture) return record_captured(event, stream, flags == CU_EVENT_RECORD_EXTERNAL);
  return record_in_order(event, stream);
}

static CUresult event_record(void *event, const void *stream, unsigned flags) {
  const Context *current = cl_current();
  TRY(cl_make_room(stream, ROOM_WORK));
  return LOCKED(record(event, current, stream, flags));
}
EXPORTED(cuEventRecord, (Event *event, Stream *stream), event_record(event, stream, 0))
EXPORTED(cuEventRecordWithFlags, (Event *event, Stream *stream, unsigned flags), event_record(event, stream, flags))

/* -- waiting -- */

/* An event of a capture has no work; of one that is over, or will have no graph, it is no event either (measured:
   test_events_of_captures). */
static CUresult refuse_captured(const Event *event) {
  if (!event->captured) return CUDA_SUCCESS;
  const Capture *capture = cl_capture_numbered(event->captured);
  return capture && !capture->invalid ? CUDA_ERROR_CAPTURED_EVENT : CUDA_ERROR_INVALID_VALUE;
}

static CUresult wait_captured(Event *event, Stream *stream, bool legacy) {
  Capture *capture = cl_capture_numbered(event->captured);
  /* as of a query (recorded programs) */
  if (!stream->capture && (!capture || capture->invalid)) return refuse_captured(event);
  if (!capture) return cl_invalidate(stream->capture), CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  if (capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (legacy) return cl_invalidate(capture), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  if (stream->capture && stream->capture != capture) {
    cl_invalidate(stream->capture);
    cl_invalidate(capture);
    return CUDA_ERROR_STREAM_CAPTURE_MERGE;
  }
  for (size_t at = 0; at < event->work.count; at++) {
    /* a node that was removed meanwhile is waited for no more */
    if (!cl_node(event->work.nodes[at]) || event->work.nodes[at]->graph != capture->graph) continue;
    if (!cl_dependencies_add(&stream->next, event->work.nodes[at], event->work.data[at]))
      return CUDA_ERROR_OUT_OF_MEMORY;
  }
  stream->capture = capture;
  return CUDA_SUCCESS;
}

static CUresult wait_in_order(Stream *stream, const Event *event) {
  if (cl_order_on) cl_order_wait(stream, event);
  return event->record ? cl_queue_behind(event->record, stream, &cl_no_work, true, NULL) : CUDA_SUCCESS;
}

API_LOCKED(cuStreamWaitEvent, (Stream *stream_handle, Event *handle, unsigned flags), (stream_handle, handle, flags)) {
  Stream *stream;
  Event *event;
  TRY(cl_stream_ready(stream_handle, &stream));
  if (flags > CU_EVENT_RECORD_EXTERNAL)
    return CUDA_ERROR_INVALID_VALUE; /* before the event (measured: programs/core) */
  TRY(find_event(handle, &event));
  CUresult refused = refuse_interprocess(event, stream);
  if (refused) return cl_invalidate(stream->capture), refused; /* a wait is worse than a record (recorded programs) */
  if (flags == CU_EVENT_RECORD_EXTERNAL) {
    if (!stream->capture) return CUDA_ERROR_ILLEGAL_STATE;
    CUresult result = refuse_captured(event);
    if (result == CUDA_ERROR_INVALID_VALUE)
      return cl_invalidate(stream->capture), result; /* (measured: edges/capture) */
    NodeParameters parameters = {.type = NODE_WAIT, .event = event};
    return cl_capture_node(stream, &parameters, NULL, NULL);
  }
  if (event->captured) return wait_captured(event, stream, cl_is_legacy(stream_handle));
  if (!stream->capture) return wait_in_order(stream, event);
  if (!event->recorded) return CUDA_SUCCESS;
  cl_invalidate(stream->capture);
  return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
}

/* -- events -- */

API(cuEventCreate, (Event **out, unsigned flags), (out, flags)) {
  cl_event_uint(line, "flags", flags);
  bool untimed = flags & CU_EVENT_DISABLE_TIMING, between_processes = flags & CU_EVENT_INTERPROCESS;
  IN_CONTEXT(context);
  if (!out || flags & ~(unsigned)EVENT_FLAGS || (between_processes && !untimed)) return CUDA_ERROR_INVALID_VALUE;
  return LOCKED(cl_event_make(flags, context, out));
}

API_LOCKED_CHECKED(cl_refuse_null(handle), cuEventDestroy_v2, (Event *handle), (handle)) {
  Event *event;
  CUresult result = find_event(handle, &event);
  if (!event) return result;
  cl_event_follow(event, NULL);
  cl_event_free(event);
  return result;
}

static CUresult may_wait_for_event(void *handle, Event **event) {
  TRY(find_event(handle, event));
  if (!(*event)->captured) return cl_prohibited();
  CUresult result = refuse_captured(*event);
  if (result == CUDA_ERROR_CAPTURED_EVENT) cl_invalidate(cl_capture_numbered((*event)->captured));
  return result;
}

API_LOCKED_CHECKED(cl_refuse_null(handle), cuEventQuery, (Event *handle), (handle)) {
  Event *event;
  CUresult result = may_wait_for_event(handle, &event);
  if (!result && event->record) return cl_asked_for(event->record), CUDA_ERROR_NOT_READY;
  if (cl_order_on && !result) cl_order_waited_event(event);
  return result;
}

static CUresult wait_for_event(void *handle) {
  Event *event;
  CUresult result = may_wait_for_event(handle, &event);
  if (!result && event->record) cl_wait_for(event->record);
  if (cl_order_on && !result) cl_order_waited_event(event);
  return result;
}

API_CHECKED(cl_refuse_null(event), cuEventSynchronize, (Event *event), (event)) {
  TRY(LOCKED(wait_for_event(event)));
  return cl_synchronized();
}

/* NULL is no context here, whichever one is current. */
static CUresult check_pair(const Context *context, const void *event) {
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  if (!cl_is_known_context(context)) return CUDA_ERROR_INVALID_CONTEXT;
  return context->dead ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_SUCCESS;
}

/* Uses an event under a context, whichever one is current, or none (two H200s). */
static CUresult in_context(Context *context, void *event, CUresult (*use)(Context *, void *)) {
  TRY(check_pair(context, event));
  if (!cl_push_context(context)) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = LOCKED(use(context, event));
  cl_pop_context();
  return result;
}

static CUresult record_all(Context *context, void *handle) {
  CUresult result = cl_refuse_captured_context(context);
  if (!result) result = record(handle, context, NULL, 0);
  Event *event = cl_event(handle);
  if (cl_order_on && !result) cl_order_record_context(event, context);
  if (result || !cl_any_pending()) return result;
  NodeParameters parameters = {.type = NODE_RECORD, .event = event};
  Work *work = cl_work_make(&parameters, context);
  if (!work || !cl_work_after_context(work, context, false)) return CUDA_ERROR_OUT_OF_MEMORY;
  if (cl_order_on) cl_order_place(work->op = cl_order_fork(true));
  return record_by(work, event);
}

API(cuCtxRecordEvent, (Context *context, Event *handle), (context, handle)) {
  return in_context(context, handle, record_all);
}

/* All streams of the context wait, also those whose work does not synchronize with the legacy one. */
static CUresult wait_all(Context *context, void *handle) {
  Event *event;
  CUresult result = cl_refuse_captured_context(context);
  if (!result) result = may_wait_for_event(handle, &event);
  EACH (Stream, stream, &cl_streams)
    if (!result && (event->record || cl_order_on) && stream->head.context == context)
      result = wait_in_order(stream, event);
  Stream *legacy = cl_legacy_of(context);
  return result || !legacy ? result : wait_in_order(legacy, event);
}

API(cuCtxWaitEvent, (Context *context, Event *handle), (context, handle)) {
  return in_context(context, handle, wait_all);
}

API_LOCKED_CHECKED(milliseconds && from && to ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime_v2,
                   (float *milliseconds, Event *from, Event *to), (milliseconds, from, to)) {
  Event *start, *end;
  if (!cl_event(from) || !cl_event(to)) return CUDA_ERROR_INVALID_HANDLE;
  TRY(find_event(from, &start));
  TRY(find_event(to, &end));
  TRY(refuse_captured(start));
  TRY(refuse_captured(end));
  if ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING || !start->recorded || !end->recorded)
    return CUDA_ERROR_INVALID_HANDLE;
  if (start->head.context != end->head.context) return CUDA_ERROR_INVALID_HANDLE; /* (measured: edges/events) */
  if (start->record || end->record) return CUDA_ERROR_NOT_READY;
  *milliseconds =
      (float)(end->time.tv_sec - start->time.tv_sec) * 1e3f + (float)(end->time.tv_nsec - start->time.tv_nsec) * 1e-6f;
  return CUDA_SUCCESS;
}
