/* The objects that are loaded into this process: their dynamic symbols, and the slots through which they call others.
   The stubs have a shorter walk, because each of them is one file. */
#pragma once

#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One object, as its program headers and its dynamic section describe it. */
typedef struct {
  uintptr_t base;
  const ElfW(Phdr) * segments;
  int segment_count;
  const ElfW(Dyn) * dynamic; /* NULL if there is none */
  ElfW(Sym) * symbols;
  const char *names;
  size_t soname;                /* in the names; 0 if there is none */
  const uint32_t *hash;         /* of DT_GNU_HASH; NULL if there is none */
  const uint32_t *old_hash;     /* of DT_HASH, all that nvJitLink up to 12.6 has; NULL if there is none */
  const ElfW(Rela) * tables[2]; /* DT_JMPREL, and DT_RELA without the relative ones at its beginning */
  size_t counts[2];
} LoadedObject;

/* False if the object has no dynamic symbols. */
bool cl_read_object(const struct dl_phdr_info *info, LoadedObject *object);

/* Whether an address lies in one of the object's segments. */
bool cl_has_address(const LoadedObject *object, uintptr_t address);

/* The symbol that an object defines under a name, as the loader looks it up; NULL if it defines none. */
ElfW(Sym) * cl_defined_symbol(const LoadedObject *object, const char *name);

/* Calls `visit` with each symbol that an object defines, and with its name. */
typedef void VisitSymbol(void *context, const LoadedObject *object, const char *name, ElfW(Sym) * symbol);
void cl_visit_symbols(const LoadedObject *object, VisitSymbol *visit, void *context);

/* Calls `visit` with the name and the address of each slot that holds the address of a function or variable. */
typedef void VisitSlot(void *context, const LoadedObject *object, const char *name, uintptr_t *slot);
void cl_visit_slots(const LoadedObject *object, VisitSlot *visit, void *context);

/* Replaces a word at once, for every thread. False if the page may not be made writable, or if the loader is not yet
   done with the object: then the word stays. */
bool cl_replace_word(const LoadedObject *object, uintptr_t *place, uintptr_t value);
