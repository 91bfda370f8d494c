/* What was found about an image and its parts, as one stream of records.
 *
 * A record is this struct and then its names, each with its NUL; the records of its parts follow. Python reads it with
 * the same layout, in artifacts/__init__.py. */
#pragma once

#include "bytes.h"

typedef enum {
  KIND_UNKNOWN,
  KIND_PTX,
  KIND_LTOIR,
  KIND_CUBIN,
  KIND_FATBIN,
  KIND_OBJECT,
  KIND_LIBRARY,
  KIND_TILEIR,
  KIND_COUNT
} ArtKind;

enum {
  HAS_PROBLEM = 1, /* the first name is a problem, and nothing else is known */
  HAS_TARGET = 2,  /* the first name is the target of PTX */
  HAS_ARCH = 4,
  HAS_LINKAGE = 8, /* whether it is relocatable is known */
  RELOCATABLE = 16,
  PACKED = 32,
};

typedef struct {
  uint64_t size, names; /* bytes of the image, and of its names here */
  uint32_t kind, flags;
  uint32_t release_major, release_minor; /* of the producer; 0.0: not known */
  uint32_t version_major, version_minor; /* PTX ISA, NVVM IR or Tile IR */
  uint32_t arch;
  uint32_t parts; /* records that follow, without theirs */
} ArtRecord;

/* What a name is says its first character. */
enum { NAME_KERNEL = 'k', NAME_DEFINED = 'd', NAME_BOTH = 'b', NAME_UNDEFINED = 'u', NAME_TEXT = 't' };

/* Writes as much as there is room for, and counts all of it. */
typedef struct {
  uint8_t *out;
  uint64_t room, used;
} Writer;

/* Leaves room for a record, and returns its place. */
uint64_t art_record_begin(Writer *writer);
/* Adds a name to the record that was begun last; `what` is 0 for a problem or target. */
void art_record_name(Writer *writer, ArtRecord *record, char what, const char *name, uint64_t length);
void art_record_end(Writer *writer, uint64_t place, const ArtRecord *record);
/* Ends a record with nothing but a problem, and without what was written behind it. */
void art_record_problem(Writer *writer, uint64_t place, ArtKind kind, uint64_t size, const char *text);
