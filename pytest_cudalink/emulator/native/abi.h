/* Types and numbers of the driver's ABI. No CUDA header is included: enums.inc has the names and numbers of cuda.h. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "enums.inc"

#define EXPORT __attribute__((visibility("default")))
#define PRINTF(text, first) __attribute__((format(printf, text, first)))

typedef int CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;

/* One side of CUDA_MEMCPY3D; CUDA_MEMCPY3D_PEER has a context where this has `other`. */
typedef struct {
  size_t x, y, z, level;
  unsigned type;
  void *host;
  CUdeviceptr device;
  void *array, *other;
  size_t pitch, height;
} Side;

/* The address of a side that is no array. */
static inline CUdeviceptr cl_side_address(const Side *side) {
  return side->type == CU_MEMORYTYPE_HOST ? (uintptr_t)side->host : side->device;
}

/* Has a function answer what is not success. */
#define TRY(call)                      \
  do {                                 \
    CUresult no_success = (call);      \
    if (no_success) return no_success; \
  } while (0)

/* Whether bytes are zeros, which reserved fields must be. */
static inline bool cl_are_zeros(const void *bytes, size_t size) {
  for (const char *at = bytes; size && !*at; size--) at++;
  return !size;
}

typedef struct {
  Side from, to;
  size_t width, height, depth;
} Box;
_Static_assert(sizeof(Box) == 200, "CUDA_MEMCPY3D");

typedef struct {
  int type, id;
} Location;
_Static_assert(sizeof(Location) == 8, "CUmemLocation");

typedef struct {
  Location location;
  int flags;
} AccessDescription;
_Static_assert(sizeof(AccessDescription) == 12, "CUmemAccessDesc");

typedef struct {
  int type, handle_types;
  Location location;
  void *security;
  size_t max_size;
  unsigned short usage;
  unsigned char reserved[54];
} PoolProperties;
_Static_assert(sizeof(PoolProperties) == 88, "CUmemPoolProps");
