/* Which device it is: names, numbers, its place on the PCI bus, and the versions of what runs on it. */
#include <stdio.h>
#include <string.h>

#include "nvml.h"
#include "profiles.h"

void cl_nvml_uuid(unsigned index, char text[IDENTITY_SIZE]) {
  unsigned char bytes[UUID_SIZE];
  cl_profile_uuid((int)index, bytes);
  char *at = text + sprintf(text, "GPU");
  for (int byte = 0; byte < UUID_SIZE; byte++) {
    bool group = byte == 0 || byte == 4 || byte == 6 || byte == 8 || byte == 10;
    at += sprintf(at, group ? "-%02x" : "%02x", bytes[byte]);
  }
}

void cl_nvml_serial(unsigned index, char text[IDENTITY_SIZE]) {
  snprintf(text, IDENTITY_SIZE, "16500000%05u", index + 1);
}

/* A card with a fan is one for desktops: it has no ECC and no serial number. */
static bool is_desktop(void) { return cl_nvml_card()->fans > 0; }

EXPORT Result nvmlDeviceGetName(Device device, char *out, unsigned size) {
  CHECK(device, out);
  return cl_nvml_text(out, size, cl_profile_name());
}

EXPORT Result nvmlDeviceGetUUID(Device device, char *out, unsigned size) {
  char text[IDENTITY_SIZE];
  CHECK(device, out);
  cl_nvml_uuid(cl_nvml_index(device), text);
  return cl_nvml_text(out, size, text);
}

EXPORT Result nvmlDeviceGetSerial(Device device, char *out, unsigned size) {
  char text[IDENTITY_SIZE];
  CHECK(device, out);
  if (is_desktop()) return NOT_SUPPORTED;
  cl_nvml_serial(cl_nvml_index(device), text);
  return cl_nvml_text(out, size, text);
}

GIVES(nvmlDeviceGetIndex, cl_nvml_index(device))
GIVES(nvmlDeviceGetMinorNumber, cl_nvml_index(device))
GIVES(nvmlDeviceGetModuleId, cl_nvml_index(device))
/* The number of the board is its bus and its slot. */
GIVES(nvmlDeviceGetBoardId, (unsigned)cl_profile_bus((int)cl_nvml_index(device)) << 8)
GIVES(nvmlDeviceGetBrand, cl_nvml_card()->brand)
GIVES(nvmlDeviceGetNumFans, cl_nvml_card()->fans)

EXPORT Result nvmlDeviceOnSameBoard(Device device, Device other, int *same) {
  CHECK(device, same);
  CHECK(other, same);
  *same = device == other;
  return SUCCESS;
}

typedef struct {
  uint32_t version;
  uint64_t value;
} Pdi;
_Static_assert(sizeof(Pdi) == 16, "nvmlPdi_v1_t");

EXPORT Result nvmlDeviceGetPdi(Device device, Pdi *pdi) {
  CHECK_VERSION(device, pdi, 1);
  pdi->value = 0x6375646c696e6b00u + cl_nvml_index(device); /* "cudlink" */
  return SUCCESS;
}

typedef struct {
  uint32_t version;
  unsigned char fabric[16], chassis[16];
  unsigned char slot, tray, host, peer, module;
} Platform;
_Static_assert(sizeof(Platform) == 44, "nvmlPlatformInfo_v2_t");

/* The version is written, not read, which is said to be measured, but is in no recording. */
EXPORT Result nvmlDeviceGetPlatformInfo(Device device, Platform *info) {
  CHECK(device, info);
  memset(info, 0, sizeof *info);
  info->version = (uint32_t)sizeof *info | 2u << 24;
  info->peer = 1;
  info->module = (unsigned char)cl_nvml_index(device);
  return SUCCESS;
}

EXPORT Result nvmlDeviceGetArchitecture(Device device, unsigned *out) {
  enum { VOLTA = 5, TURING, AMPERE, ADA, HOPPER, BLACKWELL };
  int arch = cl_profile_arch();
  unsigned name = arch < 75 ? VOLTA : arch < 80 ? TURING : arch < 89 ? AMPERE : arch < 90 ? ADA : HOPPER;
  return cl_nvml_give(device, out, arch < 100 ? name : BLACKWELL);
}

GIVES_TWO(nvmlDeviceGetCudaComputeCapability, int, true, cl_profile_arch() / 10, cl_profile_arch() % 10)
GIVES_TWO(nvmlDeviceGetMigMode, unsigned, cl_nvml_card()->mig, 0, 0)

EXPORT Result nvmlDeviceGetNumGpuCores(Device device, unsigned *out) {
  unsigned cores_of_one = cl_profile_arch() <= 80 ? 64 : 128; /* of a multiprocessor */
  return cl_nvml_give(device, out, (unsigned)cl_nvml_attribute(MULTIPROCESSOR_COUNT) * cores_of_one);
}

EXPORT Result nvmlDeviceGetAPIRestriction(Device device, unsigned type, unsigned *restricted) {
  enum { APPLICATION_CLOCKS = 0, AUTO_BOOSTED_CLOCKS = 1 };
  CHECK(device, restricted && type <= AUTO_BOOSTED_CLOCKS);
  if (type == APPLICATION_CLOCKS) return NOT_SUPPORTED;
  *restricted = 0;
  return SUCCESS;
}

