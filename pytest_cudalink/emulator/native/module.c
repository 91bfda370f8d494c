/* cuModule* and cuLibrary*: images are read and compiled for real. */
#include <stdlib.h>

#include "blocks.h"
#include "kernels.h"
#include "locks.h"

enum { NAME_ROOM = 160 }; /* of a name in an event */

/* -- loading and unloading -- */

static CUresult load_module_with_options(Module **out, const void *data, unsigned count, const int *keys,
                                         void **values) {
  CUresult result = cl_check_context();
  return result ? result : cl_load_with_options(cl_load_module, out, data, count, keys, values);
}

static CUresult load_plainly(Module **out, const void *data) {
  return load_module_with_options(out, data, 0, NULL, NULL);
}

EXPORTED(cuModuleLoadData, (Module **module, const void *data), load_plainly(module, data))
EXPORTED(cuModuleLoadFatBinary, (Module **module, const void *data), load_plainly(module, data))

API(cuModuleLoad, (Module **module, const char *path), (module, path)) {
  void *data = NULL;
  size_t size;
  TRY(cl_check_context());
  if (!module) return CUDA_ERROR_INVALID_VALUE;
  TRY(cl_read_file(path, &data, &size));
  CUresult result = load_plainly(module, data);
  free(data);
  return result;
}

EXPORTED(cuModuleLoadDataEx, (Module **module, const void *data, unsigned count, int *keys, void **values),
         (cl_event_uint(line, "options", count), load_module_with_options(module, data, count, keys, values)))
EXPORTED(cuModuleUnload, (Module *module), cl_unload(module, HANDLE_MODULE))

API(cuModuleGetLoadingMode, (int *mode), (mode)) {
  if (!mode) return CUDA_ERROR_INVALID_VALUE;
  *mode = cl_loads_eagerly() ? CU_MODULE_EAGER_LOADING : CU_MODULE_LAZY_LOADING;
  return CUDA_SUCCESS;
}

/* -- functions: a module knows its context, and needs no current one (measured: programs/core) -- */

/* Finds a module or a library, and holds the lock until the block ends; returns from the function if there is none. */
#define FIND(module, handle, kind)                     \
  HOLD(cl_modules_lock);                               \
  Module *const module = cl_find_module(handle, kind); \
  if (!(module)) return CUDA_ERROR_INVALID_HANDLE

API(cuModuleGetFunction, (Function **out, Module *handle, const char *name), (out, handle, name)) {
  if (!handle) return CUDA_ERROR_INVALID_HANDLE;
  if (!out || !name || !*name) return CUDA_ERROR_INVALID_VALUE;
  cl_event_text(line, "name", name, NAME_ROOM);
  FIND(module, handle, HANDLE_MODULE);
  if (cl_has_undefined(&module->elf)) return CUDA_ERROR_NOT_FOUND;
  Function *function;
  TRY(cl_function_in(module, name, &function));
  function->loaded = true; /* at the latest (measured: programs/core) */
  *out = function;
  return CUDA_SUCCESS;
}

/* what has no place or no handle is refused before cuInit (measured: programs/core) */
API_CHECKED(cl_refuse_nulls(count, handle), cuModuleGetFunctionCount, (unsigned *count, Module *handle),
            (count, handle)) {
  FIND(module, handle, HANDLE_MODULE);
  *count = cl_kernel_count(&module->elf);
  return CUDA_SUCCESS;
}

API_CHECKED(cl_refuse_nulls(functions, handle), cuModuleEnumerateFunctions,
            (void **functions, unsigned room, Module *handle), (functions, room, handle)) {
  FIND(module, handle, HANDLE_MODULE);
  return cl_list_kernels(module, functions, room);
}

/* -- variables -- */

enum { STT_OBJECT = 1, STT_NV_OBJECT = 13, STO_MANAGED = 0x04 };

static bool is_managed(const Elf *elf, const char *name) {
  ElfSymbol symbol;
  return cl_elf_symbol(elf, cl_image_symbol(elf, name, false), &symbol) && symbol.other & STO_MANAGED;
}

