/* The first call of each function: it is looked up, and its caller is bound to it. */
#ifndef STUB_RUNTIME_H
#define STUB_RUNTIME_H

#include "search.h"

#include <errno.h>

/* ---- binding the caller directly ---- */

#if defined(__x86_64__)
#define STUB_JUMP_SLOT R_X86_64_JUMP_SLOT
#else
#define STUB_JUMP_SLOT R_AARCH64_JUMP_SLOT
#endif

struct stub_binding {
  ElfW(Addr) caller, trampoline, function;
};

static int stub_bind(struct dl_phdr_info *info, size_t size, void *data) {
  const struct stub_binding *binding = data;
  const ElfW(Dyn) *dynamic = NULL;
  const ElfW(Rela) *slots = NULL;
  size_t bytes = 0;
  int mine = 0;
  (void)size;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *part = &info->dlpi_phdr[i];
    if (part->p_type == PT_LOAD && binding->caller - info->dlpi_addr - part->p_vaddr < part->p_memsz) mine = 1;
    if (part->p_type == PT_DYNAMIC) dynamic = (const ElfW(Dyn) *)(info->dlpi_addr + part->p_vaddr);
  }
  if (!mine) return 0;
  for (; dynamic && dynamic->d_tag != DT_NULL; dynamic++) {
    if (dynamic->d_tag == DT_PLTRELSZ) bytes = dynamic->d_un.d_val;
    if (dynamic->d_tag == DT_PLTREL && dynamic->d_un.d_val != DT_RELA) return 1;
    if (dynamic->d_tag == DT_JMPREL) {
      ElfW(Addr) where = dynamic->d_un.d_ptr; /* glibc has added the base, other loaders have not */
      slots = (const ElfW(Rela) *)(where < info->dlpi_addr ? where + info->dlpi_addr : where);
    }
  }
  for (size_t i = 0; slots && i < bytes / sizeof *slots; i++) {
    if (ELF64_R_TYPE(slots[i].r_info) != STUB_JUMP_SLOT) continue;
    _Atomic(ElfW(Addr)) *slot = (_Atomic(ElfW(Addr)) *)(info->dlpi_addr + slots[i].r_offset);
    if (atomic_load(slot) != binding->trampoline) continue;
    enum { IN_WRITABLE_PART = 1, READ_ONLY_ONCE_BOUND = 2 };
    int place = 0;
    for (int j = 0; j < info->dlpi_phnum; j++) {
      const ElfW(Phdr) *part = &info->dlpi_phdr[j];
      if (slots[i].r_offset - part->p_vaddr >= part->p_memsz) continue;
      if (part->p_type == PT_LOAD && part->p_flags & PF_W) place |= IN_WRITABLE_PART;
      if (part->p_type == PT_GNU_RELRO) place |= READ_ONLY_ONCE_BOUND;
    }
    if (place == IN_WRITABLE_PART) atomic_store(slot, binding->function);
  }
  return 1;
}

/* What the loader does for a lazily bound call, once more: the caller's own slot for this function, which holds our
 * trampoline, gets the function itself. From then on its calls cost what a direct call costs. Only slots for calls are
 * changed, never an address that a program may compare; where they are read-only, the trampoline stays between. */
static void stub_bind_caller(void *caller, unsigned index, stub_function function) {
  struct stub_binding binding = {
      .caller = (ElfW(Addr))caller, .trampoline = STUB_TRAMPOLINES[index], .function = (ElfW(Addr))function};
  dl_iterate_phdr(stub_bind, &binding);
}

/* ---- what the trampolines and the fallbacks call ---- */

/* The function behind slot INDEX, at its first call. CALLER is an address in the calling library. */
STUB_HIDDEN stub_function STUB_RESOLVE(unsigned index, void *caller) {
  int saved = errno;
  const struct stub_entry *entry = &stub_entries[index];
  const struct stub_choice *choice = stub_choose(caller);
  stub_function function = choice->handle ? stub_symbol(choice->handle, entry) : NULL;
  if (function && entry->adapt) function = entry->adapt(choice->handle, function);
  if (function) stub_bind_caller(caller, index, function);
  else function = entry->fallback;
  if (choice != &stub_no_memory) atomic_store(&STUB_SLOTS[index], function);
  errno = saved;
  return function;
}

__attribute__((unused)) static int stub_failed(int missing_library, int missing_symbol) {
  atomic_thread_fence(memory_order_acquire); /* the slot was read before the choice is */
  const struct stub_choice *choice = atomic_load(&stub_chosen);
  return choice && choice->handle ? missing_symbol : missing_library;
}

/* What is missing and where it was looked for; never NULL, lives as long as the stub. */
__attribute__((unused)) static const char *stub_complaint(const char *function) {
  static _Atomic(char *) text;
  char *known = atomic_load(&text);
  if (known) return known;
  const struct stub_choice *choice = stub_choose(NULL);
  struct stub_text made = {.bytes = NULL};
  if (choice->handle) stub_add(&made, STUB_FILE ": %s lacks %s, so errors cannot be explained", choice->file, function);
  else
    stub_add(&made, STUB_FILE ": no " STUB_STEM " was found; looked in %s. Install it, or name it in " STUB_VARIABLE,
             choice->looked);
  if (!made.bytes) return STUB_FILE ": no " STUB_STEM " was found";
  if (atomic_compare_exchange_strong(&text, &known, made.bytes)) return made.bytes;
  free(made.bytes);
  return known;
}

/* JSON: library, stub, file, version, why, looked, functions, missing (symbols), degraded (tiers). Searches, if no call
 * did so before. */
STUB_EXPORT const char *STUB_DESCRIBE(void) {
  char *known = atomic_load(&stub_description);
  if (known) return known;
  int saved = errno, first = 1, degraded[2] = {0, 0};
  const struct stub_choice *choice = stub_choose(__builtin_return_address(0));
  int version = choice->handle ? stub_version(choice->handle) : 0;
  struct stub_text text = {.bytes = NULL};
  stub_add(&text, "{\"library\": \"" STUB_LIBRARY "\", \"stub\": \"" STUB_FILE "\", \"file\": ");
  stub_add_json(&text, choice->file);
  if (version) stub_add(&text, ", \"version\": \"%d.%d\", \"why\": ", version / 1000, version % 1000 / 10);
  else stub_add(&text, ", \"version\": null, \"why\": ");
  stub_add_json(&text, choice->why);
  stub_add(&text, ", \"looked\": ");
  stub_add_json(&text, choice->looked);
  stub_add(&text, ", \"functions\": %d, \"missing\": [", STUB_COUNT);
  for (int i = 0; i < STUB_COUNT; i++) {
    if (choice->handle && stub_symbol(choice->handle, &stub_entries[i])) continue;
    degraded[stub_entries[i].optional] = 1;
    stub_add(&text, "%s\"%s\"", first ? "" : ", ", stub_entries[i].symbol);
    first = 0;
  }
  stub_add(&text, "], \"degraded\": [%s%s%s]}", degraded[0] ? "\"core\"" : "", degraded[0] && degraded[1] ? ", " : "",
           degraded[1] ? "\"optional\"" : "");
  errno = saved;
  if (!text.bytes) return "{}";
  if (atomic_compare_exchange_strong(&stub_description, &known, text.bytes)) return text.bytes;
  free(text.bytes);
  return known;
}

#endif