EXPORT Result nvmlDeviceGetEncoderCapacity(Device device, unsigned type, unsigned *percent) {
  enum { H264, HEVC, AV1 };
  CHECK(device, percent && type <= AV1);
  if (type == AV1) return NOT_SUPPORTED;
  *percent = 100;
  return SUCCESS;
}

typedef struct {
  uint32_t version, mode, entries;
  void *processes;
} ProcessDetails;
_Static_assert(sizeof(ProcessDetails) == 24, "nvmlProcessDetailList_v1_t");

EXPORT Result nvmlDeviceGetRunningProcessDetailList(Device device, ProcessDetails *list) {
  CHECK_VERSION(device, list, 1);
  list->entries = 0;
  return SUCCESS;
}

/* Whether the metrics of nvmlGpm* can be asked for: they would need something that runs. */
EXPORT Result nvmlGpmQueryDeviceSupport(Device device, uint32_t support[2]) {
  CHECK(device, support);
  if (support[0] != 1) return ARGUMENT_VERSION_MISMATCH; /* this version has no size in it */
  support[1] = 0;
  return SUCCESS;
}

static Result give_text(Device device, char *out, unsigned size, const char *text) {
  CHECK(device, out);
  return text ? cl_nvml_text(out, size, text) : NOT_SUPPORTED;
}

EXPORT Result nvmlDeviceGetVbiosVersion(Device device, char *out, unsigned size) {
  char text[32];
  snprintf(text, sizeof text, "%02X.00.00.00.01", cl_profile_arch());
  return give_text(device, out, size, text);
}

EXPORT Result nvmlDeviceGetGspFirmwareVersion(Device device, char *out) {
  return give_text(device, out, 64, cl_profile_arch() < 75 ? NULL : cl_nvml_release());
}

EXPORT Result nvmlDeviceGetBoardPartNumber(Device device, char *out, unsigned size) {
  return give_text(device, out, size, is_desktop() ? NULL : "900-00000-0000-000");
}

EXPORT Result nvmlDeviceGetInforomImageVersion(Device device, char *out, unsigned size) {
  return give_text(device, out, size, is_desktop() ? NULL : "G000.0000.00.01");
}

EXPORT Result nvmlDeviceGetInforomVersion(Device device, unsigned object, char *out, unsigned size) {
  static const char *const versions[] = {"2.1", "7.16", NULL, NULL}; /* OEM, ECC, power, and one to count them */
  CHECK(device, out);
  if (object >= sizeof versions / sizeof *versions) return INVALID_ARGUMENT;
  return give_text(device, out, size, is_desktop() ? NULL : versions[object]);
}

typedef struct {
  char legacy[16];
  uint32_t domain, bus, slot, device, subsystem;
  char id[32];
} PciInfo;
_Static_assert(sizeof(PciInfo) == 68, "nvmlPciInfo_t");

/* As cuDeviceGetPCIBusId answers. */
static PciInfo pci_info(Device device) {
  PciInfo info = {.bus = (uint32_t)cl_profile_bus((int)cl_nvml_index(device))};
  snprintf(info.legacy, sizeof info.legacy, "0000:%02X:00.0", info.bus);
  snprintf(info.id, sizeof info.id, "00000000:%02X:00.0", info.bus);
  info.device = (uint32_t)cl_nvml_attribute(GPU_PCI_DEVICE_ID);
  info.subsystem = (uint32_t)cl_nvml_attribute(GPU_PCI_SUBSYSTEM_ID);
  return info;
}

/* The three forms have one beginning; each writes more of it. */
static Result give_pci_info(Device device, PciInfo *out, size_t size) {
  CHECK(device, out);
  PciInfo info = pci_info(device);
  memcpy(out, &info, size);
  return SUCCESS;
}

EXPORT Result nvmlDeviceGetPciInfo(Device device, PciInfo *out) {
  return give_pci_info(device, out, offsetof(PciInfo, subsystem));
}
EXPORT Result nvmlDeviceGetPciInfo_v2(Device device, PciInfo *out) {
  return give_pci_info(device, out, offsetof(PciInfo, id));
}
EXPORT Result nvmlDeviceGetPciInfo_v3(Device device, PciInfo *out) { return give_pci_info(device, out, sizeof *out); }

typedef struct {
  uint32_t version, domain, bus, slot, device, subsystem, base_class, sub_class;
  char id[32];
} PciInfoExt;
_Static_assert(sizeof(PciInfoExt) == 64, "nvmlPciInfoExt_v1_t");

EXPORT Result nvmlDeviceGetPciInfoExt(Device device, PciInfoExt *out) {
  CHECK_VERSION(device, out, 1);
  PciInfo info = pci_info(device);
  *out = (PciInfoExt){.version = out->version, .bus = info.bus, .device = info.device, .subsystem = info.subsystem};
  out->base_class = 3; /* a display controller, for 3-D only */
  out->sub_class = 2;
  memcpy(out->id, info.id, sizeof out->id);
  return SUCCESS;
}
