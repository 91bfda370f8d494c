/* cuModule* and cuLibrary*: images are read and compiled for real. */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "abi.h"
#include "calls.h"
#include "contexts.h"
#include "events.h"
#include "functions.h"
#include "image.h"
#include "memory.h"
#include "module_image.h"

/* -- loading and unloading -- */

static CUresult load_module_with_options(Module **out, const void *data, unsigned count, const int *keys, void **values) {
  CUresult result;
  cl_context(&result);
  if (!out || !data) return CUDA_ERROR_INVALID_VALUE;
  return result ? result : cl_load_with_options(cl_load_module, out, data, count, keys, values);
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

EXPORT CUresult cuModuleUnload(Module *module) {
  ENTER(cuModuleUnload);
  LEAVE(cl_unload(module, MODULE_MAGIC), "");
}

EXPORT CUresult cuModuleGetLoadingMode(int *mode) {
  ENTER(cuModuleGetLoadingMode);
  if (!mode) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  const char *wanted = getenv("CUDA_MODULE_LOADING");
  *mode = wanted && !strcmp(wanted, "EAGER") ? 1 : 2;
  LEAVE(CUDA_SUCCESS, "");
}

/* -- functions -- */

EXPORT CUresult cuModuleGetFunction(Function **out, Module *handle, const char *name) {
  ENTER(cuModuleGetFunction);
  char text[160];
  if (!out || !name || !*name) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  NEED_CONTEXT(context);
  CUresult result = CUDA_ERROR_INVALID_HANDLE;
  pthread_mutex_lock(&cl_modules_lock);
  Module *module = cl_find_module(handle, MODULE_MAGIC);
  if (module) result = cl_has_undefined(&module->elf) ? CUDA_ERROR_NOT_FOUND : cl_function_in(module, name, out);
  pthread_mutex_unlock(&cl_modules_lock);
  LEAVE(result, ",\"name\":\"%s\"", cl_json(name, text, sizeof text));
}

EXPORT CUresult cuModuleGetFunctionCount(unsigned *count, Module *handle) {
  ENTER(cuModuleGetFunctionCount);
  if (!count) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  CUresult result = CUDA_ERROR_INVALID_HANDLE;
  pthread_mutex_lock(&cl_modules_lock);
  Module *module = cl_find_module(handle, MODULE_MAGIC);
  if (module) *count = cl_kernel_count(&module->elf), result = CUDA_SUCCESS;
  pthread_mutex_unlock(&cl_modules_lock);
  LEAVE(result, "");
}

EXPORT CUresult cuModuleEnumerateFunctions(void **functions, unsigned room, Module *handle) {
  ENTER(cuModuleEnumerateFunctions);
  if (!functions) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  CUresult result = CUDA_ERROR_INVALID_HANDLE;
  pthread_mutex_lock(&cl_modules_lock);
  Module *module = cl_find_module(handle, MODULE_MAGIC);
  if (module) result = cl_list_kernels(module, functions, room);
  pthread_mutex_unlock(&cl_modules_lock);
  LEAVE(result, "");
}

/* -- variables -- */

enum { STT_OBJECT = 1, STT_NV_OBJECT = 13, STO_MANAGED = 0x04 };

static bool is_managed(const Elf *elf, const char *name) {
  ElfSymbol symbol;
  return cl_elf_symbol(elf, cl_image_symbol(elf, name, false), &symbol) && symbol.other & STO_MANAGED;
}

static CUresult get_global(Module *module, const char *name, CUdeviceptr *address, size_t *size) {
  Global *global;
  if (cl_image_symbol(&module->elf, name, true)) return CUDA_ERROR_INVALID_VALUE; /* the name of a kernel (measured) */
  uint32_t index = cl_image_symbol(&module->elf, name, false);
  if (!index) return CUDA_ERROR_NOT_FOUND;
  for (global = module->globals; global && global->symbol != index; global = global->next) {}
  if (address) *address = global ? global->address : 0;
  if (size && global) *size = global->size;
  return global && global->address ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Gives every variable its memory, with its initial value. */
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

static CUresult global_of(Module *handle, uint32_t magic, CUdeviceptr *address, size_t *size, const char *name, bool managed) {
  if (!name || !*name || (!address && !size)) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = CUDA_ERROR_INVALID_HANDLE;
  pthread_mutex_lock(&cl_modules_lock);
  Module *module = cl_find_module(handle, magic);
  if (module) {
    result = module->on_device;
    if (!result && managed && !is_managed(&module->elf, name)) result = CUDA_ERROR_NOT_FOUND; /* kernels too (measured) */
    if (!result) {
      place_globals(module);
      result = get_global(module, name, address, size);
    }
  }
  pthread_mutex_unlock(&cl_modules_lock);
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
  if (!result) result = cl_load_with_options(cl_load_library, library, data, jit_count, jit_keys, jit_values);
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
    result = cl_load_with_options(cl_load_library, library, data, jit_count, jit_keys, jit_values);
    free(data);
  }
  LEAVE(result, ",\"options\":%u", jit_count);
}

EXPORT CUresult cuLibraryUnload(Module *library) {
  ENTER(cuLibraryUnload);
  LEAVE(cl_unload(library, LIBRARY_MAGIC), "");
}

EXPORT CUresult cuLibraryGetKernel(Function **out, Module *handle, const char *name) {
  ENTER(cuLibraryGetKernel);
  char text[160];
  if (!out || !name || !*name) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  CUresult result = CUDA_ERROR_INVALID_HANDLE;
  pthread_mutex_lock(&cl_modules_lock);
  Module *library = cl_find_module(handle, LIBRARY_MAGIC);
  if (library) {
    result = library->state;
    if (!result) result = cl_function_in(library, name, out);
  }
  pthread_mutex_unlock(&cl_modules_lock);
  LEAVE(result, ",\"name\":\"%s\"", cl_json(name, text, sizeof text));
}

EXPORT CUresult cuLibraryGetKernelCount(unsigned *count, Module *handle) {
  ENTER(cuLibraryGetKernelCount);
  if (!count) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  CUresult result = CUDA_ERROR_INVALID_HANDLE;
  pthread_mutex_lock(&cl_modules_lock);
  Module *library = cl_find_module(handle, LIBRARY_MAGIC);
  if (library) *count = library->state ? 0 : cl_kernel_count(&library->elf), result = CUDA_SUCCESS;
  pthread_mutex_unlock(&cl_modules_lock);
  LEAVE(result, "");
}

EXPORT CUresult cuLibraryEnumerateKernels(void **kernels, unsigned room, Module *handle) {
  ENTER(cuLibraryEnumerateKernels);
  if (!kernels) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  CUresult result = CUDA_ERROR_INVALID_HANDLE;
  pthread_mutex_lock(&cl_modules_lock);
  Module *library = cl_find_module(handle, LIBRARY_MAGIC);
  if (library) {
    result = library->state;
    if (!result) result = cl_list_kernels(library, kernels, room);
  }
  pthread_mutex_unlock(&cl_modules_lock);
  LEAVE(result, "");
}

EXPORT CUresult cuLibraryGetModule(Module **module, Module *handle) {
  ENTER(cuLibraryGetModule);
  if (!module) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  NEED_CONTEXT(context);
  CUresult result = CUDA_ERROR_INVALID_HANDLE;
  pthread_mutex_lock(&cl_modules_lock);
  Module *library = cl_find_module(handle, LIBRARY_MAGIC);
  if (library) {
    result = library->on_device;
    if (!result) *module = cl_module_handle(library);
  }
  pthread_mutex_unlock(&cl_modules_lock);
  LEAVE(result, "");
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
