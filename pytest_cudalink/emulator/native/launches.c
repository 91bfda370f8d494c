/* Launches: checked as a driver checks them, and then refused, as no kernel is executed. */
#include "launches.h"

#include "capture.h"
#include "devices.h"
#include "kernels.h"
#include "locks.h"

/* -- as nodes of graphs: the values of the parameters are the node's own -- */

enum { PARAMETERS_MAX = 4096, PARAMETER_BYTES_MAX = 32764 };

/* Reads what `extra` gives, a list that ends with NULL: a buffer of parameters, NULL if there is none, and its size. */
static bool read_buffer(void *const *extra, char **buffer, size_t *size) {
  *buffer = NULL;
  *size = 0;
  for (; extra && (uintptr_t)*extra != CU_LAUNCH_PARAM_END_AS_INT; extra += 2) {
    if ((uintptr_t)*extra == CU_LAUNCH_PARAM_BUFFER_POINTER_AS_INT) *buffer = extra[1];
    else if ((uintptr_t)*extra == CU_LAUNCH_PARAM_BUFFER_SIZE_AS_INT && extra[1]) memcpy(size, extra[1], sizeof *size);
    else return false;
  }
  return true;
}

static CUresult own(KernelNode *kernel, const Function *function) {
  static char left_out[PARAMETER_BYTES_MAX];
  size_t count = function->parameter_count, given, sizes[PARAMETERS_MAX];
  void *values[PARAMETERS_MAX];
  char *buffer;
  read_buffer(kernel->extra, &buffer, &given);
  if (count > PARAMETERS_MAX) return CUDA_ERROR_INVALID_VALUE;
  for (size_t at = 0; at < count; at++) {
    size_t offset = function->parameters[at].offset;
    sizes[at] = function->parameters[at].size;
    values[at] = !buffer ? kernel->parameters[at] : offset + sizes[at] > given ? left_out : buffer + offset;
    if (!values[at]) return CUDA_ERROR_INVALID_VALUE;
  }
  kernel->parameters = NULL;
  kernel->extra = NULL;
  if (!count) return CUDA_SUCCESS;
  void **block = cl_kernel_block(count, sizes, values);
  if (!block) return CUDA_ERROR_OUT_OF_MEMORY;
  kernel->parameters = block;
  return CUDA_SUCCESS;
}

CUresult cl_kernel_own(KernelNode *kernel) {
  HOLD(cl_modules_lock);
  Function *function = cl_find_function(kernel->function ? kernel->function : kernel->kernel);
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  function = cl_function_of(function, kernel->context);
  if (!function) return CUDA_ERROR_OUT_OF_MEMORY;
  if (function->kernel) {
    kernel->function = function;
    kernel->kernel = function->kernel;
  }
  kernel->context = function->module->head.context; /* not the one that was given, on an H200 */
  return own(kernel, function);
}

static CUresult capture(const LaunchConfig *config, const NodeParameters *parameters) {
  Stream *stream;
  Node *node;
  TRY(cl_stream_ready(config->stream, &stream));
  if (!stream->capture) return CUDA_ERROR_ILLEGAL_STATE;
  TRY(cl_capture_node(stream, parameters, NULL, &node));
  if (stream->priority && !cl_node_attribute(node, CU_LAUNCH_ATTRIBUTE_PRIORITY)) return CUDA_ERROR_OUT_OF_MEMORY;
  if (stream->priority) node->attributes[CU_LAUNCH_ATTRIBUTE_PRIORITY].number = stream->priority;
  for (unsigned at = 0; at < config->count; at++) {
    int id = config->attributes[at].id;
    if (id <= 0 || id >= STREAM_ATTRIBUTES) continue;
    AttributeValue *place = cl_node_attribute(node, (unsigned)id);
    if (!place) return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(place->bytes, &config->attributes[at].value, sizeof config->attributes[at].value);
    node->attributes_set |= 1u << id;
  }
  return CUDA_SUCCESS;
}

/* A launch in a stream needs no current context (two H200s: edges/two_more_captures). */
static Context *launch_context(const void *stream, CUresult *result) {
  Context *context = cl_context(result);
  if (*result != CUDA_ERROR_INVALID_CONTEXT) return context;
  context = cl_context_in(stream);
  if (context) *result = CUDA_SUCCESS;
  return context;
}

static CUresult capture_launch(const LaunchConfig *config, void *function, void **values, void **extra) {
  CUresult result;
  NodeParameters parameters = {.type = NODE_KERNEL, .kernel = {.function = function, .shared = config->shared}};
  parameters.kernel.context = launch_context(config->stream, &result);
  parameters.kernel.parameters = values;
  parameters.kernel.extra = extra;
  memcpy(parameters.kernel.grid, config->grid, sizeof parameters.kernel.grid);
  memcpy(parameters.kernel.block, config->block, sizeof parameters.kernel.block);
  if (!result) result = cl_kernel_own(&parameters.kernel);
  if (result) return result;
  result = LOCKED(capture(config, &parameters));
  cl_parameters_free(&parameters); /* the node has a copy */
  return result;
}

