/* A strict reader for ELF images. */
#include "elf_image.h"

#include <inttypes.h>
#include <stdlib.h>

enum { HEADER = 64, SECTION_HEADER = 64, SEGMENT_HEADER = 56, NOTE_HEADER = 12 };
enum { INDEX_ABSOLUTE = 0xfff1, INDEX_COMMON = 0xfff2, INDEX_ELSEWHERE = 0xffff };
enum { TYPE_RELOCATABLE = 1, SYMBOL_FUNCTION = 2 };

/* CUDA's relocation types stay below 0x100, those of Mercury have 0x10000 added; 0 means none; the host's are small. */
enum { RELOCATION_TYPES = 0x10000, MERC_FIRST_RELOCATION = 0x10001, MERC_RELOCATION_TYPES = 0x10100 };

bool art_elf_has_bytes(uint32_t type) {
  switch (type) {
    case SECTION_NOBITS:
    case SECTION_CUDA_GLOBAL:
    case SECTION_CUDA_LOCAL:
    case SECTION_CUDA_SHARED:
    case SECTION_CUDA_SHARED_RESERVED: return false;
    default: return true;
  }
}

ElfSection art_elf_section(const Elf *elf, uint32_t index) {
  const uint8_t *at = elf->data + elf->section_table + (uint64_t)index * SECTION_HEADER;
  return (ElfSection){
      .name = (const char *)elf->data + elf->names_at + art_u32(at),
      .type = art_u32(at + 4),
      .flags = art_u64(at + 8),
      .address = art_u64(at + 16),
      .offset = art_u64(at + 24),
      .size = art_u64(at + 32),
      .link = art_u32(at + 40),
      .info = art_u32(at + 44),
      .align = art_u64(at + 48),
      .entry_size = art_u64(at + 56),
  };
}

Bytes art_elf_bytes(const Elf *elf, const ElfSection *section) {
  bool has = art_elf_has_bytes(section->type);
  return (Bytes){elf->data + (has ? section->offset : 0), has ? section->size : 0};
}

/* Whether offsets into a section count in its bytes: .nv.capmerc.* is packed, and other sections have none. */
static bool has_plain_offsets(const ElfSection *section) {
  return art_elf_has_bytes(section->type) && strncmp(section->name, CAPMERC, sizeof CAPMERC - 1) != 0;
}

static bool is_symbol_table(uint32_t type) { return type == SECTION_SYMTAB || type == SECTION_MERC_SYMTAB; }
static bool is_relocation_table(uint32_t type) {
  return type == SECTION_RELA || type == SECTION_REL || type == SECTION_MERC_RELA;
}

static ElfSymbols symbols_in(const Elf *elf, const uint8_t *at, uint64_t size, const ElfSection *names) {
  return (ElfSymbols){at, (uint32_t)(size / ENTRY_SYMBOL), (const char *)elf->data + names->offset};
}

ElfSymbols art_elf_symbols(const Elf *elf, uint32_t index) {
  ElfSection table = art_elf_section(elf, index);
  if (!is_symbol_table(table.type)) return (ElfSymbols){elf->data, 0, ""};
  ElfSection names = art_elf_section(elf, table.link);
  return symbols_in(elf, elf->data + table.offset, table.size, &names);
}

ElfSymbols art_elf_symbols_of(const Elf *elf, const ElfSection *section) {
  ElfSymbols symbols = art_elf_symbols(elf, section->link);
  return symbols.count ? symbols : art_elf_symbols(elf, elf->first_table);
}

ElfSymbol art_elf_symbol(const ElfSymbols *symbols, uint32_t index) {
  const uint8_t *at = symbols->at + (uint64_t)index * ENTRY_SYMBOL;
  return (ElfSymbol){symbols->names + art_u32(at), art_u64(at + 8), art_u64(at + 16), art_u16(at + 6), at[4], at[5]};
}

bool art_elf_is_function(const ElfSymbol *symbol) { return (symbol->info & 15) == SYMBOL_FUNCTION; }

