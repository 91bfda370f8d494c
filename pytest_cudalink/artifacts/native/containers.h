/* The containers of device code: LTO-IR files, fatbins, and `ar` libraries in the System V / GNU form.
 *
 * NVIDIA documents neither LTO-IR nor fatbins; the fields here were read off the output of nvcc 13.0 and of NVRTC 12.0
 * to 13.5, and only fields that agree in all of these are used. */
#pragma once

#include "bytes.h"

#define LTOIR_MAGIC "\xed\x43\x4e\x7f"
#define FATBIN_MAGIC "\x50\xed\x55\xba"
#define AR_MAGIC "!<arch>\n"

typedef struct {
  uint32_t nvvm_major, nvvm_minor; /* the NVVM IR version, which names the producing release */
  uint32_t arch;
} LtoIr;

/* The payload is scrambled bitcode in 32-bit words without a length, so only the linker notices a file that lost whole
 * words, and answers with an error. */
bool art_ltoir_read(LtoIr *ltoir, Bytes image, Problem *problem);

/* Tile IR: as nvFatbinAddTileIR of 13.1 and 13.5 writes it. */
enum { FATBIN_PTX = 1, FATBIN_ELF = 2, FATBIN_LTOIR = 8, FATBIN_TILEIR = 128 };

/* Flags of an entry: packed by LZ4 or by zstd; for its architecture alone, as sm_90a; for a family, as sm_100f. */
enum { FATBIN_LZ4 = 0x2000, FATBIN_ZSTD = 0x8000, FATBIN_EXACT = 0x100000, FATBIN_FAMILY = 0x200000 };

enum { FATBIN_HEADER = 16, FATBIN_ENTRY = 64 }; /* the fewest bytes that a header has */

/* What a fatbin claims: the bytes of its header, and those of the body behind it. */
typedef struct {
  uint64_t header, body;
} FatbinSize;

typedef struct {
  uint64_t header, size; /* bytes of the entry's header and of its payload, as it claims */
  uint32_t kind, arch, isa_major, isa_minor;
  uint64_t flags;
  bool packed; /* the payload is not looked into */
  uint32_t packed_size;
  uint64_t unpacked_size;
  Bytes payload;
} FatbinEntry;

/* What the fatbin at `at` claims, which need not be all there. */
bool art_fatbin_size(Bytes image, uint64_t at, FatbinSize *size, Problem *problem);
/* The body of the fatbin at `at`, behind which `at` moves; an empty one at the end of the image, even if padded. */
bool art_fatbin_next(Bytes image, uint64_t *at, Bytes *body, Problem *problem);
/* The header of the entry at `at` of a fatbin's body; the payload is not looked at, and need not be there. */
bool art_fatbin_entry_head(Bytes body, uint64_t at, FatbinEntry *entry, Problem *problem);
/* The entry of a fatbin's body at `at`, behind which `at` moves. */
bool art_fatbin_entry(Bytes body, uint64_t *at, FatbinEntry *entry, Problem *problem);

typedef struct {
  Bytes image, names; /* the whole archive, and its table of long names once it was met */
  uint64_t at;
} Archive;

typedef struct {
  char name[17];
  bool is_index; /* the archive's index of symbols or its table of names, which are checked by themselves */
  Bytes payload;
} Member;

void art_archive_open(Archive *archive, Bytes image);
/* Where the last member of an archive ends by its own header, of which the rest need not be there; 0 where a member's
   header is cut. */
uint64_t art_archive_end(Bytes image);
/* The next member of an archive; at its end, `at` is at or behind the end of the image. */
bool art_archive_next(Archive *archive, Member *member, Problem *problem);
