/* Loaded images: read, compiled where they must be, kept in one table. */
#include "module_image.h"

#include "blocks.h"
#include "caller_memory.h"
#include "config.h"
#include "fatbins.h"
#include "faults.h"
#include "grow.h"
#include "link_inputs.h"
#include "locks.h"

pthread_mutex_t cl_modules_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_size_t orphans; /* modules that ended with their context */
static void free_module(Object *object);
static Objects modules = {.free = free_module, .lock = &cl_modules_lock}; /* and libraries */
static Objects of_libraries = {.free = free_module, .lock = &cl_modules_lock};

Module *cl_find_module(const void *handle, HandleKind kind) {
  bool found = cl_handle_is(handle, kind) || (kind == HANDLE_MODULE && cl_handle_is(handle, HANDLE_LIBRARY_MODULE));
  return found ? (Module *)(uintptr_t)handle : NULL;
}

/* Green contexts share what is in the primary one. */
Module *cl_module_of(Module *library, Context *context, bool make) {
  if (context->green) context = cl_primary_context(context->device);
  EACH (Module, module, &of_libraries)
    if (module->library == library && module->head.context == context) return module;
  Module *made = make ? cl_object_make(sizeof *made, HANDLE_LIBRARY_MODULE, context, &of_libraries) : NULL;
  if (!made) return NULL;
  made->library = library;
  made->elf = library->elf;
  made->ptx_target = library->ptx_target;
  return made;
}

Function *cl_find_function(const void *handle) {
  return cl_handle_is(handle, HANDLE_FUNCTION) ? (Function *)(uintptr_t)handle : NULL;
}

bool cl_is_usable(const Function *function, const Context *context) {
  const Context *own = function->module->head.context;
  return !own || cl_shares(own, context);
}

bool cl_is_kernel(const Function *function) { return function->module->head.kind == HANDLE_LIBRARY; }

void cl_free_function(Function *function) {
  free(function->name);
  free(function->parameters);
  free(function->on_devices);
  cl_object_end(&function->head);
}

static void free_module(Object *object) {
  Module *module = (Module *)object;
  for (Module *one = (Module *)of_libraries.first, *next; one; one = next) {
    next = (Module *)one->head.behind;
    if (one->library == module) cl_object_end(&one->head);
  }
  while (module->functions) {
    Function *next = module->functions->next;
    cl_free_function(module->functions);
    module->functions = next;
  }
  while (module->globals) {
    Global *next = module->globals->next;
    cl_release(module->globals->address);
    free(module->globals);
    module->globals = next;
  }
  free(module->image);
  free(module->refusal);
  free(module);
}

/* What was loaded in a context goes with it; libraries stay. */
void cl_end_modules(const Context *context) {
  orphans += cl_objects_end(&modules, context);
  cl_objects_end(&of_libraries, context);
}
OPEN_IN_CHILDREN(cl_modules_lock);

static bool runs_on(int device, int arch) { return arch / 10 == device / 10 && arch % 10 <= device % 10; }
static bool runs_here(int arch) { return runs_on(cl_config()->arch, arch); }

static CUresult adopt(Module *module, void *image, size_t size) {
  module->image = image;
  TRY(cl_elf_load(&module->elf, image, size));
  return runs_here(cl_elf_arch(&module->elf)) ? CUDA_SUCCESS : CUDA_ERROR_NO_BINARY_FOR_GPU;
}

/* How many different images of finished code were loaded, by a number for the content of each. Those that the table has
   no place for are not counted: there were at least so many. */
enum { IMAGES = 4096 };
static uint64_t image_numbers[IMAGES], image_count;

static void count_image(const uint8_t *image, size_t size) {
  uint64_t number = 14695981039346656037u; /* FNV-1a */
  for (size_t at = 0; at < size; at++) number = (number ^ image[at]) * 1099511628211u;
  HOLD(cl_modules_lock);
  for (size_t step = 0, at = number % IMAGES; step < IMAGES; step++, at = (at + 1) % IMAGES) {
    if (image_numbers[at] && image_numbers[at] != number) continue;
    if (!image_numbers[at]) image_count++;
    image_numbers[at] = number;
    break;
  }
}

EXPORT uint64_t cudalinkImageCount(void) {
  HOLD(cl_modules_lock);
  return image_count;
}

static void *copy_bytes(const void *data, size_t size) {
  void *copy = malloc(size ? size : 1);
  if (copy && size) memcpy(copy, data, size);
  return copy;
}

