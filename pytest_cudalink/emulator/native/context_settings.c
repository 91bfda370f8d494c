/* What is set for a context: flags, limits, the preferred cache, peers, core dumps. */
#include <stdio.h>
#include <unistd.h>

#include "config.h"
#include "contexts.h"
#include "devices.h"
#include "grow.h"
#include "locks.h"

enum { LARGEST_STACK = 512 << 10, LARGEST_L2_FETCH = 128 }; /* bytes; a stack must have fewer */

API(cuCtxGetFlags, (unsigned *flags), (flags)) {
  if (!flags) return CUDA_ERROR_INVALID_VALUE;
  CUresult state;
  Context *context = cl_context(&state);
  *flags = 0;
  /* a dead one has none (measured: test_without_a_context) */
  if (state) return state == CUDA_ERROR_CONTEXT_IS_DESTROYED ? CUDA_SUCCESS : state;
  *flags = context->flags;
  if (context->primary || context->green) *flags |= CU_CTX_MAP_HOST; /* only these say so (measured: edges/contexts) */
  return CUDA_SUCCESS;
}

API(cuCtxGetLimit, (size_t *value, int limit), (value, limit)) {
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  IN_CONTEXT(context);
  if (limit < 0 || limit >= CONTEXT_LIMITS) return CUDA_ERROR_INVALID_VALUE;
  if (limit == CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH || limit == CU_LIMIT_CIG_SHMEM_FALLBACK_ENABLED)
    return CUDA_ERROR_UNSUPPORTED_LIMIT;
  *value = context->limits[limit];
  return CUDA_SUCCESS;
}

#define MOST_FIFO ((size_t)1 << 31)

