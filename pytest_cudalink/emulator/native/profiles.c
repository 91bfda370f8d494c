/* The profiles of devices.toml, and which of them the configuration chooses. */
#include "profiles.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config.h"

#include "devices.inc" /* device_profiles, base_attributes */
#include "enums.inc"

enum { PAGE = 2 << 20, /* of a device */ RECORDED_MAX = 255 };

static const struct device_profile *chosen = &device_profiles[0];
static size_t memory;
/* A recorded device: its attributes count for more than those of devices.toml. */
static struct device_profile recorded;
static struct attribute recorded_attributes[RECORDED_MAX + 1];

/* The memory of this machine, or of the group of processes that may use less. */
static size_t machine_memory(void) {
  long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
  uint64_t most = pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size : UINT64_MAX;
  FILE *limit = fopen("/sys/fs/cgroup/memory.max", "r");
  unsigned long long group;
  if (limit) {
    if (fscanf(limit, "%llu", &group) == 1 && group < most) most = group;
    fclose(limit);
  }
  return (size_t)most;
}

/* Take a recorded device from the configuration: "name;memory;attribute=value,...;"; Python wrote it. */
static void take_recorded(const char *text) {
  static char name[96];
  char *end;
  recorded = *chosen;
  snprintf(name, sizeof name, "%.*s", (int)strcspn(text, ";"), text);
  text += strcspn(text, ";");
  recorded.name = name;
  recorded.memory = strtoull(*text ? text + 1 : text, &end, 10);
  for (size_t at = 0; at < RECORDED_MAX && *end == (at ? ',' : ';'); at++) {
    recorded_attributes[at].number = (int)strtol(end + 1, &end, 10);
    if (*end == '=') recorded_attributes[at].value = (int)strtol(end + 1, &end, 10);
  }
  chosen = &recorded;
}

static void choose(void) {
  const struct device_profile *end = device_profiles + sizeof device_profiles / sizeof *device_profiles;
  for (const struct device_profile *one = end; one-- > device_profiles;) /* the first one that fits */
    if (*cl_config()->device ? !strcmp(one->key, cl_config()->device) : one->arch == cl_config()->arch) chosen = one;
  if (*cl_config()->profile) take_recorded(cl_config()->profile);
  size_t half = machine_memory() / 2 / PAGE * PAGE;
  memory = cl_config()->device_memory ? cl_config()->device_memory : chosen->memory < half ? chosen->memory : half;
}

static const struct device_profile *profile(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, choose);
  return chosen;
}

int cl_profile_arch(void) { return profile()->arch; }
const char *cl_profile_name(void) { return profile()->name; }
size_t cl_device_memory(void) { return profile() ? memory : 0; }

/* The value of an attribute in a table that ends with number 0. */
static bool look_up(const struct attribute *table, int number, int *value) {
  for (; table->number; table++)
    if (table->number == number) {
      *value = table->value;
      return true;
    }
  return false;
}

bool cl_profile_attribute(int attribute, int *value) {
  const struct device_profile *own = profile();
  if (attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) *value = own->arch / 10;
  else if (attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR) *value = own->arch % 10;
  else
    return look_up(recorded_attributes, attribute, value) || look_up(own->attributes, attribute, value) ||
           look_up(base_attributes, attribute, value);
  return true;
}

int cl_profile_bus(int device) { return device + 1; }

void cl_profile_uuid(int device, unsigned char uuid[16]) {
  memcpy(uuid, "cudalink-emul", 13);
  uuid[0] += (unsigned char)device; /* as of real ones, the first digits are enough in CUDA_VISIBLE_DEVICES */
  uuid[13] = (unsigned char)profile()->arch;
  uuid[14] = 0;
  uuid[15] = (unsigned char)device;
}
