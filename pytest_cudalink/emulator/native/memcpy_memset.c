/* cuMemcpy* and cuMemset*, in the order of a stream. */
#include <stdlib.h>
#include <string.h>

#include "accesses.h"
#include "blocks.h"
#include "capture.h"
#include "copied_bytes.h"
#include "graph_memory.h"
#include "locks.h"
#include "sticky.h"
#include "waiters.h"
#include "watched_copies.h"

enum { ASYNCHRONOUS, SYNCHRONOUS };

/* -- lines -- */

static CUresult submit_box(const Box *box, const void *stream) {
  NodeParameters parameters = {.type = NODE_COPY, .copy = {.context = cl_context_in(stream), .box = *box}};
  return cl_submit(stream, &parameters);
}

static Side of_any(CUdeviceptr address) { return (Side){.type = CU_MEMORYTYPE_UNIFIED, .device = address}; }
static Side of_device(CUdeviceptr address) { return (Side){.type = CU_MEMORYTYPE_DEVICE, .device = address}; }
static Side of_host(const void *address) {
  return (Side){.type = CU_MEMORYTYPE_HOST, .host = (void *)(uintptr_t)address};
}
static Side of_array(void *array, size_t offset) {
  return (Side){.type = CU_MEMORYTYPE_ARRAY, .array = array, .x = offset};
}

static CUresult copy_in_order(const Box *box, const void *stream, int form);

/* What a form answers before its copy is looked at. */
static CUresult enter(const void *stream, int form, bool *captured) {
  *captured = false;
  return form == SYNCHRONOUS ? cl_check_context() : cl_enter_stream(stream, captured);
}

/* Whether a copy may be captured that has a line. Where the caller does not say what it is, what we do not know is
   taken for memory of the host (measured: test_dead_pointers), and the launch fails. */
static bool can_capture(const Side *side, size_t size) {
  CUdeviceptr start = cl_side_address(side);
  HOLD_TO_READ(cl_memory_lock);
  bool host = side->type == CU_MEMORYTYPE_HOST || (side->type == CU_MEMORYTYPE_UNIFIED && !cl_held_known(start));
  return start && (host || cl_held_within(start, size));
}

static CUresult copy(EventLine *line, Side to, Side from, size_t size, const void *stream, int form) {
  bool captured;
  cl_event_uint(line, "bytes", size);
  TRY(enter(stream, form, &captured));
  if (!size) return CUDA_SUCCESS;
  if (captured && !(can_capture(&to, size) && can_capture(&from, size))) return CUDA_ERROR_INVALID_VALUE;
  /* ordinary programs have nothing pending, and their small copies need no box */
  if (!captured && !cl_any_pending() && !cl_order_on) return cl_copy_line(&to, &from, size);
  const Box box = {from, to, size, 1, 1};
  return captured ? submit_box(&box, stream) : copy_in_order(&box, stream, form);
}

/* Both forms of a copy of one line. */
#define MEMCPY(name, version, to_type, to_side, from_type, from_side)                               \
  EXPORTED(cuMemcpy##name##version, (to_type to, from_type from, size_t size),                      \
           copy(line, to_side(to), from_side(from), size, NULL, SYNCHRONOUS))                       \
  EXPORTED(cuMemcpy##name##Async##version, (to_type to, from_type from, size_t size, void *stream), \
           copy(line, to_side(to), from_side(from), size, stream, ASYNCHRONOUS))
MEMCPY(, , CUdeviceptr, of_any, CUdeviceptr, of_any)
MEMCPY(HtoD, _v2, CUdeviceptr, of_device, const void *, of_host)
MEMCPY(DtoH, _v2, void *, of_host, CUdeviceptr, of_device)
MEMCPY(DtoD, _v2, CUdeviceptr, of_device, CUdeviceptr, of_device)

/* The contexts say which devices must have access, whichever is current (measured: edges/two_denied). */
static CUresult copy_peers(EventLine *line, CUdeviceptr to, const Context *to_context, CUdeviceptr from,
                           const Context *from_context, size_t size, const void *stream, int form) {
  bool known =
      size && to_context && from_context && cl_is_known_context(to_context) && cl_is_known_context(from_context);
  if (known && !(cl_is_open_to(to_context, to) && cl_is_open_to(from_context, from))) return CUDA_ERROR_INVALID_VALUE;
  Side to_side = of_device(to), from_side = of_device(from);
  if (known) to_side.other = from_side.other = (void *)(uintptr_t)&cl_of_peer;
  return copy(line, to_side, from_side, size, stream, form);
}

