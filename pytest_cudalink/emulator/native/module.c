/* Modules, libraries, functions: images are read and compiled for real; kernels are not executed. */
#define _GNU_SOURCE
#include "options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  MODULE_MAGIC = 0x6d6f6421,
  LIBRARY_MAGIC = 0x6c696221,
  FUNCTION_MAGIC = 0x66756e21,
  STT_OBJECT = 1,
  STT_FUNC = 2,
  STT_NV_OBJECT = 13,
  STB_GLOBAL = 1,
  STO_MANAGED = 0x04,
  STO_ENTRY = 0x10,
};

typedef struct Function Function;
typedef struct Global Global;

/* One loaded image, as a module or behind a library. */
typedef struct Module {
  uint32_t magic; /* MODULE_MAGIC or LIBRARY_MAGIC */
  struct Module *next;
  void *image;
  Elf elf;
  CUresult state;     /* of a library: what its first use answers */
  CUresult on_device; /* of a library: what its first use on the device answers */
  char as_module; /* of a library: its address is the handle of its module */
  Function *functions;
  bool placed;
  Global *globals;
} Module;

struct Function {
  uint32_t magic;
  Function *next;
  Module *module;
  char *name;
  uint32_t symbol;
  int max_threads, shared, constant, local, registers;
  int max_dynamic_shared, carveout;
  struct {
    size_t offset, size;
  } *parameters;
  size_t parameter_count;
};

struct Global {
  Global *next;
  uint32_t symbol;
  CUdeviceptr address;
  size_t size;
};

pthread_mutex_t cl_placing = PTHREAD_MUTEX_INITIALIZER;

static Module *modules; /* modules and libraries, under cl_lock */

/* A module may be one of its own, or that of a library. */
static Module *find_module(const void *handle, uint32_t magic) {
  for (Module *module = modules; module; module = module->next)
    if (module->magic == magic ? handle == module : magic == MODULE_MAGIC && handle == &module->as_module) return module;
  return NULL;
}

static void *module_handle(Module *module) {
  return module->magic == LIBRARY_MAGIC ? (void *)&module->as_module : module;
}

/* A function or kernel handle, in whatever module it is. */
static Function *find_function(const void *handle) {
  for (Module *module = modules; module; module = module->next)
    for (Function *function = module->functions; function; function = function->next)
      if (function == handle) return function;
  return NULL;
}

static void free_module(Module *module) {
  while (module->functions) {
    Function *next = module->functions->next;
    free(module->functions->name);
    free(module->functions->parameters);
    module->functions->magic = 0;
    free(module->functions);
    module->functions = next;
  }
  while (module->globals) {
    Global *next = module->globals->next;
    cl_release(module->globals->address);
    free(module->globals);
    module->globals = next;
  }
  free(module->image);
  module->magic = 0;
  free(module);
}

/* -- loading -- */

static bool runs_here(int arch) {
  int device = cl_config()->arch;
  return arch / 10 == device / 10 && arch % 10 <= device % 10;
}

static uint64_t little(const uint8_t *at, int bytes) {
  uint64_t value = 0;
  while (bytes-- > 0) value = value << 8 | at[bytes];
  return value;
}

enum { ENTRY_PTX = 1, ENTRY_ELF = 2, PACKED = 0x2000 | 0x8000 };

/* The best image of a fatbin that lies open: a cubin that runs here, of the highest architecture. */
static const uint8_t *pick(const uint8_t *fatbin, size_t size, size_t *picked, bool *packed) {
  const uint8_t *best = NULL;
  int best_arch = 0;
  size_t at = little(fatbin + 6, 2);
  *packed = false;
  while (at + 64 <= size) {
    const uint8_t *entry = fatbin + at;
    uint64_t header = little(entry + 4, 4), payload = little(entry + 8, 8), flags = little(entry + 40, 8);
    int kind = (int)little(entry, 2), arch = (int)little(entry + 28, 4);
    if (header < 64 || header > size - at || payload > size - at - header) break;
    bool usable = kind == ENTRY_ELF ? runs_here(arch) : kind == ENTRY_PTX && arch <= cl_config()->arch;
    if (usable && (flags & PACKED)) *packed = true;
    else if (usable && kind == ENTRY_ELF && arch > best_arch) {
      best = entry + header;
      best_arch = arch;
      *picked = payload;
    }
    at += header + payload;
  }
  return best;
}

static CUresult adopt(Module *module, void *image, size_t size) {
  char problem[128];
  module->image = image;
  if (!cl_elf_open(&module->elf, image, size, problem, sizeof problem) || module->elf.machine != 190) return CUDA_ERROR_INVALID_IMAGE;
  return runs_here(cl_elf_arch(&module->elf)) ? CUDA_SUCCESS : CUDA_ERROR_NO_BINARY_FOR_GPU;
}

