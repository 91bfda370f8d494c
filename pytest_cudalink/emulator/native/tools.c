/* What tools ask a driver: the profiler, its log, notifications, checkpoints of a process. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>

#include "calls.h"
#include "contexts.h"
#include "devices.h"
#include "handles.h"
#include "locks.h"

/* -- the profiler: there is nothing to profile -- */

EXPORTED(cuProfilerStart, (void), cl_check_context())
EXPORTED(cuProfilerStop, (void), cl_check_context())
EXPORTED_ANY_TIME(cuProfilerInitialize, (const char *configuration, const char *output, int mode),
                  cl_noted(line, CUDA_ERROR_NOT_SUPPORTED, "profiling with a configuration file, of before CUDA 11"))

/* -- callbacks that are registered and never called -- */

enum { OF_LOG = -1 };

/* A registered callback: of a device, or of the log. */
typedef struct {
  Object head;
  CUdevice device;
} Callback;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the callbacks */

OPEN_IN_CHILDREN(lock);

static CUresult keep(Callback **out, CUdevice device) {
  pthread_mutex_lock(&lock);
  Callback *callback = cl_object_make(sizeof *callback, HANDLE_NOTIFICATION, NULL, NULL);
  if (callback) callback->device = device;
  pthread_mutex_unlock(&lock);
  if (callback && out) *out = callback;
  return callback ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult drop(Callback *callback, CUdevice device) {
  HOLD(lock);
  bool known = cl_handle_is(callback, HANDLE_NOTIFICATION) && callback->device == device;
  if (known) cl_object_end(&callback->head);
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult register_notification(CUdevice device, const void *function, Callback **out) {
  if (!function || !out) return CUDA_ERROR_INVALID_VALUE;
  return cl_is_device(device) ? keep(out, device) : CUDA_ERROR_INVALID_DEVICE;
}
EXPORTED(cuDeviceRegisterAsyncNotification, (CUdevice device, void *function, void *data, Callback **out),
         register_notification(device, function, out))
static CUresult unregister_notification(CUdevice device, Callback *callback) {
  if (!callback) return CUDA_ERROR_INVALID_VALUE;
  return cl_is_device(device) ? drop(callback, device) : CUDA_ERROR_INVALID_DEVICE;
}
EXPORTED(cuDeviceUnregisterAsyncNotification, (CUdevice device, Callback *callback),
         unregister_notification(device, callback))

/* -- the log of errors, which stays empty; it is there before cuInit -- */

EXPORTED_ANY_TIME(cuLogsRegisterCallback, (void *function, void *data, Callback **out),
                  function ? keep(out, OF_LOG) : CUDA_ERROR_INVALID_VALUE)
EXPORTED_ANY_TIME(cuLogsUnregisterCallback, (Callback * callback), drop(callback, OF_LOG))

static CUresult logs_current(unsigned *place) {
  if (!place) return CUDA_ERROR_INVALID_VALUE;
  *place = 0;
  return CUDA_SUCCESS;
}
/* The flags are of later versions, and are not looked at. */
EXPORTED_ANY_TIME(cuLogsCurrent, (unsigned *place, unsigned flags), logs_current(place))

static CUresult logs_to_file(const char *path) {
  if (!path) return CUDA_ERROR_INVALID_VALUE;
  FILE *file = fopen(path, "w");
  return file && !fclose(file) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
EXPORTED_ANY_TIME(cuLogsDumpToFile, (unsigned *place, const char *path, unsigned flags), logs_to_file(path))

static CUresult logs_to_memory(char *buffer, size_t *size) {
  if (!buffer || !size) return CUDA_ERROR_INVALID_VALUE;
  if (*size) *buffer = 0;
  *size = 0;
  return CUDA_SUCCESS;
}
EXPORTED_ANY_TIME(cuLogsDumpToMemory, (unsigned *place, char *buffer, size_t *size, unsigned flags),
                  logs_to_memory(buffer, size))

/* -- other devices' writes -- */

enum { CURRENT_CONTEXT = 0, TO_OWNER = 100, TO_ALL_DEVICES = 200 };

static CUresult flush_writes(int target, int scope) {
  CUresult state = cl_check_context();
  if (target != CURRENT_CONTEXT || (scope != TO_OWNER && scope != TO_ALL_DEVICES)) return CUDA_ERROR_INVALID_VALUE;
  return state;
}
EXPORTED(cuFlushGPUDirectRDMAWrites, (int target, int scope), flush_writes(target, scope))

static CUresult nvsci_attributes(EventLine *line, const void *list, CUdevice device, int flags) {
  if (!list) return CUDA_ERROR_INVALID_HANDLE;
  if (flags < 1 || flags > 3) return CUDA_ERROR_INVALID_VALUE;
  if (!cl_is_device(device)) return cl_no_device(line, device);
  return cl_noted(line, CUDA_ERROR_NOT_SUPPORTED, "NvSci is of other platforms");
}
EXPORTED(cuDeviceGetNvSciSyncAttributes, (void *list, CUdevice device, int flags),
         nvsci_attributes(line, list, device, flags))
