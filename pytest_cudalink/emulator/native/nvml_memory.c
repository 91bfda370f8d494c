/* Memory and its errors. */
#include <dlfcn.h>
#include <string.h>

#include "nvml.h"
#include "profiles.h"

/* What this process allocated on the devices, as its libcuda counts it; without one, nothing. */
static uint64_t used_memory(unsigned index) {
  uint64_t used = 0;
  void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (!driver) return 0;
  size_t (*memory_used)(int);
  *(void **)&memory_used = dlsym(driver, "cudalinkMemoryUsed");
  if (memory_used) used = memory_used((int)index);
  dlclose(driver);
  return used < cl_device_memory() ? used : cl_device_memory();
}

typedef struct {
  uint64_t total, free, used;
} Memory;

EXPORT Result nvmlDeviceGetMemoryInfo(Device device, Memory *memory) {
  CHECK(device, memory);
  *memory = (Memory){.total = cl_device_memory(), .used = used_memory(cl_nvml_index(device))};
  memory->free = memory->total - memory->used;
  return SUCCESS;
}

typedef struct {
  uint32_t version;
  uint64_t total, reserved, free, used;
} MemoryWithReserved;
_Static_assert(sizeof(MemoryWithReserved) == 40, "nvmlMemory_v2_t");

/* A wrong version is a function that is not found (measured: test_memory). */
EXPORT Result nvmlDeviceGetMemoryInfo_v2(Device device, MemoryWithReserved *memory) {
  Memory plain;
  CHECK(device, memory);
  if (!cl_nvml_is_version(memory, sizeof *memory, 2)) return FUNCTION_NOT_FOUND;
  Result result = nvmlDeviceGetMemoryInfo(device, &plain);
  if (result != SUCCESS) return result;
  *memory = (MemoryWithReserved){memory->version, plain.total, 0, plain.free, plain.used};
  return SUCCESS;
}

/* The window is the next power of two, of which the driver itself uses a little (measured: test_memory). */
EXPORT Result nvmlDeviceGetBAR1MemoryInfo(Device device, Memory *window) {
  CHECK(device, window);
  *window = (Memory){.total = (uint64_t)1 << 28, .used = 0x1a0000};
  while (window->total < cl_device_memory()) window->total *= 2;
  window->free = window->total - window->used;
  return SUCCESS;
}

EXPORT Result nvmlDeviceGetConfComputeMemSizeInfo(Device device, uint64_t kib[2]) {
  CHECK(device, kib);
  kib[0] = 0; /* protected */
  kib[1] = cl_device_memory() / 1024;
  return SUCCESS;
}

GIVES(nvmlDeviceGetMemoryBusWidth, (unsigned)cl_nvml_attribute(MEMORY_BUS_WIDTH))

/* Cards for data centers have ECC, which is on. */
static bool has_ecc(void) { return cl_nvml_card()->fans == 0; }

GIVES_TWO(nvmlDeviceGetEccMode, unsigned, has_ecc(), 1, 1)

EXPORT Result nvmlDeviceGetDefaultEccMode(Device device, unsigned *mode) {
  unsigned pending;
  CHECK(device, mode);
  return nvmlDeviceGetEccMode(device, mode, &pending);
}

enum { ECC_KINDS = 2, ECC_COUNTERS = 2, ECC_LOCATIONS = 8 };

static Result no_errors(Device device, unsigned kind, unsigned counter, uint64_t *counts, size_t size) {
  CHECK(device, counts && kind < ECC_KINDS && counter < ECC_COUNTERS);
  if (!has_ecc()) return NOT_SUPPORTED;
  memset(counts, 0, size);
  return SUCCESS;
}

EXPORT Result nvmlDeviceGetTotalEccErrors(Device device, unsigned kind, unsigned counter, uint64_t *count) {
  return no_errors(device, kind, counter, count, sizeof *count);
}

/* The counts of the first-level cache, the second-level cache, the memory and the registers. */
EXPORT Result nvmlDeviceGetDetailedEccErrors(Device device, unsigned kind, unsigned counter, uint64_t counts[4]) {
  return no_errors(device, kind, counter, counts, 4 * sizeof *counts);
}

EXPORT Result nvmlDeviceGetMemoryErrorCounter(Device device, unsigned kind, unsigned counter, unsigned location,
                                              uint64_t *count) {
  CHECK(device, location < ECC_LOCATIONS);
  return no_errors(device, kind, counter, count, sizeof *count);
}
