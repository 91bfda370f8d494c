/* A library has the names of all releases; when it is loaded, it takes out of its own symbol table what the configured
   version does not export, so that neither dlsym nor the loader finds it. */
#ifndef CUDALINK_HIDDEN_NAMES
#define CUDALINK_HIDDEN_NAMES

#include <stddef.h>

/* A name that not every version exports. */
typedef struct {
  const char *name;
  int since, until; /* versions: the first that has it, the first that no longer has it or 0 */
} HiddenName;

void cl_hide_names(const HiddenName *names, size_t count, int version);

#endif
