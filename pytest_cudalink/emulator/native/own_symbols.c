/* The dynamic symbols of the library that this file is linked into, and taking names out of them. */
#define _GNU_SOURCE
#include "own_symbols.h"

#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "config.h"

static const char own_place[1] = {0}; /* an address in this library */

/* The dynamic symbols of this library. */
typedef struct {
  uintptr_t base;
  ElfW(Sym) * symbols;
  const char *names;
  const uint32_t *hash; /* of DT_GNU_HASH */
  const ElfW(Phdr) * segments;
  int segment_count;
} OwnSymbols;

static int find_own(struct dl_phdr_info *object, size_t size, void *context) {
  (void)size;
  OwnSymbols *own = context;
  const ElfW(Dyn) *dynamic = NULL;
  bool here = false;
  for (int at = 0; at < object->dlpi_phnum; at++) {
    const ElfW(Phdr) *segment = &object->dlpi_phdr[at];
    uintptr_t start = object->dlpi_addr + segment->p_vaddr, self = (uintptr_t)own_place;
    if (segment->p_type == PT_LOAD && self >= start && self - start < segment->p_memsz) here = true;
    if (segment->p_type == PT_DYNAMIC) dynamic = (const ElfW(Dyn) *)start;
  }
  if (!here || !dynamic) return here;
  own->base = object->dlpi_addr;
  own->segments = object->dlpi_phdr;
  own->segment_count = object->dlpi_phnum;
  for (; dynamic->d_tag != DT_NULL; dynamic++) {
    uintptr_t value = dynamic->d_un.d_ptr;
    if (value < own->base) value += own->base; /* glibc has relocated it already, others do not */
    if (dynamic->d_tag == DT_SYMTAB) own->symbols = (ElfW(Sym) *)value;
    if (dynamic->d_tag == DT_STRTAB) own->names = (const char *)value;
    if (dynamic->d_tag == DT_GNU_HASH) own->hash = (const uint32_t *)value;
  }
  return 1;
}

/* The dynamic symbol of a name, as the loader looks it up; NULL if the library has none. */
static ElfW(Sym) * symbol_named(const OwnSymbols *own, const char *name) {
  uint32_t buckets = own->hash[0], first = own->hash[1], filter = own->hash[2], hash = 5381;
  const uint32_t *bucket = own->hash + 4 + filter * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
  const uint32_t *chain = bucket + buckets;
  for (const char *at = name; *at; at++) hash = hash * 33 + (uint8_t)*at;
  uint32_t index = buckets ? bucket[hash % buckets] : 0;
  if (index < first) return NULL;
  for (;; index++) {
    uint32_t found = chain[index - first];
    if ((found | 1) == (hash | 1) && !strcmp(own->names + own->symbols[index].st_name, name))
      return &own->symbols[index];
    if (found & 1) return NULL; /* the end of the chain */
  }
}

/* Sets the protection of the page or pages of a symbol; with `write`, what its segment has and writing. */
static bool protect(const OwnSymbols *own, const ElfW(Sym) * symbol, bool write) {
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), start = (uintptr_t)symbol & ~(page - 1);
  int access = PROT_READ;
  for (int at = 0; at < own->segment_count; at++) {
    const ElfW(Phdr) *segment = &own->segments[at];
    uintptr_t from = own->base + segment->p_vaddr;
    if (segment->p_type == PT_LOAD && start + page > from && start < from + segment->p_memsz && segment->p_flags & PF_X)
      access |= PROT_EXEC;
  }
  return !mprotect((void *)start, (uintptr_t)(symbol + 1) - start, access | (write ? PROT_WRITE : 0));
}

/* The pages become this process's own; the file stays as it is. Where a system forbids that, the names stay visible. An
   entry without a value is one that the loader passes over. */
void cl_hide_names(const NewerName *names, size_t count) {
  OwnSymbols own = {0};
  dl_iterate_phdr(find_own, &own);
  if (!own.symbols || !own.names || !own.hash) return;
  for (size_t at = 0; at < count; at++) {
    if (names[at].since <= cl_config()->version) continue;
    ElfW(Sym) *symbol = symbol_named(&own, names[at].name);
    if (!symbol || !protect(&own, symbol, true)) continue;
    symbol->st_value = 0;
    symbol->st_shndx = SHN_UNDEF;
    protect(&own, symbol, false);
  }
}