static CUresult copy_image(Module *module, const void *data, size_t size) {
  void *image = malloc(size ? size : 1);
  if (!image) return CUDA_ERROR_OUT_OF_MEMORY;
  memcpy(image, data, size);
  return adopt(module, image, size);
}

/* A target is that of PTX: one that no compiler knows is 200, and what is made for another device 300 (measured). */
static CUresult compile(Module *module, const void *data, size_t size, const JitOptions *options, LinkText *text) {
  void *image = NULL;
  size_t image_size = 0;
  if (options->without_code) return CUDA_ERROR_INVALID_IMAGE;
  CUresult result = cl_compile(data, size, &options->link, &image, &image_size, text);
  if (result == CUDA_ERROR_INVALID_SOURCE) return CUDA_ERROR_INVALID_PTX; /* an undefined symbol (measured) */
  if (result) return result;
  result = adopt(module, image, image_size);
  return result == CUDA_ERROR_NO_BINARY_FOR_GPU ? CUDA_ERROR_INVALID_SOURCE : result;
}

static CUresult load_copy(Module *module, const void *data, size_t size, const JitOptions *options, LinkText *text) {
  size_t picked = 0;
  bool packed = false;
  switch (cl_image_kind(data, size)) {
    case IMAGE_ELF: return copy_image(module, data, size);
    case IMAGE_PTX: return compile(module, data, size, options, text);
    case IMAGE_FATBIN: {
      if (size < 16) return CUDA_ERROR_INVALID_IMAGE;
      const uint8_t *best = pick(data, size, &picked, &packed);
      if (best) return copy_image(module, best, picked);
      if (!packed) return CUDA_ERROR_NO_BINARY_FOR_GPU;
      if (cl_fatbin_usable(data, size, cl_config()->arch) != size) return CUDA_ERROR_INVALID_IMAGE; /* something is cut */
      CUresult result = compile(module, data, size, options, text); /* nvJitLink unpacks it */
      return result == CUDA_ERROR_UNKNOWN ? CUDA_ERROR_NO_BINARY_FOR_GPU : result;
    }
    default: return CUDA_ERROR_INVALID_IMAGE;
  }
}

/* Reads one image of any kind that a module can be made of; on a copy, because a damaged one may claim what is not there. */
static CUresult load(Module *module, const void *data, const JitOptions *options, LinkText *text) {
  size_t size;
  memset(text, 0, sizeof *text);
  void *copy = cl_copy_image(data, &size);
  if (!copy) return CUDA_ERROR_INVALID_IMAGE;
  CUresult result = load_copy(module, copy, size, options, text);
  free(copy);
  return result;
}

static Module *new_module(uint32_t magic) {
  Module *module = calloc(1, sizeof *module);
  if (module) module->magic = magic;
  return module;
}

static void keep(Module *module) {
  pthread_mutex_lock(&cl_lock);
  module->next = modules;
  modules = module;
  pthread_mutex_unlock(&cl_lock);
}

static CUresult load_module(Module **out, const void *data, const JitOptions *options, LinkText *text) {
  Module *module = new_module(MODULE_MAGIC);
  if (!module) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = load(module, data, options, text);
  if (result) {
    free_module(module);
    return result;
  }
  keep(module);
  *out = module;
  return CUDA_SUCCESS;
}

/* Loaded lazily: what is wrong with the image is said at the first use, though the logs tell it at once (measured). */
static CUresult load_library(Module **out, const void *data, const JitOptions *options, LinkText *text) {
  Module *library = new_module(LIBRARY_MAGIC);
  if (!library) return CUDA_ERROR_OUT_OF_MEMORY;
  library->on_device = load(library, data, options, text);
  /* made for another device, it has its kernels all the same (measured) */
  library->state = library->on_device == CUDA_ERROR_INVALID_SOURCE ? CUDA_SUCCESS : library->on_device;
  if (text->error) {
    char safe[512];
    cl_event("\"library\":\"%s\"", cl_json(text->error, safe, sizeof safe));
  }
  keep(library);
  *out = library;
  return CUDA_SUCCESS;
}

static void write_log(const LogBuffer *log, const char *text, uint64_t *values) {
  uint32_t size;
  if (!log->buffer) return;
  size_t shown = cl_log_shown(log->capacity, text ? strlen(text) : 0, &size);
  if (text) cl_write_safely(log->buffer, text, shown);
  cl_write_safely(log->buffer + shown, "", 1); /* also where the size given is 0 (measured) */
  cl_write_safely(values + log->slot, &size, sizeof size);
}

typedef CUresult Load(Module **out, const void *data, const JitOptions *options, LinkText *text);

