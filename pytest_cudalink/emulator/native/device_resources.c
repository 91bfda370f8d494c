/* The resources of a device: multiprocessors, which can be split into groups, and work queues. */
#include <stdatomic.h>
#include <string.h>

#include "calls.h"
#include "config.h"
#include "devices.h"
#include "device_resources.h"
#include "occupancy_rules.h"

enum { MARK = 0x67726e21, FIRST_WITH_QUEUES = 13010, QUEUES = 8 };
enum { ARCH_OF_CLUSTERS = 90, LEAST_SMS = 2, LARGEST_COSCHEDULED = 32 };

CUresult cl_device_resource(CUdevice device, int type, DeviceResource *out) {
  int count = 0;
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
  cl_device_attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &count);
  out->of.sm.count = (unsigned)count;
  out->of.sm.least = (unsigned)cl_least_multiprocessors();
  out->of.sm.unit = (unsigned)cl_multiprocessor_unit();
  return CUDA_SUCCESS;
}
EXPORTED(cuDeviceGetDevResource, (CUdevice device, DeviceResource *out, int type),
         cl_device_resource(device, type, out))

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

static CUresult split_by_count(EventLine *line, DeviceResource *result, unsigned *groups, const DeviceResource *input,
                               DeviceResource *rest, unsigned flags, unsigned least) {
  if (!groups || (result && !*groups)) return CUDA_ERROR_INVALID_VALUE;
  CUresult answer = check_input(input);
  if (answer) return answer;
  unsigned all = input->of.sm.count, smallest = input->of.sm.least, unit = input->of.sm.unit;
  cl_event_uint(line, "least", least);
  if (least > all) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
  if (flags & CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING) smallest = unit = LEAST_SMS;
  unsigned size = rounded_up(least > smallest ? least : smallest, unit);
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
EXPORTED(cuDevSmResourceSplitByCount,
         (DeviceResource * result, unsigned *groups, const DeviceResource *input, DeviceResource *rest, unsigned flags,
          unsigned least),
         split_by_count(line, result, groups, input, rest, flags, least))

/* CU_DEV_SM_RESOURCE_GROUP_PARAMS */
typedef struct {
  unsigned count, coscheduled, preferred, flags, reserved[12];
} Wanted;

_Static_assert(sizeof(Wanted) == 64, "CU_DEV_SM_RESOURCE_GROUP_PARAMS");

/* How many multiprocessors a group gets of those that are left; 0 is not an error yet. */
static CUresult size_of(const Wanted *wanted, unsigned left, unsigned default_unit, unsigned *size) {
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

static CUresult split(DeviceResource *result, unsigned count, const DeviceResource *input, DeviceResource *rest,
                      unsigned flags, Wanted *wanted) {
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
EXPORTED(cuDevSmResourceSplit,
         (DeviceResource * result, unsigned count, const DeviceResource *input, DeviceResource *rest, unsigned flags,
          Wanted *wanted),
         split(result, count, input, rest, flags, wanted))
