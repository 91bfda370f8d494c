/* Calls of libnvJitLink that are watched for what it prints. */
#include "watched.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "loaded_object.h"

#define EXPORT __attribute__((visibility("default")))

static const char MARK[] = "fatal   :";

static _Thread_local bool watching;
static _Thread_local char fatal_line[512];

#ifdef __GLIBC__ /* elsewhere no stream can stand in, and nvJitLink has no library there */

/* Stands in for stderr, in nvJitLink alone and for good. NVRTC keeps stderr while it compiles, and closes what it kept
   if that is not stderr any more: so stderr itself must not change while another thread compiles. */
static FILE *forwarder;

/* The stream is unbuffered, so that each piece arrives here in the thread that printed it. nvJitLink prints a line in
   one piece (13.0 and 13.2). */
static ssize_t forward(void *context, const char *text, size_t size) {
  (void)context;
  const char *found = watching ? memmem(text, size, MARK, sizeof MARK - 1) : NULL;
  if (found) {
    size_t length = size - (size_t)(found - text);
    const char *end = memchr(found, '\n', length);
    if (end) length = (size_t)(end - found);
    if (length >= sizeof fatal_line) length = sizeof fatal_line - 1;
    memcpy(fatal_line, found, length);
    fatal_line[length] = 0;
  }
  for (size_t done = 0; done < size;) {
    ssize_t written = write(STDERR_FILENO, text + done, size - done);
    if (written < 0 && errno != EINTR) break; /* stderr is closed: nothing can be printed */
    if (written > 0) done += (size_t)written;
  }
  return (ssize_t)size;
}

__attribute__((constructor)) static void open_forwarder(void) {
  forwarder = fopencookie(NULL, "w", (cookie_io_functions_t){.write = forward});
  if (forwarder) setvbuf(forwarder, NULL, _IONBF, 0);
}

typedef struct {
  uintptr_t base;
  bool found;
} Wanted;

static void redirect(void *context, const LoadedObject *object, const char *name, uintptr_t *slot) {
  Wanted *wanted = context;
  uintptr_t ours = (uintptr_t)&forwarder;
  if (!strcmp(name, "stderr") && (*slot == ours || cl_replace_word(object, slot, ours))) wanted->found = true;
}

/* Runs under a lock of the loader, one at a time, as other code does that replaces words. */
static int redirect_in(struct dl_phdr_info *info, size_t size, void *context) {
  (void)size;
  Wanted *wanted = context;
  LoadedObject object;
  if (info->dlpi_addr != wanted->base || !cl_read_object(info, &object)) return 0;
  cl_visit_slots(&object, redirect, wanted);
  return 1;
}

EXPORT int cudalinkWatch(void *library) {
  struct link_map *map = NULL;
  if (!forwarder || dlinfo(library, RTLD_DI_LINKMAP, (void *)&map)) return 0;
  Wanted wanted = {.base = map->l_addr};
  dl_iterate_phdr(redirect_in, &wanted);
  return wanted.found;
}

#else
EXPORT int cudalinkWatch(void *library) {
  (void)library;
  return 0;
}
#endif

static void begin(void) {
  fatal_line[0] = 0;
  watching = true;
}

static int end(int result) {
  watching = false;
  return fatal_line[0] ? result | PRINTED_FATAL : result;
}

EXPORT int cudalinkAddData(AddData *add, void *handle, int type, const void *data, size_t size, const char *name) {
  begin();
  return end(add(handle, type, data, size, name));
}

EXPORT int cudalinkComplete(Complete *complete, void *handle) {
  begin();
  return end(complete(handle));
}

EXPORT int cudalinkCreate(Create *create, void **handle, unsigned count, const char **options) {
  void *made = NULL;
  int result = create(&made, count, options);
  if (!result) *handle = made;
  return result;
}

EXPORT int cudalinkDestroy(Destroy *destroy, void **handle) {
  void *taken = *handle;
  *handle = NULL;
  return taken ? destroy(&taken) : 0;
}

EXPORT const char *cudalinkFatalLine(void) { return fatal_line; }
