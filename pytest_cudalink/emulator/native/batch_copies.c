/* Several copies in one call. */
#include <string.h>

#include "arrays.h"
#include "capture.h"
#include "copied_bytes.h"
#include "devices.h"

static const size_t NO_COPY = SIZE_MAX; /* no single copy is at fault */

typedef struct {
  int order;
  Location source_hint, destination_hint;
  unsigned flags;
} Attributes;
_Static_assert(sizeof(Attributes) == 24, "CUmemcpyAttributes");

/* Whether a place is one that a hint may name (measured: edges/copies). */
static bool is_hint(const Location *hint) {
  return hint->type <= CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT &&
         (hint->type != CU_MEM_LOCATION_TYPE_DEVICE || cl_is_device(hint->id));
}

static bool are_attributes(const Attributes *attributes) {
  return is_hint(&attributes->source_hint) && is_hint(&attributes->destination_hint) &&
         attributes->order >= CU_MEMCPY_SRC_ACCESS_ORDER_STREAM &&
         attributes->order <= CU_MEMCPY_SRC_ACCESS_ORDER_ANY &&
         attributes->flags <= CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE;
}

/* What a stream answers before anything else is looked at. Copies of a batch cannot be captured, and need a current
   context (two H200s: edges/two_more_copies). */
static CUresult enter(const void *stream) {
  bool captured = false;
  TRY(cl_enter_stream(stream, &captured));
  if (captured) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  return cl_is_known_context(NULL) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult copy(const Box *box, const void *stream, size_t at, size_t *failed) {
  CUresult result = cl_copy_box_in(box, stream);
  if (result) *failed = at;
  return result;
}

typedef struct {
  const CUdeviceptr *to, *from;
  const size_t *sizes;
  size_t count;
  const Attributes *attributes;
  const size_t *firsts; /* of the copies that attributes hold for */
  size_t attribute_count;
} Batch;

static CUresult check_batch(const Batch *batch) {
  if (!batch->to || !batch->from || !batch->sizes || !batch->count || !batch->attributes || !batch->firsts ||
      !batch->attribute_count || batch->attribute_count > batch->count || batch->firsts[0])
    return CUDA_ERROR_INVALID_VALUE;
  for (size_t at = 0; at < batch->attribute_count; at++)
    if (!are_attributes(&batch->attributes[at]) || batch->firsts[at] >= batch->count ||
        (at && batch->firsts[at] <= batch->firsts[at - 1]))
      return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

/* Whether a stream can take a batch, which is checked even before cuInit (measured: programs/others). */
static bool takes_batches(const void *stream) { return (uintptr_t)stream > CU_STREAM_LEGACY; }

static CUresult copy_batch(EventLine *line, const Batch *batch, size_t *failed, const void *stream) {
  size_t unused;
  if (!failed) failed = &unused;
  cl_event_uint(line, "count", batch->count);
  if (!takes_batches(stream)) return CUDA_ERROR_INVALID_VALUE;
  *failed = NO_COPY;
  CUresult result = enter(stream);
  if (!result) result = check_batch(batch);
  for (size_t at = 0; at < batch->count && !result; at++) {
    Side from = {.type = CU_MEMORYTYPE_UNIFIED, .device = batch->from[at]};
    Side to = {.type = CU_MEMORYTYPE_UNIFIED, .device = batch->to[at]};
    result = batch->sizes[at] ? copy(&(Box){from, to, batch->sizes[at], 1, 1}, stream, at, failed)
                              : CUDA_ERROR_INVALID_VALUE;
  }
  return result;
}
EXPORTED_WHEN(takes_batches(stream), cuMemcpyBatchAsync,
              (CUdeviceptr *to, CUdeviceptr *from, size_t *sizes, size_t count, Attributes *attributes, size_t *firsts,
               size_t attribute_count, size_t *failed, void *stream),
              copy_batch(line, &(Batch){to, from, sizes, count, attributes, firsts, attribute_count}, failed, stream))
EXPORTED_WHEN(takes_batches(stream), cuMemcpyBatchAsync_v2,
              (const CUdeviceptr *to, const CUdeviceptr *from, const size_t *sizes, size_t count,
               const Attributes *attributes, const size_t *firsts, size_t attribute_count, void *stream),
              copy_batch(line, &(Batch){to, from, sizes, count, attributes, firsts, attribute_count}, NULL, stream))

/* CUmemcpy3DOperand */
typedef struct {
  int type;
  union {
    struct {
      CUdeviceptr pointer;
      size_t row, rows;
      Location hint;
    };
    struct {
      void *array;
      size_t x, y, z;
    };
  };
} Operand;
_Static_assert(sizeof(Operand) == 40, "CUmemcpy3DOperand");

typedef struct {
  Operand from, to;
  size_t width, height, depth;
  int order;
  unsigned flags;
} BoxOperation;
_Static_assert(sizeof(BoxOperation) == 112, "CUDA_MEMCPY3D_BATCH_OP");

static bool is_box_operation(const BoxOperation *one) {
  return one->from.type >= CU_MEMCPY_OPERAND_TYPE_POINTER && one->from.type <= CU_MEMCPY_OPERAND_TYPE_ARRAY &&
         one->to.type >= CU_MEMCPY_OPERAND_TYPE_POINTER && one->to.type <= CU_MEMCPY_OPERAND_TYPE_ARRAY && one->width &&
         one->height && one->depth && one->order >= CU_MEMCPY_SRC_ACCESS_ORDER_STREAM &&
         one->order <= CU_MEMCPY_SRC_ACCESS_ORDER_ANY && one->flags <= CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE;
}

/* Finds the bytes of an element, which arrays have in common (cuda.h); false if an operand is not a fitting array. */
static bool find_element(const Operand *one, size_t *element) {
  ArrayDescriptor array;
  if (one->type == CU_MEMCPY_OPERAND_TYPE_POINTER) return true;
  if (!cl_array_descriptor(one->array, &array)) return false;
  size_t before = *element;
  *element = cl_element_size(array.format, array.channels);
  return !before || before == *element;
}

static Side side_of(const Operand *one, size_t element) {
  if (one->type == CU_MEMCPY_OPERAND_TYPE_ARRAY)
    return (Side){.type = CU_MEMORYTYPE_ARRAY, .array = one->array, .x = one->x * element, .y = one->y, .z = one->z};
  return (Side){
      .type = CU_MEMORYTYPE_UNIFIED, .device = one->pointer, .pitch = one->row * element, .height = one->rows};
}

static CUresult copy_boxes(EventLine *line, size_t count, const BoxOperation *operations, size_t *failed,
                           unsigned long long flags, const void *stream) {
  size_t unused;
  if (!failed) failed = &unused;
  cl_event_uint(line, "count", count);
  if (!takes_batches(stream)) return CUDA_ERROR_INVALID_VALUE;
  *failed = NO_COPY;
  CUresult result = enter(stream);
  if (!result && (!count || !operations || flags)) result = CUDA_ERROR_INVALID_VALUE;
  for (size_t at = 0; at < count && !result; at++) {
    const BoxOperation *one = &operations[at];
    size_t element = 0;
    if (!is_box_operation(one) || !find_element(&one->from, &element) || !find_element(&one->to, &element))
      return CUDA_ERROR_INVALID_VALUE;
    if (!element) element = 1;
    const Box box = {side_of(&one->from, element), side_of(&one->to, element), one->width * element, one->height,
                     one->depth};
    result = copy(&box, stream, at, failed);
  }
  return result;
}
EXPORTED_WHEN(takes_batches(stream), cuMemcpy3DBatchAsync,
              (size_t count, BoxOperation *operations, size_t *failed, unsigned long long flags, void *stream),
              copy_boxes(line, count, operations, failed, flags, stream))
EXPORTED_WHEN(takes_batches(stream), cuMemcpy3DBatchAsync_v2,
              (size_t count, BoxOperation *operations, unsigned long long flags, void *stream),
              copy_boxes(line, count, operations, NULL, flags, stream))

/* A driver answers so, too, for most of what recorded programs asked. */
API(cuMemBatchDecompressAsync, (void *operations, size_t count, unsigned flags, size_t *failed, Stream *handle),
    (operations, count, flags, failed, handle)) {
  Stream *stream;
  TRY(LOCKED(cl_stream_state(handle, &stream)));
  return cl_unsupported(line, "not implemented by the emulated driver");
}
