/* The containers of device code. */
#include "containers.h"

#include <ctype.h>
#include <inttypes.h>

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

bool art_fatbin_size(Bytes image, uint64_t at, FatbinSize *size, Problem *problem) {
  Bytes header;
  if (!art_span(image, at, FATBIN_HEADER, &header))
    return art_outside(problem, image, at, FATBIN_HEADER, "fatbin header");
  *size = (FatbinSize){art_u16(header.at + 6), art_u64(header.at + 8)};
  if (art_begins(header, FATBIN_MAGIC) && size->header >= FATBIN_HEADER) return true;
  return art_damaged(problem, "no fatbin header at byte %" PRIu64, at);
}

/* One fatbin, or consecutive ones, as nvcc writes them into an object. */
bool art_fatbin_next(Bytes image, uint64_t *at, Bytes *body, Problem *problem) {
  uint64_t start = *at, padding = start;
  while (padding < image.size && !image.at[padding]) padding++;
  if (padding == image.size) { /* padding of the section that holds it */
    *at = image.size;
    *body = (Bytes){image.at, 0};
    return true;
  }
  FatbinSize size = {0};
  if (!art_fatbin_size(image, start, &size, problem)) return false;
  if (!art_span(image, start + size.header, size.body, body))
    return art_outside(problem, image, start + size.header, size.body, "fatbin");
  *at = start + size.header + size.body;
  return true;
}

bool art_fatbin_entry_head(Bytes body, uint64_t at, FatbinEntry *entry, Problem *problem) {
  Bytes fields;
  if (!art_span(body, at, FATBIN_ENTRY, &fields)) return art_outside(problem, body, at, FATBIN_ENTRY, "fatbin entry");
  *entry = (FatbinEntry){
      .header = art_u32(fields.at + 4),
      .size = art_u64(fields.at + 8),
      .kind = art_u16(fields.at),
      .isa_minor = art_u16(fields.at + 24),
      .isa_major = art_u16(fields.at + 26),
      .arch = art_u32(fields.at + 28),
      .flags = art_u64(fields.at + 40),
      .packed = art_u64(fields.at + 40) & (FATBIN_LZ4 | FATBIN_ZSTD),
      .packed_size = art_u32(fields.at + 16),
      .unpacked_size = art_u64(fields.at + 56),
  };
  if (entry->header >= FATBIN_ENTRY) return true;
  return art_damaged(problem, "fatbin entry has a header of %" PRIu64 " bytes, expected at least %d", entry->header,
                     FATBIN_ENTRY);
}

bool art_fatbin_entry(Bytes body, uint64_t *at, FatbinEntry *entry, Problem *problem) {
  if (!art_fatbin_entry_head(body, *at, entry, problem)) return false;
  if (!art_span(body, *at + entry->header, entry->size, &entry->payload))
    return art_outside(problem, body, *at + entry->header, entry->size, "payload of a fatbin entry");
  if (entry->packed && entry->packed_size > entry->size)
    return art_damaged(problem, "fatbin entry has %u compressed bytes in a payload of %" PRIu64, entry->packed_size,
                       entry->size);
  *at += entry->header + entry->size;
  return true;
}

enum { AR_HEADER = 60, AR_NAME = 16, AR_SIZE_AT = 48, AR_SIZE = 10, AR_END_AT = 58 };
enum { LONGEST_NAME = 4096 }; /* in the table of names */

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

uint64_t art_archive_end(Bytes image) {
  uint64_t at = sizeof AR_MAGIC - 1, size;
  Bytes header;
  while (at < image.size) {
    if (!art_span(image, at, AR_HEADER, &header)) return 0;
    at += AR_HEADER + (read_size(header.at + AR_SIZE_AT, &size) ? size : 0);
    if (at < image.size) at += at & 1; /* members begin at even places; the last one need not be filled up */
  }
  return at;
}

