/* The launches of before CUDA 4.0: block, parameters and shared memory are set on the function first. */
#include <limits.h>

#include "calls.h"
#include "contexts.h"
#include "launches.h"
#include "module_image.h"
#include "streams.h"

/* Finds a function and keeps the lock of the modules; NULL without it, with the answer in *result. */
static Function *lock_function(const void *handle, CUresult *result) {
  *result = handle ? cl_check_context() : CUDA_ERROR_INVALID_HANDLE;
  if (*result) return NULL;
  pthread_mutex_lock(&cl_modules_lock);
  Function *function = cl_find_function(handle);
  if (function) return function;
  pthread_mutex_unlock(&cl_modules_lock);
  *result = CUDA_ERROR_INVALID_HANDLE;
  return NULL;
}

static CUresult set_block(const void *handle, int x, int y, int z) {
  CUresult result;
  if (handle && (x <= 0 || y <= 0 || z <= 0)) return CUDA_ERROR_INVALID_VALUE;
  Function *function = lock_function(handle, &result);
  if (!function) return result;
  function->old.block[0] = (unsigned)x;
  function->old.block[1] = (unsigned)y;
  function->old.block[2] = (unsigned)z;
  pthread_mutex_unlock(&cl_modules_lock);
  return CUDA_SUCCESS;
}
EXPORTED(cuFuncSetBlockShape, (Function *function, int x, int y, int z), set_block(function, x, y, z))

static CUresult set_shared(const void *handle, unsigned bytes) {
  CUresult result;
  Function *function = lock_function(handle, &result);
  if (!function) return result;
  function->old.shared = bytes;
  pthread_mutex_unlock(&cl_modules_lock);
  return CUDA_SUCCESS;
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
         data || !bytes ? set_parameters(function, end_of(offset, bytes), false) : CUDA_ERROR_INVALID_VALUE)

static CUresult launch_grid(EventLine *line, const void *handle, int width, int height, const void *stream) {
  CUresult result;
  if (handle && (width <= 0 || height <= 0)) return CUDA_ERROR_INVALID_VALUE;
  const Function *function = lock_function(handle, &result);
  if (!function) return result;
  LaunchConfig config = {.grid = {(unsigned)width, (unsigned)height, 1}, .shared = function->old.shared};
  for (int axis = 0; axis < 3; axis++) config.block[axis] = function->old.block[axis];
  size_t bytes = function->old.parameters;
  pthread_mutex_unlock(&cl_modules_lock);
  /* as a launch with a buffer of the size that was set */
  void *extra[] = {(void *)1, &config, (void *)2, &bytes, NULL};
  result = cl_check_stream(stream);
  if (!result) result = cl_check_launch(&config, handle, NULL, extra);
  return result ? result : cl_not_executed(line, handle);
}
EXPORTED(cuLaunch, (Function *function), launch_grid(line, function, 1, 1, NULL))
EXPORTED(cuLaunchGrid, (Function *function, int width, int height), launch_grid(line, function, width, height, NULL))
EXPORTED(cuLaunchGridAsync, (Function *function, int width, int height, void *stream),
         launch_grid(line, function, width, height, stream))
