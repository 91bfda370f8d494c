/* Mercury's code and symbols. */
#include "mercury.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "attributes.h"
#include "cuda_tables.h"

/* The first word of .nv.capmerc.text.* is the section of the plain code. The top two bits of the second word say where
 * a count follows: in CUDA 12.8 it is the other bits, in CUDA 12.9 and later the third word, and the lowest byte is 1;
 * some kernels of CUB have 1 or 2 in the next byte. What it counts is not known: kernels of CUTLASS have up to 1.7 for
 * each 16 bytes of the plain code, and nvdisasm reads them. nvJitLink 12.9 to 13.5 dies where there are far more than
 * bytes (measured with 1 << 24), so that no count is refused below that. Of linked code, which no linker reads, nothing
 * is known: that of cuBLAS has form 0. */
enum { FORM_SHIFT = 30, COUNT_INSIDE = 1, COUNT_BEHIND = 3, COUNTS = 1 };
enum { LOWEST = 0xff, MOST_COUNTS = 0xffff };
enum { MOST_REGISTERS = 255 };

bool art_check_mercury_code(const Elf *elf, const ElfSection *section, Problem *problem) {
  Bytes bytes = art_elf_bytes(elf, section), head;
  if (!art_span(bytes, 0, 8, &head)) return art_outside(problem, bytes, 0, 8, "%.80s", section->name);
  uint32_t plain = art_u32(head.at), word = art_u32(head.at + 4), form = word >> FORM_SHIFT;
  ElfSection code = art_elf_section(elf, plain < elf->sections ? plain : 0);
  if (plain >= elf->sections || strcmp(code.name, art_without(section->name, CAPMERC)) != 0)
    return art_damaged(problem, "%.80s refers to section %u as its plain code, which has another name", section->name,
                       plain);
  if (!elf->relocatable) return true;
  uint64_t count = word & ((UINT32_C(1) << FORM_SHIFT) - 1);
  if (form == COUNT_BEHIND && ((count & LOWEST) != COUNTS || count > MOST_COUNTS))
    return art_damaged(problem, "%.80s announces %" PRIu64 " counts, expected %d", section->name, count, COUNTS);
  if (form == COUNT_BEHIND) {
    if (!art_span(bytes, 8, 4, &head)) return art_outside(problem, bytes, 8, 4, "%.80s", section->name);
    count = art_u32(head.at);
  } else if (form != COUNT_INSIDE)
    return art_damaged(problem, "%.80s has form %u, expected %d or %d", section->name, form, COUNT_INSIDE,
                       COUNT_BEHIND);
  if (count > code.size)
    return art_damaged(problem, "%.80s has count %" PRIu64 ", %.80s has %" PRIu64 " bytes", section->name, count,
                       code.name, code.size);
  return true;
}

/* Whether a symbol of Mercury is the function of its section, which may have others, such as `$kernel$callee`. */
static bool is_owner(const Elf *elf, uint32_t index, const ElfSymbol *symbol) {
  if (!symbol->section || symbol->section >= elf->sections) return false;
  ElfSection home = art_elf_section(elf, symbol->section);
  return home.type == SECTION_CAPMERC && home.info == index;
}

static bool check_table(const Elf *elf, uint32_t table, const ElfSection *section, Problem *problem) {
  ElfSymbols mercury = art_elf_symbols(elf, table), plain = art_elf_symbols(elf, elf->symbols);
  if (mercury.count > plain.count)
    return art_damaged(problem, "%.80s has %u symbols, .symtab has %u", section->name, mercury.count, plain.count);
  for (uint32_t index = 0; index < mercury.count; index++) {
    ElfSymbol one = art_elf_symbol(&mercury, index), other = art_elf_symbol(&plain, index);
    bool alike = one.info == other.info && one.other == other.other && !one.section == !other.section;
    if (!alike || (is_owner(elf, index, &one) && one.value != other.value))
      return art_damaged(problem, "symbol %u (%.80s) of %.80s is not that of .symtab", index, one.name, section->name);
  }
  return true;
}

bool art_check_mercury_symbols(const Elf *elf, Problem *problem) {
  for (uint32_t index = 1; index < elf->sections; index++) {
    ElfSection section = art_elf_section(elf, index);
    if (section.type == SECTION_MERC_SYMTAB && !check_table(elf, index, &section, problem)) return false;
  }
  return true;
}

bool art_check_mercury_offsets(const Elf *elf, const ElfSection *section, Problem *problem) {
  ElfSection target = art_elf_section(elf, section->info);
  ElfSymbols symbols = art_elf_symbols_of(elf, section);
  ElfSymbol function;
  Bytes entries;
  if (!art_refer(section, &symbols, target.info, false, &function, problem) ||
      !art_elf_table(elf, section, ENTRY_RELA, &entries, problem))
    return false;
  for (uint64_t index = 0; index < entries.size / ENTRY_RELA; index++) {
    ElfRelocation entry = art_elf_relocation(entries.at + index * ENTRY_RELA, true);
    if (entry.offset >= function.size)
      return art_damaged(problem, "%.80s: entry %" PRIu64 " changes byte %" PRIu64 " of %.80s, which has %" PRIu64,
                         section->name, index, entry.offset, function.name, function.size);
  }
  return true;
}

enum { UNCOUNTED = UINT32_MAX }; /* a function without a register count */

static bool compare_registers(const Elf *elf, const ElfSection *section, const ElfSymbols *symbols,
                              const uint32_t *registers, Problem *problem) {
  for (uint32_t index = 0; index < symbols->count; index++) {
    ElfSymbol symbol = art_elf_symbol(symbols, index);
    uint32_t count = registers[index];
    if (!is_owner(elf, index, &symbol) || (count >= 1 && count <= MOST_REGISTERS)) continue;
    char found[32] = "no register count";
    if (count != UNCOUNTED) snprintf(found, sizeof found, "%u registers", count);
    return art_damaged(problem, "%.80s has %s for %.80s, expected 1 to %d", section->name, found, symbol.name,
                       MOST_REGISTERS);
  }
  return true;
}

bool art_check_mercury_registers(const Elf *elf, const ElfSection *section, Problem *problem) {
  ElfSymbols symbols = art_elf_symbols_of(elf, section);
  Bytes bytes = art_elf_bytes(elf, section);
  uint32_t *registers = malloc((symbols.count + (size_t)1) * sizeof *registers);
  if (!registers) return art_no_memory(problem);
  memset(registers, UINT8_MAX, symbols.count * sizeof *registers);
  bool sound = true;
  Attribute attribute;
  for (uint64_t at = 0; sound && at < bytes.size;) {
    sound = art_next_attribute(section, bytes, &at, &attribute, problem);
    uint32_t first = art_attribute_number(attribute.payload, 0);
    if (sound && attribute.has_payload && attribute.attribute == INFO_REGCOUNT && first < symbols.count)
      registers[first] = art_attribute_number(attribute.payload, 4);
  }
  sound = sound && compare_registers(elf, section, &symbols, registers, problem);
  free(registers);
  return sound;
}
