/* What every file of libnvidia-ml.so.1 starts from: results, the state of the library, the device and its checks. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

typedef int Result;
enum {
  SUCCESS = 0,
  UNINITIALIZED = 1,
  INVALID_ARGUMENT = 2,
  NOT_SUPPORTED = 3,
  NOT_FOUND = 6,
  INSUFFICIENT_SIZE = 7,
  TIMEOUT = 10,
  FUNCTION_NOT_FOUND = 13,
  GPU_IS_LOST = 15,
  INSUFFICIENT_MEMORY = 20,
  ARGUMENT_VERSION_MISMATCH = 25,
  UNKNOWN = 999,
};

/* What only NVML shows of a card: the table [[cards]] of data/emulator/nvml.toml. */
typedef struct {
  const char *name;
  unsigned power, least_power; /* milliwatts */
  unsigned brand;
  unsigned fans;
  bool mig;
} Card;

/* Handles are the index plus one, so that NULL is not a handle. */
typedef const void *Device;

/* Attributes of CUdevice_attribute that have an answer in NVML too. */
enum {
  CLOCK_RATE = 13,
  MULTIPROCESSOR_COUNT = 16,
  MEMORY_CLOCK_RATE = 36,
  MEMORY_BUS_WIDTH = 37,
  GPU_PCI_DEVICE_ID = 139,
  GPU_PCI_SUBSYSTEM_ID = 140,
};

Result cl_nvml_ready(bool arguments);
Result cl_nvml_check(Device device, bool arguments);
/* Returns from the function if the library is not initialized, an argument is missing, or the device is not one. */
#define READY(arguments)                         \
  do {                                           \
    Result not_ready = cl_nvml_ready(arguments); \
    if (not_ready != SUCCESS) return not_ready;  \
  } while (0)
#define CHECK(device, arguments)                          \
  do {                                                    \
    Result not_usable = cl_nvml_check(device, arguments); \
    if (not_usable != SUCCESS) return not_usable;         \
  } while (0)

/* The same for a structure that begins with its version. */
#define CHECK_VERSION(device, info, number) \
  CHECK(device, info);                      \
  if (!cl_nvml_is_version(info, sizeof *(info), number)) return ARGUMENT_VERSION_MISMATCH
/* A whole function that gives one number of a device. */
#define GIVES(name, value) \
  EXPORT Result name(Device device, unsigned *out) { return cl_nvml_give(device, out, value); }
Result cl_nvml_give(Device device, unsigned *out, unsigned value);
/* A whole function that gives two numbers of a device which has them. */
#define GIVES_TWO(name, type, has, one, other)                                           \
  EXPORT Result name(Device device, __typeof__(type) *first, __typeof__(type) *second) { \
    CHECK(device, first && second);                                                      \
    if (!(has)) return NOT_SUPPORTED;                                                    \
    *first = (one);                                                                      \
    *second = (other);                                                                   \
    return SUCCESS;                                                                      \
  }

bool cl_nvml_lost(void);
unsigned cl_nvml_devices(void);
unsigned cl_nvml_index(Device device);
Device cl_nvml_device(unsigned index);

const Card *cl_nvml_card(void);
/* The value of one of these attributes. */
int cl_nvml_attribute(int number);
const char *cl_nvml_release(void);

/* Texts by which a device is found. In nvml_identity.c. */
enum { IDENTITY_SIZE = 64, UUID_SIZE = 16 };
void cl_nvml_uuid(unsigned index, char text[IDENTITY_SIZE]);
void cl_nvml_serial(unsigned index, char text[IDENTITY_SIZE]);

Result cl_nvml_text(char *out, unsigned size, const char *text);
/* Whether a structure begins with the version that the size and number of a layout make. */
bool cl_nvml_is_version(const void *structure, size_t size, unsigned number);