/* One loading call: logs and wall time are written before it returns, so nothing of the caller's must outlive it. */
static CUresult load_with_options(Load *load_as, Module **out, const void *data, unsigned count, const int *keys, void **values) {
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
    cl_text_free(&text);
  }
  cl_options_free(&options.link);
  return result;
}

static CUresult load_module_with_options(Module **out, const void *data, unsigned count, const int *keys, void **values) {
  CUresult result;
  cl_context(&result);
  if (!out || !data) return CUDA_ERROR_INVALID_VALUE;
  return result ? result : load_with_options(load_module, out, data, count, keys, values);
}

static CUresult load_plainly(Module **out, const void *data) { return load_module_with_options(out, data, 0, NULL, NULL); }

EXPORT CUresult cuModuleLoadData(Module **module, const void *data) {
  ENTER(cuModuleLoadData);
  LEAVE(load_plainly(module, data), "");
}

EXPORT CUresult cuModuleLoadFatBinary(Module **module, const void *data) {
  ENTER(cuModuleLoadFatBinary);
  LEAVE(load_plainly(module, data), "");
}

EXPORT CUresult cuModuleLoad(Module **module, const char *path) {
  ENTER(cuModuleLoad);
  void *data = NULL;
  size_t size;
  CUresult result = cl_read_file(path, &data, &size);
  if (!result) {
    result = load_plainly(module, data);
    free(data);
  }
  LEAVE(result, "");
}

EXPORT CUresult cuModuleLoadDataEx(Module **module, const void *data, unsigned count, int *keys, void **values) {
  ENTER(cuModuleLoadDataEx);
  LEAVE(load_module_with_options(module, data, count, keys, values), ",\"options\":%u", count);
}

static CUresult unload(void *handle, uint32_t magic) {
  CUresult result = CUDA_ERROR_INVALID_HANDLE;
  Module *found = NULL;
  pthread_mutex_lock(&cl_lock);
  for (Module **link = &modules; *link; link = &(*link)->next)
    if (*link == handle && (*link)->magic == magic) {
      found = *link;
      *link = found->next;
      break;
    }
  pthread_mutex_unlock(&cl_lock);
  if (found) {
    free_module(found);
    result = CUDA_SUCCESS;
  }
  return result;
}

EXPORT CUresult cuModuleUnload(Module *module) {
  ENTER(cuModuleUnload);
  LEAVE(unload(module, MODULE_MAGIC), "");
}

EXPORT CUresult cuModuleGetLoadingMode(int *mode) {
  ENTER(cuModuleGetLoadingMode);
  if (!mode) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  const char *wanted = getenv("CUDA_MODULE_LOADING");
  *mode = wanted && !strcmp(wanted, "EAGER") ? 1 : 2;
  LEAVE(CUDA_SUCCESS, "");
}

/* -- what is in an image -- */

enum { INFO_MAX_THREADS = 0x05, INFO_FRAME_SIZE = 0x11, INFO_KPARAM = 0x17, INFO_REGCOUNT = 0x2f };

static void read_info(Function *function, const ElfSection *section, bool own) {
  const uint8_t *at = cl_elf_bytes(&function->module->elf, section), *end = at ? at + section->size : NULL;
  while (at && end - at >= 4) {
    uint8_t form = at[0], attribute = at[1];
    size_t size = form == 4 ? (size_t)little(at + 2, 2) : 0;
    at += 4;
    if (size > (size_t)(end - at)) return;
    if (own && attribute == INFO_MAX_THREADS && size >= 12)
      function->max_threads = (int)(little(at, 4) * little(at + 4, 4) * little(at + 8, 4));
    else if (own && attribute == INFO_KPARAM && size >= 12) {
      size_t ordinal = (size_t)little(at + 4, 2);
      if (ordinal >= function->parameter_count) {
        void *grown = realloc(function->parameters, (ordinal + 1) * sizeof *function->parameters);
        if (!grown) return;
        function->parameters = grown;
        memset(function->parameters + function->parameter_count, 0,
               (ordinal + 1 - function->parameter_count) * sizeof *function->parameters);
        function->parameter_count = ordinal + 1;
      }
      function->parameters[ordinal].offset = (size_t)little(at + 6, 2);
      function->parameters[ordinal].size = (size_t)(little(at + 8, 4) >> 18);
    } else if (!own && size >= 8 && little(at, 4) == function->symbol) {
      if (attribute == INFO_REGCOUNT) function->registers = (int)little(at + 4, 4);
      if (attribute == INFO_FRAME_SIZE) function->local = (int)little(at + 4, 4);
    }
    at += size;
  }
}

enum { RESERVED_SHARED = 1024, FIRST_ARCH_WITH_RESERVE = 90, DEFAULT_SHARED = 49152, DEFAULT_THREADS = 1024 };

