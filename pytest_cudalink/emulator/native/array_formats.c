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

static const Format formats[] = {
    {.format = 0x01, .bytes = 1},
    {.format = 0x02, .bytes = 2},
    {.format = 0x03, .bytes = 4},
    {.format = 0x08, .bytes = 1},
    {.format = 0x09, .bytes = 2},
    {.format = 0x0a, .bytes = 4},
    {.format = 0x10, .bytes = 2},
    {.format = 0x20, .bytes = 4},
    {.format = 0x50, .bytes = 4, .channels = 4},
    {.format = 0xc0, .bytes = 1, .channels = 1},
    {.format = 0xc1, .bytes = 2, .channels = 2},
    {.format = 0xc2, .bytes = 4, .channels = 4},
    {.format = 0xc3, .bytes = 2, .channels = 1},
    {.format = 0xc4, .bytes = 4, .channels = 2},
    {.format = 0xc5, .bytes = 8, .channels = 4},
    {.format = 0xc6, .bytes = 1, .channels = 1},
    {.format = 0xc7, .bytes = 2, .channels = 2},
    {.format = 0xc8, .bytes = 4, .channels = 4},
    {.format = 0xc9, .bytes = 2, .channels = 1},
    {.format = 0xca, .bytes = 4, .channels = 2},
    {.format = 0xcb, .bytes = 8, .channels = 4},
    {.format = 0x91, .bytes = 8, .channels = 4, .block = true},
    {.format = 0x92, .bytes = 8, .channels = 4, .block = true},
    {.format = 0x93, .bytes = 16, .channels = 4, .block = true},
    {.format = 0x94, .bytes = 16, .channels = 4, .block = true},
    {.format = 0x95, .bytes = 16, .channels = 4, .block = true},
    {.format = 0x96, .bytes = 16, .channels = 4, .block = true},
    {.format = 0x97, .bytes = 8, .channels = 1, .block = true},
    {.format = 0x98, .bytes = 8, .channels = 1, .block = true},
    {.format = 0x99, .bytes = 16, .channels = 2, .block = true},
    {.format = 0x9a, .bytes = 16, .channels = 2, .block = true},
    {.format = 0x9b, .bytes = 16, .channels = 3, .block = true},
    {.format = 0x9c, .bytes = 16, .channels = 3, .block = true},
    {.format = 0x9d, .bytes = 16, .channels = 4, .block = true},
    {.format = 0x9e, .bytes = 16, .channels = 4, .block = true},
    {.format = 0xb0, .bytes = 1, .channels = 3, .planes = 2, .chroma_columns = 2, .chroma_rows = 2},
    {.format = 0x9f, .bytes = 2, .channels = 3, .planes = 2, .chroma_columns = 2, .chroma_rows = 2},
    {.format = 0xa1, .bytes = 2, .channels = 3, .planes = 2, .chroma_columns = 2, .chroma_rows = 2},
    {.format = 0xa2, .bytes = 1, .channels = 3, .planes = 2, .chroma_columns = 2, .chroma_rows = 1},
    {.format = 0xa3, .bytes = 2, .channels = 3, .planes = 2, .chroma_columns = 2, .chroma_rows = 1},
    {.format = 0xa4, .bytes = 2, .channels = 3, .planes = 2, .chroma_columns = 2, .chroma_rows = 1},
    {.format = 0xb4, .bytes = 1, .channels = 3, .planes = 2, .chroma_columns = 1, .chroma_rows = 1},
    {.format = 0xb5, .bytes = 2, .channels = 3, .planes = 2, .chroma_columns = 1, .chroma_rows = 1},
    {.format = 0xb2, .bytes = 1, .channels = 3, .planes = 3, .chroma_columns = 1, .chroma_rows = 1},
    {.format = 0xb3, .bytes = 2, .channels = 3, .planes = 3, .chroma_columns = 1, .chroma_rows = 1},
    {.format = 0xa5, .bytes = 2, .channels = 4},
    {.format = 0xa6, .bytes = 4, .channels = 4},
    {.format = 0xa7, .bytes = 4, .channels = 4},
    {.format = 0xa8, .bytes = 4, .channels = 4},
    {.format = 0xa9, .bytes = 4, .channels = 4},
    {.format = 0xb1, .bytes = 8, .channels = 4},
};

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
  one.format = format->bytes == 1 ? FORMAT_UINT8 : FORMAT_UINT16;
  one.channels = plane && format->planes == 2 ? 2 : 1;
  if (plane) {
    one.width = (whole->width + format->chroma_columns - 1) / format->chroma_columns;
    one.height = (whole->height + format->chroma_rows - 1) / format->chroma_rows;
  }
  return one;
}

