/* Arrays as numbers: formats, which descriptors are valid, and how much memory a level takes. */
#include "array_formats.h"

#include "devices.h"

/* A format: bytes of one channel, or of a block or pixel where the number of channels is fixed. */
typedef struct {
  int format;
  unsigned char bytes, channels; /* channels 0: 1, 2 or 4 of them */
  bool block;
  unsigned char planes, chroma_columns, chroma_rows; /* of planes: by what the second one is narrower and lower */
} Format;

#include "array_formats.inc" /* formats */

static const Format *format_of(int number) {
  for (size_t at = 0; at < sizeof formats / sizeof *formats; at++)
    if (formats[at].format == number) return &formats[at];
  return NULL;
}

size_t cl_element_size(int number, unsigned channels) {
  const Format *format = format_of(number);
  if (!format) return 0;
  if (format->channels) return channels == format->channels ? format->bytes : 0;
  return channels == 1 || channels == 2 || channels == 4 ? (size_t)format->bytes * channels : 0;
}

bool cl_is_block_format(int number) {
  const Format *format = format_of(number);
  return format && format->block;
}

unsigned cl_plane_count(int number) {
  const Format *format = format_of(number);
  return format && format->planes ? format->planes : 1;
}

ArrayDescriptor cl_plane_of(const ArrayDescriptor *whole, unsigned plane) {
  const Format *format = format_of(whole->format);
  ArrayDescriptor one = *whole;
  one.format = format->bytes == 1 ? CU_AD_FORMAT_UNSIGNED_INT8 : CU_AD_FORMAT_UNSIGNED_INT16;
  one.channels = plane && format->planes == 2 ? 2 : 1;
  if (plane) {
    one.width = (whole->width + format->chroma_columns - 1) / format->chroma_columns;
    one.height = (whole->height + format->chroma_rows - 1) / format->chroma_rows;
  }
  return one;
}

/* CUdevice_attribute numbers of the largest width, height and depth; 0: the extent must be 0. */
typedef struct {
  int width, height, depth;
} Limits;

static const Limits of_1d[] = {{21, 0, 0}, {55, 0, 0}}, of_2d[] = {{22, 23, 0}, {56, 57, 0}};
static const Limits of_3d[] = {{24, 25, 26}, {58, 59, 60}}, of_3d_alternate = {47, 48, 49};
static const Limits of_1d_layers[] = {{42, 0, 43}, {61, 0, 62}}, of_2d_layers[] = {{27, 28, 29}, {63, 64, 65}};
static const Limits of_cube[] = {{52, 52, -6}, {66, 66, -6}}, of_cube_layers[] = {{53, 53, 54}, {67, 67, 68}};
static const Limits of_gather = {45, 46, 0}, of_1d_mipmap = {77, 0, 0}, of_2d_mipmap = {73, 74, 0};

static bool fits(size_t extent, int attribute) {
  if (attribute <= 0) return extent == (size_t)-attribute;
  return extent && extent <= cl_device_has(attribute);
}

static bool within(const ArrayDescriptor *array, const Limits *limits) {
  return fits(array->width, limits->width) && fits(array->height, limits->height) && fits(array->depth, limits->depth);
}

static bool valid_extents(const ArrayDescriptor *array, bool mipmapped) {
  bool layered = array->flags & CUDA_ARRAY3D_LAYERED;
  int surface = !!(array->flags & CUDA_ARRAY3D_SURFACE_LDST);
  if (array->flags & CUDA_ARRAY3D_CUBEMAP) {
    if (array->width != array->height || array->depth % 6) return false;
    return within(array, layered ? &of_cube_layers[surface] : &of_cube[surface]);
  }
  if (layered) return within(array, array->height ? &of_2d_layers[surface] : &of_1d_layers[surface]);
  if (array->depth) return within(array, &of_3d[surface]) || (!surface && within(array, &of_3d_alternate));
  if (array->flags & CUDA_ARRAY3D_TEXTURE_GATHER && !within(array, &of_gather)) return false;
  if (mipmapped && !within(array, array->height ? &of_2d_mipmap : &of_1d_mipmap)) return false;
  return within(array, array->height ? &of_2d[surface] : &of_1d[surface]);
}

