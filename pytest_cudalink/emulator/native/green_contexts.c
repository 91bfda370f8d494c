/* Green contexts: a share of a device's multiprocessors, with a separate context. */
#include <stdlib.h>

#include "config.h"
#include "contexts.h"
#include "devices.h"
#include "locks.h"
#include "occupancy_rules.h"

/* -- the resources of a device -- */

/* CUdevResource. What the driver keeps in the padding is its own: here the device, and which split it is from. */
typedef struct {
  int type;
  uint32_t mark;
  CUdevice device;
  unsigned split;
  unsigned char padding[80];
  union {
    struct {
      unsigned count, least, unit, flags;
    } sm;
    struct {
      CUdevice device;
      unsigned limit;
      int scope;
    } queues;
    unsigned char bytes[48];
  } of;
} DeviceResource;

_Static_assert(sizeof(DeviceResource) == 144, "CUdevResource");

enum { MARK = 0x67726e21, FIRST_WITH_QUEUES = 13010, QUEUES = 8 };
enum { ARCH_OF_CLUSTERS = 90, LEAST_SMS = 2, LARGEST_COSCHEDULED = 32 };

static CUresult device_resource(CUdevice device, int type, DeviceResource *out) {
  if (!cl_is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  bool queues = type == CU_DEV_RESOURCE_TYPE_WORKQUEUE_CONFIG && cl_config()->version >= FIRST_WITH_QUEUES;
  if (type != CU_DEV_RESOURCE_TYPE_SM && !queues) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  *out = (DeviceResource){.type = type, .mark = MARK, .device = device};
  if (queues) {
    out->of.queues.device = device;
    out->of.queues.limit = QUEUES;
    return CUDA_SUCCESS;
  }
  out->of.sm.count = (unsigned)cl_device_has(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  out->of.sm.least = (unsigned)cl_least_multiprocessors();
  out->of.sm.unit = (unsigned)cl_multiprocessor_unit();
  return CUDA_SUCCESS;
}
EXPORTED(cuDeviceGetDevResource, (CUdevice device, DeviceResource *out, int type), device_resource(device, type, out))

static unsigned rounded_up(unsigned value, unsigned unit) { return (value + unit - 1) / unit * unit; }

/* A number for each split, so that its groups are known to belong together. */
static unsigned next_split(void) {
  static atomic_uint last;
  return atomic_fetch_add(&last, 1) + 1;
}

static CUresult check_input(const DeviceResource *input) {
  if (!input) return CUDA_ERROR_INVALID_VALUE;
  if (input->type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  return input->mark != MARK || input->split ? CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION : CUDA_SUCCESS;
}

/* A group of a split; without multiprocessors it is not a resource. */
static DeviceResource group(const DeviceResource *input, unsigned split, unsigned count, unsigned least,
                            unsigned unit) {
  DeviceResource one = *input;
  if (!count) return (DeviceResource){.type = CU_DEV_RESOURCE_TYPE_INVALID};
  one.split = split;
  one.of.sm.count = count;
  one.of.sm.least = least;
  one.of.sm.unit = unit;
  return one;
}

API(cuDevSmResourceSplitByCount,
    (DeviceResource * result, unsigned *groups, const DeviceResource *input, DeviceResource *rest, unsigned flags,
     unsigned least),
    (result, groups, input, rest, flags, least)) {
  const unsigned both =
      CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING | CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE;
  if (!groups || (result && !*groups) || (flags & both) == both) return CUDA_ERROR_INVALID_VALUE;
  TRY(check_input(input));
  unsigned all = input->of.sm.count, smallest = input->of.sm.least, unit = input->of.sm.unit;
  cl_event_uint(line, "least", least);
  if (least > all) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
  if (flags & CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING) smallest = unit = LEAST_SMS;
  unsigned size = rounded_up(least > smallest ? least : smallest, unit);
  if (size > all) size = all; /* (measured: edges/green_devices) */
  unsigned most = all / size, together = (unsigned)cl_clusters_on_device(1, (int)smallest);
  if (together && most > together) most = together;
  unsigned made = result && *groups < most ? *groups : most;
  if (!made) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
  unsigned split = next_split();
  DeviceResource from = *input; /* the caller may have it overwritten by a result */
  for (unsigned at = 0; result && at < made; at++) result[at] = group(&from, split, size, smallest, unit);
  if (rest && result) *rest = group(&from, split, all - made * size, smallest, unit);
  *groups = made;
  return CUDA_SUCCESS;
}

typedef struct {
  unsigned count, coscheduled, preferred, flags, reserved[12];
} GroupRequest;

_Static_assert(sizeof(GroupRequest) == 64, "CU_DEV_SM_RESOURCE_GROUP_PARAMS");

/* How many multiprocessors a group gets of those that are left; 0 is not an error yet. */
static CUresult size_of(const GroupRequest *wanted, unsigned left, unsigned default_unit, unsigned *size) {
  unsigned unit = wanted->coscheduled ? wanted->coscheduled : default_unit;
  unsigned largest = cl_config()->arch >= ARCH_OF_CLUSTERS ? LARGEST_COSCHEDULED : LEAST_SMS;
  bool backfill = wanted->flags & CU_DEV_SM_RESOURCE_GROUP_BACKFILL;
  if (wanted->flags & ~(unsigned)CU_DEV_SM_RESOURCE_GROUP_BACKFILL || unit > largest || unit % 2 || wanted->count % 2)
    return CUDA_ERROR_INVALID_VALUE;
  if (wanted->preferred && wanted->preferred % unit) return CUDA_ERROR_INVALID_VALUE;
  /* not measured on any GPU: cuda.core's tests, which run on GPUs, try such counts, and take only this code for "no" */
  if (wanted->count && !backfill && wanted->count % unit) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
  *size = wanted->count ? wanted->count : backfill ? left / 2 * 2 : left / unit * unit;
  return *size > left ? CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION : CUDA_SUCCESS;
}

API(cuDevSmResourceSplit,
    (DeviceResource * result, unsigned count, const DeviceResource *input, DeviceResource *rest, unsigned flags,
     GroupRequest *wanted),
    (result, count, input, rest, flags, wanted)) {
  if (!count || !wanted || flags) return CUDA_ERROR_INVALID_VALUE;
  CUresult answer = check_input(input);
  unsigned left = answer ? 0 : input->of.sm.count, number = next_split(), size;
  for (unsigned at = 0; !answer && at < count; at++) { /* all are checked before anything is written */
    answer = size_of(&wanted[at], left, input->of.sm.unit, &size);
    if (!answer && result && !size) answer = CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    if (!answer) left -= size;
  }
  if (answer) return answer;
  DeviceResource from = *input;
  left = from.of.sm.count;
  for (unsigned at = 0; at < count; at++) {
    unsigned unit = wanted[at].coscheduled ? wanted[at].coscheduled : from.of.sm.unit;
    size_of(&wanted[at], left, from.of.sm.unit, &size);
    wanted[at].count = size;
    left -= size;
    if (!result) continue;
    result[at] = group(&from, number, size, unit, unit);
    result[at].of.sm.flags = wanted[at].flags;
  }
  if (rest) *rest = group(&from, number, left, LEAST_SMS, LEAST_SMS);
  return CUDA_SUCCESS;
}

/* -- green contexts -- */

enum { MOST_RESOURCES = 64 };

/* The resources of a green context, summed up: one of each type. */
typedef struct {
  Object head;
  DeviceResource multiprocessors, queues;
} Description;

/* The handle of a green context is that of the context that belongs to it. */
typedef Context GreenContext;

STATIC_LOCK(lock); /* of green contexts and descriptions */

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
API_WHEN(false, cuDevResourceGenerateDesc, (void **out, DeviceResource *resources, unsigned count),
         (out, resources, count)) {
  Description described = {0};
  if (!out || !resources || !count || count > MOST_RESOURCES) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned at = 0; at < count; at++) TRY(add(&described, &resources[at], resources[0].device));
  Description *kept = cl_object_make(sizeof *kept, HANDLE_RESOURCE_DESCRIPTION, NULL, NULL);
  if (!kept) return CUDA_ERROR_OUT_OF_MEMORY;
  kept->multiprocessors = described.multiprocessors;
  kept->queues = described.queues;
  *out = kept;
  return CUDA_SUCCESS;
}

API(cuGreenCtxCreate, (void **out, const Description *description, CUdevice device, unsigned flags),
    (out, description, device, flags)) {
  cl_event_int(line, "device", device);
  Description whole = {0};
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  if (!cl_is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  if (flags != CU_GREEN_CTX_DEFAULT_STREAM) return CUDA_ERROR_INVALID_VALUE;
  if (!description) { /* all of the device */
    device_resource(device, CU_DEV_RESOURCE_TYPE_SM, &whole.multiprocessors);
    description = &whole;
  } else if (!cl_handle_is(description, HANDLE_RESOURCE_DESCRIPTION)) return CUDA_ERROR_INVALID_VALUE;
  if (!description->multiprocessors.type) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
  if (description->multiprocessors.device != device) return CUDA_ERROR_INVALID_DEVICE;
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

static CUresult free_resources(GreenContext *green) {
  if (!green) return CUDA_ERROR_INVALID_CONTEXT;
  HOLD(lock);
  if (!cl_handle_is(green, HANDLE_GREEN_CONTEXT)) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  cl_object_unname(&green->head);
  free((void *)green->green);
  return CUDA_SUCCESS;
}

API(cuGreenCtxDestroy, (GreenContext * green), (green)) {
  TRY(free_resources(green));
  cl_end_green_context(green);
  return CUDA_SUCCESS;
}

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

API(cuCtxFromGreenCtx, (Context **out, GreenContext *green), (out, green)) {
  CUresult result = out ? check_green(green) : CUDA_ERROR_INVALID_VALUE;
  if (!result) *out = green;
  return result;
}

API(cuGreenCtxGetId, (GreenContext * green, uint64_t *id), (green, id)) {
  CUresult state = CUDA_SUCCESS;
  if (!id) return CUDA_ERROR_INVALID_VALUE;
  if (!green) green = cl_context(&state);
  if (!state && green && cl_is_known_context(green) && !green->green) state = CUDA_ERROR_INVALID_CONTEXT;
  if (!state) state = check_green(green);
  if (!state) *id = green->id;
  return state;
}

/* -- their resources -- */

static CUresult resource_of(const GreenContext *green, DeviceResource *out, int type) {
  Description resources;
  CUresult result = device_resource(0, type, out); /* whether there is such a resource at all */
  if (!result) result = read_green(green, &resources);
  if (!result) result = device_resource(green->device, type, out);
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
  return context->green ? resource_of(context, out, type) : device_resource(context->device, type, out);
}
EXPORTED(cuCtxGetDevResource, (Context *context, DeviceResource *out, int type),
         resource_of_context(context, out, type))

/* -- their streams and events: through the functions of every context -- */

extern CUresult cuStreamCreateWithPriority(void **stream, unsigned flags, int priority);
extern CUresult cuStreamGetCtx(void *stream, Context **context);
extern CUresult cuCtxRecordEvent(Context *context, void *event);
extern CUresult cuCtxWaitEvent(Context *context, void *event);

API(cuGreenCtxStreamCreate, (void **stream, GreenContext *green, unsigned flags, int priority),
    (stream, green, flags, priority)) {
  TRY(stream ? check_green(green) : CUDA_ERROR_INVALID_VALUE);
  if (flags != CU_STREAM_NON_BLOCKING)
    return *stream = green, CUDA_ERROR_INVALID_VALUE; /* not a stream (measured: edges/green_devices) */
  if (!cl_push_context(green)) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = cuStreamCreateWithPriority(stream, flags, priority);
  cl_pop_context();
  return result;
}

static CUresult with_event(GreenContext *green, void *event, CUresult (*use)(Context *, void *)) {
  if (green && !event) return CUDA_ERROR_INVALID_HANDLE;
  CUresult result = check_green(green);
  return result ? result : use(green, event);
}
EXPORTED(cuGreenCtxRecordEvent, (GreenContext * green, void *event), with_event(green, event, cuCtxRecordEvent))
EXPORTED(cuGreenCtxWaitEvent, (GreenContext * green, void *event), with_event(green, event, cuCtxWaitEvent))

API(cuStreamGetGreenCtx, (void *stream, const void **out), (stream, out)) {
  Context *context;
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = cuStreamGetCtx(stream, &context);
  if (!result) *out = context->green ? context : NULL;
  return result;
}

API(cuStreamGetDevResource, (void *stream, DeviceResource *out, int type), (stream, out, type)) {
  Context *context;
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = cuStreamGetCtx(stream, &context);
  return result ? result : resource_of_context(context, out, type);
}
