/* Peers: every device of the emulated driver can use the memory of every other one. */
#include "calls.h"
#include "config.h"
#include "contexts.h"
#include "devices.h"

/* Whether a device may be allowed to use the memory of another one. Its own context is refused with 217, too, where
   cuda.h says 201 (measured: test_a_device_is_no_peer_of_itself). */
static int can_access_peer(CUdevice device, CUdevice peer) { return device != peer; }

static CUresult p2p_attribute(EventLine *line, int *value, int attribute, CUdevice from, CUdevice to) {
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  if (!cl_is_device(from)) return cl_no_device(line, from);
  if (!cl_is_device(to)) return cl_no_device(line, to);
  if (from == to) return CUDA_ERROR_INVALID_DEVICE;
  if (attribute < CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK ||
      attribute > CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED)
    return CUDA_ERROR_INVALID_VALUE;
  bool no = attribute == CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK ||
            attribute == CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED;
  *value = no ? 0 : can_access_peer(from, to);
  return CUDA_SUCCESS;
}
EXPORTED(cuDeviceGetP2PAttribute, (int *value, int attribute, CUdevice from, CUdevice to),
         p2p_attribute(line, value, attribute, from, to))

/* -- atomic operations on memory of the host or of a peer -- */

/* Additions, minima and maxima of numbers with a sign and without one, of both sizes. */
enum {
  ALL_SCALARS = CU_ATOMIC_CAPABILITY_SIGNED | CU_ATOMIC_CAPABILITY_UNSIGNED | CU_ATOMIC_CAPABILITY_REDUCTION |
  CU_ATOMIC_CAPABILITY_SCALAR_32 | CU_ATOMIC_CAPABILITY_SCALAR_64
};

static bool has_operations(const unsigned *capabilities, const int *operations, unsigned count) {
  return capabilities && operations && count;
}

static CUresult check_operations(const int *operations, unsigned count) {
  for (unsigned at = 0; at < count; at++)
    if (operations[at] < 0 || operations[at] >= CU_ATOMIC_OPERATION_MAX) return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

static CUresult host_atomics(EventLine *line, unsigned *capabilities, const int *operations, unsigned count,
                             CUdevice device) {
  if (!has_operations(capabilities, operations, count)) return CUDA_ERROR_INVALID_VALUE;
  if (!cl_is_device(device)) return cl_no_device(line, device);
  CUresult result = check_operations(operations, count);
  if (result) return result;
  for (unsigned at = 0; at < count; at++) capabilities[at] = 0; /* as over PCI Express */
  return CUDA_SUCCESS;
}
EXPORTED(cuDeviceGetHostAtomicCapabilities,
         (unsigned *capabilities, const int *operations, unsigned count, CUdevice device),
         host_atomics(line, capabilities, operations, count, device))

static CUresult peer_atomics(EventLine *line, unsigned *capabilities, const int *operations, unsigned count,
                             CUdevice from, CUdevice to) {
  if (!has_operations(capabilities, operations, count)) return CUDA_ERROR_INVALID_VALUE;
  if (!cl_is_device(from)) return cl_no_device(line, from);
  if (!cl_is_device(to)) return cl_no_device(line, to);
  if (from == to) return CUDA_ERROR_INVALID_DEVICE;
  CUresult result = check_operations(operations, count);
  if (result) return result;
  for (unsigned at = 0; at < count; at++) capabilities[at] = ALL_SCALARS;
  return CUDA_SUCCESS;
}
EXPORTED(cuDeviceGetP2PAtomicCapabilities,
         (unsigned *capabilities, const int *operations, unsigned count, CUdevice from, CUdevice to),
         peer_atomics(line, capabilities, operations, count, from, to))

/* -- access between contexts -- */

static CUresult enable_peer_access(Context *peer, unsigned flags) {
  CUresult state;
  Context *context = cl_context(&state);
  if (state) return state;
  if (!peer) return CUDA_ERROR_INVALID_CONTEXT;
  if (flags) return CUDA_ERROR_INVALID_VALUE;
  if (!cl_is_known_context(peer)) return CUDA_ERROR_INVALID_CONTEXT;
  if (peer->dead) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (!can_access_peer(context->device, peer->device)) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  uint64_t bit = (uint64_t)1 << peer->device;
  bool enabled = atomic_fetch_or(&context->peers, bit) & bit;
  return enabled ? CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED : CUDA_SUCCESS;
}
EXPORTED(cuCtxEnablePeerAccess, (Context *peer, unsigned flags), enable_peer_access(peer, flags))

static CUresult disable_peer_access(Context *peer) {
  CUresult state;
  Context *context = cl_context(&state);
  if (state) return state;
  if (!peer || !cl_is_known_context(peer)) return CUDA_ERROR_INVALID_CONTEXT;
  if (peer->dead) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  uint64_t bit = (uint64_t)1 << peer->device;
  bool enabled = atomic_fetch_and(&context->peers, ~bit) & bit;
  return enabled ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}
EXPORTED(cuCtxDisablePeerAccess, (Context *peer), disable_peer_access(peer))