static bool named(const char *section, const char *prefix, const char *function) {
  size_t length = strlen(prefix);
  return !strncmp(section, prefix, length) && !strcmp(section + length, function);
}

/* What the image says of a function: read once, when its handle is made. */
static void read_attributes(Function *function) {
  const Elf *elf = &function->module->elf;
  ElfSection section;
  function->max_threads = DEFAULT_THREADS;
  function->carveout = -1;
  for (uint32_t at = 1; cl_elf_section(elf, at, &section); at++) {
    if (!strcmp(section.name, ".nv.info")) read_info(function, &section, false);
    else if (named(section.name, ".nv.info.", function->name)) read_info(function, &section, true);
    else if (!strcmp(section.name, ".nv.constant3")) function->constant = (int)section.size;
    else if (named(section.name, ".text.", function->name) && !function->registers) function->registers = (int)(section.info >> 24);
    else if (named(section.name, ".nv.shared.", function->name)) {
      uint64_t reserve = cl_elf_arch(elf) >= FIRST_ARCH_WITH_RESERVE && section.size >= RESERVED_SHARED ? RESERVED_SHARED : 0;
      function->shared = (int)(section.size - reserve);
    }
  }
  function->max_dynamic_shared = DEFAULT_SHARED - function->shared;
}

static bool has_undefined(const Elf *elf) {
  ElfSymbol symbol;
  for (uint32_t at = 1; cl_elf_symbol(elf, at, &symbol); at++)
    if (!symbol.section && symbol.info >> 4 == STB_GLOBAL && *symbol.name && strncmp(symbol.name, ".nv.", 4)) return true;
  return false;
}

static uint32_t symbol_named(const Elf *elf, const char *name, bool function) {
  ElfSymbol symbol;
  for (uint32_t at = 1; cl_elf_symbol(elf, at, &symbol); at++) {
    int type = symbol.info & 15;
    bool fits = function ? type == STT_FUNC : type == STT_OBJECT || type == STT_NV_OBJECT;
    if (fits && symbol.section && !strcmp(symbol.name, name)) return at;
  }
  return 0;
}

static bool is_managed(const Elf *elf, const char *name) {
  ElfSymbol symbol;
  return cl_elf_symbol(elf, symbol_named(elf, name, false), &symbol) && symbol.other & STO_MANAGED;
}

/* The handle of a function by its name; made at its first use. Under cl_lock. */
static Function *function_in(Module *module, const char *name) {
  for (Function *known = module->functions; known; known = known->next)
    if (!strcmp(known->name, name)) return known;
  uint32_t symbol = symbol_named(&module->elf, name, true);
  Function *function = symbol ? calloc(1, sizeof *function) : NULL;
  if (!function) return NULL;
  function->magic = FUNCTION_MAGIC;
  function->module = module;
  function->name = strdup(name);
  function->symbol = symbol;
  read_attributes(function);
  function->next = module->functions;
  module->functions = function;
  return function;
}

static unsigned kernel_count(const Elf *elf) {
  unsigned count = 0;
  ElfSymbol symbol;
  for (uint32_t at = 1; cl_elf_symbol(elf, at, &symbol); at++)
    count += (symbol.info & 15) == STT_FUNC && symbol.section && symbol.other & STO_ENTRY;
  return count;
}

static unsigned list_kernels(Module *module, void **out, unsigned room) {
  unsigned count = 0;
  ElfSymbol symbol;
  for (uint32_t at = 1; cl_elf_symbol(&module->elf, at, &symbol) && count < room; at++)
    if ((symbol.info & 15) == STT_FUNC && symbol.section && symbol.other & STO_ENTRY)
      out[count++] = function_in(module, symbol.name);
  return count;
}

