/* Two devices: attributes, names, properties, bus ids, identifiers: whether both say the same, and of a third. */
#include "two.h"

static void attributes(void) {
  int unequal = 0;
  for (int a = 0; a <= CU_DEVICE_ATTRIBUTE_MAX + 2; a++) {
    int v = 77, w = 78;
    int c = cuDeviceGetAttribute(&v, a, 0), d = cuDeviceGetAttribute(&w, a, 1);
    if (a == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID || a == CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID ||
        a == CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID || a == CU_DEVICE_ATTRIBUTE_NUMA_ID ||
        a == CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID)
      SAY(W("attribute %d", a), "%d %d", c, d);
    else {
      SAY(W("attribute %d", a), "%d %d %d", c, d, c || d || v == w);
      unequal += !c && v != w;
    }
  }
  SAY("unequal", "%d", unequal);
  static const int some[] = {1, 10, 13, 16, 41, 75, 76, 83, 87, 88, 89, 95, 96, 98, 99, 102, 115, 132};
  for (int i = 0; i < 18; i++)
    for (int d = -1; d <= 2; d++) {
      int v = 77;
      ASK(W("attribute %d of %d", some[i], d), cuDeviceGetAttribute(&v, some[i], d), "%d", v);
    }
  RISK("into NULL", cuDeviceGetAttribute(NULL, 1, 1));
}

static void handles(void) {
  int n = 7;
  ASK("count", cuDeviceGetCount(&n), "%d", n);
  for (int i = -1; i <= 3; i++) {
    CUdevice d = 77;
    ASK(W("ordinal %d", i), cuDeviceGet(&d, i), "%d", d);
  }
  ASK("ordinal 1000", cuDeviceGet(&n, 1000));
  RISK("into NULL", cuDeviceGet(NULL, 1));
}

static void names(void) {
  char a[3][256];
  size_t total[3] = {0};
  CUdevprop p[3];
  int major[3], minor[3];
  SET(a), SET(p), SET(major), SET(minor);
  for (int d = 0; d < 3; d++) {
    ASK(W("name of %d", d), cuDeviceGetName(a[d], 256, d), "%s", a[d]);
    ASK(W("total of %d", d), cuDeviceTotalMem(&total[d], d), "%d", total[d] == total[0]);
    ASK(W("properties of %d", d), cuDeviceGetProperties(&p[d], d), "%d %d %d", p[d].maxThreadsPerBlock, p[d].SIMDWidth,
        p[d].clockRate == p[0].clockRate);
    ASK(W("capability of %d", d), cuDeviceComputeCapability(&major[d], &minor[d], d), "%d %d", major[d], minor[d]);
    int sm = 7;
    ASK(W("affinity of %d", d), cuDeviceGetExecAffinitySupport(&sm, CU_EXEC_AFFINITY_TYPE_SM_COUNT, d), "%d", sm);
    size_t w = 7;
    ASK(W("texture width of %d", d), cuDeviceGetTexture1DLinearMaxWidth(&w, CU_AD_FORMAT_FLOAT, 1, d), "%zu", w);
    char luid[8];
    unsigned mask = 7;
    ASK(W("LUID of %d", d), cuDeviceGetLuid(luid, &mask, d));
  }
  SAY("the names", "%d", !strcmp(a[0], a[1]));
  RISK("name of 1 in -1 bytes", cuDeviceGetName(a[0], -1, 1));
  RISK("name of 1 in 0 bytes", cuDeviceGetName(a[0], 0, 1));
  for (int length = 1; length <= 9; length += 2) {
    memset(a[0], 0, 256);
    ASK(W("name of 1 in %d bytes", length), cuDeviceGetName(a[0], length, 1), "%s", a[0]);
  }
}

static void identifiers(void) {
  CUuuid u[3];
  SET(u);
  for (int d = -1; d < 3; d++) ASK(W("UUID of %d", d), cuDeviceGetUuid(&u[d < 0 ? 2 : d], d));
  SAY("they differ", "%d", memcmp(&u[0], &u[1], sizeof u[0]) != 0);
  char bus[3][64], short_[64];
  SET(bus);
  for (int d = 0; d < 3; d++) {
    ASK(W("bus id of %d", d), cuDeviceGetPCIBusId(bus[d], 64, d), "%zu", strlen(bus[d]));
    CUdevice back = 77;
    ASK(W("device of it, %d", d), cuDeviceGetByPCIBusId(&back, bus[d]), "%d", back == d);
    snprintf(short_, sizeof short_, "%s", bus[d][0] ? bus[d] + 5 : "");
    back = 77;
    ASK(W("device of its end, %d", d), cuDeviceGetByPCIBusId(&back, short_), "%d", back == d);
    for (char *c = short_; *c; c++)
      if (*c >= 'A' && *c <= 'F') *c += 'a' - 'A';
    back = 77;
    ASK(W("device of its end, small, %d", d), cuDeviceGetByPCIBusId(&back, short_), "%d", back == d);
    char none[64] = "";
    snprintf(none, sizeof none, "%.8s", short_);
    if (none[0]) none[strlen(none) - 1] = '7';
    ASK(W("another function, %d", d), cuDeviceGetByPCIBusId(&back, none));
    int domain = 7, number = 7, device = 7;
    cuDeviceGetAttribute(&domain, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, d);
    cuDeviceGetAttribute(&number, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, d);
    cuDeviceGetAttribute(&device, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, d);
    snprintf(none, sizeof none, "%04X:%02X:%02X.0", domain, number, device);
    SAY(W("the attributes say the same, %d", d), "%d", !strcmp(none, bus[d]));
  }
  SAY("bus ids differ", "%d", strcmp(bus[0], bus[1]) != 0);
  CUdevice back = 77;
  static const char *wrong[] = {"", "x", "0000:00:00.0", "ffff:ff:1f.0", "0000", "0000:00:00", "GPU-0"};
  for (int i = 0; i < 7; i++) ASK(W("device of '%s'", wrong[i]), cuDeviceGetByPCIBusId(&back, wrong[i]));
  RISK("device of NULL", cuDeviceGetByPCIBusId(&back, NULL));
  for (int length = 1; length <= 16; length += 3)
    ASK(W("bus id of 1 in %d bytes", length), cuDeviceGetPCIBusId(short_, length, 1), "%zu", strlen(short_));
}

static void notified(void) {
  CUdevResource r[2];
  SET(r);
  for (int d = 0; d < 2; d++)
    ASK(W("SMs of %d", d), cuDeviceGetDevResource(d, &r[d], CU_DEV_RESOURCE_TYPE_SM), "%u", r[d].sm.smCount);
  ASK("SMs of 2", cuDeviceGetDevResource(2, &r[0], CU_DEV_RESOURCE_TYPE_SM));
}

CASES RUN(attributes) RUN(handles) RUN(names) RUN(identifiers) RUN(notified) END
