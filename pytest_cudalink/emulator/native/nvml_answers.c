/* The functions that data/nvml.toml answers, and every other name of the library: weak forms that refuse, overridden by
   the files that implement the function. */
#include "nvml_answers.h"

#include <string.h>

#include "hidden_names.h"

/* -- functions that write fixed numbers -- */

#define VALUES
#include "nvml_answers.inc"
#undef VALUES

/* -- functions whose structure begins with its version -- */

#define STRUCTURES
#include "nvml_answers.inc"
#undef STRUCTURES

/* -- functions that refuse -- */

Result cl_nvml_refuse(Result result) {
  READY(true);
  return result;
}

Result cl_nvml_refuse_of_device(Device device, Result result) {
  CHECK(device, true);
  return result;
}

/* Each is called with more arguments than it looks at, which the ABI allows. */
#define WEAK_NAMES
#include "nvml_answers.inc"
#undef WEAK_NAMES

/* -- what the configured version lacks -- */

static const HiddenName names[] = {
#define HIDDEN_NAMES
#include "nvml_answers.inc"
#undef HIDDEN_NAMES
};

__attribute__((constructor)) static void hide_names(void) {
  cl_hide_names(names, sizeof names / sizeof *names, cl_nvml_version());
}
