/* Copying and setting memory: every access is checked against the allocation that it starts in. */
#include "copies.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "arrays.h"
#include "calls.h"
#include "capture.h"
#include "contexts.h"
#include "memory.h"
#include "queues.h"

enum { FORM_ASYNCHRONOUS, FORM_SYNCHRONOUS };

/* -- lines -- */

/* A copy of one line, between memory of which it is known whether it is the device's. */
static CUresult check_line(CUdeviceptr to, bool to_device, CUdeviceptr from, bool from_device, size_t size) {
  bool within = (!to_device || cl_within(to, size)) && (!from_device || cl_within(from, size));
  return to && from && within ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult submit_box(const Box *box, const void *stream) {
  CUresult result;
  NodeParameters parameters = {.type = NODE_COPY, .copy = {.context = cl_context(&result), .box = *box}};
  return result ? result : cl_submit(stream, &parameters);
}

static Side side_of(CUdeviceptr address, bool device) {
  if (device) return (Side){.type = TYPE_DEVICE, .device = address};
  return (Side){.type = TYPE_HOST, .host = (void *)(uintptr_t)address};
}

static CUresult copy_in_order(const Box *box, const void *stream, int form);

/* Ordinary programs have nothing pending, and their small copies need no box. */
static CUresult copy_line(CUdeviceptr to, bool to_device, CUdeviceptr from, bool from_device, size_t size,
                          const void *stream, int form) {
  CUresult result = cl_check_context();
  if (result || !size) return result;
  result = check_line(to, to_device, from, from_device, size);
  if (result) return result;
  if (cl_any_pending())
    return copy_in_order(&(Box){side_of(from, from_device), side_of(to, to_device), size, 1, 1}, stream, form);
  memmove((void *)(uintptr_t)to, (const void *)(uintptr_t)from, size);
  return CUDA_SUCCESS;
}

static CUresult copy(CUdeviceptr to, bool to_device, CUdeviceptr from, bool from_device, size_t size) {
  return copy_line(to, to_device, from, from_device, size, NULL, FORM_SYNCHRONOUS);
}

/* The same in a stream, which may be captured. */
static CUresult copy_async(CUdeviceptr to, bool to_device, CUdeviceptr from, bool from_device, size_t size,
                           const void *stream) {
  bool captured;
  CUresult result = cl_enter_stream(stream, &captured);
  if (result) return result;
  if (!captured || !size) return copy_line(to, to_device, from, from_device, size, stream, FORM_ASYNCHRONOUS);
  result = check_line(to, to_device, from, from_device, size);
  Box box = {side_of(from, from_device), side_of(to, to_device), size, 1, 1};
  return result ? result : submit_box(&box, stream);
}

static CUresult copy_to_device(EventLine *line, CUdeviceptr to, const void *from, size_t size) {
  cl_event_uint(line, "bytes", size);
  return copy(to, true, (uintptr_t)from, false, size);
}
EXPORTED(cuMemcpyHtoD_v2, (CUdeviceptr to, const void *from, size_t size), copy_to_device(line, to, from, size))

static CUresult copy_to_host(EventLine *line, void *to, CUdeviceptr from, size_t size) {
  cl_event_uint(line, "bytes", size);
  return copy((uintptr_t)to, false, from, true, size);
}
EXPORTED(cuMemcpyDtoH_v2, (void *to, CUdeviceptr from, size_t size), copy_to_host(line, to, from, size))

static CUresult copy_on_device(EventLine *line, CUdeviceptr to, CUdeviceptr from, size_t size) {
  cl_event_uint(line, "bytes", size);
  return copy(to, true, from, true, size);
}
EXPORTED(cuMemcpyDtoD_v2, (CUdeviceptr to, CUdeviceptr from, size_t size), copy_on_device(line, to, from, size))

static CUresult copy_to_device_async(EventLine *line, CUdeviceptr to, const void *from, size_t size, void *stream) {
  cl_event_uint(line, "bytes", size);
  return copy_async(to, true, (uintptr_t)from, false, size, stream);
}
EXPORTED(cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void *from, size_t size, void *stream),
         copy_to_device_async(line, to, from, size, stream))

