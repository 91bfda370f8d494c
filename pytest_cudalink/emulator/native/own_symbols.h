/* Which of its names a library shows: a library that has the functions of all releases hides those that the configured
   version does not export, before the loader or dlsym looks for them. */
#pragma once

#include <limits.h>
#include <stddef.h>

/* A name that not every version exports, and the version from which one does, such as 13000. */
typedef struct {
  const char *name;
  int since;
} NewerName;

enum { NEVER_EXPORTED = INT_MAX };

/* To be called as the library is loaded: what was bound to a name before stays bound. */
void cl_hide_names(const NewerName *names, size_t count);
