/* libnvidia-ml.so.1, next to the emulated driver: release, versions, devices, memory. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "profiles.h"

#include "errors.inc"

#define EXPORT __attribute__((visibility("default")))

typedef int Result;
enum {
  SUCCESS = 0,
  UNINITIALIZED = 1,
  INVALID_ARGUMENT = 2,
  INSUFFICIENT_SIZE = 7,
  GPU_IS_LOST = 15,
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned references;

static Result init(void) {
  pthread_mutex_lock(&lock);
  references++;
  pthread_mutex_unlock(&lock);
  return SUCCESS;
}

EXPORT Result nvmlInit_v2(void) { return init(); }
EXPORT Result nvmlInit(void) { return init(); }
EXPORT Result nvmlInitWithFlags(unsigned flags) {
  (void)flags;
  return init();
}

EXPORT Result nvmlShutdown(void) {
  pthread_mutex_lock(&lock);
  bool counted = references > 0;
  if (counted) references--;
  pthread_mutex_unlock(&lock);
  return counted ? SUCCESS : UNINITIALIZED;
}

/* How often init went without its shutdown. */
EXPORT unsigned cudalinkNvmlReferences(void) {
  pthread_mutex_lock(&lock);
  unsigned count = references;
  pthread_mutex_unlock(&lock);
  return count;
}

static bool ready(void) {
  pthread_mutex_lock(&lock);
  bool initialized = references > 0;
  pthread_mutex_unlock(&lock);
  return initialized;
}

static int driver_version(void) { return cl_config()->version; }

static const char *release(void) {
  const char *text = getenv("CUDALINK_EMULATOR_RELEASE");
  return text && *text ? text : "0.0.0";
}

static unsigned device_count(void) { return (unsigned)cl_config()->devices; }

/* Whether the device is lost: as the libcuda of this process has it, else as one would read it from the environment. */
static bool lost(void) {
  void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (driver) {
    int (*device_lost)(void);
    *(void **)&device_lost = dlsym(driver, "cudalinkDeviceLost");
    bool answer = device_lost && device_lost();
    dlclose(driver);
    return answer;
  }
  const char *faults = getenv("CUDALINK_EMULATOR_FAULTS"), *found = faults ? strstr(faults, "lost=") : NULL;
  return found && atoi(found + strlen("lost="));
}

static Result give(char *out, unsigned size, const char *text) {
  if (!out) return INVALID_ARGUMENT;
  if (strlen(text) + 1 > size) return INSUFFICIENT_SIZE;
  strcpy(out, text);
  return SUCCESS;
}

EXPORT const char *nvmlErrorString(Result code) {
  for (size_t at = 0; at < sizeof nvml_errors / sizeof *nvml_errors; at++)
    if (nvml_errors[at].code == code) return nvml_errors[at].text;
  return "Unknown Error";
}

EXPORT Result nvmlSystemGetDriverVersion(char *out, unsigned size) {
  return ready() ? give(out, size, release()) : UNINITIALIZED;
}

/* The only question that needs no init (measured on 580.159.04). */
EXPORT Result nvmlSystemGetNVMLVersion(char *out, unsigned size) {
  char text[64];
  if (snprintf(text, sizeof text, "%d.%s", driver_version() / 1000, release()) >= (int)sizeof text)
    return INSUFFICIENT_SIZE;
  return give(out, size, text);
}

EXPORT Result nvmlSystemGetCudaDriverVersion(int *version) {
  if (!ready()) return UNINITIALIZED;
  if (!version) return INVALID_ARGUMENT;
  *version = driver_version();
  return SUCCESS;
}

EXPORT Result nvmlSystemGetCudaDriverVersion_v2(int *version) { return nvmlSystemGetCudaDriverVersion(version); }

EXPORT Result nvmlDeviceGetCount_v2(unsigned *count) {
  if (!ready()) return UNINITIALIZED;
  if (!count) return INVALID_ARGUMENT;
  *count = device_count();
  return SUCCESS;
}

EXPORT Result nvmlDeviceGetCount(unsigned *count) { return nvmlDeviceGetCount_v2(count); }

/* Handles are the index plus one, so that NULL is not a handle. */
EXPORT Result nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
  if (!ready()) return UNINITIALIZED;
  if (!device || index >= device_count()) return INVALID_ARGUMENT;
  if (lost()) return GPU_IS_LOST;
  *device = (void *)(uintptr_t)(index + 1);
  return SUCCESS;
}

EXPORT Result nvmlDeviceGetHandleByIndex(unsigned index, void **device) {
  return nvmlDeviceGetHandleByIndex_v2(index, device);
}

static Result check(const void *device) {
  if (!ready()) return UNINITIALIZED;
  if (lost()) return GPU_IS_LOST;
  return device && (uintptr_t)device <= device_count() ? SUCCESS : INVALID_ARGUMENT;
}

EXPORT Result nvmlDeviceGetName(void *device, char *out, unsigned size) {
  Result result = check(device);
  return result ? result : give(out, size, cl_profile_name());
}

EXPORT Result nvmlDeviceGetUUID(void *device, char *out, unsigned size) {
  char text[64];
  Result result = check(device);
  snprintf(text, sizeof text, "GPU-6375646c-696e-6b2d-656d-756c00%02x%02x%02x", cl_profile_arch(), 0,
           (unsigned)(uintptr_t)device - 1);
  return result ? result : give(out, size, text);
}

EXPORT Result nvmlDeviceGetIndex(void *device, unsigned *index) {
  Result result = check(device);
  if (result || !index) return result ? result : INVALID_ARGUMENT;
  *index = (unsigned)(uintptr_t)device - 1;
  return SUCCESS;
}

EXPORT Result nvmlDeviceGetMemoryInfo(void *device, uint64_t *memory) {
  Result result = check(device);
  if (result || !memory) return result ? result : INVALID_ARGUMENT;
  memory[0] = cl_device_memory(); /* total, free, used */
  memory[1] = cl_device_memory();
  memory[2] = 0;
  return SUCCESS;
}

EXPORT Result nvmlDeviceGetMemoryInfo_v2(void *device, void *info) {
  struct {
    unsigned version;
    uint64_t total, reserved, free, used;
  } *memory = info;
  Result result = check(device);
  if (result || !memory) return result ? result : INVALID_ARGUMENT;
  memory->total = cl_device_memory();
  memory->free = cl_device_memory();
  memory->reserved = 0;
  memory->used = 0;
  return SUCCESS;
}

EXPORT Result nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor) {
  Result result = check(device);
  if (result || !major || !minor) return result ? result : INVALID_ARGUMENT;
  *major = cl_profile_arch() / 10;
  *minor = cl_profile_arch() % 10;
  return SUCCESS;
}
