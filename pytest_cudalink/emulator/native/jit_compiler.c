/* The driver's JIT compiler and linker: libnvJitLink in a link worker, whose answers, and what became of the worker,
   are translated into the driver's codes and words. */
#include "jit_compiler.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "../worker/native/client.h"
#include "calls.h"
#include "config.h"

#include "architectures.inc" /* FIRST_ARCH_OF_13 */
#include "releases.inc"      /* LAST_OF_12 */

enum { NVJ_PTX_COMPILE = 4, NVJ_INTERNAL = 6, NVJ_LTO_NOT_ENABLED = 18 };
enum { INPUT_CUBIN = 1, INPUT_PTX, INPUT_LTOIR, INPUT_FATBIN, INPUT_OBJECT, INPUT_LIBRARY };

/* One of the libraries that link; an event says once whether it was opened. */
typedef struct {
  const char *path, *release;
  atomic_bool *reported;
} Library;

struct Linker {
  Library library;
  WorkerLink *link;
};

enum { PATH_ROOM = 512, PRINTED_ROOM = 256, NAME_ROOM = 160 }; /* of texts in an event */

/* The library of the emulated version, or the one for architectures that it no longer knows. */
static Library library_for(int arch) {
  static atomic_bool current_reported, old_reported;
  const Config *config = cl_config();
  if (arch < FIRST_ARCH_OF_13 && config->version >= 13000)
    return (Library){config->nvjitlink_old, LAST_OF_12, &old_reported};
  return (Library){config->nvjitlink, config->toolchain, &current_reported};
}

static void report_library(const Library *library, const char *text, bool loaded) {
  if (atomic_exchange(library->reported, true)) return;
  EventLine line;
  cl_event_begin(&line);
  cl_event_text(&line, "linker", text, PATH_ROOM);
  cl_event_bool(&line, "loaded", loaded);
  cl_event_end(&line);
}

void cl_text_free(LinkText *text) {
  free(text->error);
  free(text->info);
  *text = (LinkText){0};
}

/* A log without the lines that a driver does not write, which is the caller's; NULL if nothing is left. */
static char *in_driver_words(char *log) {
  size_t to = 0;
  for (char *at = log; at && *at;) {
    size_t length = strcspn(at, "\n");
    bool last = !at[length];
    bool own = !length || !strncmp(at, "ERROR ", 6) || !strncmp(at, "Architectures prior to", 22);
    if (!own) {
      if (to) log[to++] = '\n';
      memmove(log + to, at, length);
      to += length;
    }
    at += length + !last;
  }
  if (log) log[to] = 0;
  if (to) return log;
  free(log);
  return NULL;
}

/* Moves the logs of an answer into a text. */
static void take_logs(WorkerAnswer *answer, LinkText *text) {
  text->error = in_driver_words(answer->error);
  text->info = in_driver_words(answer->info);
  answer->error = answer->info = NULL;
}

/* Adds a line of ours to the error log. */
PRINTF(2, 3) static void explain(LinkText *text, const char *format, ...) {
  char *line = NULL, *both = NULL;
  va_list list;
  va_start(list, format);
  if (vasprintf(&line, format, list) < 0) line = NULL;
  va_end(list);
  if (!line) return;
  if (text->error && asprintf(&both, "%s\n%s", text->error, line) < 0) both = NULL;
  free(text->error);
  if (both) free(line);
  text->error = both ? both : line;
}

/* Writes what a library printed, and what became of its worker, into an event. */
static void report_answer(const WorkerAnswer *answer, const char *call, const char *input, const char *name) {
  static const char *const outcomes[] = {
      [WORKER_ANSWERED] = "printed",
      [WORKER_NOT_STARTED] = "not started",
      [WORKER_NO_LIBRARY] = "not opened",
      [WORKER_DIED] = "died",
      [WORKER_LATE] = "late",
      [WORKER_FATAL] = "fatal",
      [WORKER_NO_MEMORY] = "no memory",
      [WORKER_KILLED] = "killed",
  };
  if (!answer->outcome && !answer->printed) return;
  EventLine line;
  cl_event_begin(&line);
  cl_event_text(&line, "linker", outcomes[answer->outcome], sizeof line.text);
  cl_event_text(&line, "in", call, sizeof line.text);
  if (input) cl_event_text(&line, "input", input, sizeof line.text);
  if (name) cl_event_text(&line, "name", name, NAME_ROOM);
  if (answer->outcome == WORKER_DIED) cl_event_int(&line, "signal", answer->signal);
  if (answer->problem) cl_event_text(&line, "what", answer->problem, PATH_ROOM);
  if (answer->printed) cl_event_text(&line, "printed", answer->printed, PRINTED_ROOM);
  cl_event_end(&line);
}

