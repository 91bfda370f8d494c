/* Contexts: primary ones and those that the caller makes, and each thread's stack of them. */
#include "contexts.h"

#include "config.h"
#include "devices.h"
#include "grow.h"
#include "locks.h"
#include "sticky.h"

enum { CONTEXT_MAGIC = 0x63747821, API_VERSION = 3020 };
enum { KNOWN_FLAGS = 0xff }; /* CUctx_flags */

/* Contexts are never freed: a caller may go on with a handle, and must get an answer. */
static Context primary[DEVICES_MAX];
static unsigned primary_flags[DEVICES_MAX]; /* that they are started with */
static struct {
  Context **list;
  size_t count, room;
} contexts;
STATIC_LOCK(lock); /* of both */

static void mark_dead(Context *context) {
  /* in this order: memory that arrays had is freed when they ask for it */
  static EndOfContext *const ends[] = {
      cl_end_streams, cl_end_order,  cl_end_works,  cl_end_captures, cl_end_coredumps,
      cl_end_modules, cl_end_memory, cl_end_arrays, cl_end_textures, cl_end_texture_references};
  context->dead = true;
  context->end = cl_site_keep(cl_site());
  if (context->primary) primary_flags[context->device] = 0; /* (measured: edges/contexts) */
  for (size_t at = 0; at < sizeof ends / sizeof *ends; at++) ends[at](context);
}

/* What is numbered: the streams of all contexts, those that a driver keeps for itself, too: five of the process, and
   eight of each context, the second of which is its legacy one (measured: edges/two_ids). */
enum { OF_PROCESS = 5, OF_CONTEXT = 8 };
static uint64_t next_ids(unsigned count) {
  static atomic_uint_least64_t last = OF_PROCESS;
  return atomic_fetch_add(&last, count) + 1;
}
uint64_t cl_next_id(void) { return next_ids(1); }

/* Each thread changes its own, under the lock where another may read it. */
typedef struct ThreadStack {
  Context **list;
  size_t count, room;
  struct ThreadStack *next;
} ThreadStack;
static _Thread_local ThreadStack stack;
static ThreadStack *stacks;     /* those that have a list */
static pthread_key_t stack_key; /* frees a thread's list when the thread ends */

static void drop_stack(void *of_thread) {
  HOLD(lock);
  UNLINK(stacks, &stack);
  free(stack.list);
  memset(&stack, 0, sizeof stack);
}

/* A forked child has the forking thread alone; the lists of the others are not freed, because they were not to be
   read. */
static void forget_stacks(void) {
  stacks = stack.list ? &stack : NULL;
  stack.next = NULL;
}

FORGET_IN_CHILDREN(forget_stacks);

void cl_start_contexts(void) { pthread_key_create(&stack_key, drop_stack); }

static void start_context(Context *context, CUdevice device, unsigned flags) {
  static const size_t limits[CONTEXT_LIMITS] = {1024, 0, 8 << 20, 2, 2048, 64, 0, 232448, 0, 0};
  if (context->magic != CONTEXT_MAGIC) context->device = device; /* that of a primary one never changes */
  context->magic = CONTEXT_MAGIC;
  context->dead = false;
  context->flags = flags;
  context->cache_config = CU_FUNC_CACHE_PREFER_NONE;
  context->attached = 1;
  static uint64_t last;
  context->id = ++last;
  context->legacy_id = next_ids(OF_CONTEXT) + 1;
  for (int limit = 0; limit < CONTEXT_LIMITS; limit++) context->limits[limit] = limits[limit];
  context->limits[CU_LIMIT_PRINTF_FIFO_SIZE] = cl_device_has(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) << 16;
  /* on an H100 (measured: programs/core), and taken for the others */
  context->limits[CU_LIMIT_PERSISTING_L2_CACHE_SIZE] = cl_device_has(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE) / 16 * 3;
}

static bool is_context(const Context *context) {
  if (context >= primary && context < primary + DEVICES_MAX) return context->magic == CONTEXT_MAGIC;
  for (size_t at = 0; at < contexts.count; at++)
    if (contexts.list[at] == context) return true;
  return false;
}

static Context *top(void) { return stack.count ? stack.list[stack.count - 1] : NULL; }

/* Under the lock. */
static bool push(Context *context) {
  bool is_first = !stack.list;
  if (!cl_grow(&stack.list, stack.count, &stack.room, sizeof *stack.list)) return false;
  if (is_first) {
    stack.next = stacks;
    stacks = &stack;
    pthread_setspecific(stack_key, &stack);
  }
  stack.list[stack.count++] = context;
  return true;
}

Context *cl_current(void) { return cl_in_host_function ? NULL : top(); }

