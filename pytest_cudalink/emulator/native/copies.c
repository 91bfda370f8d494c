/* Copying and setting memory: every access is checked against the allocation that it starts in. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "abi.h"
#include "calls.h"
#include "contexts.h"
#include "memory.h"
#include "streams.h"

OLD_ENTRY_POINT(cuMemcpyHtoD)
OLD_ENTRY_POINT(cuMemcpyDtoH)
OLD_ENTRY_POINT(cuMemcpyDtoD)
OLD_ENTRY_POINT(cuMemcpyHtoDAsync)
OLD_ENTRY_POINT(cuMemcpyDtoHAsync)
OLD_ENTRY_POINT(cuMemcpyDtoDAsync)
OLD_ENTRY_POINT(cuMemcpy2D)
OLD_ENTRY_POINT(cuMemcpy2DUnaligned)
OLD_ENTRY_POINT(cuMemcpy2DAsync)
OLD_ENTRY_POINT(cuMemcpy3D)
OLD_ENTRY_POINT(cuMemcpy3DAsync)
OLD_ENTRY_POINT(cuMemsetD8)
OLD_ENTRY_POINT(cuMemsetD16)
OLD_ENTRY_POINT(cuMemsetD32)
OLD_ENTRY_POINT(cuMemsetD2D8)
OLD_ENTRY_POINT(cuMemsetD2D16)
OLD_ENTRY_POINT(cuMemsetD2D32)

/* -- lines -- */

static CUresult copy(CUdeviceptr to, bool to_device, CUdeviceptr from, bool from_device, size_t size) {
  CUresult result = cl_check_context();
  if (result) return result;
  if (!size) return CUDA_SUCCESS;
  if (!to || !from || (to_device && !cl_within(to, size)) || (from_device && !cl_within(from, size)))
    return CUDA_ERROR_INVALID_VALUE;
  memmove((void *)(uintptr_t)to, (const void *)(uintptr_t)from, size);
  return CUDA_SUCCESS;
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
  if (cl_check_stream(stream)) return CUDA_ERROR_INVALID_HANDLE;
  cl_event_uint(line, "bytes", size);
  return copy(to, true, (uintptr_t)from, false, size);
}
EXPORTED(cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void *from, size_t size, void *stream),
         copy_to_device_async(line, to, from, size, stream))

static CUresult copy_to_host_async(EventLine *line, void *to, CUdeviceptr from, size_t size, void *stream) {
  if (cl_check_stream(stream)) return CUDA_ERROR_INVALID_HANDLE;
  cl_event_uint(line, "bytes", size);
  return copy((uintptr_t)to, false, from, true, size);
}
EXPORTED(cuMemcpyDtoHAsync_v2, (void *to, CUdeviceptr from, size_t size, void *stream),
         copy_to_host_async(line, to, from, size, stream))

static CUresult copy_on_device_async(EventLine *line, CUdeviceptr to, CUdeviceptr from, size_t size, void *stream) {
  if (cl_check_stream(stream)) return CUDA_ERROR_INVALID_HANDLE;
  cl_event_uint(line, "bytes", size);
  return copy(to, true, from, true, size);
}
EXPORTED(cuMemcpyDtoDAsync_v2, (CUdeviceptr to, CUdeviceptr from, size_t size, void *stream),
         copy_on_device_async(line, to, from, size, stream))

/* With unified addressing either side may be the host's; what we allocated is checked, the rest is the caller's. */
static CUresult copy_unified(CUdeviceptr to, CUdeviceptr from, size_t size) {
  return copy(to, cl_within(to, 1), from, cl_within(from, 1), size);
}

static CUresult copy_either(EventLine *line, CUdeviceptr to, CUdeviceptr from, size_t size) {
  cl_event_uint(line, "bytes", size);
  return copy_unified(to, from, size);
}
EXPORTED(cuMemcpy, (CUdeviceptr to, CUdeviceptr from, size_t size), copy_either(line, to, from, size))

