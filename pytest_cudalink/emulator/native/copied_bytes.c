/* Copying and setting memory: every access is checked against the allocation that it starts in. */
#include "copied_bytes.h"

#include <stdlib.h>
#include <string.h>

#include "arrays.h"
#include "blocks.h"
#include "device_addresses.h"
#include "locks.h"
#include "safe_memory.h"
#include "sticky.h"

/* -- lines -- */

const char cl_of_peer = 0;

enum { OF_PEER = CU_MEMORYTYPE_UNIFIED + 1 };

static unsigned type_of(const Side *side) { return side->other == &cl_of_peer ? (unsigned)OF_PEER : side->type; }

/* Whether a copy may use a range, of which its caller says what it is (CUmemorytype, or OF_PEER). With unified
   addressing memory that is not ours is the host's; no address of the device is, whether it is allocated or not. */
static bool is_usable(CUdeviceptr start, size_t size, unsigned type) {
  bool of_device = cl_is_device_address(start);
  if (type == OF_PEER) return cl_held_open(start, size);
  if (type == CU_MEMORYTYPE_DEVICE || (of_device && type != CU_MEMORYTYPE_HOST)) return cl_held_within(start, size);
  return (!of_device && !cl_held_known(start)) || cl_held_range_known(start, size); /* whichever device has access */
}

static bool is_writable(CUdeviceptr start, unsigned type) { return type == OF_PEER || cl_held_writable(start); }

