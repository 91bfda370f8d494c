/* The functions that data/nvml.toml answers, and every other name of the library: weak forms that refuse, overridden by
   the files that implement the function. */
#include <string.h>

#include "nvml.h"
#include "own_symbols.h"

/* -- functions that write fixed numbers -- */

#define VALUES
#include "nvml_answers.inc"
#undef VALUES

/* -- functions whose structure begins with its version -- */

#define STRUCTURES
#include "nvml_answers.inc"
#undef STRUCTURES

/* -- functions that refuse -- */

#define WEAK_NAMES
#include "nvml_answers.inc"
#undef WEAK_NAMES

/* -- what the configured version lacks -- */

static const NewerName names[] = {
#define HIDDEN_NAMES
#include "nvml_answers.inc"
#undef HIDDEN_NAMES
};

__attribute__((constructor)) static void hide_names(void) {
  cl_hide_names(names, sizeof names / sizeof *names);
}
