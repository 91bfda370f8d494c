/* Arrays and mipmapped arrays: memory of the device without an address, in rows without gaps. */
#include "arrays.h"

#include <stdlib.h>
#include <string.h>

#include "devices.h"
#include "locks.h"
#include "physical_memory.h"
#include "streams.h"

enum { MOST_LEVELS = 32, TILE = 65536 };

typedef struct Array {
  Object head;
  ArrayDescriptor descriptor;
  CUdeviceptr memory;                 /* 0: none is bound to it */
  bool part;                          /* a plane or a level: it goes with the whole */
  unsigned parts;                     /* of planes or levels */
  struct Array *part_of[MOST_LEVELS]; /* the planes or levels themselves */
} Array;

STATIC_LOCK(lock); /* of all arrays */

/* Frees an array with its parts; its memory goes once, with the whole. */
static void free_array(Object *object) {
  Array *array = (Array *)object;
  for (unsigned at = 0; at < array->parts; at++) {
    cl_object_unname(&array->part_of[at]->head);
    free_array(&array->part_of[at]->head);
  }
  if (array->memory && !array->part) cl_release(array->memory);
  free(array);
}

static Objects all = {.free = free_array, .lock = &lock}; /* but for the parts */

void cl_end_arrays(const Context *context) { cl_objects_end(&all, context); }

/* Adds a plane or a level that begins so many bytes behind the beginning of the memory. */
static bool add_part(Array *whole, const ArrayDescriptor *descriptor, size_t *offset) {
  ArrayLayout layout;
  Array *part = cl_layout_of(descriptor, &layout) ? calloc(1, sizeof *part) : NULL;
  if (!part) return false;
  part->descriptor = *descriptor;
  part->part = true;
  if (whole->memory) part->memory = whole->memory + *offset;
  *offset += layout.bytes;
  whole->part_of[whole->parts++] = part;
  return true;
}

/* Enters an array with its parts, once all of them are made: a handle can be that of an array destroyed before. */
static bool enter(Array *array, HandleKind kind, Context *context) {
  bool entered = true;
  for (unsigned at = 0; entered && at < array->parts; at++)
    entered = cl_object_enter(&array->part_of[at]->head, HANDLE_ARRAY, context, NULL);
  return entered && cl_object_enter(&array->head, kind, context, &all);
}

/* The bytes of all levels; false if they do not fit into a number. */
static bool bytes_of(const ArrayDescriptor *descriptor, unsigned levels, size_t *bytes) {
  *bytes = 0;
  for (unsigned level = 0; level < levels; level++) {
    ArrayLayout layout;
    ArrayDescriptor one = cl_level_of(descriptor, level);
    if (!cl_layout_of(&one, &layout) || __builtin_add_overflow(*bytes, layout.bytes, bytes)) return false;
  }
  return true;
}

