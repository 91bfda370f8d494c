/* The options of just-in-time compilation, which links and loading share. */
#pragma once

#include <time.h>

#include "abi.h"

enum { OPTION_COUNT = CU_JIT_SPLIT_COMPILE + 1 }; /* the driver of 13.0 knows no later one */

const char *cl_option_name(int key); /* "optionValues" for one that a thread of the caller wrote meanwhile */
/* Whether a call can have so many options, some of them repeated: an address in place of their number would be counted
   up to. */
enum { MOST_OPTIONS = 1024 };
bool cl_can_have_options(unsigned count);

/* The options of one link. */
typedef struct {
  int arch;
  char suffix;       /* 'a', 'f' or 0 */
  int max_registers; /* 0: not given */
  int level;         /* -1: not given */
  bool debug, line_info, verbose;
  char *extra; /* further options, each with its NUL; owned */
  size_t extra_size, extra_room;
} LinkOptions;

/* A log buffer of the caller. */
typedef struct {
  char *buffer; /* NULL: none was given */
  uint64_t capacity;
  unsigned slot; /* index of the option value that gets the size */
} LogBuffer;

typedef struct {
  LinkOptions link;
  bool without_code; /* a target that no compiler of this driver knows */
  int wall_time;     /* index of the option value that gets it, or -1 */
  int threads;       /* likewise: the threads that a block was compiled for */
  uint64_t most_threads;
  LogBuffer info, error;
} JitOptions;

/* What links and what loads do not refuse alike. */
typedef enum { FOR_LINK, FOR_LOAD } OptionUse;

/* Those of the device, before any is read. */
JitOptions cl_device_options(void);
/* Reads the caller's; what is in `options` must be freed also when they are refused. */
CUresult cl_read_options(JitOptions *options, OptionUse use, unsigned count, const int *keys, const uint64_t *values);
void cl_options_free(LinkOptions *options);
bool cl_options_equal(const LinkOptions *options, const LinkOptions *others);
/* How much of a log of some length a buffer shows, without its NUL; *size is what is reported. */
size_t cl_log_shown(uint64_t capacity, size_t length, uint32_t *size);
/* The milliseconds since then, as the bits of a float. */
uint32_t cl_wall_time(const struct timespec *since);
