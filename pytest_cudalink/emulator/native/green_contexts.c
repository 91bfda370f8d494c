/* Green contexts: a share of a device's multiprocessors, with a context of its own. */
#include "device_resources.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "calls.h"
#include "contexts.h"
#include "devices.h"
#include "handles.h"
#include "locks.h"

enum { MOST_RESOURCES = 64 };

/* The resources of a green context, summed up: one of each type. */
typedef struct {
  Object head;
  DeviceResource multiprocessors, queues;
} Description;

/* The handle of a green context is that of the context that belongs to it. */
typedef Context GreenContext;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of green contexts and descriptions */

OPEN_IN_CHILDREN(lock);

/* Adds one resource to a description; those of multiprocessors must come from one split. */
static CUresult add(Description *to, const DeviceResource *resource, CUdevice device) {
  if (resource->type == CU_DEV_RESOURCE_TYPE_WORKQUEUE_CONFIG) {
    if (to->queues.type) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    to->queues = *resource;
  } else if (resource->type == CU_DEV_RESOURCE_TYPE_SM) {
    DeviceResource *sum = &to->multiprocessors;
    if (sum->type && (!sum->split || sum->split != resource->split)) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    unsigned before = sum->type ? sum->of.sm.count : 0;
    *sum = *resource;
    sum->of.sm.count += before;
  } else return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  return resource->device == device ? CUDA_SUCCESS : CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
}

/* A description is never freed, as no function destroys one. */
static CUresult describe(void **out, const DeviceResource *resources, unsigned count) {
  Description described = {0};
  if (!out || !resources || !count || count > MOST_RESOURCES) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned at = 0; at < count; at++) {
    CUresult result = add(&described, &resources[at], resources[0].device);
    if (result) return result;
  }
  Description *kept = cl_object_make(sizeof *kept, HANDLE_RESOURCE_DESCRIPTION, NULL, NULL);
  if (!kept) return CUDA_ERROR_OUT_OF_MEMORY;
  kept->multiprocessors = described.multiprocessors;
  kept->queues = described.queues;
  *out = kept;
  return CUDA_SUCCESS;
}
EXPORTED_ANY_TIME(cuDevResourceGenerateDesc, (void **out, DeviceResource *resources, unsigned count),
                  describe(out, resources, count))

