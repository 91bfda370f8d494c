/* The dynamic symbols of the library that this file is linked into, and taking names out of them. */
#include "own_symbols.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "config.h"
#include "loaded_object.h"

static const char own_place[1] = {0}; /* an address in this library */

static int find_own(struct dl_phdr_info *info, size_t size, void *context) {
  (void)size;
  LoadedObject object;
  if (!cl_read_object(info, &object) || !cl_has_address(&object, (uintptr_t)own_place)) return 0;
  *(LoadedObject *)context = object;
  return 1;
}

/* Sets the protection of the pages of the symbols from `first` to `last`: that of their segment, and writing. */
static bool protect(const LoadedObject *own, const ElfW(Sym) * first, const ElfW(Sym) * last, bool write) {
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), start = (uintptr_t)first & ~(page - 1),
            end = (uintptr_t)(last + 1);
  int access = PROT_READ;
  for (int at = 0; at < own->segment_count; at++) {
    const ElfW(Phdr) *segment = &own->segments[at];
    uintptr_t from = own->base + segment->p_vaddr;
    if (segment->p_type == PT_LOAD && start >= (from & ~(page - 1)) && start < from + segment->p_memsz &&
        segment->p_flags & PF_X)
      access |= PROT_EXEC;
  }
  /* an older linker puts the symbols into the segment of the code, which must stay executable meanwhile */
  // NOLINTNEXTLINE(clang-analyzer-security.MmapWriteExec)
  return !mprotect((void *)start, end - start, access | (write ? PROT_WRITE : 0));
}

/* The pages become this process's own; the file stays as it is. Where a system forbids that, the names stay visible. An
   entry without a value is one that the loader passes over. */
void cl_hide_names(const NewerName *names, size_t count) {
  LoadedObject own = {0};
  dl_iterate_phdr(find_own, &own);
  if (!own.hash) return;
  const ElfW(Sym) *first = NULL, *last = NULL;
  for (size_t at = 0; at < count; at++) {
    const ElfW(Sym) *symbol = names[at].since > cl_config()->version ? cl_defined_symbol(&own, names[at].name) : NULL;
    if (symbol && (!first || symbol < first)) first = symbol;
    if (symbol && (!last || symbol > last)) last = symbol;
  }
  if (!first || !protect(&own, first, last, true)) return;
  for (size_t at = 0; at < count; at++) {
    ElfW(Sym) *symbol = names[at].since > cl_config()->version ? cl_defined_symbol(&own, names[at].name) : NULL;
    if (!symbol) continue;
    symbol->st_value = 0;
    symbol->st_shndx = SHN_UNDEF;
  }
  protect(&own, first, last, false);
}