static CUresult get_global(Module *module, const char *name, CUdeviceptr *address, size_t *size) {
  Global *global;
  if (symbol_named(&module->elf, name, true)) return CUDA_ERROR_INVALID_VALUE; /* the name of a kernel (measured) */
  uint32_t index = symbol_named(&module->elf, name, false);
  if (!index) return CUDA_ERROR_NOT_FOUND;
  for (global = module->globals; global && global->symbol != index; global = global->next) {}
  if (address) *address = global ? global->address : 0;
  if (size && global) *size = global->size;
  return global ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Gives every variable its memory, with its initial value. Under cl_placing; not under cl_lock, which memory takes. */
static void place_globals(Module *module) {
  ElfSymbol symbol;
  ElfSection section;
  if (module->placed) return;
  module->placed = true;
  for (uint32_t at = 1; cl_elf_symbol(&module->elf, at, &symbol); at++) {
    int type = symbol.info & 15;
    if ((type != STT_OBJECT && type != STT_NV_OBJECT) || !symbol.section || !symbol.size) continue;
    if (!cl_elf_section(&module->elf, symbol.section, &section)) continue;
    if (strncmp(section.name, ".nv.global", 10) && strncmp(section.name, ".nv.constant", 12)) continue;
    Global *global = calloc(1, sizeof *global);
    if (!global) return;
    global->symbol = at;
    global->size = symbol.size;
    global->address = cl_allocate(symbol.size);
    const uint8_t *bytes = cl_elf_bytes(&module->elf, &section);
    if (global->address && bytes && symbol.value <= section.size && symbol.size <= section.size - symbol.value)
      memcpy((void *)(uintptr_t)global->address, bytes + symbol.value, symbol.size);
    global->next = module->globals;
    module->globals = global;
  }
}

/* -- functions of modules -- */

#define LOCKED(expression)               \
  do {                                   \
    pthread_mutex_lock(&cl_lock);        \
    expression;                          \
    pthread_mutex_unlock(&cl_lock);      \
  } while (0)

EXPORT CUresult cuModuleGetFunction(Function **out, Module *handle, const char *name) {
  ENTER(cuModuleGetFunction);
  char text[160];
  if (!out || !name || !*name) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  NEED_CONTEXT(context);
  CUresult result = CUDA_ERROR_INVALID_HANDLE;
  pthread_mutex_lock(&cl_lock);
  Module *module = find_module(handle, MODULE_MAGIC);
  if (module) {
    Function *function = has_undefined(&module->elf) ? NULL : function_in(module, name);
    if (function) *out = function;
    result = function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
  }
  pthread_mutex_unlock(&cl_lock);
  LEAVE(result, ",\"name\":\"%s\"", cl_json(name, text, sizeof text));
}

EXPORT CUresult cuModuleGetFunctionCount(unsigned *count, Module *handle) {
  ENTER(cuModuleGetFunctionCount);
  if (!count) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  CUresult result = CUDA_ERROR_INVALID_HANDLE;
  pthread_mutex_lock(&cl_lock);
  Module *module = find_module(handle, MODULE_MAGIC);
  if (module) *count = kernel_count(&module->elf), result = CUDA_SUCCESS;
  pthread_mutex_unlock(&cl_lock);
  LEAVE(result, "");
}

EXPORT CUresult cuModuleEnumerateFunctions(void **functions, unsigned room, Module *handle) {
  ENTER(cuModuleEnumerateFunctions);
  if (!functions) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  CUresult result = CUDA_ERROR_INVALID_HANDLE;
  pthread_mutex_lock(&cl_lock);
  Module *module = find_module(handle, MODULE_MAGIC);
  if (module) list_kernels(module, functions, room), result = CUDA_SUCCESS;
  pthread_mutex_unlock(&cl_lock);
  LEAVE(result, "");
}

static CUresult global_of(Module *handle, uint32_t magic, CUdeviceptr *address, size_t *size, const char *name, bool managed) {
  if (!name || !*name || (!address && !size)) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = CUDA_ERROR_INVALID_HANDLE;
  Module *module;
  LOCKED(module = find_module(handle, magic));
  if (!module) return result;
  if (module->on_device) return module->on_device;
  if (managed && !is_managed(&module->elf, name)) return CUDA_ERROR_NOT_FOUND; /* kernels too (measured) */
  pthread_mutex_lock(&cl_placing);
  place_globals(module);
  LOCKED(result = get_global(module, name, address, size));
  pthread_mutex_unlock(&cl_placing);
  return result;
}

EXPORT CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *size, Module *module, const char *name) {
  ENTER(cuModuleGetGlobal_v2);
  NEED_CONTEXT(context);
  LEAVE(global_of(module, MODULE_MAGIC, address, size, name, false), "");
}

EXPORT CUresult cuModuleGetGlobal(void) {
  ENTER(cuModuleGetGlobal);
  LEAVE(CUDA_ERROR_INVALID_CONTEXT, ",\"note\":\"the 32-bit entry point of before CUDA 3.2\"");
}

/* -- attributes -- */

enum { ATTRIBUTE_MAX_DYNAMIC_SHARED = 8, ATTRIBUTE_CARVEOUT = 9, ATTRIBUTE_LAST = 15 };

static CUresult attribute_of(const Function *function, int attribute, int *value) {
  int arch = cl_elf_arch(&function->module->elf);
  switch (attribute) {
    case 0: *value = function->max_threads; break;
    case 1: *value = function->shared; break;
    case 2: *value = function->constant; break;
    case 3: *value = function->local; break;
    case 4: *value = function->registers; break;
    case 5: *value = arch; break;
    case 6: *value = arch; break;
    case 7: *value = 0; break;
    case ATTRIBUTE_MAX_DYNAMIC_SHARED: *value = function->max_dynamic_shared; break;
    case ATTRIBUTE_CARVEOUT: *value = function->carveout; break;
    default:
      if (attribute < 0 || attribute > ATTRIBUTE_LAST) return CUDA_ERROR_INVALID_VALUE;
      *value = 0;
  }
  return CUDA_SUCCESS;
}

