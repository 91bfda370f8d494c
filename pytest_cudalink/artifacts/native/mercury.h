/* Mercury, the second form of code since sm_100: its code and symbols repeat what the plain tables say. */
#pragma once

#include "elf_image.h"

/* Checks the head of .nv.capmerc.text.*; the format of the packed records behind it is not documented. */
bool art_check_mercury_code(const Elf *elf, const ElfSection *section, Problem *problem);
/* Compares Mercury's symbols with the first ones of .symtab, which they repeat. */
bool art_check_mercury_symbols(const Elf *elf, Problem *problem);
/* Checks relocations of packed code, whose offsets count in the bytes of the unpacked code. */
bool art_check_mercury_offsets(const Elf *elf, const ElfSection *section, Problem *problem);
/* Checks the register counts of Mercury's functions: the linker finishes their code and needs the counts. */
bool art_check_mercury_registers(const Elf *elf, const ElfSection *section, Problem *problem);
