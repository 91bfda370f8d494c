/* The objects that are loaded into this process: reading them, and replacing single words in them. */
#include "loaded_object.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined __x86_64__
enum { ADDRESS = R_X86_64_64, DATA_SLOT = R_X86_64_GLOB_DAT, CALL_SLOT = R_X86_64_JUMP_SLOT };
#elif defined __aarch64__
enum { ADDRESS = R_AARCH64_ABS64, DATA_SLOT = R_AARCH64_GLOB_DAT, CALL_SLOT = R_AARCH64_JUMP_SLOT };
#else
enum { ADDRESS = -1, DATA_SLOT = -1, CALL_SLOT = -1 }; /* other machines have no libnvJitLink */
#endif

bool cl_read_object(const struct dl_phdr_info *info, LoadedObject *object) {
  *object = (LoadedObject){.base = info->dlpi_addr, .segments = info->dlpi_phdr, .segment_count = info->dlpi_phnum};
  for (int at = 0; at < object->segment_count; at++)
    if (object->segments[at].p_type == PT_DYNAMIC)
      object->dynamic = (const ElfW(Dyn) *)(object->base + object->segments[at].p_vaddr);
  if (!object->dynamic) return false;
  size_t plt_size = 0, size = 0, relative = 0;
  for (const ElfW(Dyn) *dynamic = object->dynamic; dynamic->d_tag != DT_NULL; dynamic++) {
    uintptr_t value = dynamic->d_un.d_ptr;
    /* glibc has relocated it, except in the vDSO; other loaders do not */
    uintptr_t place = value < object->base ? value + object->base : value;
    if (dynamic->d_tag == DT_SYMTAB) object->symbols = (ElfW(Sym) *)place;
    if (dynamic->d_tag == DT_STRTAB) object->names = (const char *)place;
    if (dynamic->d_tag == DT_SONAME) object->soname = value;
    if (dynamic->d_tag == DT_GNU_HASH) object->hash = (const uint32_t *)place;
    if (dynamic->d_tag == DT_HASH) object->old_hash = (const uint32_t *)place;
    if (dynamic->d_tag == DT_JMPREL) object->tables[0] = (const ElfW(Rela) *)place;
    if (dynamic->d_tag == DT_RELA) object->tables[1] = (const ElfW(Rela) *)place;
    if (dynamic->d_tag == DT_PLTRELSZ) plt_size = value;
    if (dynamic->d_tag == DT_RELASZ) size = value;
    if (dynamic->d_tag == DT_RELACOUNT) relative = value;
  }
  object->counts[0] = plt_size / sizeof(ElfW(Rela));
  object->counts[1] = size / sizeof(ElfW(Rela));
  if (object->tables[1] && relative <= object->counts[1]) {
    object->tables[1] += relative;
    object->counts[1] -= relative;
  }
  return object->symbols && object->names;
}

bool cl_has_address(const LoadedObject *object, uintptr_t address) {
  for (int at = 0; at < object->segment_count; at++) {
    uintptr_t start = object->base + object->segments[at].p_vaddr;
    if (object->segments[at].p_type == PT_LOAD && address >= start && address - start < object->segments[at].p_memsz)
      return true;
  }
  return false;
}

static bool is_defined(const ElfW(Sym) * symbol) { return symbol->st_value && symbol->st_shndx != SHN_UNDEF; }

/* By the table of the System V ABI, whose second number is that of the symbols; objects that have no other are rare. */
static ElfW(Sym) * symbol_of_old_hash(const LoadedObject *object, const char *name) {
  for (uint32_t at = 1; at < object->old_hash[1]; at++) {
    ElfW(Sym) *symbol = &object->symbols[at];
    if (is_defined(symbol) && !strcmp(object->names + symbol->st_name, name)) return symbol;
  }
  return NULL;
}

ElfW(Sym) * cl_defined_symbol(const LoadedObject *object, const char *name) {
  if (!object->hash) return object->old_hash ? symbol_of_old_hash(object, name) : NULL;
  uint32_t buckets = object->hash[0], first = object->hash[1], filter = object->hash[2], hash = 5381;
  const uint32_t *bucket = object->hash + 4 + filter * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
  const uint32_t *chain = bucket + buckets;
  for (const char *at = name; *at; at++) hash = hash * 33 + (uint8_t)*at;
  uint32_t index = buckets ? bucket[hash % buckets] : 0;
  if (index < first || !index) return NULL;
  for (;; index++) {
    uint32_t found = chain[index - first];
    ElfW(Sym) *symbol = &object->symbols[index];
    if ((found | 1) == (hash | 1) && symbol->st_value && !strcmp(object->names + symbol->st_name, name)) return symbol;
    if (found & 1) return NULL; /* the end of the chain */
  }
}

