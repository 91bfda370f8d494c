/* The tables of a cubin that only CUDA defines: attributes, call graph, prototypes; and debug information. */
#pragma once

#include "elf_image.h"

enum {
  SECTION_CUDA_INFO = 0x70000000,
  SECTION_CUDA_CALLGRAPH = 0x70000001,
  SECTION_CUDA_PROTOTYPE = 0x70000002,
  SECTION_CUDA_REL_ACTION = 0x7000000b,
  SECTION_CAPMERC = 0x70000016,
  SECTION_MERC_INFO = 0x70000083,
  SECTION_CUDA_COMPAT = 0x70000086,
  SECTION_MERC_CALLGRAPH = 0x7000008a,
  SECTION_MERC_PROTOTYPE = 0x7000008b,
};

/* Whether a name begins with a prefix. */
bool art_named(const char *name, const char *prefix);
/* A name without a prefix, or the name itself if it has another beginning. */
const char *art_without(const char *name, const char *prefix);
/* Whether a section holds debug information, Mercury's too. */
bool art_is_debug(const char *name);
/* Symbol `index`, to which the section refers. */
bool art_refer(const ElfSection *section, const ElfSymbols *symbols, uint32_t index, bool function, ElfSymbol *symbol,
               Problem *problem);

/* Each of these checks one section. */
bool art_check_info(const Elf *elf, const ElfSection *section, Problem *problem);
bool art_check_stack_sizes(const Elf *elf, const ElfSection *section, Problem *problem);
bool art_check_callgraph(const Elf *elf, const ElfSection *section, Problem *problem);
bool art_check_prototypes(const Elf *elf, const ElfSection *section, Problem *problem);
bool art_check_debug_relocations(const Elf *elf, const ElfSection *section, bool compiled, Problem *problem);
bool art_check_debug_frame(const Elf *elf, const ElfSection *section, Problem *problem);
