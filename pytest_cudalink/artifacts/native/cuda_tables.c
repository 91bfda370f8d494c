/* The tables of a cubin that only CUDA defines, and debug information. */
#include "cuda_tables.h"

#include <inttypes.h>

#include "attributes.h"

enum { ENTRY_PAIR = 8 };

bool art_named(const char *name, const char *prefix) { return !strncmp(name, prefix, strlen(prefix)); }

const char *art_without(const char *name, const char *prefix) {
  return art_named(name, prefix) ? name + strlen(prefix) : name;
}

bool art_is_debug(const char *name) {
  const char *plain = art_without(name, MERC);
  return art_named(plain, ".debug_") || art_named(plain, ".nv_debug_");
}

bool art_refer(const ElfSection *section, const ElfSymbols *symbols, uint32_t index, bool function, ElfSymbol *symbol,
               Problem *problem) {
  *symbol = (ElfSymbol){.name = ""};
  if (index >= symbols->count)
    return art_damaged(problem, "%.80s refers to symbol %u of %u", section->name, index, symbols->count);
  *symbol = art_elf_symbol(symbols, index);
  if (function && !art_elf_is_function(symbol))
    return art_damaged(problem, "%.80s refers to symbol %u (%.80s), which is not a function", section->name, index,
                       symbol->name);
  return true;
}

/* What the payload of an attribute starts with. */
typedef enum { STARTS_ANYHOW, STARTS_FUNCTION, STARTS_SYMBOL, STARTS_ZERO, ALL_SYMBOLS } Start;

static const uint8_t starts[256] = {
    [0x0a] = STARTS_SYMBOL,           /* PARAM_CBANK */
    [0x0f] = ALL_SYMBOLS,             /* EXTERNS */
    [0x11] = STARTS_FUNCTION,         /* FRAME_SIZE */
    [0x12] = STARTS_FUNCTION,         /* MIN_STACK_SIZE */
    [0x17] = STARTS_ZERO,             /* KPARAM_INFO: until linked for debugging */
    [INFO_MAX_STACK] = STARTS_SYMBOL, /* MAX_STACK_SIZE: of a function, until linkers drop that */
    [INFO_REGCOUNT] = STARTS_FUNCTION,
};

static bool check_attribute(const Elf *elf, const ElfSection *section, const ElfSymbols *symbols,
                            const Attribute *attribute, Problem *problem) {
  Start start = starts[attribute->attribute];
  uint32_t first = art_attribute_number(attribute->payload, 0);
  bool whole = start == ALL_SYMBOLS && attribute->payload.size % 4 == 0;
  ElfSymbol symbol;
  if (start == STARTS_ZERO && first && elf->relocatable)
    return art_damaged(problem, "attribute 0x%x in %.80s starts with 0x%x, expected 0", attribute->attribute,
                       section->name, first);
  if (start == STARTS_SYMBOL || start == STARTS_FUNCTION)
    return art_refer(section, symbols, first, start == STARTS_FUNCTION, &symbol, problem);
  for (uint64_t at = 0; whole && at < attribute->payload.size; at += 4)
    if (!art_refer(section, symbols, art_attribute_number(attribute->payload, at), false, &symbol, problem))
      return false;
  return true;
}

bool art_check_info(const Elf *elf, const ElfSection *section, Problem *problem) {
  ElfSymbols symbols = art_elf_symbols_of(elf, section);
  Bytes bytes = art_elf_bytes(elf, section);
  Attribute attribute;
  for (uint64_t at = 0; at < bytes.size;)
    if (!art_next_attribute(section, bytes, &at, &attribute, problem) ||
        (attribute.has_payload && !check_attribute(elf, section, &symbols, &attribute, problem)))
      return false;
  return true;
}

