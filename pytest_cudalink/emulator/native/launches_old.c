/* The launches of before CUDA 4.0: block, parameters and shared memory are set on the function first. */
#include <limits.h>
#include <string.h>

#include "calls.h"
#include "capture.h"
#include "contexts.h"
#include "launches.h"
#include "module_image.h"
#include "streams.h"

/* Finds a function of the current context and keeps the lock of the modules; NULL without it, with the answer in
 * *result. */
static Function *lock_function(const void *handle, CUresult *result) {
  const Context *context = cl_context(result);
  if (*result) return NULL;
  pthread_mutex_lock(&cl_modules_lock);
  Function *function = handle ? cl_find_function(handle) : NULL;
  if (function && cl_is_usable(function, context)) return function;
  pthread_mutex_unlock(&cl_modules_lock);
  *result = CUDA_ERROR_INVALID_HANDLE;
  return NULL;
}

static CUresult set_block(const void *handle, const int sizes[3]) {
  CUresult result;
  Function *function = lock_function(handle, &result);
  if (!function) return result;
  result = cl_check_block((const unsigned *)sizes, function); /* a negative size is too large */
  if (!result) memcpy(function->old.block, sizes, sizeof function->old.block);
  pthread_mutex_unlock(&cl_modules_lock);
  return result;
}
EXPORTED(cuFuncSetBlockShape, (Function *function, int x, int y, int z), set_block(function, (int[]){x, y, z}))

static CUresult set_shared(const void *handle, unsigned bytes) {
  CUresult result;
  Function *function = lock_function(handle, &result);
  if (!function) return result;
  bool fits = bytes <= (unsigned)function->max_dynamic_shared;
  if (fits) function->old.shared = bytes;
  pthread_mutex_unlock(&cl_modules_lock);
  return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
EXPORTED(cuFuncSetSharedSize, (Function *function, unsigned bytes), set_shared(function, bytes))

enum { MOST_PARAMETER_BYTES = 32764 };

/* The values themselves are not kept, as no kernel reads them. */
static CUresult set_parameters(const void *handle, long long end, bool whole) {
  CUresult result;
  Function *function = lock_function(handle, &result);
  if (!function) return result;
  bool fits = end >= 0 && end <= MOST_PARAMETER_BYTES;
  if (fits && whole) function->old.parameters = (unsigned)end;
  pthread_mutex_unlock(&cl_modules_lock);
  return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static long long end_of(int offset, unsigned bytes) { return offset < 0 ? -1 : (long long)offset + bytes; }

EXPORTED(cuParamSetSize, (Function *function, unsigned bytes), set_parameters(function, bytes, true))
EXPORTED(cuParamSeti, (Function *function, int offset, unsigned value),
         set_parameters(function, end_of(offset, sizeof value), false))
EXPORTED(cuParamSetf, (Function *function, int offset, float value),
         set_parameters(function, end_of(offset, sizeof value), false))
EXPORTED(cuParamSetv, (Function *function, int offset, void *data, unsigned bytes),
         set_parameters(function, data ? end_of(offset, bytes) : -1, false))

static CUresult launch_grid(EventLine *line, const void *handle, int width, int height, const void *stream) {
  CUresult result;
  const Function *function = lock_function(handle, &result);
  if (!function) return result;
  LaunchConfig config = {.grid = {(unsigned)width, (unsigned)height, 1}, .shared = function->old.shared};
  for (int axis = 0; axis < 3; axis++) {
    unsigned usual = function->required_block[0] ? (unsigned)function->required_block[axis] : 1;
    config.block[axis] = function->old.block[0] ? function->old.block[axis] : usual;
  }
  /* parameters that were not set are garbage, and too many of them do not fit */
  size_t given = function->old.parameters, needed = cl_parameter_bytes(function);
  pthread_mutex_unlock(&cl_modules_lock);
  bool captured = false;
  void *parameters[] = {NULL};
  result = cl_enter_stream(stream, &captured);
  if (!result && captured) result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (!result) result = cl_check_launch(&config, handle, parameters, NULL);
  if (!result && given > needed) result = CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  return result ? result : cl_not_executed(line, handle);
}
EXPORTED(cuLaunch, (Function *function), launch_grid(line, function, 1, 1, NULL))
EXPORTED(cuLaunchGrid, (Function *function, int width, int height), launch_grid(line, function, width, height, NULL))
EXPORTED(cuLaunchGridAsync, (Function *function, int width, int height, void *stream),
         launch_grid(line, function, width, height, stream))
