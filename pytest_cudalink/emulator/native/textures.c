/* Texture and surface objects: descriptors that are checked and kept, as nothing is sampled. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "arrays.h"
#include "blocks.h"
#include "devices.h"
#include "locks.h"

/* CUDA_RESOURCE_DESC, CUDA_TEXTURE_DESC, CUDA_RESOURCE_VIEW_DESC */
typedef struct {
  int type;
  union {
    const void *array;
    struct {
      CUdeviceptr address;
      int format;
      unsigned channels;
      size_t width, height, pitch; /* of linear memory, width is the number of bytes */
    } memory;
    int reserved[32];
  } of;
  unsigned flags;
} Resource;

typedef struct {
  int address_modes[3], filter;
  unsigned flags, anisotropy;
  int mipmap_filter;
  float bias, least_level, most_level, border[4];
  int reserved[12];
} Sampling;

typedef struct {
  int format;
  size_t width, height, depth;
  unsigned first_level, last_level, first_layer, last_layer, reserved[16];
} View;

_Static_assert(sizeof(Resource) == 144, "CUDA_RESOURCE_DESC");
_Static_assert(sizeof(Sampling) == 104, "CUDA_TEXTURE_DESC");
_Static_assert(sizeof(View) == 112, "CUDA_RESOURCE_VIEW_DESC");

enum { TEXTURE_FLAGS = 0x7f };

/* A texture or surface object. */
typedef struct {
  Object head;
  Resource resource;
  Sampling sampling;
  View view;
  bool has_view;
} Texture;

STATIC_LOCK(lock); /* of all of them */
static Objects all = {.lock = &lock};

void cl_end_textures(const Context *context) { cl_objects_end(&all, context); }

/* Packed elements of 1, 2 or 4 channels, in formats that memory can have: those of before the compressed ones. */
static size_t element_of_memory(const Resource *resource) {
  int format = resource->of.memory.format;
  return format <= CU_AD_FORMAT_FLOAT ? cl_element_size(format, resource->of.memory.channels) : 0;
}

/* How many elements a line of memory may have; the attribute is that of the widest elements, of 16 bytes. */
static size_t longest_line(size_t element) {
  size_t times = 16 / element;
  return cl_device_has(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH) * (times > 4 ? 4 : times);
}