API(cuMemcpyPeer, (CUdeviceptr to, Context *to_context, CUdeviceptr from, Context *from_context, size_t size),
    (to, to_context, from, from_context, size)) {
  if (size) TRY(cl_check_peers(to_context, from_context)); /* of nothing not even dead ones matter (H200) */
  return copy_peers(line, to, to_context, from, from_context, size, NULL, SYNCHRONOUS);
}

/* A copy between devices cannot be captured, even if it is between contexts of one
   (measured: edges/capture_nodes). */
static CUresult refuse_captured(const void *stream) {
  Stream *known;
  return LOCKED(cl_refuse_captured(stream, &known));
}

API(cuMemcpyPeerAsync,
    (CUdeviceptr to, Context *to_context, CUdeviceptr from, Context *from_context, size_t size, void *stream),
    (to, to_context, from, from_context, size, stream)) {
  TRY(refuse_captured(stream));
  TRY(cl_check_peers(to_context, from_context));
  return copy_peers(line, to, to_context, from, from_context, size, stream, ASYNCHRONOUS);
}

/* -- copying rectangles and boxes -- */

/* One side of CUDA_MEMCPY2D. */
typedef struct {
  size_t x, y;
  unsigned type;
  void *host;
  CUdeviceptr device;
  void *array;
  size_t pitch;
} FlatSide;

typedef struct {
  FlatSide from, to;
  size_t width, height;
} Rectangle;

/* -- the order of a stream -- */

enum { WAITS_STREAM, WAITS_STAGED, WAITS_DRAINED, WAITS_CALLER };

#include "synchronization.inc"

static Memory memory_at(CUdeviceptr address) {
  Memory memory = cl_memory_at(address);
  return memory == MEMORY_POOL ? MEMORY_DEVICE : memory;
}

static CUdeviceptr address_of(const Side *side) {
  return side->type == CU_MEMORYTYPE_ARRAY ? 0 : cl_side_address(side);
}

static Memory memory_of(const Side *side) {
  return side->type == CU_MEMORYTYPE_ARRAY ? MEMORY_DEVICE : memory_at(address_of(side));
}

/* Waits until the stream can do new work. */
static CUresult drain(const void *handle, const WaitRow *row) {
  Stream *stream;
  Holder holder;
  TRY(cl_refuse_captured(handle, &stream));
  if (row) cl_hold(&holder, row->holds | (stream->is_legacy ? LOCK_SUBMISSION : 0), stream->head.context);
  cl_drain(stream);
  if (row) cl_let_go(&holder);
  return cl_waited_answer();
}

/* Reads the source of a copy now, so that its owner may change it. */
static CUresult stage(const Box *box, const void *handle) {
  Stream *stream;
  Work *work;
  NodeParameters parameters = {.type = NODE_COPY, .copy.box = *box};
  Side *from = &parameters.copy.box.from;
  char *staged = cl_read_box(box);
  if (!staged) return CUDA_ERROR_OUT_OF_MEMORY;
  *from = (Side){.type = CU_MEMORYTYPE_HOST, .host = staged, .pitch = box->width, .height = box->height};
  CUresult result = cl_stream_ready(handle, &stream);
  if (!result) result = cl_queue(stream, &parameters, false, &work);
  if (!result) work->staged = staged;
  else free(staged);
  return result;
}

/* The host waited for what a stream had before a copy. */
static CUresult note_drained(const void *handle) {
  const Stream *stream = cl_stream(handle);
  if (stream) cl_order_waited_stream(stream);
  return CUDA_SUCCESS;
}

/* Under a schedule, what is done for the caller alone when it returns is done later. */
static CUresult drain_and_stage(const Box *box, const void *handle, const WaitRow *row, bool *staged) {
  CUresult result = drain(handle, row);
  *staged = !result && cl_scheduled() && box->width * box->height * box->depth <= COPIED_LATER_MAX;
  if (!*staged) return result;
  if (cl_order_on) note_drained(handle);
  return stage(box, handle);
}

static Watch *watch_side(const Side *side, const Box *box, bool reads) {
  Range memory;
  return side->type != CU_MEMORYTYPE_ARRAY && cl_range_of(side, box, &memory) ? cl_watch_copy(&memory, reads) : NULL;
}

static Watch *watch_box(const Box *box) {
  Watch *watch = watch_side(&box->from, box, true);
  return watch ? watch : watch_side(&box->to, box, false);
}

