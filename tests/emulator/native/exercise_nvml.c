/* Calls every function of libnvidia-ml.so.1 that the file of names has, with arguments that are there and that are not.
 *
 *     exercise_nvml NAMES
 *
 * Each line of NAMES is the name of a function and its parameters: d the device, p a pointer, i a number. Prints
 * "done". */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_PARAMETERS = 8, ROOM = 16384 };

typedef int Function(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);

static void fail(const char *name, const char *problem) {
  fprintf(stderr, "%s: %s\n", name, problem);
  exit(1);
}

/* Every pointer leads to memory whose first word is `word`; without room, pointers are NULL. */
static int call(Function *function, const char *parameters, uint64_t device, uint64_t number, uint32_t word, int room) {
  static char buffers[MOST_PARAMETERS][ROOM];
  uint64_t given[MOST_PARAMETERS] = {0};
  for (size_t at = 0; parameters[at]; at++) {
    memset(buffers[at], 0, ROOM);
    memcpy(buffers[at], &word, sizeof word);
    given[at] = parameters[at] == 'd' ? device : parameters[at] == 'i' ? number : room ? (uintptr_t)buffers[at] : 0;
  }
  return function(given[0], given[1], given[2], given[3], given[4], given[5], given[6], given[7]);
}

int main(int count, char **arguments) {
  char name[128], parameters[MOST_PARAMETERS + 1];
  void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW), *device = NULL;
  FILE *names = count > 1 ? fopen(arguments[1], "r") : NULL;
  if (!library || !names) fail("start", dlerror());
  int (*init)(void), (*shutdown)(void), (*by_index)(unsigned, void **);
  *(void **)&init = dlsym(library, "nvmlInit_v2");
  *(void **)&shutdown = dlsym(library, "nvmlShutdown");
  *(void **)&by_index = dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
  while (fscanf(names, "%127s %8s", name, parameters) == 2) {
    Function *function;
    *(void **)&function = dlsym(library, name);
    if (!function) fail(name, "not exported");
    if (call(function, parameters, 1, 0, 0, 1) != 1) fail(name, "does not need init");
    if (init() || by_index(0, &device)) fail(name, "no device");
    for (uint64_t number = 0; number < 20; number++) call(function, parameters, (uintptr_t)device, number, 1, 1);
    for (uint32_t size = 8; size < 128; size += 4)
      for (uint32_t version = 1; version < 4; version++)
        call(function, parameters, (uintptr_t)device, 64, size | version << 24, 1);
    call(function, parameters, (uintptr_t)device, 0, 0, 0);
    if (*parameters == 'd' && call(function, parameters, (uintptr_t)name, 0, 0, 1) != 2) fail(name, "takes any device");
    if (*parameters == 'd' && call(function, parameters, 0, 0, 0, 1) != 2) fail(name, "takes no device");
    if (shutdown()) fail(name, "is shut down");
  }
  fclose(names);
  puts("done");
  return 0;
}
