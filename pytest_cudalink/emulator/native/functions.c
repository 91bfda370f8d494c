/* Functions and kernels of modules; they are not executed. */
#define _GNU_SOURCE
#include "functions.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"
#include "contexts.h"
#include "devices.h"
#include "events.h"

enum { STT_OBJECT = 1, STT_FUNC = 2, STT_NV_OBJECT = 13, STB_GLOBAL = 1, STO_ENTRY = 0x10 };

enum { INFO_SIZED = 4 }; /* the form of an entry with bytes of its own length */
enum { INFO_MAX_THREADS = 0x05, INFO_FRAME_SIZE = 0x11, INFO_KPARAM = 0x17, INFO_REGCOUNT = 0x2f };

/* Reads one section; false if memory is out. */
static bool read_info(Function *function, const ElfSection *section, bool own) {
  const uint8_t *at = cl_elf_bytes(&function->module->elf, section), *end = at ? at + section->size : NULL;
  while (at && end - at >= 4) {
    uint8_t form = at[0], attribute = at[1];
    size_t size = form == INFO_SIZED ? (size_t)cl_little(at + 2, 2) : 0;
    at += 4;
    if (size > (size_t)(end - at)) return true;
    if (own && attribute == INFO_MAX_THREADS && size >= 12)
      function->max_threads = (int)(cl_little(at, 4) * cl_little(at + 4, 4) * cl_little(at + 8, 4));
    else if (own && attribute == INFO_KPARAM && size >= 12) {
      size_t ordinal = (size_t)cl_little(at + 4, 2);
      if (ordinal >= function->parameter_count) {
        void *grown = realloc(function->parameters, (ordinal + 1) * sizeof *function->parameters);
        if (!grown) return false;
        function->parameters = grown;
        memset(function->parameters + function->parameter_count, 0,
               (ordinal + 1 - function->parameter_count) * sizeof *function->parameters);
        function->parameter_count = ordinal + 1;
      }
      function->parameters[ordinal].offset = (size_t)cl_little(at + 6, 2);
      function->parameters[ordinal].size = (size_t)(cl_little(at + 8, 4) >> 18);
    } else if (!own && size >= 8 && cl_little(at, 4) == function->symbol) {
      if (attribute == INFO_REGCOUNT) function->registers = (int)cl_little(at + 4, 4);
      if (attribute == INFO_FRAME_SIZE) function->local = (int)cl_little(at + 4, 4);
    }
    at += size;
  }
  return true;
}

enum { RESERVED_SHARED = 1024, FIRST_ARCH_WITH_RESERVE = 90, DEFAULT_SHARED = 49152, DEFAULT_THREADS = 1024 };

static bool named(const char *section, const char *prefix, const char *function) {
  size_t length = strlen(prefix);
  return !strncmp(section, prefix, length) && !strcmp(section + length, function);
}

/* What the image says of a function: read once, when its handle is made. False if memory is out. */
static bool read_attributes(Function *function) {
  const Elf *elf = &function->module->elf;
  ElfSection section;
  function->max_threads = DEFAULT_THREADS;
  function->carveout = -1;
  for (uint32_t at = 1; cl_elf_section(elf, at, &section); at++) {
    bool of_all = !strcmp(section.name, ".nv.info"), own = named(section.name, ".nv.info.", function->name);
    if ((of_all || own) && !read_info(function, &section, own)) return false;
    if (!strcmp(section.name, ".nv.constant3")) function->constant = (int)section.size;
    else if (named(section.name, ".text.", function->name) && !function->registers)
      function->registers = (int)(section.info >> 24);
    else if (named(section.name, ".nv.shared.", function->name)) {
      uint64_t reserve =
          cl_elf_arch(elf) >= FIRST_ARCH_WITH_RESERVE && section.size >= RESERVED_SHARED ? RESERVED_SHARED : 0;
      function->shared = (int)(section.size - reserve);
    }
  }
  function->max_dynamic_shared = DEFAULT_SHARED - function->shared;
  return true;
}

bool cl_has_undefined(const Elf *elf) {
  ElfSymbol symbol;
  for (uint32_t at = 1; cl_elf_symbol(elf, at, &symbol); at++)
    if (!symbol.section && symbol.info >> 4 == STB_GLOBAL && *symbol.name && strncmp(symbol.name, ".nv.", 4))
      return true;
  return false;
}