static CUresult create(EventLine *line, void **out, const Description *description, CUdevice device, unsigned flags) {
  cl_event_int(line, "device", device);
  Description whole = {0};
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  if (!cl_is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  if (flags != CU_GREEN_CTX_DEFAULT_STREAM) return CUDA_ERROR_INVALID_VALUE;
  if (!description) { /* all of the device */
    cl_device_resource(device, CU_DEV_RESOURCE_TYPE_SM, &whole.multiprocessors);
    description = &whole;
  } else if (!cl_handle_is(description, HANDLE_RESOURCE_DESCRIPTION)) return CUDA_ERROR_INVALID_VALUE;
  if (!description->multiprocessors.type || description->multiprocessors.device != device)
    return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
  Description *resources = malloc(sizeof *resources);
  if (!resources) return CUDA_ERROR_OUT_OF_MEMORY;
  *resources = *description;
  GreenContext *green = cl_make_green_context(device, resources);
  if (green && cl_object_enter(&green->head, HANDLE_GREEN_CONTEXT, NULL, NULL)) {
    *out = green;
    return CUDA_SUCCESS;
  }
  if (green) cl_end_green_context(green);
  free(resources);
  return CUDA_ERROR_OUT_OF_MEMORY;
}
EXPORTED(cuGreenCtxCreate, (void **out, void *description, CUdevice device, unsigned flags),
         create(line, out, description, device, flags))

static CUresult destroy(GreenContext *green) {
  pthread_mutex_lock(&lock);
  bool alive = cl_handle_is(green, HANDLE_GREEN_CONTEXT);
  if (alive) {
    cl_object_unname(&green->head);
    free((void *)green->green);
  }
  pthread_mutex_unlock(&lock);
  if (!alive) return green ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_CONTEXT;
  cl_end_green_context(green);
  return CUDA_SUCCESS;
}
EXPORTED(cuGreenCtxDestroy, (GreenContext * green), destroy(green))

/* Whether a green context is alive, and a copy of its resources, as another thread may destroy it. Without a handle
   there is no context, and what is no green context counts as destroyed. */
static CUresult read_green(const GreenContext *green, Description *resources) {
  if (!green) return CUDA_ERROR_INVALID_CONTEXT;
  HOLD(lock);
  bool alive = cl_handle_is(green, HANDLE_GREEN_CONTEXT);
  if (alive) *resources = *(const Description *)green->green;
  return alive ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

static CUresult check_green(const GreenContext *green) { return read_green(green, &(Description){0}); }

static CUresult context_of(Context **out, GreenContext *green) {
  CUresult result = out ? check_green(green) : CUDA_ERROR_INVALID_VALUE;
  if (!result) *out = green;
  return result;
}
EXPORTED(cuCtxFromGreenCtx, (Context **out, GreenContext *green), context_of(out, green))

static CUresult id_of(const GreenContext *green, uint64_t *id) {
  CUresult state = CUDA_SUCCESS;
  if (!id) return CUDA_ERROR_INVALID_VALUE;
  if (!green) green = cl_context(&state);
  if (!state && green && cl_is_known_context(green) && !green->green) state = CUDA_ERROR_INVALID_CONTEXT;
  if (!state) state = check_green(green);
  if (!state) *id = green->id;
  return state;
}
EXPORTED(cuGreenCtxGetId, (GreenContext * green, uint64_t *id), id_of(green, id))

/* -- their resources -- */

static CUresult resource_of(const GreenContext *green, DeviceResource *out, int type) {
  Description resources;
  CUresult result = cl_device_resource(0, type, out); /* whether there is such a resource at all */
  if (!result) result = read_green(green, &resources);
  if (!result) result = cl_device_resource(green->device, type, out);
  if (result) return result;
  if (type == CU_DEV_RESOURCE_TYPE_SM) *out = resources.multiprocessors;
  else if (resources.queues.type) *out = resources.queues;
  out->split = 0; /* it can be split again */
  return CUDA_SUCCESS;
}
EXPORTED(cuGreenCtxGetDevResource, (GreenContext * green, DeviceResource *out, int type), resource_of(green, out, type))

static CUresult resource_of_context(const Context *context, DeviceResource *out, int type) {
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  if (!context || !cl_is_known_context(context)) return CUDA_ERROR_INVALID_CONTEXT;
  if (context->dead) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  return context->green ? resource_of(context, out, type) : cl_device_resource(context->device, type, out);
}
EXPORTED(cuCtxGetDevResource, (Context *context, DeviceResource *out, int type),
         resource_of_context(context, out, type))

/* -- their streams and events: through the functions of every context -- */

extern CUresult cuStreamCreateWithPriority(void **stream, unsigned flags, int priority);
extern CUresult cuStreamGetCtx(void *stream, Context **context);
extern CUresult cuCtxRecordEvent(Context *context, void *event);
extern CUresult cuCtxWaitEvent(Context *context, void *event);

static CUresult create_stream(void **stream, GreenContext *green, unsigned flags, int priority) {
  CUresult result = stream ? check_green(green) : CUDA_ERROR_INVALID_VALUE;
  if (result) return result;
  if (flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  if (!cl_push_context(green)) return CUDA_ERROR_OUT_OF_MEMORY;
  result = cuStreamCreateWithPriority(stream, flags, priority);
  cl_pop_context();
  return result;
}
EXPORTED(cuGreenCtxStreamCreate, (void **stream, GreenContext *green, unsigned flags, int priority),
         create_stream(stream, green, flags, priority))

static CUresult with_event(GreenContext *green, void *event, CUresult (*use)(Context *, void *)) {
  if (green && !event) return CUDA_ERROR_INVALID_HANDLE;
  CUresult result = check_green(green);
  return result ? result : use(green, event);
}
EXPORTED(cuGreenCtxRecordEvent, (GreenContext * green, void *event), with_event(green, event, cuCtxRecordEvent))
EXPORTED(cuGreenCtxWaitEvent, (GreenContext * green, void *event), with_event(green, event, cuCtxWaitEvent))

static CUresult green_of_stream(void *stream, const void **out) {
  Context *context;
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = cuStreamGetCtx(stream, &context);
  if (!result) *out = context->green ? context : NULL;
  return result;
}
EXPORTED(cuStreamGetGreenCtx, (void *stream, const void **out), green_of_stream(stream, out))

static CUresult resource_of_stream(void *stream, DeviceResource *out, int type) {
  Context *context;
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = cuStreamGetCtx(stream, &context);
  return result ? result : resource_of_context(context, out, type);
}
EXPORTED(cuStreamGetDevResource, (void *stream, DeviceResource *out, int type), resource_of_stream(stream, out, type))