ElfRelocation art_elf_relocation(const uint8_t *entry, bool with_addend) {
  int64_t addend = with_addend ? (int64_t)art_u64(entry + 16) : 0;
  return (ElfRelocation){art_u64(entry), art_u32(entry + 8), art_u32(entry + 12), addend};
}

bool art_elf_note(Bytes section, uint64_t *at, uint32_t *type, Bytes *description) {
  Bytes header;
  if (!art_span(section, *at, NOTE_HEADER, &header)) return false;
  uint64_t name = ((uint64_t)art_u32(header.at) + 3) & ~(uint64_t)3, size = art_u32(header.at + 4);
  *type = art_u32(header.at + 8);
  if (!art_span(section, *at + NOTE_HEADER + name, size, description)) return false;
  *at += NOTE_HEADER + name + ((size + 3) & ~(uint64_t)3);
  return true;
}

bool art_elf_table(const Elf *elf, const ElfSection *section, uint64_t entry, Bytes *table, Problem *problem) {
  uint64_t align = section->align < 8 ? section->align : 8;
  if (align && section->offset % align)
    return art_damaged(problem, "%.80s starts at byte %" PRIu64 ", not aligned to %" PRIu64, section->name,
                       section->offset, section->align);
  if (section->entry_size != entry || section->size % entry)
    return art_damaged(problem, "%.80s: %" PRIu64 " bytes in entries of %" PRIu64 ", expected %" PRIu64, section->name,
                       section->size, section->entry_size, entry);
  *table = art_elf_bytes(elf, section); /* which `section_ok` found inside the image */
  return true;
}

/* -- opening: the header, sections, segments -- */

static bool string_table_ok(Bytes image, uint64_t offset, uint64_t size, const char *what, Problem *problem) {
  Bytes table;
  if (!art_span(image, offset, size, &table)) return art_outside(problem, image, offset, size, "%s", what);
  if (!size || table.at[size - 1]) return art_damaged(problem, "%s: the string table does not end with NUL", what);
  return true;
}

static bool name_ok(uint32_t at, uint64_t size, const char *what, uint32_t index, Problem *problem) {
  if (at < size) return true;
  return art_damaged(problem, "name of %s %u starts at byte %u of a string table of %" PRIu64, what, index, at, size);
}

static bool section_ok(const Elf *elf, uint32_t index, const ElfSection *section, Problem *problem) {
  Bytes image = {elf->data, elf->size}, span;
  if (index == 0) {
    if (!section->type && !section->flags) return true;
    return art_damaged(problem, "section 0 has type %u and flags 0x%" PRIx64 ", expected none", section->type,
                       section->flags);
  }
  if (art_elf_has_bytes(section->type) && !art_span(image, section->offset, section->size, &span))
    return art_outside(problem, image, section->offset, section->size, "section %u (%.80s)", index, section->name);
  if (section->align & (section->align - 1))
    return art_damaged(problem, "section %u (%.80s) has alignment %" PRIu64 ", not a power of two", index,
                       section->name, section->align);
  if (section->link >= elf->sections)
    return art_damaged(problem, "section %u (%.80s) refers to section %u of %u", index, section->name, section->link,
                       elf->sections);
  return true;
}

