/* Contexts: primary ones and those that the caller makes, and each thread's stack of them. */
#include "contexts.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "devices.h"

enum { CONTEXT_MAGIC = 0x63747821, KNOWN_FLAGS = 0xff, API_VERSION = 3020 };

/* Contexts are never freed: a caller may go on with a handle, and must get an answer. */
static Context primary[DEVICES_MAX];
static struct {
  Context **list;
  size_t count, room;
} contexts;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of both */

enum { HOOKS = 4 };
static ContextHook *hooks[HOOKS];

void cl_on_context_death(ContextHook *hook) {
  for (int at = 0; at < HOOKS; at++)
    if (!hooks[at]) {
      hooks[at] = hook;
      return;
    }
  abort(); /* more hooks than there are tables: a fault of ours, and of each run */
}

static void mark_dead(Context *context) {
  context->dead = true;
  for (int at = 0; at < HOOKS && hooks[at]; at++) hooks[at](context);
}

uint64_t cl_next_id(void) {
  static atomic_uint_least64_t last;
  return atomic_fetch_add(&last, 1) + 1;
}

/* A thread may hold a lock while another one forks; in the child nobody would release it. */
static void unlock_in_child(void) { pthread_mutex_init(&lock, NULL); }

__attribute__((constructor)) static void watch_forks(void) { pthread_atfork(NULL, NULL, unlock_in_child); }

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
  if (context->magic != CONTEXT_MAGIC) context->device = device; /* that of a primary one never changes */
  context->magic = CONTEXT_MAGIC;
  context->dead = false;
  context->peers = 0;
  context->flags = flags;
  context->id = cl_next_id();
  for (int limit = 0; limit < 10; limit++) context->limits[limit] = limits[limit];
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

bool cl_is_known_context(const Context *context) {
  if (!context) return top() != NULL;
  pthread_mutex_lock(&lock);
  bool known = is_context(context);
  pthread_mutex_unlock(&lock);
  return known;
}

EXPORT CUresult cuDevicePrimaryCtxRetain(Context **context, CUdevice device) {
  ENTER(cuDevicePrimaryCtxRetain);
  if (!context) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  NEED_DEVICE(device);
  pthread_mutex_lock(&lock);
  Context *own = &primary[device];
  if (own->references++ == 0) {
    own->primary = true;
    start_context(own, device, own->flags);
  }
  *context = own;
  unsigned long long id = own->id;
  unsigned references = own->references;
  pthread_mutex_unlock(&lock);
  LEAVE(CUDA_SUCCESS, ",\"context\":%llu,\"references\":%u", id, references);
}

/* Gives back one reference, or all; *left is how many there are then. */
static CUresult release_primary(CUdevice device, bool all, unsigned *left) {
  Context *own = &primary[device];
  CUresult result = CUDA_SUCCESS;
  pthread_mutex_lock(&lock);
  if (!own->references) result = all ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
  else if (all || --own->references == 0) {
    own->references = 0;
    mark_dead(own);
  }
  *left = own->references;
  pthread_mutex_unlock(&lock);
  return result;
}

EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  ENTER(cuDevicePrimaryCtxRelease_v2);
  NEED_DEVICE(device);
  unsigned left;
  CUresult result = release_primary(device, false, &left);
  LEAVE(result, ",\"references\":%u", left);
}

EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  ENTER(cuDevicePrimaryCtxRelease);
  NEED_DEVICE(device);
  unsigned left;
  LEAVE(release_primary(device, false, &left), "");
}

EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
  ENTER(cuDevicePrimaryCtxReset_v2);
  NEED_DEVICE(device);
  unsigned left;
  LEAVE(release_primary(device, true, &left), "");
}

EXPORT CUresult cuDevicePrimaryCtxReset(CUdevice device) {
  ENTER(cuDevicePrimaryCtxReset);
  NEED_DEVICE(device);
  unsigned left;
  LEAVE(release_primary(device, true, &left), "");
}

