/* The resources of a device, from which green contexts are made. */
#ifndef CUDALINK_DEVICE_RESOURCES_H
#define CUDALINK_DEVICE_RESOURCES_H

#include <stdint.h>

#include "abi.h"

/* CUdevResource. What the driver keeps in the padding is its own: here the device, and which split it is from. */
typedef struct {
  int type;
  uint32_t mark;
  CUdevice device;
  unsigned split;
  unsigned char padding[80];
  union {
    struct {
      unsigned count, least, unit, flags;
    } sm;
    struct {
      CUdevice device;
      unsigned limit;
      int scope;
    } queues;
    unsigned char bytes[48];
  } of;
} DeviceResource;

_Static_assert(sizeof(DeviceResource) == 144, "CUdevResource");

/* All multiprocessors of a device, or how its work queues are configured. */
CUresult cl_device_resource(CUdevice device, int type, DeviceResource *out);

#endif
