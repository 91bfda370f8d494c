/* Inspecting an image of any kind. */
#include "inspect.h"

#include <stdio.h>

#include "containers.h"
#include "cubin.h"
#include "ptx.h"
#include "tileir.h"

enum { MACHINE_AT = 18, DEEPEST = 8 }; /* a library holds an object, which holds a fatbin, which holds a cubin */

typedef struct {
  Writer writer;
  uint32_t latest, depth;
  bool out_of_memory;
} Inspection;

static void inspect(Inspection *inspection, Bytes image);

const char *art_kind_name(ArtKind kind) {
  static const char *const names[KIND_COUNT] = {"unknown", "ptx",    "ltoir",   "cubin",
                                                "fatbin",  "object", "library", "tileir"};
  return names[kind];
}

ArtKind art_kind(Bytes image) {
  uint32_t major, minor;
  if (art_begins(image, "\177ELF")) {
    uint32_t machine = image.size > MACHINE_AT ? image.at[MACHINE_AT] : 0;
    if (image.size > MACHINE_AT + 1) machine = art_u16(image.at + MACHINE_AT);
    return machine == EM_CUDA || machine == 0 ? KIND_CUBIN : KIND_OBJECT;
  }
  if (art_begins(image, LTOIR_MAGIC)) return KIND_LTOIR;
  if (art_begins(image, TILEIR_MAGIC)) return KIND_TILEIR;
  if (art_begins(image, FATBIN_MAGIC)) return KIND_FATBIN;
  if (art_begins(image, AR_MAGIC)) return KIND_LIBRARY;
  return art_ptx_begins(image, &major, &minor) ? KIND_PTX : KIND_UNKNOWN;
}

/* Each reader writes the names and parts of an image, and fills its record; false if the image is damaged. */
typedef bool Read(Inspection *inspection, Bytes image, ArtRecord *record, Problem *problem);

static bool read_unknown(Inspection *inspection, Bytes image, ArtRecord *record, Problem *problem) {
  char found[40] = "it is empty";
  (void)inspection, (void)record;
  if (image.size) {
    int used = snprintf(found, sizeof found, "starts with");
    for (uint64_t at = 0; at < image.size && at < 8; at++)
      used += snprintf(found + used, sizeof found - (size_t)used, " %02x", image.at[at]);
  }
  return art_damaged(problem,
                     "not an image that a CUDA linker reads (%s): no PTX .version, and no ELF, LTO-IR, fatbin or ar "
                     "magic",
                     found);
}

typedef struct {
  Writer *writer;
  ArtRecord *record;
} Names;

static void keep_ptx_symbol(void *context, const char *name, size_t length, unsigned what) {
  Names *names = context;
  char is = NAME_DEFINED;
  if (what & PTX_DECLARED) is = NAME_UNDEFINED;
  else if (what == (PTX_KERNEL | PTX_DEFINED)) is = NAME_BOTH;
  else if (what & PTX_KERNEL) is = NAME_KERNEL;
  art_record_name(names->writer, names->record, is, name, length);
}

static bool read_ptx(Inspection *inspection, Bytes image, ArtRecord *record, Problem *problem) {
  Ptx ptx;
  if (!art_ptx_open(&ptx, image, problem)) return false;
  record->flags = HAS_TARGET | HAS_LINKAGE | RELOCATABLE;
  record->release_major = ptx.release_major;
  record->release_minor = ptx.release_minor;
  record->version_major = ptx.isa_major;
  record->version_minor = ptx.isa_minor;
  art_record_name(&inspection->writer, record, 0, (const char *)ptx.target.at, ptx.target.size);
  Names names = {&inspection->writer, record};
  bool sound = art_ptx_symbols(&ptx, keep_ptx_symbol, &names, problem);
  art_ptx_close(&ptx);
  return sound;
}

static bool read_ltoir(Inspection *inspection, Bytes image, ArtRecord *record, Problem *problem) {
  LtoIr ltoir;
  (void)inspection;
  if (!art_ltoir_read(&ltoir, image, problem)) return false;
  record->flags = HAS_ARCH | HAS_LINKAGE | RELOCATABLE;
  record->version_major = ltoir.nvvm_major;
  record->version_minor = ltoir.nvvm_minor;
  record->arch = ltoir.arch;
  return true;
}