static bool read_sections(Elf *elf, Problem *problem) {
  Bytes image = {elf->data, elf->size}, table;
  uint64_t count = art_u16(elf->data + 60);
  uint32_t names = art_u16(elf->data + 62);
  if (!elf->section_table) {
    if (!count) return art_damaged(problem, "ELF image has no sections");
    return art_damaged(problem, "%" PRIu64 " sections are announced, but their table has no place in the file", count);
  }
  if (art_u16(elf->data + 58) != SECTION_HEADER)
    return art_damaged(problem, "section headers of %u bytes, expected %d", art_u16(elf->data + 58), SECTION_HEADER);
  if (!art_span(image, elf->section_table, SECTION_HEADER, &table))
    return art_outside(problem, image, elf->section_table, SECTION_HEADER, "section table");
  /* counts that do not fit in 16 bits live in the first section header */
  if (!count) count = art_u64(table.at + 32);
  if (names == INDEX_ELSEWHERE) names = art_u32(table.at + 40);
  if (count > elf->size / SECTION_HEADER || !art_span(image, elf->section_table, count * SECTION_HEADER, &table)) {
    uint64_t size = count > UINT64_MAX / SECTION_HEADER ? UINT64_MAX : count * SECTION_HEADER;
    return art_outside(problem, image, elf->section_table, size, "section table");
  }
  elf->sections = (uint32_t)count;
  const uint8_t *at = table.at + (uint64_t)names * SECTION_HEADER;
  if (names >= count || art_u32(at + 4) != SECTION_STRTAB)
    return art_damaged(problem, "section names should be in section %u, which is not a string table", names);
  elf->names_at = art_u64(at + 24);
  uint64_t names_size = art_u64(at + 32), used = 0;
  if (!string_table_ok(image, elf->names_at, names_size, "section names", problem)) return false;
  for (uint32_t index = 0; index < elf->sections; index++) {
    if (!name_ok(art_u32(table.at + (uint64_t)index * SECTION_HEADER), names_size, "section", index, problem))
      return false;
    ElfSection section = art_elf_section(elf, index);
    if (!section_ok(elf, index, &section, problem)) return false;
    /* sections that share their names could make every comparison of names cost as much as the whole image */
    used += strnlen(section.name, elf->size);
    if (used > elf->size) return art_damaged(problem, "the names of the sections together are longer than the image");
  }
  return true;
}

static bool segments_ok(const Elf *elf, Problem *problem) {
  Bytes image = {elf->data, elf->size}, table, span;
  uint64_t offset = art_u64(elf->data + 32);
  uint32_t size = art_u16(elf->data + 54), count = art_u16(elf->data + 56);
  if (!count) return true;
  if (size != SEGMENT_HEADER)
    return art_damaged(problem, "program headers of %u bytes, expected %d", size, SEGMENT_HEADER);
  if (!art_span(image, offset, (uint64_t)count * SEGMENT_HEADER, &table))
    return art_outside(problem, image, offset, (uint64_t)count * SEGMENT_HEADER, "program header table");
  for (uint32_t index = 0; index < count; index++) {
    const uint8_t *at = table.at + (size_t)index * SEGMENT_HEADER;
    uint64_t align = art_u64(at + 48);
    if (!art_span(image, art_u64(at + 8), art_u64(at + 32), &span))
      return art_outside(problem, image, art_u64(at + 8), art_u64(at + 32), "segment %u", index);
    if (align & (align - 1))
      return art_damaged(problem, "segment %u has alignment %" PRIu64 ", not a power of two", index, align);
  }
  return true;
}

/* -- opening: what lies where -- */

/* Every section is walked through: those that lie upon each other must not cost more than the image. Mercury's may lie
 * upon the plain ones. */
static bool sizes_ok(const Elf *elf, Problem *problem) {
  uint64_t total = 0;
  for (uint32_t index = 1; index < elf->sections; index++) {
    ElfSection section = art_elf_section(elf, index);
    total += art_elf_has_bytes(section.type) ? section.size : 0;
    if (total > 2 * elf->size) return art_damaged(problem, "the sections together are longer than the image");
  }
  return true;
}

typedef struct {
  uint64_t start, end;
  uint32_t section;
} Place;

/* Places of the image that are no section, by numbers that no section has. */
enum { PLACE_HEADER = UINT32_MAX, PLACE_SECTIONS = UINT32_MAX - 1, PLACE_SEGMENTS = UINT32_MAX - 2, OTHER_PLACES = 3 };
enum { FEW_PLACES = 100 };

static int compare_places(const void *first, const void *second) {
  const Place *one = first, *other = second;
  return (one->start > other->start) - (one->start < other->start);
}

static const char *place_name(const Elf *elf, uint32_t section) {
  switch (section) {
    case PLACE_HEADER: return "the ELF header";
    case PLACE_SECTIONS: return "the section table";
    case PLACE_SEGMENTS: return "the program headers";
    default: return art_elf_section(elf, section).name;
  }
}

static bool is_mercury(const Elf *elf, uint32_t section) {
  return section < elf->sections && !strncmp(art_elf_section(elf, section).name, MERC, sizeof MERC - 1);
}