/* What a limit is set to: at least so much, in steps (measured: edges/contexts). */
static size_t rounded(int limit, size_t value) {
  static const struct {
    size_t least, step;
  } of[] = {
      [CU_LIMIT_STACK_SIZE] = {0, 16},
      [CU_LIMIT_PRINTF_FIFO_SIZE] = {512 << 10, 256},
      [CU_LIMIT_MALLOC_HEAP_SIZE] = {4 << 20, 64 << 10},
      [CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = {32, 1},
  };
  if (limit > CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT) return value;
  if (value < of[limit].least) return of[limit].least;
  if (limit == CU_LIMIT_PRINTF_FIFO_SIZE && value > MOST_FIFO) return MOST_FIFO;
  return (value + of[limit].step - 1) / of[limit].step * of[limit].step;
}

/* Whether a limit may be set to a value; those of graphics can only be read. */
static CUresult check_limit(int limit, size_t value) {
  switch (limit) {
    case CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH:
    case CU_LIMIT_CIG_SHMEM_FALLBACK_ENABLED: return CUDA_ERROR_UNSUPPORTED_LIMIT;
    case CU_LIMIT_SHMEM_SIZE:
    case CU_LIMIT_CIG_ENABLED: return CUDA_ERROR_NOT_PERMITTED;
    case CU_LIMIT_STACK_SIZE: return value >= LARGEST_STACK ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    case CU_LIMIT_MAX_L2_FETCH_GRANULARITY: return value > LARGEST_L2_FETCH ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    case CU_LIMIT_PERSISTING_L2_CACHE_SIZE:
      return value > cl_device_has(CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE) ? CUDA_ERROR_INVALID_VALUE
                                                                                     : CUDA_SUCCESS;
    default: return limit < 0 || limit >= CONTEXT_LIMITS ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  }
}

API(cuCtxSetLimit, (int limit, size_t value), (limit, value)) {
  IN_CONTEXT(context);
  TRY(check_limit(limit, value));
  if (limit == CU_LIMIT_PERSISTING_L2_CACHE_SIZE) { /* in sixteenths of the cache (measured: edges/contexts) */
    size_t part = cl_device_has(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE) / 16;
    value = (value + part - 1) / part * part;
  }
  /* a stack that is rounded to what it has keeps the value as it is given (H200) */
  bool same = limit == CU_LIMIT_STACK_SIZE && rounded(limit, value) == rounded(limit, context->limits[limit]);
  if (!same) value = rounded(limit, value);
  bool changed = (!same && value != context->limits[limit]) || limit == CU_LIMIT_PERSISTING_L2_CACHE_SIZE; /* always */
  if (changed) TRY(cl_wait_by_table(&(WaitFacts){.limit = limit}));
  context->limits[limit] = value;
  return CUDA_SUCCESS;
}
EXPORTED(cuCtxResetPersistingL2Cache, (void), cl_check_context())

API(cuCtxGetStreamPriorityRange, (int *least, int *greatest), (least, greatest)) {
  TRY(cl_check_context());
  if (least) *least = 0;
  if (greatest) *greatest = GREATEST_PRIORITY;
  return CUDA_SUCCESS;
}

API(cuCtxGetCacheConfig, (int *config), (config)) {
  if (!config) return CUDA_ERROR_INVALID_VALUE;
  IN_CONTEXT(context);
  *config = context->cache_config;
  return CUDA_SUCCESS;
}

API(cuCtxSetCacheConfig, (int config), (config)) {
  IN_CONTEXT(context);
  if (config < CU_FUNC_CACHE_PREFER_NONE || config > CU_FUNC_CACHE_PREFER_EQUAL) return CUDA_ERROR_INVALID_VALUE;
  context->cache_config = config;
  return CUDA_SUCCESS;
}

API(cuCtxSetSharedMemConfig, (int config), (config)) {
  TRY(cl_check_context());
  bool known = config >= CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE && config <= CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE;
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API(cuCtxGetSharedMemConfig, (int *config), (config)) {
  if (!config) return CUDA_ERROR_INVALID_VALUE;
  TRY(cl_check_context());
  *config = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
  return CUDA_SUCCESS;
}

API(cuCtxGetExecAffinity, (Affinity * affinity, int type), (affinity, type)) {
  IN_CONTEXT(context);
  if (!affinity) return CUDA_ERROR_INVALID_VALUE;
  if (context->green) return CUDA_ERROR_INVALID_CONTEXT;
  affinity->type = type;
  if (type) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  affinity->multiprocessors = (unsigned)cl_device_has(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  return CUDA_SUCCESS;
}

/* -- peers: every device can use the memory of every other one -- */

/* Whether a device may be allowed to use the memory of another one. Its own context is refused with 217, too, where
   cuda.h says 201 (measured: edges/one_device). */
static int can_access_peer(CUdevice device, CUdevice peer) { return device != peer; }

API(cuDeviceGetP2PAttribute, (int *value, int attribute, CUdevice from, CUdevice to), (value, attribute, from, to)) {
  TRY(cl_asked_of(line, value, from));
  TRY(cl_asked_of(line, true, to));
  if (from == to) return CUDA_ERROR_INVALID_DEVICE;
  if (attribute < CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK ||
      attribute > CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED)
    return CUDA_ERROR_INVALID_VALUE;
  bool no = attribute == CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK ||
            attribute == CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED;
  *value = no ? 0 : can_access_peer(from, to);
  return CUDA_SUCCESS;
}

/* -- atomic operations on memory of the host or of a peer -- */

static CUresult check_operations(const int *operations, unsigned count) {
  for (unsigned at = 0; at < count; at++)
    if (operations[at] < 0 || operations[at] >= CU_ATOMIC_OPERATION_MAX) return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

API(cuDeviceGetHostAtomicCapabilities, (unsigned *capabilities, const int *operations, unsigned count, CUdevice device),
    (capabilities, operations, count, device)) {
  TRY(cl_asked_of(line, capabilities && operations && count, device));
  TRY(check_operations(operations, count));
  for (unsigned at = 0; at < count; at++) capabilities[at] = 0; /* as over PCI Express */
  return CUDA_SUCCESS;
}

API(cuDeviceGetP2PAtomicCapabilities,
    (unsigned *capabilities, const int *operations, unsigned count, CUdevice from, CUdevice to),
    (capabilities, operations, count, from, to)) {
  TRY(cl_asked_of(line, capabilities && operations && count, from));
  TRY(cl_asked_of(line, true, to));
  if (from == to) return CUDA_ERROR_INVALID_DEVICE;
  memset(capabilities, 0, count * sizeof *capabilities); /* also over NVLink (two H200s: edges/two_p2p_attributes) */
  return check_operations(operations, count);
}

/* -- access between contexts -- */

/* Which context may access the memory of which other one, by their `id`s: one that was reset has another, and is
   no longer a peer of any other (two H200s: edges/two_peer_access). */
typedef struct {
  uint64_t context, peer;
} PeerAccess;
static struct {
  PeerAccess *list;
  size_t count, room;
} accesses;
STATIC_LOCK(accesses_lock); /* no other is taken under it */

/* Under the lock; NULL: it may not. */
static PeerAccess *find_access(const Context *context, const Context *peer) {
  for (size_t at = 0; at < accesses.count; at++)
    if (accesses.list[at].context == context->id && accesses.list[at].peer == peer->id) return &accesses.list[at];
  return NULL;
}

bool cl_is_peer(const Context *context, const Context *peer) {
  HOLD(accesses_lock);
  return find_access(context, peer);
}

API(cuCtxEnablePeerAccess, (Context *peer, unsigned flags), (peer, flags)) {
  IN_CONTEXT(context);
  if (!peer) return CUDA_ERROR_INVALID_CONTEXT;
  if (flags) return CUDA_ERROR_INVALID_VALUE;
  if (!cl_is_known_context(peer)) return CUDA_ERROR_INVALID_CONTEXT;
  if (peer->dead) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (!can_access_peer(context->device, peer->device)) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  HOLD(accesses_lock);
  if (find_access(context, peer)) return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
  if (!cl_grow(&accesses.list, accesses.count, &accesses.room, sizeof *accesses.list)) return CUDA_ERROR_OUT_OF_MEMORY;
  accesses.list[accesses.count++] = (PeerAccess){context->id, peer->id};
  return CUDA_SUCCESS;
}

API(cuCtxDisablePeerAccess, (Context *peer), (peer)) {
  IN_CONTEXT(context);
  if (!peer || !cl_is_known_context(peer)) return CUDA_ERROR_INVALID_CONTEXT;
  if (peer->dead) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  HOLD(accesses_lock);
  PeerAccess *access = find_access(context, peer);
  if (!access) return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
  *access = accesses.list[--accesses.count];
  return CUDA_SUCCESS;
}

/* -- core dumps, of the process and of a context: none is ever made, as no kernel fails -- */

enum { PATH_ROOM = 1024 };
enum { LIGHTWEIGHT_FLAGS = 0x0f, KNOWN_FLAGS = 0x3f }; /* of driver 580; cuda.h's of later ones have more */

typedef struct {
  bool numbers[CU_COREDUMP_MAX]; /* those that are true or false */
  char file[PATH_ROOM], pipe[PATH_ROOM];
  unsigned flags;
} Settings;

typedef struct {
  Object head;
  Settings settings;
} OfContext;

static Settings global;
static bool global_started;
STATIC_LOCK(lock); /* of all settings */
static Objects of_contexts = {.lock = &lock};

void cl_end_coredumps(const Context *context) { cl_objects_end(&of_contexts, context); }

/* The settings of the process, with their defaults at first. Under the lock. */
static Settings *of_process(void) {
  char host[256] = "localhost";
  if (global_started) return &global;
  gethostname(host, sizeof host - 1);
  global.numbers[CU_COREDUMP_TRIGGER_HOST] = true;
  snprintf(global.file, sizeof global.file, "core.cuda.%s.%d", host, (int)getpid());
  snprintf(global.pipe, sizeof global.pipe, "corepipe.cuda.%s.%d", host, (int)getpid());
  global_started = true;
  return &global;
}

/* Those of a context begin as those of the process. Under the lock; NULL if memory is out. */
static Settings *of_context(Context *context) {
  EACH (OfContext, one, &of_contexts)
    if (one->head.context == context) return &one->settings;
  OfContext *made = cl_object_make(sizeof *made, NO_HANDLE, context, &of_contexts);
  if (!made) return NULL;
  made->settings = *of_process();
  return &made->settings;
}

static char *path_of(Settings *settings, int setting) {
  return setting == CU_COREDUMP_FILE ? settings->file : setting == CU_COREDUMP_PIPE ? settings->pipe : NULL;
}

/* Where a setting is, and its size; of a path the size is that of its text with the NUL. */
static void *place(Settings *settings, int setting, size_t *size) {
  char *path = path_of(settings, setting);
  *size = path                                      ? strlen(path) + 1
          : setting == CU_COREDUMP_GENERATION_FLAGS ? sizeof settings->flags
                                                    : sizeof *settings->numbers;
  return path ? path : setting == CU_COREDUMP_GENERATION_FLAGS ? (void *)&settings->flags : &settings->numbers[setting];
}

static CUresult read_setting(Settings *settings, int setting, void *value, size_t *size) {
  size_t needed;
  const void *from = place(settings, setting, &needed);
  bool path = path_of(settings, setting);
  if (value && !path && *size != needed) return CUDA_ERROR_INVALID_VALUE;
  if (value) memcpy(value, from, *size < needed ? *size : needed); /* a path is cut off where the buffer ends */
  *size = path && !value ? PATH_ROOM : needed;
  return CUDA_SUCCESS;
}

static CUresult write_setting(Settings *settings, int setting, const void *value, size_t size) {
  size_t needed;
  void *to = place(settings, setting, &needed);
  if (path_of(settings, setting)) {
    if (!size || size > PATH_ROOM) return CUDA_ERROR_INVALID_VALUE;
    snprintf(to, PATH_ROOM, "%.*s", (int)size, (const char *)value);
    return CUDA_SUCCESS;
  }
  if (size != needed) return CUDA_ERROR_INVALID_VALUE;
  if (setting != CU_COREDUMP_GENERATION_FLAGS) {
    settings->numbers[setting] = *(const unsigned char *)value;
    if (setting == CU_COREDUMP_LIGHTWEIGHT) settings->flags = settings->numbers[setting] ? LIGHTWEIGHT_FLAGS : 0;
    return CUDA_SUCCESS;
  }
  unsigned flags;
  memcpy(&flags, value, sizeof flags);
  if (flags & ~(unsigned)KNOWN_FLAGS) return CUDA_ERROR_INVALID_VALUE;
  settings->flags = flags;
  return CUDA_SUCCESS;
}

typedef struct {
  int setting;
  void *value;
  size_t *size;
  bool whole_process, write;
} Access;

static CUresult use(const Access *access) {
  bool known = access->setting >= CU_COREDUMP_ENABLE_ON_EXCEPTION && access->setting < CU_COREDUMP_MAX;
  if (!access->size || !known) return CUDA_ERROR_INVALID_VALUE;
  Context *context = access->whole_process ? NULL : cl_current();
  if (!access->whole_process) TRY(cl_check_context());
  /* a user triggers a dump of the whole process, through one pipe */
  bool of_context_too = access->setting != CU_COREDUMP_ENABLE_USER_TRIGGER && access->setting != CU_COREDUMP_PIPE;
  if (!access->whole_process && !of_context_too) return CUDA_ERROR_INVALID_VALUE;
  HOLD(lock);
  Settings *settings = context ? of_context(context) : of_process();
  if (!settings) return CUDA_ERROR_OUT_OF_MEMORY;
  if (!access->write) return read_setting(settings, access->setting, access->value, access->size);
  return access->value ? write_setting(settings, access->setting, access->value, *access->size) : CUDA_SUCCESS;
}

EXPORTED(cuCoredumpGetAttribute, (int setting, void *value, size_t *size),
         use(&(Access){setting, value, size, false, false}))
EXPORTED(cuCoredumpSetAttribute, (int setting, void *value, size_t *size),
         use(&(Access){setting, value, size, false, true}))
/* Those of the process are there before cuInit, too. */
EXPORTED_ANY_TIME(cuCoredumpGetAttributeGlobal, (int setting, void *value, size_t *size),
                  use(&(Access){setting, value, size, true, false}))
EXPORTED_ANY_TIME(cuCoredumpSetAttributeGlobal, (int setting, void *value, size_t *size),
                  use(&(Access){setting, value, size, true, true}))
