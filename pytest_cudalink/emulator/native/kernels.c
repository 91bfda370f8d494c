/* Functions and kernels of modules; they are not executed. */
#include "kernels.h"

#include "config.h"
#include "devices.h"
#include "grow.h"
#include "locks.h"
#include "occupancy_rules.h"
#include "visible.h"

#include "device_functions.inc" /* device_functions */

enum { STT_OBJECT = 1, STT_FUNC = 2, STT_NV_OBJECT = 13, STB_GLOBAL = 1, STO_ENTRY = 0x10 };

enum { INFO_SIZED = 4 }; /* the form of an entry that says how many bytes follow */
enum { INFO_MAX_THREADS = 0x05, INFO_REQUIRED_THREADS = 0x10, INFO_FRAME_SIZE = 0x11, INFO_KPARAM = 0x17 };
enum { INFO_REGCOUNT = 0x2f, INFO_CLUSTER = 0x3d, INFO_EXPLICIT_CLUSTER = 0x3e, INFO_MAX_CLUSTER_RANK = 0x3f };
enum { INFO_LANGUAGE = 0x66, LANGUAGE_TILE_IR = 7 }; /* as cuobjdump 13.4 names them */

/* Reads what the image says of the sizes of blocks and clusters. */
static void read_bounds(Function *function, uint8_t attribute, const uint8_t *at, size_t size) {
  int numbers[3] = {0};
  for (size_t one = 0; one < 3 && 4 * one + 4 <= size; one++) numbers[one] = (int)art_u32(at + 4 * one);
  if (attribute == INFO_EXPLICIT_CLUSTER) function->explicit_cluster = true;
  else if (attribute == INFO_MAX_CLUSTER_RANK) function->max_cluster_rank = numbers[0];
  else if (attribute == INFO_CLUSTER)
    memcpy(function->settings + CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, numbers, sizeof numbers);
  else if (attribute == INFO_REQUIRED_THREADS) memcpy(function->required_block, numbers, sizeof numbers);
  if (attribute == INFO_MAX_THREADS) function->max_threads = numbers[0] * numbers[1] * numbers[2];
}