static _Thread_local char *linker_failure;

char *cl_take_linker_failure(void) {
  char *failure = linker_failure;
  linker_failure = NULL;
  return failure;
}

void cl_note_linker_failure(const char *failure) {
  EventLine line;
  cl_event_begin(&line);
  cl_event_text(&line, "linker failed", failure, PATH_ROOM);
  cl_refused_image(strdup(line.text));
}

/* Explains a failure of the linker itself, and keeps it for the call. */
PRINTF(2, 3) static void fail(LinkText *text, const char *format, ...) {
  va_list list;
  free(linker_failure);
  va_start(list, format);
  if (vasprintf(&linker_failure, format, list) < 0) linker_failure = NULL;
  va_end(list);
  if (linker_failure) explain(text, "error   : %s", linker_failure);
}

/* No library was found: answers what a driver without its compiler does. */
static CUresult missing(const Linker *linker, LinkText *text) {
  report_library(&linker->library, "cannot be opened", false);
  explain(text,
          "error   : the emulated driver links through nvJitLink %s, which was not found; get it with: "
          "cudalink toolchain add %s",
          linker->library.release, linker->library.release);
  return CUDA_ERROR_JIT_COMPILER_NOT_FOUND;
}

/* Whether the process ended for a reason that lies outside of what it was given. */
static bool is_killed(const WorkerAnswer *answer) {
  return answer->outcome == WORKER_KILLED ||
         (answer->outcome == WORKER_DIED && answer->printed && strstr(answer->printed, "std::bad_alloc"));
}

/* What became of a call that has no answer of nvJitLink: the sentence for the log, and a code of the driver;
   `otherwise` is the one for an input or a link on which the library ended. */
static CUresult explain_failure(const Linker *linker, const WorkerAnswer *answer, const char *while_, const char *name,
                                CUresult otherwise, LinkText *text) {
  const char *problem = answer->problem ? answer->problem : "", *mark = name ? "'" : "";
  if (!name) name = "";
  if (answer->outcome == WORKER_NO_MEMORY) return CUDA_ERROR_OUT_OF_MEMORY;
  if (answer->outcome == WORKER_NO_LIBRARY && (!*linker->library.path || access(linker->library.path, R_OK)))
    return missing(linker, text);
  if (answer->outcome == WORKER_NOT_STARTED || answer->outcome == WORKER_NO_LIBRARY || is_killed(answer)) {
    if (answer->outcome == WORKER_NOT_STARTED)
      fail(text, "the linker's process, '%s', cannot be started: %s; if it is missing, install pytest-cudalink again",
           cl_config()->worker, problem);
    else if (answer->outcome == WORKER_NO_LIBRARY)
      fail(text, "the linker's process cannot open nvJitLink %s: %s", linker->library.release, problem);
    else
      fail(text, "the linker's process %s%s, while it %s%s%s%s; the next link gets a new one", problem,
           answer->outcome == WORKER_DIED ? " for want of memory" : "", while_, mark, name, mark);
    return CUDA_ERROR_UNKNOWN;
  }
  explain(text, "error   : libnvJitLink %s %s while it %s%s%s%s; the emulated driver goes on with a new link worker%s",
          linker->library.release, problem, while_, mark, name, mark,
          answer->outcome == WORKER_LATE ? ". CUDALINK_LINK_TIMEOUT sets another limit, in seconds" : "");
  return otherwise;
}

/* Notes a code of nvJitLink that no code of the driver stands for. */
static CUresult report_code(const char *call, int code, const char *arch, CUresult result) {
  EventLine line;
  cl_event_begin(&line);
  cl_event_text(&line, "linker", call, sizeof line.text);
  cl_event_int(&line, "nvjitlink", code);
  if (arch) cl_event_text(&line, "arch", arch, sizeof line.text);
  cl_event_end(&line);
  return result;
}

CUresult cl_linker_open(Linker **out, const LinkOptions *options, LinkText *text) {
  memset(text, 0, sizeof *text);
  const Config *config = cl_config();
  char own[2][64];
  uint32_t count = 7, numbers = 0; /* the options below that are not among the further ones */
  for (size_t at = 0; at < options->extra_size; at++) count += !options->extra[at];
  const char **list = malloc(count * sizeof *list);
  Linker *linker = calloc(1, sizeof *linker);
  if (!list || !linker) return free(list), free(linker), CUDA_ERROR_OUT_OF_MEMORY;
  linker->library = library_for(options->arch);
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
  WorkerAnswer answer = {.outcome = WORKER_NO_LIBRARY};
  CUresult result = CUDA_SUCCESS;
  if (*linker->library.path)
    lw_open(&linker->link, config->worker, linker->library.path, count, list, config->link_timeout, &answer);
  else report_library(&linker->library, "none was found", false);
  free(list);
  if (linker->link) {
    report_library(&linker->library, linker->library.path, true);
    *out = linker;
  } else {
    report_answer(&answer, "create", NULL, NULL);
    result = answer.outcome ? explain_failure(linker, &answer, "read its options", NULL, CUDA_ERROR_INVALID_VALUE, text)
                            : report_code("create", answer.code, own[0] + strlen("-arch="), CUDA_ERROR_INVALID_VALUE);
    free(linker);
  }
  lw_free_answer(&answer);
  return result;
}

