/* Kernels as nodes of graphs. */
#include "kernel_nodes.h"

#include <string.h>

#include "capture.h"
#include "contexts.h"
#include "locks.h"
#include "module_image.h"

enum { PARAMETERS_MAX = 4096 };

/* Where the buffer of parameters is that `extra` gives, a list that ends with NULL. */
static char *buffer_of(void *const *extra) {
  while ((uintptr_t)*extra != CU_LAUNCH_PARAM_END_AS_INT && (uintptr_t)*extra != CU_LAUNCH_PARAM_BUFFER_POINTER_AS_INT)
    extra += 2;
  return (uintptr_t)*extra == CU_LAUNCH_PARAM_BUFFER_POINTER_AS_INT ? extra[1] : NULL;
}

static CUresult own(KernelNode *kernel, const Function *function) {
  size_t count = function->parameter_count, sizes[PARAMETERS_MAX];
  void *values[PARAMETERS_MAX];
  char *buffer = kernel->extra ? buffer_of(kernel->extra) : NULL;
  if (count > PARAMETERS_MAX) return CUDA_ERROR_INVALID_VALUE;
  for (size_t at = 0; at < count; at++) {
    sizes[at] = function->parameters[at].size;
    values[at] = buffer ? buffer + function->parameters[at].offset : kernel->parameters[at];
  }
  void **block = cl_kernel_block(count, sizes, values);
  if (!block) return CUDA_ERROR_OUT_OF_MEMORY;
  kernel->parameters = block;
  kernel->extra = NULL;
  return CUDA_SUCCESS;
}

CUresult cl_kernel_own(KernelNode *kernel) {
  HOLD(cl_modules_lock);
  const Function *function = cl_find_function(kernel->function ? kernel->function : kernel->kernel);
  return function ? own(kernel, function) : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult capture(const LaunchConfig *config, const NodeParameters *parameters) {
  Stream *stream;
  Node *node;
  CUresult result = cl_stream_ready(config->stream, &stream);
  if (result) return result;
  if (!stream->capture) return CUDA_ERROR_ILLEGAL_STATE;
  result = cl_capture_node(stream, parameters, NULL, &node);
  if (result) return result;
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

CUresult cl_capture_launch(const LaunchConfig *config, void *function, void **values, void **extra) {
  CUresult result;
  NodeParameters parameters = {.type = NODE_KERNEL, .kernel = {.function = function, .shared = config->shared}};
  parameters.kernel.context = cl_context(&result);
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
