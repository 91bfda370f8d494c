/* cuGetProcAddress: which form of a function a caller of a certain CUDA version gets. */
#include <string.h>

#include "calls.h"
#include "config.h"

typedef struct {
  int version;
  Sym symbol;
} Form;

typedef struct {
  const char *name;
  Form plain[6], stream[4]; /* ended by version 0; in rising order */
} Function;

#define FUNCTION_TABLE
static const Function functions[] = {
#include "names.inc"
};
#undef FUNCTION_TABLE

enum { FOUND = 0, SYMBOL_NOT_FOUND = 1, VERSION_NOT_SUFFICIENT = 2 };
enum { LEGACY_STREAM = 1, PER_THREAD_STREAM = 2, REFUSES_NEWER = 13000 };

static const Function *function_named(const char *name) {
  size_t low = 0, high = sizeof functions / sizeof *functions;
  while (low < high) {
    size_t middle = (low + high) / 2;
    int order = strcmp(name, functions[middle].name);
    if (order == 0) return &functions[middle];
    if (order < 0) high = middle;
    else low = middle + 1;
  }
  return NULL;
}

static const Form *newest(const Form *forms, int version) {
  const Form *found = NULL;
  for (; forms->version; forms++)
    if (forms->version <= version) found = forms;
  return found;
}

static int oldest(const Function *function) {
  int plain = function->plain[0].version, stream = function->stream[0].version;
  return !plain || (stream && stream < plain) ? stream : plain;
}

/* Drivers of CUDA 12 give their newest form to callers of any newer version: Warp 1.7.1 asks as one of 110400, which
   570.181 answers and 580 refuses (leisaac#35). */
static bool is_refused(int version) {
  int own = cl_config()->version;
  return version > own && own >= REFUSES_NEWER;
}

/* The rule that gave all 9,030 recorded answers of a real driver. */
static int look_up(const char *name, int version, uint64_t flags, void **address) {
  const Function *function = function_named(name);
  int own = cl_config()->version;
  *address = NULL;
  if (!function) return SYMBOL_NOT_FOUND;
  bool per_thread = (flags & PER_THREAD_STREAM) && function->stream[0].version;
  const Form *form =
      newest(per_thread ? function->stream : function->plain, version < 0 || version > own ? own : version);
  if (!form) return VERSION_NOT_SUFFICIENT;
  *address = cl_addresses[form->symbol];
  return FOUND;
}

static bool is_newer_than_driver(const char *name) {
  const Function *function = function_named(name);
  return function && oldest(function) > cl_config()->version;
}

enum { NAME_ROOM = 96 }; /* of a name in an event */

API_WHEN(false, cuGetProcAddress_v2, (const char *name, void **address, int version, uint64_t flags, int *status),
         (name, address, version, flags, status)) {
  if (!name || !address || flags > (LEGACY_STREAM | PER_THREAD_STREAM)) return CUDA_ERROR_INVALID_VALUE;
  bool newer = is_newer_than_driver(name);
  if (newer) {
    *address = NULL;
    if (status) *status = VERSION_NOT_SUFFICIENT;
  }
  if (newer || is_refused(version)) {
    cl_event_text(line, "name", name, NAME_ROOM);
    cl_event_int(line, "version", version);
    return newer ? cl_noted(line, CUDA_ERROR_NOT_FOUND, "newer than the emulated driver") : CUDA_ERROR_INVALID_VALUE;
  }
  int found = look_up(name, version, flags, address);
  if (status) *status = found;
  return CUDA_SUCCESS;
}

API_WHEN(false, cuGetProcAddress, (const char *name, void **address, int version, uint64_t flags),
         (name, address, version, flags)) {
  if (!name || !address || flags > (LEGACY_STREAM | PER_THREAD_STREAM)) return CUDA_ERROR_INVALID_VALUE;
  cl_event_text(line, "name", name, NAME_ROOM);
  if (is_newer_than_driver(name)) return CUDA_ERROR_NOT_FOUND;
  if (is_refused(version)) return CUDA_ERROR_INVALID_VALUE;
  void *result;
  if (look_up(name, version, flags, &result) != FOUND) return CUDA_ERROR_NOT_FOUND;
  *address = result;
  return CUDA_SUCCESS;
}
