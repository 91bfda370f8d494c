/* Two devices: attributes of the way between them, wrong devices and kinds, atomic operations. */
#include "two.h"

static void kinds(void) {
  for (int kind = -1; kind <= 8; kind++)
    for (int a = 0; a < 2; a++)
      for (int b = 0; b < 2; b++) {
        int v = 77;
        ASK(W("kind %d from %d to %d", kind, a, b), cuDeviceGetP2PAttribute(&v, kind, a, b), "%d", v);
      }
}

static void wrong_devices(void) {
  static const int ds[] = {-1, 0, 1, 2, 1000};
  for (int kind = 0; kind <= 6; kind += 2)
    for (int i = 0; i < 5; i++)
      for (int j = 0; j < 5; j++) {
        if (ds[i] >= 0 && ds[i] < 2 && ds[j] >= 0 && ds[j] < 2) continue;
        int v = 77;
        ASK(W("kind %d from %d to %d", kind, ds[i], ds[j]), cuDeviceGetP2PAttribute(&v, kind, ds[i], ds[j]), "%d", v);
      }
  RISK("into NULL", cuDeviceGetP2PAttribute(NULL, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 1));
  RISK("into NULL, itself", cuDeviceGetP2PAttribute(NULL, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 0));
  RISK("into NULL, a wrong kind", cuDeviceGetP2PAttribute(NULL, 99, 0, 1));
}

static void symmetric(void) {
  for (int kind = 1; kind <= 5; kind++) {
    int a = 7, b = 8;
    DO(cuDeviceGetP2PAttribute(&a, kind, 0, 1));
    DO(cuDeviceGetP2PAttribute(&b, kind, 1, 0));
    SAY(W("kind %d both ways", kind), "%d", a == b);
  }
  both();
  int before[6] = {0}, v = 7;
  for (int kind = 1; kind <= 5; kind++) DO(cuDeviceGetP2PAttribute(&before[kind], kind, 0, 1));
  DO(cuCtxEnablePeerAccess(of[1], 0));
  for (int kind = 1; kind <= 5; kind++)
    ASK(W("kind %d with access", kind), cuDeviceGetP2PAttribute(&v, kind, 0, 1), "%d", v == before[kind]);
  DO(cuCtxSetCurrent(NULL));
  for (int kind = 1; kind <= 5; kind++)
    ASK(W("kind %d, none current", kind), cuDeviceGetP2PAttribute(&v, kind, 0, 1), "%d", v == before[kind]);
  int can = 7, supported = 8;
  DO(cuDeviceCanAccessPeer(&can, 0, 1));
  DO(cuDeviceGetP2PAttribute(&supported, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 1));
  SAY("both say the same", "%d", can == supported);
}

static void atomics(void) {
  CUatomicOperation operations[16];
  unsigned got[16];
  for (int a = 0; a < 2; a++)
    for (int b = 0; b < 2; b++)
      for (int o = 0; o <= 14; o++) {
        got[0] = 77, operations[0] = o;
        ASK(W("operation %d from %d to %d", o, a, b), cuDeviceGetP2PAtomicCapabilities(got, operations, 1, a, b), "%u",
            got[0]);
      }
  for (int o = 0; o < 13; o++) operations[o] = o, got[o] = 77;
  ASK("all at once", cuDeviceGetP2PAtomicCapabilities(got, operations, 13, 0, 1), "%u %u %u %u", got[0], got[3],
      got[10], got[12]);
  got[0] = 77;
  ASK("none", cuDeviceGetP2PAtomicCapabilities(got, operations, 0, 0, 1), "%u", got[0]);
  ASK("to device 2", cuDeviceGetP2PAtomicCapabilities(got, operations, 1, 0, 2));
  ASK("from device 2", cuDeviceGetP2PAtomicCapabilities(got, operations, 1, 2, 0));
  ASK("from device -1", cuDeviceGetP2PAtomicCapabilities(got, operations, 1, -1, 0));
  RISK("into NULL", cuDeviceGetP2PAtomicCapabilities(NULL, operations, 1, 0, 1));
  RISK("of NULL", cuDeviceGetP2PAtomicCapabilities(got, NULL, 1, 0, 1));
  for (int d = 0; d < 2; d++)
    ASK(W("with the host, device %d", d), cuDeviceGetHostAtomicCapabilities(got, operations, 13, d), "%u %u %u %u",
        got[0], got[3], got[10], got[12]);
}

static void cold(void) {
  int v = 7;
  ASK("can before cuInit", cuDeviceCanAccessPeer(&v, 0, 1), "%d", v);
  ASK("attribute before cuInit", cuDeviceGetP2PAttribute(&v, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 1), "%d", v);
  CUatomicOperation o = CU_ATOMIC_OPERATION_CAS;
  unsigned got = 7;
  ASK("atomics before cuInit", cuDeviceGetP2PAtomicCapabilities(&got, &o, 1, 0, 1), "%u", got);
  RISK("enable before cuInit", cuCtxEnablePeerAccess(NULL, 0));
  DO(cuInit(0));
  ASK("can after cuInit", cuDeviceCanAccessPeer(&v, 0, 1), "%d", v);
}

CASES RUN(kinds) RUN(wrong_devices) RUN(symmetric) RUN(atomics) RUN_COLD(cold) END
