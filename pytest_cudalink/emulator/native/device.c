/* Initialization, versions, errors, devices, contexts, streams and events. */
#define _GNU_SOURCE
#include "emulator.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "devices.inc" /* device_profiles, base_attributes */
#include "errors.inc"  /* driver_errors */

/* -- version and errors -- */

EXPORT CUresult cuInit(unsigned flags) {
  ENTER_ANY_TIME(cuInit);
  LEAVE(cl_initialize(flags), ",\"flags\":%u", flags);
}

EXPORT CUresult cuDriverGetVersion(int *version) {
  ENTER_ANY_TIME(cuDriverGetVersion);
  if (!version) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  *version = cl_config()->version;
  LEAVE(CUDA_SUCCESS, "");
}

static const struct driver_error *error_of(CUresult code) {
  for (size_t at = 0; at < sizeof driver_errors / sizeof *driver_errors; at++)
    if (driver_errors[at].code == code && driver_errors[at].since <= cl_config()->version) return &driver_errors[at];
  return NULL;
}

EXPORT CUresult cuGetErrorName(CUresult code, const char **text) {
  ENTER_ANY_TIME(cuGetErrorName);
  if (!text) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  const struct driver_error *error = error_of(code);
  *text = error ? error->name : NULL;
  LEAVE(error ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE, ",\"code\":%d", code);
}

EXPORT CUresult cuGetErrorString(CUresult code, const char **text) {
  ENTER_ANY_TIME(cuGetErrorString);
  if (!text) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  const struct driver_error *error = error_of(code);
  *text = error ? error->text : NULL;
  LEAVE(error ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE, ",\"code\":%d", code);
}

/* libnvJitLink 12.1 to 12.4 refuse to start on a driver without this table; links never call into it (measured). */
static const unsigned char table_of_old_linkers[16] = {0xda, 0x91, 0x51, 0xd3, 0x3a, 0xe6, 0xcc, 0x41,
                                                       0xa5, 0xc0, 0x4f, 0x26, 0xd5, 0x33, 0xe3, 0x28};

static CUresult refuse(void) {
  cl_event("\"call\":\"a function of an undocumented table\",\"result\":%d", CUDA_ERROR_NOT_SUPPORTED);
  return CUDA_ERROR_NOT_SUPPORTED;
}

EXPORT CUresult cuGetExportTable(const void **table, const void *uuid) {
  ENTER_ANY_TIME(cuGetExportTable);
  if (table) *table = NULL;
  if (!table || !uuid || !cl_initialized()) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  if (!memcmp(uuid, table_of_old_linkers, 16)) {
    static const void *const refusing[32] = {
        (void *)sizeof refusing, refuse, refuse, refuse, refuse, refuse, refuse, refuse, refuse, refuse, refuse,
        refuse, refuse, refuse, refuse, refuse, refuse, refuse, refuse, refuse, refuse, refuse, refuse, refuse,
        refuse, refuse, refuse, refuse, refuse, refuse, refuse, refuse,
    };
    *table = refusing;
    LEAVE(CUDA_SUCCESS, ",\"note\":\"a table whose functions all answer 801\"");
  }
  /* the CUDA runtime needs these tables; libnvrtc and libnvJitLink accept this answer */
  LEAVE(CUDA_ERROR_NOT_SUPPORTED, ",\"note\":\"no undocumented tables: the CUDA runtime cannot run on the emulated driver\"");
}

/* -- devices -- */

static const struct device_profile *profile(void) {
  static const struct device_profile *chosen;
  if (!chosen) {
    chosen = &device_profiles[0];
    for (size_t at = 0; at < sizeof device_profiles / sizeof *device_profiles; at++)
      if (device_profiles[at].arch == cl_config()->arch) chosen = &device_profiles[at];
  }
  return chosen;
}

static bool is_device(CUdevice device) { return device >= 0 && device < cl_config()->devices; }

#define NEED_DEVICE(device) \
  if (!is_device(device)) LEAVE(CUDA_ERROR_INVALID_DEVICE, ",\"device\":%d", device)

enum { COMPUTE_CAPABILITY_MAJOR = 75, COMPUTE_CAPABILITY_MINOR = 76 };

int cl_device_attribute(int attribute, int *value) {
  if (attribute == COMPUTE_CAPABILITY_MAJOR) return *value = profile()->arch / 10, CUDA_SUCCESS;
  if (attribute == COMPUTE_CAPABILITY_MINOR) return *value = profile()->arch % 10, CUDA_SUCCESS;
  for (const struct attribute *own = profile()->attributes; own->number; own++)
    if (own->number == attribute) return *value = own->value, CUDA_SUCCESS;
  for (const struct attribute *base = base_attributes; base->number; base++)
    if (base->number == attribute) return *value = base->value, CUDA_SUCCESS;
  return CUDA_ERROR_INVALID_VALUE;
}

size_t cl_device_memory(void) { return profile()->memory; }
const char *cl_device_name(void) { return profile()->name; }

