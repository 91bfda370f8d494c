/* What a pointer is: attributes, and the range that it lies in. */
#include <string.h>

#include "graph_memory.h"
#include "pools.h"
#include "virtual_memory.h"

/* All that is known of a pointer. */
typedef struct {
  bool allocated; /* in a block; what is reserved and not mapped has no attributes (measured: programs/vmm) */
  Block block;
  CUdeviceptr range_start, mapping_start;
  size_t range_size, mapping_size;
  uint64_t handle_types;
  int access;
  bool rdma;
  CUresult as_pointer; /* of the current context: what asks for a pointer that it can use gets this */
} PointerFacts;

static void read_pool(PointerFacts *known) {
  HOLD_POOL(pool, known->block.owner);
  if (pool) {
    known->handle_types = (uint64_t)pool->properties.handle_types;
    /* of the pool's own device, whichever is current (two H200s: edges/two_pointers) */
    const Location *location = &pool->properties.location;
    if (location->type == CU_MEM_LOCATION_TYPE_DEVICE) known->access = pool->access[location->id];
  }
}

/* The memory that a block is cut from (measured: programs/pools). The table is locked. */
static void read_slab(PointerFacts *known, const Block *block) {
  enum { PAGES = 2 << 20, PAGES_OF_POOLS = 32 << 20 };
  known->mapping_start = block->slab && block->slab->start ? block->slab->start : block->start;
  if (block->slab) known->mapping_size = block->slab->size;
  else if (block->origin & (FROM_POOL | FROM_POOL_OF_OTHER))
    known->mapping_size = cl_rounded(block->size, PAGES_OF_POOLS);
  else if (block->origin == FROM_MODULE) { /* a variable, or memory of a graph */
    bool of_graph = block->place == ON_DEVICE && !block->context;
    if (!of_graph) known->mapping_start -= known->mapping_start % PAGES;
    known->mapping_size = cl_rounded(block->size, of_graph ? PAGES_OF_POOLS : PAGES);
  } else if (block->origin == FROM_REGISTRATION) known->mapping_size = cl_rounded(block->size, cl_page_size());
  else
    known->mapping_size = block->origin & (FROM_ALLOCATION | FROM_IPC) ? cl_rounded(block->size, PAGES) : block->size;
}

static void read_mapping(PointerFacts *known, CUdeviceptr address, CUdevice device) {
  Mapping mapping;
  PhysicalProperties properties;
  if (!cl_mapping_of(address, &mapping, &properties)) return;
  known->handle_types = (uint64_t)properties.handle_types;
  known->access = mapping.access[device];
  known->rdma = properties.flags.rdma;
  if (!cl_reservation_of(address, &known->range_start, &known->range_size))
    known->range_start = known->range_size = 0; /* behind the end of one (measured: edges/reservations) */
}

static PointerFacts look_up(CUdeviceptr address) {
  CUresult state;
  const Context *context = cl_context(&state);
  PointerFacts known = {.access = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  const Block *block = cl_block_lock(address);
  if (block && block->freed) block = NULL; /* though its stream has not come to that (measured: edges/frees) */
  if (block) {
    known.block = *block;
    read_slab(&known, block);
    known.as_pointer = state || cl_reaches(context, block) ? state : CUDA_ERROR_INVALID_VALUE;
  }
  cl_block_unlock();
  known.allocated = block && !cl_graph_memory_waits(address); /* (measured: edges/graph_memory) */
  if (!known.allocated) {
    cl_reservation_of(address, &known.range_start, &known.range_size);
    return known;
  }
  CUdevice device = context ? context->device : known.block.device;
  known.range_start = known.block.start;
  known.range_size = known.block.size;
  known.rdma = known.block.origin == FROM_ALLOCATION && known.block.place == ON_DEVICE;
  if (known.block.origin & (FROM_POOL | FROM_POOL_OF_OTHER)) read_pool(&known);
  if (known.block.origin == FROM_MAPPING) read_mapping(&known, address, device);
  if (known.block.origin == FROM_MAPPING && !context) known.access = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  return known;
}

/* The bytes of an attribute; 0 if there is no such attribute. */
static size_t width(int attribute) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS: return 16;
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID: return 8;
    default: return attribute > 0 && attribute <= CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE ? 4 : 0;
  }
}

static bool is_ipc_capable(const Block *block) { return block->origin == FROM_ALLOCATION && block->place == ON_DEVICE; }

