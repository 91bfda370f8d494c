/* Every symbol: a weak form that says "not implemented", or that it is too old, overridden by the files that implement
   it, and its address.
   The library has those of all releases, and hides those that the driver of the configured version does not export. */
#include "locks.h"
#include "own_symbols.h"
#include "queues.h"

/* A form that jumps to another one, whatever the parameters are, and says to `cl_enter` which it is. */
#if defined __x86_64__
#define FORM(name, announced, other)                                                                        \
  __asm__(".text\n.globl " #name "\n.type " #name ", @function\n" #name                                     \
          ":\n  movq cl_stream_form@gottpoff(%rip), %r11\n  movl $" announced ", %fs:(%r11)\n  jmp " #other \
          "\n.size " #name ", . - " #name "\n");
#elif defined __aarch64__
#define FORM(name, announced, other)                                                                             \
  __asm__(".text\n.globl " #name "\n.type " #name ", %function\n" #name                                          \
          ":\n  mrs x16, tpidr_el0\n  adrp x17, :gottprel:cl_stream_form\n"                                      \
          "  ldr x17, [x17, #:gottprel_lo12:cl_stream_form]\n  add x16, x16, x17\n  mov w17, #(" announced ")\n" \
          "  str w17, [x16]\n  b " #other "\n.size " #name ", . - " #name "\n");
#else
#error "the emulated driver is written for x86-64 and aarch64"
#endif
_Static_assert(ANNOUNCED == 2 && OLDER_FORM == 3, "the assembler has no enumerators");
#define PER_THREAD_FORM(name, other) FORM(name, "2", other)
#define TWIN(name, symbol, other) FORM(name, "3 + " #symbol, other)

#define WEAK_SYMBOLS
#include "names.inc"
#undef WEAK_SYMBOLS

#define ADDRESS_TABLE
void *const cl_addresses[SYMBOL_COUNT] = {
#include "names.inc"
};
#undef ADDRESS_TABLE

/* Names that not every driver exports, with the version from which one does. */
#define HIDDEN_NAMES
static const NewerName newer_names[] = {
#include "names.inc"
};
#undef HIDDEN_NAMES

static void start(void) {
  cl_start_contexts();
  cl_start_streams();
  cl_start_queues();
  cl_hide_names(newer_names, sizeof newer_names / sizeof *newer_names);
}

START(start);
