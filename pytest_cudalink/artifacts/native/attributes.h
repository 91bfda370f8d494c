/* The attributes of functions in .nv.info and .nv.info.NAME. */
#pragma once

#include "elf_image.h"

enum { INFO_MAX_STACK = 0x23, INFO_REGCOUNT = 0x2f };

typedef struct {
  uint8_t attribute;
  bool has_payload;
  Bytes payload;
} Attribute;

/* Moves `at` to the next attribute; `bytes` is the whole section. False, with a problem, if it is damaged. */
bool art_next_attribute(const ElfSection *section, Bytes bytes, uint64_t *at, Attribute *attribute, Problem *problem);
/* The first four bytes of a payload as a number, also where it has fewer. */
uint32_t art_attribute_number(Bytes payload, uint64_t from);
