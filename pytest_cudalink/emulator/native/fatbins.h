/* Which entry of a fatbin a driver takes, and its image, unpacked.
 *
 * The rules were recorded on driver 580.159.04 with an H100 (campaigns/conformance/fatbin_record.py); NVIDIA documents
 * neither the format nor the choice. */
#pragma once

#include "abi.h"
#include "containers.h"

/* Whether PTX is taken where there is a cubin, too: CUDA_FORCE_PTX_JIT or CUDA_FORCE_JIT is 1. */
bool cl_jit_forced(void);
/* Whether PTX is not compiled: CUDA_DISABLE_PTX_JIT or CUDA_DISABLE_JIT is 1. */
bool cl_jit_disabled(void);
/* Whether compiled PTX is neither kept nor taken from what was kept: CUDA_CACHE_DISABLE is 1. */
bool cl_jit_uncached(void);

/* Whether some entry is of a kind. */
bool cl_fatbin_has(Bytes fatbin, uint32_t kind);
/* The entry for an architecture: a cubin that runs on it, of the highest architecture, else PTX of the highest that can
   be compiled for it. What is in the image does not count, so one that is damaged or too new is taken all the same.
   `kind` is 0 where nothing fits. */
FatbinEntry cl_fatbin_choice(Bytes fatbin, int arch, bool only_ptx);
/* A copy of the image of an entry, unpacked, with a NUL behind it. Owned.
   CUDA_ERROR_NOT_SUPPORTED: it is packed, and the library that unpacks it is not on this machine, as an event says. */
CUresult cl_fatbin_image(const FatbinEntry *entry, void **image, size_t *size);