/* -- which descriptors are valid -- */

/* CUdevice_attribute numbers of the largest width, height and depth; 0: the extent must be 0. */
typedef struct {
  int width, height, depth;
} Limits;

static const Limits of_1d[] = {{21, 0, 0}, {55, 0, 0}}, of_2d[] = {{22, 23, 0}, {56, 57, 0}};
static const Limits of_3d[] = {{24, 25, 26}, {58, 59, 60}}, of_3d_alternate = {47, 48, 49};
static const Limits of_1d_layers[] = {{42, 0, 43}, {61, 0, 62}}, of_2d_layers[] = {{27, 28, 29}, {63, 64, 65}};
static const Limits of_cube[] = {{52, 52, -6}, {66, 66, -6}}, of_cube_layers[] = {{53, 53, 54}, {67, 67, 68}};
static const Limits of_gather = {45, 46, 0}, of_1d_mipmap = {77, 0, 0}, of_2d_mipmap = {73, 74, 0};
enum { SPARSE_SUPPORTED = 112, DEFERRED_SUPPORTED = 121 };

static bool fits(size_t extent, int attribute) {
  int most = 0;
  if (attribute <= 0) return extent == (size_t)-attribute;
  cl_device_attribute(attribute, &most);
  return extent && extent <= (size_t)most;
}

static bool within(const ArrayDescriptor *array, const Limits *limits) {
  return fits(array->width, limits->width) && fits(array->height, limits->height) && fits(array->depth, limits->depth);
}

static bool valid_extents(const ArrayDescriptor *array, bool mipmapped) {
  bool layered = array->flags & ARRAY_LAYERED;
  int surface = !!(array->flags & ARRAY_SURFACE);
  if (array->flags & ARRAY_CUBEMAP) {
    if (array->width != array->height || array->depth % 6) return false;
    return within(array, layered ? &of_cube_layers[surface] : &of_cube[surface]);
  }
  if (layered) return within(array, array->height ? &of_2d_layers[surface] : &of_1d_layers[surface]);
  if (array->depth) return within(array, &of_3d[surface]) || (!surface && within(array, &of_3d_alternate));
  if (array->flags & ARRAY_GATHER && !within(array, &of_gather)) return false;
  if (mipmapped && !within(array, array->height ? &of_2d_mipmap : &of_1d_mipmap)) return false;
  return within(array, array->height ? &of_2d[surface] : &of_1d[surface]);
}

CUresult cl_check_array(const ArrayDescriptor *array, bool mipmapped) {
  int supported = 0;
  const Format *format = format_of(array->format);
  if (!format || !cl_element_size(array->format, array->channels)) return CUDA_ERROR_INVALID_VALUE;
  if (array->flags & ~(unsigned)ARRAY_FLAGS) return CUDA_ERROR_INVALID_VALUE;
  if (array->flags & ARRAY_GATHER && (array->depth || !array->height)) return CUDA_ERROR_INVALID_VALUE;
  if (array->flags & ARRAY_DEPTH && (array->depth || array->channels != 1)) return CUDA_ERROR_INVALID_VALUE;
  if (format->block && array->flags & ARRAY_SURFACE) return CUDA_ERROR_INVALID_VALUE;
  if (format->planes && (mipmapped || array->depth || !array->height)) return CUDA_ERROR_INVALID_VALUE;
  if (array->flags & ARRAY_SPARSE && array->flags & ARRAY_DEFERRED) return CUDA_ERROR_INVALID_VALUE;
  if (!valid_extents(array, mipmapped)) return CUDA_ERROR_INVALID_VALUE;
  if (array->flags & (ARRAY_SPARSE | ARRAY_DEFERRED)) {
    cl_device_attribute(array->flags & ARRAY_SPARSE ? SPARSE_SUPPORTED : DEFERRED_SUPPORTED, &supported);
    if (!supported) return CUDA_ERROR_NOT_SUPPORTED;
  }
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
  if (!(whole->flags & (ARRAY_LAYERED | ARRAY_CUBEMAP))) one.depth = smaller(whole->depth, level);
  return one;
}

unsigned cl_most_levels(const ArrayDescriptor *array) {
  size_t largest = array->width > array->height ? array->width : array->height;
  if (!(array->flags & (ARRAY_LAYERED | ARRAY_CUBEMAP)) && array->depth > largest) largest = array->depth;
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
