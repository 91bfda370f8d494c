/* The configuration of the emulated driver. */
#include "config.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "abi.h"

#include "architectures.inc" /* DEFAULT_ARCH */
#include "devices.inc"       /* device_profiles */
#include "releases.inc"      /* stand_ins */

/* NVML reads the same configuration as the driver, which reports what is wrong with it. */
#ifdef SILENT_CONFIG
#define REPORT(...) (void)snprintf(NULL, 0, __VA_ARGS__)
#else
#define REPORT(...) cl_say(__VA_ARGS__)
#endif

#ifndef SILENT_CONFIG
void cl_say(const char *format, ...) {
  char text[2048];
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (length < 0) return;
  for (unsigned char *c = (unsigned char *)text; *c; c++)
    if ((*c < 0x20 && (*c != '\n' || c[1])) || *c > 0x7e) *c = '?';
  fputs(text, stderr);
}
#endif

static Config config;
static pthread_once_t config_once = PTHREAD_ONCE_INIT;

/* A copy, which lives as long as the process: the program may change its environment. */
static const char *copy_env(const char *name) {
  const char *value = getenv(name);
  if (!value || !*value) return "";
  const char *copy = strdup(value);
  if (!copy) REPORT("cudalink: %s: no memory for its value, which is ignored\n", name);
  return copy ? copy : "";
}

static int number_env(const char *name, int otherwise) {
  const char *value = getenv(name);
  return value && *value ? atoi(value) : otherwise;
}

/* A number from 0 to a limit; one beyond it counts as the nearest that is not, and is reported. */
static int limited_env(const char *name, int otherwise, int limit) {
  int given = number_env(name, otherwise), taken = given < 0 ? 0 : given > limit ? limit : given;
  if (taken != given) REPORT("cudalink: %s is %d; expected 0 to %d; taking %d\n", name, given, limit, taken);
  return taken;
}

/* Seconds; anything else is reported. */
static unsigned seconds_env(const char *name, unsigned otherwise) {
  const char *value = getenv(name);
  if (!value || !*value) return otherwise;
  char *end;
  long given = strtol(value, &end, 10);
  if (!*end && given >= 1 && given <= LIMIT_LINK_SECONDS) return (unsigned)given;
  REPORT("cudalink: %s is '%.32s'; expected 1 to %d (seconds); taking %u\n", name, value, LIMIT_LINK_SECONDS,
         otherwise);
  return otherwise;
}

/* Bytes of memory; anything else is reported. */
static size_t memory_env(const char *name) {
  const char *value = getenv(name);
  if (!value || !*value) return 0;
  char *end;
  errno = 0;
  unsigned long long given = strtoull(value, &end, 10);
  if (!*end && !errno && *value != '-' && given >= LIMIT_LEAST_DEVICE_MEMORY) return (size_t)given;
  REPORT("cudalink: %s is '%.32s'; expected a number of bytes from %d on; taking the default\n", name, value,
         LIMIT_LEAST_DEVICE_MEMORY);
  return 0;
}

static void read_config(void) {
  const char *version = getenv("CUDALINK_EMULATOR_VERSION");
  int major = 13, minor = 0;
  if (version) sscanf(version, "%d.%d", &major, &minor);
  config.version = major * 1000 + minor * 10;
  const char *arch = getenv("CUDALINK_EMULATOR_ARCH");
  config.arch = arch && !strncmp(arch, "sm_", 3) ? atoi(arch + 3) : DEFAULT_ARCH;
  config.device = copy_env("CUDALINK_EMULATOR_DEVICE");
  bool known = !*config.device;
  for (size_t at = 0; at < sizeof device_profiles / sizeof *device_profiles && !known; at++) {
    known = !strcmp(device_profiles[at].key, config.device);
    if (known) config.arch = device_profiles[at].arch;
  }
  if (!known) {
    REPORT("cudalink: CUDALINK_EMULATOR_DEVICE is '%.32s', which is not a known device; taking sm_%d\n", config.device,
           config.arch);
    config.device = "";
  }
  config.profile = copy_env("CUDALINK_EMULATOR_PROFILE");
  config.device_memory = memory_env("CUDALINK_EMULATOR_DEVICE_MEMORY");
  config.devices = limited_env("CUDALINK_EMULATOR_DEVICES", 1, DEVICES_MAX);
  config.nvjitlink = copy_env("CUDALINK_EMULATOR_NVJITLINK");
  config.nvjitlink_old = copy_env("CUDALINK_EMULATOR_NVJITLINK_OLD");
  config.worker = copy_env("CUDALINK_EMULATOR_WORKER");
  config.link_timeout = seconds_env("CUDALINK_LINK_TIMEOUT", LIMIT_LINK_TIMEOUT);
  snprintf(config.toolchain, sizeof config.toolchain, "%d.%d", major, minor);
  for (const struct release *one = releases; one->version; one++) {
    if (one->version != config.version) continue;
    bool own = !strcmp(one->nvjitlink, config.toolchain);
    if (!own || !*config.nvjitlink) config.ptx_limit = one->ptx_isa;
    snprintf(config.toolchain, sizeof config.toolchain, "%s", one->nvjitlink);
  }
  config.events = copy_env("CUDALINK_EMULATOR_EVENTS");
  config.notes = copy_env("CUDALINK_EMULATOR_NOTES");
  const char *lifetime = getenv("CUDALINK_EMULATOR_LIFETIME");
  config.lifetime = !lifetime || strcmp(lifetime, "off");
  config.punish = lifetime && !strcmp(lifetime, "strict");
  config.fails = config.punish || (lifetime && !strcmp(lifetime, "fail"));
}

const Config *cl_config(void) {
  pthread_once(&config_once, read_config);
  return &config;
}

EXPORT int cudalinkEmulatorVersion(void) { return cl_config()->version; }