static CUresult copy_either_async(EventLine *line, CUdeviceptr to, CUdeviceptr from, size_t size, void *stream) {
  if (cl_check_stream(stream)) return CUDA_ERROR_INVALID_HANDLE;
  cl_event_uint(line, "bytes", size);
  return copy_unified(to, from, size);
}
EXPORTED(cuMemcpyAsync, (CUdeviceptr to, CUdeviceptr from, size_t size, void *stream),
         copy_either_async(line, to, from, size, stream))

EXPORTED(cuMemcpyPeer, (CUdeviceptr to, Context *to_context, CUdeviceptr from, Context *from_context, size_t size),
         copy_on_device(line, to, from, size))

EXPORTED(cuMemcpyPeerAsync,
         (CUdeviceptr to, Context *to_context, CUdeviceptr from, Context *from_context, size_t size, void *stream),
         copy_on_device_async(line, to, from, size, stream))

/* -- copying rectangles and boxes -- */

/* One side of CUDA_MEMCPY3D; CUDA_MEMCPY3D_PEER has a context where this has `other`. */
typedef struct {
  size_t x, y, z, level;
  unsigned type;
  void *host;
  CUdeviceptr device;
  void *array, *other;
  size_t pitch, height;
} Side;

typedef struct {
  Side from, to;
  size_t width, height, depth;
} Box;

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

enum { TYPE_HOST = 1, TYPE_DEVICE, TYPE_ARRAY, TYPE_UNIFIED };