bool art_check_stack_sizes(const Elf *elf, const ElfSection *section, Problem *problem) {
  ElfSymbols symbols = art_elf_symbols_of(elf, section);
  Bytes bytes = art_elf_bytes(elf, section);
  Attribute attribute;
  ElfSymbol symbol;
  for (uint64_t at = 0; at < bytes.size;) {
    if (!art_next_attribute(section, bytes, &at, &attribute, problem)) return false;
    if (attribute.has_payload && attribute.attribute == INFO_MAX_STACK &&
        !art_refer(section, &symbols, art_attribute_number(attribute.payload, 0), true, &symbol, problem))
      return false;
  }
  return true;
}

/* The section with the names of the symbols that a table refers to. */
static bool names_of(const Elf *elf, const ElfSection *section, ElfSection *names, Problem *problem) {
  ElfSection table = art_elf_section(elf, section->link);
  if (table.link >= elf->sections)
    return art_damaged(problem, "section %u refers to section %u of %u", section->link, table.link, elf->sections);
  *names = art_elf_section(elf, table.link);
  return true;
}

static bool check_name(const ElfSection *section, const ElfSection *names, uint32_t at, Problem *problem) {
  if (at < names->size) return true;
  return art_damaged(problem, "%.80s refers to byte %u of %.80s, which has %" PRIu64, section->name, at, names->name,
                     names->size);
}

/* Pairs in four groups, each opened by (0, -GROUP), as NVRTC 12.0 to 13.5 write them.
 *
 * 1: caller and callee. 2: a function whose address is taken and its prototype, as an offset into the symbol names.
 * 3: an indirect caller and the prototype that it calls. 4: an indirect caller and a function that it may reach. */
bool art_check_callgraph(const Elf *elf, const ElfSection *section, Problem *problem) {
  ElfSymbols symbols = art_elf_symbols_of(elf, section);
  ElfSection names = {0};
  ElfSymbol symbol;
  Bytes entries;
  uint32_t group = 1;
  if (!names_of(elf, section, &names, problem) || !art_elf_table(elf, section, ENTRY_PAIR, &entries, problem))
    return false;
  for (uint64_t at = 0; at < entries.size; at += ENTRY_PAIR) {
    uint32_t first = art_u32(entries.at + at), second = art_u32(entries.at + at + 4);
    if (second >= 0xfffffffc && first == 0) {
      group = 0 - second;
      continue;
    }
    if (!art_refer(section, &symbols, first, true, &symbol, problem)) return false;
    bool function = group == 1 || group == 4;
    if (function ? !art_refer(section, &symbols, second, true, &symbol, problem)
                 : !check_name(section, &names, second, problem))
      return false;
  }
  return true;
}

bool art_check_prototypes(const Elf *elf, const ElfSection *section, Problem *problem) {
  ElfSymbols symbols = art_elf_symbols_of(elf, section);
  ElfSection names = {0};
  ElfSymbol symbol;
  Bytes entries;
  if (!names_of(elf, section, &names, problem) || !art_elf_table(elf, section, ENTRY_PAIR, &entries, problem))
    return false;
  for (uint64_t at = 0; at < entries.size; at += ENTRY_PAIR)
    if (!art_refer(section, &symbols, art_u32(entries.at + at), true, &symbol, problem) ||
        !check_name(section, &names, art_u32(entries.at + at + 4), problem))
      return false;
  return true;
}

/* The types of relocations that debug information of CUDA 12.0 to 13.5 has; nvJitLink knows no others there. Those of
 * .debug_frame are listed apart: on the others nvJitLink dies there, too. */
enum { MOST_TYPES = 8 };
static const uint32_t debug_types[2][2][MOST_TYPES] = {
    /* whether it is Mercury's, whether it is for .debug_frame */
    {{0x01, 0x02, 0x03, 0x04, 0x49}, {0x02, 0x49}},
    {{0x10001, 0x10002, 0x10003, 0x10004, 0x10008, 0x1000e, 0x1003d}, {0x10002, 0x1000e, 0x1003d}},
};

static bool is_debug_relocation(uint32_t type, bool mercury, bool frame) {
  for (size_t at = 0; at < MOST_TYPES; at++)
    if (type && debug_types[mercury][frame][at] == type) return true;
  return false;
}

