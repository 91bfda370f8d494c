/* What is set for a context: flags, limits, the preferred cache. */
#include "calls.h"
#include "contexts.h"
#include "devices.h"

enum { LARGEST_STACK = 512 << 10, LARGEST_L2_FETCH = 128 }; /* bytes */

static CUresult ctx_get_flags(unsigned *flags) {
  if (!flags) return CUDA_ERROR_INVALID_VALUE;
  CUresult state;
  Context *context = cl_context(&state);
  *flags = 0;
  if (state)
    return state == CUDA_ERROR_CONTEXT_IS_DESTROYED
               ? CUDA_SUCCESS
               : state; /* a dead one has none (measured: test_without_a_context) */
  *flags = context->flags;
  if (context->primary) *flags |= CU_CTX_MAP_HOST; /* only it says so (measured: test_flags) */
  return CUDA_SUCCESS;
}
EXPORTED(cuCtxGetFlags, (unsigned *flags), ctx_get_flags(flags))

static CUresult ctx_get_limit(size_t *value, int limit) {
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  CUresult state;
  Context *context = cl_context(&state);
  if (state) return state;
  if (limit < 0 || limit >= CONTEXT_LIMITS) return CUDA_ERROR_INVALID_VALUE;
  if (limit == CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH || limit == CU_LIMIT_CIG_SHMEM_FALLBACK_ENABLED)
    return CUDA_ERROR_UNSUPPORTED_LIMIT;
  *value = context->limits[limit];
  return CUDA_SUCCESS;
}
EXPORTED(cuCtxGetLimit, (size_t *value, int limit), ctx_get_limit(value, limit))

/* Whether a limit may be set to a value; those of graphics can only be read. */
static CUresult check_limit(int limit, size_t value) {
  int most = 0;
  switch (limit) {
    case CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH:
    case CU_LIMIT_CIG_SHMEM_FALLBACK_ENABLED: return CUDA_ERROR_UNSUPPORTED_LIMIT;
    case CU_LIMIT_SHMEM_SIZE:
    case CU_LIMIT_CIG_ENABLED: return CUDA_ERROR_NOT_PERMITTED;
    case CU_LIMIT_STACK_SIZE: return value > LARGEST_STACK ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    case CU_LIMIT_MAX_L2_FETCH_GRANULARITY: return value > LARGEST_L2_FETCH ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    case CU_LIMIT_PERSISTING_L2_CACHE_SIZE:
      cl_device_attribute(CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE, &most);
      return value > (size_t)most ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    default: return limit < 0 || limit >= CONTEXT_LIMITS ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  }
}

static CUresult ctx_set_limit(int limit, size_t value) {
  CUresult state;
  Context *context = cl_context(&state);
  if (!state) state = check_limit(limit, value);
  if (state) return state;
  if (limit == CU_LIMIT_PERSISTING_L2_CACHE_SIZE) { /* in sixteenths of the cache (measured: test_limits) */
    int cache = 0;
    cl_device_attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, &cache);
    size_t part = (size_t)cache / 16;
    value = (value + part - 1) / part * part;
  }
  state = value > context->limits[limit] ? cl_wait_by_table(&(WaitFacts){.limit = limit}) : CUDA_SUCCESS;
  if (!state) context->limits[limit] = value;
  return state;
}
EXPORTED(cuCtxSetLimit, (int limit, size_t value), ctx_set_limit(limit, value))
EXPORTED(cuCtxResetPersistingL2Cache, (void), cl_check_context())

static CUresult ctx_get_stream_priority_range(int *least, int *greatest) {
  CUresult state = cl_check_context();
  if (state) return state;
  if (least) *least = 0;
  if (greatest) *greatest = GREATEST_PRIORITY;
  return CUDA_SUCCESS;
}
EXPORTED(cuCtxGetStreamPriorityRange, (int *least, int *greatest), ctx_get_stream_priority_range(least, greatest))

static CUresult ctx_get_cache_config(int *config) {
  if (!config) return CUDA_ERROR_INVALID_VALUE;
  CUresult state;
  const Context *context = cl_context(&state);
  if (!state) *config = context->cache_config;
  return state;
}
EXPORTED(cuCtxGetCacheConfig, (int *config), ctx_get_cache_config(config))

static CUresult ctx_set_cache_config(int config) {
  CUresult state;
  Context *context = cl_context(&state);
  if (state) return state;
  if (config < CU_FUNC_CACHE_PREFER_NONE || config > CU_FUNC_CACHE_PREFER_EQUAL) return CUDA_ERROR_INVALID_VALUE;
  context->cache_config = config;
  return CUDA_SUCCESS;
}
EXPORTED(cuCtxSetCacheConfig, (int config), ctx_set_cache_config(config))

static CUresult ctx_set_shared_mem_config(int config) {
  CUresult state = cl_check_context();
  if (state) return state;
  bool known = config >= CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE && config <= CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE;
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
EXPORTED(cuCtxSetSharedMemConfig, (int config), ctx_set_shared_mem_config(config))

static CUresult ctx_get_shared_mem_config(int *config) {
  if (!config) return CUDA_ERROR_INVALID_VALUE;
  CUresult state = cl_check_context();
  if (state) return state;
  *config = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
  return CUDA_SUCCESS;
}
EXPORTED(cuCtxGetSharedMemConfig, (int *config), ctx_get_shared_mem_config(config))

static CUresult ctx_set_flags(EventLine *line, unsigned flags) {
  cl_event_uint(line, "flags", flags);
  CUresult state;
  Context *context = cl_context(&state);
  if (state) return state;
  if (!cl_valid_context_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
  context->flags = flags;
  return CUDA_SUCCESS;
}
EXPORTED(cuCtxSetFlags, (unsigned flags), ctx_set_flags(line, flags))

static CUresult ctx_get_exec_affinity(Affinity *affinity, int type) {
  CUresult state = cl_check_context();
  if (state) return state;
  if (!affinity) return CUDA_ERROR_INVALID_VALUE;
  affinity->type = type;
  if (type) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  int all = 0;
  cl_device_attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &all);
  affinity->multiprocessors = (unsigned)all;
  return CUDA_SUCCESS;
}
EXPORTED(cuCtxGetExecAffinity, (Affinity * affinity, int type), ctx_get_exec_affinity(affinity, type))