void cl_device_uuid(CUdevice device, unsigned char uuid[16]) {
  memcpy(uuid, "cudalink-emul", 13);
  uuid[13] = (unsigned char)profile()->arch;
  uuid[14] = 0;
  uuid[15] = (unsigned char)device;
}

EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal) {
  ENTER(cuDeviceGet);
  if (!device) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  NEED_DEVICE(ordinal);
  *device = ordinal;
  LEAVE(CUDA_SUCCESS, ",\"ordinal\":%d", ordinal);
}

EXPORT CUresult cuDeviceGetCount(int *count) {
  ENTER(cuDeviceGetCount);
  if (!count) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  *count = cl_config()->devices;
  LEAVE(CUDA_SUCCESS, ",\"count\":%d", *count);
}

EXPORT CUresult cuDeviceGetName(char *name, int length, CUdevice device) {
  ENTER(cuDeviceGetName);
  if (!name || length <= 0) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  NEED_DEVICE(device);
  snprintf(name, (size_t)length, "%s", profile()->name);
  LEAVE(CUDA_SUCCESS, "");
}

static CUresult uuid_of(Call *call, void *uuid, CUdevice device) {
  if (!uuid) return cl_leave(call, CUDA_ERROR_INVALID_VALUE, "%s", "");
  if (!is_device(device)) return cl_leave(call, CUDA_ERROR_INVALID_DEVICE, "%s", "");
  cl_device_uuid(device, uuid);
  return cl_leave(call, CUDA_SUCCESS, "%s", "");
}

EXPORT CUresult cuDeviceGetUuid(void *uuid, CUdevice device) {
  ENTER(cuDeviceGetUuid);
  return uuid_of(&call, uuid, device);
}

EXPORT CUresult cuDeviceGetUuid_v2(void *uuid, CUdevice device) {
  ENTER(cuDeviceGetUuid_v2);
  return uuid_of(&call, uuid, device);
}

EXPORT CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
  ENTER(cuDeviceGetAttribute);
  if (!value) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  NEED_DEVICE(device);
  LEAVE(cl_device_attribute(attribute, value), ",\"attribute\":%d", attribute);
}

EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
  ENTER(cuDeviceTotalMem_v2);
  if (!bytes) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  NEED_DEVICE(device);
  *bytes = profile()->memory;
  LEAVE(CUDA_SUCCESS, "");
}

EXPORT CUresult cuDeviceTotalMem(unsigned *bytes, CUdevice device) {
  ENTER(cuDeviceTotalMem);
  if (!bytes) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  NEED_DEVICE(device);
  *bytes = profile()->memory > UINT32_MAX ? UINT32_MAX : (unsigned)profile()->memory;
  LEAVE(CUDA_SUCCESS, "");
}

EXPORT CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice device) {
  ENTER(cuDeviceComputeCapability);
  if (!major || !minor) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  NEED_DEVICE(device);
  *major = profile()->arch / 10;
  *minor = profile()->arch % 10;
  LEAVE(CUDA_SUCCESS, "");
}

EXPORT CUresult cuDeviceGetProperties(int *properties, CUdevice device) {
  ENTER(cuDeviceGetProperties);
  if (!properties) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  NEED_DEVICE(device);
  for (int at = 0; at < 14; at++) cl_device_attribute(at + 1, &properties[at]);
  LEAVE(CUDA_SUCCESS, "");
}

EXPORT CUresult cuDeviceGetPCIBusId(char *text, int length, CUdevice device) {
  ENTER(cuDeviceGetPCIBusId);
  if (!text || length <= 0) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  NEED_DEVICE(device);
  snprintf(text, (size_t)length, "0000:%02x:00.0", device + 1);
  LEAVE(CUDA_SUCCESS, "");
}

EXPORT CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *text) {
  ENTER(cuDeviceGetByPCIBusId);
  unsigned domain, bus, slot;
  if (!device || !text || sscanf(text, "%x:%x:%x", &domain, &bus, &slot) != 3) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  NEED_DEVICE((int)bus - 1);
  *device = (int)bus - 1;
  LEAVE(CUDA_SUCCESS, "");
}

EXPORT CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer) {
  ENTER(cuDeviceCanAccessPeer);
  if (!can) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  NEED_DEVICE(device);
  NEED_DEVICE(peer);
  *can = device != peer;
  LEAVE(CUDA_SUCCESS, "");
}

EXPORT CUresult cuDeviceGetExecAffinitySupport(int *supported, int type, CUdevice device) {
  ENTER(cuDeviceGetExecAffinitySupport);
  (void)type;
  if (!supported) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  NEED_DEVICE(device);
  *supported = 0;
  LEAVE(CUDA_SUCCESS, "");
}

EXPORT CUresult cuDeviceGetDefaultMemPool(void **pool, CUdevice device) {
  ENTER(cuDeviceGetDefaultMemPool);
  if (!pool) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  NEED_DEVICE(device);
  *pool = (void *)(uintptr_t)(0x9001 + (unsigned)device);
  LEAVE(CUDA_SUCCESS, "");
}

