/* The names of the driver's functions; generated from data/emulator/functions.toml. */
#pragma once

#include <stdbool.h>

#define SYMBOL_IDS_ONLY
#include "names.inc"
#undef SYMBOL_IDS_ONLY

enum { WAITS_AT_ENTRY = 1, WAITS_BY_ITSELF }; /* `at_entry` */

typedef struct {
  const char *name;
  int since;                  /* driver version that introduced it; 0 where the headers do not say */
  unsigned char waits;        /* for unfinished work: number of its first row in waits.inc, from 1; 0: it does not */
  unsigned char at_entry;     /* whatever its arguments are */
  unsigned char held_up;      /* by the locks of data/emulator/waits.toml, one bit each */
  bool refuses_host_calls;    /* whatever its arguments are */
  unsigned dies_of;           /* dead handles of these kinds, one bit each */
  int dead_kind, dead_answer; /* to a dead handle of this HandleKind it answers so; 0: as to any other */
  /* the traits of functions.toml, which says what each means */
  bool destroys, makes_accesses, quiet, uses_link_state, unsafe_in_capture, legacy_work, on_host, makes_context;
  bool not_swept;
} Symbol;

extern const Symbol cl_symbols[SYMBOL_COUNT];
/* Their addresses. In exports.c. */
extern void *const cl_addresses[SYMBOL_COUNT];

/* The function of a name, or -1. */
int cl_symbol_named(const char *name);
