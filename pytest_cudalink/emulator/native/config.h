/* The configuration, from the environment: read once. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "limits.inc"

typedef struct {
  int version;               /* 13000 */
  int arch;                  /* 90 */
  const char *device;        /* name of a device in devices.toml; empty: the first one of the architecture */
  const char *profile;       /* of a recorded device: "name;memory;attribute=value,...;"; empty: that of devices.toml */
  size_t device_memory;      /* bytes; 0: what the device has, as far as half of the machine's memory goes */
  int devices;               /* how many */
  const char *nvjitlink;     /* path of the libnvJitLink that links; empty: none was found */
  const char *nvjitlink_old; /* path of one for architectures that the other no longer knows */
  const char *worker;        /* path of the program that links; empty: not said */
  unsigned link_timeout;     /* seconds that one call of nvJitLink may take */
  char toolchain[32];        /* what `cudalink toolchain add` needs for the missing one */
  int ptx_limit;      /* newest PTX ISA, as 86, where nvJitLink is a newer release's or missing; 0: nvJitLink's own */
  const char *events; /* file that events are appended to; empty: none */
  const char *notes;  /* file of notes for the process that started this one; empty: none */
  bool lifetime;      /* whether memory is checked */
  bool punish;        /* whether dead memory is written to all the same */
  bool fails;         /* whether a violation fails the program */
} Config;

enum { DEVICES_MAX = LIMIT_DEVICES };

const Config *cl_config(void);

/* Writes a line to stderr. What a terminal or the log of a CI job would obey is a question mark: names of functions,
   paths and command lines come from the program. */
void cl_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
