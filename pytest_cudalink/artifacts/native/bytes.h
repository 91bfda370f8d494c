/* Bytes of an image within their bounds, little-endian numbers, and the first problem that was found. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct {
  const uint8_t *at;
  uint64_t size;
} Bytes;

enum { PROBLEM_ROOM = 256 };
typedef struct {
  char text[PROBLEM_ROOM];
  bool out_of_memory; /* nothing is known about the image then */
} Problem;

/* Numbers are copied out of the bytes: an image may lie at any address. */
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define ART_LITTLE(bits, value) (value)
#else
#define ART_LITTLE(bits, value) __builtin_bswap##bits(value)
#endif

#define ART_NUMBER(name, type, bits)           \
  static inline type name(const uint8_t *at) { \
    type value;                                \
    memcpy(&value, at, sizeof value);          \
    return ART_LITTLE(bits, value);            \
  }
ART_NUMBER(art_u16, uint16_t, 16)
ART_NUMBER(art_u32, uint32_t, 32)
ART_NUMBER(art_u64, uint64_t, 64)

/* Where a span ends, or the largest number if there is no number for it. */
static inline uint64_t art_end(uint64_t offset, uint64_t size) {
  return size <= UINT64_MAX - offset ? offset + size : UINT64_MAX;
}

/* The bytes [offset, offset + size) of an image; false, and nothing, if they do not lie inside. */
bool art_span(Bytes image, uint64_t offset, uint64_t size, Bytes *span);
/* Whether bytes begin with a text. */
bool art_begins(Bytes bytes, const char *text);
/* Where a text first stands in bytes, from an offset on; the size of the bytes if it does not. */
uint64_t art_find(Bytes bytes, uint64_t from, const char *text);

/* All three write down a problem and return false, for `return art_damaged(...)`. */
bool art_damaged(Problem *problem, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A span, described by the format, lies outside of its image. */
bool art_outside(Problem *problem, Bytes image, uint64_t offset, uint64_t size, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
bool art_no_memory(Problem *problem);