EXPORT CUresult cuDeviceGetMemPool(void **pool, CUdevice device) {
  ENTER(cuDeviceGetMemPool);
  if (!pool) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  NEED_DEVICE(device);
  *pool = (void *)(uintptr_t)(0x9001 + (unsigned)device);
  LEAVE(CUDA_SUCCESS, "");
}

/* -- contexts -- */

enum { CONTEXT_MAGIC = 0x63747821, KNOWN_FLAGS = 0xff, API_VERSION = 3020 };

/* Contexts are never freed: a caller may go on with a handle, and must get an answer. */
static Context primary[DEVICES_MAX];
static struct {
  Context **list;
  size_t count, room;
} contexts;
static uint64_t last_id;

static _Thread_local struct {
  Context **list;
  size_t count, room;
} stack;
static pthread_key_t stack_key; /* frees a thread's list when the thread ends */

static void drop_stack(void *list) {
  free(list);
  memset(&stack, 0, sizeof stack);
}

__attribute__((constructor)) static void make_stack_key(void) { pthread_key_create(&stack_key, drop_stack); }

static void start_context(Context *context, CUdevice device, unsigned flags) {
  static const size_t limits[10] = {1024, 8 << 20, 8 << 20, 2, 2048, 64, 11796480, 232448, 0, 0};
  context->magic = CONTEXT_MAGIC;
  context->device = device;
  context->dead = false;
  context->peers = 0;
  context->flags = flags;
  context->id = ++last_id;
  memcpy(context->limits, limits, sizeof limits);
}

static bool is_context(const Context *context) {
  if (context >= primary && context < primary + DEVICES_MAX) return context->magic == CONTEXT_MAGIC;
  for (size_t at = 0; at < contexts.count; at++)
    if (contexts.list[at] == context) return true;
  return false;
}

static Context *top(void) { return stack.count ? stack.list[stack.count - 1] : NULL; }

static bool push(Context *context) {
  if (stack.count == stack.room) {
    size_t room = stack.room ? 2 * stack.room : 8;
    Context **list = realloc(stack.list, room * sizeof *list);
    if (!list) return false;
    stack.list = list;
    stack.room = room;
    pthread_setspecific(stack_key, list);
  }
  stack.list[stack.count++] = context;
  return true;
}

Context *cl_context(CUresult *result) {
  Context *context = top();
  *result = !context ? CUDA_ERROR_INVALID_CONTEXT : context->dead ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_SUCCESS;
  return context;
}

/* Whether a context that a caller names exists; NULL is the current one. */
static bool is_known(const Context *context) {
  if (!context) return top() != NULL;
  pthread_mutex_lock(&cl_lock);
  bool known = is_context(context);
  pthread_mutex_unlock(&cl_lock);
  return known;
}

EXPORT CUresult cuDevicePrimaryCtxRetain(Context **context, CUdevice device) {
  ENTER(cuDevicePrimaryCtxRetain);
  if (!context) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  NEED_DEVICE(device);
  pthread_mutex_lock(&cl_lock);
  Context *own = &primary[device];
  if (own->references++ == 0) {
    own->primary = true;
    start_context(own, device, own->flags);
  }
  *context = own;
  pthread_mutex_unlock(&cl_lock);
  LEAVE(CUDA_SUCCESS, ",\"context\":%llu,\"references\":%u", (unsigned long long)own->id, own->references);
}

static CUresult release_primary(CUdevice device, bool all) {
  Context *own = &primary[device];
  CUresult result = CUDA_SUCCESS;
  pthread_mutex_lock(&cl_lock);
  if (!own->references) result = all ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
  else if (all || --own->references == 0) {
    own->references = 0;
    own->dead = true;
    cl_release_context(own);
  }
  pthread_mutex_unlock(&cl_lock);
  return result;
}

EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  ENTER(cuDevicePrimaryCtxRelease_v2);
  NEED_DEVICE(device);
  LEAVE(release_primary(device, false), ",\"references\":%u", primary[device].references);
}

EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  ENTER(cuDevicePrimaryCtxRelease);
  NEED_DEVICE(device);
  LEAVE(release_primary(device, false), "");
}

EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
  ENTER(cuDevicePrimaryCtxReset_v2);
  NEED_DEVICE(device);
  LEAVE(release_primary(device, true), "");
}

EXPORT CUresult cuDevicePrimaryCtxReset(CUdevice device) {
  ENTER(cuDevicePrimaryCtxReset);
  NEED_DEVICE(device);
  LEAVE(release_primary(device, true), "");
}

static CUresult set_primary_flags(CUdevice device, unsigned flags) {
  if (flags & ~(unsigned)KNOWN_FLAGS) return CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&cl_lock);
  primary[device].flags = flags;
  pthread_mutex_unlock(&cl_lock);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags) {
  ENTER(cuDevicePrimaryCtxSetFlags_v2);
  NEED_DEVICE(device);
  LEAVE(set_primary_flags(device, flags), ",\"flags\":%u", flags);
}

