/* Functions and kernels: what an image says of them, their attributes, and why they do not run. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "abi.h"
#include "image.h"
#include "module_image.h"

/* The symbol of a function, or of a variable, that an image defines; 0 if it defines no such symbol. */
uint32_t cl_image_symbol(const Elf *elf, const char *name, bool function);
bool cl_has_undefined(const Elf *elf);
/* The handle of a function by its name; made at its first use. Under the lock of the modules. */
CUresult cl_function_in(Module *module, const char *name, Function **out);
unsigned cl_kernel_count(const Elf *elf);
/* The handles of the first kernels; under the lock of the modules. */
CUresult cl_list_kernels(Module *module, void **out, unsigned room, bool as_kernels);
