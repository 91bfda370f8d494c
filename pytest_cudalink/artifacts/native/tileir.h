/* Tile IR bytecode, as "Tile IR", chapter "Binary Format", describes it; what tileiras 13.5 refuses was measured. */
#ifndef CUDALINK_TILEIR_H
#define CUDALINK_TILEIR_H

#include "bytes.h"

#define TILEIR_MAGIC "\177TileIR"

typedef struct {
  uint32_t major, minor; /* of the bytecode, which are those of the first CUDA release that reads it */
} TileIr;

/* The frames of the sections are checked; their contents are not. */
bool art_tileir_read(TileIr *tileir, Bytes image, Problem *problem);

#endif