EXPORT CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned flags) {
  ENTER(cuDevicePrimaryCtxSetFlags);
  NEED_DEVICE(device);
  LEAVE(set_primary_flags(device, flags), ",\"flags\":%u", flags);
}

EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
  ENTER(cuDevicePrimaryCtxGetState);
  NEED_DEVICE(device);
  if (!flags || !active) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  pthread_mutex_lock(&cl_lock);
  *flags = primary[device].flags;
  *active = primary[device].references > 0;
  pthread_mutex_unlock(&cl_lock);
  LEAVE(CUDA_SUCCESS, "");
}

static CUresult create_context(Context **out, unsigned flags, CUdevice device) {
  if (!out || (flags & ~(unsigned)KNOWN_FLAGS)) return CUDA_ERROR_INVALID_VALUE;
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  Context *context = calloc(1, sizeof *context);
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  pthread_mutex_lock(&cl_lock);
  if (contexts.count == contexts.room) {
    size_t room = contexts.room ? 2 * contexts.room : 16;
    Context **list = realloc(contexts.list, room * sizeof *list);
    if (list) contexts.list = list, contexts.room = room;
  }
  if (context && contexts.count < contexts.room && push(context)) {
    start_context(context, device, flags);
    contexts.list[contexts.count++] = context;
    *out = context;
    context = NULL;
    result = CUDA_SUCCESS;
  }
  pthread_mutex_unlock(&cl_lock);
  free(context);
  return result;
}

EXPORT CUresult cuCtxCreate(Context **context, unsigned flags, CUdevice device) {
  ENTER(cuCtxCreate);
  /* the entry point of before CUDA 3.2: a real driver of today answers 2 */
  (void)context, (void)flags, (void)device;
  LEAVE(CUDA_ERROR_OUT_OF_MEMORY, ",\"note\":\"the entry point of CUDA 2.0\"");
}

EXPORT CUresult cuCtxCreate_v2(Context **context, unsigned flags, CUdevice device) {
  ENTER(cuCtxCreate_v2);
  LEAVE(create_context(context, flags, device), ",\"flags\":%u,\"device\":%d", flags, device);
}

EXPORT CUresult cuCtxCreate_v3(Context **context, void *affinity, int count, unsigned flags, CUdevice device) {
  ENTER(cuCtxCreate_v3);
  if (affinity || count) LEAVE(CUDA_ERROR_NOT_SUPPORTED, ",\"note\":\"execution affinity is not emulated\"");
  LEAVE(create_context(context, flags, device), ",\"flags\":%u,\"device\":%d", flags, device);
}

EXPORT CUresult cuCtxCreate_v4(Context **context, const void *parameters, unsigned flags, CUdevice device) {
  ENTER(cuCtxCreate_v4);
  if (parameters) {
    const struct {
      void *affinity;
      int count;
      void *cig;
    } *given = parameters;
    if (given->affinity || given->count || given->cig)
      LEAVE(CUDA_ERROR_NOT_SUPPORTED, ",\"note\":\"context parameters are not emulated\"");
  }
  LEAVE(create_context(context, flags, device), ",\"flags\":%u,\"device\":%d", flags, device);
}

static CUresult destroy_context(Context *context) {
  if (!context) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = CUDA_SUCCESS;
  pthread_mutex_lock(&cl_lock);
  if (!is_context(context)) result = CUDA_ERROR_INVALID_CONTEXT;
  else if (context->primary) result = CUDA_ERROR_INVALID_CONTEXT;
  else if (context->dead) result = CUDA_ERROR_CONTEXT_IS_DESTROYED;
  else {
    context->dead = true;
    cl_release_context(context);
    if (top() == context) stack.count--;
  }
  pthread_mutex_unlock(&cl_lock);
  return result;
}

EXPORT CUresult cuCtxDestroy_v2(Context *context) {
  ENTER(cuCtxDestroy_v2);
  LEAVE(destroy_context(context), "");
}

EXPORT CUresult cuCtxDestroy(Context *context) {
  ENTER(cuCtxDestroy);
  LEAVE(destroy_context(context), "");
}

EXPORT CUresult cuCtxPushCurrent_v2(Context *context) {
  ENTER(cuCtxPushCurrent_v2);
  if (!context) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  pthread_mutex_lock(&cl_lock);
  bool known = is_context(context), pushed = known && push(context);
  pthread_mutex_unlock(&cl_lock);
  LEAVE(pushed ? CUDA_SUCCESS : known ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_CONTEXT, "");
}

EXPORT CUresult cuCtxPopCurrent_v2(Context **context) {
  ENTER(cuCtxPopCurrent_v2);
  if (!stack.count) LEAVE(CUDA_ERROR_INVALID_CONTEXT, "");
  Context *popped = stack.list[--stack.count];
  if (context) *context = popped;
  LEAVE(CUDA_SUCCESS, "");
}

