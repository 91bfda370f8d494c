/* The configuration, from the environment: read once. */
#ifndef CUDALINK_CONFIG_H
#define CUDALINK_CONFIG_H

#include <stdbool.h>

typedef struct {
  int version;          /* 13000 */
  char release[32];     /* "580.65.06" */
  int arch;             /* 90 */
  int devices;          /* how many */
  char nvjitlink[1024]; /* path of the libnvJitLink that links; empty: none was found */
  char nvjitlink_old[1024]; /* path of one for architectures that the other no longer knows */
  char toolchain[32];   /* what `cudalink toolchain add` needs for the missing one */
  char events[1024];    /* file that events are appended to; empty: none */
  bool lifetime;        /* whether memory is checked */
  int perturb;          /* what malloc writes over freed memory; 0: nothing */
  bool punish;          /* whether dead memory is written to all the same */
} Config;

enum { DEVICES_MAX = 64 };

const Config *cl_config(void);

#endif