/* Reads one section; false if memory is out. */
static bool read_info(Function *function, const ElfSection *section, bool own) {
  const uint8_t *at = cl_elf_bytes(&function->module->elf, section), *end = at ? at + section->size : NULL;
  while (at && end - at >= 4) {
    uint8_t form = at[0], attribute = at[1];
    size_t size = form == INFO_SIZED ? art_u16(at + 2) : 0;
    at += 4;
    if (size > (size_t)(end - at)) return true;
    if (own && attribute != INFO_KPARAM) read_bounds(function, attribute, at, size);
    if (own && attribute == INFO_LANGUAGE && size >= 4) function->tile |= art_u32(at) == LANGUAGE_TILE_IR;
    if (own && attribute == INFO_KPARAM && size >= 12) {
      size_t ordinal = art_u16(at + 4);
      if (!cl_grow(&function->parameters, ordinal, &function->parameter_room, sizeof *function->parameters))
        return false;
      if (ordinal >= function->parameter_count) function->parameter_count = ordinal + 1;
      function->parameters[ordinal].offset = art_u16(at + 6);
      function->parameters[ordinal].size = (size_t)(art_u32(at + 8) >> 18);
    } else if (!own && size >= 8 && art_u32(at) == function->symbol) {
      if (attribute == INFO_REGCOUNT) function->registers = (int)art_u32(at + 4);
      if (attribute == INFO_FRAME_SIZE) function->local = (int)art_u32(at + 4);
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
  function->settings[CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT] = -1;
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
  function->settings[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES] = DEFAULT_SHARED - function->shared;
  int threads = cl_threads_with_registers(function->registers);
  if (function->max_threads > threads) function->max_threads = threads;
  return true;
}

/* Whether the driver provides a function to device code, as it does those behind printf, assert and malloc. */
static bool provided(const char *name) {
  if (!strncmp(name, "__cuda_syscall_", strlen("__cuda_syscall_"))) return true;
  for (size_t at = 0; at < sizeof device_functions / sizeof *device_functions; at++)
    if (!strcmp(name, device_functions[at].name)) return device_functions[at].since <= cl_config()->version;
  return false;
}

bool cl_has_undefined(const Elf *elf) {
  ElfSymbol symbol;
  for (uint32_t at = 1; cl_elf_symbol(elf, at, &symbol); at++)
    if (!symbol.section && symbol.info >> 4 == STB_GLOBAL && *symbol.name && strncmp(symbol.name, ".nv.", 4) &&
        !provided(symbol.name))
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
  Function *function = cl_object_make(sizeof *function, HANDLE_FUNCTION, NULL, NULL);
  if (!function) return CUDA_ERROR_OUT_OF_MEMORY;
  if (module->library && cl_function_in(module->library, name, &function->kernel)) {
    cl_free_function(function);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  function->module = module;
  function->name = strdup(name);
  function->symbol = symbol;
  function->loaded = cl_loads_eagerly(); /* (measured: edges/modules_more) */
  if (!function->name || !read_attributes(function)) return cl_free_function(function), CUDA_ERROR_OUT_OF_MEMORY;
  function->next = module->functions;
  module->functions = function;
  *out = function;
  return CUDA_SUCCESS;
}

Function *cl_function_of(Function *function, Context *context) {
  if (!context || !cl_is_kernel(function)) return function;
  Module *module = cl_module_of(function->module, context, true);
  Function *found;
  return module && !cl_function_in(module, function->name, &found) ? found : NULL;
}

Function *cl_function_here(Function *function) {
  return cl_function_of(function, cl_check_context() ? NULL : cl_current());
}

unsigned cl_kernel_count(const Elf *elf) {
  unsigned count = 0;
  ElfSymbol symbol;
  for (uint32_t at = 1; cl_elf_symbol(elf, at, &symbol); at++)
    count += (symbol.info & 15) == STT_FUNC && symbol.section && symbol.other & STO_ENTRY;
  return count;
}

CUresult cl_list_kernels(Module *module, void **out, unsigned room) {
  bool as_kernels = module->head.kind == HANDLE_LIBRARY;
  unsigned count = 0;
  ElfSymbol symbol;
  uint32_t symbols = 1;
  while (cl_elf_symbol(&module->elf, symbols, &symbol)) symbols++;
  for (uint32_t step = 1; step < symbols && count < room; step++) {
    /* modules count from the last (measured: programs/core) */
    if (!cl_elf_symbol(&module->elf, as_kernels ? step : symbols - step, &symbol)) break;
    if ((symbol.info & 15) != STT_FUNC || !symbol.section || !(symbol.other & STO_ENTRY)) continue;
    Function *kernel;
    TRY(cl_function_in(module, symbol.name, &kernel));
    out[count++] = kernel;
  }
  return CUDA_SUCCESS;
}

/* The settings of a kernel on a device; `to_set`: NULL if memory is out. */
static int *settings_on(Function *kernel, CUdevice device, bool to_set) {
  if (!kernel->on_devices && to_set) {
    kernel->on_devices = calloc((size_t)cl_visible_devices(), sizeof *kernel->on_devices);
    for (int at = 0; kernel->on_devices && at < cl_visible_devices(); at++)
      memcpy(kernel->on_devices[at], kernel->settings, sizeof kernel->settings);
    if (!kernel->on_devices) return NULL;
  }
  return kernel->on_devices ? kernel->on_devices[device] : kernel->settings;
}

int cl_setting(const Function *function, int setting) {
  Function *kernel = function->own >> setting & 1 ? NULL : function->kernel;
  return (kernel ? settings_on(kernel, function->module->head.context->device, false) : function->settings)[setting];
}

/* `settings`: those that count; NULL: those of the function. */
static CUresult attribute_of(const Function *function, const int *settings, int attribute, int *value) {
  int arch = cl_elf_arch(&function->module->elf);
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = function->max_threads; break;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: *value = function->shared; break;
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES: *value = function->constant; break;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES: *value = function->local; break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS: *value = function->registers; break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
      *value = function->module->ptx_target ? function->module->ptx_target : arch;
      break;
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION: *value = arch; break;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET: *value = function->explicit_cluster; break;
    default:
      if (attribute < 0 || attribute > CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE)
        return CUDA_ERROR_INVALID_VALUE;
      *value = settings ? settings[attribute] : cl_setting(function, attribute);
      if (attribute == CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED) *value = *value != 0;
  }
  return CUDA_SUCCESS;
}

static bool can_set(const Function *function, int attribute, int value) {
  int limit = DEFAULT_SHARED;
  cl_device_attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, &limit);
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: return value >= 0 && value <= limit - function->shared;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT: return value >= -1 && value <= 100;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH: return value >= 0;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED: return true;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      return value >= CU_CLUSTER_SCHEDULING_POLICY_DEFAULT && value <= CU_CLUSTER_SCHEDULING_POLICY_LOAD_BALANCING;
    case CACHE_CONFIG: return value >= CU_FUNC_CACHE_PREFER_NONE && value <= CU_FUNC_CACHE_PREFER_EQUAL;
    default: return false;
  }
}

