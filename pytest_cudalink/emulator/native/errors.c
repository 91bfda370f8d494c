/* cuGetErrorName and cuGetErrorString: the codes that a version has, with their names and texts. */
#include "calls.h"
#include "config.h"

#include "errors.inc" /* driver_errors */

static const struct driver_error *error_of(CUresult code) {
  for (size_t at = 0; at < sizeof driver_errors / sizeof *driver_errors; at++)
    if (driver_errors[at].code == code && driver_errors[at].since <= cl_config()->version) return &driver_errors[at];
  return NULL;
}

static CUresult get_error(EventLine *line, CUresult code, const char **text, bool name) {
  if (!text) return CUDA_ERROR_INVALID_VALUE;
  const struct driver_error *error = error_of(code);
  *text = !error ? NULL : name ? error->name : error->text;
  cl_event_int(line, "code", code);
  return error ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
EXPORTED_ANY_TIME(cuGetErrorName, (CUresult code, const char **pStr), get_error(line, code, pStr, true))
EXPORTED_ANY_TIME(cuGetErrorString, (CUresult code, const char **pStr), get_error(line, code, pStr, false))
