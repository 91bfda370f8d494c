/* Checks of what only CUDA defines in a cubin. */
#include "cubin.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>

#include "cuda_tables.h"
#include "mercury.h"

enum { NOTE_TOOL = 2000, MOST_OF_A_RELEASE = UINT16_MAX };
enum { BIND_GLOBAL = 1, SYMBOL_SECTION = 3, OTHER_ENTRY = 0x10 };
enum { FLAG_MERC = 0x10000000, FLAGS_CODE = 0x2 | 0x4, OWNER_MASK = 0xffffff };
/* e_flags from ABI version 8 on: a bit that announces Mercury, and the section of the note about CUDA in the top byte.
 * Before version 8: a bit that no release sets, and on which nvJitLink 12.9 crashes (measured: test_a_deadly_flag). */
enum { ABI_13 = 8, FLAG_MERCURY = 0x2, NOTE_SHIFT = 24, FLAG_DEADLY = 0x4000 };
/* Each of .nv.constant0 to .nv.constant17 has its own type, and linkers find it by type and by name. */
enum { CONSTANT_BANK = 0x70000064, CONSTANT_BANKS = 18 };

/* -- facts -- */

static bool number_at(Bytes text, uint64_t *at, uint32_t *number) {
  uint64_t start = *at;
  *number = 0;
  for (; *at < text.size && isdigit(text.at[*at]); ++*at) {
    *number = *number * 10 + (uint32_t)(text.at[*at] - '0');
    if (*number > MOST_OF_A_RELEASE) *number = MOST_OF_A_RELEASE;
  }
  return *at > start;
}

/* The release in the note of a tool: "… release 13.0, V13.0.88". */
static uint32_t release_in(Bytes note) {
  static const char before[] = "release ";
  for (uint64_t at = art_find(note, 0, before); at < note.size; at = art_find(note, at, before)) {
    uint32_t major, minor;
    at += sizeof before - 1;
    if (!number_at(note, &at, &major) || at >= note.size || note.at[at] != '.') continue;
    at++;
    if (number_at(note, &at, &minor)) return RELEASE(major, minor);
  }
  return 0;
}

/* CUDA 12.9 already writes the CUDA 13 form for sm_100 and later, so the ELF ABI version is no witness. */
uint32_t art_cubin_release(const Elf *elf) {
  uint32_t newest = 0;
  for (uint32_t index = 1; index < elf->sections; index++) {
    ElfSection section = art_elf_section(elf, index);
    if (section.type != SECTION_NOTE) continue;
    Bytes bytes = art_elf_bytes(elf, &section), description;
    uint32_t type;
    for (uint64_t at = 0; at < bytes.size && art_elf_note(bytes, &at, &type, &description);) {
      uint32_t release = type == NOTE_TOOL ? release_in(description) : 0;
      if (release > newest) newest = release;
    }
  }
  if (!newest && elf->version >= 120 && elf->version <= 129) return RELEASE(elf->version / 10, elf->version % 10);
  return newest;
}

/* With ELF ABI version 8 the architecture moved from the first byte of e_flags to the second and third. */
uint32_t art_cubin_arch(const Elf *elf) {
  return elf->abi_version >= ABI_13 ? elf->flags >> 8 & 0xfff : elf->flags & 0xff;
}

bool art_cubin_is_kernel(const ElfSymbol *symbol) {
  return art_elf_is_function(symbol) && symbol->other & OTHER_ENTRY && symbol->section;
}

bool art_cubin_is_strong(const ElfSymbol *symbol) {
  return symbol->section && symbol->info >> 4 == BIND_GLOBAL && (symbol->info & 15) != SYMBOL_SECTION;
}

bool art_cubin_is_undefined(const ElfSymbol *symbol) {
  return !symbol->section && symbol->info >> 4 == BIND_GLOBAL && !art_named(symbol->name, ".nv.");
}

/* -- headers -- */