enum { SHARED_PER_BLOCK_OPTIN = 97 };

static CUresult set_attribute(Function *function, int attribute, int value) {
  int limit = DEFAULT_SHARED;
  cl_device_attribute(SHARED_PER_BLOCK_OPTIN, &limit);
  if (attribute == ATTRIBUTE_MAX_DYNAMIC_SHARED) {
    if (value < 0 || value > limit - function->shared) return CUDA_ERROR_INVALID_VALUE;
    function->max_dynamic_shared = value;
  } else if (attribute == ATTRIBUTE_CARVEOUT) {
    if (value < -1 || value > 100) return CUDA_ERROR_INVALID_VALUE;
    function->carveout = value;
  } else if (attribute < 10 || attribute > 14)
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

static CUresult get_attribute_of(const void *handle, int attribute, int *value) {
  CUresult result = CUDA_ERROR_INVALID_HANDLE;
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&cl_lock);
  Function *function = find_function(handle);
  if (function) result = attribute_of(function, attribute, value);
  pthread_mutex_unlock(&cl_lock);
  return result;
}

static CUresult set_attribute_of(const void *handle, int attribute, int value) {
  CUresult result = CUDA_ERROR_INVALID_HANDLE;
  pthread_mutex_lock(&cl_lock);
  Function *function = find_function(handle);
  if (function) result = set_attribute(function, attribute, value);
  pthread_mutex_unlock(&cl_lock);
  return result;
}

EXPORT CUresult cuFuncGetAttribute(int *value, int attribute, Function *function) {
  ENTER(cuFuncGetAttribute);
  LEAVE(get_attribute_of(function, attribute, value), ",\"attribute\":%d", attribute);
}

EXPORT CUresult cuFuncSetAttribute(Function *function, int attribute, int value) {
  ENTER(cuFuncSetAttribute);
  LEAVE(set_attribute_of(function, attribute, value), ",\"attribute\":%d,\"value\":%d", attribute, value);
}

EXPORT CUresult cuKernelGetAttribute(int *value, int attribute, Function *kernel, CUdevice device) {
  ENTER(cuKernelGetAttribute);
  if (device < 0 || device >= cl_config()->devices) LEAVE(CUDA_ERROR_INVALID_DEVICE, "");
  LEAVE(get_attribute_of(kernel, attribute, value), ",\"attribute\":%d", attribute);
}

EXPORT CUresult cuKernelSetAttribute(int attribute, int value, Function *kernel, CUdevice device) {
  ENTER(cuKernelSetAttribute);
  if (device < 0 || device >= cl_config()->devices) LEAVE(CUDA_ERROR_INVALID_DEVICE, "");
  LEAVE(set_attribute_of(kernel, attribute, value), ",\"attribute\":%d,\"value\":%d", attribute, value);
}