static bool read_tileir(Inspection *inspection, Bytes image, ArtRecord *record, Problem *problem) {
  TileIr tileir;
  (void)inspection;
  if (!art_tileir_read(&tileir, image, problem)) return false;
  record->version_major = tileir.major;
  record->version_minor = tileir.minor;
  return true;
}

/* Adds a name of a cubin. Symbols that share their names could make them longer than any file. */
static bool keep_name(Inspection *inspection, Bytes image, ArtRecord *record, char what, const char *name,
                      Problem *problem) {
  uint64_t length = strnlen(name, image.size);
  if (length > image.size || record->names > 2 * image.size - length)
    return art_damaged(problem, "the names of the symbols together are longer than the image");
  art_record_name(&inspection->writer, record, what, name, length);
  return true;
}

static char symbol_is(const ElfSymbol *symbol) {
  if (art_cubin_is_undefined(symbol)) return NAME_UNDEFINED;
  if (art_cubin_is_kernel(symbol)) return art_cubin_is_strong(symbol) ? NAME_BOTH : NAME_KERNEL;
  return art_cubin_is_strong(symbol) ? NAME_DEFINED : 0;
}

static bool keep_names(Inspection *inspection, Bytes image, const Elf *elf, ArtRecord *record, Problem *problem) {
  ElfSymbols symbols = art_elf_symbols(elf, elf->symbols);
  for (uint32_t index = 0; index < symbols.count; index++) {
    ElfSymbol symbol = art_elf_symbol(&symbols, index);
    char what = symbol_is(&symbol);
    if (what && !keep_name(inspection, image, record, what, symbol.name, problem)) return false;
  }
  for (uint32_t index = 0; index < elf->sections; index++) {
    const char *name = art_elf_section(elf, index).name;
    if (!strncmp(name, ".text.", 6) && !keep_name(inspection, image, record, NAME_TEXT, name, problem)) return false;
  }
  return true;
}

static bool read_cubin(Inspection *inspection, Bytes image, ArtRecord *record, Problem *problem) {
  Elf elf;
  if (!art_elf_open(&elf, image, problem) || !art_cubin_check(&elf, inspection->latest, problem)) return false;
  uint32_t release = art_cubin_release(&elf);
  record->flags = HAS_ARCH | HAS_LINKAGE | (elf.relocatable ? RELOCATABLE : 0);
  record->release_major = release >> 16;
  record->release_minor = release & 0xffff;
  record->arch = art_cubin_arch(&elf);
  return keep_names(inspection, image, &elf, record, problem);
}

/* An entry that is packed or of another kind: only what the fatbin itself says is known. */
static void keep_entry(Inspection *inspection, const FatbinEntry *entry, ArtKind kind) {
  ArtRecord record = {
      .size = entry->payload.size,
      .kind = kind,
      .flags = (kind == KIND_TILEIR ? 0 : HAS_ARCH) | (entry->packed ? PACKED : 0),
      .version_major = entry->isa_major,
      .version_minor = entry->isa_minor,
      .arch = entry->arch,
  };
  if (kind == KIND_TILEIR) { /* its architecture is the oldest that the fatbin's tool knew: nothing of the code */
    record.version_major = entry->isa_major >> 8;
    record.version_minor = entry->isa_major & 0xff;
  }
  art_record_end(&inspection->writer, art_record_begin(&inspection->writer), &record);
}

static ArtKind kind_of(const FatbinEntry *entry) {
  switch (entry->kind) {
    case FATBIN_PTX: return KIND_PTX;
    case FATBIN_ELF: return KIND_CUBIN;
    case FATBIN_LTOIR: return KIND_LTOIR;
    case FATBIN_TILEIR: return KIND_TILEIR;
    default: return KIND_UNKNOWN;
  }
}

static bool read_fatbin(Inspection *inspection, Bytes image, ArtRecord *record, Problem *problem) {
  for (uint64_t at = 0; at < image.size;) {
    Bytes body;
    if (!art_fatbin_next(image, &at, &body, problem)) return false;
    for (uint64_t inner = 0; inner < body.size; record->parts++) {
      FatbinEntry entry;
      if (!art_fatbin_entry(body, &inner, &entry, problem)) return false;
      ArtKind kind = kind_of(&entry);
      if (entry.packed || kind == KIND_UNKNOWN) keep_entry(inspection, &entry, kind);
      else inspect(inspection, entry.payload);
    }
  }
  return record->parts || art_damaged(problem, "fatbin without entries");
}

