/* Initialization, versions, errors, and what a device is. */
#include "devices.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "config.h"
#include "events.h"

#include "devices.inc" /* device_profiles, base_attributes */
#include "errors.inc"  /* driver_errors */

/* -- version and errors -- */

EXPORT CUresult cuInit(unsigned flags) {
  ENTER_ANY_TIME(cuInit);
  LEAVE(cl_initialize(flags), ",\"flags\":%u", flags);
}

EXPORT CUresult cuDriverGetVersion(int *version) {
  ENTER_ANY_TIME(cuDriverGetVersion);
  if (!version) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  *version = cl_config()->version;
  LEAVE(CUDA_SUCCESS, "");
}

static const struct driver_error *error_of(CUresult code) {
  for (size_t at = 0; at < sizeof driver_errors / sizeof *driver_errors; at++)
    if (driver_errors[at].code == code && driver_errors[at].since <= cl_config()->version) return &driver_errors[at];
  return NULL;
}

EXPORT CUresult cuGetErrorName(CUresult code, const char **text) {
  ENTER_ANY_TIME(cuGetErrorName);
  if (!text) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  const struct driver_error *error = error_of(code);
  *text = error ? error->name : NULL;
  LEAVE(error ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE, ",\"code\":%d", code);
}

EXPORT CUresult cuGetErrorString(CUresult code, const char **text) {
  ENTER_ANY_TIME(cuGetErrorString);
  if (!text) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  const struct driver_error *error = error_of(code);
  *text = error ? error->text : NULL;
  LEAVE(error ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE, ",\"code\":%d", code);
}

/* libnvJitLink 12.1 to 12.4 refuse to start on a driver without this table; links never call into it (measured). */
static const unsigned char table_of_old_linkers[16] = {0xda, 0x91, 0x51, 0xd3, 0x3a, 0xe6, 0xcc, 0x41,
                                                       0xa5, 0xc0, 0x4f, 0x26, 0xd5, 0x33, 0xe3, 0x28};

static CUresult refuse(void) {
  cl_event("\"call\":\"a function of an undocumented table\",\"result\":%d", CUDA_ERROR_NOT_SUPPORTED);
  return CUDA_ERROR_NOT_SUPPORTED;
}

EXPORT CUresult cuGetExportTable(const void **table, const void *uuid) {
  ENTER_ANY_TIME(cuGetExportTable);
  if (table) *table = NULL;
  if (!table || !uuid || !cl_initialized()) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  if (!memcmp(uuid, table_of_old_linkers, 16)) {
    static const void *const refusing[32] = {
        (void *)sizeof refusing, refuse, refuse, refuse, refuse, refuse, refuse, refuse, refuse, refuse, refuse,
        refuse, refuse, refuse, refuse, refuse, refuse, refuse, refuse, refuse, refuse, refuse, refuse, refuse,
        refuse, refuse, refuse, refuse, refuse, refuse, refuse, refuse,
    };
    *table = refusing;
    LEAVE(CUDA_SUCCESS, ",\"note\":\"a table whose functions all answer 801\"");
  }
  /* the CUDA runtime needs these tables; libnvrtc and libnvJitLink accept this answer */
  LEAVE(CUDA_ERROR_NOT_SUPPORTED, ",\"note\":\"no undocumented tables: the CUDA runtime cannot run on the emulated driver\"");
}

/* -- devices -- */

static const struct device_profile *chosen = &device_profiles[0];

static void choose_profile(void) {
  for (size_t at = 0; at < sizeof device_profiles / sizeof *device_profiles; at++)
    if (device_profiles[at].arch == cl_config()->arch) chosen = &device_profiles[at];
}

static const struct device_profile *profile(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, choose_profile);
  return chosen;
}

bool cl_is_device(CUdevice device) { return device >= 0 && device < cl_config()->devices; }

enum { COMPUTE_CAPABILITY_MAJOR = 75, COMPUTE_CAPABILITY_MINOR = 76 };

int cl_device_attribute(int attribute, int *value) {
  if (attribute == COMPUTE_CAPABILITY_MAJOR) return *value = profile()->arch / 10, CUDA_SUCCESS;
  if (attribute == COMPUTE_CAPABILITY_MINOR) return *value = profile()->arch % 10, CUDA_SUCCESS;
  for (const struct attribute *own = profile()->attributes; own->number; own++)
    if (own->number == attribute) return *value = own->value, CUDA_SUCCESS;
  for (const struct attribute *base = base_attributes; base->number; base++)
    if (base->number == attribute) return *value = base->value, CUDA_SUCCESS;
  return CUDA_ERROR_INVALID_VALUE;
}

size_t cl_device_memory(void) { return profile()->memory; }

static void device_uuid(CUdevice device, unsigned char uuid[16]) {
  memcpy(uuid, "cudalink-emul", 13);
  uuid[13] = (unsigned char)profile()->arch;
  uuid[14] = 0;
  uuid[15] = (unsigned char)device;
}

EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal) {
  ENTER(cuDeviceGet);
  if (!device) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  NEED_DEVICE(ordinal);
  *device = ordinal;
  LEAVE(CUDA_SUCCESS, ",\"ordinal\":%d", ordinal);
}

EXPORT CUresult cuDeviceGetCount(int *count) {
  ENTER(cuDeviceGetCount);
  if (!count) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  *count = cl_config()->devices;
  LEAVE(CUDA_SUCCESS, ",\"count\":%d", *count);
}

EXPORT CUresult cuDeviceGetName(char *name, int length, CUdevice device) {
  ENTER(cuDeviceGetName);
  if (!name || length <= 0) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  NEED_DEVICE(device);
  snprintf(name, (size_t)length, "%s", profile()->name);
  LEAVE(CUDA_SUCCESS, "");
}

static CUresult uuid_of(Call *call, void *uuid, CUdevice device) {
  if (!uuid) return cl_leave(call, CUDA_ERROR_INVALID_VALUE, "%s", "");
  if (!cl_is_device(device)) return cl_leave(call, CUDA_ERROR_INVALID_DEVICE, "%s", "");
  device_uuid(device, uuid);
  return cl_leave(call, CUDA_SUCCESS, "%s", "");
}

EXPORT CUresult cuDeviceGetUuid(void *uuid, CUdevice device) {
  ENTER(cuDeviceGetUuid);
  return uuid_of(&call, uuid, device);
}

EXPORT CUresult cuDeviceGetUuid_v2(void *uuid, CUdevice device) {
  ENTER(cuDeviceGetUuid_v2);
  return uuid_of(&call, uuid, device);
}

EXPORT CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
  ENTER(cuDeviceGetAttribute);
  if (!value) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  NEED_DEVICE(device);
  LEAVE(cl_device_attribute(attribute, value), ",\"attribute\":%d", attribute);
}

EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
  ENTER(cuDeviceTotalMem_v2);
  if (!bytes) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  NEED_DEVICE(device);
  *bytes = profile()->memory;
  LEAVE(CUDA_SUCCESS, "");
}

EXPORT CUresult cuDeviceTotalMem(unsigned *bytes, CUdevice device) {
  ENTER(cuDeviceTotalMem);
  if (!bytes) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  NEED_DEVICE(device);
  *bytes = profile()->memory > UINT32_MAX ? UINT32_MAX : (unsigned)profile()->memory;
  LEAVE(CUDA_SUCCESS, "");
}

EXPORT CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice device) {
  ENTER(cuDeviceComputeCapability);
  if (!major || !minor) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  NEED_DEVICE(device);
  *major = profile()->arch / 10;
  *minor = profile()->arch % 10;
  LEAVE(CUDA_SUCCESS, "");
}

EXPORT CUresult cuDeviceGetProperties(int *properties, CUdevice device) {
  ENTER(cuDeviceGetProperties);
  if (!properties) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  NEED_DEVICE(device);
  for (int at = 0; at < 14; at++) cl_device_attribute(at + 1, &properties[at]);
  LEAVE(CUDA_SUCCESS, "");
}

EXPORT CUresult cuDeviceGetPCIBusId(char *text, int length, CUdevice device) {
  ENTER(cuDeviceGetPCIBusId);
  if (!text || length <= 0) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  NEED_DEVICE(device);
  snprintf(text, (size_t)length, "0000:%02x:00.0", device + 1);
  LEAVE(CUDA_SUCCESS, "");
}

EXPORT CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *text) {
  ENTER(cuDeviceGetByPCIBusId);
  unsigned domain, bus, slot;
  if (!device || !text || sscanf(text, "%x:%x:%x", &domain, &bus, &slot) != 3) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  NEED_DEVICE((int)bus - 1);
  *device = (int)bus - 1;
  LEAVE(CUDA_SUCCESS, "");
}

EXPORT CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer) {
  ENTER(cuDeviceCanAccessPeer);
  if (!can) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  NEED_DEVICE(device);
  NEED_DEVICE(peer);
  *can = device != peer;
  LEAVE(CUDA_SUCCESS, "");
}

EXPORT CUresult cuDeviceGetExecAffinitySupport(int *supported, int type, CUdevice device) {
  ENTER(cuDeviceGetExecAffinitySupport);
  (void)type;
  if (!supported) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  NEED_DEVICE(device);
  *supported = 0;
  LEAVE(CUDA_SUCCESS, "");
}

EXPORT CUresult cuDeviceGetDefaultMemPool(void **pool, CUdevice device) {
  ENTER(cuDeviceGetDefaultMemPool);
  if (!pool) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  NEED_DEVICE(device);
  *pool = (void *)(uintptr_t)(0x9001 + (unsigned)device);
  LEAVE(CUDA_SUCCESS, "");
}

EXPORT CUresult cuDeviceGetMemPool(void **pool, CUdevice device) {
  ENTER(cuDeviceGetMemPool);
  if (!pool) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  NEED_DEVICE(device);
  *pool = (void *)(uintptr_t)(0x9001 + (unsigned)device);
  LEAVE(CUDA_SUCCESS, "");
}