static CUresult copy_to_host_async(EventLine *line, void *to, CUdeviceptr from, size_t size, void *stream) {
  cl_event_uint(line, "bytes", size);
  return copy_async((uintptr_t)to, false, from, true, size, stream);
}
EXPORTED(cuMemcpyDtoHAsync_v2, (void *to, CUdeviceptr from, size_t size, void *stream),
         copy_to_host_async(line, to, from, size, stream))

static CUresult copy_on_device_async(EventLine *line, CUdeviceptr to, CUdeviceptr from, size_t size, void *stream) {
  cl_event_uint(line, "bytes", size);
  return copy_async(to, true, from, true, size, stream);
}
EXPORTED(cuMemcpyDtoDAsync_v2, (CUdeviceptr to, CUdeviceptr from, size_t size, void *stream),
         copy_on_device_async(line, to, from, size, stream))

/* With unified addressing either side may be the host's; what we allocated is checked, the rest is the caller's. */
static CUresult copy_unified(CUdeviceptr to, CUdeviceptr from, size_t size) {
  return copy(to, cl_is_known(to), from, cl_is_known(from), size);
}

static CUresult copy_either(EventLine *line, CUdeviceptr to, CUdeviceptr from, size_t size) {
  cl_event_uint(line, "bytes", size);
  return copy_unified(to, from, size);
}
EXPORTED(cuMemcpy, (CUdeviceptr to, CUdeviceptr from, size_t size), copy_either(line, to, from, size))

static CUresult copy_either_async(EventLine *line, CUdeviceptr to, CUdeviceptr from, size_t size, void *stream) {
  cl_event_uint(line, "bytes", size);
  return copy_async(to, cl_within(to, 1), from, cl_within(from, 1), size, stream);
}
EXPORTED(cuMemcpyAsync, (CUdeviceptr to, CUdeviceptr from, size_t size, void *stream),
         copy_either_async(line, to, from, size, stream))

EXPORTED(cuMemcpyPeer, (CUdeviceptr to, Context *to_context, CUdeviceptr from, Context *from_context, size_t size),
         copy_on_device(line, to, from, size))

/* A copy between devices cannot be captured, even if it is between contexts of one (measured). */
static CUresult refuse_captured(const void *stream) {
  Stream *known;
  return LOCKED(cl_refuse_captured(stream, &known));
}

static CUresult copy_to_peer_async(EventLine *line, CUdeviceptr to, CUdeviceptr from, size_t size, void *stream) {
  CUresult result = refuse_captured(stream);
  return result ? result : copy_on_device_async(line, to, from, size, stream);
}
EXPORTED(cuMemcpyPeerAsync,
         (CUdeviceptr to, Context *to_context, CUdeviceptr from, Context *from_context, size_t size, void *stream),
         copy_to_peer_async(line, to, from, size, stream))

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

