/* Memory that graphs allocate and free. */
#include "graph_memory.h"

#include <stdlib.h>
#include <string.h>

#include "blocks.h"
#include "capture.h"
#include "config.h"
#include "devices.h"
#include "grow.h"

static GraphMemory *all; /* under the lock of the streams */

/* What a device has in use by graphs, and has in reserve for them. */
typedef struct {
  uint64_t now, most;
} Gauge;
static struct {
  Gauge used, reserved;
  uint64_t live; /* bytes that launches have allocated and nothing has freed */
} gauges[DEVICES_MAX];

enum { RESERVE = 32 << 20 }; /* memory is reserved in such blocks, and all of a block is in use (H200) */

static void raise(Gauge *gauge, uint64_t now) {
  gauge->now = now;
  if (gauge->most < now) gauge->most = now;
}

static uint64_t blocks_of(uint64_t bytes) { return (bytes + RESERVE - 1) / RESERVE * RESERVE; }

void cl_graph_memory_set(GraphMemory *memory, bool live) {
  if (memory->live != live) gauges[memory->device].live += live ? memory->size : -memory->size;
  memory->live = live;
}

/* What was used stays counted until it is trimmed, even if no graph has it any more. */
static void drop(GraphMemory *memory) {
  if (memory->live) return; /* its graph is gone, and the caller will free it */
  UNLINK(all, memory);
  cl_release(memory->address);
  free(memory);
}

GraphMemory *cl_graph_memory_make(size_t size, const PoolProperties *pool, const Graph *owner) {
  CUdevice device = pool->location.type == CU_MEM_LOCATION_TYPE_DEVICE ? pool->location.id : 0;
  GraphMemory *memory = calloc(1, sizeof *memory);
  Place place = pool->type == MANAGED_TYPE                           ? MANAGED
                : pool->location.type == CU_MEM_LOCATION_TYPE_DEVICE ? ON_DEVICE
                                                                     : ON_HOST;
  CUdeviceptr address = memory ? cl_allocate(size, place, NULL) : 0;
  if (!address) return free(memory), NULL;
  *memory = (GraphMemory){.address = address, .size = size, .device = device, .owner = owner->id, .drop = drop};
  memory->next = all;
  return all = memory;
}

GraphMemory *cl_graph_memory_at(CUdeviceptr address) {
  GraphMemory *memory = all;
  while (memory && memory->address != address) memory = memory->next;
  return memory;
}

CUresult cl_graph_memory_free_in(GraphMemory *memory, const Graph *graph) {
  /* freed once in the graph that allocates it, or in others */
  if (memory->freed_in == memory->owner) return CUDA_ERROR_INVALID_VALUE;
  if (memory->freed_in && memory->freed_in != graph->id && graph->id == memory->owner) return CUDA_ERROR_INVALID_VALUE;
  if (memory->freed_in == graph->id) return CUDA_ERROR_INVALID_VALUE;
  memory->freed_in = graph->id;
  return CUDA_SUCCESS;
}

/* What was freed is used again (two H200s: edges/two_graph_nodes). */
void cl_graph_memory_use(const GraphMemory *memory) {
  Gauge *used = &gauges[memory->device].used, *reserved = &gauges[memory->device].reserved;
  uint64_t live = blocks_of(gauges[memory->device].live + (memory->live ? 0 : memory->size));
  if (used->now < live) raise(used, live);
  if (reserved->now < used->now) raise(reserved, used->now);
}

CUresult cl_graph_memory_take(GraphMemory *memory) {
  if (memory->live) return CUDA_ERROR_INVALID_VALUE;
  cl_graph_memory_set(memory, true);
  cl_graph_memory_use(memory);
  return CUDA_SUCCESS;
}

void cl_graph_memory_give(GraphMemory *memory) {
  cl_graph_memory_set(memory, false);
  if (!memory->nodes) drop(memory);
}

bool cl_graph_memory_released(CUdeviceptr address, CUresult *result) {
  HOLD_STREAMS();
  GraphMemory *memory = cl_graph_memory_at(address);
  bool can_be = memory && memory->live && memory->freed_in != memory->owner;
  if (can_be) cl_graph_memory_give(memory);
  *result = can_be ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  return memory;
}

bool cl_graph_memory_waits(CUdeviceptr address) {
  HOLD_STREAMS();
  const GraphMemory *memory = all;
  while (memory && address - memory->address >= memory->size) memory = memory->next;
  return memory && !memory->live;
}

CUresult cl_capture_allocation(const void *handle, const PoolProperties *pool, size_t size, CUdeviceptr *out) {
  Stream *stream;
  HOLD_STREAMS();
  TRY(cl_stream_ready(handle, &stream));
  if (!stream->capture) return CUDA_ERROR_ILLEGAL_STATE;
  GraphMemory *memory = cl_graph_memory_make(size, pool, stream->capture->graph);
  if (!memory) return CUDA_ERROR_OUT_OF_MEMORY;
  AllocateNode allocate = {.properties = *pool, .size = size, .address = memory->address};
  NodeParameters parameters = {.type = NODE_ALLOCATE, .allocate = allocate};
  stream->capture->graph->sole = true;
  CUresult result = cl_capture_node(stream, &parameters, memory, NULL);
  if (result && !memory->nodes) drop(memory);
  if (!result) *out = memory->address;
  return result;
}

CUresult cl_capture_free(const void *handle, CUdeviceptr address) {
  Stream *stream;
  HOLD_STREAMS();
  TRY(cl_stream_ready(handle, &stream));
  if (!stream->capture) return CUDA_ERROR_ILLEGAL_STATE;
  GraphMemory *memory = cl_graph_memory_at(address);
  if (!memory) return CUDA_ERROR_INVALID_VALUE;
  stream->capture->graph->sole = true;
  TRY(cl_graph_memory_free_in(memory, stream->capture->graph));
  NodeParameters parameters = {.type = NODE_FREE, .address = address};
  return cl_capture_node(stream, &parameters, memory, NULL);
}

static uint64_t *gauge(CUdevice device, int attribute) {
  if (attribute < 0 || attribute > CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) return NULL;
  Gauge *of = attribute < CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT ? &gauges[device].used : &gauges[device].reserved;
  return attribute % 2 ? &of->most : &of->now;
}

API(cuDeviceGetGraphMemAttribute, (CUdevice device, int attribute, uint64_t *value), (device, attribute, value)) {
  TRY(cl_asked_of(line, true, device));
  const uint64_t *known = gauge(device, attribute);
  if (!known || !value) return CUDA_ERROR_INVALID_VALUE;
  HOLD_STREAMS();
  *value = *known;
  return CUDA_SUCCESS;
}

API(cuDeviceSetGraphMemAttribute, (CUdevice device, int attribute, uint64_t *value), (device, attribute, value)) {
  TRY(cl_asked_of(line, true, device));
  bool settable = attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH || attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH;
  if (!settable || !value || *value) return CUDA_ERROR_INVALID_VALUE;
  HOLD_STREAMS();
  *gauge(device, attribute) = *gauge(device, attribute - 1); /* the mark begins again at what there is now */
  return CUDA_SUCCESS;
}

API(cuDeviceGraphMemTrim, (CUdevice device), (device)) {
  TRY(cl_asked_of(line, true, device));
  HOLD_STREAMS();
  gauges[device].used.now = gauges[device].reserved.now = blocks_of(gauges[device].live);
  return CUDA_SUCCESS;
}
