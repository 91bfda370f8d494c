/* The head and the symbols of PTX text. Source of the grammar: PTX ISA, "Directives" and "Linking Directives". */
#pragma once

#include "bytes.h"

/* PTX with every comment and string blanked, which may contain text that looks like a directive. */
typedef struct {
  Bytes plain; /* owned */
  uint32_t isa_major, isa_minor;
  Bytes target;                          /* the first .target, such as "sm_90a" */
  uint32_t release_major, release_minor; /* in NVIDIA's header comment; 0.0: another compiler wrote the text */
} Ptx;

typedef enum {
  PTX_KERNEL = 1,   /* an entry with a body */
  PTX_DEFINED = 2,  /* a strong external definition */
  PTX_DECLARED = 4, /* an external declaration, perhaps of what is defined here, too */
} PtxSymbol;

/* Called with what a name is, as a sum of the above. */
typedef void PtxFound(void *context, const char *name, size_t length, unsigned what);

/* Where a text begins, after white space and comments. */
uint64_t art_ptx_start(Bytes text);
/* Whether a .version directive comes first there, and its numbers. */
bool art_ptx_begins(Bytes text, uint32_t *major, uint32_t *minor);
/* Reads the head of a text, with or without its final NUL. Only when it succeeds, art_ptx_close() must be called. */
bool art_ptx_open(Ptx *ptx, Bytes text, Problem *problem);
/* Calls back for each symbol: functions first, then variables. False if the text ends inside a declaration. */
bool art_ptx_symbols(const Ptx *ptx, PtxFound *found, void *context, Problem *problem);
void art_ptx_close(Ptx *ptx);
