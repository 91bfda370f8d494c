/* Checks of what only CUDA defines in a cubin, as in the output of NVRTC and nvcc 12.0 to 13.5.
 *
 * The names of NVIDIA's section types are those that `cuobjdump -elf` prints. */
#pragma once

#include "elf_image.h"

/* A CUDA release as one number that orders releases; 0 if it is not known. */
#define RELEASE(major, minor) ((uint32_t)(major) << 16 | (uint32_t)(minor))

/* The newest release among the tools that left a note; before notes, CUDA 12 counted in e_version. */
uint32_t art_cubin_release(const Elf *elf);
/* The architecture, such as 90. */
uint32_t art_cubin_arch(const Elf *elf);
/* Checks what CUDA linkers rely on beyond the System V ABI. Nothing is checked in a cubin of a release after `latest`:
 * a later CUDA may have changed what only CUDA defines. */
bool art_cubin_check(const Elf *elf, uint32_t latest, Problem *problem);
bool art_cubin_is_kernel(const ElfSymbol *symbol);
bool art_cubin_is_strong(const ElfSymbol *symbol);
/* Whether the linker must find it: global, without a section, and not a name that the linker provides. */
bool art_cubin_is_undefined(const ElfSymbol *symbol);
