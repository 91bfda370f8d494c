/* Which entry of a fatbin a driver takes, and its image, unpacked. */
#include "fatbins.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "calls.h"

static bool is_set(const char *name) {
  const char *value = getenv(name);
  return value && !strcmp(value, "1");
}

bool cl_jit_forced(void) { return is_set("CUDA_FORCE_PTX_JIT") || is_set("CUDA_FORCE_JIT"); }
bool cl_jit_disabled(void) { return is_set("CUDA_DISABLE_PTX_JIT") || is_set("CUDA_DISABLE_JIT"); }
bool cl_jit_uncached(void) { return is_set("CUDA_CACHE_DISABLE"); }
static bool is_exact(const FatbinEntry *entry) { return entry->flags & FATBIN_EXACT; }

/* Code of sm_90a runs on sm_90 alone, other code on devices of its major release that are not older. */
static bool runs(const FatbinEntry *entry, uint32_t arch) {
  if (is_exact(entry)) return entry->arch == arch;
  return entry->arch / 10 == arch / 10 && entry->arch <= arch;
}

/* That compute_90a is for sm_90 alone is left to the compiler. */
static bool can_be_compiled(const FatbinEntry *entry, uint32_t arch) {
  if (entry->flags & FATBIN_FAMILY) return entry->arch / 10 == arch / 10 && entry->arch <= arch;
  return entry->arch <= arch;
}

/* Of two that fit: 1 if the first is for a higher architecture, -1 if the second, 0 if both are for the same. */
static int compare(const FatbinEntry *one, const FatbinEntry *other) {
  if (one->arch != other->arch) return one->arch > other->arch ? 1 : -1;
  return is_exact(one) - is_exact(other);
}

/* Reads the entry at a place of the first fatbin, and moves the place behind it; false if there is none. */
static bool next_entry(Bytes fatbin, uint64_t *at, FatbinEntry *entry) {
  Problem problem;
  Bytes body;
  uint64_t end = 0;
  return art_fatbin_next(fatbin, &end, &body, &problem) && *at < body.size &&
         art_fatbin_entry(body, at, entry, &problem);
}

FatbinEntry cl_fatbin_choice(Bytes fatbin, int arch, bool only_ptx) {
  FatbinEntry entry, cubin = {0}, ptx = {0};
  for (uint64_t at = 0; next_entry(fatbin, &at, &entry);) {
    bool fits_as_cubin = entry.kind == FATBIN_ELF && runs(&entry, (uint32_t)arch);
    bool fits_as_ptx = entry.kind == FATBIN_PTX && can_be_compiled(&entry, (uint32_t)arch);
    /* of equal cubins the first, of equal PTX the last (recorded: fatbins-580.159.04) */
    if (fits_as_cubin && (!cubin.kind || compare(&entry, &cubin) > 0)) cubin = entry;
    if (fits_as_ptx && (!ptx.kind || compare(&entry, &ptx) >= 0)) ptx = entry;
  }
  return cubin.kind && !only_ptx ? cubin : ptx;
}

bool cl_fatbin_has(Bytes fatbin, uint32_t kind) {
  FatbinEntry entry;
  for (uint64_t at = 0; next_entry(fatbin, &at, &entry);)
    if (entry.kind == kind) return true;
  return false;
}

typedef int UnpackLz4(const char *from, char *to, int from_size, int to_size);
typedef size_t UnpackZstd(void *to, size_t to_size, const void *from, size_t from_size);

/* A function of a library that most systems have, as their package managers need it; the driver has its own. */
static void *find(const char *library, const char *function) {
  void *opened = dlopen(library, RTLD_LAZY | RTLD_LOCAL);
  void *found = opened ? dlsym(opened, function) : NULL;
  if (!found) {
    char note[160];
    snprintf(note, sizeof note,
             "unpacking the code of a fatbin needs %s, which is not on this machine: install it, or compile with nvcc "
             "-no-compress",
             library);
    cudalinkUnsupported("cuModuleLoadData", note);
  }
  return found;
}

/* Writes exactly so many bytes, or fails. */
static CUresult unpack(const FatbinEntry *entry, char *to, size_t size) {
  const char *from = (const char *)entry->payload.at;
  CUresult damaged =
      entry->kind == FATBIN_ELF ? CUDA_ERROR_INVALID_IMAGE : CUDA_ERROR_UNKNOWN; /* (recorded: fatbins-580.159.04) */
  if (entry->flags & FATBIN_ZSTD) {
    UnpackZstd *zstd = (UnpackZstd *)find("libzstd.so.1", "ZSTD_decompress");
    if (!zstd) return CUDA_ERROR_NOT_SUPPORTED;
    return zstd(to, size, from, entry->packed_size) == size ? CUDA_SUCCESS : damaged;
  }
  UnpackLz4 *lz4 = (UnpackLz4 *)find("liblz4.so.1", "LZ4_decompress_safe");
  if (!lz4) return CUDA_ERROR_NOT_SUPPORTED;
  return lz4(from, to, (int)entry->packed_size, (int)size) == (int)size ? CUDA_SUCCESS : damaged;
}

enum { UNPACKED_LIMIT = 0x40000000 }; /* bytes; a damaged entry may claim anything */

CUresult cl_fatbin_image(const FatbinEntry *entry, void **image, size_t *size) {
  uint64_t wanted = entry->packed ? entry->unpacked_size : entry->payload.size;
  if (wanted > UNPACKED_LIMIT) return CUDA_ERROR_INVALID_IMAGE;
  char *copy = calloc(1, (size_t)wanted + 1);
  if (!copy) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = CUDA_SUCCESS;
  if (entry->packed) result = unpack(entry, copy, (size_t)wanted);
  else memcpy(copy, entry->payload.at, (size_t)wanted);
  if (result) return free(copy), result;
  *image = copy;
  *size = (size_t)wanted;
  return CUDA_SUCCESS;
}