/* The copy and the host's memory of it are watched until it is done. */
static CUresult queue_box(const Box *box, const void *handle, Watch *watch) {
  Stream *stream;
  Work *work;
  TRY(cl_stream_ready(handle, &stream));
  TRY(cl_queue(stream, &(NodeParameters){.type = NODE_COPY, .copy.box = *box}, false, &work));
  work->watch = watch;
  return CUDA_SUCCESS;
}

/* Whether a synchronous form is done when it returns, in any memory. */
static bool synchronizes(CUdeviceptr address) {
  const Context *context = cl_current();
  if (context && context->flags & CU_CTX_SYNC_MEMOPS) return true;
  HOLD_BLOCK(block, address);
  return block && block->sync_memops;
}

static int waits_of(const WaitFacts *facts, int form) {
  return facts->sync_memops ? WAITS_CALLER : copy_waits[form][facts->source][facts->to];
}

static int fill_waits_of(const WaitFacts *facts, int form) {
  return facts->sync_memops ? WAITS_CALLER : fill_waits[form][facts->memory];
}

static WaitFacts facts_of(const Box *box, int form) {
  size_t size = box->width * box->height * box->depth;
  bool sync = form == SYNCHRONOUS && (synchronizes(address_of(&box->from)) || synchronizes(address_of(&box->to)));
  return (WaitFacts){.to = memory_of(&box->to), .source = memory_of(&box->from), .size = size, .sync_memops = sync};
}

static WaitFacts facts_of_fill(const FillNode *fill, int form) {
  bool sync = form == SYNCHRONOUS && synchronizes(fill->to);
  return (WaitFacts){.memory = memory_at(fill->to), .sync_memops = sync};
}

/* Checks the order of a copy that was done at once. Pageable memory is read by the host. */
static void note_order(const Box *box, const void *stream, int form) {
  const WaitFacts facts = facts_of(box, form);
  int waits = waits_of(&facts, form);
  if (waits == WAITS_DRAINED) (void)LOCKED(note_drained(stream));
  Op *op = cl_order_enter(stream);
  if (!op) return;
  cl_touch_box(op, box, waits == WAITS_STAGED || waits == WAITS_DRAINED);
  if (waits == WAITS_CALLER) cl_order_learn(op);
  cl_order_drop(op);
}

/* Copies a box at once if nothing is before it in a stream, else in its queue; the caller waits where
   data/emulator/synchronization.toml says so. `form`: of the function, with or without a stream. */
static CUresult do_in_order(const Box *box, const void *stream, int form, bool *queued) {
  if (!cl_any_pending()) return cl_copy_box(box);
  WaitFacts facts = facts_of(box, form);
  cl_will_wait(&facts);
  if (!cl_must_wait(stream)) return cl_copy_box(box);
  TRY(cl_check_box(box));
  int waits = waits_of(&facts, form);
  const WaitRow *row = cl_called_row(&facts);
  if ((row || waits == WAITS_STAGED) && !cl_waits_by(row)) waits = WAITS_STREAM;
  else if (row && waits == WAITS_STAGED) waits = WAITS_CALLER; /* it is too large */
  *queued = waits < WAITS_DRAINED;
  if (*queued) TRY(cl_make_room(stream, waits == WAITS_STAGED ? ROOM_STAGED : ROOM_COPY));
  if (waits == WAITS_STAGED) return LOCKED(stage(box, stream));
  if (waits == WAITS_STREAM) {
    Watch *watch = watch_box(box);
    return LOCKED(queue_box(box, stream, watch));
  }
  CUresult result = LOCKED(waits == WAITS_DRAINED ? drain_and_stage(box, stream, row, queued) : drain(stream, row));
  return result || *queued ? result : cl_copy_box(box);
}

static CUresult copy_in_order(const Box *box, const void *stream, int form) {
  bool queued = false;
  CUresult result = do_in_order(box, stream, form, &queued);
  if (cl_order_on && !result && !queued) note_order(box, stream, form);
  return result;
}

CUresult cl_copy_box_in(const Box *box, const void *stream) { return copy_in_order(box, stream, ASYNCHRONOUS); }

static CUresult do_box(const Box *box, const void *stream, int form) {
  bool captured;
  TRY(enter(stream, form, &captured));
  if (!box->width || !box->height || !box->depth) return cl_copy_box(box);
  if (captured) TRY(cl_check_box(box));
  if (captured) return submit_box(box, stream);
  if (cl_graph_memory_waits(box->from.device) || cl_graph_memory_waits(box->to.device)) return CUDA_ERROR_INVALID_VALUE;
  return copy_in_order(box, stream, form);
}

