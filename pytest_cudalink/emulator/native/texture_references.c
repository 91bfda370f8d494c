/* Texture references of before texture objects: what is bound to them and how it would be read, kept and given back. */
#include <string.h>

#include "arrays.h"
#include "contexts.h"
#include "devices.h"
#include "locks.h"

enum { AXES = 3, NO_OVERRIDE = 2, REFERENCE_FLAGS = 0x7f };

typedef enum { BOUND_NOTHING, BOUND_MEMORY, BOUND_ARRAY, BOUND_MIPMAP } Bound;

typedef struct {
  Object head;
  Bound bound;
  CUdeviceptr address;
  void *array;
  int format, channels, modes[AXES], filter, mipmap_filter;
  unsigned anisotropy, flags;
  float bias, levels[2], border[4];
} Reference;

STATIC_LOCK(lock); /* of all references */
static Objects all = {.lock = &lock};

void cl_end_texture_references(const Context *context) { cl_objects_end(&all, context); }

API(cuTexRefCreate, (Reference * *out), (out)) {
  IN_CONTEXT(context);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  HOLD(lock);
  Reference *made = cl_object_make(sizeof *made, HANDLE_TEXTURE_REFERENCE, context, &all);
  if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
  made->format = CU_AD_FORMAT_FLOAT;
  made->channels = 1;
  for (int axis = 0; axis < AXES; axis++) made->modes[axis] = CU_TR_ADDRESS_MODE_CLAMP;
  *out = made;
  return CUDA_SUCCESS;
}

