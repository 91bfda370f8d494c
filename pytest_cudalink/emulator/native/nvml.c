/* libnvidia-ml.so.1, next to the emulated driver: its state, what the emulated device is, and what each call checks. */
#include "nvml.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "locks.h"
#include "profiles.h"

#include "errors.inc"     /* nvml_errors */
#include "nvml_cards.inc" /* cards */

STATIC_LOCK(lock);
static unsigned references;

static Result init(void) {
  HOLD(lock);
  references++;
  return SUCCESS;
}

EXPORT Result nvmlInit_v2(void) { return init(); }
EXPORT Result nvmlInit(void) { return init(); }
EXPORT Result nvmlInitWithFlags(unsigned flags) {
  (void)flags;
  return init();
}

EXPORT Result nvmlShutdown(void) {
  HOLD(lock);
  bool counted = references > 0;
  if (counted) references--;
  return counted ? SUCCESS : UNINITIALIZED;
}

/* How often init went without its shutdown. */
EXPORT unsigned cudalinkNvmlReferences(void) {
  HOLD(lock);
  return references;
}

EXPORT const char *nvmlErrorString(Result code) {
  for (size_t at = 0; at < sizeof nvml_errors / sizeof *nvml_errors; at++)
    if (nvml_errors[at].code == code) return nvml_errors[at].text;
  return "Unknown Error";
}

const char *cl_nvml_release(void) {
  const char *text = getenv("CUDALINK_EMULATOR_RELEASE");
  return text && *text ? text : "0.0.0";
}

unsigned cl_nvml_devices(void) { return (unsigned)cl_config()->devices; }

int cl_nvml_attribute(int number) {
  int value = 0;
  cl_profile_attribute(number, &value);
  return value;
}

const Card *cl_nvml_card(void) {
  const Card *card = cards;
  while (strncmp(cl_profile_name(), card->name, strlen(card->name)) != 0)
    card++; /* the name of the last one is empty */
  return card;
}

unsigned cl_nvml_index(Device device) { return (unsigned)(uintptr_t)device - 1; }
Device cl_nvml_device(unsigned index) { return (Device)(uintptr_t)(index + 1); }

/* Whether the device is lost: as the libcuda of this process has it, else as one would read it from the environment. */
bool cl_nvml_lost(void) {
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

/* Whether a call that needs init may go on, with all of its arguments. */
Result cl_nvml_ready(bool arguments) {
  if (cudalinkNvmlReferences() == 0) return UNINITIALIZED;
  return arguments ? SUCCESS : INVALID_ARGUMENT;
}

Result cl_nvml_check(Device device, bool arguments) {
  READY(arguments && device && (uintptr_t)device <= cl_nvml_devices());
  return cl_nvml_lost() ? GPU_IS_LOST : SUCCESS;
}

Result cl_nvml_give(Device device, unsigned *out, unsigned value) {
  CHECK(device, out);
  *out = value;
  return SUCCESS;
}

Result cl_nvml_text(char *out, unsigned size, const char *text) {
  if (strlen(text) + 1 > size) return INSUFFICIENT_SIZE;
  strcpy(out, text);
  return SUCCESS;
}

bool cl_nvml_is_version(const void *structure, size_t size, unsigned number) {
  return *(const uint32_t *)structure == ((uint32_t)size | number << 24);
}
