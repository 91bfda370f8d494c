/* One link through libnvJitLink: the library is found at the first link, and its answers are translated into
   the driver's words. */
#define _GNU_SOURCE
#include "jitlink.h"

#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "events.h"

#include "architectures.inc" /* FIRST_ARCH_OF_13 */
#include "releases.inc"      /* LAST_OF_12 */

enum { NVJ_PTX_COMPILE = 4, NVJ_INTERNAL = 6, NVJ_LTO_NOT_ENABLED = 18 };
enum { INPUT_CUBIN = 1, INPUT_PTX, INPUT_LTOIR, INPUT_FATBIN, INPUT_OBJECT, INPUT_LIBRARY };

typedef void *Handle;

typedef struct {
  pthread_mutex_t lock;
  bool tried;
  int (*create)(Handle *, uint32_t, const char **);
  int (*destroy)(Handle *);
  int (*add)(Handle, int, const void *, size_t, const char *);
  int (*complete)(Handle);
  int (*cubin_size)(Handle, size_t *);
  int (*cubin)(Handle, void *);
  int (*error_size)(Handle, size_t *);
  int (*error)(Handle, char *);
  int (*info_size)(Handle, size_t *);
  int (*info)(Handle, char *);
} Library;

struct Linker {
  Library *library;
  Handle handle;
  size_t error_seen, info_seen;
};

/* The library of the emulated version, and one for architectures that it no longer knows. */
static Library current = {.lock = PTHREAD_MUTEX_INITIALIZER}, old = {.lock = PTHREAD_MUTEX_INITIALIZER};

static pthread_mutex_t marks_lock = PTHREAD_MUTEX_INITIALIZER;
static int threads_inside;

/* A thread may hold a lock while another one forks; in the child no thread would release it. */
static void unlock_in_child(void) {
  pthread_mutex_init(&current.lock, NULL);
  pthread_mutex_init(&old.lock, NULL);
  pthread_mutex_init(&marks_lock, NULL);
}

__attribute__((constructor)) static void watch_forks(void) { pthread_atfork(NULL, NULL, unlock_in_child); }

/* 12.0 to 12.2 export their functions under names with a version only. */
static void *function(void *library, const char *name) {
  char versioned[96];
  void *found = dlsym(library, name);
  for (int minor = 2; !found && minor >= 0; minor--) {
    snprintf(versioned, sizeof versioned, "__%s_12_%d", name, minor);
    found = dlsym(library, versioned);
  }
  return found;
}

enum { PATH_ROOM = 512 }; /* of a path in an event */

static bool load(Library *library, const char *path) {
  pthread_mutex_lock(&library->lock);
  if (!library->tried) {
    library->tried = true;
    /* local: what the application loads under the same name stays its own */
    void *opened = *path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (opened) {
      *(void **)&library->destroy = function(opened, "nvJitLinkDestroy");
      *(void **)&library->add = function(opened, "nvJitLinkAddData");
      *(void **)&library->complete = function(opened, "nvJitLinkComplete");
      *(void **)&library->cubin_size = function(opened, "nvJitLinkGetLinkedCubinSize");
      *(void **)&library->cubin = function(opened, "nvJitLinkGetLinkedCubin");
      *(void **)&library->error_size = function(opened, "nvJitLinkGetErrorLogSize");
      *(void **)&library->error = function(opened, "nvJitLinkGetErrorLog");
      *(void **)&library->info_size = function(opened, "nvJitLinkGetInfoLogSize");
      *(void **)&library->info = function(opened, "nvJitLinkGetInfoLog");
      *(void **)&library->create = function(opened, "nvJitLinkCreate");
    }
    EventLine line;
    cl_event_begin(&line);
    cl_event_text(&line, "linker", opened ? path : *path ? "cannot be opened" : "none was found", PATH_ROOM);
    cl_event_bool(&line, "loaded", library->create != NULL);
    cl_event_end(&line);
  }
  bool ok = library->create != NULL;
  pthread_mutex_unlock(&library->lock);
  return ok;
}

/* Memory that the application frees is marked (MALLOC_PERTURB_); what nvJitLink frees need not be, and costs a tenth of
   a link. mallopt is the process's: with the last thread inside the marks come back. */
