/* Arrays as numbers: formats, which descriptors are valid, and how much memory a level takes. */
#pragma once

#include "abi.h"

typedef struct {
  size_t width, height, depth;
  int format;
  unsigned channels, flags;
} ArrayDescriptor;

_Static_assert(sizeof(ArrayDescriptor) == 40, "CUDA_ARRAY3D_DESCRIPTOR");

enum { ARRAY_FLAGS = 0x1df }; /* all of CUDA_ARRAY3D_* but COLOR_ATTACHMENT, which graphics libraries alone use */

/* Bytes of one element, or of a block of 4 x 4 elements; 0 if a format has no such number of channels. */
size_t cl_element_size(int number, unsigned channels);
/* Whether one of the formats that are compressed in blocks of 4 x 4. */
bool cl_is_block_format(int number);
/* How many planes an array of a format has: 1 for most. */
unsigned cl_plane_count(int number);
/* The descriptor of a plane of a format with more than one. */
ArrayDescriptor cl_plane_of(const ArrayDescriptor *whole, unsigned plane);

/* Whether an array can be made, with 1 level or with mipmap levels. */
CUresult cl_check_array(const ArrayDescriptor *array, bool mipmapped);
/* The descriptor of a level; the layers of layered arrays stay as many as they are. */
ArrayDescriptor cl_level_of(const ArrayDescriptor *whole, unsigned level);
unsigned cl_most_levels(const ArrayDescriptor *array);

/* How the bytes of an array lie: rows, and layers of rows, without gaps. */
typedef struct {
  size_t row, rows, layers, bytes;
} ArrayLayout;

/* False if the size does not fit into a number. */
bool cl_layout_of(const ArrayDescriptor *descriptor, ArrayLayout *layout);