/* Where a box begins on one side, its rows and layers apart by *row and *layer; every byte of it is checked. */
static CUresult place(const Side *side, const Box *box, uintptr_t *start, size_t *row, size_t *layer) {
  size_t first, end, bytes;
  if (side->type == TYPE_ARRAY) return CUDA_ERROR_NOT_SUPPORTED;
  if (side->type < TYPE_HOST || side->type > TYPE_UNIFIED) return CUDA_ERROR_INVALID_VALUE;
  uintptr_t base = side->type == TYPE_HOST ? (uintptr_t)side->host : (uintptr_t)side->device;
  if (!base || __builtin_add_overflow(side->x, box->width, &end)) return CUDA_ERROR_INVALID_VALUE;
  *row = side->pitch;
  if (*row < end) { /* rows would overlap; a single row at the beginning needs no pitch */
    if (*row || box->height > 1 || box->depth > 1 || side->y || side->z) return CUDA_ERROR_INVALID_VALUE;
    *row = end;
  }
  size_t rows = side->height;
  if ((box->depth > 1 || side->z) && (rows < box->height || side->y > rows - box->height))
    return CUDA_ERROR_INVALID_VALUE;
  size_t last_layer, last_row;
  if (__builtin_mul_overflow(rows, *row, layer) || __builtin_mul_overflow(side->z, *layer, &first) ||
      __builtin_mul_overflow(side->y, *row, &bytes) || __builtin_add_overflow(first, bytes, &first) ||
      __builtin_add_overflow(first, side->x, &first) || __builtin_mul_overflow(box->depth - 1, *layer, &last_layer) ||
      __builtin_mul_overflow(box->height - 1, *row, &last_row) ||
      __builtin_add_overflow(last_layer, last_row, &bytes) || __builtin_add_overflow(bytes, box->width, &bytes) ||
      __builtin_add_overflow(base, first, start) || __builtin_add_overflow(*start, bytes, &end))
    return CUDA_ERROR_INVALID_VALUE;
  bool ours = side->type == TYPE_DEVICE || (side->type == TYPE_UNIFIED && cl_within(base, 1));
  bool within = !ours || (cl_within(base, 1) && cl_within(*start, bytes) && cl_within(base, first + bytes));
  return within ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult copy_box(const Box *box) {
  CUresult result = cl_check_context();
  uintptr_t from, to;
  size_t from_row, to_row, from_layer, to_layer;
  if (result) return result;
  if (!box->width || !box->height || !box->depth) return CUDA_SUCCESS;
  if (box->from.level || box->to.level) return CUDA_ERROR_INVALID_VALUE; /* levels are those of mipmapped arrays */
  result = place(&box->from, box, &from, &from_row, &from_layer);
  if (!result) result = place(&box->to, box, &to, &to_row, &to_layer);
  if (result) return result;
  for (size_t z = 0; z < box->depth; z++)
    for (size_t y = 0; y < box->height; y++)
      memmove((void *)(to + z * to_layer + y * to_row), (const void *)(from + z * from_layer + y * from_row),
              box->width);
  return CUDA_SUCCESS;
}

static CUresult copy_box_in(EventLine *line, const Box *box, const void *stream, bool has_stream) {
  if (!box) return CUDA_ERROR_INVALID_VALUE;
  if (has_stream && cl_check_stream(stream)) return CUDA_ERROR_INVALID_HANDLE;
  CUresult result = copy_box(box);
  cl_event_uint(line, "width", box->width);
  cl_event_uint(line, "height", box->height);
  cl_event_uint(line, "depth", box->depth);
  if (result == CUDA_ERROR_NOT_SUPPORTED) return cl_unsupported(line, "arrays are not emulated");
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
EXPORTED(cuMemcpy3DPeerAsync, (const Box *box, void *stream), copy_box_in(line, box, stream, true))

/* -- setting -- */

/* `rows` rows of `count` values of `width` bytes, `pitch` bytes apart. */
static CUresult set(CUdeviceptr to, uint32_t value, size_t width, size_t pitch, size_t count, size_t rows) {
  CUresult result = cl_check_context();
  if (result) return result;
  if (!count || !rows) return CUDA_SUCCESS;
  if (to % width || (rows > 1 && pitch < count * width) || count > SIZE_MAX / width) return CUDA_ERROR_INVALID_VALUE;
  if (rows > 1 && (rows - 1) > (SIZE_MAX - count * width) / pitch) return CUDA_ERROR_INVALID_VALUE;
  if (!cl_within(to, (rows - 1) * pitch + count * width)) return CUDA_ERROR_INVALID_VALUE;
  for (size_t row = 0; row < rows; row++) {
    char *at = (char *)(uintptr_t)to + row * pitch;
    for (size_t number = 0; number < count; number++, at += width) memcpy(at, &value, width); /* little-endian hosts */
  }
  return CUDA_SUCCESS;
}

static CUresult set_line(EventLine *line, CUdeviceptr to, uint32_t value, size_t width, size_t count) {
  cl_event_uint(line, "count", count);
  return set(to, value, width, 0, count, 1);
}

static CUresult set_rectangle(EventLine *line, CUdeviceptr to, size_t pitch, uint32_t value, size_t width, size_t count,
                              size_t rows) {
  cl_event_uint(line, "count", count * rows);
  return set(to, value, width, pitch, count, rows);
}

/* The four functions for values of one size. */
#define MEMSET(bits, type)                                                                                     \
  EXPORTED(cuMemsetD##bits##_v2, (CUdeviceptr to, type value, size_t count),                                   \
           set_line(line, to, value, (bits) / 8, count))                                                       \
  EXPORTED(cuMemsetD##bits##Async, (CUdeviceptr to, type value, size_t count, void *stream),                   \
           cl_check_stream(stream) ? CUDA_ERROR_INVALID_HANDLE : set_line(line, to, value, (bits) / 8, count)) \
  EXPORTED(cuMemsetD2D##bits##_v2, (CUdeviceptr to, size_t pitch, type value, size_t width, size_t height),    \
           set_rectangle(line, to, pitch, value, (bits) / 8, width, height))                                   \
  EXPORTED(cuMemsetD2D##bits##Async,                                                                           \
           (CUdeviceptr to, size_t pitch, type value, size_t width, size_t height, void *stream),              \
           cl_check_stream(stream) ? CUDA_ERROR_INVALID_HANDLE                                                 \
                                   : set_rectangle(line, to, pitch, value, (bits) / 8, width, height))

MEMSET(8, uint8_t)
MEMSET(16, uint16_t)
MEMSET(32, uint32_t)
