/* Tensor maps: descriptors for the tensor memory accelerator. They are checked as documented. What their 128 bytes say
   is not documented; the places of most fields follow from the bytes that an H200's driver wrote. */
#include <string.h>

#include "config.h"
#include "contexts.h"
#include "devices.h"

enum { MOST_DIMENSIONS = 5 };
enum { FIRST_ARCH_WITH_PACKED_TYPES = 100 }; /* and swizzling by other atoms */
enum { DATA_TYPES = CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B + 1 };
static const unsigned char bytes_of_type[DATA_TYPES] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
/* as a map names them, where a further bit tells TF32 from FLOAT32 */
static const unsigned format_of_type[DATA_TYPES] = {0, 1, 2, 3, 4, 5, 6, 7, 9, 10, 8, 7, 8, 11, 12, 13};
enum { INTERLEAVE_BIT = 11, FORMAT_BIT = 7, WORDS = 32 };

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

static bool wide_packed(int type) {
  return type == CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN16B || type == CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B;
}

static bool valid_address(uint64_t address, int type, int interleave) {
  return address % (interleave == CU_TENSOR_MAP_INTERLEAVE_32B || wide_packed(type) ? 32 : 16) == 0 && !(address >> 57);
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
  bool is_float = map->type >= CU_TENSOR_MAP_DATA_TYPE_FLOAT16 && map->type <= CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ;
  if (map->fill && !is_float) return false;
  if (map->type == CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B && map->interleave) return false;
  return !wide_packed(map->type) ||
         (map->swizzle != CU_TENSOR_MAP_SWIZZLE_32B && map->swizzle != CU_TENSOR_MAP_SWIZZLE_64B);
}

static bool valid_extents(const Map *map) {
  uint64_t unit = wide_packed(map->type) ? 128 : map->type == CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B ? 2 : 1;
  uint64_t stride_unit = map->interleave == CU_TENSOR_MAP_INTERLEAVE_32B || wide_packed(map->type) ? 32 : 16;
  if (map->extents[0] % unit) return false;
  for (unsigned at = 0; at < map->rank; at++)
    if (map->extents[at] > (uint64_t)1 << 32 || map->steps[at] > 8) return false;
  for (unsigned at = 0; at + 1 < map->rank; at++)
    if (map->strides[at] % stride_unit || map->strides[at] >= (uint64_t)1 << 40) return false;
  return true;
}

/* Up to how many bytes are swizzled together: eight times as many are what a box is aligned to. */
static const unsigned span[] = {2, 32, 64, 128, 128, 128, 128};

static uint64_t bytes_of(const Map *map, uint64_t elements) {
  return bytes_of_type[map->type] ? elements * bytes_of_type[map->type] : elements / 2;
}

/* The innermost dimension of a box has whole units of 16 bytes. */
static bool valid_row(const Map *map, uint64_t elements) {
  return wide_packed(map->type) ? elements == 128 : bytes_of(map, elements) % 16 == 0;
}

static CUresult check(EventLine *line, void *out, const Map *map, const unsigned *box) {
  if (!out) return CUDA_ERROR_INVALID_VALUE; /* cuda.core's maps are not aligned to 64 bytes, as documented */
  TRY(cl_check_context());
  if (!cl_device_has(CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED))
    return cl_noted(line, CUDA_ERROR_NOT_SUPPORTED, "the device has no such tensor maps");
  if (!map->rank || !map->extents || !map->strides || !map->steps) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned at = 0; at < map->rank && at < MOST_DIMENSIONS; at++)
    if (!map->extents[at] || !map->steps[at] || (box && !box[at])) return CUDA_ERROR_INVALID_VALUE;
  memset(out, 0, WORDS * sizeof(uint32_t)); /* what is refused from here on is no longer what it was */
  unsigned least = map->kind != TILED || map->interleave ? 3 : 1;
  if (map->rank < least || map->rank > MOST_DIMENSIONS || !valid_modes(map)) return CUDA_ERROR_INVALID_VALUE;
  if (!valid_address(map->address, map->type, map->interleave) || !valid_extents(map)) return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

/* `box`: the innermost size of the box, and the two words that say the rest of it.
   `elements`: how many a box has. */
