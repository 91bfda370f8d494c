/* Tensor maps: descriptors for the tensor memory accelerator. They are checked as documented. What their 128 bytes say
   is not documented; here they hold what was given, in this file's own encoding, so that the address can be replaced.
 */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "calls.h"
#include "config.h"
#include "contexts.h"
#include "devices.h"

enum { MOST_DIMENSIONS = 5, ENCODED = 0x6c646e6b };
enum { FIRST_ARCH_WITH_PACKED_TYPES = 100 }; /* and swizzling by other atoms */
enum { DATA_TYPES = CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B + 1 };
static const unsigned char bytes_of_type[DATA_TYPES] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};

typedef enum { TILED, IM2COL, IM2COL_WIDE } Kind;

/* What every form of a map has. */
typedef struct {
  Kind kind;
  int type;
  unsigned rank;
  uint64_t address;
  const uint64_t *extents, *strides;
  const unsigned *steps;
  int interleave, swizzle, promotion, fill;
} Map;

/* The 128 bytes. */
typedef struct {
  uint64_t address;
  uint32_t encoded;
  uint8_t kind, type, rank, interleave, swizzle, promotion, fill, steps[MOST_DIMENSIONS];
  uint32_t extents[MOST_DIMENSIONS], strides[MOST_DIMENSIONS - 1];
  int32_t box[8];
} Encoded;

_Static_assert(sizeof(Encoded) <= 128, "CUtensorMap");

static bool wide_packed(int type) {
  return type == CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN16B || type == CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B;
}

static bool is_float(int type) {
  return type >= CU_TENSOR_MAP_DATA_TYPE_FLOAT16 && type <= CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ;
}

static bool valid_address(uint64_t address, int type, int interleave) {
  return address % (interleave == CU_TENSOR_MAP_INTERLEAVE_32B || wide_packed(type) ? 32 : 16) == 0;
}

static bool valid_modes(const Map *map) {
  if (map->type < 0 || map->type >= DATA_TYPES) return false;
  if ((map->type >= CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B || map->swizzle > CU_TENSOR_MAP_SWIZZLE_128B) &&
      cl_config()->arch < FIRST_ARCH_WITH_PACKED_TYPES)
    return false;
  if (map->interleave < CU_TENSOR_MAP_INTERLEAVE_NONE || map->interleave > CU_TENSOR_MAP_INTERLEAVE_32B) return false;
  if (map->swizzle < CU_TENSOR_MAP_SWIZZLE_NONE || map->swizzle > CU_TENSOR_MAP_SWIZZLE_128B_ATOM_64B) return false;
  if (map->promotion < CU_TENSOR_MAP_L2_PROMOTION_NONE || map->promotion > CU_TENSOR_MAP_L2_PROMOTION_L2_256B ||
      map->fill < CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE || map->fill > CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA)
    return false;
  if (map->fill && !is_float(map->type)) return false;
  if (map->type == CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B && map->interleave) return false;
  if (wide_packed(map->type) &&
      (map->swizzle == CU_TENSOR_MAP_SWIZZLE_32B || map->swizzle == CU_TENSOR_MAP_SWIZZLE_64B))
    return false;
  return true;
}

static bool valid_extents(const Map *map) {
  uint64_t unit = wide_packed(map->type) ? 128 : map->type == CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B ? 2 : 1;
  uint64_t stride_unit = map->interleave == CU_TENSOR_MAP_INTERLEAVE_32B || wide_packed(map->type) ? 32 : 16;
  if (map->extents[0] % unit) return false;
  for (unsigned at = 0; at < map->rank; at++) {
    if (!map->extents[at] || map->extents[at] > (uint64_t)1 << 32) return false;
    if (!map->steps[at] || map->steps[at] > 8) return false;
  }
  for (unsigned at = 0; at + 1 < map->rank; at++)
    if (map->strides[at] % stride_unit || map->strides[at] >= (uint64_t)1 << 40) return false;
  return true;
}

/* The innermost dimension of a box: whole units of 16 bytes, and not wider than what is swizzled. */
static bool valid_row(const Map *map, uint64_t elements) {
  static const unsigned span[] = {0, 32, 64, 128, 128, 128, 128};
  if (wide_packed(map->type)) return elements == 128;
  uint64_t bytes =
      map->type == CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B ? elements / 2 : elements * bytes_of_type[map->type];
  return bytes % 16 == 0 && (map->interleave || !map->swizzle || bytes <= span[map->swizzle]);
}