/* Reads one part whose faults are those of the image that holds it. */
static bool read_part(Inspection *inspection, Read *read, ArtKind kind, Bytes image, Problem *problem) {
  uint64_t place = art_record_begin(&inspection->writer);
  ArtRecord record = {.size = image.size, .kind = kind};
  if (!read(inspection, image, &record, problem)) return false;
  art_record_end(&inspection->writer, place, &record);
  return true;
}

static bool holds_fatbin(const ElfSection *section) {
  return !strcmp(section->name, ".nv_fatbin") || !strcmp(section->name, "__nv_relfatbin");
}

static bool read_fatbin_sections(Inspection *inspection, const Elf *elf, ArtRecord *record, Problem *problem) {
  for (uint32_t index = 0; index < elf->sections; index++) {
    ElfSection section = art_elf_section(elf, index);
    if (!holds_fatbin(&section) || !section.size) continue;
    Bytes fatbin = art_elf_bytes(elf, &section);
    if (!fatbin.size) return art_damaged(problem, "%s has a size but no bytes", section.name);
    if (!read_part(inspection, read_fatbin, KIND_FATBIN, fatbin, problem)) return false;
    record->parts++;
  }
  return record->parts ||
         art_damaged(problem, "host object without device code (no section __nv_relfatbin or .nv_fatbin)");
}

static bool read_object(Inspection *inspection, Bytes image, ArtRecord *record, Problem *problem) {
  Elf elf;
  return art_elf_open(&elf, image, problem) && read_fatbin_sections(inspection, &elf, record, problem) &&
         art_elf_apart(&elf, problem);
}

static bool has_fatbin(const Elf *elf) {
  for (uint32_t index = 0; index < elf->sections; index++) {
    ElfSection section = art_elf_section(elf, index);
    if (holds_fatbin(&section)) return true;
  }
  return false;
}

/* Members without device code are what a host linker needs; they must be sound all the same. */
static bool read_member(Inspection *inspection, const Member *member, ArtRecord *record, Problem *problem) {
  Elf elf;
  if (!art_begins(member->payload, "\177ELF"))
    return art_damaged(problem, "archive member '%s' is not an object", member->name);
  if (!art_elf_open(&elf, member->payload, problem)) return false;
  if (art_kind(member->payload) == KIND_CUBIN && !art_cubin_check(&elf, inspection->latest, problem)) return false;
  if (!has_fatbin(&elf)) return art_elf_apart(&elf, problem);
  record->parts++;
  return read_part(inspection, read_object, KIND_OBJECT, member->payload, problem);
}

static bool read_library(Inspection *inspection, Bytes image, ArtRecord *record, Problem *problem) {
  Archive archive;
  art_archive_open(&archive, image);
  while (archive.at < image.size) {
    Member member;
    if (!art_archive_next(&archive, &member, problem)) return false;
    if (!member.is_index && !read_member(inspection, &member, record, problem)) return false;
  }
  return record->parts || art_damaged(problem, "library without device code (no member has a section __nv_relfatbin or "
                                               ".nv_fatbin)");
}

static Read *const readers[KIND_COUNT] = {read_unknown, read_ptx,    read_ltoir,   read_cubin,
                                          read_fatbin,  read_object, read_library, read_tileir};

static void inspect(Inspection *inspection, Bytes image) {
  Problem problem = {0};
  ArtKind kind = art_kind(image);
  uint64_t place = art_record_begin(&inspection->writer);
  ArtRecord record = {.size = image.size, .kind = kind};
  bool sound =
      inspection->depth < DEEPEST || art_damaged(&problem, "more than %d images lie inside each other", DEEPEST);
  inspection->depth++;
  sound = sound && readers[kind](inspection, image, &record, &problem);
  inspection->depth--;
  inspection->out_of_memory |= problem.out_of_memory;
  if (sound) {
    art_record_end(&inspection->writer, place, &record);
    return;
  }
  char text[PROBLEM_ROOM + 32];
  snprintf(text, sizeof text, "damaged %s: %s", art_kind_name(kind), problem.text);
  art_record_problem(&inspection->writer, place, kind, image.size, kind == KIND_UNKNOWN ? problem.text : text);
}

uint64_t art_inspect(const void *data, uint64_t size, uint32_t latest, void *out, uint64_t room) {
  Inspection inspection = {.writer = {out, room, 0}, .latest = latest};
  inspect(&inspection, (Bytes){data, size});
  return inspection.out_of_memory ? 0 : inspection.writer.used;
}