uint32_t cl_image_symbol(const Elf *elf, const char *name, bool function) {
  ElfSymbol symbol;
  for (uint32_t at = 1; cl_elf_symbol(elf, at, &symbol); at++) {
    int type = symbol.info & 15;
    bool fits = function ? type == STT_FUNC : type == STT_OBJECT || type == STT_NV_OBJECT;
    if (fits && symbol.section && !strcmp(symbol.name, name)) return at;
  }
  return 0;
}

CUresult cl_function_in(Module *module, const char *name, Function **out) {
  for (Function *known = module->functions; known; known = known->next)
    if (!strcmp(known->name, name)) {
      *out = known;
      return CUDA_SUCCESS;
    }
  uint32_t symbol = cl_image_symbol(&module->elf, name, true);
  if (!symbol) return CUDA_ERROR_NOT_FOUND;
  Function *function = calloc(1, sizeof *function);
  if (!function) return CUDA_ERROR_OUT_OF_MEMORY;
  function->module = module;
  function->name = strdup(name);
  function->symbol = symbol;
  if (!function->name || !read_attributes(function)) {
    cl_free_function(function);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  function->next = module->functions;
  module->functions = function;
  *out = function;
  return CUDA_SUCCESS;
}

unsigned cl_kernel_count(const Elf *elf) {
  unsigned count = 0;
  ElfSymbol symbol;
  for (uint32_t at = 1; cl_elf_symbol(elf, at, &symbol); at++)
    count += (symbol.info & 15) == STT_FUNC && symbol.section && symbol.other & STO_ENTRY;
  return count;
}

CUresult cl_list_kernels(Module *module, void **out, unsigned room) {
  unsigned count = 0;
  ElfSymbol symbol;
  for (uint32_t at = 1; cl_elf_symbol(&module->elf, at, &symbol) && count < room; at++) {
    if ((symbol.info & 15) != STT_FUNC || !symbol.section || !(symbol.other & STO_ENTRY)) continue;
    Function *kernel;
    CUresult result = cl_function_in(module, symbol.name, &kernel);
    if (result) return result;
    out[count++] = kernel;
  }
  return CUDA_SUCCESS;
}

/* -- attributes -- */

/* CUfunction_attribute of cuda.h. */
enum {
  ATTRIBUTE_MAX_THREADS,
  ATTRIBUTE_SHARED,
  ATTRIBUTE_CONSTANT,
  ATTRIBUTE_LOCAL,
  ATTRIBUTE_REGISTERS,
  ATTRIBUTE_PTX_VERSION,
  ATTRIBUTE_BINARY_VERSION,
  ATTRIBUTE_CACHE_MODE,
  ATTRIBUTE_MAX_DYNAMIC_SHARED,
  ATTRIBUTE_CARVEOUT,
  ATTRIBUTE_CLUSTER_MUST_BE_SET,
  ATTRIBUTE_CLUSTER_WIDTH,
  ATTRIBUTE_CLUSTER_HEIGHT,
  ATTRIBUTE_CLUSTER_DEPTH,
  ATTRIBUTE_NON_PORTABLE_CLUSTER,
  ATTRIBUTE_CLUSTER_POLICY,
};

static CUresult attribute_of(const Function *function, int attribute, int *value) {
  int arch = cl_elf_arch(&function->module->elf);
  switch (attribute) {
    case ATTRIBUTE_MAX_THREADS: *value = function->max_threads; break;
    case ATTRIBUTE_SHARED: *value = function->shared; break;
    case ATTRIBUTE_CONSTANT: *value = function->constant; break;
    case ATTRIBUTE_LOCAL: *value = function->local; break;
    case ATTRIBUTE_REGISTERS: *value = function->registers; break;
    case ATTRIBUTE_PTX_VERSION:
    case ATTRIBUTE_BINARY_VERSION: *value = arch; break;
    case ATTRIBUTE_MAX_DYNAMIC_SHARED: *value = function->max_dynamic_shared; break;
    case ATTRIBUTE_CARVEOUT: *value = function->carveout; break;
    default:
      if (attribute < 0 || attribute > ATTRIBUTE_CLUSTER_POLICY) return CUDA_ERROR_INVALID_VALUE;
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
  } else if (attribute < ATTRIBUTE_CLUSTER_MUST_BE_SET || attribute > ATTRIBUTE_NON_PORTABLE_CLUSTER)
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

/* Finds a function and keeps the lock of the modules; NULL without it. */
static Function *lock_function(const void *handle) {
  pthread_mutex_lock(&cl_modules_lock);
  Function *function = cl_find_function(handle);
  if (!function) pthread_mutex_unlock(&cl_modules_lock);
  return function;
}

static void unlock_function(void) { pthread_mutex_unlock(&cl_modules_lock); }

static CUresult get_attribute_of(const void *handle, int attribute, int *value) {
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  const Function *function = lock_function(handle);
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  CUresult result = attribute_of(function, attribute, value);
  unlock_function();
  return result;
}

static CUresult set_attribute_of(const void *handle, int attribute, int value) {
  Function *function = lock_function(handle);
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  CUresult result = set_attribute(function, attribute, value);
  unlock_function();
  return result;
}

static CUresult func_get_attribute(EventLine *line, int *value, int attribute, Function *function) {
  cl_event_int(line, "attribute", attribute);
  return get_attribute_of(function, attribute, value);
}
EXPORTED(cuFuncGetAttribute, (int *value, int attribute, Function *function),
         func_get_attribute(line, value, attribute, function))

static CUresult func_set_attribute(EventLine *line, Function *function, int attribute, int value) {
  cl_event_int(line, "attribute", attribute);
  cl_event_int(line, "value", value);
  return set_attribute_of(function, attribute, value);
}
EXPORTED(cuFuncSetAttribute, (Function *function, int attribute, int value),
         func_set_attribute(line, function, attribute, value))

static CUresult kernel_get_attribute(EventLine *line, int *value, int attribute, Function *kernel, CUdevice device) {
  if (!cl_is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  cl_event_int(line, "attribute", attribute);
  return get_attribute_of(kernel, attribute, value);
}
EXPORTED(cuKernelGetAttribute, (int *value, int attribute, Function *kernel, CUdevice device),
         kernel_get_attribute(line, value, attribute, kernel, device))

static CUresult kernel_set_attribute(EventLine *line, int attribute, int value, Function *kernel, CUdevice device) {
  if (!cl_is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  cl_event_int(line, "attribute", attribute);
  cl_event_int(line, "value", value);
  return set_attribute_of(kernel, attribute, value);
}
EXPORTED(cuKernelSetAttribute, (int attribute, int value, Function *kernel, CUdevice device),
         kernel_set_attribute(line, attribute, value, kernel, device))

static CUresult known_function(const void *handle) {
  if (!lock_function(handle)) return CUDA_ERROR_INVALID_HANDLE;
  unlock_function();
  return CUDA_SUCCESS;
}

enum { CACHE_CONFIGS = 4, SHARED_CONFIGS = 3 }; /* CUfunc_cache, CUsharedconfig */

static CUresult set_config(const void *handle, int config, int configs) {
  return config < 0 || config >= configs ? CUDA_ERROR_INVALID_VALUE : known_function(handle);
}
EXPORTED(cuFuncSetCacheConfig, (Function *function, int config), set_config(function, config, CACHE_CONFIGS))
EXPORTED(cuFuncSetSharedMemConfig, (Function *function, int config), set_config(function, config, SHARED_CONFIGS))
EXPORTED(cuKernelSetCacheConfig, (Function *kernel, int config, CUdevice device),
         set_config(kernel, config, CACHE_CONFIGS))

static CUresult name_of(const char **name, const void *handle) {
  if (!name) return CUDA_ERROR_INVALID_VALUE;
  const Function *function = lock_function(handle);
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  *name = function->name;
  unlock_function();
  return CUDA_SUCCESS;
}
EXPORTED(cuFuncGetName, (const char **name, Function *function), name_of(name, function))
EXPORTED(cuKernelGetName, (const char **name, Function *kernel), name_of(name, kernel))

static CUresult parameter_of(const void *handle, size_t index, size_t *offset, size_t *size) {
  if (!offset) return CUDA_ERROR_INVALID_VALUE;
  const Function *function = lock_function(handle);
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  CUresult result = index < function->parameter_count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  if (!result) {
    *offset = function->parameters[index].offset;
    if (size) *size = function->parameters[index].size;
  }
  unlock_function();
  return result;
}

static CUresult func_get_param_info(EventLine *line, Function *function, size_t index, size_t *offset, size_t *size) {
  cl_event_uint(line, "index", index);
  return parameter_of(function, index, offset, size);
}
EXPORTED(cuFuncGetParamInfo, (Function *function, size_t index, size_t *offset, size_t *size),
         func_get_param_info(line, function, index, offset, size))

static CUresult kernel_get_param_info(EventLine *line, Function *kernel, size_t index, size_t *offset, size_t *size) {
  cl_event_uint(line, "index", index);
  return parameter_of(kernel, index, offset, size);
}
EXPORTED(cuKernelGetParamInfo, (Function *kernel, size_t index, size_t *offset, size_t *size),
         kernel_get_param_info(line, kernel, index, offset, size))

static CUresult parameter_count_of(const void *handle, size_t *count) {
  if (!count) return CUDA_ERROR_INVALID_VALUE;
  const Function *function = lock_function(handle);
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  *count = function->parameter_count;
  unlock_function();
  return CUDA_SUCCESS;
}

EXPORTED(cuFuncGetParamCount, (Function *function, size_t *count), parameter_count_of(function, count))
EXPORTED(cuKernelGetParamCount, (Function *kernel, size_t *count), parameter_count_of(kernel, count))

static CUresult func_get_module(Module **module, Function *handle) {
  if (!module) return CUDA_ERROR_INVALID_VALUE;
  const Function *function = lock_function(handle);
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  *module = cl_module_handle(function->module);
  unlock_function();
  return CUDA_SUCCESS;
}
EXPORTED(cuFuncGetModule, (Module **module, Function *handle), func_get_module(module, handle))

static CUresult func_is_loaded(int *state, Function *function) {
  if (!state) return CUDA_ERROR_INVALID_VALUE;
  *state = 1;
  return known_function(function);
}
EXPORTED(cuFuncIsLoaded, (int *state, Function *function), func_is_loaded(state, function))
EXPORTED(cuFuncLoad, (Function *function), known_function(function))

/* -- kernels -- */

static CUresult kernel_get_function(Function **function, Function *handle) {
  if (!function) return CUDA_ERROR_INVALID_VALUE;
  CUresult state = cl_check_context();
  if (state) return state;
  Function *kernel = lock_function(handle);
  if (!kernel) return CUDA_ERROR_INVALID_HANDLE;
  CUresult result = cl_has_undefined(&kernel->module->elf) ? CUDA_ERROR_NOT_FOUND : kernel->module->on_device;
  if (!result) *function = kernel;
  unlock_function();
  return result;
}
EXPORTED(cuKernelGetFunction, (Function **function, Function *handle), kernel_get_function(function, handle))

static CUresult kernel_get_library(Module **library, Function *handle) {
  if (!library) return CUDA_ERROR_INVALID_VALUE;
  const Function *kernel = lock_function(handle);
  if (!kernel) return CUDA_ERROR_INVALID_HANDLE;
  *library = kernel->module;
  unlock_function();
  return CUDA_SUCCESS;
}
EXPORTED(cuKernelGetLibrary, (Module **library, Function *handle), kernel_get_library(library, handle))

/* -- launching: refused, with the reason -- */

enum { NAME_ROOM = 160 }; /* of a name in an event */

static CUresult refuse_launch(EventLine *line, const void *handle, bool blocks, bool threads) {
  CUresult result = cl_check_context();
  if (result) return result;
  const Function *function = lock_function(handle);
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  if (blocks && threads) cl_event_text(line, "kernel", function->name, NAME_ROOM);
  unlock_function();
  if (!blocks || !threads) return CUDA_ERROR_INVALID_VALUE;
  return cl_unsupported(line, "the emulated driver does not execute kernels");
}
EXPORTED(cuLaunchKernel,
         (Function *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
          unsigned shared, void *stream, void **parameters, void **extra),
         refuse_launch(line, function, gx && gy && gz, bx && by && bz))
EXPORTED(cuLaunchCooperativeKernel,
         (Function *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
          unsigned shared, void *stream, void **parameters),
         refuse_launch(line, function, gx && gy && gz, bx && by && bz))

static CUresult launch_with(EventLine *line, const unsigned *config, Function *function) {
  if (!config) return CUDA_ERROR_INVALID_VALUE;
  return refuse_launch(line, function, config[0] && config[1] && config[2], config[3] && config[4] && config[5]);
}
EXPORTED(cuLaunchKernelEx, (const unsigned *config, Function *function, void **parameters, void **extra),
         launch_with(line, config, function))
