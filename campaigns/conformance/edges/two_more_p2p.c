/* Two devices: what the link between them says: outputs left alone by errors, lists of operations, before cuInit. */
#include "two.h"

static void cold(void) {
  int v = 77;
  unsigned caps[2] = {77, 77};
  CUatomicOperation ops[2] = {CU_ATOMIC_OPERATION_CAS, CU_ATOMIC_OPERATION_EXCHANGE};
  ASK("can access before cuInit", cuDeviceCanAccessPeer(&v, 0, 1), "%d", v);
  ASK("attribute before cuInit", cuDeviceGetP2PAttribute(&v, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 1), "%d", v);
  ASK("operations before cuInit", cuDeviceGetP2PAtomicCapabilities(caps, ops, 2, 0, 1), "%u %u", caps[0], caps[1]);
  DO(cuInit(0));
  ASK("can access after cuInit, no context", cuDeviceCanAccessPeer(&v, 0, 1), "%d", v);
  ASK("attribute after cuInit, no context", cuDeviceGetP2PAttribute(&v, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 1),
      "%d", v);
  ASK("operations after cuInit, no context", cuDeviceGetP2PAtomicCapabilities(caps, ops, 2, 0, 1), "%u %u", caps[0],
      caps[1]);
  int active = 7;
  unsigned flags = 7;
  for (int d = 0; d < 2; d++)
    ASK(W("is %d active by that", d), cuDevicePrimaryCtxGetState(d, &flags, &active), "%d", active);
}

static void outputs(void) {
  for (int from = -2; from <= 3; from++)
    for (int to = -2; to <= 3; to++) {
      int v = 77, a = 77;
      unsigned cap = 77;
      CUatomicOperation op = CU_ATOMIC_OPERATION_INTEGER_ADD;
      ASK(W("can access %d to %d", from, to), cuDeviceCanAccessPeer(&v, from, to), "%d", v);
      ASK(W("native atomics %d to %d", from, to),
          cuDeviceGetP2PAttribute(&a, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, from, to), "%d", a);
      ASK(W("additions %d to %d", from, to), cuDeviceGetP2PAtomicCapabilities(&cap, &op, 1, from, to), "%x", cap);
    }
}

static void order(void) {
  /* Two wrongs at once: which of them is told. */
  int v = 77;
  unsigned cap = 77;
  CUatomicOperation wrong = 99;
  ASK("wrong kind, same device", cuDeviceGetP2PAttribute(&v, 99, 1, 1), "%d", v);
  ASK("wrong kind, wrong device", cuDeviceGetP2PAttribute(&v, 99, 0, 7), "%d", v);
  ASK("kind 0", cuDeviceGetP2PAttribute(&v, 0, 0, 1), "%d", v);
  ASK("kind 6", cuDeviceGetP2PAttribute(&v, 6, 0, 1), "%d", v);
  ASK("kind -1", cuDeviceGetP2PAttribute(&v, -1, 0, 1), "%d", v);
  ASK("wrong operation, same device", cuDeviceGetP2PAtomicCapabilities(&cap, &wrong, 1, 1, 1), "%x", cap);
  ASK("wrong operation, wrong device", cuDeviceGetP2PAtomicCapabilities(&cap, &wrong, 1, 0, 7), "%x", cap);
  ASK("count 0, same device", cuDeviceGetP2PAtomicCapabilities(&cap, &wrong, 0, 0, 0), "%x", cap);
  ASK("count 0, wrong device", cuDeviceGetP2PAtomicCapabilities(&cap, &wrong, 0, 0, 9), "%x", cap);
  RISK("access into NULL, both devices", cuDeviceCanAccessPeer(NULL, 0, 1));
  RISK("access into NULL, wrong device", cuDeviceCanAccessPeer(NULL, 0, 9));
  RISK("attribute into NULL, same device", cuDeviceGetP2PAttribute(NULL, 1, 1, 1));
  RISK("attribute into NULL, wrong kind", cuDeviceGetP2PAttribute(NULL, 99, 0, 1));
  RISK("operations NULL", cuDeviceGetP2PAtomicCapabilities(&cap, NULL, 1, 0, 1), "%x", cap);
  RISK("capabilities NULL", cuDeviceGetP2PAtomicCapabilities(NULL, &wrong, 1, 0, 1));
  RISK("both NULL, count 0", cuDeviceGetP2PAtomicCapabilities(NULL, NULL, 0, 0, 1));
}

