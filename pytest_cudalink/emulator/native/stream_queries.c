/* What streams are asked, and their attributes; captured or not. */
#include <string.h>

#include "capture.h"
#include "devices.h"

/* Copies a stream, so that it is not read while another thread destroys it; the context of a default one is the current
   one. Some questions are work that a capturing stream refuses, others are only refused once its capture failed
   (measured: programs/capture). */
static CUresult read_stream(const void *handle, const void *out, Stream *known, bool as_work) {
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  Stream *stream;
  HOLD_STREAMS();
  TRY(as_work ? cl_refuse_captured(handle, &stream) : cl_stream_ready(handle, &stream));
  *known = *stream;
  if (!known->context) known->context = cl_current();
  return CUDA_SUCCESS;
}

/* A question to a stream; the answer is a member of the copy. */
#define ASK(name, type, member, as_work)                         \
  static CUresult ask_##name(const void *stream, type out) {     \
    Stream known;                                                \
    CUresult result = read_stream(stream, out, &known, as_work); \
    if (!result) *out = known.member;                            \
    return result;                                               \
  }                                                              \
  EXPORTED(name, (Stream *stream, type out), ask_##name(stream, out))
ASK(cuStreamGetFlags, unsigned *, flags, true)
ASK(cuStreamGetPriority, int *, priority, false)
ASK(cuStreamGetId, uint64_t *, id, true)
ASK(cuStreamGetCtx, Context **, context, false)
ASK(cuStreamGetDevice, CUdevice *, context->device, true)

API(cuStreamGetCtx_v2, (Stream *stream, Context **context, void **green), (stream, context, green)) {
  Stream known;
  TRY(read_stream(stream, context ? (void *)context : green, &known, false));
  bool is_green = known.context->green;
  if (context) *context = is_green ? cl_primary_context(known.context->device) : known.context;
  if (green) *green = is_green ? known.context : NULL;
  return CUDA_SUCCESS;
}

enum { DOMAINS = 4 }; /* of sm_90 */

static CUresult get_attribute(const void *handle, int attribute, AttributeValue *value) {
  Stream *stream;
  TRY(cl_stream_ready(handle, &stream));
  AttributeValue answer = {{0}};
  switch (attribute) {
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW: answer = stream->window; break;
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY: answer.number = stream->policy; break;
    case CU_LAUNCH_ATTRIBUTE_PRIORITY: answer.number = stream->priority; break;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP: memcpy(answer.bytes, stream->domains, sizeof stream->domains); break;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN: answer.number = stream->domain; break;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  cl_write_attribute(value, &answer, attribute);
  return CUDA_SUCCESS;
}

void cl_write_attribute(AttributeValue *to, const AttributeValue *from, int attribute) {
  memcpy(to, from, attribute == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP ? 2 : sizeof *to);
}

/* CUaccessPolicyWindow */
typedef struct {
  void *start;
  size_t bytes;
  float hit_ratio;
  int hit, miss;
} Window;

/* The bytes of a window have the attribute's bound by the programming guide; -1 is beyond it (recorded programs). What
   misses cannot persist (cuda.h, CUaccessPolicyWindow). */
static bool is_window(const AttributeValue *value) {
  Window window;
  memcpy(&window, value, sizeof window);
  return window.bytes <= cl_device_has(CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE) && window.hit_ratio >= 0 &&
         window.hit_ratio <= 1 && window.miss != CU_ACCESS_PROPERTY_PERSISTING;
}

bool cl_fit_attribute(int attribute, AttributeValue *value) {
  const int number = value->number;
  switch (attribute) {
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW: return is_window(value);
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
      return number >= CU_SYNC_POLICY_AUTO && number <= CU_SYNC_POLICY_BLOCKING_SYNC;
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
      value->number = number > 0 ? 0 : number < GREATEST_PRIORITY ? GREATEST_PRIORITY : number;
      return true;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
      return (uint8_t)value->bytes[0] < DOMAINS && (uint8_t)value->bytes[1] < DOMAINS;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
    case CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING: return number == 0 || number == 1;
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT: return number >= 0 && number <= 100;
    default: return true;
  }
}

static CUresult set_attribute(const void *handle, int attribute, AttributeValue value) {
  Stream *stream;
  TRY(cl_stream_ready(handle, &stream));
  if (!cl_fit_attribute(attribute, &value)) return CUDA_ERROR_INVALID_VALUE;
  switch (attribute) {
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW: stream->window = value; break;
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY: stream->policy = value.number; break;
    case CU_LAUNCH_ATTRIBUTE_PRIORITY: stream->priority = value.number; break;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP: memcpy(stream->domains, value.bytes, sizeof stream->domains); break;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN: stream->domain = value.number; break;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

API_LOCKED(cuStreamCopyAttributes, (Stream *to, Stream *from), (to, from)) {
  Stream *target, *source;
  TRY(cl_stream_ready(to, &target));
  TRY(cl_stream_ready(from, &source));
  if (target->context != source->context && target->context && source->context) return CUDA_ERROR_INVALID_VALUE;
  target->window = source->window;
  target->policy = source->policy;
  target->priority = source->priority;
  target->domain = source->domain;
  memcpy(target->domains, source->domains, sizeof target->domains);
  return CUDA_SUCCESS;
}

EXPORTED(cuStreamGetAttribute, (Stream *stream, int attribute, AttributeValue *value_out),
         value_out ? LOCKED(get_attribute(stream, attribute, value_out)) : CUDA_ERROR_INVALID_VALUE)
EXPORTED(cuStreamSetAttribute, (Stream *stream, int attribute, const AttributeValue *value),
         value ? LOCKED(set_attribute(stream, attribute, *value)) : CUDA_ERROR_INVALID_VALUE)