static CUresult copy_box_in(EventLine *line, const Box *box, const void *stream, int form) {
  CUresult state = cl_check_context();
  if (!box) return state ? state : CUDA_ERROR_INVALID_VALUE;
  CUresult result = do_box(box, stream, form);
  cl_event_uint(line, "width", box->width);
  cl_event_uint(line, "height", box->height);
  cl_event_uint(line, "depth", box->depth);
  return result;
}

static Side deep(const FlatSide *flat) {
  return (Side){flat->x, flat->y, 0, 0, flat->type, flat->host, flat->device, flat->array, NULL, flat->pitch, 0};
}

static CUresult copy_rectangle_in(EventLine *line, const Rectangle *flat, const void *stream, int form) {
  if (!flat) return CUDA_ERROR_INVALID_VALUE;
  Box box = {deep(&flat->from), deep(&flat->to), flat->width, flat->height, 1};
  return copy_box_in(line, &box, stream, form);
}

EXPORTED(cuMemcpy2D_v2, (const Rectangle *flat), copy_rectangle_in(line, flat, NULL, SYNCHRONOUS))
EXPORTED(cuMemcpy2DUnaligned_v2, (const Rectangle *flat), copy_rectangle_in(line, flat, NULL, SYNCHRONOUS))
EXPORTED(cuMemcpy2DAsync_v2, (const Rectangle *flat, void *stream), copy_rectangle_in(line, flat, stream, ASYNCHRONOUS))
EXPORTED(cuMemcpy3D_v2, (const Box *box), copy_box_in(line, box, NULL, SYNCHRONOUS))
EXPORTED(cuMemcpy3DAsync_v2, (const Box *box, void *stream), copy_box_in(line, box, stream, ASYNCHRONOUS))

static CUresult copy_box_to_peer(EventLine *line, const Box *box, const void *stream, int form) {
  if (box && form == ASYNCHRONOUS) TRY(refuse_captured(stream));
  if (box) TRY(cl_check_peers(box->to.other, box->from.other));
  return copy_box_in(line, box, stream, form);
}
EXPORTED(cuMemcpy3DPeer, (const Box *pCopy), copy_box_to_peer(line, pCopy, NULL, SYNCHRONOUS))
EXPORTED(cuMemcpy3DPeerAsync, (const Box *pCopy, void *stream), copy_box_to_peer(line, pCopy, stream, ASYNCHRONOUS))

/* -- setting -- */

static void note_fill(const FillNode *fill, const void *stream, int form) {
  Op *op = cl_order_enter(stream);
  if (!op) return;
  cl_touch_parameters(op, &(NodeParameters){.type = NODE_FILL, .fill = *fill});
  WaitFacts facts = facts_of_fill(fill, form);
  if (fill_waits_of(&facts, form) == WAITS_CALLER) cl_order_learn(op);
  cl_order_drop(op);
}

static CUresult fill_in_order(const FillNode *fill, const void *stream, int form) {
  CUresult result = CUDA_SUCCESS;
  WaitFacts facts = {.size = 0};
  bool pending = cl_any_pending();
  if (pending) {
    facts = facts_of_fill(fill, form);
    cl_will_wait(&facts);
  }
  if (pending && cl_must_wait(stream)) {
    result = cl_check_fill(fill->to, fill->element, fill->pitch, fill->width, fill->height);
    bool queued = fill_waits_of(&facts, form) == WAITS_STREAM;
    if (!result && queued) result = cl_make_room(stream, ROOM_WORK);
    if (result) return result;
    if (queued) return cl_submit(stream, &(NodeParameters){.type = NODE_FILL, .fill = *fill});
    result = LOCKED(drain(stream, cl_called_row(&facts)));
  }
  if (!result) result = cl_fill(fill->to, fill->value, fill->element, fill->pitch, fill->width, fill->height);
  if (cl_order_on && !result) note_fill(fill, stream, form);
  return result;
}

