/* Tile IR bytecode. */
#include "tileir.h"

#include <inttypes.h>

enum { MAGIC_END = 7, MAJOR_AT = 8, MINOR_AT = 9, TAG_AT = 10, PREVIEW = 1, FIRST_MAJOR = 13, FIRST_MINOR = 1 };
enum { SECTION_END = 0, SECTION_STRINGS = 1, SECTION_ALIGNED = 0x80 };

/* Seven bits in each byte, the lowest first; false if the number goes on behind the image, or is too long. */
static bool read_number(Bytes image, uint64_t *at, uint64_t *number) {
  *number = 0;
  for (int shift = 0; shift < 63 && *at < image.size; shift += 7) {
    uint8_t byte = image.at[(*at)++];
    *number |= (uint64_t)(byte & 0x7f) << shift;
    if (!(byte & 0x80)) return true;
  }
  return false;
}

bool art_tileir_section(Bytes rest, uint64_t *at, Problem *problem) {
  uint64_t used = 1, start = *at, size, alignment = 1;
  bool aligned = rest.at[0] & SECTION_ALIGNED;
  if (!read_number(rest, &used, &size) || (aligned && !read_number(rest, &used, &alignment)))
    return art_damaged(problem, "the Tile IR section at byte %" PRIu64 " has no whole header", start);
  if (!alignment || alignment & (alignment - 1))
    return art_damaged(problem, "the Tile IR section at byte %" PRIu64 " is aligned to %" PRIu64 " bytes", start,
                       alignment);
  uint64_t content = start + used, over = content % alignment;
  *at = art_end(over ? art_end(content, alignment - over) : content, size);
  return true;
}

bool art_tileir_read(TileIr *tileir, Bytes image, Problem *problem) {
  if (image.size < TILEIR_HEADER) return art_outside(problem, image, 0, TILEIR_HEADER, "Tile IR header");
  if (image.at[MAGIC_END]) return art_damaged(problem, "the magic of Tile IR does not end with NUL");
  *tileir = (TileIr){image.at[MAJOR_AT], image.at[MINOR_AT]};
  if (tileir->major < FIRST_MAJOR || (tileir->major == FIRST_MAJOR && tileir->minor < FIRST_MINOR))
    return art_damaged(problem, "Tile IR of version %u.%u; the first one is %d.%d", tileir->major, tileir->minor,
                       FIRST_MAJOR, FIRST_MINOR);
  uint16_t tag = art_u16(image.at + TAG_AT);
  if (tag & ~PREVIEW) return art_damaged(problem, "the Tile IR header has the unknown version tag 0x%x", tag);
  bool strings = false;
  uint64_t at = TILEIR_HEADER;
  while (at < image.size && image.at[at] != SECTION_END) {
    strings |= (image.at[at] & ~SECTION_ALIGNED) == SECTION_STRINGS;
    uint64_t start = at;
    if (!art_tileir_section((Bytes){image.at + at, image.size - at}, &at, problem)) return false;
    if (at > image.size)
      return art_outside(problem, image, start, at - start, "Tile IR section at byte %" PRIu64, start);
  }
  if (at == image.size) return art_damaged(problem, "Tile IR without the byte that ends it");
  if (!strings) return art_damaged(problem, "Tile IR without a section of strings");
  while (at < image.size && !image.at[at]) at++; /* a fatbin pads its payloads with zeros */
  return at == image.size || art_damaged(problem, "byte %" PRIu64 " stands behind the end of Tile IR", at);
}