static CUresult copy_image(Module *module, const void *data, size_t size) {
  void *image = copy_bytes(data, size);
  if (!image) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = adopt(module, image, size);
  if (!result) count_image(data, size);
  return result;
}

/* A compilation that succeeded, for the next one of the same PTX with the same options and library. */
typedef struct Compiled {
  struct Compiled *next; /* used less lately */
  LinkOptions options;
  LinkText text;
  void *image;
  size_t image_size, size;
  uint8_t ptx[];
} Compiled;

enum { COMPILED_BYTES = 64 << 20 }; /* of PTX and images; a driver's cache, a folder, has 1 GiB */
static Compiled *compilations;      /* under the lock of the modules; whole at every moment, for a fork */

static void free_compiled(Compiled *compiled) {
  cl_options_free(&compiled->options);
  cl_text_free(&compiled->text);
  free(compiled->image);
  free(compiled);
}

/* Returns false if memory is out. */
static bool copy_text(LinkText *to, const LinkText *from) {
  *to = (LinkText){from->error ? strdup(from->error) : NULL, from->info ? strdup(from->info) : NULL};
  return !to->error == !from->error && !to->info == !from->info;
}

static void put_first(Compiled *compiled) {
  compiled->next = compilations;
  compilations = compiled;
}

/* Gives copies of what was kept of a compilation, if that is there and memory is not out. */
static bool take_compiled(const void *data, size_t size, const LinkOptions *options, void **image, size_t *image_size,
                          LinkText *text) {
  HOLD(cl_modules_lock);
  for (Compiled **at = &compilations, *one; (one = *at); at = &one->next) {
    if (one->size != size || !cl_options_equal(&one->options, options) || memcmp(one->ptx, data, size)) continue;
    *at = one->next;
    put_first(one);
    *image_size = one->image_size;
    *image = copy_bytes(one->image, one->image_size);
    if (copy_text(text, &one->text) && *image) return true;
    cl_text_free(text);
    free(*image);
    return false;
  }
  return false;
}

/* Keeps copies, and drops those compilations that were used least lately. */
static void keep_compiled(const void *data, size_t size, const LinkOptions *options, const void *image,
                          size_t image_size, const LinkText *text) {
  Compiled *made = calloc(1, sizeof *made + size);
  if (!made) return;
  made->options = *options;
  made->options.extra = copy_bytes(options->extra, options->extra_size);
  made->image = copy_bytes(image, image_size);
  made->image_size = image_size;
  made->size = size;
  memcpy(made->ptx, data, size);
  if (!copy_text(&made->text, text) || !made->image || !made->options.extra) {
    free_compiled(made);
    return;
  }
  HOLD(cl_modules_lock);
  put_first(made);
  size_t kept = 0;
  Compiled **at = &compilations;
  while (*at && (kept += (*at)->size + (*at)->image_size) <= COMPILED_BYTES) at = &(*at)->next;
  Compiled *dropped = *at;
  *at = NULL;
  for (Compiled *next; dropped; dropped = next) {
    next = dropped->next;
    free_compiled(dropped);
  }
}

/* A target is that of PTX: one that no compiler knows is 200, and what is made for another device 300 (measured:
   test_options_of_loading). */
static CUresult compile(Module *module, const void *data, size_t size, const JitOptions *options, LinkText *text) {
  void *image = NULL;
  size_t image_size = 0;
  int version;
  if (options->without_code) return CUDA_ERROR_INVALID_IMAGE;
  if (cl_jit_disabled()) return CUDA_ERROR_JIT_COMPILATION_DISABLED;
  if (cl_fault_of_jit()) return cl_fault_of_jit();
  if (!cl_ptx_head(data, size, &version, &module->ptx_target)) module->ptx_target = 0;
  bool cached = !cl_jit_uncached();
  bool kept = cached && take_compiled(data, size, &options->link, &image, &image_size, text);
  CUresult result = kept ? CUDA_SUCCESS : cl_compile(data, size, &options->link, &image, &image_size, text);
  if (cached && !kept && !result) keep_compiled(data, size, &options->link, image, image_size, text);
  if (result) cl_ptx_failure = result;
  /* an undefined symbol (measured: programs/core) */
  if (result == CUDA_ERROR_INVALID_SOURCE) return CUDA_ERROR_INVALID_PTX;
  if (result) return result;
  result = adopt(module, image, image_size);
  return result == CUDA_ERROR_NO_BINARY_FOR_GPU ? CUDA_ERROR_INVALID_SOURCE : result;
}

