/* What libFuzzer calls with each input: the reader must answer with whole records, and read nothing but the input. */
#include <stdlib.h>
#include <string.h>

#include "cubin.h"
#include "inspect.h"

enum { ROOM = 1 << 16, DEEPEST = 16 };

/* Walks one record with its parts, and returns where the next one begins. */
static uint64_t walk(const uint8_t *records, uint64_t at, uint64_t end, int depth) {
  ArtRecord record;
  if (end - at < sizeof record || depth > DEEPEST) abort();
  memcpy(&record, records + at, sizeof record);
  at += sizeof record;
  if (record.kind >= KIND_COUNT || record.names > end - at) abort();
  if (record.names && records[at + record.names - 1]) abort(); /* each name ends with NUL */
  at += record.names;
  for (uint32_t part = 0; part < record.parts; part++) at = walk(records, at, end, depth + 1);
  return at;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static uint8_t records[ROOM]; /* not on the stack, which a sanitizer marks in every call */
  /* a release behind every known one: what only CUDA defines is checked in all cubins */
  uint64_t used = art_inspect(data, size, RELEASE(99, 0), records, sizeof records);
  if (!used) abort();
  if (used <= sizeof records && walk(records, 0, used, 0) != used) abort();
  if (size % 16) return 0;
  /* what does not fit is counted, not written */
  uint8_t few[100] = {0};
  if (art_inspect(data, size, RELEASE(99, 0), few, sizeof few / 2) != used || few[sizeof few / 2]) abort();
  return 0;
}
