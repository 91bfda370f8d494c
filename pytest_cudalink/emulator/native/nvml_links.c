/* How devices are linked to the machine and to each other: PCIe, topology, peers, processors. */
#include <sched.h>
#include <string.h>

#include "nvml.h"
#include "profiles.h"

static unsigned generation(void) { return cl_profile_arch() >= 90 ? 5 : cl_profile_arch() >= 80 ? 4 : 3; }

GIVES(nvmlDeviceGetCurrPcieLinkGeneration, generation())
GIVES(nvmlDeviceGetMaxPcieLinkGeneration, generation())
GIVES(nvmlDeviceGetGpuMaxPcieLinkGeneration, generation())
/* The number of a speed is that of its generation. */
GIVES(nvmlDeviceGetPcieLinkMaxSpeed, generation())
/* In megatransfers a second, as in 32000 for generation 5. */
GIVES(nvmlDeviceGetPcieSpeed, 1000u << generation())

EXPORT Result nvmlDeviceGetPcieThroughput(Device device, unsigned counter, unsigned *out) {
  enum { SENT, RECEIVED, COUNTERS };
  CHECK(device, out && counter < COUNTERS);
  *out = 0;
  return SUCCESS;
}

/* -- topology: all devices hang on one host bridge -- */

enum { INTERNAL = 0, HOSTBRIDGE = 30, SYSTEM = 50 };

EXPORT Result nvmlDeviceGetTopologyCommonAncestor(Device device, Device other, unsigned *level) {
  CHECK(device, level);
  CHECK(other, level);
  *level = device == other ? INTERNAL : HOSTBRIDGE;
  return SUCCESS;
}

/* Writes the devices besides one, as far as there is room; without an array only their number. */
static Result list_devices(const void *except, unsigned *count, Device *devices) {
  unsigned found = 0, room = *count;
  for (unsigned index = 0; index < cl_nvml_devices(); index++) {
    if (cl_nvml_device(index) == except) continue;
    if (devices && found < room) devices[found] = cl_nvml_device(index);
    found++;
  }
  *count = found;
  return devices && found > room ? INSUFFICIENT_SIZE : SUCCESS;
}

EXPORT Result nvmlDeviceGetTopologyNearestGpus(Device device, unsigned level, unsigned *count, Device *devices) {
  CHECK(device, count && level <= SYSTEM);
  if (level == HOSTBRIDGE) return list_devices(device, count, devices);
  *count = 0;
  return SUCCESS;
}

EXPORT Result nvmlSystemGetTopologyGpuSet(unsigned cpu, unsigned *count, Device *devices) {
  READY(count && cpu < CPU_SETSIZE);
  return list_devices(NULL, count, devices);
}

/* Peers reach each other over PCIe, as cuDeviceCanAccessPeer says. */
EXPORT Result nvmlDeviceGetP2PStatus(Device device, Device peer, unsigned capability, unsigned *status) {
  enum { READ, WRITE, NVLINK, ATOMICS, PCI, CAPABILITIES, OK = 0, STATUS_NOT_SUPPORTED = 5 };
  CHECK(device, status && capability < CAPABILITIES);
  CHECK(peer, device != peer);
  *status = capability == NVLINK || capability == ATOMICS ? STATUS_NOT_SUPPORTED : OK;
  return SUCCESS;
}

/* -- processors and memory of the machine that are near a device: all of them -- */

EXPORT Result nvmlDeviceGetCpuAffinity(Device device, unsigned size, unsigned long *set) {
  cpu_set_t allowed;
  CHECK(device, size && set);
  CPU_ZERO(&allowed);
  sched_getaffinity(0, sizeof allowed, &allowed);
  memset(set, 0, size * sizeof *set);
  for (unsigned cpu = 0; cpu < CPU_SETSIZE; cpu++) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    if (cpu / (8 * sizeof *set) >= size) return INSUFFICIENT_SIZE;
    set[cpu / (8 * sizeof *set)] |= 1ul << cpu % (8 * sizeof *set);
  }
  return SUCCESS;
}

enum { NODE, SOCKET, SCOPES };

EXPORT Result nvmlDeviceGetCpuAffinityWithinScope(Device device, unsigned size, unsigned long *set, unsigned scope) {
  CHECK(device, size && set && scope < SCOPES);
  return nvmlDeviceGetCpuAffinity(device, size, set);
}

EXPORT Result nvmlDeviceGetMemoryAffinity(Device device, unsigned size, unsigned long *set, unsigned scope) {
  CHECK(device, size && set && scope < SCOPES);
  memset(set, 0, size * sizeof *set);
  *set = 1; /* the first node */
  return SUCCESS;
}