CUresult cl_linker_add(Linker *linker, ImageKind kind, bool host_object, const void *data, size_t size,
                       const char *name, LinkText *text) {
  static const struct {
    int type;
    const char *name;
  } types[] = {
      [IMAGE_PTX] = {INPUT_PTX, "ptx"},
      [IMAGE_ELF] = {INPUT_CUBIN, "cubin"},
      [IMAGE_LTOIR] = {INPUT_LTOIR, "ltoir"},
      [IMAGE_ARCHIVE] = {INPUT_LIBRARY, "library"},
  };
  WorkerAnswer answer;
  memset(text, 0, sizeof *text);
  lw_add(linker->link, host_object ? INPUT_OBJECT : types[kind].type, data, size, name, &answer);
  report_answer(&answer, "add", host_object ? "object" : types[kind].name, name);
  CUresult result;
  int code = answer.code;
  if (answer.outcome) {
    result = explain_failure(linker, &answer, "read ", name,
                             kind == IMAGE_PTX ? CUDA_ERROR_INVALID_PTX : CUDA_ERROR_INVALID_IMAGE, text);
  } else {
    take_logs(&answer, text);
    result = CUDA_ERROR_UNKNOWN;
    if (!code) result = CUDA_SUCCESS;
    else if (code == NVJ_PTX_COMPILE)
      result = text->error && strstr(text->error, "Unsupported .version") ? CUDA_ERROR_UNSUPPORTED_PTX_VERSION
                                                                          : CUDA_ERROR_INVALID_PTX;
    else if (code == NVJ_LTO_NOT_ENABLED) result = CUDA_ERROR_NO_BINARY_FOR_GPU;
  }
  bool unknown = !answer.outcome && result == CUDA_ERROR_UNKNOWN;
  lw_free_answer(&answer);
  if (!unknown) return result;
  cl_text_free(text);
  return report_code("add", code, NULL, result);
}

CUresult cl_linker_complete(Linker *linker, void **image, size_t *size, LinkText *text) {
  WorkerAnswer answer;
  memset(text, 0, sizeof *text);
  lw_complete(linker->link, 0, &answer);
  report_answer(&answer, "complete", NULL, NULL);
  CUresult result;
  if (answer.outcome) {
    result = explain_failure(linker, &answer, "linked", NULL, CUDA_ERROR_UNKNOWN, text);
  } else {
    take_logs(&answer, text);
    /* with an undefined symbol nvJitLink reports an error and has an image all the same */
    bool undefined = answer.code == NVJ_INTERNAL && text->error;
    result = undefined ? CUDA_ERROR_INVALID_SOURCE : CUDA_SUCCESS;
    if ((answer.code || !answer.image) && !undefined) result = CUDA_ERROR_UNKNOWN;
    else if (answer.image) {
      *image = answer.image;
      *size = answer.image_size;
      answer.image = NULL;
    }
  }
  lw_free_answer(&answer);
  return result;
}

void cl_linker_close(Linker *linker) {
  if (!linker) return;
  WorkerAnswer answer;
  lw_close(&linker->link, &answer);
  report_answer(&answer, "destroy", NULL, NULL);
  lw_free_answer(&answer);
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
  int version, target, limit = cl_config()->ptx_limit;
  memset(text, 0, sizeof *text);
  /* a stand-in for the driver's own nvJitLink reads newer PTX than the driver did, and a missing one reads nothing */
  if (cl_ptx_head(data, size, &version, &target) && ((limit && version > limit) || version < 10))
    return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
  char *part = malloc(size);
  if (!part) return CUDA_ERROR_OUT_OF_MEMORY;
  memcpy(part, data, size);
  CUresult result = cl_ptx_as_part(part, size) ? cl_linker_open(&linker, options, text) : CUDA_ERROR_INVALID_PTX;
  if (result) return free(part), result;
  result = cl_linker_add(linker, IMAGE_PTX, false, part, size, "input", text);
  free(part);
  if (!result) {
    result = cl_linker_complete(linker, image, image_size, &more);
    take_text(&text->error, &more.error);
    take_text(&text->info, &more.info);
    cl_text_free(&more);
  }
  cl_linker_close(linker);
  return result;
}