/* A function or a kernel, but not one for the other; NULL: it is not there. Under the lock of the modules. */
static Function *find_one(const void *handle, bool kernel) {
  Function *function = cl_find_function(handle);
  return function && cl_is_kernel(function) == kernel ? function : NULL;
}

/* Finds it, and holds the lock until the block ends; returns from the function if it is not there. */
#define FIND(function, handle, kernel)                 \
  HOLD(cl_modules_lock);                               \
  Function *const function = find_one(handle, kernel); \
  if (!(function)) return CUDA_ERROR_INVALID_HANDLE

static CUresult set(const void *handle, int setting, int value) {
  FIND(function, handle, false);
  if (!can_set(function, setting, value)) return CUDA_ERROR_INVALID_VALUE;
  function->settings[setting] = value;
  function->own |= 1u << setting;
  return CUDA_SUCCESS;
}

API_CHECKED(cl_refuse_nulls(value, handle), cuFuncGetAttribute, (int *value, int attribute, Function *handle),
            (value, attribute, handle)) {
  cl_event_int(line, "attribute", attribute);
  FIND(function, handle, false);
  return attribute_of(function, NULL, attribute, value);
}

EXPORTED(cuFuncSetAttribute, (Function *function, int attribute, int value),
         (cl_event_int(line, "attribute", attribute), cl_event_int(line, "value", value),
          set(function, attribute < CACHE_CONFIG ? attribute : SETTINGS, value)))

