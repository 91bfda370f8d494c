/* Occupancy: how many blocks of a kernel run at once, and of what size. */
#include "occupancy.h"

#include "devices.h"
#include "kernels.h"
#include "locks.h"

/* Copies a function, so that it is not read while another thread unloads its module. Its pointers must not be followed.
   A kernel that has no code for the device answers what its loading answers. */
static CUresult read_function(const void *handle, Function *known) {
  if (!handle) return CUDA_ERROR_INVALID_HANDLE;
  HOLD(cl_modules_lock);
  Function *function = cl_find_function(handle);
  CUresult result = function ? cl_answer_of(function->module, function->module->on_device) : CUDA_ERROR_INVALID_HANDLE;
  if (!result) function = cl_function_here(function);
  if (!result && function) {
    *known = *function;
    known->kernel = NULL;
    for (int at = 0; at < SETTINGS; at++) known->settings[at] = cl_setting(function, at);
  }
  return result || function ? result : CUDA_ERROR_OUT_OF_MEMORY;
}

KernelNeeds cl_needs(const Function *function) {
  /* what is preferred for all kernels of the context */
  int of_context = cl_check_context() ? 0 : cl_current()->cache_config;
  int preferred = cl_setting(function, CACHE_CONFIG);
  return (KernelNeeds){
      .registers = function->registers,
      .shared = function->shared,
      .max_threads = function->max_threads,
      .max_dynamic_shared = cl_setting(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES),
      .carveout = cl_setting(function, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT),
      .cache_config = preferred ? preferred : of_context,
  };
}

/* Reads a function for a question whose other arguments are valid or not. */
static CUresult asked(bool valid, const void *handle, KernelNeeds *needs) {
  Function known;
  TRY(cl_check_context());
  if (!valid) return CUDA_ERROR_INVALID_VALUE;
  TRY(cl_use_library(handle));
  TRY(read_function(handle, &known));
  *needs = cl_needs(&known);
  return CUDA_SUCCESS;
}

static CUresult active_blocks(int *blocks, const void *function, int threads, size_t shared, unsigned flags) {
  KernelNeeds needs;
  TRY(asked(blocks && flags <= CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE, function, &needs));
  if (threads <= 0) return CUDA_ERROR_INVALID_VALUE;
  *blocks = cl_blocks_per_multiprocessor(&needs, threads, shared);
  return CUDA_SUCCESS;
}
EXPORTED(cuOccupancyMaxActiveBlocksPerMultiprocessor, (int *blocks, Function *function, int threads, size_t shared),
         active_blocks(blocks, function, threads, shared, 0))
EXPORTED(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
         (int *blocks, Function *function, int threads, size_t shared, unsigned flags),
         active_blocks(blocks, function, threads, shared, flags))

typedef size_t SharedOfBlock(int threads);

/* The product of three sizes; 0 if one of them is 0 or larger than the device allows. */
static unsigned long long volume(const unsigned sizes[3], int first_limit) {
  unsigned long long product = 1;
  for (int axis = 0; axis < 3; axis++) {
    if (!sizes[axis] || sizes[axis] > (unsigned)(int)cl_device_has(first_limit + axis)) return 0;
    product *= sizes[axis]; /* 63 bits: no device has more than 2^31 - 1, 65535 and 65535 blocks */
  }
  return product;
}

unsigned long long cl_grid_blocks(const unsigned sizes[3]) { return volume(sizes, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X); }

unsigned cl_block_threads(const unsigned sizes[3]) {
  unsigned long long threads = volume(sizes, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X);
  return threads > (unsigned)(int)cl_device_has(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK) ? 0 : (unsigned)threads;
}

