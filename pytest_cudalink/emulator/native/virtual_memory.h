/* Virtual memory: reserved addresses, physical memory, and what is mapped where. */
#pragma once

#include "config.h"
#include "physical_memory.h"
#include "address_tree.h"

/* A part of a reserved range with what is mapped there. */
typedef struct {
  AddressNode node;
  size_t size;
  Physical *physical;
  int access[DEVICES_MAX], host_access;
  bool shown; /* to the host, at the address itself */
} Mapping;

/* The reserved range that holds an address; false if there is none. */
bool cl_reservation_of(CUdeviceptr address, CUdeviceptr *start, size_t *size);
/* Copies what is mapped at an address, and the properties of its memory; false if nothing is. */
bool cl_mapping_of(CUdeviceptr address, Mapping *mapping, PhysicalProperties *properties);
