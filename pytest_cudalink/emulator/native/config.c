/* The configuration of the emulated driver. */
#include "config.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "abi.h"

static Config config;
static pthread_once_t config_once = PTHREAD_ONCE_INIT;

static void copy_env(const char *name, char *out, size_t size) {
  const char *value = getenv(name);
  snprintf(out, size, "%s", value ? value : "");
}

static int number_env(const char *name, int otherwise) {
  const char *value = getenv(name);
  return value && *value ? atoi(value) : otherwise;
}

static void read_config(void) {
  const char *version = getenv("CUDALINK_EMULATOR_VERSION");
  int major = 13, minor = 0;
  if (version) sscanf(version, "%d.%d", &major, &minor);
  config.version = major * 1000 + minor * 10;
  copy_env("CUDALINK_EMULATOR_RELEASE", config.release, sizeof config.release);
  if (!*config.release) snprintf(config.release, sizeof config.release, "%d.%d.0", major, minor);
  const char *arch = getenv("CUDALINK_EMULATOR_ARCH");
  config.arch = arch && !strncmp(arch, "sm_", 3) ? atoi(arch + 3) : 90;
  config.devices = number_env("CUDALINK_EMULATOR_DEVICES", 1);
  if (config.devices < 0 || config.devices > DEVICES_MAX) config.devices = config.devices < 0 ? 0 : DEVICES_MAX;
  copy_env("CUDALINK_EMULATOR_NVJITLINK", config.nvjitlink, sizeof config.nvjitlink);
  copy_env("CUDALINK_EMULATOR_NVJITLINK_OLD", config.nvjitlink_old, sizeof config.nvjitlink_old);
  /* there is no nvJitLink 12.7 to be had */
  snprintf(config.toolchain, sizeof config.toolchain, "%d.%d", major, major == 12 && minor == 7 ? 8 : minor);
  copy_env("CUDALINK_EMULATOR_EVENTS", config.events, sizeof config.events);
  config.perturb = number_env("MALLOC_PERTURB_", 0) & 0xff;
  const char *lifetime = getenv("CUDALINK_LIFETIME");
  config.lifetime = !lifetime || strcmp(lifetime, "off");
  config.punish = lifetime && !strcmp(lifetime, "punish");
}

const Config *cl_config(void) {
  pthread_once(&config_once, read_config);
  return &config;
}

EXPORT int cudalinkEmulatorVersion(void) { return cl_config()->version; }