static void within_nvjitlink(bool enter) {
#ifdef M_PERTURB
  int mark = cl_config()->perturb;
  if (!mark) return;
  pthread_mutex_lock(&marks_lock);
  threads_inside += enter ? 1 : -1;
  if (enter ? threads_inside == 1 : threads_inside == 0) mallopt(M_PERTURB, enter ? 0 : mark);
  pthread_mutex_unlock(&marks_lock);
#else
  (void)enter;
#endif
}

static Library *library_for(int arch) {
  const Config *config = cl_config();
  if (arch < FIRST_ARCH_OF_13 && config->version >= 13000) return load(&old, config->nvjitlink_old) ? &old : NULL;
  return load(&current, config->nvjitlink) ? &current : NULL;
}

void cl_text_free(LinkText *text) {
  free(text->error);
  free(text->info);
  *text = (LinkText){0};
}

/* The new text in one of nvJitLink's logs, without the lines that a driver does not write; NULL if there is no text. */
static char *news(Linker *linker, bool errors) {
  size_t size = 0, *seen = errors ? &linker->error_seen : &linker->info_seen;
  int failed =
      errors ? linker->library->error_size(linker->handle, &size) : linker->library->info_size(linker->handle, &size);
  if (failed || size <= *seen + 1) return NULL;
  char *log = calloc(1, size + 1), *out = calloc(1, size + 1);
  if (log && out &&
      !(errors ? linker->library->error(linker->handle, log) : linker->library->info(linker->handle, log))) {
    size_t length = strlen(log), to = 0;
    for (size_t at = *seen < length ? *seen : length; at < length;) {
      size_t end = at;
      while (end < length && log[end] != '\n') end++;
      bool own = end == at || !strncmp(log + at, "ERROR ", 6) || !strncmp(log + at, "Architectures prior to", 22);
      if (!own) {
        if (to) out[to++] = '\n';
        memcpy(out + to, log + at, end - at);
        to += end - at;
      }
      at = end + 1;
    }
    *seen = length;
    if (to) {
      free(log);
      return out;
    }
  }
  free(log);
  free(out);
  return NULL;
}

static void read_text(Linker *linker, LinkText *text) {
  text->error = news(linker, true);
  text->info = news(linker, false);
}