/* Names that oblige a type: nvJitLink finds the section by its name and reads it as that type. */
typedef enum { BEGINNING, WHOLE_NAME = 1, BOTH_WAYS = 2 } NameRule; /* BOTH_WAYS: a name of that type begins so */
static const struct {
  const char *name;
  uint32_t type;
  NameRule rule;
} names[] = {
    {".symtab", SECTION_SYMTAB, WHOLE_NAME | BOTH_WAYS},
    {".strtab", SECTION_STRTAB, WHOLE_NAME},
    {".shstrtab", SECTION_STRTAB, WHOLE_NAME},
    {".nv.callgraph", SECTION_CUDA_CALLGRAPH, WHOLE_NAME | BOTH_WAYS},
    {".nv.prototype", SECTION_CUDA_PROTOTYPE, WHOLE_NAME | BOTH_WAYS},
    {".nv.info", SECTION_CUDA_INFO, WHOLE_NAME | BOTH_WAYS},
    {".nv.rel.action", SECTION_CUDA_REL_ACTION, WHOLE_NAME | BOTH_WAYS},
    {".nv.compat", SECTION_CUDA_COMPAT, WHOLE_NAME | BOTH_WAYS},
    {".nv.merc.nv.callgraph", SECTION_MERC_CALLGRAPH, WHOLE_NAME | BOTH_WAYS},
    {".nv.merc.nv.prototype", SECTION_MERC_PROTOTYPE, WHOLE_NAME | BOTH_WAYS},
    {".text.", SECTION_PROGBITS, BEGINNING},
    {".nv.capmerc.text.", SECTION_CAPMERC, BOTH_WAYS},
    {".nv.capmerc.", SECTION_CAPMERC, BEGINNING},
    {".nv.merc.symtab", SECTION_MERC_SYMTAB, BOTH_WAYS},
    {".nv.merc.rela.", SECTION_MERC_RELA, BEGINNING},
    {".nv.merc.nv.info", SECTION_MERC_INFO, BOTH_WAYS},
    {".nv.info.", SECTION_CUDA_INFO, BEGINNING},
    {".note.nv.", SECTION_NOTE, BEGINNING},
    {".rela.", SECTION_RELA, BEGINNING},
    {".rel.", SECTION_REL, BEGINNING},
    {".debug_", SECTION_PROGBITS, BEGINNING},
    {".nv_debug_", SECTION_PROGBITS, BEGINNING},
    {".nv.merc.debug_", SECTION_PROGBITS, BEGINNING},
    {".nv.merc.nv_debug_", SECTION_PROGBITS, BEGINNING},
};
enum { NAMES = sizeof names / sizeof *names };

static uint32_t expected_type(const ElfSection *section) {
  for (size_t at = 0; at < NAMES; at++)
    if (names[at].rule & WHOLE_NAME ? !strcmp(section->name, names[at].name) : art_named(section->name, names[at].name))
      return names[at].type;
  return section->type;
}

static bool check_name(const ElfSection *section, Problem *problem) {
  for (size_t at = 0; at < NAMES; at++)
    if (names[at].rule & BOTH_WAYS && section->type == names[at].type && !art_named(section->name, names[at].name))
      return art_damaged(problem, "%.80s has the type of %s", section->name, names[at].name);
  return true;
}

static bool check_header(const ElfSection *section, Problem *problem) {
  /* the ELF specification lets 0 mean 1: cuBLAS 12 and cuDNN 9 have it in tables of names; no known one in others */
  if (!section->align && section->type != SECTION_STRTAB)
    return art_damaged(problem, "%.80s has alignment 0", section->name);
  if (section->align && section->size && art_elf_has_bytes(section->type) && section->offset % section->align)
    return art_damaged(problem, "%.80s starts at byte %" PRIu64 ", not aligned to %" PRIu64, section->name,
                       section->offset, section->align);
  uint32_t expected = expected_type(section);
  if (section->type != expected)
    return art_damaged(problem, "%.80s has type 0x%x, expected 0x%x", section->name, section->type, expected);
  if (art_named(section->name, ".nv.constant") && section->type != SECTION_PROGBITS &&
      (section->type < CONSTANT_BANK || section->type >= CONSTANT_BANK + CONSTANT_BANKS))
    return art_damaged(problem, "%.80s has type 0x%x, which is not that of constants", section->name, section->type);
  if (section->type >= CONSTANT_BANK && section->type < CONSTANT_BANK + CONSTANT_BANKS) {
    char bank[24];
    snprintf(bank, sizeof bank, ".nv.constant%u", section->type - CONSTANT_BANK);
    if (!art_named(section->name, bank)) return art_damaged(problem, "%.80s has the type of %s", section->name, bank);
  }
  bool mercury = art_named(section->name, MERC) || art_named(section->name, CAPMERC);
  if (!(section->flags & FLAG_MERC) == mercury)
    return art_damaged(problem, "%.80s has flags 0x%" PRIx64 ", at odds with its name", section->name, section->flags);
  return check_name(section, problem);
}

