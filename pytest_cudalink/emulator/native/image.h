/* Images as the driver meets them: copied from the caller's memory, read from files, cut short. What is in them is read
 * by the reader of artifacts/native, with every offset checked. */
#pragma once

#include "abi.h"
#include "elf_image.h"

typedef enum { IMAGE_UNKNOWN, IMAGE_PTX, IMAGE_ELF, IMAGE_FATBIN, IMAGE_LTOIR, IMAGE_ARCHIVE, IMAGE_TILEIR } ImageKind;

enum { ELF_CLASS_AT = 4, ELF_CLASS_64 = 2 };

ImageKind cl_image_kind(const void *data, size_t size);
/* A copy of an image whose caller did not say its size; CUDA_ERROR_INVALID_IMAGE if it is not all there. Owned. */
CUresult cl_copy_image(const void *data, void **copy, size_t *size);
/* The size of a text with its NUL; 0 if memory ends before one. */
size_t cl_text_size(const char *text);
/* A file's bytes, with zeros behind them: text gets its NUL, and the head of a short file can be looked at. Owned. */
CUresult cl_read_file(const char *path, void **data, size_t *size);
/* Checks every table of an image, and of a cubin what only CUDA defines; on failure `problem` says what is wrong. */
bool cl_elf_open(Elf *elf, const void *data, size_t size, char *problem, size_t problem_size);
/* Whether an image, as far as its header is there, is a cubin of a form that a driver of the version knows. */
bool cl_elf_is_known(const uint8_t *data, size_t size);
/* The same for code that is loaded: CUDA_ERROR_INVALID_IMAGE for damage and for a host object,
   CUDA_ERROR_NO_BINARY_FOR_GPU for a form of cubins that is newer than the driver. */
CUresult cl_elf_load(Elf *elf, const void *data, size_t size);
bool cl_elf_section(const Elf *elf, uint32_t index, ElfSection *section);
bool cl_elf_symbol(const Elf *elf, uint32_t index, ElfSymbol *symbol);
/* The bytes of a section; NULL for one that has none in the image. */
const uint8_t *cl_elf_bytes(const Elf *elf, const ElfSection *section);
/* Architecture of the code, as the driver reads it. */
int cl_elf_arch(const Elf *elf);
/* CUDA release that wrote it, as 13000; 0 if it does not say. */
int cl_elf_release(const Elf *elf);

/* Notes for the event of this thread's call that it refuses an image, found in a container (NULL: in none), because of
   which it will answer `result`; a code that no image explains is not noted. */
void cl_refuse_image(CUresult result, const char *container, const void *data, size_t size, int arch);

/* The size that a fatbin says it has, or that of the data if that is more, when all that suits the architecture lies
   within the data; 0 when it does not. */
size_t cl_fatbin_usable(const uint8_t *data, size_t size, int arch);

/* Calls back for each strong external definition of a PTX text; for none if its head is damaged. */
typedef void Definition(void *context, const char *name, size_t length);
void cl_ptx_definitions(const char *text, size_t size, Definition *found, void *context);
/* The .version of a PTX text as 90 for 9.0, and its .target; false if the text is not PTX. */
bool cl_ptx_head(const char *text, size_t size, int *version, int *target);
/* Makes PTX of a whole program fit for the compiler of parts that stands in for the driver's own: PTX ISA 1.0 to 3.0 is
   called 3.1; a pragma that only whole programs may have, which moves spilled registers and changes no result, is
   renamed, so that it is passed over; and external variables whose size is known become the program's own (measured:
   edges/externs). False if the ISA is older than what the text names. */
bool cl_ptx_as_part(char *text, size_t size);
