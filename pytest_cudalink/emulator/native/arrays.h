/* Arrays and mipmapped arrays: their handles, and the memory that copies use. */
#pragma once

#include "array_formats.h"

/* CUDA_ARRAY_DESCRIPTOR */
typedef struct {
  size_t width, height;
  int format;
  unsigned channels;
} FlatDescriptor;

/* A box within an array: bytes of a row, rows, layers. */
typedef struct {
  size_t x, y, z, width, height, depth;
} ArrayBox;

/* Where a box begins, and its rows and layers apart by *row and *layer. CUDA_ERROR_INVALID_VALUE for what is not an
   array, for an array without memory, and for one with several planes, which are copied one by one. */
CUresult cl_place_in_array(const void *handle, const ArrayBox *box, uintptr_t *start, size_t *row, size_t *layer);
/* 0 for an array of the current context; CUDA_ERROR_PEER_ACCESS_NOT_ENABLED for one of another. */
CUresult cl_check_array_context(const void *handle);
/* The descriptor of an array or of a mipmapped array; false if it is not one. */
bool cl_array_descriptor(const void *handle, ArrayDescriptor *descriptor);
bool cl_mipmap_descriptor(const void *handle, ArrayDescriptor *descriptor, unsigned *levels);
