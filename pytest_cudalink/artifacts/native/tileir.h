/* Tile IR bytecode, as "Tile IR", chapter "Binary Format", describes it; what tileiras 13.5 refuses was measured. */
#pragma once

#include "bytes.h"

#define TILEIR_MAGIC "\177TileIR"

typedef struct {
  uint32_t major, minor; /* of the bytecode, which are those of the first CUDA release that reads it */
} TileIr;

/* Bytes of the header, and the most that the head of a section has. */
enum { TILEIR_HEADER = 12, TILEIR_SECTION_HEAD = 24 };

/* Moves `at`, which is the place in the image, from the head of a section to the end of its contents, which need not
   be there. `rest` is the image from `at` on. */
bool art_tileir_section(Bytes rest, uint64_t *at, Problem *problem);
/* The frames of the sections are checked; their contents are not. */
bool art_tileir_read(TileIr *tileir, Bytes image, Problem *problem);