void cl_visit_symbols(const LoadedObject *object, VisitSymbol *visit, void *context) {
  if (!object->hash) {
    for (uint32_t at = 1; object->old_hash && at < object->old_hash[1]; at++) {
      ElfW(Sym) *symbol = &object->symbols[at];
      if (is_defined(symbol)) visit(context, object, object->names + symbol->st_name, symbol);
    }
    return;
  }
  uint32_t buckets = object->hash[0], first = object->hash[1], filter = object->hash[2];
  const uint32_t *bucket = object->hash + 4 + filter * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
  const uint32_t *chain = bucket + buckets;
  for (uint32_t at = 0; at < buckets; at++) {
    if (bucket[at] < first || !bucket[at]) continue;
    for (uint32_t index = bucket[at];; index++) {
      ElfW(Sym) *symbol = &object->symbols[index];
      if (symbol->st_value) visit(context, object, object->names + symbol->st_name, symbol);
      if (chain[index - first] & 1) break; /* the end of the chain */
    }
  }
}

void cl_visit_slots(const LoadedObject *object, VisitSlot *visit, void *context) {
  for (int table = 0; table < 2; table++) {
    const ElfW(Rela) *entries = object->tables[table];
    for (size_t at = 0; entries && at < object->counts[table]; at++) {
      int type = (int)ELF64_R_TYPE(entries[at].r_info);
      if ((type != CALL_SLOT && type != DATA_SLOT && type != ADDRESS) || entries[at].r_addend) continue;
      const ElfW(Sym) *symbol = &object->symbols[ELF64_R_SYM(entries[at].r_info)];
      visit(context, object, object->names + symbol->st_name, (uintptr_t *)(object->base + entries[at].r_offset));
    }
  }
}

/* Whether a page can be written now; -1 if that cannot be found out. */
static int writable_now(uintptr_t page) {
  FILE *maps = fopen("/proc/self/maps", "re");
  if (!maps) return -1;
  char line[512];
  int answer = -1;
  bool begins = true; /* a long path is read in pieces */
  while (answer < 0 && fgets(line, sizeof line, maps)) {
    unsigned long start = 0, end = 0;
    char access[5] = "";
    if (begins && sscanf(line, "%lx-%lx %4s", &start, &end, access) == 3 && page >= start && page < end)
      answer = access[1] == 'w';
    begins = strchr(line, '\n') != NULL;
  }
  fclose(maps);
  return answer;
}

/* The protection that the object's file asks for at an address, after relocation. */
static int final_access(const LoadedObject *object, uintptr_t page, uintptr_t page_size) {
  int access = 0, kept = PROT_READ | PROT_WRITE | PROT_EXEC;
  for (int at = 0; at < object->segment_count; at++) {
    const ElfW(Phdr) *segment = &object->segments[at];
    uintptr_t start = (object->base + segment->p_vaddr) & ~(page_size - 1);
    uintptr_t end = object->base + segment->p_vaddr + segment->p_memsz;
    if (segment->p_type == PT_LOAD && page >= start && page < end)
      access = (segment->p_flags & PF_R ? PROT_READ : 0) | (segment->p_flags & PF_W ? PROT_WRITE : 0) |
               (segment->p_flags & PF_X ? PROT_EXEC : 0);
    if (segment->p_type == PT_GNU_RELRO && page >= start && page < (end & ~(page_size - 1))) kept = ~PROT_WRITE;
  }
  return access & kept;
}

bool cl_replace_word(const LoadedObject *object, uintptr_t *place, uintptr_t value) {
  uintptr_t size = (uintptr_t)sysconf(_SC_PAGESIZE), page = (uintptr_t)place & ~(size - 1);
  int access = final_access(object, page, size);
  if (!access) return false;
  if (access & PROT_WRITE) {
    __atomic_store_n(place, value, __ATOMIC_RELEASE);
    return true;
  }
  /* The loader writes to the page until it makes it read-only. Only then may it be opened, and closed again. */
  if (writable_now(page) != 0) return false;
  // NOLINTNEXTLINE(clang-analyzer-security.MmapWriteExec): an older linker puts the symbols next to the code
  if (mprotect((void *)page, size, access | PROT_WRITE)) return false;
  __atomic_store_n(place, value, __ATOMIC_RELEASE);
  mprotect((void *)page, size, access);
  return true;
}
