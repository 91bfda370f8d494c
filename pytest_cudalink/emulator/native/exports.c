/* Every symbol: a weak form that says "not implemented", overridden by the files that implement it, and its address.
   The library has those of all releases, and hides those that the driver of the configured version does not export. */
#include "exports.h"

#include "abi.h"
#include "calls.h"
#include "own_symbols.h"

/* Another name for a function: one jump, because an alias cannot reach into another source file. */
#if defined __x86_64__
#define SAME_AS(name, other)                                                                                \
  __asm__(".text\n.globl " #name "\n.type " #name ", @function\n" #name ":\n  jmp " #other "\n.size " #name \
          ", . - " #name "\n");
#elif defined __aarch64__
#define SAME_AS(name, other)                                                                              \
  __asm__(".text\n.globl " #name "\n.type " #name ", %function\n" #name ":\n  b " #other "\n.size " #name \
          ", . - " #name "\n");
#else
#error "the emulated driver is written for x86-64 and aarch64"
#endif

#define WEAK_SYMBOLS
#include "names.inc"
#undef WEAK_SYMBOLS

#define ADDRESS_TABLE
void *const cl_addresses[SYMBOL_COUNT] = {
#include "names.inc"
};
#undef ADDRESS_TABLE

/* -- what the configured version lacks -- */

/* Names that not every driver exports, with the version from which one does. */
#define HIDDEN_NAMES
static const NewerName newer_names[] = {
#include "names.inc"
};
#undef HIDDEN_NAMES

__attribute__((constructor)) static void hide_newer_names(void) {
  cl_hide_names(newer_names, sizeof newer_names / sizeof *newer_names);
}