CUresult cl_copy_line(const Side *to_side, const Side *from_side, size_t size) {
  CUdeviceptr to = cl_side_address(to_side), from = cl_side_address(from_side);
  HOLD_TO_READ(cl_memory_lock);
  bool usable = to && from && is_usable(to, size, type_of(to_side)) && is_usable(from, size, type_of(from_side)) &&
                is_writable(to, type_of(to_side));
  if (usable) memmove((void *)cl_bytes_of(to), (const void *)cl_bytes_of(from), size);
  return usable ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* -- boxes -- */

/* Where a box lies on one side, with its rows and layers apart, and which bytes are the caller's to have. */
typedef struct {
  unsigned type;
  CUdeviceptr start, base;
  size_t row, layer, bytes; /* the bytes from the base on to the last one of the box */
} Extent;

static CUresult place_in_array(const Side *side, const Box *box, Extent *place) {
  uintptr_t start;
  if (!side->array) return CUDA_ERROR_INVALID_VALUE;
  const ArrayBox in = {side->x, side->y, side->z, box->width, box->height, box->depth};
  CUresult result = cl_place_in_array(side->array, &in, &start, &place->row, &place->layer);
  place->type = CU_MEMORYTYPE_DEVICE;
  place->start = place->base = start;
  place->bytes = (box->depth - 1) * place->layer + (box->height - 1) * place->row + box->width;
  return result;
}

/* Every byte counts. */
static CUresult find_place(const Side *side, const Box *box, Extent *place) {
  size_t first, end, bytes;
  if (side->type == CU_MEMORYTYPE_ARRAY) return place_in_array(side, box, place);
  if (side->type < CU_MEMORYTYPE_HOST || side->type > CU_MEMORYTYPE_UNIFIED) return CUDA_ERROR_INVALID_VALUE;
  place->type = type_of(side);
  place->base = cl_side_address(side);
  if (!place->base || __builtin_add_overflow(side->x, box->width, &end)) return CUDA_ERROR_INVALID_VALUE;
  place->row = side->pitch ? side->pitch : end; /* without a pitch or a height, rows and layers follow one another */
  if (place->row < end) return CUDA_ERROR_INVALID_VALUE;
  size_t rows = side->height, last;
  if (__builtin_add_overflow(side->y, box->height, &last)) return CUDA_ERROR_INVALID_VALUE;
  if (!rows) rows = last;
  if ((box->depth > 1 || side->z || side->y) && rows < last) return CUDA_ERROR_INVALID_VALUE;
  size_t last_layer, last_row;
  if (__builtin_mul_overflow(rows, place->row, &place->layer) ||
      __builtin_mul_overflow(side->z, place->layer, &first) || __builtin_mul_overflow(side->y, place->row, &bytes) ||
      __builtin_add_overflow(first, bytes, &first) || __builtin_add_overflow(first, side->x, &first) ||
      __builtin_mul_overflow(box->depth - 1, place->layer, &last_layer) ||
      __builtin_mul_overflow(box->height - 1, place->row, &last_row) ||
      __builtin_add_overflow(last_layer, last_row, &bytes) || __builtin_add_overflow(bytes, box->width, &bytes) ||
      __builtin_add_overflow(place->base, first, &place->start) || __builtin_add_overflow(place->start, bytes, &end))
    return CUDA_ERROR_INVALID_VALUE;
  place->bytes = first + bytes;
  return CUDA_SUCCESS;
}

typedef struct {
  Extent from, to;
} Places;

/* Levels are those of mipmapped arrays, and mean nothing elsewhere (measured: edges/copies). */
static bool is_level(const Side *side) { return side->type != CU_MEMORYTYPE_ARRAY || !side->level; }

static CUresult find_places(const Box *box, Places *places) {
  if (!is_level(&box->from) || !is_level(&box->to)) return CUDA_ERROR_INVALID_VALUE;
  TRY(find_place(&box->from, box, &places->from));
  return find_place(&box->to, box, &places->to);
}

static bool is_empty(const Box *box) { return !box->width || !box->height || !box->depth; }

/* An offset does not lead from memory of the host to the device. */
static bool is_extent_usable(const Extent *extent) {
  return cl_address_range(extent->base) == cl_address_range(extent->start) &&
         is_usable(extent->base, extent->bytes, extent->type);
}

/* A row of a box on one side. */
static char *row_at(const Extent *extent, size_t row, const Box *box) {
  return (char *)cl_bytes_of(extent->start) + row / box->height * extent->layer + row % box->height * extent->row;
}

static size_t rows_of(const Box *box) { return box->depth * box->height; }

static void copy_places(const Box *box, const Places *places) {
  for (size_t row = 0; row < rows_of(box); row++)
    memmove(row_at(&places->to, row, box), row_at(&places->from, row, box), box->width);
}

static CUresult check_box(const Box *box, bool copies) {
  Places places;
  if (is_empty(box)) return CUDA_SUCCESS;
  TRY(find_places(box, &places));
  HOLD_TO_READ(cl_memory_lock);
  bool usable =
      is_extent_usable(&places.from) && is_extent_usable(&places.to) && is_writable(places.to.start, places.to.type);
  if (usable && copies) copy_places(box, &places);
  return usable ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static Range range_of(const Extent *extent, const Box *box) {
  return (Range){extent->start, box->width, extent->row, box->height, extent->layer, box->depth};
}

bool cl_range_of(const Side *side, const Box *box, Range *range) {
  Extent extent;
  if (is_empty(box) || find_place(side, box, &extent)) return false;
  *range = range_of(&extent, box);
  return true;
}

void cl_touch_box(Op *op, const Box *box, bool staged) {
  Places places;
  if (is_empty(box) || find_places(box, &places)) return;
  const Range from = range_of(&places.from, box), to = range_of(&places.to, box);
  if (!staged) cl_order_touch(op, &from, ACCESS_READ);
  cl_order_touch(op, &to, ACCESS_WRITE);
}

CUresult cl_check_box(const Box *box) { return check_box(box, false); }
CUresult cl_copy_box(const Box *box) { return check_box(box, true); }

/* Whether there are bytes: of a block, or where one was that is free and whose pages are still there. */
static bool has_bytes(CUdeviceptr start, size_t size) {
  return !cl_is_device_address(start) || cl_held_filled((uintptr_t)start, size) || cl_held_range_known(start, size);
}

/* Holds all that work on memory needs when it is done later. */
#define HOLD_ALL()              \
  HOLD_TO_READ(cl_memory_lock); \
  HOLD_ADDRESSES()
#define HOLD_ADDRESSES() UNTIL_END_AT(rwlock, cl_addresses_lock, rwlock_rdlock, addresses)

/* There were places when the copy was submitted: an array may be destroyed since. */
static bool are_there(const Places *places) {
  return has_bytes(places->from.base, places->from.bytes) && has_bytes(places->to.base, places->to.bytes);
}

CUresult cl_run_box(const Box *box) {
  Places places;
  if (is_empty(box)) return CUDA_SUCCESS;
  if (find_places(box, &places)) return CUDA_ERROR_ILLEGAL_ADDRESS;
  HOLD_ALL();
  if (!are_there(&places)) return CUDA_ERROR_ILLEGAL_ADDRESS;
  copy_places(box, &places);
  return CUDA_SUCCESS;
}

/* -- copies that take time -- */

enum { POISON = 0xD7 };

static bool overlap(const Extent *one, const Extent *other) {
  return one->base < other->base + other->bytes && other->base < one->base + one->bytes;
}

/* Whether memory of the host is there. */
static bool is_touchable(const Places *places, const Box *box) {
  char byte;
  for (size_t row = 0; row < rows_of(box); row++) {
    const char *from = row_at(&places->from, row, box), *to = row_at(&places->to, row, box);
    for (size_t at = 0; at < box->width; at += cl_page_size())
      if (!cl_read_safely(from + at, &byte, 1) || !cl_read_safely(to + at, &byte, 1)) return false;
    size_t last = box->width - 1;
    if (!cl_read_safely(from + last, &byte, 1) || !cl_read_safely(to + last, &byte, 1)) return false;
  }
  return true;
}

/* Reads the rows of a copy's source, one behind the other. */
static char *read_rows(const Box *box, const Extent *from) {
  char *rows = malloc(box->width * rows_of(box) + 1), *at = rows; /* a pointer for no bytes, too */
  for (size_t row = 0; rows && row < rows_of(box); row++, at += box->width)
    memcpy(at, row_at(from, row, box), box->width);
  return rows;
}

char *cl_read_box(const Box *box) {
  Extent from;
  return find_place(&box->from, box, &from) ? NULL : read_rows(box, &from);
}

static char *keep(const Box *box, const Places *places) {
  size_t size;
  if (__builtin_mul_overflow(box->width, box->height, &size) || __builtin_mul_overflow(size, box->depth, &size) ||
      size > COPIED_LATER_MAX || !is_touchable(places, box))
    return NULL;
  char *kept = read_rows(box, &places->from);
  for (size_t row = 0; kept && row < rows_of(box); row++) memset(row_at(&places->to, row, box), POISON, box->width);
  return kept;
}

char *cl_begin_box(const Box *box, bool *reads_late) {
  Places places;
  if (is_empty(box) || find_places(box, &places)) return NULL;
  HOLD_ALL();
  char *kept = are_there(&places) ? keep(box, &places) : NULL;
  if (kept && overlap(&places.from, &places.to)) *reads_late = false;
  return kept;
}

CUresult cl_run_box_from(const Box *box, const char *source) {
  Places places;
  if (find_places(box, &places)) return CUDA_ERROR_ILLEGAL_ADDRESS;
  HOLD_ALL();
  if (!are_there(&places)) return CUDA_ERROR_ILLEGAL_ADDRESS;
  for (size_t row = 0; row < rows_of(box); row++, source += box->width)
    memcpy(row_at(&places.to, row, box), source, box->width);
  return CUDA_SUCCESS;
}

/* -- filling -- */

/* `rows` rows of `count` values of `width` bytes, `pitch` bytes apart: 0 bytes if there are none. */
static CUresult size_of_fill(CUdeviceptr to, size_t width, size_t pitch, size_t count, size_t rows, size_t *size) {
  *size = 0;
  if (count * width == 0 || !rows) return CUDA_SUCCESS; /* as a number of 64 bits (H200) */
  if (to % width || (rows > 1 && (pitch % width || pitch < count * width)) || count > SIZE_MAX / width)
    return CUDA_ERROR_INVALID_VALUE;
  if (rows > 1 && (rows - 1) > (SIZE_MAX - count * width) / pitch) return CUDA_ERROR_INVALID_VALUE;
  *size = (rows - 1) * pitch + count * width;
  return CUDA_SUCCESS;
}

CUresult cl_check_fill(CUdeviceptr to, size_t width, size_t pitch, size_t count, size_t rows) {
  size_t size;
  CUresult result = size_of_fill(to, width, pitch, count, rows, &size);
  return result || cl_within(to, size) ? result : CUDA_ERROR_INVALID_VALUE;
}

static void fill_rows(CUdeviceptr to, uint32_t value, size_t width, size_t pitch, size_t count, size_t rows) {
  uintptr_t start = cl_bytes_of(to);
  for (size_t row = 0; row < rows; row++) {
    char *at = (char *)start + row * pitch;
    for (size_t number = 0; number < count; number++, at += width) memcpy(at, &value, width); /* little-endian hosts */
  }
}

CUresult cl_fill(CUdeviceptr to, uint32_t value, size_t width, size_t pitch, size_t count, size_t rows) {
  size_t size;
  CUresult result = size_of_fill(to, width, pitch, count, rows, &size);
  if (result || !size) return result;
  if (to + size < to && cl_within(to, 1)) /* not seen before it is done (H200) */
    return cl_stick(CUDA_ERROR_ILLEGAL_ADDRESS), CUDA_SUCCESS;
  HOLD_TO_READ(cl_memory_lock);
  if (!cl_held_within(to, size) || !cl_held_writable(to)) return CUDA_ERROR_INVALID_VALUE;
  fill_rows(to, value, width, pitch, count, rows);
  return CUDA_SUCCESS;
}

void cl_begin_fill(CUdeviceptr to, size_t width, size_t pitch, size_t count, size_t rows) {
  size_t size;
  const uint32_t poison = POISON * 0x01010101u;
  if (size_of_fill(to, width, pitch, count, rows, &size) || !size) return;
  HOLD_ALL();
  if (cl_is_device_address(to) && has_bytes(to, size)) fill_rows(to, poison, width, pitch, count, rows);
}

CUresult cl_run_fill(CUdeviceptr to, uint32_t value, size_t width, size_t pitch, size_t count, size_t rows) {
  size_t size;
  CUresult result = size_of_fill(to, width, pitch, count, rows, &size);
  if (result || !size) return result;
  HOLD_ALL();
  bool there = cl_is_device_address(to) ? has_bytes(to, size) : cl_held_within(to, size);
  if (there) fill_rows(to, value, width, pitch, count, rows);
  return there ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
}