/* A section of Mercury that says what a plain one says lies at the same place in the output of ptxas 12.8 and later. */
static bool share(const Elf *elf, const Place *one, const Place *other) {
  return one->start == other->start && one->end == other->end &&
         is_mercury(elf, one->section) != is_mercury(elf, other->section);
}

bool art_elf_apart(const Elf *elf, Problem *problem) {
  uint32_t count = 0;
  Place few[FEW_PLACES], *many = NULL; /* most images have few, and memory costs time */
  if (elf->sections + (uint64_t)OTHER_PLACES > FEW_PLACES) {
    many = malloc(((size_t)elf->sections + OTHER_PLACES) * sizeof *many);
    if (!many) return art_no_memory(problem);
  }
  Place *places = many ? many : few;
  places[count++] = (Place){0, HEADER, PLACE_HEADER};
  uint64_t table = (uint64_t)elf->sections * SECTION_HEADER;
  places[count++] = (Place){elf->section_table, elf->section_table + table, PLACE_SECTIONS};
  uint64_t segments = art_u64(elf->data + 32), segment_count = art_u16(elf->data + 56);
  if (segment_count) places[count++] = (Place){segments, segments + segment_count * SEGMENT_HEADER, PLACE_SEGMENTS};
  for (uint32_t index = 1; index < elf->sections; index++) {
    ElfSection section = art_elf_section(elf, index);
    if (section.size && art_elf_has_bytes(section.type))
      places[count++] = (Place){section.offset, section.offset + section.size, index};
  }
  qsort(places, count, sizeof *places, compare_places);
  bool apart = true;
  for (uint32_t at = 1, shared = 0; apart && at < count; at++) {
    if (places[at].start >= places[at - 1].end) continue;
    if (shared != at - 1 && share(elf, &places[at - 1], &places[at])) shared = at;
    else
      apart = art_damaged(problem, "%.80s and %.80s overlap at byte %" PRIu64, place_name(elf, places[at - 1].section),
                          place_name(elf, places[at].section), places[at].start);
  }
  free(many);
  return apart;
}

/* -- opening: symbols, relocations, notes -- */

static bool symbols_ok(const Elf *elf, const ElfSection *table, Problem *problem) {
  ElfSection names = art_elf_section(elf, table->link);
  Bytes image = {elf->data, elf->size}, entries = {0};
  if (names.type != SECTION_STRTAB)
    return art_damaged(problem, "%.80s takes its names from %.80s, which is not a string table", table->name,
                       names.name);
  if (!string_table_ok(image, names.offset, names.size, "symbol names", problem) ||
      !art_elf_table(elf, table, ENTRY_SYMBOL, &entries, problem))
    return false;
  ElfSymbols symbols = symbols_in(elf, entries.at, entries.size, &names);
  for (uint32_t index = 0; index < symbols.count; index++) {
    if (!name_ok(art_u32(entries.at + (uint64_t)index * ENTRY_SYMBOL), names.size, "symbol", index, problem))
      return false;
    ElfSymbol symbol = art_elf_symbol(&symbols, index);
    if (symbol.section == INDEX_ABSOLUTE || symbol.section == INDEX_COMMON || symbol.section == INDEX_ELSEWHERE)
      continue;
    if (symbol.section >= elf->sections)
      return art_damaged(problem, "symbol %u (%.80s) lies in section %u of %u", index, symbol.name, symbol.section,
                         elf->sections);
    ElfSection home = art_elf_section(elf, symbol.section);
    if (symbol.section && elf->relocatable && has_plain_offsets(&home) &&
        (symbol.value > home.size || symbol.size > home.size - symbol.value))
      return art_damaged(problem, "symbol %u (%.80s) ends at byte %" PRIu64 " of %.60s, which has %" PRIu64, index,
                         symbol.name, art_end(symbol.value, symbol.size), home.name, home.size);
  }
  if (table->info > symbols.count)
    return art_damaged(problem, "%.80s: first global symbol %u of %u", table->name, table->info, symbols.count);
  return true;
}

