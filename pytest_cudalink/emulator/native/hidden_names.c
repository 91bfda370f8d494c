/* Takes names out of the symbol table of the library that this file is linked into. */
#define _GNU_SOURCE
#include "hidden_names.h"

#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

extern const ElfW(Ehdr) __ehdr_start __attribute__((visibility("hidden")));
extern ElfW(Dyn) _DYNAMIC[] __attribute__((visibility("hidden")));

typedef struct {
  ElfW(Sym) * symbols;
  const char *texts;
  size_t count;
} Table;

/* How many symbols the hash table of the loader knows: one more than the last one of the last chain. */
static size_t count_symbols(const uint32_t *hash) {
  uint32_t buckets = hash[0], first = hash[1], filter = hash[2], last = 0;
  const uint32_t *bucket = hash + 4 + filter * (sizeof(ElfW(Addr)) / sizeof *hash), *chain = bucket + buckets;
  for (uint32_t at = 0; at < buckets; at++)
    if (bucket[at] > last) last = bucket[at];
  if (last < first) return first;
  while (!(chain[last - first] & 1)) last++;
  return last + 1;
}

static Table own_symbols(void) {
  Table table = {0};
  uintptr_t base = (uintptr_t)&__ehdr_start;
  for (const ElfW(Dyn) *entry = _DYNAMIC; entry->d_tag != DT_NULL; entry++) {
    uintptr_t value = entry->d_un.d_ptr;
    if (value < base) value += base; /* glibc has relocated it already, other loaders do not */
    if (entry->d_tag == DT_SYMTAB) table.symbols = (ElfW(Sym) *)value;
    if (entry->d_tag == DT_STRTAB) table.texts = (const char *)value;
    if (entry->d_tag == DT_GNU_HASH) table.count = count_symbols((const uint32_t *)value);
  }
  if (!table.symbols || !table.texts) table.count = 0;
  return table;
}

/* Whether code may lie on the pages of the table; some linkers put both into one segment. */
static bool with_code(uintptr_t start, uintptr_t end) {
  uintptr_t base = (uintptr_t)&__ehdr_start;
  const ElfW(Phdr) *segments = (const ElfW(Phdr) *)(base + __ehdr_start.e_phoff);
  for (int at = 0; at < __ehdr_start.e_phnum; at++) {
    uintptr_t from = base + segments[at].p_vaddr, to = from + segments[at].p_memsz;
    if (segments[at].p_type == PT_LOAD && segments[at].p_flags & PF_X && start < to && from < end) return true;
  }
  return false;
}

/* The pages become this process's own; the file stays as it is. */
static bool protect(const Table *table, bool write) {
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), start = (uintptr_t)table->symbols & ~(page - 1);
  uintptr_t end = ((uintptr_t)(table->symbols + table->count) + page - 1) & ~(page - 1);
  int access = PROT_READ | (write ? PROT_WRITE : 0) | (with_code(start, end) ? PROT_EXEC : 0);
  return !mprotect((void *)start, end - start, access);
}

static bool is_hidden(const char *text, const HiddenName *names, size_t count, int version) {
  for (size_t at = 0; at < count; at++) {
    bool exported = version >= names[at].since && (!names[at].until || version < names[at].until);
    if (!exported && !strcmp(names[at].name, text)) return true;
  }
  return false;
}

/* Where a system forbids writing to the pages, the names stay visible. The loader passes over an entry without a value. */
void cl_hide_names(const HiddenName *names, size_t count, int version) {
  Table table = own_symbols();
  if (!table.count || !protect(&table, true)) return;
  for (size_t at = 0; at < table.count; at++) {
    ElfW(Sym) *symbol = &table.symbols[at];
    if (!is_hidden(table.texts + symbol->st_name, names, count, version)) continue;
    symbol->st_value = 0;
    symbol->st_shndx = SHN_UNDEF;
  }
  protect(&table, false);
}