CUresult cl_check_array(const ArrayDescriptor *array, bool mipmapped) {
  const Format *format = format_of(array->format);
  if (!format || !cl_element_size(array->format, array->channels)) return CUDA_ERROR_INVALID_VALUE;
  /* the highest bit is not looked at (H200) */
  if (array->flags & ~(unsigned)ARRAY_FLAGS & INT32_MAX) return CUDA_ERROR_INVALID_VALUE;
  if (array->flags & CUDA_ARRAY3D_TEXTURE_GATHER && (array->depth || !array->height)) return CUDA_ERROR_INVALID_VALUE;
  /* those are of other interfaces (measured: edges/arrays) */
  if (array->flags & (CUDA_ARRAY3D_DEPTH_TEXTURE | CUDA_ARRAY3D_COLOR_ATTACHMENT)) return CUDA_ERROR_INVALID_VALUE;
  if (format->block && array->flags & CUDA_ARRAY3D_SURFACE_LDST) return CUDA_ERROR_INVALID_VALUE;
  /* what a decoder writes (measured: edges/arrays) */
  bool is_video = array->format >= CU_AD_FORMAT_P010 && array->format <= CU_AD_FORMAT_YUV444_16bit_SemiPlanar;
  if (is_video && !(array->flags & CUDA_ARRAY3D_VIDEO_ENCODE_DECODE)) return CUDA_ERROR_INVALID_VALUE;
  if (format->planes && (mipmapped || array->depth || !array->height)) return CUDA_ERROR_INVALID_VALUE;
  bool other = array->flags & (CUDA_ARRAY3D_DEFERRED_MAPPING | CUDA_ARRAY3D_SURFACE_LDST);
  if (array->flags & CUDA_ARRAY3D_SPARSE && (other || !array->height)) return CUDA_ERROR_INVALID_VALUE;
  if (!valid_extents(array, mipmapped)) return CUDA_ERROR_INVALID_VALUE;
  if (array->flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING) &&
      !cl_device_has(array->flags & CUDA_ARRAY3D_SPARSE ? CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED
                                                        : CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED))
    return CUDA_ERROR_NOT_SUPPORTED;
  return CUDA_SUCCESS;
}

static size_t smaller(size_t extent, unsigned level) {
  size_t less = level < 8 * sizeof extent ? extent >> level : 0;
  return extent && !less ? 1 : less;
}

ArrayDescriptor cl_level_of(const ArrayDescriptor *whole, unsigned level) {
  ArrayDescriptor one = *whole;
  one.width = smaller(whole->width, level);
  one.height = smaller(whole->height, level);
  if (!(whole->flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP))) one.depth = smaller(whole->depth, level);
  return one;
}

unsigned cl_most_levels(const ArrayDescriptor *array) {
  size_t largest = array->width > array->height ? array->width : array->height;
  if (!(array->flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) && array->depth > largest) largest = array->depth;
  unsigned levels = 1;
  while (largest >>= 1) levels++;
  return levels;
}

bool cl_layout_of(const ArrayDescriptor *array, ArrayLayout *layout) {
  size_t element = cl_element_size(array->format, array->channels), columns = array->width, layer;
  layout->rows = array->height ? array->height : 1;
  layout->layers = array->depth ? array->depth : 1;
  if (cl_plane_count(array->format) > 1) { /* the planes follow one another */
    *layout = (ArrayLayout){.rows = layout->rows, .layers = 1};
    for (unsigned plane = 0; plane < cl_plane_count(array->format); plane++) {
      ArrayLayout one;
      ArrayDescriptor part = cl_plane_of(array, plane);
      if (!cl_layout_of(&part, &one)) return false;
      if (!plane) layout->row = one.row;
      layout->bytes += one.bytes;
    }
    return true;
  }
  if (cl_is_block_format(array->format)) {
    columns = (columns + 3) / 4;
    layout->rows = (layout->rows + 3) / 4;
  }
  return !__builtin_mul_overflow(columns, element, &layout->row) &&
         !__builtin_mul_overflow(layout->row, layout->rows, &layer) &&
         !__builtin_mul_overflow(layer, layout->layers, &layout->bytes);
}