/* The name for people, and without what ends it: "/" for GNU, blanks for System V. Empty for the two indexes. */
static void read_name(const uint8_t *field, char *name) {
  int end = AR_NAME;
  while (end && field[end - 1] == ' ') end--;
  while (end && field[end - 1] == '/') end--;
  for (int at = 0; at < end; at++) name[at] = isprint(field[at]) ? (char)field[at] : '?';
  name[end] = 0;
}

static bool has_header(Bytes image, uint64_t at) {
  Bytes header;
  return art_span(image, at, AR_HEADER, &header) && !memcmp(header.at + AR_END_AT, "`\n", 2);
}

/* The index: how many symbols, the member of each, then their names; numbers have their highest byte first. */
static bool index_ok(Bytes image, Bytes index, Problem *problem) {
  uint64_t names = 0, count = 0;
  if (index.size >= 4) count = (uint32_t)index.at[0] << 24 | index.at[1] << 16 | index.at[2] << 8 | index.at[3];
  if (index.size < 4 || count > (index.size - 4) / 4)
    return art_damaged(problem, "the archive's index of %" PRIu64 " symbols has %" PRIu64 " bytes", count, index.size);
  for (uint64_t symbol = 0; symbol < count; symbol++) {
    const uint8_t *at = index.at + 4 + 4 * symbol;
    uint32_t member = (uint32_t)at[0] << 24 | at[1] << 16 | at[2] << 8 | at[3];
    if (!has_header(image, member))
      return art_damaged(problem, "the archive's index says that a member is at byte %u, where none is", member);
  }
  for (uint64_t at = 4 + 4 * count; at < index.size; at++) names += !index.at[at];
  if (names < count)
    return art_damaged(problem, "the archive's index has %" PRIu64 " names for %" PRIu64 " symbols", names, count);
  return true;
}

/* The table of long names: each ends with a slash and a line end. nvJitLink dies of a NUL in it. */
static bool names_ok(Bytes names, Problem *problem) {
  for (uint64_t at = 0; at < names.size; at++)
    if (!names.at[at]) return art_damaged(problem, "the archive's table of names has a NUL at byte %" PRIu64, at);
  return true;
}

/* A name such as "/28" is that at byte 28 of the table. */
static bool long_name_ok(const Archive *archive, const char *name, Problem *problem) {
  uint64_t at = 0;
  for (const char *digit = name + 1; isdigit((unsigned char)*digit); digit++) at = at * 10 + (uint64_t)(*digit - '0');
  Bytes names = archive->names;
  if (at < names.size && names.size - at > LONGEST_NAME) names.size = at + LONGEST_NAME;
  uint64_t end = art_find(names, at, "/\n");
  if (end > at && end < names.size) return true;
  return art_damaged(problem, "archive member '%s' has a name behind the end of the table of names", name);
}

void art_archive_open(Archive *archive, Bytes image) {
  *archive = (Archive){.image = image, .names = {image.at, 0}, .at = sizeof AR_MAGIC - 1};
}

bool art_archive_next(Archive *archive, Member *member, Problem *problem) {
  Bytes image = archive->image, header;
  uint64_t size, at = archive->at;
  if (!art_span(image, at, AR_HEADER, &header)) return art_outside(problem, image, at, AR_HEADER, "archive member");
  if (memcmp(header.at + AR_END_AT, "`\n", 2) != 0 || !read_size(header.at + AR_SIZE_AT, &size))
    return art_damaged(problem, "archive member at byte %" PRIu64 " has no valid header", at);
  if (!art_span(image, at + AR_HEADER, size, &member->payload))
    return art_outside(problem, image, at + AR_HEADER, size, "archive member at byte %" PRIu64, at);
  read_name(header.at, member->name);
  member->is_index = !*member->name;
  archive->at += AR_HEADER + size + size % 2;
  if (art_begins(header, "// ")) {
    archive->names = member->payload;
    return names_ok(member->payload, problem);
  }
  if (art_begins(header, "/ ")) return index_ok(image, member->payload, problem);
  if (header.at[0] == '/' && isdigit(header.at[1])) return long_name_ok(archive, member->name, problem);
  return true;
}