/* Tries every size of a block, the largest first; the callback is called without a lock. */
static CUresult potential_block(int *grid, int *block, const void *function, SharedOfBlock *shared_of, size_t shared,
                                int limit, unsigned flags) {
  KernelNeeds needs;
  TRY(asked(grid && block && flags <= CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE, function, &needs));
  if (limit < 0) return CUDA_ERROR_INVALID_VALUE;
  needs.carveout = -1; /* what the kernel prefers does not count here (recorded programs) */
  int warp = (int)cl_device_has(CU_DEVICE_ATTRIBUTE_WARP_SIZE),
      most = (int)cl_device_has(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  if (needs.max_threads < most) most = needs.max_threads;
  if (limit && limit < most) most = limit;
  int best = 0, best_block = 0, best_blocks = 0;
  for (int aligned = (most + warp - 1) / warp * warp; aligned > 0; aligned -= warp) {
    int threads = aligned < most ? aligned : most;
    int blocks = cl_blocks_per_multiprocessor(&needs, threads, shared_of ? shared_of(threads) : shared);
    if (threads * blocks <= best) continue;
    best = threads * blocks;
    best_block = threads;
    best_blocks = blocks;
  }
  *grid = best_blocks * (int)cl_device_has(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  *block = best_block;
  return CUDA_SUCCESS;
}
EXPORTED(cuOccupancyMaxPotentialBlockSize,
         (int *grid, int *block, Function *function, SharedOfBlock *shared_of, size_t shared, int limit),
         potential_block(grid, block, function, shared_of, shared, limit, 0))
EXPORTED(cuOccupancyMaxPotentialBlockSizeWithFlags,
         (int *grid, int *block, Function *function, SharedOfBlock *shared_of, size_t shared, int limit,
          unsigned flags),
         potential_block(grid, block, function, shared_of, shared, limit, flags))

API(cuOccupancyAvailableDynamicSMemPerBlock, (size_t *dynamicSmemSize, Function *function, int blocks, int threads),
    (dynamicSmemSize, function, blocks, threads)) {
  KernelNeeds needs;
  TRY(asked(blocks > 0, function, &needs));
  if (!dynamicSmemSize || threads <= 0) return CUDA_ERROR_INVALID_VALUE;
  return cl_shared_available(&needs, blocks, threads, dynamicSmemSize) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

bool cl_cluster_of(const LaunchConfig *config, const Function *function, unsigned sizes[3]) {
  for (int axis = 0; axis < 3; axis++)
    sizes[axis] = (unsigned)cl_setting(function, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH + axis);
  for (unsigned at = 0; at < config->count; at++)
    if (config->attributes[at].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
      memcpy(sizes, config->attributes[at].value.dimensions, 3 * sizeof *sizes);
  return sizes[0] || sizes[1] || sizes[2];
}

static CUresult asked_of_clusters(EventLine *line, const int *out, const void *handle, const LaunchConfig *config,
                                  Function *function, int *blocks) {
  if (!out || !handle || !config || (config->count && !config->attributes)) return CUDA_ERROR_INVALID_VALUE;
  if (!cl_initialized()) return CUDA_ERROR_NOT_INITIALIZED;
  TRY(cl_check_context());
  TRY(read_function(handle, function));
  if (!cl_device_has(CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH))
    return cl_noted(line, CUDA_ERROR_NOT_SUPPORTED, "the device has no clusters");
  if (!cl_grid_blocks(config->grid) || !config->block[0] || !config->block[1] || !config->block[2])
    return CUDA_ERROR_INVALID_VALUE;
  KernelNeeds needs = cl_needs(function);
  int threads = (int)cl_block_threads(config->block);
  *blocks = threads ? cl_blocks_per_multiprocessor(&needs, threads, config->shared) : 0;
  return CUDA_SUCCESS;
}

static int largest_cluster(const Function *function) {
  return cl_setting(function, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED) ? LARGEST_CLUSTER : PORTABLE_CLUSTER;
}

bool cl_clusters_fit(const unsigned sizes[3], const unsigned grid[3], const Function *function) {
  unsigned long long blocks = 1, largest = (unsigned)largest_cluster(function);
  if (function->max_cluster_rank && (unsigned)function->max_cluster_rank < largest)
    largest = (unsigned)function->max_cluster_rank;
  unsigned required[3];
  bool fixed = cl_cluster_of(&(LaunchConfig){.count = 0}, function, required);
  for (int axis = 0; axis < 3; axis++) {
    if (!sizes[axis] || grid[axis] % sizes[axis]) return false;
    if (fixed && sizes[axis] != required[axis]) return false;
    blocks *= sizes[axis];
    if (blocks > largest) return false;
  }
  return true;
}

API_WHEN(false, cuOccupancyMaxPotentialClusterSize, (int *size, Function *handle, const LaunchConfig *config),
         (size, handle, config)) {
  Function function = {0};
  int blocks = 0;
  unsigned sizes[3];
  TRY(asked_of_clusters(line, size, handle, config, &function, &blocks));
  bool clusters = cl_cluster_of(config, &function, sizes);
  if (clusters ? !cl_clusters_fit(sizes, config->grid, &function) : function.explicit_cluster)
    return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  int largest = largest_cluster(&function);
  *size = blocks ? largest : 0;
  return CUDA_SUCCESS;
}

API_WHEN(false, cuOccupancyMaxActiveClusters, (int *clusters, Function *handle, const LaunchConfig *config),
         (clusters, handle, config)) {
  Function function = {0};
  int blocks = 0;
  unsigned sizes[3];
  TRY(asked_of_clusters(line, clusters, handle, config, &function, &blocks));
  if (!cl_cluster_of(config, &function, sizes)) {
    *clusters = 0;
    return function.explicit_cluster ? CUDA_ERROR_INVALID_CLUSTER_SIZE : CUDA_SUCCESS;
  }
  if (!cl_clusters_fit(sizes, config->grid, &function)) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  *clusters = cl_clusters_on_device(blocks, (int)(sizes[0] * sizes[1] * sizes[2]));
  return CUDA_SUCCESS;
}