enum { FIRST_WITH_TILEIR = 13010 };

/* Nothing here compiles Tile IR: a driver that could is one without libnvidia-tileiras. An older one does not know it
   (measured: test_loads). */
static CUresult compile_tileir(LinkText *text) {
  if (cl_config()->version >= FIRST_WITH_TILEIR) return CUDA_ERROR_JIT_COMPILER_NOT_FOUND;
  text->error = strdup("error   : Binary format for key='0', ident='' is not recognized");
  return CUDA_ERROR_INVALID_IMAGE;
}

/* What is in the image is looked at after the choice only, and what is no cubin is 200 at once (recorded:
   fatbins-580.159.04). */
static CUresult load_fatbin(Module *module, const uint8_t *data, size_t size, const JitOptions *options,
                            LinkText *text) {
  FatbinEntry chosen = cl_fatbin_choice((Bytes){data, size}, cl_config()->arch, cl_jit_forced());
  void *image;
  size_t image_size;
  if (!chosen.kind && cl_config()->version >= FIRST_WITH_TILEIR && cl_fatbin_has((Bytes){data, size}, FATBIN_TILEIR))
    return compile_tileir(text);
  if (!chosen.kind) return CUDA_ERROR_NO_BINARY_FOR_GPU;
  CUresult result = cl_fatbin_image(&chosen, &image, &image_size);
  if (!result) {
    if (chosen.kind == FATBIN_PTX) result = compile(module, image, strlen(image) + 1, options, text);
    else if (!cl_elf_is_known(image, image_size)) result = CUDA_ERROR_INVALID_IMAGE;
    else result = copy_image(module, image, image_size);
    cl_refuse_image(result, "fatbin", image, chosen.kind == FATBIN_PTX ? strlen(image) : image_size, cl_config()->arch);
    free(image);
  }
  if (chosen.kind == FATBIN_PTX) return result;
  /* for another device than the entry says, or of a release that the driver does not take */
  if (result == CUDA_ERROR_NO_BINARY_FOR_GPU)
    result = runs_here(cl_elf_arch(&module->elf)) ? CUDA_ERROR_INVALID_IMAGE : CUDA_ERROR_INVALID_SOURCE;
  module->refused = result == CUDA_ERROR_INVALID_IMAGE;
  return result;
}

static CUresult load_copy(Module *module, const void *data, size_t size, const JitOptions *options, LinkText *text) {
  CUresult result;
  switch (cl_image_kind(data, size)) {
    case IMAGE_ELF: result = copy_image(module, data, size); break;
    case IMAGE_PTX: return compile(module, data, size, options, text);
    case IMAGE_FATBIN: result = load_fatbin(module, data, size, options, text); break;
    case IMAGE_TILEIR: return compile_tileir(text);
    default: return CUDA_ERROR_INVALID_IMAGE;
  }
  /* a cubin must run on the target, too, that an option names (measured: test_options_of_loading) */
  bool elsewhere = !result && !module->ptx_target && !runs_on(options->link.arch, cl_elf_arch(&module->elf));
  return elsewhere ? CUDA_ERROR_NO_BINARY_FOR_GPU : result;
}

/* Reads one image of any kind that a module can be made of, from a copy, because a damaged one may claim too much. */
static CUresult load(Module *module, const void *data, const JitOptions *options, LinkText *text) {
  size_t size;
  memset(text, 0, sizeof *text);
  void *copy;
  cl_refused_image(NULL);
  TRY(cl_copy_image(data, &copy, &size));
  CUresult ptx_before = cl_ptx_failure;
  CUresult result = load_copy(module, copy, size, options, text);
  char *failure = cl_take_linker_failure();
  if (failure) {
    cl_ptx_failure = ptx_before;
    cl_note_linker_failure(failure);
    free(failure);
    free(copy);
    return CUDA_ERROR_UNKNOWN;
  }
  char *inside = cl_take_refused_image();
  if (inside) cl_refused_image(inside);
  else cl_refuse_image(result, NULL, copy, size, cl_config()->arch);
  free(copy);
  return result;
}