static bool relocations_ok(const Elf *elf, const ElfSection *section, Problem *problem) {
  if (section->info >= elf->sections)
    return art_damaged(problem, "%.80s relocates section %u of %u", section->name, section->info, elf->sections);
  ElfSection target = art_elf_section(elf, section->info);
  ElfSymbols symbols = art_elf_symbols_of(elf, section);
  uint32_t count = symbols.count ? symbols.count : 1; /* index 0 means "no symbol", also where there is no table */
  bool with_addend = section->type != SECTION_REL, mercury = section->type == SECTION_MERC_RELA;
  uint64_t size = with_addend ? ENTRY_RELA : ENTRY_REL;
  bool plain = has_plain_offsets(&target);
  Bytes entries = {0};
  if (!art_elf_table(elf, section, size, &entries, problem)) return false;
  for (uint64_t index = 0; index < entries.size / size; index++) {
    ElfRelocation entry = art_elf_relocation(entries.at + index * size, with_addend);
    if (entry.offset >= target.size && plain)
      return art_damaged(problem, "%.80s: entry %" PRIu64 " changes byte %" PRIu64 " of %.80s, which has %" PRIu64,
                         section->name, index, entry.offset, target.name, target.size);
    if (entry.symbol >= count)
      return art_damaged(problem, "%.80s: entry %" PRIu64 " refers to symbol %u of %u", section->name, index,
                         entry.symbol, count);
    bool known = mercury ? entry.type >= MERC_FIRST_RELOCATION && entry.type < MERC_RELOCATION_TYPES
                         : entry.type < RELOCATION_TYPES;
    if (!known)
      return art_damaged(problem, "%.80s: entry %" PRIu64 " has relocation type 0x%x", section->name, index,
                         entry.type);
  }
  return true;
}

static bool notes_ok(const Elf *elf, const ElfSection *section, Problem *problem) {
  Bytes bytes = art_elf_bytes(elf, section), description;
  uint32_t type;
  uint64_t at = 0;
  while (at < bytes.size)
    if (!art_elf_note(bytes, &at, &type, &description))
      return art_damaged(problem, "note in %.80s ends outside of its section of %" PRIu64 " bytes", section->name,
                         bytes.size);
  return true;
}

static bool tables_ok(Elf *elf, Problem *problem) {
  uint32_t tables = 0;
  for (uint32_t index = 1; index < elf->sections; index++) {
    ElfSection section = art_elf_section(elf, index);
    if (!is_symbol_table(section.type)) continue;
    if (!symbols_ok(elf, &section, problem)) return false;
    if (!elf->first_table) elf->first_table = index;
    if (section.type != SECTION_SYMTAB) continue;
    if (!elf->symbols) elf->symbols = index;
    tables++;
  }
  if (tables > 1) return art_damaged(problem, "more than one symbol table");
  for (uint32_t index = 1; index < elf->sections; index++) {
    ElfSection section = art_elf_section(elf, index);
    if (is_relocation_table(section.type) && !relocations_ok(elf, &section, problem)) return false;
    if (section.type == SECTION_NOTE && !notes_ok(elf, &section, problem)) return false;
  }
  return true;
}

bool art_elf_open(Elf *elf, Bytes image, Problem *problem) {
  *elf = (Elf){.data = image.at, .size = image.size};
  if (image.size < HEADER) return art_outside(problem, image, 0, HEADER, "ELF header");
  if (!art_begins(image, "\177ELF\x02\x01") || art_u16(image.at + 52) != HEADER)
    return art_damaged(problem, "ELF header is not 64-bit little-endian of %d bytes", HEADER);
  elf->abi_version = image.at[8];
  elf->type = art_u16(image.at + 16);
  elf->relocatable = elf->type == TYPE_RELOCATABLE;
  elf->machine = art_u16(image.at + 18);
  elf->version = art_u32(image.at + 20);
  elf->section_table = art_u64(image.at + 40);
  elf->flags = art_u32(image.at + 48);
  return read_sections(elf, problem) && segments_ok(elf, problem) && sizes_ok(elf, problem) && tables_ok(elf, problem);
}