static CUresult encode(void *out, const Map *map, const uint32_t box[3], uint64_t elements) {
  bool tf32 = map->type == CU_TENSOR_MAP_DATA_TYPE_TFLOAT32 || map->type == CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ;
  uint32_t words[WORDS] = {(uint32_t)map->address, (uint32_t)(map->address >> 32)};
  words[2] = (map->kind != TILED) | (map->rank - 1) << 4 | format_of_type[map->type] << FORMAT_BIT |
             (unsigned)map->interleave << INTERLEAVE_BIT | ((unsigned)map->swizzle & 3) << 13 |
             (unsigned)map->fill << 15 | (unsigned)tf32 << 16 | (unsigned)map->promotion << 17;
  for (unsigned at = 0; at < map->rank; at++) {
    words[8 + at] = (uint32_t)(map->extents[at] - 1);
    words[13] |= (map->steps[at] - 1) << 3 * at;
    if (at + 1 == map->rank) break;
    words[3 + at] = (uint32_t)(map->strides[at] / 16);
    words[7] |= (uint32_t)(map->strides[at] >> 36) << 4 * at;
  }
  words[13] |= (box[0] - 1) << 24;
  memcpy(words + 14, box + 1, 2 * sizeof *box);
  /* a box that does not fit is found out last (measured: edges/tensor_words) */
  bool fits = bytes_of(map, elements) <= cl_device_has(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN) &&
              (map->interleave || !map->swizzle || bytes_of(map, box[0]) <= span[map->swizzle]);
  if (fits) {
    words[16] = (uint32_t)bytes_of(map, elements);
    words[18] = 8 * span[map->swizzle];
  }
  memcpy(out, words, sizeof words);
  return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult encode_tiled(EventLine *line, void *out, const Map *map, const unsigned *box) {
  uint32_t sizes[3] = {0};
  if (!box) return CUDA_ERROR_INVALID_VALUE;
  TRY(check(line, out, map, box));
  if (!valid_row(map, box[0])) return CUDA_ERROR_INVALID_VALUE;
  uint64_t elements = 1;
  for (unsigned at = 0; at < map->rank; at++) {
    if (box[at] > 256) return CUDA_ERROR_INVALID_VALUE;
    elements *= box[at] / map->steps[at];
    sizes[at > 0] |= at ? (box[at] - 1) << 8 * (at - 1) : box[at];
  }
  return encode(out, map, sizes, elements);
}

EXPORTED(cuTensorMapEncodeTiled,
         (void *out, int type, unsigned rank, void *address, const uint64_t *extents, const uint64_t *strides,
          const unsigned *box, const unsigned *steps, int interleave, int swizzle, int promotion, int fill),
         encode_tiled(line, out,
                      &(Map){TILED, type, rank, (uintptr_t)address, extents, strides, steps, interleave, swizzle,
                             promotion, fill},
                      box))

/* Corners of the box of pixels: as many offsets as there are dimensions between channels and batch. */
static bool valid_corners(unsigned offsets, const int *lower, const int *upper, const Map *map) {
  static const int mosts[] = {0, 32767, 127, 15};
  int most = mosts[map->rank - 2]; /* also of a wide box, which has one offset (H200) */
  for (unsigned at = 0; at < offsets; at++) {
    if (lower[at] < -most - 1 || lower[at] > most || upper[at] < -most - 1 || upper[at] > most) return false;
    if ((int64_t)(int32_t)map->extents[at + 1] + upper[at] - lower[at] <= 0) return false; /* an empty box */
  }
  return true;
}

static CUresult encode_im2col(EventLine *line, void *out, const Map *map, const int *lower, const int *upper,
                              unsigned channels, unsigned pixels, int mode) {
  uint32_t box[3] = {channels, 0, pixels - 1};
  bool wide = map->kind == IM2COL_WIDE;
  if (wide && (mode < CU_TENSOR_MAP_IM2COL_WIDE_MODE_W || mode > CU_TENSOR_MAP_IM2COL_WIDE_MODE_W128))
    return CUDA_ERROR_INVALID_VALUE;
  TRY(check(line, out, map, NULL));
  unsigned offsets = wide ? 1 : map->rank - 2, bits = map->rank == 5 ? 5 : 16 / (map->rank - 2);
  if (!lower || !upper || !channels || channels > 256 || (!mode && (!pixels || pixels > 1024)))
    return CUDA_ERROR_INVALID_VALUE;
  if (!valid_corners(offsets, lower, upper, map) || !valid_row(map, channels)) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned at = 0; at < offsets; at++) {
    box[1] |= ((uint32_t)lower[at] & ((1U << bits) - 1)) << bits * at;
    box[1] |= ((uint32_t)upper[at] & ((1U << bits) - 1)) << (16 + bits * at);
  }
  return encode(out, map, box, (uint64_t)channels * pixels);
}

EXPORTED(cuTensorMapEncodeIm2col,
         (void *out, int type, unsigned rank, void *address, const uint64_t *extents, const uint64_t *strides,
          const int *pixelBoxLowerCorner, const int *pixelBoxUpperCorner, unsigned channels, unsigned pixels,
          const unsigned *steps, int interleave, int swizzle, int promotion, int fill),
         encode_im2col(line, out,
                       &(Map){IM2COL, type, rank, (uintptr_t)address, extents, strides, steps, interleave, swizzle,
                              promotion, fill},
                       pixelBoxLowerCorner, pixelBoxUpperCorner, channels, pixels, 0))

EXPORTED(cuTensorMapEncodeIm2colWide,
         (void *out, int type, unsigned rank, void *address, const uint64_t *extents, const uint64_t *strides,
          int lower, int upper, unsigned channels, unsigned pixels, const unsigned *steps, int interleave, int mode,
          int swizzle, int promotion, int fill),
         encode_im2col(line, out,
                       &(Map){IM2COL_WIDE, type, rank, (uintptr_t)address, extents, strides, steps, interleave, swizzle,
                              promotion, fill},
                       &lower, &upper, channels, pixels, mode))

API(cuTensorMapReplaceAddress, (void *tensorMap, void *address), (tensorMap, address)) {
  TRY(cl_check_context());
  if (!tensorMap || !address) return CUDA_ERROR_INVALID_VALUE;
  uint32_t modes;
  memcpy(&modes, (char *)tensorMap + 2 * sizeof modes, sizeof modes);
  bool packed = (modes >> FORMAT_BIT & 15) > format_of_type[CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B];
  int type = packed ? CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN16B : CU_TENSOR_MAP_DATA_TYPE_UINT8;
  if (!valid_address((uintptr_t)address, type, (int)(modes >> INTERLEAVE_BIT & 3))) return CUDA_ERROR_INVALID_VALUE;
  memcpy(tensorMap, &address, sizeof address);
  return CUDA_SUCCESS;
}
