/* Bytes of an image within their bounds. */
#include "bytes.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

bool art_span(Bytes image, uint64_t offset, uint64_t size, Bytes *span) {
  bool inside = offset <= image.size && size <= image.size - offset;
  *span = inside ? (Bytes){image.at + offset, size} : (Bytes){image.at, 0};
  return inside;
}

bool art_begins(Bytes bytes, const char *text) {
  size_t length = strlen(text);
  return bytes.size >= length && !memcmp(bytes.at, text, length);
}

uint64_t art_find(Bytes bytes, uint64_t from, const char *text) {
  if (from >= bytes.size) return bytes.size;
  const uint8_t *found = memmem(bytes.at + from, bytes.size - from, text, strlen(text));
  return found ? (uint64_t)(found - bytes.at) : bytes.size;
}

bool art_damaged(Problem *problem, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(problem->text, sizeof problem->text, format, arguments);
  va_end(arguments);
  return false;
}

bool art_outside(Problem *problem, Bytes image, uint64_t offset, uint64_t size, const char *format, ...) {
  char what[PROBLEM_ROOM / 2];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(what, sizeof what, format, arguments);
  va_end(arguments);
  return art_damaged(problem, "%s ends at byte %" PRIu64 ", the image has %" PRIu64, what, art_end(offset, size),
                     image.size);
}

bool art_no_memory(Problem *problem) {
  problem->out_of_memory = true;
  return art_damaged(problem, "out of memory");
}
