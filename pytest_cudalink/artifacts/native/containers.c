/* The containers of device code. */
#include "containers.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

/* -- LTO-IR -- */

enum { LTOIR_HEADER = 28, LTOIR_CODE_AT = 40, LTOIR_WORD = 4 };

bool art_ltoir_read(LtoIr *ltoir, Bytes image, Problem *problem) {
  if (image.size < LTOIR_HEADER) return art_outside(problem, image, 0, LTOIR_HEADER, "LTO-IR header");
  uint64_t at = art_u32(image.at + 16);
  if (at < LTOIR_CODE_AT || at >= image.size)
    return art_damaged(problem, "LTO-IR code starts at byte %" PRIu64 ", the image has %" PRIu64, at, image.size);
  if ((image.size - at) % LTOIR_WORD)
    return art_damaged(problem, "LTO-IR code has %" PRIu64 " bytes, which is not a whole number of 32-bit words",
                       image.size - at);
  *ltoir = (LtoIr){image.at[6], image.at[7], art_u16(image.at + 26) / 10};
  return true;
}

/* -- fatbins -- */

enum { FATBIN_HEADER = 16, FATBIN_ENTRY = 64, FATBIN_PACKED = 0x2000 | 0x8000 };

/* One fatbin, or consecutive ones, as nvcc writes them into an object. */
bool art_fatbin_next(Bytes image, uint64_t *at, Bytes *body, Problem *problem) {
  uint64_t start = *at, padding = start;
  while (padding < image.size && !image.at[padding]) padding++;
  if (padding == image.size) { /* padding of the section that holds it */
    *at = image.size;
    *body = (Bytes){image.at, 0};
    return true;
  }
  Bytes header;
  if (!art_span(image, start, FATBIN_HEADER, &header))
    return art_outside(problem, image, start, FATBIN_HEADER, "fatbin header");
  uint64_t header_size = art_u16(header.at + 6), size = art_u64(header.at + 8);
  if (!art_begins(header, FATBIN_MAGIC) || header_size < FATBIN_HEADER)
    return art_damaged(problem, "no fatbin header at byte %" PRIu64, start);
  if (!art_span(image, start + header_size, size, body))
    return art_outside(problem, image, start + header_size, size, "fatbin");
  *at = start + header_size + size;
  return true;
}

bool art_fatbin_entry(Bytes body, uint64_t *at, FatbinEntry *entry, Problem *problem) {
  Bytes fields;
  if (!art_span(body, *at, FATBIN_ENTRY, &fields))
    return art_outside(problem, body, *at, FATBIN_ENTRY, "fatbin entry");
  uint64_t header = art_u32(fields.at + 4), size = art_u64(fields.at + 8);
  uint32_t packed = art_u32(fields.at + 16);
  *entry = (FatbinEntry){
      .kind = art_u16(fields.at),
      .isa_minor = art_u16(fields.at + 24),
      .isa_major = art_u16(fields.at + 26),
      .arch = art_u32(fields.at + 28),
      .packed = art_u64(fields.at + 40) & FATBIN_PACKED,
  };
  if (header < FATBIN_ENTRY)
    return art_damaged(problem, "fatbin entry has a header of %" PRIu64 " bytes, expected at least %d", header,
                       FATBIN_ENTRY);
  if (!art_span(body, *at + header, size, &entry->payload))
    return art_outside(problem, body, *at + header, size, "payload of a fatbin entry");
  if (entry->packed && packed > size)
    return art_damaged(problem, "fatbin entry has %u compressed bytes in a payload of %" PRIu64, packed, size);
  *at += header + size;
  return true;
}

/* -- archives -- */

enum { AR_HEADER = 60, AR_NAME = 16, AR_SIZE_AT = 48, AR_SIZE = 10, AR_END_AT = 58 };

/* The number of a header's field, which blanks fill up. */
static bool read_size(const uint8_t *field, uint64_t *size) {
  int first = 0, end = AR_SIZE;
  while (first < end && isspace(field[first])) first++;
  while (end > first && isspace(field[end - 1])) end--;
  *size = 0;
  for (int at = first; at < end; at++) {
    if (!isdigit(field[at])) return false;
    *size = *size * 10 + (uint64_t)(field[at] - '0');
  }
  return end > first;
}

/* The name for people, and without what ends it: "/" for GNU, blanks for System V. Empty for the two indexes. */
static void read_name(const uint8_t *field, char *name) {
  int end = AR_NAME;
  while (end && (isspace(field[end - 1]) || (field[end - 1] >= 0x1c && field[end - 1] <= 0x1f) ||
                 field[end - 1] == 0x85 || field[end - 1] == 0xa0))
    end--;
  while (end && field[end - 1] == '/') end--;
  for (int at = 0; at < end; at++) name[at] = isprint(field[at]) ? (char)field[at] : '?';
  name[end] = 0;
}

bool art_archive_next(Bytes image, uint64_t *at, Member *member, Problem *problem) {
  Bytes header;
  uint64_t size;
  if (!art_span(image, *at, AR_HEADER, &header))
    return art_outside(problem, image, *at, AR_HEADER, "archive member");
  if (memcmp(header.at + AR_END_AT, "`\n", 2) != 0 || !read_size(header.at + AR_SIZE_AT, &size))
    return art_damaged(problem, "archive member at byte %" PRIu64 " has no valid header", *at);
  if (!art_span(image, *at + AR_HEADER, size, &member->payload))
    return art_outside(problem, image, *at + AR_HEADER, size, "archive member at byte %" PRIu64, *at);
  read_name(header.at, member->name);
  member->is_index = !*member->name;
  *at += AR_HEADER + size + size % 2;
  return true;
}
