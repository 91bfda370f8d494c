/* What tools ask a driver: the profiler, its log, notifications, checkpoints of a process. */
#include <stdio.h>

#include "contexts.h"
#include "devices.h"
#include "locks.h"

/* -- the profiler: there is nothing to profile -- */

EXPORTED(cuProfilerStart, (void), cl_check_context())
EXPORTED(cuProfilerStop, (void), cl_check_context())
EXPORTED_ANY_TIME(cuProfilerInitialize, (const char *configuration, const char *output, int mode),
                  cl_noted(line, CUDA_ERROR_NOT_SUPPORTED, "profiling with a configuration file, of before CUDA 11"))

enum { OF_LOG = -1 };

/* A registered callback: of a device, or of the log. */
typedef struct {
  Object head;
  CUdevice device;
} Callback;

STATIC_LOCK(lock); /* of the callbacks */

static CUresult keep(Callback **out, CUdevice device) {
  HOLD(lock);
  Callback *callback = cl_object_make(sizeof *callback, HANDLE_NOTIFICATION, NULL, NULL);
  if (!callback) return CUDA_ERROR_OUT_OF_MEMORY;
  callback->device = device;
  if (out) *out = callback;
  return CUDA_SUCCESS;
}

static CUresult drop(Callback *callback, CUdevice device) {
  HOLD(lock);
  bool known = cl_handle_is(callback, HANDLE_NOTIFICATION) && callback->device == device;
  if (known) cl_object_end(&callback->head);
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API(cuDeviceRegisterAsyncNotification, (CUdevice device, void *function, void *data, Callback **out),
    (device, function, data, out)) {
  if (!function || !out) return CUDA_ERROR_INVALID_VALUE;
  return cl_is_device(device) ? keep(out, device) : CUDA_ERROR_INVALID_DEVICE;
}
API(cuDeviceUnregisterAsyncNotification, (CUdevice device, Callback *callback), (device, callback)) {
  if (!callback) return CUDA_ERROR_INVALID_VALUE;
  return cl_is_device(device) ? drop(callback, device) : CUDA_ERROR_INVALID_DEVICE;
}

/* -- the log of errors, which stays empty; it is there before cuInit -- */

EXPORTED_ANY_TIME(cuLogsRegisterCallback, (void *function, void *data, Callback **out),
                  function ? keep(out, OF_LOG) : CUDA_ERROR_INVALID_VALUE)
EXPORTED_ANY_TIME(cuLogsUnregisterCallback, (Callback * callback), drop(callback, OF_LOG))

/* The flags are of later versions, and are not looked at. */
API_WHEN(false, cuLogsCurrent, (unsigned *place, unsigned flags), (place, flags)) {
  if (!place) return CUDA_ERROR_INVALID_VALUE;
  *place = 0;
  return CUDA_SUCCESS;
}

API_WHEN(false, cuLogsDumpToFile, (unsigned *place, const char *path, unsigned flags), (place, path, flags)) {
  if (!path) return CUDA_ERROR_INVALID_VALUE;
  FILE *file = fopen(path, "w");
  return file && !fclose(file) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API_WHEN(false, cuLogsDumpToMemory, (unsigned *place, char *buffer, size_t *size, unsigned flags),
         (place, buffer, size, flags)) {
  if (!buffer || !size) return CUDA_ERROR_INVALID_VALUE;
  if (*size && cl_has_failed) *buffer = 0; /* the log of a process without errors is not written (recorded programs) */
  *size = 0;
  return CUDA_SUCCESS;
}

enum { CURRENT_CONTEXT = 0, TO_OWNER = 100, TO_ALL_DEVICES = 200 };

API(cuFlushGPUDirectRDMAWrites, (int target, int scope), (target, scope)) {
  CUresult state = cl_check_context();
  if (target != CURRENT_CONTEXT || (scope != TO_OWNER && scope != TO_ALL_DEVICES)) return CUDA_ERROR_INVALID_VALUE;
  return state;
}

API(cuDeviceGetNvSciSyncAttributes, (void *list, CUdevice device, int flags), (list, device, flags)) {
  if (!list) return CUDA_ERROR_INVALID_HANDLE;
  TRY(cl_asked_of(line, flags >= 1 && flags <= 3, device));
  return cl_noted(line, CUDA_ERROR_NOT_SUPPORTED, "NvSci is of other platforms");
}