static CUresult get_global(Module *module, const char *name, CUdeviceptr *address, size_t *size) {
  Global *global;
  /* the name of a kernel (measured: programs/core) */
  if (cl_image_symbol(&module->elf, name, true)) return CUDA_ERROR_INVALID_VALUE;
  uint32_t index = cl_image_symbol(&module->elf, name, false);
  if (!index) return CUDA_ERROR_NOT_FOUND;
  for (global = module->globals; global && global->symbol != index; global = global->next) {}
  if (address) *address = global ? global->address : 0;
  if (size && global) *size = global->size;
  return global && global->address ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Whether a module has a variable: a managed one is of a library, the same in all contexts, and the others are not. */
static bool has_variable(const Module *module, const ElfSymbol *symbol) {
  return symbol->other & STO_MANAGED ? !module->library : module->head.kind != HANDLE_LIBRARY;
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
    if (!has_variable(module, &symbol)) continue;
    if (!cl_elf_section(&module->elf, symbol.section, &section)) continue;
    if (strncmp(section.name, ".nv.global", 10) && strncmp(section.name, ".nv.constant", 12)) continue;
    Global *global = calloc(1, sizeof *global);
    if (!global) return;
    global->symbol = at;
    global->size = symbol.size;
    global->address = cl_allocate(symbol.size, symbol.other & STO_MANAGED ? MANAGED : ON_DEVICE, module->head.context);
    const uint8_t *bytes = cl_elf_bytes(&module->elf, &section);
    if (global->address && bytes && symbol.value <= section.size && symbol.size <= section.size - symbol.value)
      cl_memory_write(global->address, bytes + symbol.value, symbol.size);
    global->next = module->globals;
    module->globals = global;
  }
}

static CUresult global_of(Module *module, CUdeviceptr *address, size_t *size, const char *name) {
  if (module->library && is_managed(&module->elf, name)) module = module->library;
  place_globals(module);
  return get_global(module, name, address, size);
}

API(cuModuleGetGlobal_v2, (CUdeviceptr *address, size_t *size, Module *handle, const char *name),
    (address, size, handle, name)) {
  if (!handle) return CUDA_ERROR_INVALID_HANDLE;
  if (!name || (!address && !size)) return CUDA_ERROR_INVALID_VALUE;
  HOLD(cl_modules_lock);
  Module *module = cl_find_module(handle, HANDLE_MODULE);
  if (module && size) *size = 0; /* what is refused has none (measured: edges/modules_more) */
  if (!*name) return CUDA_ERROR_INVALID_VALUE;
  return module ? global_of(module, address, size, name) : CUDA_ERROR_INVALID_HANDLE;
}

/* -- references to textures and surfaces: compilers of CUDA 12 and later make none -- */

static CUresult get_reference(const void *out, const Module *handle, const char *name) {
  if (!handle) return CUDA_ERROR_INVALID_HANDLE;
  if (!out || !name || !*name) return CUDA_ERROR_INVALID_VALUE;
  FIND(module, handle, HANDLE_MODULE);
  return CUDA_ERROR_NOT_FOUND;
}
EXPORTED(cuModuleGetTexRef, (void **reference, Module *module, const char *name),
         get_reference(reference, module, name))
EXPORTED(cuModuleGetSurfRef, (void **reference, Module *module, const char *name),
         get_reference(reference, module, name))

/* -- libraries -- */

/* A table of host functions, and whether the image outlives the library: nothing to do here. */
enum { LIBRARY_OPTIONS = 2 };

static CUresult check_library_options(unsigned count, const int *keys, void *const *values, bool of_file) {
  if (count > LIBRARY_OPTIONS || (count && (!keys || !values))) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned at = 0; at < count; at++)
    if (keys[at] < 0 || keys[at] >= LIBRARY_OPTIONS ||
        (keys[at] == CU_LIBRARY_BINARY_IS_PRESERVED ? of_file : !of_file && !values[at])) /* a driver dies of it */
      return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

API_WHEN(library != NULL, cuLibraryLoadData,
         (Module **library, const void *data, int *jit_keys, void **jit_values, unsigned jit_count, int *libraryOptions,
          void **values, unsigned numLibraryOptions),
         (library, data, jit_keys, jit_values, jit_count, libraryOptions, values, numLibraryOptions)) {
  if (!library) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = check_library_options(numLibraryOptions, libraryOptions, values, false);
  if (!result) result = cl_load_with_options(cl_load_library, library, data, jit_count, jit_keys, jit_values);
  cl_event_uint(line, "options", jit_count);
  return result;
}

