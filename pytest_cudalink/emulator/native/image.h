/* Reading images: what kind, ELF with every offset checked, and as much of PTX as a linker's front door needs. */
#ifndef CUDALINK_IMAGE_H
#define CUDALINK_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi.h"

typedef struct {
  const char *name; /* inside the image; the image outlives this */
  uint64_t value, size;
  uint16_t section;
  uint8_t info, other;
} ElfSymbol;

typedef enum { IMAGE_UNKNOWN, IMAGE_PTX, IMAGE_ELF, IMAGE_FATBIN, IMAGE_LTOIR, IMAGE_ARCHIVE } ImageKind;

enum { ELF_CLASS_AT = 4, ELF_CLASS_64 = 2, EM_CUDA = 190 }; /* EM_CUDA is the machine of device code */

/* A sound ELF image, with its tables where they lie in the data. */
typedef struct {
  const uint8_t *data;
  size_t size;
  uint16_t type, machine;
  uint32_t version, flags;
  uint8_t abi_version;
  uint64_t section_table;
  uint32_t sections;
  uint32_t names;   /* section with the section names */
  uint32_t symbols; /* section with the symbols; 0: none */
} Elf;

typedef struct {
  const char *name;
  uint32_t type;
  uint64_t flags, address, offset, size;
  uint32_t link, info;
  uint64_t align, entry_size;
} ElfSection;

ImageKind cl_image_kind(const void *data, size_t size);
/* A copy of an image whose caller did not say its size; CUDA_ERROR_INVALID_IMAGE if it is not all there. Owned. */
CUresult cl_copy_image(const void *data, void **copy, size_t *size);
/* The size of a text with its NUL; 0 if memory ends before one. */
size_t cl_text_size(const char *text);
/* A file's bytes, with zeros behind them: text gets its NUL, and the head of a short file can be looked at. Owned. */
CUresult cl_read_file(const char *path, void **data, size_t *size);
/* Reads the header and checks every table; on failure `problem` says what is wrong. */
bool cl_elf_open(Elf *elf, const void *data, size_t size, char *problem, size_t problem_size);
bool cl_elf_section(const Elf *elf, uint32_t index, ElfSection *section);
bool cl_elf_symbol(const Elf *elf, uint32_t index, ElfSymbol *symbol);
/* The bytes of a section; NULL for one that has none in the image. */
const uint8_t *cl_elf_bytes(const Elf *elf, const ElfSection *section);
int cl_elf_arch(const Elf *elf);
/* CUDA release that wrote it, as 13000; 0 if it does not say. */
int cl_elf_release(const Elf *elf);

/* The size that a fatbin says it has, or that of the data if that is more, when all that suits the architecture lies
   within the data; 0 when it does not. */
size_t cl_fatbin_usable(const uint8_t *data, size_t size, int arch);
/* Where the last member of an archive ends; 0 when a member's header is cut. */
uint64_t cl_archive_size(const uint8_t *data, size_t size);

/* Calls back for each strong external definition of a PTX text. */
typedef void Definition(void *context, const char *name, size_t length);
void cl_ptx_definitions(const char *text, size_t size, Definition *found, void *context);
/* The .version of a PTX text as 90 for 9.0, and its .target; false if the text is no PTX. */
bool cl_ptx_head(const char *text, size_t size, int *version, int *target);

/* A number of `bytes` bytes, the lowest first. */
uint64_t cl_little(const uint8_t *at, int bytes);

#endif
