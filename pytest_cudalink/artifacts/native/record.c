/* What was found about an image and its parts. */
#include "record.h"

static void put(Writer *writer, uint64_t at, const void *bytes, uint64_t size) {
  if (size && at <= writer->room && size <= writer->room - at) memcpy(writer->out + at, bytes, size);
}

uint64_t art_record_begin(Writer *writer) {
  uint64_t place = writer->used;
  writer->used += sizeof(ArtRecord);
  return place;
}

void art_record_name(Writer *writer, ArtRecord *record, char what, const char *name, uint64_t length) {
  uint64_t start = writer->used;
  if (what) put(writer, writer->used++, &what, 1);
  put(writer, writer->used, name, length);
  writer->used += length;
  put(writer, writer->used++, "", 1);
  record->names += writer->used - start;
}

void art_record_end(Writer *writer, uint64_t place, const ArtRecord *record) {
  put(writer, place, record, sizeof *record);
}

void art_record_problem(Writer *writer, uint64_t place, ArtKind kind, uint64_t size, const char *text) {
  ArtRecord record = {.size = size, .kind = kind, .flags = HAS_PROBLEM};
  writer->used = place + sizeof record;
  art_record_name(writer, &record, 0, text, strlen(text));
  art_record_end(writer, place, &record);
}