static CUresult keep(Module *module, HandleKind kind, Context *context) {
  HOLD(cl_modules_lock);
  bool kept = cl_object_enter(&module->head, kind, context, &modules);
  if (!kept) free_module(&module->head);
  return kept ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cl_load_module(Module **out, const void *data, const JitOptions *options, LinkText *text) {
  Module *module = calloc(1, sizeof *module);
  if (!module) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = load(module, data, options, text);
  if (result) return free_module(&module->head), result;
  Context *context = cl_context(&result);
  result = keep(module, HANDLE_MODULE, context);
  if (!result) *out = module;
  return result;
}

enum { ERROR_ROOM = 512 }; /* of an error log in an event */

/* Loaded lazily: the first use reports what is wrong with the image, though the logs have it at once (measured:
   test_options_of_loading). */
CUresult cl_load_library(Module **out, const void *data, const JitOptions *options, LinkText *text) {
  Module *library = calloc(1, sizeof *library);
  CUresult result;
  if (!library) return CUDA_ERROR_OUT_OF_MEMORY;
  library->on_device = load(library, data, options, text);
  library->refusal = cl_take_refused_image();
  if (library->refused) {
    result = cl_answer_of(library, library->on_device);
    free_module(&library->head);
    return result;
  }
  /* made for another device, it has its kernels all the same (measured: test_options_of_loading) */
  library->state = library->on_device == CUDA_ERROR_INVALID_SOURCE ? CUDA_SUCCESS : library->on_device;
  if (text->error) {
    EventLine line;
    cl_event_begin(&line);
    cl_event_text(&line, "library", text->error, ERROR_ROOM);
    cl_event_end(&line);
  }
  result = keep(library, HANDLE_LIBRARY, NULL);
  if (!result) *out = library;
  return result;
}

static void write_log(const LogBuffer *log, const char *text, uint64_t *values) {
  uint32_t size;
  if (!log->buffer) return;
  size_t shown = cl_log_shown(log->capacity, text ? strlen(text) : 0, &size);
  if (text) cl_write_safely(log->buffer, text, shown);
  cl_write_safely(log->buffer + shown, "", 1); /* also where the size given is 0 (measured: test_options_of_loading) */
  cl_write_safely(values + log->slot, &size, sizeof size);
}

CUresult cl_load_with_options(Load *load_as, Module **out, const void *data, unsigned count, const int *keys,
                              void **values) {
  struct timespec started;
  JitOptions options = cl_device_options();
  LinkText text = {0};
  uint64_t *slots = (uint64_t *)values;
  if (!out || !data) return CUDA_ERROR_INVALID_VALUE;
  clock_gettime(CLOCK_MONOTONIC, &started);
  CUresult result = cl_read_options(&options, FOR_LOAD, count, keys, slots);
  if (!result) {
    result = load_as(out, data, &options, &text);
    write_log(&options.info, text.info, slots);
    write_log(&options.error, text.error, slots);
    uint32_t milliseconds = cl_wall_time(&started);
    if (options.wall_time >= 0) cl_write_safely(slots + options.wall_time, &milliseconds, sizeof milliseconds);
    if (options.threads >= 0)
      cl_write_safely(slots + options.threads, &options.most_threads, sizeof options.most_threads);
    cl_text_free(&text);
  }
  cl_options_free(&options.link);
  return result;
}

static CUresult wait_for_use(const void *handle, bool use) {
  CUresult state;
  Context *context = cl_context(&state);
  if (!context) return CUDA_SUCCESS;
  pthread_mutex_lock(&cl_modules_lock);
  const Function *kernel = cl_find_function(handle);
  Module *library = kernel && cl_is_kernel(kernel) ? kernel->module : cl_find_module(handle, HANDLE_LIBRARY);
  Module *module = library ? cl_module_of(library, context, use && !state) : NULL;
  bool first = !module || !module->used;
  if (module) module->used |= use;
  pthread_mutex_unlock(&cl_modules_lock);
  return library ? cl_wait_by_table(&(WaitFacts){.first = first}) : CUDA_SUCCESS;
}

CUresult cl_use_library(const void *handle) { return wait_for_use(handle, true); }
CUresult cl_end_library(const void *handle) { return wait_for_use(handle, false); }

CUresult cl_answer_of(const Module *library, CUresult result) {
  if (result && result == library->on_device && library->refusal) cl_refused_image(strdup(library->refusal));
  return result;
}

CUresult cl_unload(void *handle, HandleKind kind) {
  HOLD(cl_modules_lock);
  Module *module = cl_find_module(handle, kind);
  if (!module) return CUDA_ERROR_INVALID_HANDLE;
  if (module->library) return CUDA_ERROR_NOT_PERMITTED; /* it goes with that */
  cl_object_end(&module->head);
  return CUDA_SUCCESS;
}

size_t cl_modules_orphaned(void) { return orphans; }