CUresult cl_check_context(void) {
  const Context *context = top();
  if (cl_in_host_function) return CUDA_ERROR_NOT_PERMITTED;
  return !context ? CUDA_ERROR_INVALID_CONTEXT : context->dead ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_SUCCESS;
}

Context *cl_context(CUresult *result) {
  *result = cl_check_context();
  return cl_current();
}

bool cl_is_known_context(const Context *context) {
  if (!context) return top() != NULL;
  HOLD(lock);
  return is_context(context);
}

/* A primary one is there again when it is retained. */
static CUresult check_peer(const Context *named) {
  if (!named || !cl_is_known_context(named) || !named->dead || named->primary) return CUDA_SUCCESS;
  cl_note_dead_use(HANDLE_CONTEXT, named->id, named->end);
  return CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

CUresult cl_check_peers(const Context *one, const Context *other) {
  TRY(check_peer(one));
  return check_peer(other);
}

size_t cl_contexts_alive(size_t *references) {
  size_t count = *references = 0;
  HOLD(lock);
  for (size_t at = 0; at < DEVICES_MAX; at++) *references += primary[at].references;
  for (size_t at = 0; at < contexts.count; at++) count += !contexts.list[at]->dead && !contexts.list[at]->green;
  return count;
}

Context *cl_primary_context(CUdevice device) { return &primary[device]; }

bool cl_shares(const Context *one, const Context *other) {
  if (one == other) return true;
  return one->device == other->device && (one->green || one->primary) && (other->green || other->primary);
}

/* A context waits for the device in one way. */
static bool is_known(unsigned flags) {
  unsigned scheduling = flags & CU_CTX_SCHED_MASK;
  return !(flags & ~(unsigned)KNOWN_FLAGS) && !(scheduling & (scheduling - 1));
}

static bool is_active(const Context *own) { return own->references > 0 && !own->dead; }

/* Adds a reference, under the lock. */
static Context *keep_primary(CUdevice device) {
  Context *own = &primary[device];
  if (own->references++ == 0 || own->dead) {
    own->primary = true;
    start_context(own, device, primary_flags[device]);
  }
  return own;
}

API(cuDevicePrimaryCtxRetain, (Context **context, CUdevice device), (context, device)) {
  TRY(cl_asked_of(line, true, device));
  if (!context) return CUDA_ERROR_INVALID_VALUE;
  HOLD(lock);
  const Context *own = *context = keep_primary(device);
  cl_event_uint(line, "context", own->id);
  cl_event_uint(line, "references", own->references);
  return CUDA_SUCCESS;
}

/* Gives back one reference; *left is how many there are then. */
static CUresult release_primary(CUdevice device, unsigned *left) {
  Context *own = &primary[device];
  pthread_mutex_lock(&lock);
  bool last = own->references == 1;
  pthread_mutex_unlock(&lock);
  if (last) cl_finish(own);
  HOLD(lock);
  bool retained = own->references;
  if (retained && --own->references == 0 && !own->dead) mark_dead(own);
  *left = own->references;
  return retained ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

API(cuDevicePrimaryCtxRelease_v2, (CUdevice device), (device)) {
  TRY(cl_asked_of(line, true, device));
  unsigned left;
  CUresult result = release_primary(device, &left);
  cl_event_uint(line, "references", left);
  return result;
}
EXPORTED(cuDevicePrimaryCtxRelease, (CUdevice device), work_of_cuDevicePrimaryCtxRelease_v2(line, device))

API(cuDevicePrimaryCtxReset_v2, (CUdevice device), (device)) {
  TRY(cl_asked_of(line, true, device));
  cl_finish(&primary[device]);
  HOLD(lock);
  cl_sticky_reset();
  if (is_active(&primary[device]))
    mark_dead(&primary[device]); /* what was retained is still to be released (measured: programs/core) */
  return CUDA_SUCCESS;
}

/* That memory of the host can be mapped is so in any case, and cannot be asked for (measured: edges/contexts). */
static CUresult primary_set_flags(EventLine *line, CUdevice device, unsigned flags, bool idle) {
  TRY(cl_asked_of(line, true, device));
  cl_event_uint(line, "flags", flags);
  if (!is_known(flags) || flags & CU_CTX_MAP_HOST) return CUDA_ERROR_INVALID_VALUE;
  HOLD(lock);
  if (idle && is_active(&primary[device])) return CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE;
  primary[device].flags = primary_flags[device] = flags;
  return CUDA_SUCCESS;
}
EXPORTED(cuDevicePrimaryCtxSetFlags, (CUdevice device, unsigned flags), primary_set_flags(line, device, flags, true))
EXPORTED(cuDevicePrimaryCtxSetFlags_v2, (CUdevice device, unsigned flags),
         primary_set_flags(line, device, flags, false))

API(cuDevicePrimaryCtxGetState, (CUdevice device, unsigned *flags, int *active), (device, flags, active)) {
  TRY(cl_asked_of(line, flags && active, device));
  HOLD(lock);
  *flags = primary_flags[device];
  *active = is_active(&primary[device]);
  return CUDA_SUCCESS;
}

API(cuCtxSetFlags, (unsigned flags), (flags)) {
  cl_event_uint(line, "flags", flags);
  IN_CONTEXT(context);
  if (!is_known(flags)) return CUDA_ERROR_INVALID_VALUE;
  HOLD(lock);
  /* what is set as it is made stays (H200) */
  context->flags =
      (flags & ~(unsigned)(CU_CTX_COREDUMP_ENABLE | CU_CTX_USER_COREDUMP_ENABLE)) | (context->flags & CU_CTX_MAP_HOST);
  if (context->primary) primary_flags[context->device] |= flags & CU_CTX_SYNC_MEMOPS; /* (edges/two_limits_green) */
  return CUDA_SUCCESS;
}

/* A context that is not primary, on the thread's stack or apart from it; NULL if memory is out. */
static Context *new_context(CUdevice device, unsigned flags, bool current) {
  Context *context = calloc(1, sizeof *context);
  if (!context) return NULL;
  HOLD(lock);
  if (!cl_grow(&contexts.list, contexts.count, &contexts.room, sizeof *contexts.list) || (current && !push(context)))
    return free(context), NULL;
  start_context(context, device, flags);
  return contexts.list[contexts.count++] = context;
}

static CUresult create_context(Context **out, unsigned flags, CUdevice device) {
  if (!cl_is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  if (!out || !is_known(flags)) return CUDA_ERROR_INVALID_VALUE;
  /* a dump that users trigger is a dump, and needs a pipe (measured: edges/contexts) */
  if (flags & CU_CTX_USER_COREDUMP_ENABLE) flags ^= CU_CTX_USER_COREDUMP_ENABLE | CU_CTX_COREDUMP_ENABLE;
  Context *context = new_context(device, flags, true);
  if (context) *out = context;
  return context ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

EXPORTED(cuCtxCreate_v2, (Context **context, unsigned flags, CUdevice device),
         (cl_event_uint(line, "flags", flags), cl_event_int(line, "device", device),
          create_context(context, flags, device)))

static CUresult ctx_create_v3(EventLine *line, Context **context, const Affinity *affinity, int count, unsigned flags,
                              CUdevice device) {
  cl_event_uint(line, "flags", flags);
  cl_event_int(line, "device", device);
  if (!context) return CUDA_ERROR_INVALID_VALUE;
  if (!cl_is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  /* a share of the multiprocessors can be asked for under MPS only (measured: edges/contexts) */
  if (count > 0) return affinity ? CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY : CUDA_ERROR_INVALID_VALUE;
  return create_context(context, flags, device);
}
EXPORTED(cuCtxCreate_v3, (Context **context, const Affinity *affinity, int count, unsigned flags, CUdevice device),
         ctx_create_v3(line, context, affinity, count, flags, device))

/* CUctxCreateParams: an affinity, or data that a graphics interface shares, but not both. */
typedef struct {
  const Affinity *affinity;
  int count;
  const struct {
    int type;
    const void *data;
  } *graphics;
} CreateParameters;

API(cuCtxCreate_v4, (Context **context, const CreateParameters *parameters, unsigned flags, CUdevice device),
    (context, parameters, flags, device)) {
  if (!parameters || !parameters->graphics)
    return ctx_create_v3(line, context, parameters ? parameters->affinity : NULL, parameters ? parameters->count : 0,
                         flags, device);
  if (!context || parameters->affinity || parameters->count || !parameters->graphics->data)
    return CUDA_ERROR_INVALID_VALUE;
  if (!cl_is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  return cl_noted(line, CUDA_ERROR_NOT_SUPPORTED, "the device shares no context with a graphics interface");
}

/* A context that goes waits for its unfinished work first (a closed gate on an H100, driver 580.159.04). */
static CUresult destroy_context(Context *context) {
  if (!context) return CUDA_ERROR_INVALID_VALUE;
  if (!cl_left_out()) cl_finish(context);
  HOLD(lock);
  if (!is_context(context) || context->primary || context->green) return CUDA_ERROR_INVALID_CONTEXT;
  if (context->dead) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  mark_dead(context);
  if (top() == context) stack.count--;
  return CUDA_SUCCESS;
}

EXPORTED_WHEN(context != NULL, cuCtxDestroy_v2, (Context *context), destroy_context(context))

Context *cl_make_green_context(CUdevice device, void *green) {
  Context *context = new_context(device, 0, false);
  if (!context) return NULL;
  context->green = green;
  HOLD(lock);
  keep_primary(device);
  return context;
}

void cl_end_green_context(Context *context) {
  unsigned left;
  pthread_mutex_lock(&lock);
  mark_dead(context);
  pthread_mutex_unlock(&lock);
  release_primary(context->device, &left);
}

bool cl_push_context(Context *context) {
  HOLD(lock);
  return push(context);
}

void cl_pop_context(void) {
  HOLD(lock);
  stack.count--;
}

void cl_each_stack(StackVisitor *visit, void *with) {
  HOLD(lock);
  visit(with, true, stack.list, stack.count);
  for (const ThreadStack *one = stacks; one; one = one->next)
    if (one != &stack) visit(with, false, one->list, one->count);
}

API(cuCtxPushCurrent_v2, (Context *context), (context)) {
  if (!context) return CUDA_ERROR_INVALID_VALUE;
  HOLD(lock);
  bool known = is_context(context), pushed = known && push(context);
  return pushed ? CUDA_SUCCESS : known ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_CONTEXT;
}

API(cuCtxPopCurrent_v2, (Context **context), (context)) {
  if (!stack.count) return CUDA_ERROR_INVALID_CONTEXT;
  HOLD(lock);
  stack.count--;
  if (context) *context = stack.list[stack.count];
  return CUDA_SUCCESS;
}
EXPORTED(cuCtxPopCurrent, (Context **context), work_of_cuCtxPopCurrent_v2(line, context))

API(cuCtxSetCurrent, (Context *context), (context)) {
  HOLD(lock);
  if (context && !is_context(context)) return CUDA_ERROR_INVALID_CONTEXT;
  if (stack.count) stack.count--;
  if (context) push(context);
  return CUDA_SUCCESS;
}

API(cuCtxGetCurrent, (Context **context), (context)) {
  if (!context) return CUDA_ERROR_INVALID_VALUE;
  *context = top();
  return CUDA_SUCCESS;
}

API(cuCtxGetDevice, (CUdevice *device), (device)) {
  if (!device) return CUDA_ERROR_INVALID_VALUE;
  if (!top()) return CUDA_ERROR_INVALID_CONTEXT;
  *device = top()->device; /* also of a destroyed context (measured: programs/core) */
  return CUDA_SUCCESS;
}

/* From CUDA 13 on a context may be named; NULL is the current one. */
API(cuCtxGetDevice_v2, (CUdevice *device, Context *context), (device, context)) {
  if (!device) return CUDA_ERROR_INVALID_VALUE;
  if (context && !cl_is_known_context(context))
    return cl_not_a_context(line, SYM_cuCtxGetDevice_v2, context, "cuCtxGetDevice(device)");
  if (!context && !top()) return CUDA_ERROR_INVALID_CONTEXT;
  *device = (context ? context : top())->device;
  return CUDA_SUCCESS;
}

static CUresult synchronize(EventLine *line, Context *context) {
  if (!context) {
    TRY(cl_check_context());
    context = cl_current();
  } else if (!cl_is_known_context(context))
    return cl_not_a_context(line, SYM_cuCtxSynchronize_v2, context, "cuCtxSynchronize()");
  if (context->dead) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  cl_finish(context);
  return cl_synchronized();
}
EXPORTED(cuCtxSynchronize, (void), synchronize(line, NULL))
EXPORTED(cuCtxSynchronize_v2, (Context *context), synchronize(line, context))

API(cuCtxGetApiVersion, (Context *context, unsigned *version), (context, version)) {
  if (!version) return CUDA_ERROR_INVALID_VALUE;
  if (!context) TRY(cl_check_context());
  if (!cl_is_known_context(context) || (context && context->dead)) return CUDA_ERROR_INVALID_CONTEXT;
  *version = API_VERSION;
  return CUDA_SUCCESS;
}

API(cuCtxGetId, (Context *context, uint64_t *id), (context, id)) {
  if (!id) return CUDA_ERROR_INVALID_VALUE;
  if (!context) context = top();
  HOLD(lock);
  if (!context || !is_context(context)) return CUDA_ERROR_INVALID_CONTEXT;
  *id = context->id;
  return context->dead ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_SUCCESS;
}

API(cuCtxAttach, (Context **out, unsigned flags), (out, flags)) {
  if (!out || flags) return CUDA_ERROR_INVALID_VALUE;
  IN_CONTEXT(context);
  context->attached++;
  *out = context;
  return CUDA_SUCCESS;
}

API(cuCtxDetach, (Context *context), (context)) {
  if (!context || context != top()) return CUDA_ERROR_INVALID_CONTEXT;
  if (context->primary) return CUDA_SUCCESS; /* its uses are those that were retained (measured: programs/core) */
  return --context->attached ? CUDA_SUCCESS : destroy_context(context);
}