EXPORT CUresult cuCtxSetCurrent(Context *context) {
  ENTER(cuCtxSetCurrent);
  pthread_mutex_lock(&cl_lock);
  bool known = !context || is_context(context);
  if (known) {
    if (stack.count) stack.count--;
    if (context) push(context);
  }
  pthread_mutex_unlock(&cl_lock);
  LEAVE(known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT, "");
}

EXPORT CUresult cuCtxGetCurrent(Context **context) {
  ENTER(cuCtxGetCurrent);
  if (!context) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  *context = top();
  LEAVE(CUDA_SUCCESS, "");
}

EXPORT CUresult cuCtxGetDevice(CUdevice *device) {
  ENTER(cuCtxGetDevice);
  if (!device) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  if (!top()) LEAVE(CUDA_ERROR_INVALID_CONTEXT, "");
  *device = top()->device; /* also of a destroyed context (measured) */
  LEAVE(CUDA_SUCCESS, "");
}

/* From CUDA 13 on a context may be named; NULL is the current one. */
EXPORT CUresult cuCtxGetDevice_v2(CUdevice *device, Context *context) {
  ENTER(cuCtxGetDevice_v2);
  if (!device) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  if (!is_known(context)) LEAVE(CUDA_ERROR_INVALID_CONTEXT, "");
  *device = (context ? context : top())->device;
  LEAVE(CUDA_SUCCESS, "");
}

EXPORT CUresult cuCtxSynchronize(void) {
  ENTER(cuCtxSynchronize);
  NEED_CONTEXT(context);
  LEAVE(CUDA_SUCCESS, "");
}

EXPORT CUresult cuCtxSynchronize_v2(Context *named) {
  ENTER(cuCtxSynchronize_v2);
  if (!named) {
    NEED_CONTEXT(context);
  }
  LEAVE(is_known(named) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT, "");
}

EXPORT CUresult cuCtxGetFlags(unsigned *flags) {
  ENTER(cuCtxGetFlags);
  if (!flags) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  NEED_CONTEXT(context);
  *flags = context->flags | 8; /* mapping host memory is always possible (measured) */
  LEAVE(CUDA_SUCCESS, "");
}

EXPORT CUresult cuCtxGetApiVersion(Context *context, unsigned *version) {
  ENTER(cuCtxGetApiVersion);
  if (!version) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  if (!context) {
    NEED_CONTEXT(current);
  }
  if (!is_known(context)) LEAVE(CUDA_ERROR_INVALID_CONTEXT, "");
  *version = API_VERSION;
  LEAVE(CUDA_SUCCESS, "");
}

EXPORT CUresult cuCtxGetId(Context *context, uint64_t *id) {
  ENTER(cuCtxGetId);
  if (!id) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  if (!context) context = top();
  pthread_mutex_lock(&cl_lock);
  bool known = context && is_context(context);
  if (known) *id = context->id;
  pthread_mutex_unlock(&cl_lock);
  LEAVE(known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT, "");
}

EXPORT CUresult cuCtxGetLimit(size_t *value, int limit) {
  ENTER(cuCtxGetLimit);
  if (!value || limit < 0 || limit > 9) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  NEED_CONTEXT(context);
  if (limit == 3 || limit == 9) LEAVE(CUDA_ERROR_UNSUPPORTED_LIMIT, "");
  *value = context->limits[limit];
  LEAVE(CUDA_SUCCESS, "");
}

EXPORT CUresult cuCtxSetLimit(int limit, size_t value) {
  ENTER(cuCtxSetLimit);
  if (limit < 0 || limit > 9) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  NEED_CONTEXT(context);
  if (limit == 3 || limit == 9) LEAVE(CUDA_ERROR_UNSUPPORTED_LIMIT, "");
  context->limits[limit] = value;
  LEAVE(CUDA_SUCCESS, "");
}

EXPORT CUresult cuCtxResetPersistingL2Cache(void) {
  ENTER(cuCtxResetPersistingL2Cache);
  NEED_CONTEXT(context);
  LEAVE(CUDA_SUCCESS, "");
}

EXPORT CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
  ENTER(cuCtxGetStreamPriorityRange);
  NEED_CONTEXT(context);
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  LEAVE(CUDA_SUCCESS, "");
}

EXPORT CUresult cuCtxGetCacheConfig(int *config) {
  ENTER(cuCtxGetCacheConfig);
  if (!config) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  NEED_CONTEXT(context);
  *config = 0;
  LEAVE(CUDA_SUCCESS, "");
}

EXPORT CUresult cuCtxSetCacheConfig(int config) {
  ENTER(cuCtxSetCacheConfig);
  if (config < 0 || config > 3) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  NEED_CONTEXT(context);
  LEAVE(CUDA_SUCCESS, "");
}