/* Unlike a copy, a memset needs access to the memory of another device (two H200s: edges/two_libraries). */
static CUresult check_access(const Context *context, CUdeviceptr to) {
  bool there = cl_reaches_address(context, to) && !cl_graph_memory_waits(to);
  return there ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult fill(EventLine *line, CUdeviceptr to, size_t pitch, uint32_t value, size_t width, size_t count,
                     size_t rows) {
  cl_event_uint(line, "count", count * rows);
  IN_CONTEXT(context);
  if (!count || !rows) return cl_fill(to, value, width, pitch, count, rows);
  TRY(check_access(context, to));
  return fill_in_order(&(FillNode){to, pitch, value, (unsigned)width, count, rows, NULL}, NULL, SYNCHRONOUS);
}

/* A memset in a stream needs what the stream's device may use, whichever is current (two H200s: edges/two_pools). */
static CUresult fill_in_stream(const FillNode *fill, const void *stream, Context *context) {
  TRY(check_access(context, fill->to));
  bool pushed = context != cl_current() && cl_push_context(context);
  CUresult result = fill_in_order(fill, stream, ASYNCHRONOUS);
  if (pushed) cl_pop_context();
  return result;
}

/* The same in a stream, which may be captured: then access is not checked (two H200s: edges/two_captures). */
static CUresult fill_async(EventLine *line, CUdeviceptr to, size_t pitch, uint32_t value, size_t width, size_t count,
                           size_t rows, const void *stream) {
  bool captured;
  TRY(cl_enter_stream(stream, &captured));
  if (!count || !rows) return fill(line, to, pitch, value, width, count, rows);
  cl_event_uint(line, "count", count * rows);
  Context *own = cl_context_in(stream);
  NodeParameters parameters = {.type = NODE_FILL, .fill = {to, pitch, value, (unsigned)width, count, rows, own}};
  if (!captured) return fill_in_stream(&parameters.fill, stream, own);
  /* what lies there is not looked at (recorded programs) */
  bool fits = to % width == 0 && (rows == 1 || (pitch % width == 0 && pitch / width >= count));
  return fits ? cl_submit(stream, &parameters) : CUDA_ERROR_INVALID_VALUE;
}

/* The four functions for values of one size. */
#define MEMSET(bits, type)                                                                                  \
  EXPORTED(cuMemsetD##bits##_v2, (CUdeviceptr to, type value, size_t count),                                \
           fill(line, to, 0, value, (bits) / 8, count, 1))                                                  \
  EXPORTED(cuMemsetD##bits##Async, (CUdeviceptr to, type value, size_t count, void *stream),                \
           fill_async(line, to, 0, value, (bits) / 8, count, 1, stream))                                    \
  EXPORTED(cuMemsetD2D##bits##_v2, (CUdeviceptr to, size_t pitch, type value, size_t width, size_t height), \
           fill(line, to, pitch, value, (bits) / 8, width, height))                                         \
  EXPORTED(cuMemsetD2D##bits##Async,                                                                        \
           (CUdeviceptr to, size_t pitch, type value, size_t width, size_t height, void *stream),           \
           fill_async(line, to, pitch, value, (bits) / 8, width, height, stream))

MEMSET(8, uint8_t)
MEMSET(16, uint16_t)
MEMSET(32, uint32_t)

/* -- bytes to and from the first row of an array -- */

static CUresult copy_row(EventLine *line, Side to, Side from, size_t size, const void *stream, int form) {
  CUresult result = do_box(&(Box){from, to, size, 1, 1}, stream, form);
  if (!result && size) cl_event_uint(line, "size", size);
  return result;
}
EXPORTED(cuMemcpyDtoA_v2, (void *array, size_t offset, CUdeviceptr from, size_t size),
         copy_row(line, of_array(array, offset), of_device(from), size, NULL, SYNCHRONOUS))
EXPORTED(cuMemcpyHtoA_v2, (void *array, size_t offset, const void *from, size_t size),
         copy_row(line, of_array(array, offset), of_host(from), size, NULL, SYNCHRONOUS))
EXPORTED(cuMemcpyAtoD_v2, (CUdeviceptr to, void *array, size_t offset, size_t size),
         copy_row(line, of_device(to), of_array(array, offset), size, NULL, SYNCHRONOUS))
EXPORTED(cuMemcpyAtoH_v2, (void *to, void *array, size_t offset, size_t size),
         copy_row(line, of_host(to), of_array(array, offset), size, NULL, SYNCHRONOUS))
EXPORTED(cuMemcpyAtoA_v2, (void *to, size_t to_offset, void *from, size_t from_offset, size_t size),
         copy_row(line, of_array(to, to_offset), of_array(from, from_offset), size, NULL, SYNCHRONOUS))
EXPORTED(cuMemcpyHtoAAsync_v2, (void *array, size_t offset, const void *from, size_t size, void *stream),
         copy_row(line, of_array(array, offset), of_host(from), size, stream, ASYNCHRONOUS))
EXPORTED(cuMemcpyAtoHAsync_v2, (void *to, void *array, size_t offset, size_t size, void *stream),
         copy_row(line, of_host(to), of_array(array, offset), size, stream, ASYNCHRONOUS))
