/* What NVML says without a device: versions, processes by number, and which devices there are. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "nvml.h"
#include "profiles.h"

EXPORT Result nvmlSystemGetDriverVersion(char *out, unsigned size) {
  READY(out);
  return cl_nvml_text(out, size, cl_nvml_release());
}

/* The only question that needs no init (measured: test_uninitialized). */
EXPORT Result nvmlSystemGetNVMLVersion(char *out, unsigned size) {
  char text[64];
  if (!out) return INVALID_ARGUMENT;
  if (snprintf(text, sizeof text, "%d.%s", cl_config()->version / 1000, cl_nvml_release()) >= (int)sizeof text)
    return INSUFFICIENT_SIZE;
  return cl_nvml_text(out, size, text);
}

EXPORT Result nvmlSystemGetCudaDriverVersion(int *version) {
  READY(version);
  *version = cl_config()->version;
  return SUCCESS;
}

EXPORT Result nvmlSystemGetCudaDriverVersion_v2(int *version) { return nvmlSystemGetCudaDriverVersion(version); }

typedef struct {
  uint32_t version;
  char branch[80];
} DriverBranch;
_Static_assert(sizeof(DriverBranch) == 84, "nvmlSystemDriverBranchInfo_v1_t");

/* The branch is named after the release, as in r580_00. */
EXPORT Result nvmlSystemGetDriverBranch(DriverBranch *info, unsigned size) {
  char text[32];
  READY(info);
  if (!cl_nvml_is_version(info, sizeof *info, 1)) return ARGUMENT_VERSION_MISMATCH;
  snprintf(text, sizeof text, "r%d_00", atoi(cl_nvml_release()));
  return cl_nvml_text(info->branch, size < sizeof info->branch ? size : sizeof info->branch, text);
}

/* The first word of a process's command line, cut to the buffer as the real library cuts it. */
EXPORT Result nvmlSystemGetProcessName(unsigned pid, char *name, unsigned length) {
  char path[32], text[1024];
  READY(name && length);
  snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
  FILE *file = fopen(path, "re");
  if (!file) return NOT_FOUND;
  size_t read = fread(text, 1, sizeof text - 1, file);
  fclose(file);
  text[read] = '\0';
  snprintf(name, length, "%s", text);
  return SUCCESS;
}

EXPORT Result nvmlDeviceGetCount_v2(unsigned *count) {
  READY(count);
  *count = cl_nvml_devices();
  return SUCCESS;
}

EXPORT Result nvmlDeviceGetCount(unsigned *count) { return nvmlDeviceGetCount_v2(count); }

static Result give_device(unsigned index, Device *device) {
  if (cl_nvml_lost()) return GPU_IS_LOST;
  *device = cl_nvml_device(index);
  return SUCCESS;
}

EXPORT Result nvmlDeviceGetHandleByIndex_v2(unsigned index, Device *device) {
  READY(device && index < cl_nvml_devices());
  return give_device(index, device);
}

EXPORT Result nvmlDeviceGetHandleByIndex(unsigned index, Device *device) {
  return nvmlDeviceGetHandleByIndex_v2(index, device);
}

/* The device for which a function of identity writes a text. */
static Result by_text(void (*write)(unsigned index, char text[IDENTITY_SIZE]), const char *wanted, Device *device) {
  char text[IDENTITY_SIZE];
  READY(wanted && device);
  for (unsigned index = 0; index < cl_nvml_devices(); index++) {
    write(index, text);
    if (!strcmp(text, wanted)) return give_device(index, device);
  }
  return NOT_FOUND;
}

static void bare_uuid(unsigned index, char text[IDENTITY_SIZE]) {
  cl_nvml_uuid(index, text);
  memmove(text, text + strlen("GPU-"), strlen(text + strlen("GPU-")) + 1);
}

/* cuda.core's tests, which run on GPUs, find a device by the UUID that CUDA gives, without "GPU-". */
EXPORT Result nvmlDeviceGetHandleByUUID(const char *uuid, Device *device) {
  Result result = by_text(cl_nvml_uuid, uuid, device);
  return result == NOT_FOUND ? by_text(bare_uuid, uuid, device) : result;
}

EXPORT Result nvmlDeviceGetHandleBySerial(const char *serial, Device *device) {
  return by_text(cl_nvml_serial, serial, device);
}

enum { UUID_ASCII = 1, UUID_BINARY = 2 };

typedef struct {
  uint32_t version, type;
  union {
    char text[41];
    unsigned char bytes[16];
  } value;
} Uuid;
_Static_assert(sizeof(Uuid) == 52, "nvmlUUID_v1_t");

EXPORT Result nvmlDeviceGetHandleByUUIDV(const Uuid *uuid, Device *device) {
  char text[IDENTITY_SIZE];
  READY(uuid && device);
  if (!cl_nvml_is_version(uuid, sizeof *uuid, 1)) return ARGUMENT_VERSION_MISMATCH;
  if (uuid->type == UUID_ASCII) {
    snprintf(text, sizeof text, "%.*s", (int)sizeof uuid->value.text, uuid->value.text);
    return nvmlDeviceGetHandleByUUID(text, device);
  }
  if (uuid->type != UUID_BINARY) return INVALID_ARGUMENT;
  for (unsigned index = 0; index < cl_nvml_devices(); index++) {
    unsigned char bytes[UUID_SIZE];
    cl_profile_uuid((int)index, bytes);
    if (!memcmp(bytes, uuid->value.bytes, sizeof bytes)) return give_device(index, device);
  }
  return NOT_FOUND;
}

/* Domain and function may be missing, as in "01:00" (measured: test_identity). */
EXPORT Result nvmlDeviceGetHandleByPciBusId_v2(const char *id, Device *device) {
  unsigned domain, bus, slot;
  READY(id && device);
  if (sscanf(id, "%x:%x:%x", &domain, &bus, &slot) != 3) {
    domain = 0;
    if (sscanf(id, "%x:%x", &bus, &slot) != 2) return INVALID_ARGUMENT;
  }
  for (unsigned index = 0; index < cl_nvml_devices(); index++)
    if (!domain && !slot && bus == (unsigned)cl_profile_bus((int)index)) return give_device(index, device);
  return NOT_FOUND;
}

EXPORT Result nvmlDeviceGetHandleByPciBusId(const char *id, Device *device) {
  return nvmlDeviceGetHandleByPciBusId_v2(id, device);
}