/* A kernel that is NULL comes before cuInit, the device and the value (measured: edges/modules). */
API_CHECKED(cl_refuse_null(handle), cuKernelGetAttribute,
            (int *value, int attribute, Function *handle, CUdevice device), (value, attribute, handle, device)) {
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  if (!cl_is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  cl_event_int(line, "attribute", attribute);
  FIND(kernel, handle, true);
  return attribute_of(kernel, settings_on(kernel, device, false), attribute, value);
}

/* The first setting of a kernel loads its library. */
static CUresult set_of_kernel(const void *handle, CUdevice device, int setting, int value) {
  TRY(cl_use_library(handle));
  FIND(kernel, handle, true);
  if (!can_set(kernel, setting, value)) return CUDA_ERROR_INVALID_VALUE;
  int *settings = settings_on(kernel, device, true);
  if (settings) settings[setting] = value;
  return settings ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API_CHECKED(cl_refuse_null(kernel), cuKernelSetAttribute, (int attribute, int value, Function *kernel, CUdevice device),
            (attribute, value, kernel, device)) {
  if (!cl_is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  cl_event_int(line, "attribute", attribute);
  cl_event_int(line, "value", value);
  return set_of_kernel(kernel, device, attribute < CACHE_CONFIG ? attribute : SETTINGS, value);
}

EXPORTED(cuFuncSetCacheConfig, (Function *function, int config), set(function, CACHE_CONFIG, config))
EXPORTED_CHECKED(cuKernelSetCacheConfig, (Function *kernel, int config, CUdevice device), cl_refuse_null(kernel),
                 cl_is_device(device) ? set_of_kernel(kernel, device, CACHE_CONFIG, config) : CUDA_ERROR_INVALID_DEVICE)

API(cuFuncSetSharedMemConfig, (Function *handle, int config), (handle, config)) {
  FIND(function, handle, false);
  bool valid = config >= CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE && config <= CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE;
  return valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Questions about a function that is NULL are wrong values, not handles, and before cuInit (measured:
 * edges/modules). */
static CUresult both(const void *out, const void *handle) {
  return out && handle ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* A question to a function or a kernel; the answer is a member of it. */
#define FUNCTION_ASK(name, refused, kernel, type, value)     \
  static CUresult ask_##name(const void *handle, type out) { \
    FIND(one, handle, kernel);                               \
    *out = value;                                            \
    return CUDA_SUCCESS;                                     \
  }                                                          \
  EXPORTED_CHECKED(name, (type out, Function *handle), refused, ask_##name(handle, out))
FUNCTION_ASK(cuFuncGetName, both(out, handle), false, const char **, one->name)
FUNCTION_ASK(cuKernelGetName, both(out, handle), true, const char **, one->name)
FUNCTION_ASK(cuFuncIsLoaded, cl_refuse_nulls(out, handle), false, int *, one->loaded)
FUNCTION_ASK(cuKernelGetLibrary, cl_refuse_nulls(out, handle), true, Module **, one->module)

static CUresult parameter_of(const void *handle, bool kernel, size_t index, size_t *offset, size_t *size) {
  FIND(function, handle, kernel);
  if (index >= function->parameter_count) return CUDA_ERROR_INVALID_VALUE;
  *offset = function->parameters[index].offset;
  if (size) *size = function->parameters[index].size;
  return CUDA_SUCCESS;
}

EXPORTED_CHECKED(cuFuncGetParamInfo, (Function *function, size_t index, size_t *offset, size_t *size),
                 both(offset, function),
                 (cl_event_uint(line, "index", index), parameter_of(function, false, index, offset, size)))

/* A kernel's parameters are those of its function in the current context: without one there are no parameters. */
API_CHECKED(both(offset, kernel), cuKernelGetParamInfo, (Function *kernel, size_t index, size_t *offset, size_t *size),
            (kernel, index, offset, size)) {
  cl_event_uint(line, "index", index);
  TRY(cl_check_context());
  TRY(cl_use_library(kernel));
  return parameter_of(kernel, true, index, offset, size);
}

static CUresult parameter_count_of(const void *handle, bool kernel, size_t *count) {
  FIND(function, handle, kernel);
  *count = function->parameter_count;
  return CUDA_SUCCESS;
}

EXPORTED_CHECKED(cuFuncGetParamCount, (Function *function, size_t *count), both(count, function),
                 parameter_count_of(function, false, count))

API_CHECKED(both(count, kernel), cuKernelGetParamCount, (Function *kernel, size_t *count), (kernel, count)) {
  TRY(cl_check_context());
  return parameter_count_of(kernel, true, count);
}

API(cuFuncGetModule, (Module **module, Function *handle), (module, handle)) {
  if (!module || !handle) return CUDA_ERROR_INVALID_VALUE;
  FIND(function, handle, false);
  *module = function->module;
  return CUDA_SUCCESS;
}

API_CHECKED(cl_refuse_null(handle), cuFuncLoad, (Function *handle), (handle)) {
  FIND(function, handle, false);
  function->loaded = true;
  return CUDA_SUCCESS;
}

API_CHECKED(cl_refuse_nulls(function, handle), cuKernelGetFunction, (Function **function, Function *handle),
            (function, handle)) {
  TRY(cl_check_context());
  TRY(cl_use_library(handle));
  FIND(kernel, handle, true);
  CUresult result = cl_has_undefined(&kernel->module->elf) ? CUDA_ERROR_NOT_FOUND
                                                           : cl_answer_of(kernel->module, kernel->module->on_device);
  Function *here = result ? NULL : cl_function_here(kernel);
  if (!here) return result ? result : CUDA_ERROR_OUT_OF_MEMORY;
  here->loaded = true;
  *function = here;
  return CUDA_SUCCESS;
}