static CUresult known_function(const void *handle) {
  Function *function;
  LOCKED(function = find_function(handle));
  return function ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

EXPORT CUresult cuFuncSetCacheConfig(Function *function, int config) {
  ENTER(cuFuncSetCacheConfig);
  LEAVE(config < 0 || config > 3 ? CUDA_ERROR_INVALID_VALUE : known_function(function), "");
}

EXPORT CUresult cuKernelSetCacheConfig(Function *kernel, int config, CUdevice device) {
  ENTER(cuKernelSetCacheConfig);
  (void)device;
  LEAVE(config < 0 || config > 3 ? CUDA_ERROR_INVALID_VALUE : known_function(kernel), "");
}

EXPORT CUresult cuFuncSetSharedMemConfig(Function *function, int config) {
  ENTER(cuFuncSetSharedMemConfig);
  LEAVE(config < 0 || config > 2 ? CUDA_ERROR_INVALID_VALUE : known_function(function), "");
}

static CUresult name_of(const char **name, const void *handle) {
  if (!name) return CUDA_ERROR_INVALID_VALUE;
  Function *function;
  LOCKED(function = find_function(handle));
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  *name = function->name;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuFuncGetName(const char **name, Function *function) {
  ENTER(cuFuncGetName);
  LEAVE(name_of(name, function), "");
}

EXPORT CUresult cuKernelGetName(const char **name, Function *kernel) {
  ENTER(cuKernelGetName);
  LEAVE(name_of(name, kernel), "");
}

static CUresult parameter_of(const void *handle, size_t index, size_t *offset, size_t *size) {
  CUresult result = CUDA_ERROR_INVALID_HANDLE;
  if (!offset) return CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&cl_lock);
  Function *function = find_function(handle);
  if (function) {
    result = index < function->parameter_count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (!result) {
      *offset = function->parameters[index].offset;
      if (size) *size = function->parameters[index].size;
    }
  }
  pthread_mutex_unlock(&cl_lock);
  return result;
}

EXPORT CUresult cuFuncGetParamInfo(Function *function, size_t index, size_t *offset, size_t *size) {
  ENTER(cuFuncGetParamInfo);
  LEAVE(parameter_of(function, index, offset, size), ",\"index\":%zu", index);
}

EXPORT CUresult cuKernelGetParamInfo(Function *kernel, size_t index, size_t *offset, size_t *size) {
  ENTER(cuKernelGetParamInfo);
  LEAVE(parameter_of(kernel, index, offset, size), ",\"index\":%zu", index);
}

static CUresult parameter_count_of(const void *handle, size_t *count) {
  Function *function;
  if (!count) return CUDA_ERROR_INVALID_VALUE;
  LOCKED(function = find_function(handle));
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  *count = function->parameter_count;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuFuncGetParamCount(Function *function, size_t *count) {
  ENTER(cuFuncGetParamCount);
  LEAVE(parameter_count_of(function, count), "");
}

EXPORT CUresult cuKernelGetParamCount(Function *kernel, size_t *count) {
  ENTER(cuKernelGetParamCount);
  LEAVE(parameter_count_of(kernel, count), "");
}

EXPORT CUresult cuFuncGetModule(Module **module, Function *handle) {
  ENTER(cuFuncGetModule);
  if (!module) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  Function *function;
  LOCKED(function = find_function(handle));
  if (!function) LEAVE(CUDA_ERROR_INVALID_HANDLE, "");
  *module = module_handle(function->module);
  LEAVE(CUDA_SUCCESS, "");
}

EXPORT CUresult cuFuncIsLoaded(int *state, Function *function) {
  ENTER(cuFuncIsLoaded);
  if (!state) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  *state = 1;
  LEAVE(known_function(function), "");
}

EXPORT CUresult cuFuncLoad(Function *function) {
  ENTER(cuFuncLoad);
  LEAVE(known_function(function), "");
}

/* -- libraries -- */

enum { LIBRARY_OPTIONS = 2 }; /* a table of host functions, and whether the image outlives the library: nothing to do here */

static CUresult check_library_options(unsigned count, const int *keys, void *const *values) {
  if (count && (!keys || !values)) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned at = 0; at < count; at++)
    if (keys[at] < 0 || keys[at] >= LIBRARY_OPTIONS) return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuLibraryLoadData(Module **library, const void *data, int *jit_keys, void **jit_values, unsigned jit_count,
                                  int *keys, void **values, unsigned count) {
  ENTER(cuLibraryLoadData);
  CUresult result = check_library_options(count, keys, values);
  if (!result) result = load_with_options(load_library, library, data, jit_count, jit_keys, jit_values);
  LEAVE(result, ",\"options\":%u", jit_count);
}

EXPORT CUresult cuLibraryLoadFromFile(Module **library, const char *path, int *jit_keys, void **jit_values,
                                      unsigned jit_count, int *keys, void **values, unsigned count) {
  ENTER(cuLibraryLoadFromFile);
  void *data = NULL;
  size_t size;
  CUresult result = check_library_options(count, keys, values);
  if (!result) result = cl_read_file(path, &data, &size);
  if (!result) {
    result = load_with_options(load_library, library, data, jit_count, jit_keys, jit_values);
    free(data);
  }
  LEAVE(result, ",\"options\":%u", jit_count);
}

EXPORT CUresult cuLibraryUnload(Module *library) {
  ENTER(cuLibraryUnload);
  LEAVE(unload(library, LIBRARY_MAGIC), "");
}

EXPORT CUresult cuLibraryGetKernel(Function **out, Module *handle, const char *name) {
  ENTER(cuLibraryGetKernel);
  char text[160];
  if (!out || !name || !*name) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  CUresult result = CUDA_ERROR_INVALID_HANDLE;
  pthread_mutex_lock(&cl_lock);
  Module *library = find_module(handle, LIBRARY_MAGIC);
  if (library) {
    result = library->state;
    if (!result) {
      Function *kernel = function_in(library, name);
      if (kernel) *out = kernel;
      else result = CUDA_ERROR_NOT_FOUND;
    }
  }
  pthread_mutex_unlock(&cl_lock);
  LEAVE(result, ",\"name\":\"%s\"", cl_json(name, text, sizeof text));
}

EXPORT CUresult cuLibraryGetKernelCount(unsigned *count, Module *handle) {
  ENTER(cuLibraryGetKernelCount);
  if (!count) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  CUresult result = CUDA_ERROR_INVALID_HANDLE;
  pthread_mutex_lock(&cl_lock);
  Module *library = find_module(handle, LIBRARY_MAGIC);
  if (library) *count = library->state ? 0 : kernel_count(&library->elf), result = CUDA_SUCCESS;
  pthread_mutex_unlock(&cl_lock);
  LEAVE(result, "");
}

EXPORT CUresult cuLibraryEnumerateKernels(void **kernels, unsigned room, Module *handle) {
  ENTER(cuLibraryEnumerateKernels);
  if (!kernels) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  CUresult result = CUDA_ERROR_INVALID_HANDLE;
  pthread_mutex_lock(&cl_lock);
  Module *library = find_module(handle, LIBRARY_MAGIC);
  if (library) {
    result = library->state;
    if (!result) list_kernels(library, kernels, room);
  }
  pthread_mutex_unlock(&cl_lock);
  LEAVE(result, "");
}

EXPORT CUresult cuLibraryGetModule(Module **module, Module *handle) {
  ENTER(cuLibraryGetModule);
  if (!module) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  NEED_CONTEXT(context);
  Module *library;
  LOCKED(library = find_module(handle, LIBRARY_MAGIC));
  if (!library) LEAVE(CUDA_ERROR_INVALID_HANDLE, "");
  if (!library->on_device) *module = module_handle(library);
  LEAVE(library->on_device, "");
}

EXPORT CUresult cuLibraryGetGlobal(CUdeviceptr *address, size_t *size, Module *library, const char *name) {
  ENTER(cuLibraryGetGlobal);
  NEED_CONTEXT(context);
  LEAVE(global_of(library, LIBRARY_MAGIC, address, size, name, false), "");
}

EXPORT CUresult cuLibraryGetManaged(CUdeviceptr *address, size_t *size, Module *library, const char *name) {
  ENTER(cuLibraryGetManaged);
  NEED_CONTEXT(context);
  LEAVE(global_of(library, LIBRARY_MAGIC, address, size, name, true), "");
}

EXPORT CUresult cuKernelGetFunction(Function **function, Function *handle) {
  ENTER(cuKernelGetFunction);
  if (!function) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  NEED_CONTEXT(context);
  CUresult result = CUDA_ERROR_INVALID_HANDLE;
  pthread_mutex_lock(&cl_lock);
  Function *kernel = find_function(handle);
  if (kernel) {
    result = has_undefined(&kernel->module->elf) ? CUDA_ERROR_NOT_FOUND : kernel->module->on_device;
    if (!result) *function = kernel;
  }
  pthread_mutex_unlock(&cl_lock);
  LEAVE(result, "");
}

EXPORT CUresult cuKernelGetLibrary(Module **library, Function *handle) {
  ENTER(cuKernelGetLibrary);
  if (!library) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  Function *kernel;
  LOCKED(kernel = find_function(handle));
  if (!kernel) LEAVE(CUDA_ERROR_INVALID_HANDLE, "");
  *library = kernel->module;
  LEAVE(CUDA_SUCCESS, "");
}

/* -- launching: refused, with the reason -- */

#define NOT_EXECUTED ",\"note\":\"the emulated driver does not execute kernels\",\"kernel\":\"%s\""

static CUresult refuse_launch(Call *call, const void *handle, bool blocks, bool threads) {
  char text[160];
  Function *function;
  LOCKED(function = find_function(handle));
  CUresult result;
  cl_context(&result);
  if (result) return cl_leave(call, result, "%s", "");
  if (!function) return cl_leave(call, CUDA_ERROR_INVALID_HANDLE, "%s", "");
  if (!blocks || !threads) return cl_leave(call, CUDA_ERROR_INVALID_VALUE, "%s", "");
  return cl_leave(call, CUDA_ERROR_NOT_SUPPORTED, NOT_EXECUTED, cl_json(function->name, text, sizeof text));
}

EXPORT CUresult cuLaunchKernel(Function *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                               unsigned bz, unsigned shared, void *stream, void **parameters, void **extra) {
  ENTER(cuLaunchKernel);
  (void)shared, (void)stream, (void)parameters, (void)extra;
  return refuse_launch(&call, function, gx && gy && gz, bx && by && bz);
}

EXPORT CUresult cuLaunchCooperativeKernel(Function *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                                          unsigned by, unsigned bz, unsigned shared, void *stream, void **parameters) {
  ENTER(cuLaunchCooperativeKernel);
  (void)shared, (void)stream, (void)parameters;
  return refuse_launch(&call, function, gx && gy && gz, bx && by && bz);
}

EXPORT CUresult cuLaunchKernelEx(const unsigned *config, Function *function, void **parameters, void **extra) {
  ENTER(cuLaunchKernelEx);
  (void)parameters, (void)extra;
  if (!config) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  return refuse_launch(&call, function, config[0] && config[1] && config[2], config[3] && config[4] && config[5]);
}
