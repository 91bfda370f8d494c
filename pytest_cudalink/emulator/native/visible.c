/* The devices that this process sees. */
#include "visible.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "profiles.h"

#include "enums.inc"

static atomic_int visible; /* how many */
static atomic_schar places[DEVICES_MAX];

static int digit_of(char sign) {
  static const char signs[] = "0123456789abcdefABCDEF";
  const char *at = sign ? strchr(signs, sign) : NULL;
  return !at ? -1 : at - signs < 16 ? (int)(at - signs) : (int)(at - signs) - 6;
}

/* The device whose UUID begins with these hexadecimal digits, with or without dashes; -1 if not exactly one does. */
static int place_of_uuid(const char *text) {
  int found = -1;
  for (int place = 0; place < cl_config()->devices; place++) {
    unsigned char uuid[16];
    cl_profile_uuid(place, uuid);
    int digits = 0;
    bool same = true;
    for (const char *at = text; same && digits < 32 && (*at == '-' || digit_of(*at) >= 0); at++) {
      if (*at == '-') continue;
      same = digit_of(*at) == (uuid[digits / 2] >> (digits % 2 ? 0 : 4) & 15);
      digits++;
    }
    if (!digits || !same) continue;
    if (found >= 0) return -1;
    found = place;
  }
  return found;
}

/* What stands behind a number does not count, and the number is cut to 32 bits. */
static int place_of_number(const char *text) {
  char *end;
  int place = (int)strtol(text, &end, 10);
  return end != text && place < cl_config()->devices ? place : -1;
}

static bool is_uuid(const char *text) { return !strncmp(text, "GPU-", 4) || !strncmp(text, "MIG-", 4); }

/* The first entry says whether all are numbers or UUIDs. The list ends before the first entry that names no device; a
   device that is named twice is an error (measured: test_visible_devices). */
CUresult cl_see_devices(void) {
  const char *text = getenv("CUDA_VISIBLE_DEVICES"), *order = getenv("CUDA_DEVICE_ORDER");
  int count = 0;
  /* (two H200s: edges/two_visible) */
  if (order && strcmp(order, "PCI_BUS_ID") && strcmp(order, "FASTEST_FIRST")) return CUDA_ERROR_INVALID_DEVICE;
  if (!text)
    for (; count < cl_config()->devices; count++) atomic_store(&places[count], (signed char)count);
  bool uuids = text && is_uuid(text);
  for (const char *entry = text; entry && is_uuid(entry) == uuids; count++) {
    int place = uuids ? place_of_uuid(entry + 4) : place_of_number(entry);
    if (place < 0) break;
    for (int at = 0; at < count; at++)
      if (atomic_load(&places[at]) == place) return CUDA_ERROR_INVALID_DEVICE;
    atomic_store(&places[count], (signed char)place);
    const char *comma = strchr(entry, ',');
    entry = comma ? comma + 1 : NULL;
  }
  atomic_store(&visible, count);
  return count ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

int cl_visible_devices(void) { return atomic_load(&visible); }
int cl_place_of_device(CUdevice device) { return atomic_load(&places[device]); }

CUdevice cl_device_at_place(int place) {
  for (CUdevice device = 0; device < cl_visible_devices(); device++)
    if (cl_place_of_device(device) == place) return device;
  return -1;
}