/* The attributes of a pointer into a block, as numbers; false if it has no such one. */
static bool read_number(const PointerFacts *known, int attribute, CUdeviceptr address, uint64_t *value) {
  const Block *block = &known->block;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT: /* that of a green one is the device's (measured: edges/green_devices) */
      *value =
          (uintptr_t)(block->context && block->context->green ? cl_primary_context(block->device) : block->context);
      break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *value = block->place == ON_HOST ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
      break;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: *value = address; break;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER: *value = address; return block->place != ON_DEVICE;
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS: return block->place != ON_HOST;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: *value = block->sync_memops; break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID: *value = block->id; break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED: *value = block->place == MANAGED; break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *value = (uint64_t)block->device; break;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: *value = is_ipc_capable(block); break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: *value = known->range_start; break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: *value = known->range_size; break;
    case CU_POINTER_ATTRIBUTE_MAPPED: *value = 1; break;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES: *value = known->handle_types; break;
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE: *value = known->rdma; break;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS: *value = (uint64_t)known->access; break;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      *value = block->origin & (FROM_POOL | FROM_POOL_OF_OTHER) ? (uintptr_t)block->owner : 0;
      break;
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE: *value = known->mapping_size; break;
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR: *value = known->mapping_start; break;
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE: *value = is_ipc_capable(block); break;
    default: return false;
  }
  return true;
}

static bool read_attribute(const PointerFacts *known, int attribute, CUdeviceptr address, void *out) {
  uint64_t value[2] = {0};
  bool has = known->allocated && read_number(known, attribute, address, value);
  if (!has) value[0] = 0;
  if (known->allocated)
    memcpy(out, value, width(attribute)); /* the byte order of every host of CUDA is little-endian */
  return has;
}

API(cuPointerGetAttribute, (void *out, int attribute, CUdeviceptr address), (out, attribute, address)) {
  cl_event_int(line, "attribute", attribute);
  if (!out || !width(attribute)) return CUDA_ERROR_INVALID_VALUE;
  PointerFacts known = look_up(address);
  if (attribute == CU_POINTER_ATTRIBUTE_DEVICE_POINTER && known.as_pointer) {
    memset(out, 0, width(attribute));
    return known.as_pointer;
  }
  if (!read_attribute(&known, attribute, address, out)) return CUDA_ERROR_INVALID_VALUE;
  if (attribute == CU_POINTER_ATTRIBUTE_P2P_TOKENS) {
    /* other devices' accesses would not be in order else (measured: edges/pointers) */
    HOLD_BLOCK(block, address);
    if (block) block->sync_memops = true;
  }
  return CUDA_SUCCESS;
}

API(cuPointerGetAttributes, (unsigned count, const int *attributes, void **out, CUdeviceptr address),
    (count, attributes, out, address)) {
  if (!attributes || !out || !count) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned at = 0; at < count; at++)
    if (!out[at]) return CUDA_ERROR_INVALID_VALUE;
  PointerFacts known = look_up(address);
  /* an attribute that does not apply is set to zero, and is no error (CUDA Driver API, cuPointerGetAttributes) */
  for (unsigned at = 0; at < count; at++) {
    if (!width(attributes[at]) || attributes[at] == CU_POINTER_ATTRIBUTE_P2P_TOKENS) /* the latter alone only */
      return CUDA_ERROR_INVALID_VALUE;
    if (read_attribute(&known, attributes[at], address, out[at])) continue;
    bool is_start = attributes[at] == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR;
    if (is_start || attributes[at] == CU_POINTER_ATTRIBUTE_RANGE_SIZE) {
      /* of what is reserved; else it stays (two H200s: edges/two_more_pointers) */
      if (known.range_size) memcpy(out[at], is_start ? &known.range_start : &known.range_size, sizeof(CUdeviceptr));
      continue;
    }
    memset(out[at], 0, width(attributes[at]));
    if (attributes[at] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) *(int *)out[at] = CU_DEVICE_INVALID;
    if (!known.allocated && attributes[at] == CU_POINTER_ATTRIBUTE_HOST_POINTER)
      memcpy(out[at], &address, sizeof address);
  }
  return CUDA_SUCCESS;
}

API(cuPointerSetAttribute, (const unsigned *value, int attribute, CUdeviceptr address), (value, attribute, address)) {
  cl_event_int(line, "attribute", attribute);
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  HOLD_BLOCK(block, address);
  if (block && block->origin == FROM_MAPPING) return CUDA_ERROR_NOT_SUPPORTED;
  if (attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) return CUDA_ERROR_INVALID_VALUE;
  if (block) block->sync_memops = *value != 0;
  return block ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Whether a context has a range at the addresses of a block (measured: test_what_may_be_a_pool), which none has
   without access, nor in pools of the host. */
static bool has_range(const Block *block, const Context *context) {
  bool of_pool = block->origin & (FROM_POOL | FROM_POOL_OF_OTHER);
  return cl_reaches(context, block) && !(of_pool && block->place == ON_HOST);
}

API(cuMemGetAddressRange_v2, (CUdeviceptr *start, size_t *size, CUdeviceptr address), (start, size, address)) {
  if (start) *start = 0;
  if (size) *size = 0;
  IN_CONTEXT(context);
  if (!start && !size && !address) return CUDA_SUCCESS; /* nothing is asked for (recorded programs) */
  if (cl_graph_memory_waits(address) || !cl_within(address, 1))
    return CUDA_ERROR_NOT_FOUND; /* nor without access of the current device (measured: test_what_may_be_a_pool) */
  HOLD_BLOCK(block, address);
  if (block && !has_range(block, context)) block = NULL;
  if (block && start) *start = block->start;
  if (block && size) *size = block->size;
  return block ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