API(cuTexRefDestroy, (Reference * reference), (reference)) {
  HOLD(lock);
  bool known = cl_handle_is(reference, HANDLE_TEXTURE_REFERENCE);
  if (known) cl_object_end(&reference->head);
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* -- what a reference says: no context is needed to read or write it -- */

/* Whether a reference is alive; then the lock is kept. */
static bool hold(const Reference *reference) {
  pthread_mutex_lock(&lock);
  if (cl_handle_is(reference, HANDLE_TEXTURE_REFERENCE)) return true;
  pthread_mutex_unlock(&lock);
  return false;
}

static CUresult let_go(CUresult result) {
  pthread_mutex_unlock(&lock);
  return result;
}

/* Does `work`, an expression, with a reference that is alive, if what else was given is valid. */
#define WITH(reference, valid, work)                 \
  (!hold(reference) ? CUDA_ERROR_INVALID_HANDLE      \
   : (valid)        ? ((work), let_go(CUDA_SUCCESS)) \
                    : let_go(CUDA_ERROR_INVALID_VALUE))

static bool is_axis(int axis) { return axis >= 0 && axis < AXES; }

EXPORTED(cuTexRefSetFormat, (Reference * reference, int format, int channels),
         WITH(reference, channels >= 0 && channels <= 4 && channels != 3,
              (reference->format = format, reference->channels = channels)))
EXPORTED(cuTexRefSetAddressMode, (Reference * reference, int axis, int mode),
         WITH(reference, is_axis(axis), reference->modes[axis] = mode))
EXPORTED(cuTexRefSetFilterMode, (Reference * reference, int mode), WITH(reference, true, reference->filter = mode))
EXPORTED(cuTexRefSetMipmapFilterMode, (Reference * reference, int mode),
         WITH(reference, mode >= CU_TR_FILTER_MODE_POINT && mode <= CU_TR_FILTER_MODE_LINEAR,
              reference->mipmap_filter = mode))
EXPORTED(cuTexRefSetMipmapLevelBias, (Reference * reference, float bias), WITH(reference, true, reference->bias = bias))
EXPORTED(cuTexRefSetMipmapLevelClamp, (Reference * reference, float least, float most),
         WITH(reference, true, (reference->levels[0] = least, reference->levels[1] = most)))
EXPORTED(cuTexRefSetMaxAnisotropy, (Reference * reference, unsigned most),
         WITH(reference, true, reference->anisotropy = most))
EXPORTED(cuTexRefSetBorderColor, (Reference * reference, const float *color),
         WITH(reference, color, memcpy(reference->border, color, sizeof reference->border)))
EXPORTED(cuTexRefSetFlags, (Reference * reference, unsigned flags),
         WITH(reference, !(flags & ~(unsigned)REFERENCE_FLAGS), reference->flags = flags))

/* A question to a reference; the answer is an expression of it. */
#define ASK(name, type, valid, answer) \
  EXPORTED(name, (type out, const Reference *reference), WITH(reference, out && (valid), *out = (answer)))
ASK(cuTexRefGetAddress_v2, CUdeviceptr *, reference->bound == BOUND_MEMORY, reference->address)
ASK(cuTexRefGetArray, void **, reference->bound == BOUND_ARRAY, reference->array)
ASK(cuTexRefGetMipmappedArray, void **, reference->bound == BOUND_MIPMAP, reference->array)
ASK(cuTexRefGetFilterMode, int *, true, reference->filter)
ASK(cuTexRefGetMipmapFilterMode, int *, true, reference->mipmap_filter)
ASK(cuTexRefGetMipmapLevelBias, float *, true, reference->bias)
ASK(cuTexRefGetMaxAnisotropy, int *, true, (int)reference->anisotropy)
ASK(cuTexRefGetFlags, unsigned *, true, reference->flags)
EXPORTED(cuTexRefGetAddressMode, (int *out, const Reference *reference, int axis),
         WITH(reference, out &&is_axis(axis), *out = reference->modes[axis]))
EXPORTED(cuTexRefGetFormat, (int *format, int *channels, const Reference *reference),
         WITH(reference, format || channels,
              (format ? *format = reference->format : 0, channels ? *channels = reference->channels : 0)))
EXPORTED(cuTexRefGetMipmapLevelClamp, (float *least, float *most, const Reference *reference),
         WITH(reference, least &&most, (*least = reference->levels[0], *most = reference->levels[1])))
EXPORTED(cuTexRefGetBorderColor, (float *out, const Reference *reference),
         WITH(reference, out, memcpy(out, reference->border, sizeof reference->border)))

static CUresult bind_memory(Reference *reference, CUdeviceptr address) {
  reference->bound = BOUND_MEMORY;
  reference->address = address;
  return let_go(CUDA_SUCCESS);
}

API(cuTexRefSetAddress_v2, (size_t *offset, Reference *reference, CUdeviceptr address, size_t bytes),
    (offset, reference, address, bytes)) {
  if (!hold(reference)) return CUDA_ERROR_INVALID_HANDLE;
  size_t element = cl_element_size(reference->format, (unsigned)reference->channels);
  if (element && bytes / element > cl_device_has(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH))
    return let_go(CUDA_ERROR_INVALID_VALUE);
  size_t beyond = address % cl_device_has(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT);
  if (offset) *offset = beyond;
  else if (beyond) return let_go(CUDA_ERROR_INVALID_VALUE);
  return bind_memory(reference, address - beyond);
}

API(cuTexRefSetAddress2D_v3, (Reference * reference, const FlatDescriptor *rows, CUdeviceptr address, size_t pitch),
    (reference, rows, address, pitch)) {
  if (!hold(reference)) return CUDA_ERROR_INVALID_HANDLE;
  if (!rows) return let_go(CUDA_ERROR_INVALID_VALUE);
  uint32_t width = (uint32_t)rows->width; /* all that hardware looks at */
  size_t row = width * cl_element_size(rows->format, rows->channels);
  if (width > cl_device_has(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH))
    return let_go(CUDA_ERROR_INVALID_VALUE);
  if (row > pitch || pitch % cl_device_has(CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT) ||
      rows->height > cl_device_has(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_HEIGHT))
    return let_go(CUDA_ERROR_INVALID_VALUE);
  reference->format = rows->format;
  reference->channels = (int)rows->channels;
  return bind_memory(reference, address);
}

static CUresult set_array(Reference *reference, void *array, unsigned flags, Bound kind) {
  ArrayDescriptor descriptor;
  unsigned levels;
  if (!hold(reference)) return CUDA_ERROR_INVALID_HANDLE;
  bool known =
      kind == BOUND_ARRAY ? cl_array_descriptor(array, &descriptor) : cl_mipmap_descriptor(array, &descriptor, &levels);
  if (!known) return let_go(CUDA_ERROR_INVALID_HANDLE);
  CUresult result = flags & NO_OVERRIDE ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  if (!result && kind == BOUND_ARRAY) result = cl_check_array_context(array);
  if (result) return let_go(result);
  reference->bound = kind;
  reference->array = array;
  reference->format = descriptor.format;
  reference->channels = (int)descriptor.channels;
  return let_go(CUDA_SUCCESS);
}
EXPORTED(cuTexRefSetArray, (Reference * reference, void *array, unsigned flags),
         set_array(reference, array, flags, BOUND_ARRAY))
EXPORTED(cuTexRefSetMipmappedArray, (Reference * reference, void *array, unsigned flags),
         set_array(reference, array, flags, BOUND_MIPMAP))

EXPORTED(cuSurfRefSetArray, (void *reference, void *array, unsigned flags), CUDA_ERROR_INVALID_HANDLE)
EXPORTED(cuSurfRefGetArray, (void **out, void *reference), CUDA_ERROR_INVALID_HANDLE)
