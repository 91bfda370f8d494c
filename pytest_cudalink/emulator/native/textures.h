/* Texture and surface objects: descriptors that are kept, as nothing is sampled. */
#ifndef CUDALINK_TEXTURES_H
#define CUDALINK_TEXTURES_H

#include <stddef.h>
#include <stdint.h>

#include "abi.h"

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

#endif