static CUresult set_primary_flags(CUdevice device, unsigned flags) {
  if (flags & ~(unsigned)KNOWN_FLAGS) return CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&lock);
  primary[device].flags = flags;
  pthread_mutex_unlock(&lock);
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
  pthread_mutex_lock(&lock);
  *flags = primary[device].flags;
  *active = primary[device].references > 0;
  pthread_mutex_unlock(&lock);
  LEAVE(CUDA_SUCCESS, "");
}

static CUresult create_context(Context **out, unsigned flags, CUdevice device) {
  if (!out || (flags & ~(unsigned)KNOWN_FLAGS)) return CUDA_ERROR_INVALID_VALUE;
  if (!cl_is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  Context *context = calloc(1, sizeof *context);
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  pthread_mutex_lock(&lock);
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
  pthread_mutex_unlock(&lock);
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
  pthread_mutex_lock(&lock);
  if (!is_context(context)) result = CUDA_ERROR_INVALID_CONTEXT;
  else if (context->primary) result = CUDA_ERROR_INVALID_CONTEXT;
  else if (context->dead) result = CUDA_ERROR_CONTEXT_IS_DESTROYED;
  else {
    mark_dead(context);
    if (top() == context) stack.count--;
  }
  pthread_mutex_unlock(&lock);
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
  pthread_mutex_lock(&lock);
  bool known = is_context(context), pushed = known && push(context);
  pthread_mutex_unlock(&lock);
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
  pthread_mutex_lock(&lock);
  bool known = !context || is_context(context);
  if (known) {
    if (stack.count) stack.count--;
    if (context) push(context);
  }
  pthread_mutex_unlock(&lock);
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
  if (!cl_is_known_context(context)) LEAVE(CUDA_ERROR_INVALID_CONTEXT, "");
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
  LEAVE(cl_is_known_context(named) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT, "");
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
  if (!cl_is_known_context(context)) LEAVE(CUDA_ERROR_INVALID_CONTEXT, "");
  *version = API_VERSION;
  LEAVE(CUDA_SUCCESS, "");
}

EXPORT CUresult cuCtxGetId(Context *context, uint64_t *id) {
  ENTER(cuCtxGetId);
  if (!id) LEAVE(CUDA_ERROR_INVALID_VALUE, "");
  if (!context) context = top();
  pthread_mutex_lock(&lock);
  bool known = context && is_context(context);
  if (known) *id = context->id;
  pthread_mutex_unlock(&lock);
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
  if (!peer || !cl_is_known_context(peer)) LEAVE(CUDA_ERROR_INVALID_CONTEXT, "");
  if (peer->device == context->device) LEAVE(PEER_ACCESS_UNSUPPORTED, "");
  pthread_mutex_lock(&lock);
  uint64_t bit = (uint64_t)1 << peer->device;
  bool enabled = context->peers & bit;
  context->peers |= bit;
  pthread_mutex_unlock(&lock);
  LEAVE(enabled ? PEER_ACCESS_ALREADY_ENABLED : CUDA_SUCCESS, "");
}

EXPORT CUresult cuCtxDisablePeerAccess(Context *peer) {
  enum { PEER_ACCESS_NOT_ENABLED = 705 };
  ENTER(cuCtxDisablePeerAccess);
  NEED_CONTEXT(context);
  if (!peer || !cl_is_known_context(peer)) LEAVE(CUDA_ERROR_INVALID_CONTEXT, "");
  pthread_mutex_lock(&lock);
  uint64_t bit = (uint64_t)1 << peer->device;
  bool enabled = context->peers & bit;
  context->peers &= ~bit;
  pthread_mutex_unlock(&lock);
  LEAVE(enabled ? CUDA_SUCCESS : PEER_ACCESS_NOT_ENABLED, "");
}

EXPORT CUresult cuCtxSetFlags(unsigned flags) {
  ENTER(cuCtxSetFlags);
  if (flags & ~(unsigned)KNOWN_FLAGS) LEAVE(CUDA_ERROR_INVALID_VALUE, ",\"flags\":%u", flags);
  NEED_CONTEXT(context);
  context->flags = flags;
  LEAVE(CUDA_SUCCESS, ",\"flags\":%u", flags);
}