/* Makes an array (0 levels) or a mipmapped one, with its memory and its parts. */
static CUresult create(void **out, const ArrayDescriptor *descriptor, unsigned levels) {
  if (!out || !descriptor) return CUDA_ERROR_INVALID_VALUE;
  IN_CONTEXT(context);
  TRY(cl_check_array(descriptor, levels));
  size_t bytes, offset = 0;
  if (!bytes_of(descriptor, levels ? levels : 1, &bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  Array *array = calloc(1, sizeof *array);
  if (!array) return CUDA_ERROR_OUT_OF_MEMORY;
  array->descriptor = *descriptor;
  bool bound = !(descriptor->flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING));
  if (bound) array->memory = cl_allocate(bytes, ON_DEVICE, NULL);
  bool made = !bound || array->memory;
  unsigned planes = cl_plane_count(descriptor->format), parts = levels ? levels : planes > 1 ? planes : 0;
  for (unsigned at = 0; made && at < parts; at++) {
    ArrayDescriptor one = levels ? cl_level_of(descriptor, at) : cl_plane_of(descriptor, at);
    made = add_part(array, &one, &offset);
  }
  HOLD(lock);
  made = made && enter(array, levels ? HANDLE_MIPMAP : HANDLE_ARRAY, context);
  if (made) *out = array;
  else free_array(&array->head);
  return made ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Finds an array or a mipmapped one, and holds the lock until the block ends; returns `otherwise` from the function. */
#define FIND(array, handle, kind, otherwise)                                             \
  HOLD(lock);                                                                            \
  Array *const array = cl_handle_is(handle, kind) ? (Array *)(uintptr_t)(handle) : NULL; \
  if (!(array)) return otherwise

/* What a question about an array answers before the array is looked at, which needs no context, and for NULL not even
   cuInit. */
static CUresult asked(const void *out, const void *handle) {
  if (!handle) return CUDA_ERROR_INVALID_HANDLE;
  if (!cl_initialized()) return CUDA_ERROR_NOT_INITIALIZED;
  return out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static bool inside(size_t start, size_t count, size_t all) { return start <= all && count <= all - start; }

CUresult cl_place_in_array(const void *handle, const ArrayBox *box, uintptr_t *start, size_t *row, size_t *layer) {
  ArrayLayout all;
  FIND(array, handle, HANDLE_ARRAY, CUDA_ERROR_INVALID_VALUE);
  if (!array->memory || array->parts || !cl_layout_of(&array->descriptor, &all) ||
      !inside(box->x, box->width, all.row) || !inside(box->y, box->height, all.rows) ||
      !inside(box->z, box->depth, all.layers))
    return CUDA_ERROR_INVALID_VALUE;
  *row = all.row;
  *layer = all.row * all.rows;
  *start = (uintptr_t)array->memory + box->z * *layer + box->y * *row + box->x;
  return CUDA_SUCCESS;
}

CUresult cl_check_array_context(const void *handle) {
  CUresult result;
  const Context *context = cl_context(&result);
  HOLD(lock);
  const Context *own = cl_handle_is(handle, HANDLE_ARRAY) ? ((const Object *)handle)->context : context;
  return !result && own != context && !cl_is_peer(context, own) ? CUDA_ERROR_PEER_ACCESS_NOT_ENABLED : CUDA_SUCCESS;
}

bool cl_array_descriptor(const void *handle, ArrayDescriptor *descriptor) {
  FIND(array, handle, HANDLE_ARRAY, false);
  *descriptor = array->descriptor;
  return true;
}

bool cl_mipmap_descriptor(const void *handle, ArrayDescriptor *descriptor, unsigned *levels) {
  FIND(mipmap, handle, HANDLE_MIPMAP, false);
  *descriptor = mipmap->descriptor;
  *levels = mipmap->parts;
  return true;
}

/* -- arrays -- */

static void note(EventLine *line, const ArrayDescriptor *descriptor) {
  if (!descriptor) return;
  cl_event_uint(line, "width", descriptor->width);
  cl_event_uint(line, "height", descriptor->height);
  cl_event_uint(line, "depth", descriptor->depth);
  cl_event_int(line, "format", descriptor->format);
  cl_event_uint(line, "flags", descriptor->flags);
}

static CUresult create_3d(EventLine *line, void **out, const ArrayDescriptor *descriptor) {
  note(line, descriptor);
  return create(out, descriptor, 0);
}
EXPORTED(cuArray3DCreate_v2, (void **array, const ArrayDescriptor *descriptor), create_3d(line, array, descriptor))

API(cuArrayCreate_v2, (void **out, const FlatDescriptor *flat), (out, flat)) {
  if (!out || !flat) return CUDA_ERROR_INVALID_VALUE;
  ArrayDescriptor descriptor = {flat->width, flat->height, 0, flat->format, flat->channels, 0};
  return create_3d(line, out, &descriptor);
}

/* A part goes with the whole: to destroy it alone changes nothing. */
static CUresult destroy(void *handle, HandleKind kind) {
  FIND(array, handle, kind, CUDA_ERROR_INVALID_HANDLE);
  if (!array->part) cl_object_end(&array->head);
  return CUDA_SUCCESS;
}
EXPORTED(cuArrayDestroy, (void *array), destroy(array, HANDLE_ARRAY))

static CUresult get_descriptor_3d(ArrayDescriptor *out, const void *handle) {
  TRY(asked(out, handle));
  ArrayDescriptor descriptor;
  if (!cl_array_descriptor(handle, &descriptor)) return CUDA_ERROR_INVALID_HANDLE;
  memcpy(out, &descriptor, offsetof(ArrayDescriptor, flags) + sizeof descriptor.flags); /* without its padding */
  return CUDA_SUCCESS;
}
EXPORTED_ANY_TIME(cuArray3DGetDescriptor_v2, (ArrayDescriptor * out, void *array), get_descriptor_3d(out, array))

API_WHEN(false, cuArrayGetDescriptor_v2, (FlatDescriptor * out, void *handle), (out, handle)) {
  ArrayDescriptor whole;
  CUresult result = get_descriptor_3d(out ? &whole : NULL, handle);
  if (!result) *out = (FlatDescriptor){whole.width, whole.height, whole.format, whole.channels};
  return result;
}

static CUresult get_part(void **out, const void *handle, HandleKind kind, unsigned number) {
  TRY(asked(out, handle));
  FIND(whole, handle, kind, CUDA_ERROR_INVALID_HANDLE);
  if (number >= whole->parts) return CUDA_ERROR_INVALID_VALUE;
  *out = whole->part_of[number];
  return CUDA_SUCCESS;
}
EXPORTED_ANY_TIME(cuArrayGetPlane, (void **plane, void *array, unsigned number),
                  get_part(plane, array, HANDLE_ARRAY, number))

/* -- mipmapped arrays -- */

API(cuMipmappedArrayCreate, (void **out, const ArrayDescriptor *descriptor, unsigned levels),
    (out, descriptor, levels)) {
  note(line, descriptor);
  cl_event_uint(line, "levels", levels);
  unsigned most = descriptor ? cl_most_levels(descriptor) : 1;
  if (most > MOST_LEVELS) most = MOST_LEVELS;
  return create(out, descriptor, levels < 1 ? 1 : levels > most ? most : levels);
}
EXPORTED(cuMipmappedArrayDestroy, (void *mipmap), destroy(mipmap, HANDLE_MIPMAP))
EXPORTED_ANY_TIME(cuMipmappedArrayGetLevel, (void **array, void *mipmap, unsigned level),
                  get_part(array, mipmap, HANDLE_MIPMAP, level))

/* -- what is to be bound to arrays without memory: whatever is wrong with a question is an invalid value -- */

/* CUDA_ARRAY_MEMORY_REQUIREMENTS, CUDA_ARRAY_SPARSE_PROPERTIES */
typedef struct {
  size_t size, alignment;
  unsigned reserved[4];
} Requirements;

typedef struct {
  unsigned width, height, depth, first_level;
  unsigned long long tail_size;
  unsigned flags, reserved[4];
} SparseProperties;

_Static_assert(sizeof(Requirements) == 32, "CUDA_ARRAY_MEMORY_REQUIREMENTS");
_Static_assert(sizeof(SparseProperties) == 48, "CUDA_ARRAY_SPARSE_PROPERTIES");

static CUresult requirements(Requirements *out, const void *handle, HandleKind kind, CUdevice device) {
  size_t bytes = 0;
  (void)device; /* a driver ignores it (H200) */
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  FIND(array, handle, kind, CUDA_ERROR_INVALID_VALUE);
  if (array->descriptor.flags & CUDA_ARRAY3D_DEFERRED_MAPPING &&
      bytes_of(&array->descriptor, kind == HANDLE_MIPMAP ? array->parts : 1, &bytes))
    *out = (Requirements){.size = (bytes + TILE - 1) / TILE * TILE, .alignment = TILE};
  return bytes ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
EXPORTED_ANY_TIME(cuArrayGetMemoryRequirements, (Requirements * out, void *array, CUdevice device),
                  requirements(out, array, HANDLE_ARRAY, device))
EXPORTED_ANY_TIME(cuMipmappedArrayGetMemoryRequirements, (Requirements * out, void *mipmap, CUdevice device),
                  requirements(out, mipmap, HANDLE_MIPMAP, device))

/* The extents of a tile of 64 KiB by the size of an element: 1, 2, 4, 8, 16 bytes. */
static const unsigned char tiles_2d[5][2] = {{8, 8}, {8, 7}, {7, 7}, {7, 6}, {6, 6}}; /* powers of two */
static const unsigned char tiles_3d[5][3] = {{6, 5, 5}, {5, 5, 5}, {5, 5, 4}, {5, 4, 4}, {4, 4, 4}};

/* An array that is not mipmapped has no levels that share tiles (measured: edges/arrays). */
static SparseProperties properties_of(const ArrayDescriptor *array, unsigned levels) {
  unsigned size = 0;
  for (size_t element = cl_element_size(array->format, array->channels); element > 1 && size < 4; element >>= 1) size++;
  bool layered = array->flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP), deep = array->depth && !layered;
  SparseProperties found = {.width = 1u << tiles_2d[size][0], .height = 1u << tiles_2d[size][1], .depth = 1};
  if (deep) {
    found.width = 1u << tiles_3d[size][0];
    found.height = 1u << tiles_3d[size][1];
    found.depth = 1u << tiles_3d[size][2];
  }
  for (found.first_level = 0; found.first_level < levels; found.first_level++) { /* levels smaller than a tile */
    ArrayDescriptor one = cl_level_of(array, found.first_level);
    if (one.width < found.width || one.height < found.height || (deep && one.depth < found.depth)) break;
  }
  for (unsigned level = found.first_level; level < levels; level++) { /* they share tiles; each layer has its own */
    ArrayLayout layout;
    ArrayDescriptor one = cl_level_of(array, level);
    if (layered) one.depth = 0;
    if (cl_layout_of(&one, &layout)) found.tail_size += layout.bytes;
  }
  found.tail_size = (found.tail_size + TILE - 1) / TILE * TILE;
  return found;
}

static CUresult sparse_properties(SparseProperties *out, const void *handle, HandleKind kind) {
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  FIND(array, handle, kind, CUDA_ERROR_INVALID_VALUE);
  if (array->part || !(array->descriptor.flags & CUDA_ARRAY3D_SPARSE)) return CUDA_ERROR_INVALID_VALUE;
  *out = properties_of(&array->descriptor, kind == HANDLE_MIPMAP ? array->parts : 0);
  return CUDA_SUCCESS;
}
EXPORTED_ANY_TIME(cuArrayGetSparseProperties, (SparseProperties * out, void *array),
                  sparse_properties(out, array, HANDLE_ARRAY))
EXPORTED_ANY_TIME(cuMipmappedArrayGetSparseProperties, (SparseProperties * out, void *mipmap),
                  sparse_properties(out, mipmap, HANDLE_MIPMAP))

typedef struct {
  int type;
  const void *resource;
  int part; /* a level, or the tail that smaller levels share */
  union {
    struct {
      unsigned level, layer, start[3], extent[3];
    };
    struct {
      unsigned layer;
      uint64_t offset, size;
    } tail;
  };
  int operation, handle_type;
  uint64_t memory, offset;
  unsigned devices, flags, reserved[2];
} MapInfo;
_Static_assert(sizeof(MapInfo) == 96, "CUarrayMapInfo");

/* Whether a part of a dimension consists of tiles; *tiles becomes their number times what it was. */
static bool is_tiled(size_t offset, size_t extent, size_t all, size_t tile, size_t *tiles) {
  *tiles *= (extent + tile - 1) / tile;
  return extent && inside(offset, extent, all) && offset % tile == 0 && (extent % tile == 0 || offset + extent == all);
}

/* Whether an array has what is to be mapped, and the number of its tiles. */
static bool find_tiles(const Array *array, const MapInfo *info, size_t *tiles) {
  unsigned levels = array->head.kind == HANDLE_MIPMAP ? array->parts : 0;
  SparseProperties found = properties_of(&array->descriptor, levels);
  bool layered = array->descriptor.flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP);
  size_t layers = layered ? array->descriptor.depth : 1;
  if (info->part == CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL) {
    *tiles = info->tail.size / TILE;
    return info->tail.size && info->tail.offset % TILE == 0 && info->tail.size % TILE == 0 &&
           info->tail.layer < layers && inside(info->tail.offset, info->tail.size, found.tail_size);
  }
  if (info->level >= (levels ? found.first_level : 1) || info->layer >= layers) return false;
  ArrayDescriptor level = cl_level_of(&array->descriptor, info->level);
  size_t depth = layered || !level.depth ? 1 : level.depth;
  *tiles = 1;
  return is_tiled(info->start[0], info->extent[0], level.width, found.width, tiles) &&
         is_tiled(info->start[1], info->extent[1], level.height, found.height, tiles) &&
         is_tiled(info->start[2], info->extent[2], depth, found.depth, tiles);
}

/* Whether memory that was made for tiles has so many of them. */
static bool has_tiles(uint64_t handle, uint64_t offset, size_t tiles) {
  HOLD_PHYSICAL(memory, handle);
  return memory && memory->properties.flags.usage & CU_MEM_CREATE_USAGE_TILE_POOL && offset % TILE == 0 &&
         inside(offset, tiles * TILE, memory->size);
}

static bool is_sparse(const MapInfo *info, size_t *tiles) {
  if (info->type != CU_RESOURCE_TYPE_ARRAY && info->type != CU_RESOURCE_TYPE_MIPMAPPED_ARRAY) return false;
  HandleKind kind = info->type == CU_RESOURCE_TYPE_ARRAY ? HANDLE_ARRAY : HANDLE_MIPMAP;
  FIND(array, info->resource, kind, false);
  return !array->part && array->descriptor.flags & CUDA_ARRAY3D_SPARSE && find_tiles(array, info, tiles);
}

/* A mapping is checked, and then nothing is left to do: what arrays without memory contain is not emulated. */
static CUresult map_tiles(const MapInfo *info) {
  size_t tiles = 0;
  bool maps = info->operation == CU_MEM_OPERATION_TYPE_MAP;
  if (info->part != CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL &&
      info->part != CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL)
    return CUDA_ERROR_INVALID_VALUE;
  if ((!maps && info->operation != CU_MEM_OPERATION_TYPE_UNMAP) || info->handle_type || info->devices != 1 ||
      info->flags || !cl_are_zeros(info->reserved, sizeof info->reserved))
    return CUDA_ERROR_INVALID_VALUE;
  bool found = is_sparse(info, &tiles) && (!maps || has_tiles(info->memory, info->offset, tiles));
  return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API(cuMemMapArrayAsync, (const MapInfo *list, unsigned count, void *stream), (list, count, stream)) {
  CUresult result = cl_check_context();
  if (!result && (!list || !count)) result = CUDA_ERROR_INVALID_VALUE;
  if (!result) result = cl_check_stream(stream);
  for (unsigned at = 0; at < count && !result; at++) result = map_tiles(&list[at]);
  return result;
}
