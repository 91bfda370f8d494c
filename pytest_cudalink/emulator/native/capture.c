/* Capture: beginning, ending, what is refused meanwhile. */
#include "capture.h"

#include <stdlib.h>

#include "grow.h"
#include "processes.h"
#include "queues.h"
#include "sticky.h"
#include "waiters.h"

static Capture *captures; /* under the lock of the streams */
static atomic_int capture_count;
static uint64_t last_capture;

static _Thread_local int thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

static uint64_t this_thread(void) {
  static atomic_uint_least64_t last;
  static _Thread_local uint64_t number;
  if (!number) number = atomic_fetch_add(&last, 1) + 1;
  return number;
}

Capture *cl_capture_numbered(uint64_t number) {
  Capture *capture = captures;
  while (capture && capture->id != number) capture = capture->next;
  return capture;
}

/* -- calls that are unsafe while something is captured -- */

static bool prohibits(const Capture *capture) {
  if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return false;
  if (capture->thread == this_thread()) return capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
  return capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL && thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

static const char *spoiler; /* the call that last invalidated a capture, and how many captures ever were */
static uint64_t spoiled;
static bool spoiled_by_mode; /* that call may run while something is captured in another mode */

static void invalidate(Capture *capture, bool by_mode) {
  if (!capture->invalid) spoiler = cl_called(), spoiled++, spoiled_by_mode = by_mode;
  capture->invalid = true;
}

void cl_invalidate(Capture *capture) { invalidate(capture, false); }

/* Invalidates what prohibits a call. What waits for a whole context does not go while one of its streams is captured,
   in whatever mode; NULL: the call waits for none. */
static CUresult refuse(const Context *synchronized) {
  CUresult result = CUDA_SUCCESS;
  for (Capture *capture = captures; capture; capture = capture->next)
    if (synchronized ? capture->context == synchronized : prohibits(capture)) {
      invalidate(capture, !synchronized);
      result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
  return result;
}

CUresult cl_prohibited(void) { return refuse(NULL); }

CUresult cl_refuse_captured_context(const Context *context) { return refuse(context); }

static CUresult refuse_call(Sym symbol, const Context *context) {
  Stream *legacy;
  if (cl_symbols[symbol].legacy_work) return cl_stream_ready(NULL, &legacy);
  return refuse(symbol == SYM_cuCtxSynchronize ? context : NULL);
}

/* A call without a current context fails for that first. */
CUresult cl_guard_call(Sym symbol) {
  if (cl_symbols[symbol].held_up) cl_wait_while_locked();
  if (!atomic_load(&cl_guarded)) return CUDA_SUCCESS;
  cl_wait_for_locks(cl_symbols[symbol].held_up);
  const Symbol *call = &cl_symbols[symbol];
  if (!atomic_load(&capture_count) || !(call->unsafe_in_capture || call->legacy_work)) return CUDA_SUCCESS;
  return cl_check_context() ? CUDA_SUCCESS : LOCKED(refuse_call(symbol, cl_current()));
}

size_t cl_captures_open(int *mode, uint64_t *invalid, const char **call, bool *by_mode) {
  HOLD_STREAMS();
  *mode = thread_mode;
  *invalid = spoiled;
  *call = spoiler ? spoiler : "";
  *by_mode = spoiled_by_mode;
  return (size_t)atomic_load(&capture_count);
}

API(cuThreadExchangeStreamCaptureMode, (int *mode), (mode)) {
  if (!mode) return CUDA_ERROR_INVALID_VALUE;
  int before = thread_mode;
  thread_mode = *mode;
  *mode = before;
  return CUDA_SUCCESS;
}

/* -- operations in streams -- */

/* Whether the legacy stream would wait for captures of the current context; all of them may be invalidated by that. */
static bool implicit(bool spoils) {
  const Context *context = cl_current();
  bool found = false;
  if (!atomic_load(&capture_count)) return false;
  EACH (Stream, stream, &cl_streams) {
    if (!stream->capture || stream->flags & CU_STREAM_NON_BLOCKING || stream->context != context) continue;
    found = true;
    if (spoils) cl_invalidate(stream->capture);
  }
  return found;
}

CUresult cl_stream_ready(const void *handle, Stream **stream) {
  TRY(cl_stream_state(handle, stream));
  if (cl_is_legacy(handle)) return implicit(true) ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : CUDA_SUCCESS;
  Capture *capture = (*stream)->capture;
  return capture && capture->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}

CUresult cl_enter_stream(const void *handle, bool *captured) {
  Stream *stream;
  /* new work of the legacy stream looks at all streams of the context */
  if (atomic_load(&cl_guarded) && cl_is_legacy(handle) && cl_called_locks() & LOCK_SUBMISSION)
    cl_wait_for_locks(LOCK_CONTEXT);
  HOLD_STREAMS();
  CUresult result = cl_stream_ready(handle, &stream);
  *captured = !result && stream->capture;
  return result;
}

bool cl_must_wait(const void *handle) {
  Stream *stream;
  if (!cl_any_pending()) return false;
  HOLD_STREAMS();
  return !cl_stream_ready(handle, &stream) && (cl_scheduled() || cl_is_busy(stream, false));
}

CUresult cl_capture_node(Stream *stream, const NodeParameters *parameters, GraphMemory *memory, Node **node) {
  static const EdgeData plain;
  NodeParameters owned = *parameters;
  if (!cl_parameters_own(&owned)) return CUDA_ERROR_OUT_OF_MEMORY;
  Node *made = cl_node_add(stream->capture->graph, &owned, &stream->next);
  if (!made) return cl_parameters_free(&owned), CUDA_ERROR_OUT_OF_MEMORY;
  made->memory = memory;
  if (memory) memory->nodes++;
  cl_dependencies_empty(&stream->next);
  if (node) *node = made;
  return cl_dependencies_add(&stream->next, made, plain) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cl_submit(const void *handle, const NodeParameters *parameters) {
  Stream *stream;
  HOLD_STREAMS();
  TRY(cl_stream_ready(handle, &stream));
  return stream->capture ? cl_capture_node(stream, parameters, NULL, NULL) : cl_queue(stream, parameters, false, NULL);
}

CUresult cl_refuse_captured(const void *handle, Stream **stream) {
  CUresult result = cl_stream_ready(handle, stream);
  if ((result && result != CUDA_ERROR_STREAM_CAPTURE_INVALIDATED) || !(*stream)->capture) return result;
  cl_invalidate((*stream)->capture);
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

/* -- beginning and ending -- */

/* Whether a capture may begin in a stream. */
static CUresult may_begin(const void *handle, Stream **stream) {
  CUresult result = cl_stream_ready(handle, stream);
  if (result && result != CUDA_ERROR_STREAM_CAPTURE_INVALIDATED) return result;
  if (cl_is_legacy(handle)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  return (*stream)->capture ? CUDA_ERROR_ILLEGAL_STATE : CUDA_SUCCESS;
}

static CUresult begin(Stream *stream, Graph *into, int mode) {
  Capture *capture = calloc(1, sizeof *capture);
  Graph *graph = into ? into : cl_graph_make(false);
  if (!capture || !graph) {
    if (!into) cl_graph_free(graph);
    free(capture);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *capture = (Capture){.id = ++last_capture, .graph = graph, .owned = !into, .mode = mode, .origin = stream};
  capture->thread = this_thread();
  capture->context = cl_context_of(stream);
  capture->next = captures;
  graph->capture = capture;
  stream->capture = captures = capture;
  atomic_fetch_add(&capture_count, 1);
  atomic_fetch_add(&cl_guarded, 1);
  return CUDA_SUCCESS;
}

static CUresult begin_alone(const void *handle, int mode) {
  Stream *stream;
  TRY(may_begin(handle, &stream));
  cl_dependencies_empty(&stream->next);
  return begin(stream, NULL, mode);
}

static bool is_mode(int mode) { return mode >= 0 && mode < CAPTURE_MODES; }

static CUresult begin_capture(EventLine *line, const void *stream, int mode) {
  cl_event_int(line, "mode", mode);
  return is_mode(mode) ? LOCKED(begin_alone(stream, mode)) : CUDA_ERROR_INVALID_VALUE;
}
EXPORTED_WHEN(is_mode(mode), cuStreamBeginCapture_v2, (Stream *stream, int mode), begin_capture(line, stream, mode))
/* Before there were modes nothing was prohibited meanwhile. */
EXPORTED(cuStreamBeginCapture, (Stream *stream), begin_capture(line, stream, CU_STREAM_CAPTURE_MODE_RELAXED))

API_LOCKED_WHEN(graph_handle != NULL, cuStreamBeginCaptureToGraph,
                (Stream *handle, Graph *graph_handle, Node *const *nodes, const EdgeData *data, size_t count, int mode),
                (handle, graph_handle, nodes, data, count, mode)) {
  Stream *stream;
  Graph *graph = cl_graph(graph_handle);
  if (!graph || !is_mode(mode)) return CUDA_ERROR_INVALID_VALUE;
  TRY(may_begin(handle, &stream));
  if (graph->capture) return CUDA_ERROR_ILLEGAL_STATE;
  Dependencies on = {0};
  CUresult result = cl_gather(graph, NODE_KERNEL, nodes, data, count, &on, false);
  if (!result) result = begin(stream, graph, mode);
  if (result) return cl_dependencies_clear(&on), result;
  cl_dependencies_clear(&stream->next);
  stream->next = on;
  return CUDA_SUCCESS;
}

static void leave(Stream *stream) {
  stream->capture = NULL;
  cl_dependencies_clear(&stream->next);
}

/* Ends a capture. Its graph stays, if it is wanted or the caller's own. */
static void finish(Capture *capture, bool wanted) {
  Graph *graph = capture->graph;
  bool keep = !graph->orphan && (wanted || !capture->owned);
  EACH (Stream, stream, &cl_streams)
    if (stream->capture == capture) leave(stream);
  graph->capture = NULL;
  UNLINK(captures, capture);
  atomic_fetch_sub(&capture_count, 1);
  atomic_fetch_sub(&cl_guarded, 1);
  cl_dependencies_clear(&capture->left);
  free(capture);
  if (!keep) cl_graph_free(graph);
}

void cl_capture_abandon(Stream *stream) {
  Capture *capture = stream->capture;
  if (!capture) return;
  if (capture->origin != stream) {
    bool kept = true; /* what the stream did must be joined all the same */
    for (size_t at = 0; at < stream->next.count && kept; at++)
      kept = cl_dependencies_add(&capture->left, stream->next.nodes[at], stream->next.data[at]);
    if (!kept) cl_invalidate(capture);
    leave(stream);
    return;
  }
  finish(capture, false);
}

/* Captures end with the context that they began in, and other streams of it leave theirs. The destructors of user
   objects come later: this is called under the lock of the contexts. */
void cl_end_captures(const Context *context) {
  cl_streams_lock();
  for (Capture *capture = captures, *next; capture; capture = next) {
    next = capture->next;
    if (capture->context == context) finish(capture, false);
  }
  EACH (Stream, stream, &cl_streams)
    if (stream->context == context) cl_capture_abandon(stream);
  cl_streams_leave();
}

static bool all_joined(const Capture *capture) {
  cl_mark_needed(capture->graph, &capture->origin->next);
  for (size_t at = 0; at < capture->left.count; at++)
    if (cl_node(capture->left.nodes[at]) && !capture->left.nodes[at]->mark) return false;
  EACH (Stream, stream, &cl_streams) {
    if (stream->capture != capture || stream == capture->origin) continue;
    for (size_t at = 0; at < stream->next.count; at++)
      if (!stream->next.nodes[at]->mark) return false;
  }
  return true;
}

/* The streams that are not made belong to the current context, so there must be one. */
static CUresult in_context(const void *handle) {
  return (uintptr_t)handle <= CU_STREAM_PER_THREAD ? cl_check_context() : CUDA_SUCCESS;
}

API_LOCKED(cuStreamEndCapture, (Stream *handle, Graph **out), (handle, out)) {
  Stream *stream;
  if (out) *out = NULL;
  TRY(in_context(handle));
  CUresult result = cl_stream_ready(handle, &stream);
  if (result && result != CUDA_ERROR_STREAM_CAPTURE_INVALIDATED) return result;
  Capture *capture = stream->capture;
  if (!capture) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->origin != stream) return cl_invalidate(capture), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  if (!result && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != this_thread())
    result = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD; /* and it is over (measured: edges/capture) */
  if (!result && !all_joined(capture)) result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  bool wanted = !result && out;
  /* of an orphan the handle is dead from now on; the graph of what was invalidated goes, even the caller's own */
  capture->owned = capture->owned || result == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (out && (wanted || !capture->owned)) *out = capture->graph;
  finish(capture, wanted);
  return result;
}

/* -- asking -- */

static CUresult find_capture(const void *handle, Stream **stream, int *status) {
  TRY(in_context(handle));
  TRY(cl_stream_state(handle, stream));
  if (cl_is_legacy(handle) && implicit(false)) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  const Capture *capture = (*stream)->capture;
  *status = !capture           ? CU_STREAM_CAPTURE_STATUS_NONE
            : capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                               : CU_STREAM_CAPTURE_STATUS_ACTIVE;
  return CUDA_SUCCESS;
}

API(cuStreamIsCapturing, (Stream *handle, int *status), (handle, status)) {
  Stream *stream;
  return status ? LOCKED(find_capture(handle, &stream, status)) : CUDA_ERROR_INVALID_VALUE;
}

typedef struct {
  int *status;
  uint64_t *id;
  Graph **graph;
  Node ***nodes;
  EdgeData **data;
  size_t *count;
} Info;

static CUresult capture_info(const void *handle, Info *info) {
  Stream *stream;
  if (!info->status) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = find_capture(handle, &stream, info->status);
  if (result || *info->status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return result;
  if (info->data && !info->nodes) return CUDA_ERROR_INVALID_VALUE;
  for (size_t at = 0; info->nodes && !info->data && at < stream->next.count; at++)
    if (!cl_is_plain(stream->next.data[at])) return CUDA_ERROR_LOSSY_QUERY;
  if (info->id) *info->id = stream->capture->id;
  if (info->graph) *info->graph = stream->capture->graph;
  if (info->nodes) *info->nodes = stream->next.nodes;
  if (info->data) *info->data = stream->next.data;
  if (info->count) *info->count = stream->next.count;
  return CUDA_SUCCESS;
}
EXPORTED(cuStreamGetCaptureInfo, (Stream *stream, int *status, uint64_t *id),
         LOCKED(capture_info(stream, &(Info){.status = status, .id = id})))
EXPORTED(cuStreamGetCaptureInfo_v2,
         (Stream *stream, int *status, uint64_t *id, Graph **graph, Node ***nodes, size_t *count),
         LOCKED(capture_info(stream, &(Info){status, id, graph, nodes, NULL, count})))
EXPORTED(cuStreamGetCaptureInfo_v3,
         (Stream *stream, int *status, uint64_t *id, Graph **graph, Node ***nodes, EdgeData **data, size_t *count),
         LOCKED(capture_info(stream, &(Info){status, id, graph, nodes, data, count})))

static CUresult update(const void *handle, Node *const *nodes, const EdgeData *data, size_t count, unsigned flags) {
  Stream *stream;
  TRY(in_context(handle));
  TRY(cl_stream_ready(handle, &stream));
  if (!stream->capture) return CUDA_ERROR_ILLEGAL_STATE;
  if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES) return CUDA_ERROR_INVALID_VALUE;
  Dependencies all = {0};
  if (flags == CU_STREAM_ADD_CAPTURE_DEPENDENCIES && !cl_dependencies_copy(&all, &stream->next))
    return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = cl_gather(stream->capture->graph, NODE_KERNEL, nodes, data, count, &all, false);
  if (result) return cl_dependencies_clear(&all), result;
  cl_dependencies_clear(&stream->next);
  stream->next = all;
  return CUDA_SUCCESS;
}
EXPORTED(cuStreamUpdateCaptureDependencies, (Stream *stream, Node *const *nodes, size_t count, unsigned flags),
         LOCKED(update(stream, nodes, NULL, count, flags)))
EXPORTED(cuStreamUpdateCaptureDependencies_v2,
         (Stream *stream, Node *const *nodes, const EdgeData *data, size_t count, unsigned flags),
         LOCKED(update(stream, nodes, data, count, flags)))

/* -- room in streams: one with very much unfinished work takes no more -- */

CUresult cl_make_room(const void *handle, Room what) {
  Stream *stream;
  bool waited = false;
  if (!cl_any_pending()) return CUDA_SUCCESS;
  cl_streams_lock();
  while (!cl_stream_ready(handle, &stream) && !stream->capture && stream->depth > cl_room_for(what)) {
    Work *first = cl_pending;
    while (first->in != stream) first = first->behind;
    cl_wait_for(first);
    waited = true;
  }
  cl_streams_unlock(CUDA_SUCCESS);
  return waited ? cl_waited_answer() : CUDA_SUCCESS;
}