static bool check_flags(const Elf *elf, Problem *problem) {
  if (elf->abi_version < ABI_13) {
    if (!(elf->flags & FLAG_DEADLY)) return true;
    return art_damaged(problem, "e_flags are 0x%x; no CUDA release sets 0x%x", elf->flags, FLAG_DEADLY);
  }
  uint32_t at = elf->flags >> NOTE_SHIFT;
  const char *found = at < elf->sections ? art_elf_section(elf, at).name : "";
  if (strcmp(found, ".note.nv.cuinfo") != 0 && strcmp(found, ".note.nv.cuver") != 0)
    return art_damaged(problem, "e_flags say that section %u is the note about CUDA, which is %.80s", at,
                       *found ? found : "none");
  for (uint32_t index = 1; index < elf->sections; index++)
    if (art_elf_section(elf, index).type == SECTION_CAPMERC && !(elf->flags & FLAG_MERCURY))
      return art_damaged(problem, "e_flags are 0x%x, at odds with the sections " CAPMERC ".*", elf->flags);
  return true;
}

/* -- sections -- */

static bool check_owner(const Elf *elf, uint32_t index, const ElfSection *section, uint32_t owner, Problem *problem) {
  ElfSymbols symbols = art_elf_symbols_of(elf, section);
  ElfSymbol function;
  if (!art_refer(section, &symbols, owner, true, &function, problem)) return false;
  if (function.section == index) return true;
  return art_damaged(problem, "%.80s belongs to %.80s, which lies in section %u", section->name, function.name,
                     function.section);
}

/* Linkers find relocations by their name, which is ".rela" or ".rel" and that of their section. */
static bool check_relocation_name(const Elf *elf, const ElfSection *section, Problem *problem) {
  ElfSection target = art_elf_section(elf, section->info);
  bool mercury = art_named(section->name, MERC);
  const char *name = mercury ? section->name + sizeof MERC - 1 : section->name;
  const char *kind = section->type == SECTION_REL ? ".rel" : ".rela";
  const char *plain = mercury ? art_without(art_without(target.name, MERC), CAPMERC) : target.name;
  if (art_named(name, kind) && !strcmp(name + strlen(kind), plain)) return true;
  return art_damaged(problem, "%.80s relocates %.80s", section->name, target.name);
}

/* .nv.info.NAME refers, by number, to .text.NAME. */
static bool check_info_owner(const Elf *elf, const ElfSection *section, Problem *problem) {
  if (section->info && !strcmp(art_without(section->name, MERC), ".nv.info"))
    return art_damaged(problem, "%.80s is about all functions, and refers to section %u", section->name, section->info);
  static const struct {
    const char *info, *code;
  } owners[] = {{".nv.info.", ".text."}, {MERC ".nv.info.", CAPMERC ".text."}};
  const char *owner = art_elf_section(elf, section->info).name;
  for (size_t at = 0; at < sizeof owners / sizeof *owners; at++) {
    if (!art_named(section->name, owners[at].info)) continue;
    const char *function = section->name + strlen(owners[at].info);
    if (!art_named(owner, owners[at].code) || strcmp(owner + strlen(owners[at].code), function) != 0)
      return art_damaged(problem, "%.80s refers to %.80s as its code", section->name, *owner ? owner : "no section");
  }
  return true;
}