EXPORT CUresult cuCtxGetSharedMemConfig(int *config) {
  ENTER(cuCtxGetSharedMemConfig);
  if (!config) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  NEED_CONTEXT(context);
  *config = 1;
  LEAVE(CUDA_SUCCESS, "");
}

EXPORT CUresult cuCtxSetSharedMemConfig(int config) {
  ENTER(cuCtxSetSharedMemConfig);
  if (config < 0 || config > 2) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  NEED_CONTEXT(context);
  LEAVE(CUDA_SUCCESS, "");
}

EXPORT CUresult cuCtxEnablePeerAccess(Context *peer, unsigned flags) {
  ENTER(cuCtxEnablePeerAccess);
  NEED_CONTEXT(context);
  if (flags) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  enum { PEER_ACCESS_ALREADY_ENABLED = 704, PEER_ACCESS_UNSUPPORTED = 217 };
  if (!peer || !is_known(peer)) LEAVE(CUDA_ERROR_INVALID_CONTEXT, "");
  if (peer->device == context->device) LEAVE(PEER_ACCESS_UNSUPPORTED, "");
  pthread_mutex_lock(&cl_lock);
  uint64_t bit = (uint64_t)1 << peer->device;
  bool enabled = context->peers & bit;
  context->peers |= bit;
  pthread_mutex_unlock(&cl_lock);
  LEAVE(enabled ? PEER_ACCESS_ALREADY_ENABLED : CUDA_SUCCESS, "");
}

EXPORT CUresult cuCtxDisablePeerAccess(Context *peer) {
  enum { PEER_ACCESS_NOT_ENABLED = 705 };
  ENTER(cuCtxDisablePeerAccess);
  NEED_CONTEXT(context);
  if (!peer || !is_known(peer)) LEAVE(CUDA_ERROR_INVALID_CONTEXT, "");
  pthread_mutex_lock(&cl_lock);
  uint64_t bit = (uint64_t)1 << peer->device;
  bool enabled = context->peers & bit;
  context->peers &= ~bit;
  pthread_mutex_unlock(&cl_lock);
  LEAVE(enabled ? CUDA_SUCCESS : PEER_ACCESS_NOT_ENABLED, "");
}

EXPORT CUresult cuCtxSetFlags(unsigned flags) {
  ENTER(cuCtxSetFlags);
  if (flags & ~(unsigned)KNOWN_FLAGS) LEAVE(CUDA_ERROR_INVALID_VALUE, ",\"flags\":%u", flags);
  NEED_CONTEXT(context);
  context->flags = flags;
  LEAVE(CUDA_SUCCESS, ",\"flags\":%u", flags);
}

/* -- streams: everything is done when the call returns -- */

enum { STREAM_MAGIC = 0x7374726d, EVENT_MAGIC = 0x65766e74 };

typedef struct {
  uint32_t magic;
  unsigned flags;
  int priority;
  uint64_t id;
  Context *context;
} Stream;

typedef struct {
  uint32_t magic;
  unsigned flags;
  bool recorded;
  struct timespec time;
} Event;

/* Handles are kept in one table, so that a stale or foreign one is an error and not a crash. */
static struct {
  void **list;
  size_t count, room;
} handles;

static bool remember(void *handle) {
  if (handles.count == handles.room) {
    size_t room = handles.room ? 2 * handles.room : 64;
    void **list = realloc(handles.list, room * sizeof *list);
    if (!list) return false;
    handles.list = list;
    handles.room = room;
  }
  handles.list[handles.count++] = handle;
  return true;
}

static bool knows(const void *handle, uint32_t magic, bool forget) {
  for (size_t at = handles.count; at-- > 0;) {
    if (handles.list[at] != handle || *(const uint32_t *)handle != magic) continue;
    if (forget) handles.list[at] = handles.list[--handles.count];
    return true;
  }
  return false;
}

