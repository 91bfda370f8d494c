/* Settings of core dumps: of the process, and of a context. No dump is ever made, as no kernel fails. */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "calls.h"
#include "contexts.h"
#include "handles.h"
#include "locks.h"

enum { PATH_ROOM = 1024 };
enum { LIGHTWEIGHT_FLAGS = 0x0f, KNOWN_FLAGS = 0x3f }; /* of driver 580; cuda.h's of later ones have more */

typedef struct {
  bool numbers[CU_COREDUMP_MAX]; /* those that are true or false */
  char file[PATH_ROOM], pipe[PATH_ROOM];
  unsigned flags;
} Settings;

typedef struct {
  Object head;
  Settings settings;
} OfContext;

static Settings global;
static bool global_started;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all settings */
static Objects of_contexts = {.lock = &lock};

void cl_end_coredumps(const Context *context) { cl_objects_end(&of_contexts, context); }
OPEN_IN_CHILDREN(lock);

/* The settings of the process, with their defaults at first. Under the lock. */
static Settings *of_process(void) {
  char host[256] = "localhost";
  if (global_started) return &global;
  gethostname(host, sizeof host - 1);
  global.numbers[CU_COREDUMP_TRIGGER_HOST] = true;
  snprintf(global.file, sizeof global.file, "core.cuda.%s.%d", host, (int)getpid());
  snprintf(global.pipe, sizeof global.pipe, "corepipe.cuda.%s.%d", host, (int)getpid());
  global_started = true;
  return &global;
}

/* Those of a context begin as those of the process. Under the lock; NULL if memory is out. */
static Settings *of_context(Context *context) {
  EACH (OfContext, one, &of_contexts)
    if (one->head.context == context) return &one->settings;
  OfContext *made = cl_object_make(sizeof *made, NO_HANDLE, context, &of_contexts);
  if (!made) return NULL;
  made->settings = *of_process();
  return &made->settings;
}

static char *path_of(Settings *settings, int setting) {
  return setting == CU_COREDUMP_FILE ? settings->file : setting == CU_COREDUMP_PIPE ? settings->pipe : NULL;
}

/* Where a setting is, and its size; of a path the size is that of its text with the NUL. */
static void *place(Settings *settings, int setting, size_t *size) {
  char *path = path_of(settings, setting);
  *size = path                                      ? strlen(path) + 1
          : setting == CU_COREDUMP_GENERATION_FLAGS ? sizeof settings->flags
                                                    : sizeof *settings->numbers;
  return path ? path : setting == CU_COREDUMP_GENERATION_FLAGS ? (void *)&settings->flags : &settings->numbers[setting];
}

static CUresult read_setting(Settings *settings, int setting, void *value, size_t *size) {
  size_t needed;
  const void *from = place(settings, setting, &needed);
  bool path = path_of(settings, setting);
  if (value && !path && *size != needed) return CUDA_ERROR_INVALID_VALUE;
  if (value) memcpy(value, from, *size < needed ? *size : needed); /* a path is cut off where the buffer ends */
  *size = path && !value ? PATH_ROOM : needed;
  return CUDA_SUCCESS;
}

static CUresult write_setting(Settings *settings, int setting, const void *value, size_t size) {
  size_t needed;
  void *to = place(settings, setting, &needed);
  if (path_of(settings, setting)) {
    if (!size || size > PATH_ROOM) return CUDA_ERROR_INVALID_VALUE;
    snprintf(to, PATH_ROOM, "%.*s", (int)size, (const char *)value);
    return CUDA_SUCCESS;
  }
  if (size != needed) return CUDA_ERROR_INVALID_VALUE;
  if (setting != CU_COREDUMP_GENERATION_FLAGS) {
    settings->numbers[setting] = *(const unsigned char *)value;
    if (setting == CU_COREDUMP_LIGHTWEIGHT) settings->flags = settings->numbers[setting] ? LIGHTWEIGHT_FLAGS : 0;
    return CUDA_SUCCESS;
  }
  unsigned flags;
  memcpy(&flags, value, sizeof flags);
  if (flags & ~(unsigned)KNOWN_FLAGS) return CUDA_ERROR_INVALID_VALUE;
  settings->flags = flags;
  return CUDA_SUCCESS;
}

typedef struct {
  int setting;
  void *value;
  size_t *size;
  bool whole_process, write;
} Access;

static CUresult use(const Access *access) {
  CUresult result = CUDA_SUCCESS;
  bool known = access->setting >= CU_COREDUMP_ENABLE_ON_EXCEPTION && access->setting < CU_COREDUMP_MAX;
  if (!access->size || !known || (access->write && !access->value)) return CUDA_ERROR_INVALID_VALUE;
  Context *context = access->whole_process ? NULL : cl_context(&result);
  if (result) return result;
  /* a user triggers a dump of the whole process, through one pipe */
  bool of_context_too = access->setting != CU_COREDUMP_ENABLE_USER_TRIGGER && access->setting != CU_COREDUMP_PIPE;
  if (!access->whole_process && !of_context_too) return CUDA_ERROR_INVALID_VALUE;
  HOLD(lock);
  Settings *settings = context ? of_context(context) : of_process();
  if (!settings) result = CUDA_ERROR_OUT_OF_MEMORY;
  else if (access->write) result = write_setting(settings, access->setting, access->value, *access->size);
  else result = read_setting(settings, access->setting, access->value, access->size);
  return result;
}

EXPORTED(cuCoredumpGetAttribute, (int setting, void *value, size_t *size),
         use(&(Access){setting, value, size, false, false}))
EXPORTED(cuCoredumpSetAttribute, (int setting, void *value, size_t *size),
         use(&(Access){setting, value, size, false, true}))
/* Those of the process are there before cuInit, too. */
EXPORTED_ANY_TIME(cuCoredumpGetAttributeGlobal, (int setting, void *value, size_t *size),
                  use(&(Access){setting, value, size, true, false}))
EXPORTED_ANY_TIME(cuCoredumpSetAttributeGlobal, (int setting, void *value, size_t *size),
                  use(&(Access){setting, value, size, true, true}))
