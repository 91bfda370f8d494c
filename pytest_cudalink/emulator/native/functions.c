/* Functions and kernels of modules; they are not executed. */
#define _GNU_SOURCE
#include "functions.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"
#include "config.h"
#include "contexts.h"
#include "devices.h"
#include "events.h"

enum { STT_OBJECT = 1, STT_FUNC = 2, STT_NV_OBJECT = 13, STB_GLOBAL = 1, STO_ENTRY = 0x10 };

enum { INFO_MAX_THREADS = 0x05, INFO_FRAME_SIZE = 0x11, INFO_KPARAM = 0x17, INFO_REGCOUNT = 0x2f };

/* Reads one section; false if memory is out. */
static bool read_info(Function *function, const ElfSection *section, bool own) {
  const uint8_t *at = cl_elf_bytes(&function->module->elf, section), *end = at ? at + section->size : NULL;
  while (at && end - at >= 4) {
    uint8_t form = at[0], attribute = at[1];
    size_t size = form == 4 ? (size_t)cl_little(at + 2, 2) : 0;
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
    else if (named(section.name, ".text.", function->name) && !function->registers) function->registers = (int)(section.info >> 24);
    else if (named(section.name, ".nv.shared.", function->name)) {
      uint64_t reserve = cl_elf_arch(elf) >= FIRST_ARCH_WITH_RESERVE && section.size >= RESERVED_SHARED ? RESERVED_SHARED : 0;
      function->shared = (int)(section.size - reserve);
    }
  }
  function->max_dynamic_shared = DEFAULT_SHARED - function->shared;
  return true;
}

bool cl_has_undefined(const Elf *elf) {
  ElfSymbol symbol;
  for (uint32_t at = 1; cl_elf_symbol(elf, at, &symbol); at++)
    if (!symbol.section && symbol.info >> 4 == STB_GLOBAL && *symbol.name && strncmp(symbol.name, ".nv.", 4)) return true;
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
  if (!lock_function(handle)) return CUDA_ERROR_INVALID_HANDLE;
  unlock_function();
  return CUDA_SUCCESS;
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
  const Function *function = lock_function(handle);
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  *name = function->name;
  unlock_function();
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

EXPORT CUresult cuFuncGetParamInfo(Function *function, size_t index, size_t *offset, size_t *size) {
  ENTER(cuFuncGetParamInfo);
  LEAVE(parameter_of(function, index, offset, size), ",\"index\":%zu", index);
}

EXPORT CUresult cuKernelGetParamInfo(Function *kernel, size_t index, size_t *offset, size_t *size) {
  ENTER(cuKernelGetParamInfo);
  LEAVE(parameter_of(kernel, index, offset, size), ",\"index\":%zu", index);
}

static CUresult parameter_count_of(const void *handle, size_t *count) {
  if (!count) return CUDA_ERROR_INVALID_VALUE;
  const Function *function = lock_function(handle);
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  *count = function->parameter_count;
  unlock_function();
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
  const Function *function = lock_function(handle);
  if (!function) LEAVE(CUDA_ERROR_INVALID_HANDLE, "");
  *module = cl_module_handle(function->module);
  unlock_function();
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

/* -- kernels -- */

EXPORT CUresult cuKernelGetFunction(Function **function, Function *handle) {
  ENTER(cuKernelGetFunction);
  if (!function) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  NEED_CONTEXT(context);
  Function *kernel = lock_function(handle);
  if (!kernel) LEAVE(CUDA_ERROR_INVALID_HANDLE, "");
  CUresult result = cl_has_undefined(&kernel->module->elf) ? CUDA_ERROR_NOT_FOUND : kernel->module->on_device;
  if (!result) *function = kernel;
  unlock_function();
  LEAVE(result, "");
}

EXPORT CUresult cuKernelGetLibrary(Module **library, Function *handle) {
  ENTER(cuKernelGetLibrary);
  if (!library) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  const Function *kernel = lock_function(handle);
  if (!kernel) LEAVE(CUDA_ERROR_INVALID_HANDLE, "");
  *library = kernel->module;
  unlock_function();
  LEAVE(CUDA_SUCCESS, "");
}

/* -- launching: refused, with the reason -- */

#define NOT_EXECUTED ",\"note\":\"the emulated driver does not execute kernels\",\"kernel\":\"%s\""

static CUresult refuse_launch(Call *call, const void *handle, bool blocks, bool threads) {
  char text[160] = "";
  CUresult result;
  cl_context(&result);
  const Function *function = lock_function(handle);
  if (function) {
    cl_json(function->name, text, sizeof text);
    unlock_function();
  }
  if (result) return cl_leave(call, result, "%s", "");
  if (!function) return cl_leave(call, CUDA_ERROR_INVALID_HANDLE, "%s", "");
  if (!blocks || !threads) return cl_leave(call, CUDA_ERROR_INVALID_VALUE, "%s", "");
  return cl_leave(call, CUDA_ERROR_NOT_SUPPORTED, NOT_EXECUTED, text);
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