/* -- launches now -- */

enum { NAME_ROOM = 160 }; /* of a name in an event */

static CUresult check_block(const unsigned sizes[3], const Function *function) {
  unsigned threads = cl_block_threads(sizes);
  if (!threads) return CUDA_ERROR_INVALID_VALUE;
  /* who launches a tile kernel gives one thread or those of its code (measured: test_launches) */
  if (function->tile && threads == 1) return CUDA_SUCCESS;
  if (function->required_block[0])
    for (int axis = 0; axis < 3; axis++)
      if (sizes[axis] != (unsigned)function->required_block[axis]) return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

static CUresult check_resources(const LaunchConfig *config, const Function *function) {
  if (cl_block_threads(config->block) > (unsigned)function->max_threads) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  return config->shared > (unsigned)cl_setting(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
             ? CUDA_ERROR_INVALID_VALUE
             : CUDA_SUCCESS;
}

static size_t parameter_bytes(const Function *function) {
  size_t end = 0;
  for (size_t at = 0; at < function->parameter_count; at++) {
    size_t one = function->parameters[at].offset + function->parameters[at].size;
    if (one > end) end = one;
  }
  return end;
}

static CUresult check_parameters(const Function *function, size_t bytes, void *const *parameters, void *const *extra) {
  if (parameters && extra) return CUDA_ERROR_INVALID_VALUE;
  if (!function->parameter_count || parameters) return CUDA_SUCCESS;
  char *buffer;
  size_t size;
  /* what a smaller buffer leaves out is whatever there is (measured: edges/launches) */
  if (!read_buffer(extra, &buffer, &size) || (bytes && !(buffer && size))) return CUDA_ERROR_INVALID_VALUE;
  return bytes && size > bytes ? CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES : CUDA_SUCCESS;
}

/* -- attributes -- */

static CUresult check_cluster(const LaunchConfig *config, const Function *function) {
  unsigned sizes[3];
  if (!cl_cluster_of(config, function, sizes))
    return function->explicit_cluster ? CUDA_ERROR_INVALID_CLUSTER_SIZE : CUDA_SUCCESS;
  if (!cl_device_has(CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH)) return CUDA_ERROR_NOT_SUPPORTED;
  return cl_clusters_fit(sizes, config->grid, function) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CLUSTER_SIZE;
}

CUresult cl_check_cluster(const KernelNode *kernel, const AttributeValue *value) {
  LaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION};
  LaunchConfig config = {.attributes = &attribute, .count = 1};
  memcpy(config.grid, kernel->grid, sizeof config.grid);
  memcpy(&attribute.value, value, sizeof *value);
  HOLD(cl_modules_lock);
  const Function *function = cl_find_function(kernel->function);
  return function ? check_cluster(&config, function) : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult check_cooperative(const LaunchConfig *config, const Function *function) {
  if (!cl_device_has(CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH)) return CUDA_ERROR_NOT_SUPPORTED;
  KernelNeeds needs = cl_needs(function);
  int threads = (int)(config->block[0] * config->block[1] * config->block[2]);
  unsigned long long blocks = cl_grid_blocks(config->grid);
  int resident = cl_blocks_per_multiprocessor(&needs, threads, config->shared) *
                 (int)cl_device_has(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  return blocks > (unsigned)resident ? CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE : CUDA_SUCCESS;
}

static CUresult check_attribute(const LaunchAttribute *attribute) {
  AttributeValue value;
  memcpy(&value, &attribute->value, sizeof value);
  int number = attribute->value.number;
  bool valid = true;
  switch (attribute->id) {
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY: return CUDA_ERROR_INVALID_VALUE; /* that of a stream */
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      valid = number >= CU_CLUSTER_SCHEDULING_POLICY_DEFAULT && number <= CU_CLUSTER_SCHEDULING_POLICY_LOAD_BALANCING;
      break;
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
    case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
      return attribute->value.event.event ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
    case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE: valid = number == 0; break; /* for nodes of graphs only */
    default:
      valid = attribute->id >= CU_LAUNCH_ATTRIBUTE_IGNORE &&
              attribute->id <= CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING &&
              attribute->id != CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT + 1 && /* it has no name */
              cl_fit_attribute(attribute->id, &value);
  }
  return valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult check_attributes(const LaunchConfig *config, bool *cooperative) {
  *cooperative = false;
  if (config->count && !config->attributes) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned at = 0; at < config->count; at++) {
    TRY(check_attribute(&config->attributes[at]));
    if (config->attributes[at].id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
      *cooperative = config->attributes[at].value.number;
  }
  return CUDA_SUCCESS;
}

/* The checks in their order; `bytes` are those of the parameters. */
static CUresult check(const LaunchConfig *config, const Function *function, size_t bytes, void *const *parameters,
                      void *const *extra) {
  bool cooperative;
  TRY(cl_grid_blocks(config->grid) ? check_block(config->block, function) : CUDA_ERROR_INVALID_VALUE);
  TRY(check_attributes(config, &cooperative));
  TRY(check_parameters(function, bytes, parameters, extra));
  TRY(check_cluster(config, function));
  if (cooperative) TRY(check_cooperative(config, function));
  return check_resources(config, function);
}

CUresult cl_check_launch(const LaunchConfig *config, const void *handle, void *const *parameters, void *const *extra) {
  HOLD(cl_modules_lock);
  Function *function = handle ? cl_find_function(handle) : NULL;
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  CUresult result = cl_answer_of(function->module, function->module->on_device);
  if (!result) function = cl_function_here(function);
  if (!function) return CUDA_ERROR_OUT_OF_MEMORY;
  return result ? result : check(config, function, parameter_bytes(function), parameters, extra);
}

static CUresult not_executed(EventLine *line, const void *handle) {
  HOLD(cl_modules_lock);
  Function *function = cl_find_function(handle);
  if (function) cl_event_text(line, "kernel", function->name, NAME_ROOM);
  if (function) function->loaded = true; /* by its first launch (recorded programs) */
  return cl_unsupported(line, "the emulated driver does not execute kernels");
}

/* A function is launched in the context of the stream (measured: programs/functions). */
static CUresult check_context_of(const void *handle, const void *stream_handle) {
  CUresult result;
  const Context *context = launch_context(stream_handle, &result);
  cl_streams_lock();
  const Stream *stream = cl_stream(stream_handle);
  if (stream && stream->context) context = stream->context;
  cl_streams_unlock(result);
  HOLD(cl_modules_lock);
  const Function *function = handle ? cl_find_function(handle) : NULL;
  if (!function || !context || !cl_is_usable(function, context)) result = CUDA_ERROR_INVALID_HANDLE;
  return result;
}

static CUresult launch(EventLine *line, const LaunchConfig *config, void *function, void **parameters, void **extra) {
  bool captured = false;
  CUresult result;
  launch_context(config->stream, &result);
  if (!result) result = cl_enter_stream(config->stream, &captured);
  if (!result) result = check_context_of(function, config->stream);
  if (!result) result = cl_check_launch(config, function, parameters, extra);
  if (!result && !captured) result = cl_use_library(function);
  if (result == CUDA_ERROR_NOT_SUPPORTED) return cl_noted(line, result, "the device has no such launches");
  Stream *stream;
  if (result == CUDA_ERROR_INVALID_VALUE && captured) /* ends the capture, too (measured: edges/capture_nodes) */
    (void)LOCKED(cl_refuse_captured(config->stream, &stream));
  if (!result && captured) return capture_launch(config, function, parameters, extra);
  return result ? result : not_executed(line, function);
}

EXPORTED(cuLaunchKernel,
         (Function *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
          unsigned shared, void *stream, void **parameters, void **extra),
         launch(line, &(LaunchConfig){{gx, gy, gz}, {bx, by, bz}, shared, stream, NULL, 0}, function, parameters,
                extra))

static const LaunchAttribute cooperatively = {.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value.number = 1};
EXPORTED(cuLaunchCooperativeKernel,
         (Function *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
          unsigned shared, void *stream, void **parameters),
         launch(line, &(LaunchConfig){{gx, gy, gz}, {bx, by, bz}, shared, stream, &cooperatively, 1}, function,
                parameters, NULL))

EXPORTED(cuLaunchKernelEx, (const LaunchConfig *config, Function *function, void **parameters, void **extra),
         config ? launch(line, config, function, parameters, extra) : CUDA_ERROR_INVALID_VALUE)

/* CUDA_LAUNCH_PARAMS */
typedef struct {
  const Function *function;
  unsigned grid[3], block[3], shared;
  void *stream;
  void **parameters;
} DeviceLaunch;

enum { MULTI_DEVICE_FLAGS = 3 };

API(cuLaunchCooperativeKernelMultiDevice, (const DeviceLaunch *launches, unsigned count, unsigned flags),
    (launches, count, flags)) {
  if (!launches || !count || flags > MULTI_DEVICE_FLAGS) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned at = 0; at < count; at++) {
    const DeviceLaunch *one = &launches[at];
    LaunchConfig config = {.shared = one->shared, .attributes = &cooperatively, .count = 1};
    memcpy(config.grid, one->grid, sizeof config.grid);
    memcpy(config.block, one->block, sizeof config.block);
    if (!one->function) return CUDA_ERROR_INVALID_HANDLE;
    TRY(cl_check_stream(one->stream));
    TRY(cl_check_launch(&config, one->function, one->parameters, NULL));
  }
  return not_executed(line, launches->function);
}

/* -- launches of before CUDA 4.0: block, parameters and shared memory are set on the function first -- */

/* Finds a function of the current context; NULL: the answer is in *result. Under the lock of the modules. */
static Function *find_usable(const void *handle, CUresult *result) {
  const Context *context = cl_context(result);
  Function *function = !*result && handle ? cl_find_function(handle) : NULL;
  if (function && cl_is_usable(function, context)) return cl_function_here(function);
  if (!*result) *result = CUDA_ERROR_INVALID_HANDLE;
  return NULL;
}

/* Finds one, and holds the lock until the block ends; returns from the function if it is not there. */
#define USABLE(function, handle)                           \
  CUresult result;                                         \
  HOLD(cl_modules_lock);                                   \
  Function *const function = find_usable(handle, &result); \
  if (!(function)) return result

API(cuFuncSetBlockShape, (Function *handle, int x, int y, int z), (handle, x, y, z)) {
  const unsigned sizes[] = {(unsigned)x, (unsigned)y, (unsigned)z}; /* a negative size is too large */
  USABLE(function, handle);
  result = check_block(sizes, function);
  if (!result) memcpy(function->old.block, sizes, sizeof function->old.block);
  return result;
}

API(cuFuncSetSharedSize, (Function *handle, unsigned bytes), (handle, bytes)) {
  USABLE(function, handle);
  bool fits = bytes <= (unsigned)cl_setting(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
  if (fits) function->old.shared = bytes;
  return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* The values themselves are not kept, as no kernel reads them. */
static CUresult set_parameters(const void *handle, long long end, bool whole) {
  USABLE(function, handle);
  bool fits = end >= 0 && end <= PARAMETER_BYTES_MAX;
  if (fits && whole) function->old.parameters = (unsigned)end;
  return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static long long end_of(int offset, unsigned bytes) { return offset < 0 ? -1 : (long long)offset + bytes; }

EXPORTED(cuParamSetSize, (Function *function, unsigned bytes), set_parameters(function, bytes, true))
EXPORTED(cuParamSeti, (Function *function, int offset, unsigned value),
         set_parameters(function, end_of(offset, sizeof value), false))
EXPORTED(cuParamSetf, (Function *function, int offset, float value),
         set_parameters(function, end_of(offset, sizeof value), false))
EXPORTED(cuParamSetv, (Function *function, int offset, void *data, unsigned bytes),
         set_parameters(function, data ? end_of(offset, bytes) : -1, false))

static CUresult launch_grid(EventLine *line, const void *handle, int width, int height, const void *stream) {
  CUresult result;
  LaunchConfig config = {.grid = {(unsigned)width, (unsigned)height, 1}};
  size_t given, needed;
  {
    HOLD(cl_modules_lock);
    const Function *function = find_usable(handle, &result);
    if (!function) return result;
    config.shared = function->old.shared;
    for (int axis = 0; axis < 3; axis++) {
      unsigned usual = function->required_block[0] ? (unsigned)function->required_block[axis] : 1;
      config.block[axis] = function->old.block[0] ? function->old.block[axis] : usual;
    }
    /* parameters that were not set are garbage, and too many of them do not fit */
    given = function->old.parameters, needed = parameter_bytes(function);
  }
  bool captured = false;
  void *parameters[] = {NULL};
  result = cl_enter_stream(stream, &captured);
  /* these look neither at whether a capture is invalid or implied nor at clusters (recorded programs) */
  if (result == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED || result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
    result = CUDA_SUCCESS;
  if (!result)
    result = captured ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : cl_check_launch(&config, handle, parameters, NULL);
  if (result == CUDA_ERROR_INVALID_CLUSTER_SIZE) result = CUDA_SUCCESS;
  if (!result && given > needed) result = CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  return result ? result : not_executed(line, handle);
}
EXPORTED(cuLaunch, (Function *function), launch_grid(line, function, 1, 1, NULL))
EXPORTED(cuLaunchGrid, (Function *function, int width, int height), launch_grid(line, function, width, height, NULL))
EXPORTED(cuLaunchGridAsync, (Function *function, int width, int height, void *stream),
         launch_grid(line, function, width, height, stream))