/* Where a box begins on one side, its rows and layers apart by *row and *layer; every byte of it is checked. */
static CUresult place(const Side *side, const Box *box, uintptr_t *start, size_t *row, size_t *layer) {
  size_t first, end, bytes;
  if (side->type == TYPE_ARRAY) {
    if (!side->array) return CUDA_ERROR_INVALID_VALUE;
    const ArrayBox in = {side->x, side->y, side->z, box->width, box->height, box->depth};
    return cl_place_in_array(side->array, &in, start, row, layer);
  }
  if (side->type < TYPE_HOST || side->type > TYPE_UNIFIED) return CUDA_ERROR_INVALID_VALUE;
  uintptr_t base = side->type == TYPE_HOST ? (uintptr_t)side->host : (uintptr_t)side->device;
  if (!base || __builtin_add_overflow(side->x, box->width, &end)) return CUDA_ERROR_INVALID_VALUE;
  *row = side->pitch ? side->pitch : end; /* without a pitch or a height, rows and layers follow one another */
  if (*row < end) return CUDA_ERROR_INVALID_VALUE;
  size_t rows = side->height, last;
  if (__builtin_add_overflow(side->y, box->height, &last)) return CUDA_ERROR_INVALID_VALUE;
  if (!rows) rows = last;
  if ((box->depth > 1 || side->z) && rows < last) return CUDA_ERROR_INVALID_VALUE;
  size_t last_layer, last_row;
  if (__builtin_mul_overflow(rows, *row, layer) || __builtin_mul_overflow(side->z, *layer, &first) ||
      __builtin_mul_overflow(side->y, *row, &bytes) || __builtin_add_overflow(first, bytes, &first) ||
      __builtin_add_overflow(first, side->x, &first) || __builtin_mul_overflow(box->depth - 1, *layer, &last_layer) ||
      __builtin_mul_overflow(box->height - 1, *row, &last_row) ||
      __builtin_add_overflow(last_layer, last_row, &bytes) || __builtin_add_overflow(bytes, box->width, &bytes) ||
      __builtin_add_overflow(base, first, start) || __builtin_add_overflow(*start, bytes, &end))
    return CUDA_ERROR_INVALID_VALUE;
  bool ours = side->type == TYPE_DEVICE || (side->type == TYPE_UNIFIED && cl_is_known(base));
  bool within = !ours || (cl_within(base, 1) && cl_within(*start, bytes) && cl_within(base, first + bytes));
  return within ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

typedef struct {
  uintptr_t from, to;
  size_t from_row, to_row, from_layer, to_layer;
} Places;

static CUresult find_places(const Box *box, Places *places) {
  *places = (Places){0};
  if (!box->width || !box->height || !box->depth) return CUDA_SUCCESS;
  if (box->from.level || box->to.level) return CUDA_ERROR_INVALID_VALUE; /* levels are those of mipmapped arrays */
  CUresult result = place(&box->from, box, &places->from, &places->from_row, &places->from_layer);
  return result ? result : place(&box->to, box, &places->to, &places->to_row, &places->to_layer);
}

CUresult cl_check_box(const Box *box) {
  Places places;
  return find_places(box, &places);
}

CUresult cl_copy_box(const Box *box) {
  Places places;
  CUresult result = find_places(box, &places);
  if (result || !places.to) return result;
  for (size_t z = 0; z < box->depth; z++)
    for (size_t y = 0; y < box->height; y++)
      memmove((void *)(places.to + z * places.to_layer + y * places.to_row),
              (const void *)(places.from + z * places.from_layer + y * places.from_row), box->width);
  return CUDA_SUCCESS;
}

/* -- the order of a stream -- */

typedef enum { MEMORY_PAGEABLE, MEMORY_PINNED, MEMORY_DEVICE, MEMORY_MANAGED, MEMORIES } Memory;
enum { WAITS_STREAM, WAITS_STAGED, WAITS_CALLER };

#include "synchronization.inc"

static Memory memory_at(CUdeviceptr address) {
  const Block *block = cl_block_lock(address);
  Memory memory = !block                     ? MEMORY_PAGEABLE
                  : block->place == ON_HOST ? MEMORY_PINNED
                  : block->place == MANAGED ? MEMORY_MANAGED
                                            : MEMORY_DEVICE;
  cl_block_unlock();
  return memory;
}

static Memory memory_of(const Side *side) {
  switch (side->type) {
    case TYPE_ARRAY: return MEMORY_DEVICE;
    case TYPE_HOST: return memory_at((uintptr_t)side->host);
    default: return memory_at(side->device);
  }
}

/* Waits until the stream can do new work. */
static CUresult drain(const void *handle) {
  Stream *stream;
  CUresult result = cl_refuse_captured(handle, &stream);
  if (!result) cl_drain(stream);
  return result;
}

static bool is_line(const Box *box) { return box->height == 1 && box->depth == 1; }

/* Reads the source of a copy now, so that its owner may change it. */
static CUresult stage(const Box *box, const void *handle) {
  Stream *stream;
  Work *work;
  NodeParameters parameters = {.type = NODE_COPY, .copy.box = *box};
  Side *from = &parameters.copy.box.from;
  char *staged = malloc(box->width);
  if (!staged) return CUDA_ERROR_OUT_OF_MEMORY;
  const char *source = from->type == TYPE_HOST ? from->host : (const char *)(uintptr_t)from->device;
  memcpy(staged, source + from->x, box->width);
  *from = (Side){.type = TYPE_HOST, .host = staged};
  CUresult result = cl_stream_ready(handle, &stream);
  if (!result) result = cl_queue(stream, &parameters, false, &work);
  if (!result) work->staged = staged;
  else free(staged);
  return result;
}

/* Whether work of a stream has to wait for other work. */
static bool must_wait(const void *handle) {
  Stream *stream;
  if (!cl_any_pending()) return false;
  cl_streams_lock();
  bool busy = !cl_stream_ready(handle, &stream) && cl_is_busy(stream, false);
  cl_streams_unlock(CUDA_SUCCESS);
  return busy;
}

/* Copies a box at once if nothing is before it in a stream, else in its queue; the caller waits where
   data/emulator/synchronization.toml says so. `form`: of the function, with or without a stream. */
static CUresult copy_in_order(const Box *box, const void *stream, int form) {
  if (!must_wait(stream)) return cl_copy_box(box);
  CUresult result = cl_check_box(box);
  if (result) return result;
  int waits = copy_waits[form][memory_of(&box->from)][memory_of(&box->to)];
  if (waits == WAITS_STAGED && is_line(box)) return LOCKED(stage(box, stream));
  if (waits == WAITS_STREAM) return submit_box(box, stream);
  result = LOCKED(drain(stream));
  return result ? result : cl_copy_box(box);
}

CUresult cl_copy_box_in(const Box *box, const void *stream) { return copy_in_order(box, stream, FORM_ASYNCHRONOUS); }

static CUresult do_box(const Box *box, const void *stream, bool has_stream) {
  bool captured = false;
  CUresult result = has_stream ? cl_enter_stream(stream, &captured) : CUDA_SUCCESS;
  if (!result) result = cl_check_context();
  if (result) return result;
  if (!box->width || !box->height || !box->depth) return cl_copy_box(box);
  if (!captured) return copy_in_order(box, stream, has_stream ? FORM_ASYNCHRONOUS : FORM_SYNCHRONOUS);
  result = cl_check_box(box);
  return result ? result : submit_box(box, stream);
}

static CUresult copy_box_in(EventLine *line, const Box *box, const void *stream, bool has_stream) {
  CUresult state = cl_check_context();
  if (!box) return state ? state : CUDA_ERROR_INVALID_VALUE;
  CUresult result = do_box(box, stream, has_stream);
  cl_event_uint(line, "width", box->width);
  cl_event_uint(line, "height", box->height);
  cl_event_uint(line, "depth", box->depth);
  return result;
}

static Side deep(const FlatSide *flat) {
  return (Side){
      .x = flat->x,
      .y = flat->y,
      .type = flat->type,
      .host = flat->host,
      .device = flat->device,
      .array = flat->array,
      .pitch = flat->pitch,
  };
}

static CUresult copy_rectangle_in(EventLine *line, const Rectangle *flat, const void *stream, bool has_stream) {
  if (!flat) return CUDA_ERROR_INVALID_VALUE;
  Box box = {
      .from = deep(&flat->from),
      .to = deep(&flat->to),
      .width = flat->width,
      .height = flat->height,
      .depth = 1,
  };
  return copy_box_in(line, &box, stream, has_stream);
}

EXPORTED(cuMemcpy2D_v2, (const Rectangle *flat), copy_rectangle_in(line, flat, NULL, false))
EXPORTED(cuMemcpy2DUnaligned_v2, (const Rectangle *flat), copy_rectangle_in(line, flat, NULL, false))
EXPORTED(cuMemcpy2DAsync_v2, (const Rectangle *flat, void *stream), copy_rectangle_in(line, flat, stream, true))
EXPORTED(cuMemcpy3D_v2, (const Box *box), copy_box_in(line, box, NULL, false))
EXPORTED(cuMemcpy3DAsync_v2, (const Box *box, void *stream), copy_box_in(line, box, stream, true))
EXPORTED(cuMemcpy3DPeer, (const Box *box), copy_box_in(line, box, NULL, false))

static CUresult copy_box_to_peer_async(EventLine *line, const Box *box, const void *stream) {
  CUresult result = box ? refuse_captured(stream) : CUDA_SUCCESS;
  return result ? result : copy_box_in(line, box, stream, true);
}
EXPORTED(cuMemcpy3DPeerAsync, (const Box *box, void *stream), copy_box_to_peer_async(line, box, stream))

/* -- setting -- */

/* `rows` rows of `count` values of `width` bytes, `pitch` bytes apart. */
CUresult cl_check_fill(CUdeviceptr to, size_t width, size_t pitch, size_t count, size_t rows) {
  if (!count || !rows) return CUDA_SUCCESS;
  if (to % width || (rows > 1 && pitch < count * width) || count > SIZE_MAX / width) return CUDA_ERROR_INVALID_VALUE;
  if (rows > 1 && (rows - 1) > (SIZE_MAX - count * width) / pitch) return CUDA_ERROR_INVALID_VALUE;
  return cl_within(to, (rows - 1) * pitch + count * width) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cl_fill(CUdeviceptr to, uint32_t value, size_t width, size_t pitch, size_t count, size_t rows) {
  CUresult result = cl_check_fill(to, width, pitch, count, rows);
  if (result || !count) return result;
  for (size_t row = 0; row < rows; row++) {
    char *at = (char *)(uintptr_t)to + row * pitch;
    for (size_t number = 0; number < count; number++, at += width) memcpy(at, &value, width); /* little-endian hosts */
  }
  return CUDA_SUCCESS;
}

static CUresult fill_in_order(const FillNode *fill, const void *stream, int form) {
  CUresult result = CUDA_SUCCESS;
  if (must_wait(stream)) {
    result = cl_check_fill(fill->to, fill->element, fill->pitch, fill->width, fill->height);
    if (result) return result;
    if (fill_waits[form][memory_at(fill->to)] == WAITS_STREAM)
      return cl_submit(stream, &(NodeParameters){.type = NODE_FILL, .fill = *fill});
    result = LOCKED(drain(stream));
  }
  return result ? result : cl_fill(fill->to, fill->value, fill->element, fill->pitch, fill->width, fill->height);
}

static CUresult fill(EventLine *line, CUdeviceptr to, size_t pitch, uint32_t value, size_t width, size_t count,
                     size_t rows) {
  cl_event_uint(line, "count", count * rows);
  CUresult result = cl_check_context();
  if (result || !count || !rows) return result ? result : cl_fill(to, value, width, pitch, count, rows);
  return fill_in_order(&(FillNode){to, pitch, value, (unsigned)width, count, rows, NULL}, NULL, FORM_SYNCHRONOUS);
}

/* The same in a stream, which may be captured. */
static CUresult fill_async(EventLine *line, CUdeviceptr to, size_t pitch, uint32_t value, size_t width, size_t count,
                           size_t rows, const void *stream) {
  bool captured;
  CUresult result = cl_enter_stream(stream, &captured);
  if (result) return result;
  if (!count || !rows) return fill(line, to, pitch, value, width, count, rows);
  cl_event_uint(line, "count", count * rows);
  NodeParameters parameters = {.type = NODE_FILL, .fill = {to, pitch, value, (unsigned)width, count, rows, NULL}};
  if (!captured) {
    result = cl_check_context();
    return result ? result : fill_in_order(&parameters.fill, stream, FORM_ASYNCHRONOUS);
  }
  parameters.fill.context = cl_context(&result);
  if (!result) result = cl_check_fill(to, width, pitch, count, rows);
  return result ? result : cl_submit(stream, &parameters);
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