/* NULL, 1 and 2 are the default streams. */
CUresult cl_check_stream(const void *stream) {
  if ((uintptr_t)stream <= 2) return CUDA_SUCCESS;
  pthread_mutex_lock(&cl_lock);
  bool known = knows(stream, STREAM_MAGIC, false);
  pthread_mutex_unlock(&cl_lock);
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult check_event(const Event *event) {
  pthread_mutex_lock(&cl_lock);
  bool known = event && knows(event, EVENT_MAGIC, false);
  pthread_mutex_unlock(&cl_lock);
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

#define NEED_STREAM(stream) \
  if (cl_check_stream(stream)) LEAVE(CUDA_ERROR_INVALID_HANDLE, "")
#define NEED_EVENT(event) \
  if (check_event(event)) LEAVE(CUDA_ERROR_INVALID_HANDLE, "")

static CUresult create_stream(Stream **out, unsigned flags, int priority) {
  CUresult result;
  Context *context = cl_context(&result);
  if (!out || flags > 1) return CUDA_ERROR_INVALID_VALUE;
  if (result) return result;
  Stream *stream = calloc(1, sizeof *stream);
  if (!stream) return CUDA_ERROR_OUT_OF_MEMORY;
  stream->magic = STREAM_MAGIC;
  stream->flags = flags;
  stream->priority = priority > 0 ? 0 : priority < -5 ? -5 : priority;
  stream->context = context;
  pthread_mutex_lock(&cl_lock);
  stream->id = ++last_id;
  bool kept = remember(stream);
  pthread_mutex_unlock(&cl_lock);
  if (!kept) {
    free(stream);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *out = stream;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamCreate(Stream **stream, unsigned flags) {
  ENTER(cuStreamCreate);
  LEAVE(create_stream(stream, flags, 0), ",\"flags\":%u", flags);
}

EXPORT CUresult cuStreamCreateWithPriority(Stream **stream, unsigned flags, int priority) {
  ENTER(cuStreamCreateWithPriority);
  LEAVE(create_stream(stream, flags, priority), ",\"flags\":%u,\"priority\":%d", flags, priority);
}

static CUresult destroy_stream(Stream *stream) {
  if ((uintptr_t)stream <= 2) return CUDA_ERROR_INVALID_HANDLE;
  pthread_mutex_lock(&cl_lock);
  bool known = knows(stream, STREAM_MAGIC, true);
  pthread_mutex_unlock(&cl_lock);
  if (known) free(stream);
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

EXPORT CUresult cuStreamDestroy_v2(Stream *stream) {
  ENTER(cuStreamDestroy_v2);
  LEAVE(destroy_stream(stream), "");
}

EXPORT CUresult cuStreamDestroy(Stream *stream) {
  ENTER(cuStreamDestroy);
  LEAVE(destroy_stream(stream), "");
}

EXPORT CUresult cuStreamQuery(Stream *stream) {
  ENTER(cuStreamQuery);
  NEED_CONTEXT(context);
  NEED_STREAM(stream);
  LEAVE(CUDA_SUCCESS, "");
}

EXPORT CUresult cuStreamSynchronize(Stream *stream) {
  ENTER(cuStreamSynchronize);
  NEED_CONTEXT(context);
  NEED_STREAM(stream);
  LEAVE(CUDA_SUCCESS, "");
}

EXPORT CUresult cuStreamWaitEvent(Stream *stream, Event *event, unsigned flags) {
  ENTER(cuStreamWaitEvent);
  NEED_CONTEXT(context);
  NEED_STREAM(stream);
  NEED_EVENT(event);
  LEAVE(flags > 1 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS, "");
}

EXPORT CUresult cuStreamGetFlags(Stream *stream, unsigned *flags) {
  ENTER(cuStreamGetFlags);
  if (!flags) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  NEED_STREAM(stream);
  *flags = (uintptr_t)stream <= 2 ? 0 : stream->flags;
  LEAVE(CUDA_SUCCESS, "");
}

EXPORT CUresult cuStreamGetPriority(Stream *stream, int *priority) {
  ENTER(cuStreamGetPriority);
  if (!priority) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  NEED_STREAM(stream);
  *priority = (uintptr_t)stream <= 2 ? 0 : stream->priority;
  LEAVE(CUDA_SUCCESS, "");
}

EXPORT CUresult cuStreamGetId(Stream *stream, uint64_t *id) {
  ENTER(cuStreamGetId);
  if (!id) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  NEED_STREAM(stream);
  *id = (uintptr_t)stream <= 2 ? (uintptr_t)stream : stream->id;
  LEAVE(CUDA_SUCCESS, "");
}

EXPORT CUresult cuStreamGetCtx(Stream *stream, Context **context) {
  ENTER(cuStreamGetCtx);
  if (!context) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  NEED_CONTEXT(current);
  NEED_STREAM(stream);
  *context = (uintptr_t)stream <= 2 ? current : stream->context;
  LEAVE(CUDA_SUCCESS, "");
}

EXPORT CUresult cuStreamGetDevice(Stream *stream, CUdevice *device) {
  ENTER(cuStreamGetDevice);
  if (!device) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  NEED_CONTEXT(current);
  NEED_STREAM(stream);
  *device = (uintptr_t)stream <= 2 ? current->device : stream->context->device;
  LEAVE(CUDA_SUCCESS, "");
}

EXPORT CUresult cuStreamIsCapturing(Stream *stream, int *status) {
  ENTER(cuStreamIsCapturing);
  if (!status) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  NEED_STREAM(stream);
  *status = 0;
  LEAVE(CUDA_SUCCESS, "");
}

EXPORT CUresult cuStreamAddCallback(Stream *stream, void (*callback)(Stream *, CUresult, void *), void *data,
                                    unsigned flags) {
  ENTER(cuStreamAddCallback);
  if (!callback || flags) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  NEED_STREAM(stream);
  callback(stream, CUDA_SUCCESS, data);
  LEAVE(CUDA_SUCCESS, "");
}

EXPORT CUresult cuLaunchHostFunc(Stream *stream, void (*function)(void *), void *data) {
  ENTER(cuLaunchHostFunc);
  if (!function) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  NEED_STREAM(stream);
  function(data);
  LEAVE(CUDA_SUCCESS, "");
}

EXPORT CUresult cuStreamGetCtx_v2(Stream *stream, Context **context, void **green) {
  ENTER(cuStreamGetCtx_v2);
  if (!context && !green) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  NEED_CONTEXT(current);
  NEED_STREAM(stream);
  if (context) *context = (uintptr_t)stream <= 2 ? current : stream->context;
  if (green) *green = NULL; /* no stream is of a green context */
  LEAVE(CUDA_SUCCESS, "");
}

/* -- events -- */

enum { EVENT_NO_TIMING = 2, EVENT_FLAGS = 7 };

EXPORT CUresult cuEventCreate(Event **out, unsigned flags) {
  ENTER(cuEventCreate);
  if (!out || flags & ~(unsigned)EVENT_FLAGS) LEAVE(CUDA_ERROR_INVALID_VALUE, ",\"flags\":%u", flags);
  NEED_CONTEXT(context);
  Event *event = calloc(1, sizeof *event);
  if (!event) LEAVE(CUDA_ERROR_OUT_OF_MEMORY, "");
  event->magic = EVENT_MAGIC;
  event->flags = flags;
  pthread_mutex_lock(&cl_lock);
  bool kept = remember(event);
  pthread_mutex_unlock(&cl_lock);
  if (!kept) {
    free(event);
    LEAVE(CUDA_ERROR_OUT_OF_MEMORY, "");
  }
  *out = event;
  LEAVE(CUDA_SUCCESS, ",\"flags\":%u", flags);
}

static CUresult destroy_event(Event *event) {
  pthread_mutex_lock(&cl_lock);
  bool known = event && knows(event, EVENT_MAGIC, true);
  pthread_mutex_unlock(&cl_lock);
  if (known) free(event);
  return known ? CUDA_SUCCESS : event ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_HANDLE;
}

EXPORT CUresult cuEventDestroy_v2(Event *event) {
  ENTER(cuEventDestroy_v2);
  LEAVE(destroy_event(event), "");
}

EXPORT CUresult cuEventDestroy(Event *event) {
  ENTER(cuEventDestroy);
  LEAVE(destroy_event(event), "");
}

static CUresult record(Event *event, Stream *stream) {
  if (check_event(event) || cl_check_stream(stream)) return CUDA_ERROR_INVALID_HANDLE;
  clock_gettime(CLOCK_MONOTONIC, &event->time);
  event->recorded = true;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuEventRecord(Event *event, Stream *stream) {
  ENTER(cuEventRecord);
  LEAVE(record(event, stream), "");
}

EXPORT CUresult cuEventRecordWithFlags(Event *event, Stream *stream, unsigned flags) {
  ENTER(cuEventRecordWithFlags);
  if (flags > 1) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  LEAVE(record(event, stream), "");
}

EXPORT CUresult cuCtxRecordEvent(Context *context, Event *event) {
  ENTER(cuCtxRecordEvent);
  if (!is_known(context)) LEAVE(CUDA_ERROR_INVALID_CONTEXT, "");
  LEAVE(record(event, NULL), "");
}

EXPORT CUresult cuCtxWaitEvent(Context *context, Event *event) {
  ENTER(cuCtxWaitEvent);
  if (!is_known(context)) LEAVE(CUDA_ERROR_INVALID_CONTEXT, "");
  NEED_EVENT(event);
  LEAVE(CUDA_SUCCESS, "");
}

EXPORT CUresult cuEventQuery(Event *event) {
  ENTER(cuEventQuery);
  NEED_EVENT(event);
  LEAVE(CUDA_SUCCESS, "");
}

EXPORT CUresult cuEventSynchronize(Event *event) {
  ENTER(cuEventSynchronize);
  NEED_EVENT(event);
  LEAVE(CUDA_SUCCESS, "");
}

static CUresult elapsed(float *milliseconds, const Event *start, const Event *end) {
  if (!milliseconds) return CUDA_ERROR_INVALID_VALUE;
  if (check_event(start) || check_event(end)) return CUDA_ERROR_INVALID_HANDLE;
  if (!start->recorded || !end->recorded || (start->flags | end->flags) & EVENT_NO_TIMING) return CUDA_ERROR_INVALID_HANDLE;
  *milliseconds = (float)(end->time.tv_sec - start->time.tv_sec) * 1e3f +
                  (float)(end->time.tv_nsec - start->time.tv_nsec) * 1e-6f;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuEventElapsedTime(float *milliseconds, Event *start, Event *end) {
  ENTER(cuEventElapsedTime);
  LEAVE(elapsed(milliseconds, start, end), "");
}

EXPORT CUresult cuEventElapsedTime_v2(float *milliseconds, Event *start, Event *end) {
  ENTER(cuEventElapsedTime_v2);
  LEAVE(elapsed(milliseconds, start, end), "");
}