static void lists(void) {
  unsigned caps[32], back[32], host[2][32];
  CUatomicOperation ops[32];
  for (int i = 0; i < 13; i++) {
    unsigned a = 77, b = 77;
    ops[i] = i;
    ASK(W("operation %d alone, 0 to 1", i), cuDeviceGetP2PAtomicCapabilities(&a, &ops[i], 1, 0, 1), "%x", a);
    ASK(W("operation %d alone, 1 to 0", i), cuDeviceGetP2PAtomicCapabilities(&b, &ops[i], 1, 1, 0), "%d", a == b);
  }
  memset(caps, 0x11, sizeof caps), memset(back, 0x22, sizeof back), memset(host, 0x33, sizeof host);
  ASK("all of them", cuDeviceGetP2PAtomicCapabilities(caps, ops, 13, 0, 1), "%x %x %x", caps[0], caps[12], caps[13]);
  ASK("all of them back", cuDeviceGetP2PAtomicCapabilities(back, ops, 13, 1, 0), "%d",
      !memcmp(caps, back, 13 * sizeof *caps));
  for (int d = 0; d < 2; d++)
    ASK(W("those of the host of %d", d), cuDeviceGetHostAtomicCapabilities(host[d], ops, 13, d), "%x %x", host[d][0],
        host[d][10]);
  SAY("the hosts' are equal", "%d", !memcmp(host[0], host[1], 13 * sizeof **host));
  for (int i = 0; i < 32; i++) ops[i] = CU_ATOMIC_OPERATION_CAS;
  ASK("32 times the same", cuDeviceGetP2PAtomicCapabilities(back, ops, 32, 0, 1), "%d %d", back[0] == back[31],
      back[0] == caps[CU_ATOMIC_OPERATION_CAS]);
  ops[5] = CU_ATOMIC_OPERATION_MAX;
  memset(back, 0, sizeof back);
  ASK("the sixth wrong", cuDeviceGetP2PAtomicCapabilities(back, ops, 8, 0, 1), "%d %x", back[0] != 0, back[6]);
  ASK("up to the fifth", cuDeviceGetP2PAtomicCapabilities(back, ops, 5, 0, 1), "%d %d", back[0] != 0, back[5] == 0);
}

static void changing(void) {
  both();
  for (int step = 0; step < 5; step++) {
    if (step == 1) ASK("enable 0 to 1", cuCtxEnablePeerAccess(of[1], 0));
    if (step == 2) ASK("disable it", cuCtxDisablePeerAccess(of[1]));
    if (step == 3) ASK("reset 1", cuDevicePrimaryCtxReset(1));
    if (step == 4) ASK("release 1", cuDevicePrimaryCtxRelease(1));
    for (int d = 0; d < 2; d++)
      for (int a = 1; a <= 5; a++) {
        int v = 77;
        ASK(W("step %d, kind %d, from %d", step, a, d), cuDeviceGetP2PAttribute(&v, a, d, !d), "%d", v);
      }
  }
}

static void one_visible(void) {
  setenv("CUDA_VISIBLE_DEVICES", "1", 1);
  DO(cuInit(0));
  int v = 77, n = 77;
  ASK("count", cuDeviceGetCount(&n), "%d", n);
  ASK("can access 0 to 1", cuDeviceCanAccessPeer(&v, 0, 1), "%d", v);
  ASK("can access 1 to 0", cuDeviceCanAccessPeer(&v, 1, 0), "%d", v);
  ASK("can access 0 to 0", cuDeviceCanAccessPeer(&v, 0, 0), "%d", v);
  for (int a = 1; a <= 5; a++) ASK(W("kind %d", a), cuDeviceGetP2PAttribute(&v, a, 0, 1), "%d", v);
}

CASES RUN_COLD(cold) RUN(outputs) RUN(order) RUN(lists) RUN(changing) RUN_COLD(one_visible) END