CUresult cl_linker_open(Linker **out, const LinkOptions *options, LinkText *text) {
  memset(text, 0, sizeof *text);
  Library *library = library_for(options->arch);
  if (!library) {
    const Config *config = cl_config();
    const char *release = options->arch < FIRST_ARCH_OF_13 && config->version >= 13000 ? LAST_OF_12 : config->toolchain;
    if (asprintf(&text->error,
                 "error   : the emulated driver links through nvJitLink %s, which was not found; get it with: "
                 "cudalink toolchain add %s",
                 release, release) < 0)
      text->error = NULL;
    return CUDA_ERROR_JIT_COMPILER_NOT_FOUND;
  }
  char own[2][64];
  uint32_t count = 7, numbers = 0; /* the options below that are not among the further ones */
  for (size_t at = 0; at < options->extra_size; at++) count += !options->extra[at];
  const char **list = malloc(count * sizeof *list);
  Linker *linker = calloc(1, sizeof *linker);
  if (!list || !linker) {
    free(list);
    free(linker);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  linker->library = library;
  count = 0;
  char suffix[2] = {options->suffix, 0};
  snprintf(own[numbers], sizeof *own, "-arch=sm_%d%s", options->arch, suffix);
  list[count++] = own[numbers++];
  if (options->max_registers) {
    snprintf(own[numbers], sizeof *own, "-maxrregcount=%d", options->max_registers);
    list[count++] = own[numbers++];
  }
  if (options->level >= 0) list[count++] = options->level ? "-O3" : "-O0";
  if (options->debug) list[count++] = "-g";
  if (options->line_info) list[count++] = "-lineinfo";
  if (options->verbose) list[count++] = "-verbose";
  for (size_t at = 0; at < options->extra_size; at += strlen(options->extra + at) + 1)
    list[count++] = options->extra + at;
  within_nvjitlink(true);
  int code = library->create(&linker->handle, count, list);
  within_nvjitlink(false);
  free(list);
  if (code) {
    free(linker);
    EventLine line;
    cl_event_begin(&line);
    cl_event_text(&line, "linker", "create", sizeof line.text);
    cl_event_int(&line, "nvjitlink", code);
    cl_event_text(&line, "arch", own[0] + strlen("-arch="), sizeof line.text);
    cl_event_end(&line);
    return CUDA_ERROR_INVALID_VALUE;
  }
  *out = linker;
  return CUDA_SUCCESS;
}

CUresult cl_linker_add(Linker *linker, ImageKind kind, bool host_object, const void *data, size_t size,
                       const char *name, LinkText *text) {
  static const int types[] = {
      [IMAGE_PTX] = INPUT_PTX,     [IMAGE_ELF] = INPUT_CUBIN,       [IMAGE_FATBIN] = INPUT_FATBIN,
      [IMAGE_LTOIR] = INPUT_LTOIR, [IMAGE_ARCHIVE] = INPUT_LIBRARY,
  };
  within_nvjitlink(true);
  int code = linker->library->add(linker->handle, host_object ? INPUT_OBJECT : types[kind], data, size, name);
  within_nvjitlink(false);
  read_text(linker, text);
  if (!code) return CUDA_SUCCESS;
  if (code == NVJ_PTX_COMPILE)
    return text->error && strstr(text->error, "Unsupported .version") ? CUDA_ERROR_UNSUPPORTED_PTX_VERSION
                                                                      : CUDA_ERROR_INVALID_PTX;
  if (code == NVJ_LTO_NOT_ENABLED) return CUDA_ERROR_NO_BINARY_FOR_GPU;
  EventLine line;
  cl_event_begin(&line);
  cl_event_text(&line, "linker", "add", sizeof line.text);
  cl_event_int(&line, "nvjitlink", code);
  cl_event_end(&line);
  return CUDA_ERROR_UNKNOWN;
}

CUresult cl_linker_complete(Linker *linker, void **image, size_t *size, LinkText *text) {
  within_nvjitlink(true);
  int code = linker->library->complete(linker->handle);
  within_nvjitlink(false);
  read_text(linker, text);
  /* with an undefined symbol nvJitLink reports an error and has an image all the same */
  if (code && !(code == NVJ_INTERNAL && text->error)) return CUDA_ERROR_UNKNOWN;
  *image = linker->library->cubin_size(linker->handle, size) ? NULL : malloc(*size ? *size : 1);
  if (!*image) return code ? CUDA_ERROR_INVALID_SOURCE : CUDA_ERROR_OUT_OF_MEMORY;
  if (linker->library->cubin(linker->handle, *image)) {
    free(*image);
    *image = NULL;
    return code ? CUDA_ERROR_INVALID_SOURCE : CUDA_ERROR_UNKNOWN;
  }
  return code ? CUDA_ERROR_INVALID_SOURCE : CUDA_SUCCESS;
}

void cl_linker_close(Linker *linker) {
  if (!linker) return;
  within_nvjitlink(true);
  linker->library->destroy(&linker->handle);
  within_nvjitlink(false);
  free(linker);
}

/* Moves a text to where there is not one yet. */
static void take_text(char **to, char **from) {
  if (*to) return;
  *to = *from;
  *from = NULL;
}

CUresult cl_compile(const void *data, size_t size, const LinkOptions *options, void **image, size_t *image_size,
                    LinkText *text) {
  Linker *linker = NULL;
  LinkText more = {0};
  CUresult result = cl_linker_open(&linker, options, text);
  if (result) return result;
  int version, target;
  bool ptx = cl_image_kind(data, size) == IMAGE_PTX;
  /* a stand-in for the driver's own nvJitLink reads newer PTX than the driver did */
  int limit = cl_config()->ptx_limit;
  if (ptx && limit && cl_ptx_head(data, size, &version, &target) && version > limit)
    result = CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
  else result = cl_linker_add(linker, cl_image_kind(data, size), false, data, size, "input", text);
  if (!result) {
    result = cl_linker_complete(linker, image, image_size, &more);
    take_text(&text->error, &more.error);
    take_text(&text->info, &more.info);
    cl_text_free(&more);
  }
  cl_linker_close(linker);
  return result;
}
