/* The functions that data/emulator/nvml.toml answers, and every other name of the library: weak forms that refuse,
   overridden by the files that implement the function. */
#include <string.h>

#include "config.h"
#include "locks.h"
#include "nvml.h"
#include "own_symbols.h"

#define VALUES
#include "nvml_answers.inc"
#undef VALUES

#define STRUCTURES
#include "nvml_answers.inc"
#undef STRUCTURES

#define WEAK_NAMES
#include "nvml_answers.inc"
#undef WEAK_NAMES

static const NewerName newer_names[] = {
#define HIDDEN_NAMES
#include "nvml_answers.inc"
#undef HIDDEN_NAMES
};

/* Names that a version no longer has. */
static const struct {
  int until;
  NewerName name;
} dropped_names[] = {
#define DROPPED_NAMES
#include "nvml_answers.inc"
#undef DROPPED_NAMES
};

static void hide_names(void) {
  cl_hide_names(newer_names, sizeof newer_names / sizeof *newer_names);
  for (size_t at = 0; at < sizeof dropped_names / sizeof *dropped_names; at++)
    if (cl_config()->version >= dropped_names[at].until) cl_hide_names(&dropped_names[at].name, 1);
}

START(hide_names);