API_WHEN(library != NULL, cuLibraryLoadFromFile,
         (Module **library, const char *path, int *jit_keys, void **jit_values, unsigned jit_count, int *keys,
          void **values, unsigned count),
         (library, path, jit_keys, jit_values, jit_count, keys, values, count)) {
  void *data = NULL;
  size_t size;
  CUresult result = cl_read_file(path, &data, &size);
  if (!result) result = check_library_options(count, keys, values, true);
  if (!result) result = cl_load_with_options(cl_load_library, library, data, jit_count, jit_keys, jit_values);
  free(data);
  cl_event_uint(line, "options", jit_count);
  return result;
}

API_CHECKED(cl_refuse_null(library), cuLibraryUnload, (Module *library), (library)) {
  CUresult result = cl_end_library(library);
  return result ? result : cl_unload(library, HANDLE_LIBRARY);
}

API_CHECKED(name ? cl_refuse_nulls(out, handle) : CUDA_ERROR_INVALID_VALUE, cuLibraryGetKernel,
            (Function **out, Module *handle, const char *name), (out, handle, name)) {
  cl_event_text(line, "name", name, NAME_ROOM);
  FIND(library, handle, HANDLE_LIBRARY);
  TRY(cl_answer_of(library, library->state));
  return cl_function_in(library, name, out);
}

API_CHECKED(cl_refuse_nulls(count, handle), cuLibraryGetKernelCount, (unsigned *count, Module *handle),
            (count, handle)) {
  FIND(library, handle, HANDLE_LIBRARY);
  *count = library->state ? 0 : cl_kernel_count(&library->elf);
  return CUDA_SUCCESS;
}

API_CHECKED(cl_refuse_nulls(kernels, handle), cuLibraryEnumerateKernels,
            (void **kernels, unsigned room, Module *handle), (kernels, room, handle)) {
  FIND(library, handle, HANDLE_LIBRARY);
  TRY(cl_answer_of(library, library->state));
  return cl_list_kernels(library, kernels, room);
}

/* The module of a library in the current context, under the lock of the modules. */
static CUresult find_here(const void *handle, Module **module) {
  CUresult state;
  Context *context = cl_context(&state);
  Module *library = cl_find_module(handle, HANDLE_LIBRARY);
  CUresult result = library ? cl_answer_of(library, library->on_device) : CUDA_ERROR_INVALID_HANDLE;
  Module *here = result || state ? NULL : cl_module_of(library, context, true);
  if (here) *module = here;
  return result ? result : state ? state : here ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API_CHECKED(cl_refuse_nulls(module, handle), cuLibraryGetModule, (Module **module, Module *handle), (module, handle)) {
  TRY(cl_check_context());
  TRY(cl_use_library(handle));
  HOLD(cl_modules_lock);
  return find_here(handle, module);
}

static CUresult unnamed(const Module *library, const char *name) {
  return name && *name ? cl_refuse_null(library) : CUDA_ERROR_INVALID_VALUE;
}

API_CHECKED(unnamed(handle, name), cuLibraryGetGlobal,
            (CUdeviceptr *address, size_t *size, Module *handle, const char *name), (address, size, handle, name)) {
  TRY(cl_check_context());
  TRY(cl_use_library(handle));
  if (!address && !size) return CUDA_ERROR_INVALID_VALUE;
  Module *module;
  HOLD(cl_modules_lock);
  TRY(find_here(handle, &module));
  return global_of(module, address, size, name);
}

/* Managed variables are of no context; only images without a cubin for the device have none of them. */
API_CHECKED(unnamed(handle, name), cuLibraryGetManaged,
            (CUdeviceptr *address, size_t *size, Module *handle, const char *name), (address, size, handle, name)) {
  if (!address && !size) return CUDA_ERROR_INVALID_VALUE;
  FIND(library, handle, HANDLE_LIBRARY);
  TRY(cl_answer_of(library, library->on_device));
  /* kernels too (measured: programs/core) */
  return is_managed(&library->elf, name) ? global_of(library, address, size, name) : CUDA_ERROR_NOT_FOUND;
}

/* A function for host and device alike: no image that nvcc makes today has one. */
API(cuLibraryGetUnifiedFunction, (void **function, Module *handle, const char *name), (function, handle, name)) {
  FIND(library, handle, HANDLE_LIBRARY);
  return CUDA_ERROR_INVALID_VALUE;
}
