/* Occupancy: how many blocks of a kernel run at once, and of what size. */
#include "occupancy.h"

#include <string.h>

#include "calls.h"
#include "contexts.h"
#include "devices.h"

enum { MULTIPROCESSORS = 16, MAX_THREADS_PER_BLOCK = 1, WARP_SIZE = 10, CLUSTER_LAUNCH = 120 }; /* CUdevice_attribute */
enum { CLUSTER_DIMENSION = 4 };        /* CUlaunchAttributeID */
enum { DISABLE_CACHING_OVERRIDE = 1 }; /* CUoccupancy_flags */

CUresult cl_read_function(const void *handle, Function *known) {
  if (!handle) return CUDA_ERROR_INVALID_HANDLE;
  pthread_mutex_lock(&cl_modules_lock);
  const Function *function = cl_find_function(handle);
  CUresult result = function ? function->module->on_device : CUDA_ERROR_INVALID_HANDLE;
  if (!result) *known = *function;
  pthread_mutex_unlock(&cl_modules_lock);
  return result;
}

KernelNeeds cl_needs(const Function *function) {
  return (KernelNeeds){
      .registers = function->registers,
      .shared = function->shared,
      .max_threads = function->max_threads,
      .max_dynamic_shared = function->max_dynamic_shared,
      .carveout = function->carveout,
      .cache_config = function->cache_config,
  };
}

/* Reads a function for a question that is answered through *out. */
static CUresult asked(const void *out, const void *handle, KernelNeeds *needs) {
  Function known;
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  if (!handle) return CUDA_ERROR_INVALID_HANDLE;
  CUresult result = cl_check_context();
  if (!result) result = cl_read_function(handle, &known);
  if (!result) *needs = cl_needs(&known);
  return result;
}

static CUresult active_blocks(int *blocks, const void *function, int threads, size_t shared, unsigned flags) {
  KernelNeeds needs;
  CUresult result = asked(blocks, function, &needs);
  if (result) return result;
  if (threads <= 0 || flags > DISABLE_CACHING_OVERRIDE) return CUDA_ERROR_INVALID_VALUE;
  *blocks = cl_blocks_per_multiprocessor(&needs, threads, shared);
  return CUDA_SUCCESS;
}
EXPORTED(cuOccupancyMaxActiveBlocksPerMultiprocessor, (int *blocks, Function *function, int threads, size_t shared),
         active_blocks(blocks, function, threads, shared, 0))
EXPORTED(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
         (int *blocks, Function *function, int threads, size_t shared, unsigned flags),
         active_blocks(blocks, function, threads, shared, flags))

typedef size_t SharedOfBlock(int threads);

static int device_has(int attribute) {
  int value = 0;
  cl_device_attribute(attribute, &value);
  return value;
}

/* Tries every size of a block, the largest first; the callback is called without a lock. */
static CUresult potential_block(int *grid, int *block, const void *function, SharedOfBlock *shared_of, size_t shared,
                                int limit, unsigned flags) {
  KernelNeeds needs;
  CUresult result = asked(block, function, &needs);
  if (result) return result;
  if (!grid || limit < 0 || flags > DISABLE_CACHING_OVERRIDE) return CUDA_ERROR_INVALID_VALUE;
  int warp = device_has(WARP_SIZE), most = device_has(MAX_THREADS_PER_BLOCK);
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
  *grid = best_blocks * device_has(MULTIPROCESSORS);
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

static CUresult available_shared(size_t *bytes, const void *function, int blocks, int threads) {
  KernelNeeds needs;
  CUresult result = asked(bytes, function, &needs);
  if (result) return result;
  if (blocks <= 0 || threads <= 0) return CUDA_ERROR_INVALID_VALUE;
  return cl_shared_available(&needs, blocks, threads, bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
EXPORTED(cuOccupancyAvailableDynamicSMemPerBlock, (size_t *bytes, Function *function, int blocks, int threads),
         available_shared(bytes, function, blocks, threads))

/* -- clusters -- */

bool cl_cluster_of(const LaunchConfig *config, const Function *function, unsigned sizes[3]) {
  for (int axis = 0; axis < 3; axis++) sizes[axis] = (unsigned)function->cluster[axis];
  for (unsigned at = 0; at < config->count; at++)
    if (config->attributes[at].id == CLUSTER_DIMENSION)
      memcpy(sizes, config->attributes[at].value.dimensions, 3 * sizeof *sizes);
  return sizes[0] || sizes[1] || sizes[2];
}

static CUresult asked_of_clusters(EventLine *line, const int *out, const void *handle, const LaunchConfig *config,
                                  Function *function, int *blocks) {
  if (!out || !config || (config->count && !config->attributes)) return CUDA_ERROR_INVALID_VALUE;
  if (!handle) return CUDA_ERROR_INVALID_HANDLE;
  CUresult result = cl_check_context();
  if (!result) result = cl_read_function(handle, function);
  if (result) return result;
  if (!device_has(CLUSTER_LAUNCH)) return cl_noted(line, CUDA_ERROR_NOT_SUPPORTED, "the device has no clusters");
  unsigned long long threads = 1;
  for (int axis = 0; axis < 3; axis++) {
    if (!config->block[axis] || !config->grid[axis]) return CUDA_ERROR_INVALID_VALUE;
    threads *= config->block[axis];
    if (threads > (unsigned)device_has(MAX_THREADS_PER_BLOCK)) return CUDA_ERROR_INVALID_VALUE;
  }
  KernelNeeds needs = cl_needs(function);
  *blocks = cl_blocks_per_multiprocessor(&needs, (int)threads, config->shared);
  return CUDA_SUCCESS;
}

static CUresult potential_cluster(EventLine *line, int *size, const void *handle, const LaunchConfig *config) {
  Function function;
  int blocks, largest;
  CUresult result = asked_of_clusters(line, size, handle, config, &function, &blocks);
  if (result) return result;
  largest = function.non_portable_cluster ? LARGEST_CLUSTER : PORTABLE_CLUSTER;
  if (function.max_cluster_rank && function.max_cluster_rank < largest) largest = function.max_cluster_rank;
  if (function.cluster[0]) largest = function.cluster[0] * function.cluster[1] * function.cluster[2];
  while (largest && !cl_clusters_on_device(blocks, largest)) largest /= 2;
  *size = largest;
  return CUDA_SUCCESS;
}
EXPORTED(cuOccupancyMaxPotentialClusterSize, (int *size, Function *function, const LaunchConfig *config),
         potential_cluster(line, size, function, config))

static CUresult active_clusters(EventLine *line, int *clusters, const void *handle, const LaunchConfig *config) {
  Function function;
  int blocks;
  unsigned sizes[3];
  CUresult result = asked_of_clusters(line, clusters, handle, config, &function, &blocks);
  if (result) return result;
  if (!cl_cluster_of(config, &function, sizes)) sizes[0] = sizes[1] = sizes[2] = 1;
  unsigned long long of_cluster = 1, largest = function.non_portable_cluster ? LARGEST_CLUSTER : PORTABLE_CLUSTER;
  for (int axis = 0; axis < 3; axis++) {
    if (!sizes[axis] || config->grid[axis] % sizes[axis]) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    of_cluster *= sizes[axis];
    if (of_cluster > largest) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  }
  *clusters = cl_clusters_on_device(blocks, (int)of_cluster);
  return CUDA_SUCCESS;
}
EXPORTED(cuOccupancyMaxActiveClusters, (int *clusters, Function *function, const LaunchConfig *config),
         active_clusters(line, clusters, function, config))
