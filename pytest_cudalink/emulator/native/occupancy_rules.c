/* How many blocks of a kernel fit on one multiprocessor, by NVIDIA's published rules. */
#include "occupancy_rules.h"

#include <limits.h>

#include "config.h"
#include "devices.h"
#include "occupancy.inc" /* sharings */

enum { NO_PREFERENCE = -1, MOST_BLOCKS_OF_CLUSTERS = 8 };

static int attribute(int number) { return (int)cl_device_has(number); }

static const struct sharing *sharing(void) {
  const struct sharing *found = &sharings[0];
  for (size_t at = 0; at < sizeof sharings / sizeof *sharings; at++)
    if (sharings[at].arch <= cl_config()->arch) found = &sharings[at];
  return found;
}

int cl_least_multiprocessors(void) { return sharing()->least_sms; }
int cl_multiprocessor_unit(void) { return sharing()->sms_unit; }
static int least(int one, int other) { return one < other ? one : other; }
static long long rounded_up(long long value, long long unit) { return (value + unit - 1) / unit * unit; }

/* The smallest configuration of shared memory that has so many bytes; the largest if none does. */
static long long carve_out(long long bytes) {
  long long size = 0;
  for (const int *one = sharing()->carve_outs; *one >= 0; one++) {
    size = *one * 1024LL;
    if (size >= bytes) break;
  }
  return size;
}

/* Shared memory of a multiprocessor as it was preferred for a kernel. */
static long long preferred_shared(const KernelNeeds *needs) {
  static const int percent_of[] = {NO_PREFERENCE, [CU_FUNC_CACHE_PREFER_SHARED] = 100, [CU_FUNC_CACHE_PREFER_L1] = 0,
                                   [CU_FUNC_CACHE_PREFER_EQUAL] = 50};
  int percent = needs->carveout == NO_PREFERENCE ? percent_of[needs->cache_config & 3] : needs->carveout;
  long long all = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
  return carve_out(percent == NO_PREFERENCE ? all : percent * all / 100);
}

/* Shared memory that one block may have, with what the driver reserves. */
static long long block_limit(const KernelNeeds *needs) {
  int reserved = attribute(CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK),
      usual = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
  long long wanted = (long long)needs->shared + reserved + needs->max_dynamic_shared;
  return reserved + (wanted > usual ? attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN) : usual);
}

static int warps_of(int threads) {
  return (int)(rounded_up(threads, attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE)) /
               attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE));
}

static int registers_of_warp(int registers) {
  return (int)rounded_up((long long)registers * attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE), REGISTER_UNIT);
}

static int blocks_by_registers(int registers, int threads) {
  int of_warp = registers_of_warp(registers), warps = warps_of(threads);
  if (!of_warp) return INT_MAX;
  /* the hardware takes a block's warps as spread over all parts of the register file */
  if (of_warp * rounded_up(warps, REGISTER_PARTS) > attribute(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK)) return 0;
  int of_part = attribute(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR) / REGISTER_PARTS;
  return of_part / of_warp * REGISTER_PARTS / warps;
}

static int blocks_by_shared(const KernelNeeds *needs, size_t dynamic) {
  long long fixed = (long long)needs->shared + attribute(CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK);
  long long usual = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK) - needs->shared,
            most = needs->max_dynamic_shared;
  if ((long long)dynamic > (most > usual ? most : usual)) return 0;
  long long of_block = rounded_up(fixed + (long long)dynamic, sharing()->shared_unit);
  if (of_block > block_limit(needs)) return 0;
  if (!of_block) return INT_MAX;
  long long capacity = preferred_shared(needs);
  if (capacity < of_block) capacity = carve_out(of_block); /* a preference must not keep one block from fitting */
  return (int)(capacity / of_block);
}

int cl_blocks_per_multiprocessor(const KernelNeeds *needs, int threads, size_t dynamic_shared) {
  if (threads > attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)) return 0;
  int blocks = attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR) /
               attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE) / warps_of(threads);
  blocks = least(blocks, attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR));
  blocks = least(blocks, blocks_by_registers(needs->registers, threads));
  return least(blocks, blocks_by_shared(needs, dynamic_shared));
}

bool cl_shared_available(const KernelNeeds *needs, int blocks, int threads, size_t *bytes) {
  if (cl_blocks_per_multiprocessor(needs, threads, 0) < blocks) return false;
  long long limit = block_limit(needs), unit = sharing()->shared_unit;
  long long capacity = preferred_shared(needs);
  if (!capacity) capacity = carve_out(1);
  /* a single block may have all, whatever was preferred */
  if (blocks == 1) capacity = limit - attribute(CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK);
  long long of_block = capacity / blocks / unit * unit;
  if (of_block > limit) of_block = limit;
  long long dynamic = of_block - needs->shared;
  if (dynamic < 0) dynamic = 0;
  *bytes = (size_t)(dynamic > needs->max_dynamic_shared ? needs->max_dynamic_shared : dynamic);
  return true;
}

int cl_threads_with_registers(int registers) {
  int most = attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK), of_warp = registers_of_warp(registers);
  if (!of_warp) return most;
  int warps = attribute(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK) / of_warp / REGISTER_PARTS * REGISTER_PARTS;
  return least(most, warps * attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE));
}

/* Multiprocessors of one group, within which the blocks of a cluster must run. Of a device with another number of them
   than the recorded one, they are spread by pairs over its groups of clusters. */
static int group_size(const struct sharing *of, int group) {
  int all = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT), recorded = 0, large = 0;
  for (const int *one = of->cluster_groups; *one; one++) {
    recorded += *one;
    large += *one > 2;
  }
  if (recorded == all) return of->cluster_groups[group];
  return group < large ? 2 * (all / 2 / large + (group < all / 2 % large)) : 0;
}

int cl_clusters_on_device(int blocks_per_multiprocessor, int blocks_of_cluster) {
  const struct sharing *of = sharing();
  int blocks = least(blocks_per_multiprocessor, MOST_BLOCKS_OF_CLUSTERS), clusters = 0;
  for (int group = 0; of->cluster_groups[group]; group++) {
    int multiprocessors = group_size(of, group);
    if (multiprocessors >= blocks_of_cluster) clusters += multiprocessors * blocks / blocks_of_cluster;
  }
  return clusters;
}