/* References to places inside of sections can be wrong in sound files: ptxas drops entries of a .debug_frame with many
 * functions, and leaves references beyond its end. What linkers drop, they refer to all the same. */
static bool check_debug_target(const ElfSection *section, const ElfSymbols *symbols, uint64_t index,
                               const ElfRelocation *entry, Problem *problem) {
  ElfSymbol symbol;
  if (!art_refer(section, symbols, entry->symbol, false, &symbol, problem)) return false;
  if (entry->symbol == 0)
    return art_damaged(problem, "%.80s: entry %" PRIu64 " refers to no symbol", section->name, index);
  if (art_elf_is_function(&symbol) && (entry->addend < 0 || (uint64_t)entry->addend > symbol.size))
    return art_damaged(problem, "%.80s: entry %" PRIu64 " refers to byte %" PRId64 " of %.80s, which has %" PRIu64,
                       section->name, index, entry->addend, symbol.name, symbol.size);
  return true;
}

bool art_check_debug_relocations(const Elf *elf, const ElfSection *section, bool compiled, Problem *problem) {
  ElfSymbols symbols = art_elf_symbols_of(elf, section);
  bool with_addend = section->type != SECTION_REL, mercury = section->type == SECTION_MERC_RELA;
  bool frame = !strcmp(art_without(art_elf_section(elf, section->info).name, MERC), ".debug_frame");
  uint64_t size = with_addend ? ENTRY_RELA : ENTRY_REL;
  Bytes entries;
  if (!art_elf_table(elf, section, size, &entries, problem)) return false;
  for (uint64_t index = 0; index < entries.size / size; index++) {
    ElfRelocation entry = art_elf_relocation(entries.at + index * size, with_addend);
    if (!is_debug_relocation(entry.type, mercury, frame))
      return art_damaged(problem, "%.80s: entry %" PRIu64 " has relocation type 0x%x", section->name, index,
                         entry.type);
    if (compiled && with_addend && !check_debug_target(section, &symbols, index, &entry, problem)) return false;
  }
  return true;
}

enum { LENGTH = 4, LONG_LENGTH = 8, LENGTH_IS_LONG = UINT32_MAX };

/* The entries of DWARF 3, section 7.4: a 32-bit length, or -1 and a 64-bit one. The first entry is common information,
 * whose identifier is -1; each other one is such an entry, or refers to one. */
bool art_check_debug_frame(const Elf *elf, const ElfSection *section, Problem *problem) {
  Bytes bytes = art_elf_bytes(elf, section), head, entry;
  for (uint64_t at = 0; at < bytes.size;) {
    uint64_t start = at, word = LENGTH;
    if (!art_span(bytes, at, LENGTH, &head))
      return art_outside(problem, bytes, at, LENGTH, "length in %.80s", section->name);
    uint64_t length = art_u32(head.at);
    at += LENGTH;
    if (length == LENGTH_IS_LONG) {
      word = LONG_LENGTH;
      if (!art_span(bytes, at, LONG_LENGTH, &head))
        return art_outside(problem, bytes, at, LONG_LENGTH, "length in %.80s", section->name);
      length = art_u64(head.at);
      at += LONG_LENGTH;
    }
    if (!art_span(bytes, at, length, &entry))
      return art_outside(problem, bytes, at, length, "entry of %.80s", section->name);
    if (entry.size < word) return art_outside(problem, entry, 0, word, "entry of %.80s", section->name);
    uint64_t identifier = word == LENGTH ? art_u32(entry.at) : art_u64(entry.at);
    uint64_t common = word == LENGTH ? UINT32_MAX : UINT64_MAX;
    if (identifier != common && (start == 0 || identifier >= bytes.size))
      return art_damaged(problem, "%.80s refers to common information at byte 0x%" PRIx64 " of %" PRIu64, section->name,
                         identifier, bytes.size);
    at += length;
  }
  return true;
}
