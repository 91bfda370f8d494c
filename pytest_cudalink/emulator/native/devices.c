/* Initialization, the version, and what a device is. */
#include "devices.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"
#include "processes.h"
#include "visible.h"

API_WHEN(false, cuInit, (unsigned flags), (flags)) {
  static atomic_bool said;
  cl_event_uint(line, "flags", flags);
  CUresult result = cl_initialize(flags);
  if (!result) cl_join_run();
  bool twice = result == CUDA_ERROR_INVALID_DEVICE;
  if (!twice && (result != CUDA_ERROR_NO_DEVICE || !cl_config()->devices)) return result;
  const char *text = getenv("CUDA_VISIBLE_DEVICES");
  char note[192];
  snprintf(note, sizeof note, "CUDA_VISIBLE_DEVICES is '%.64s', which %s; expected numbers from 0 to %d, or UUIDs",
           text ? text : "", twice ? "names a device twice" : "begins with no device that is there",
           cl_config()->devices - 1);
  if (!atomic_exchange(&said, true)) cl_say("cudalink: %s: cuInit returns %d\n", note, result);
  return cl_noted(line, result, note);
}

API_WHEN(false, cuDriverGetVersion, (int *version), (version)) {
  if (!version) return CUDA_ERROR_INVALID_VALUE;
  *version = cl_config()->version;
  return CUDA_SUCCESS;
}

/* libnvJitLink 12.1 to 12.4 refuse to start on a driver without this table; links never call into it (measured:
   test_newest_ptx_of_a_version). */
static const unsigned char table_of_old_linkers[16] = {0xda, 0x91, 0x51, 0xd3, 0x3a, 0xe6, 0xcc, 0x41,
                                                       0xa5, 0xc0, 0x4f, 0x26, 0xd5, 0x33, 0xe3, 0x28};

/* Every CUDA runtime from 12.0 to 13.5 asks for this table, libcudart.so and libcudart_static.a alike, and libnvrtc and
   libnvJitLink do not (the bytes were looked for in the wheels of these releases). */
static const unsigned char table_of_runtimes[16] = {0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a,
                                                    0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9};

static CUresult refuse(void) {
  EventLine line;
  cl_event_begin(&line);
  cl_event_text(&line, "call", "a function of an undocumented table", sizeof line.text);
  cl_event_int(&line, "result", CUDA_ERROR_NOT_SUPPORTED);
  cl_event_end(&line);
  return CUDA_ERROR_NOT_SUPPORTED;
}

API_WHEN(false, cuGetExportTable, (const void **table, const void *uuid), (table, uuid)) {
  if (table) *table = NULL;
  if (!table || !uuid || !cl_initialized() || cl_are_zeros(uuid, 16)) return CUDA_ERROR_INVALID_VALUE;
  if (!memcmp(uuid, table_of_old_linkers, 16)) {
    static const void *const refusing[32] = {[0] = (void *)sizeof refusing, [1 ... 31] = refuse};
    *table = refusing;
    return cl_noted(line, CUDA_SUCCESS, "a table whose functions all answer 801");
  }
  /* the runtime remembers this answer for its process, and most of its functions repeat it */
  if (!memcmp(uuid, table_of_runtimes, 16))
    return cl_unsupported(line, "the CUDA runtime needs undocumented tables, which an emulated driver lacks");
  /* libnvrtc and libnvJitLink accept this answer */
  return cl_noted(line, CUDA_ERROR_NOT_SUPPORTED, "an emulated driver has no undocumented tables");
}

bool cl_is_device(CUdevice device) { return device >= 0 && device < cl_visible_devices(); }

bool cl_can_have_access(const Location *location) {
  if (location->type == CU_MEM_LOCATION_TYPE_DEVICE) return cl_is_device(location->id);
  return location->type == CU_MEM_LOCATION_TYPE_HOST || location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
}

CUresult cl_asked_of(EventLine *line, bool valid, CUdevice device) {
  if (valid && cl_is_device(device)) return CUDA_SUCCESS;
  if (valid) cl_event_int(line, "device", device);
  return valid ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_INVALID_VALUE;
}