static CUresult check(EventLine *line, const void *out, const Map *map) {
  int supported = 0;
  cl_device_attribute(CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED, &supported);
  if (!out) return CUDA_ERROR_INVALID_VALUE; /* cuda.core's maps are not aligned to 64 bytes, as documented */
  TRY(cl_check_context());
  if (!supported) return cl_noted(line, CUDA_ERROR_NOT_SUPPORTED, "the device has no such tensor maps");
  unsigned least = map->kind != TILED || map->interleave ? 3 : 1;
  if (map->rank < least || map->rank > MOST_DIMENSIONS || !valid_modes(map)) return CUDA_ERROR_INVALID_VALUE;
  if (!map->extents || !map->strides || !map->steps) return CUDA_ERROR_INVALID_VALUE;
  if (!valid_address(map->address, map->type, map->interleave) || !valid_extents(map)) return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

static CUresult encode(void *out, const Map *map, const int32_t box[8]) {
  Encoded encoded = {
      .address = map->address,
      .encoded = ENCODED,
      .kind = (uint8_t)map->kind,
      .type = (uint8_t)map->type,
      .rank = (uint8_t)map->rank,
      .interleave = (uint8_t)map->interleave,
      .swizzle = (uint8_t)map->swizzle,
      .promotion = (uint8_t)map->promotion,
      .fill = (uint8_t)map->fill,
  };
  for (unsigned at = 0; at < map->rank; at++) {
    encoded.extents[at] = (uint32_t)(map->extents[at] - 1);
    encoded.steps[at] = (uint8_t)map->steps[at];
    if (at + 1 < map->rank) encoded.strides[at] = (uint32_t)(map->strides[at] / 16);
  }
  memcpy(encoded.box, box, sizeof encoded.box);
  memset(out, 0, 128);
  memcpy(out, &encoded, sizeof encoded);
  return CUDA_SUCCESS;
}

static CUresult encode_tiled(EventLine *line, void *out, const Map *map, const unsigned *box) {
  int32_t sizes[8] = {0};
  TRY(check(line, out, map));
  if (!box || !valid_row(map, box[0])) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned at = 0; at < map->rank; at++) {
    if (!box[at] || box[at] > 256) return CUDA_ERROR_INVALID_VALUE;
    sizes[at] = (int32_t)box[at];
  }
  return encode(out, map, sizes);
}

EXPORTED(cuTensorMapEncodeTiled,
         (void *out, int type, unsigned rank, void *address, const uint64_t *extents, const uint64_t *strides,
          const unsigned *box, const unsigned *steps, int interleave, int swizzle, int promotion, int fill),
         encode_tiled(line, out,
                      &(Map){TILED, type, rank, (uintptr_t)address, extents, strides, steps, interleave, swizzle,
                             promotion, fill},
                      box))

/* Corners of the box of pixels: as many offsets as there are dimensions between channels and batch. */
static bool valid_corners(unsigned offsets, const int *lower, const int *upper, const uint64_t *extents) {
  static const int most[] = {0, 32767, 127, 15};
  for (unsigned at = 0; at < offsets; at++) {
    if (lower[at] < -most[offsets] - 1 || lower[at] > most[offsets]) return false;
    if (upper[at] < -most[offsets] - 1 || upper[at] > most[offsets]) return false;
    if ((int64_t)extents[at + 1] + upper[at] - lower[at] <= 0) return false; /* an empty box */
  }
  return true;
}

static CUresult encode_im2col(EventLine *line, void *out, const Map *map, const int *lower, const int *upper,
                              unsigned channels, unsigned pixels) {
  int32_t box[8] = {(int32_t)channels, (int32_t)pixels};
  TRY(check(line, out, map));
  unsigned offsets = map->kind == IM2COL_WIDE ? 1 : map->rank - 2;
  if (!lower || !upper || !channels || channels > 256 || !pixels || pixels > 1024) return CUDA_ERROR_INVALID_VALUE;
  if (!valid_corners(offsets, lower, upper, map->extents) || !valid_row(map, channels)) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned at = 0; at < offsets; at++) {
    box[2 + at] = lower[at];
    box[5 + at] = upper[at];
  }
  return encode(out, map, box);
}

EXPORTED(cuTensorMapEncodeIm2col,
         (void *out, int type, unsigned rank, void *address, const uint64_t *extents, const uint64_t *strides,
          const int *pixelBoxLowerCorner, const int *pixelBoxUpperCorner, unsigned channels, unsigned pixels,
          const unsigned *steps, int interleave, int swizzle, int promotion, int fill),
         encode_im2col(line, out,
                       &(Map){IM2COL, type, rank, (uintptr_t)address, extents, strides, steps, interleave, swizzle,
                              promotion, fill},
                       pixelBoxLowerCorner, pixelBoxUpperCorner, channels, pixels))

static CUresult encode_wide(EventLine *line, void *out, const Map *map, int lower, int upper, unsigned channels,
                            unsigned pixels, int mode) {
  if (mode < CU_TENSOR_MAP_IM2COL_WIDE_MODE_W || mode > CU_TENSOR_MAP_IM2COL_WIDE_MODE_W128)
    return CUDA_ERROR_INVALID_VALUE;
  return encode_im2col(line, out, map, &lower, &upper, channels, mode ? 1 : pixels);
}
EXPORTED(cuTensorMapEncodeIm2colWide,
         (void *out, int type, unsigned rank, void *address, const uint64_t *extents, const uint64_t *strides,
          int lower, int upper, unsigned channels, unsigned pixels, const unsigned *steps, int interleave, int mode,
          int swizzle, int promotion, int fill),
         encode_wide(line, out,
                     &(Map){IM2COL_WIDE, type, rank, (uintptr_t)address, extents, strides, steps, interleave, swizzle,
                            promotion, fill},
                     lower, upper, channels, pixels, mode))

static CUresult replace_address(void *out, uint64_t address) {
  Encoded encoded;
  TRY(cl_check_context());
  if (!out || !address) return CUDA_ERROR_INVALID_VALUE;
  memcpy(&encoded, out, sizeof encoded);
  if (encoded.encoded != ENCODED) encoded = (Encoded){0}; /* 128 bytes of another driver, or none yet */
  if (!valid_address(address, encoded.type, encoded.interleave)) return CUDA_ERROR_INVALID_VALUE;
  memcpy(out, &address, sizeof address);
  return CUDA_SUCCESS;
}
EXPORTED(cuTensorMapReplaceAddress, (void *tensorMap, void *address), replace_address(tensorMap, (uintptr_t)address))
