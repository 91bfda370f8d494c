/* Every symbol: a weak form that says "not implemented", overridden by the files that implement it, and its address. */
#include "exports.h"

#include "abi.h"
#include "calls.h"

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
