/* libcuda.so: for programs that open the driver by its development name, or are linked with -lcuda. It needs
   libcuda.so.1, and says so by a reference, because linkers leave out a library that nothing refers to. */
#include <stdint.h>

extern uint64_t cudalinkEventCount(void);

__attribute__((visibility("default"))) uint64_t (*const cudalinkAlias)(void) = cudalinkEventCount;

/* A linker looks for the driver's functions here, and not in the libraries that this one needs. The loader passes over
   names without an address, and so finds the functions themselves in libcuda.so.1: nothing here is ever called. The
   byte behind the names keeps linkers from leaving out their section. */
#define IN_SECTION(text) __asm__(".pushsection .cudalink.names,\"\",%progbits\n" text ".popsection\n")
#define NAME(name) IN_SECTION(".globl " #name "\n.type " #name ", %function\n" #name ":\n");
#define LINK_NAMES
#include "names.inc"
IN_SECTION(".byte 0\n");
