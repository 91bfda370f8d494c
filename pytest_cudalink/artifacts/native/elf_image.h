/* A strict reader for ELF images, cubins and host objects, by the System V ABI, chapter 4 ("Object Files").
 *
 * Every number that a linker follows without checking is checked first: nvJitLink and the driver crash on some damaged
 * images. What only CUDA defines is in cubin.c, except for tables of CUDA with the layout of System V's. */
#pragma once

#include "bytes.h"

enum { EM_CUDA = 190 }; /* the machine of device code */

enum {
  SECTION_NONE = 0,
  SECTION_PROGBITS = 1,
  SECTION_SYMTAB = 2,
  SECTION_STRTAB = 3,
  SECTION_RELA = 4,
  SECTION_NOTE = 7,
  SECTION_NOBITS = 8,
  SECTION_REL = 9,
  /* those of CUDA, named as cuobjdump -elf prints them */
  SECTION_CUDA_GLOBAL = 0x70000007,
  SECTION_CUDA_LOCAL = 0x70000009,
  SECTION_CUDA_SHARED = 0x7000000a,
  SECTION_CUDA_SHARED_RESERVED = 0x70000015,
  SECTION_MERC_RELA = 0x70000082, /* from sm_100 on, a second set of tables describes the Mercury code */
  SECTION_MERC_SYMTAB = 0x70000085,
};

enum { ENTRY_SYMBOL = 24, ENTRY_RELA = 24, ENTRY_REL = 16 }; /* bytes of an entry */

/* Sections of packed Mercury code, whose symbols count in the bytes of the unpacked code. */
#define CAPMERC ".nv.capmerc"
/* What all other sections of Mercury begin with. */
#define MERC ".nv.merc"

typedef struct {
  const char *name; /* inside the image, as all names; the image outlives it */
  uint32_t type;
  uint64_t flags, address, offset, size;
  uint32_t link, info;
  uint64_t align, entry_size;
} ElfSection;

typedef struct {
  const char *name;
  uint64_t value, size;
  uint16_t section;
  uint8_t info, other;
} ElfSymbol;

/* A sound image, with its tables where they lie in the data. */
typedef struct {
  const uint8_t *data;
  uint64_t size;
  uint16_t type, machine;
  uint32_t version, flags;
  uint8_t abi_version;
  bool relocatable;
  uint64_t section_table, names_at;
  uint32_t sections;
  uint32_t symbols;     /* section with the symbols; 0: none */
  uint32_t first_table; /* the first section with symbols, Mercury's too; 0: none */
} Elf;

typedef struct {
  const uint8_t *at;
  uint32_t count;
  const char *names;
} ElfSymbols;

typedef struct {
  uint64_t offset;
  uint32_t type, symbol;
  int64_t addend;
} ElfRelocation;

/* Reads the header and checks every table. */
bool art_elf_open(Elf *elf, Bytes image, Problem *problem);
/* Whether no two sections have a byte in common: a linker that writes to one would change the other. A section of
 * Mercury may lie where a plain one lies. */
bool art_elf_apart(const Elf *elf, Problem *problem);
/* A section by its number, which must be one. */
ElfSection art_elf_section(const Elf *elf, uint32_t index);
/* Whether a section of this type has bytes in the file. */
bool art_elf_has_bytes(uint32_t type);
/* The bytes of a section; none for one that has none. */
Bytes art_elf_bytes(const Elf *elf, const ElfSection *section);
/* The symbol table with this section number; none if it is another section. */
ElfSymbols art_elf_symbols(const Elf *elf, uint32_t index);
/* The symbol table that a section refers to; CUDA 12.0 leaves references out where there is only one table. */
ElfSymbols art_elf_symbols_of(const Elf *elf, const ElfSection *section);
/* A symbol by its number, which must be one. */
ElfSymbol art_elf_symbol(const ElfSymbols *symbols, uint32_t index);
bool art_elf_is_function(const ElfSymbol *symbol);
/* Whether a section is a whole, aligned table of entries of a size. */
bool art_elf_table(const Elf *elf, const ElfSection *section, uint64_t entry, Bytes *table, Problem *problem);
ElfRelocation art_elf_relocation(const uint8_t *entry, bool with_addend);

/* The notes of a section: each call moves `at` to the next one; false at the end, or where the section is damaged. */
bool art_elf_note(Bytes section, uint64_t *at, uint32_t *type, Bytes *description);