/* A texture of no elements is one, too (measured: edges/textures). */
static CUresult check_memory(const Resource *resource) {
  size_t element = element_of_memory(resource), width = resource->of.memory.width;
  CUdeviceptr address = resource->of.memory.address;
  if (!element || !address || address % cl_device_has(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT))
    return CUDA_ERROR_INVALID_VALUE;
  if (resource->type == CU_RESOURCE_TYPE_LINEAR)
    return width / element > longest_line(element) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  size_t height = resource->of.memory.height, pitch = resource->of.memory.pitch; /* rows may overlap */
  bool fits = width <= cl_device_has(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH) &&
              height <= cl_device_has(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_HEIGHT) &&
              pitch <= cl_device_has(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_PITCH) &&
              pitch % cl_device_has(CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT) == 0;
  return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Reads the array behind a resource; the levels of one that is not mipmapped are 0. */
static CUresult array_of(const Resource *resource, ArrayDescriptor *array, unsigned *levels) {
  *levels = 0;
  bool found = resource->type == CU_RESOURCE_TYPE_ARRAY ? cl_array_descriptor(resource->of.array, array)
                                                        : cl_mipmap_descriptor(resource->of.array, array, levels);
  return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* How many coordinates a texture has. */
static int axes_of(const Resource *resource, const ArrayDescriptor *array) {
  if (!array) return resource->type == CU_RESOURCE_TYPE_LINEAR ? 1 : 2;
  bool layered = array->flags & CUDA_ARRAY3D_LAYERED;
  return array->depth && !layered ? 3 : array->height ? 2 : 1;
}

static bool is_filter(int mode) { return mode == CU_TR_FILTER_MODE_POINT || mode == CU_TR_FILTER_MODE_LINEAR; }

static CUresult check_sampling(const Sampling *sampling, const Resource *resource, const ArrayDescriptor *array) {
  for (int axis = 0; axis < axes_of(resource, array); axis++)
    if (sampling->address_modes[axis] < CU_TR_ADDRESS_MODE_WRAP ||
        sampling->address_modes[axis] > CU_TR_ADDRESS_MODE_BORDER)
      return CUDA_ERROR_INVALID_VALUE;
  if (!cl_are_zeros(sampling->reserved, sizeof sampling->reserved) || !is_filter(sampling->filter) ||
      !is_filter(sampling->mipmap_filter) || sampling->flags & ~(unsigned)TEXTURE_FLAGS)
    return CUDA_ERROR_INVALID_VALUE;
  bool cubemap = array && array->flags & CUDA_ARRAY3D_CUBEMAP;
  return sampling->flags & CU_TRSF_SEAMLESS_CUBEMAP && !cubemap ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

/* The bytes of an element of each CUresourceViewFormat, which are those of the array's (measured: edges/textures). */
static const unsigned char bytes_of_view[CU_RES_VIEW_FORMAT_UNSIGNED_BC7 + 1] = {
    0, 1, 2, 4, 1, 2, 4, 2, 4, 8, 2, 4, 8, 4, 8, 16, 4, 8, 16, 2, 4, 8, 4, 8, 16, 8, 16, 16, 8, 8, 16, 16, 16, 16, 16};

static CUresult check_view(const View *view, const ArrayDescriptor *array, unsigned levels) {
  if (view->format < CU_RES_VIEW_FORMAT_NONE || view->format > CU_RES_VIEW_FORMAT_UNSIGNED_BC7 ||
      bytes_of_view[view->format] != cl_element_size(array->format, array->channels) ||
      !cl_are_zeros(view->reserved, sizeof view->reserved))
    return CUDA_ERROR_INVALID_VALUE;
  size_t scale = view->format >= CU_RES_VIEW_FORMAT_UNSIGNED_BC1 && !cl_is_block_format(array->format) ? 4 : 1;
  if (scale > 1 && array->format != CU_AD_FORMAT_UNSIGNED_INT32) return CUDA_ERROR_INVALID_VALUE;
  if (view->width != scale * array->width || view->height != scale * array->height || view->depth != array->depth)
    return CUDA_ERROR_INVALID_VALUE;
  unsigned last_layer = 0;
  if (array->flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) last_layer = (unsigned)array->depth - 1;
  bool fits = view->first_level <= view->last_level && view->last_level <= levels && /* one too many, too, on an H200 */
              view->first_layer <= view->last_layer && view->last_layer <= last_layer;
  return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult keep(uint64_t *out, const Texture *like, HandleKind kind, Context *context) {
  Texture *texture = malloc(sizeof *texture);
  if (!texture) return CUDA_ERROR_OUT_OF_MEMORY;
  *texture = *like;
  HOLD(lock);
  bool kept = cl_object_enter(&texture->head, kind, context, &all);
  if (kept) *out = (uintptr_t)texture;
  else free(texture);
  return kept ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API(cuTexObjectCreate, (uint64_t *out, const Resource *resource, const Sampling *sampling, const View *view),
    (out, resource, sampling, view)) {
  IN_CONTEXT(context);
  if (!out || !resource || !sampling) return CUDA_ERROR_INVALID_VALUE;
  Texture texture = {.resource = *resource, .sampling = *sampling};
  cl_event_int(line, "resource", resource->type);
  if (resource->type < CU_RESOURCE_TYPE_ARRAY || resource->type > CU_RESOURCE_TYPE_PITCH2D || resource->flags)
    return CUDA_ERROR_INVALID_VALUE;
  bool of_array = resource->type == CU_RESOURCE_TYPE_ARRAY || resource->type == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
  ArrayDescriptor array;
  unsigned levels = 0;
  TRY(of_array ? array_of(resource, &array, &levels) : check_memory(resource));
  TRY(check_sampling(sampling, resource, of_array ? &array : NULL));
  if (view && of_array) TRY(check_view(view, &array, levels)); /* memory has no views: theirs are left */
  if (resource->type == CU_RESOURCE_TYPE_ARRAY) TRY(cl_check_array_context(resource->of.array));
  texture.has_view = view && of_array;
  if (texture.has_view) texture.view = *view;
  return keep(out, &texture, HANDLE_TEXTURE, context);
}

API(cuSurfObjectCreate, (uint64_t *pSurfObject, const Resource *resource), (pSurfObject, resource)) {
  IN_CONTEXT(context);
  if (!pSurfObject || !resource) return CUDA_ERROR_INVALID_VALUE;
  ArrayDescriptor array;
  unsigned levels;
  if (resource->type != CU_RESOURCE_TYPE_ARRAY || resource->flags) return CUDA_ERROR_INVALID_VALUE;
  TRY(array_of(resource, &array, &levels));
  TRY(cl_check_array_context(resource->of.array));
  return keep(pSurfObject, &(Texture){.resource = *resource}, HANDLE_SURFACE, context);
}

static CUresult destroy(uint64_t handle, HandleKind kind) {
  CUresult result = cl_check_context();
  if (result || !handle) return result;
  HOLD(lock);
  Object *texture = (Object *)(uintptr_t)handle;
  if (cl_handle_is(texture, kind)) cl_object_end(texture);
  return CUDA_SUCCESS; /* whatever the number is (measured: edges/textures) */
}
EXPORTED(cuTexObjectDestroy, (uint64_t texture), destroy(texture, HANDLE_TEXTURE))
EXPORTED(cuSurfObjectDestroy, (uint64_t surface), destroy(surface, HANDLE_SURFACE))

static CUresult asked(const void *out, uint64_t handle, HandleKind kind, Texture *texture) {
  const void *address = (const void *)(uintptr_t)handle;
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  TRY(cl_check_context());
  HOLD(lock);
  if (!cl_handle_is(address, kind)) return CUDA_ERROR_INVALID_VALUE;
  *texture = *(const Texture *)address;
  return texture->head.context == cl_current()
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_VALUE; /* of another context it is not (recorded programs) */
}

static CUresult get_resource(Resource *out, uint64_t handle, HandleKind kind) {
  Texture texture;
  TRY(asked(out, handle, kind, &texture));
  /* of a kind is written what that kind has (H200) */
  static const unsigned char bytes[] = {8, 8, offsetof(Resource, of.memory.height) - offsetof(Resource, of),
                                        offsetof(Resource, of.memory.pitch) + 8 - offsetof(Resource, of)};
  int type = texture.resource.type;
  ArrayDescriptor array;
  unsigned levels;
  out->flags = texture.resource.flags;
  if (type <= CU_RESOURCE_TYPE_MIPMAPPED_ARRAY && array_of(&texture.resource, &array, &levels)) return CUDA_SUCCESS;
  out->type = type;
  memcpy(&out->of, &texture.resource.of, bytes[type]);
  return CUDA_SUCCESS;
}
EXPORTED(cuTexObjectGetResourceDesc, (Resource * out, uint64_t texture), get_resource(out, texture, HANDLE_TEXTURE))
EXPORTED(cuSurfObjectGetResourceDesc, (Resource * out, uint64_t surface), get_resource(out, surface, HANDLE_SURFACE))

API(cuTexObjectGetTextureDesc, (Sampling * out, uint64_t handle), (out, handle)) {
  Texture texture;
  TRY(asked(out, handle, HANDLE_TEXTURE, &texture));
  memcpy(out, &texture.sampling, offsetof(Sampling, border)); /* the rest is left (H200) */
  return CUDA_SUCCESS;
}

API(cuTexObjectGetResourceViewDesc, (View * out, uint64_t handle), (out, handle)) {
  Texture texture;
  CUresult result = asked(out, handle, HANDLE_TEXTURE, &texture);
  if (!result && texture.has_view) *out = texture.view; /* without a view nothing is written */
  return result;
}

API(cuDeviceGetTexture1DLinearMaxWidth, (size_t *elements, int format, unsigned channels, CUdevice device),
    (elements, format, channels, device)) {
  if (!elements || !cl_element_size(format, channels)) return CUDA_ERROR_INVALID_VALUE;
  TRY(cl_asked_of(line, true, device));
  *elements = longest_line(cl_element_size(format, channels));
  return CUDA_SUCCESS;
}