static bool check_owned(const Elf *elf, uint32_t index, const ElfSection *section, Problem *problem) {
  if (art_named(section->name, ".text.")) {
    /* the low 24 bits are the function's symbol; CUDA 12 keeps its register count above them */
    if (!check_owner(elf, index, section, section->info & OWNER_MASK, problem)) return false;
    if ((section->flags & FLAGS_CODE) == FLAGS_CODE) return true;
    return art_damaged(problem, "%.80s is not marked as code", section->name);
  }
  if (section->type == SECTION_CAPMERC)
    return check_owner(elf, index, section, section->info, problem) && art_check_mercury_code(elf, section, problem);
  if (section->type != SECTION_SYMTAB && section->type != SECTION_MERC_SYMTAB && section->info >= elf->sections)
    return art_damaged(problem, "%.80s refers to section %u of %u", section->name, section->info, elf->sections);
  return true;
}

/* Checks relocations, by the section that they change. */
static bool check_relocations(const Elf *elf, const ElfSection *section, bool compiled, Problem *problem) {
  if (!check_relocation_name(elf, section, problem)) return false;
  ElfSection target = art_elf_section(elf, section->info);
  if (art_is_debug(target.name)) return art_check_debug_relocations(elf, section, compiled, problem);
  if (compiled && target.type == SECTION_CAPMERC) return art_check_mercury_offsets(elf, section, problem);
  return true;
}

/* Checks content by type. `compiled`: also references that only a linker follows, and that linkers leave wrong. */
static bool check_content(const Elf *elf, const ElfSection *section, bool compiled, Problem *problem) {
  switch (section->type) {
    case SECTION_RELA:
    case SECTION_REL:
    case SECTION_MERC_RELA: return check_relocations(elf, section, compiled, problem);
    case SECTION_CUDA_INFO:
    case SECTION_MERC_INFO:
      if (!check_info_owner(elf, section, problem) || !art_check_info(elf, section, problem)) return false;
      if (!strcmp(section->name, MERC ".nv.info") && !art_check_mercury_registers(elf, section, problem)) return false;
      return !compiled || art_check_stack_sizes(elf, section, problem);
    case SECTION_CUDA_CALLGRAPH: return !compiled || art_check_callgraph(elf, section, problem);
    case SECTION_CUDA_PROTOTYPE: return !compiled || art_check_prototypes(elf, section, problem);
    default: break;
  }
  if (compiled && !strcmp(art_without(section->name, MERC), ".debug_frame"))
    return art_check_debug_frame(elf, section, problem);
  return true;
}

/* Whether a compiler made the image and no linker changed it: linkers keep references to dropped sections. The note
 * names the tools which made the file. */
static bool is_compiled(const Elf *elf) {
  if (!elf->relocatable) return false;
  for (uint32_t index = 1; index < elf->sections; index++) {
    ElfSection section = art_elf_section(elf, index);
    if (section.type != SECTION_NOTE || strcmp(section.name, ".note.nv.tkinfo") != 0) continue;
    Bytes note = art_elf_bytes(elf, &section);
    if (art_find(note, 0, "nvJIT API") < note.size || art_find(note, 0, "nvlink") < note.size) return false;
  }
  return true;
}

bool art_cubin_check(const Elf *elf, uint32_t latest, Problem *problem) {
  if (art_cubin_release(elf) > latest) return true;
  bool compiled = is_compiled(elf), registers = false;
  if (!check_flags(elf, problem)) return false;
  for (uint32_t index = 1; index < elf->sections; index++) {
    ElfSection section = art_elf_section(elf, index);
    if (!check_header(&section, problem) || !check_owned(elf, index, &section, problem)) return false;
    if (!strcmp(section.name, MERC ".nv.info")) {
      if (registers) return art_damaged(problem, "more than one section %s", section.name);
      registers = true;
    }
    if (!check_content(elf, &section, compiled, problem)) return false;
  }
  if (elf->relocatable && !art_check_mercury_symbols(elf, problem)) return false; /* linking renames and drops */
  return art_elf_apart(elf, problem);
}