CUresult cl_device_attribute(int attribute, int *value) {
  return cl_profile_attribute(attribute, value) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

size_t cl_device_has(int attribute) {
  int value = 0;
  cl_device_attribute(attribute, &value);
  return (size_t)value;
}

API(cuDeviceGet, (CUdevice *device, int ordinal), (device, ordinal)) {
  TRY(cl_asked_of(line, device, ordinal));
  *device = ordinal;
  cl_event_int(line, "ordinal", ordinal);
  return CUDA_SUCCESS;
}

API(cuDeviceGetCount, (int *count), (count)) {
  if (!count) return CUDA_ERROR_INVALID_VALUE;
  *count = cl_visible_devices();
  cl_event_int(line, "count", *count);
  return CUDA_SUCCESS;
}

API(cuDeviceGetName, (char *name, int length, CUdevice device), (name, length, device)) {
  /* before the buffer is looked at (measured: test_checks_come_in_the_order_of_a_real_driver) */
  TRY(cl_asked_of(line, true, device));
  if (!name || !length) return CUDA_ERROR_INVALID_VALUE;
  snprintf(name, length < 0 ? INT_MAX : (size_t)length, "%s", cl_profile_name());
  return CUDA_SUCCESS;
}

API(cuDeviceGetUuid_v2, (void *uuid, CUdevice device), (uuid, device)) {
  if (!uuid) return CUDA_ERROR_INVALID_VALUE;
  if (!cl_is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  cl_profile_uuid(cl_place_of_device(device), uuid);
  return CUDA_SUCCESS;
}

API(cuDeviceGetAttribute, (int *value, int attribute, CUdevice device), (value, attribute, device)) {
  TRY(cl_asked_of(line, value, device));
  cl_event_int(line, "attribute", attribute);
  /* as cuDeviceGetPCIBusId answers */
  if (attribute == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID) *value = cl_profile_bus(cl_place_of_device(device));
  else if (attribute == CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID) *value = 0;
  else {
    CUresult result = cl_device_attribute(attribute, value);
    bool numbers_board = attribute == CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD_GROUP_ID;
    if (!result && numbers_board) *value += device; /* each has its own (two H200s: edges/two_devices) */
    return result;
  }
  return CUDA_SUCCESS;
}

API(cuDeviceTotalMem_v2, (size_t *bytes, CUdevice device), (bytes, device)) {
  if (bytes) *bytes = 0; /* of an invalid device, too (H200) */
  TRY(cl_asked_of(line, bytes, device));
  *bytes = cl_device_memory();
  return CUDA_SUCCESS;
}

API(cuDeviceTotalMem, (unsigned *bytes, CUdevice device), (bytes, device)) {
  TRY(cl_asked_of(line, bytes, device));
  *bytes = cl_device_memory() > UINT32_MAX ? UINT32_MAX : (unsigned)cl_device_memory();
  return CUDA_SUCCESS;
}

API(cuDeviceComputeCapability, (int *major, int *minor, CUdevice device), (major, minor, device)) {
  TRY(cl_asked_of(line, major && minor, device));
  *major = cl_profile_arch() / 10;
  *minor = cl_profile_arch() % 10;
  return CUDA_SUCCESS;
}

API(cuDeviceGetProperties, (int *properties, CUdevice device), (properties, device)) {
  TRY(cl_asked_of(line, properties, device));
  for (int at = 0; at < 14; at++) cl_device_attribute(at + 1, &properties[at]);
  return CUDA_SUCCESS;
}

API(cuDeviceGetPCIBusId, (char *text, int length, CUdevice device), (text, length, device)) {
  /* before the buffer is looked at (measured: test_checks_come_in_the_order_of_a_real_driver) */
  TRY(cl_asked_of(line, true, device));
  char whole[32];
  int size = snprintf(whole, sizeof whole, "0000:%02x:00.0", (unsigned)cl_profile_bus(cl_place_of_device(device))) + 1;
  if (!text || length <= 0) return CUDA_ERROR_INVALID_VALUE;
  snprintf(text, (size_t)length, "%s", whole); /* what fits, with an error, too (two H200s: edges/two_devices) */
  return length < size ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

API(cuDeviceGetByPCIBusId, (CUdevice *device, const char *text), (device, text)) {
  unsigned domain, bus, slot, function = 0;
  char more; /* what the text may not go on with */
  if (!device || !text) return CUDA_ERROR_INVALID_VALUE;
  int whole = sscanf(text, "%x:%x:%x.%x%c", &domain, &bus, &slot, &function, &more);
  if (whole > 4 || (whole < 3 && sscanf(text, "%x:%x.%x%c", &bus, &slot, &function, &more) != 3))
    return CUDA_ERROR_INVALID_VALUE;
  CUdevice found = function ? -1 : cl_device_at_place((int)bus - 1); /* (two H200s: edges/two_devices) */
  TRY(cl_asked_of(line, true, found));
  *device = found;
  return CUDA_SUCCESS;
}

API(cuDeviceCanAccessPeer, (int *can, CUdevice device, CUdevice peer), (can, device, peer)) {
  TRY(cl_asked_of(line, can, device));
  TRY(cl_asked_of(line, true, peer));
  *can = device != peer;
  return CUDA_SUCCESS;
}

API(cuDeviceGetLuid, (char *luid, unsigned *node_mask, CUdevice device), (luid, node_mask, device)) {
  TRY(cl_asked_of(line, luid && node_mask, device));
  return cl_noted(line, CUDA_ERROR_NOT_SUPPORTED, "devices have a locally unique identifier on Windows only");
}

API(cuDeviceGetExecAffinitySupport, (int *supported, int type, CUdevice device), (supported, type, device)) {
  TRY(cl_asked_of(line, supported, device));
  *supported = 0;
  return CUDA_SUCCESS;
}
