/* Functions and kernels: what an image says of them, their attributes, and why they do not run. */
#pragma once

#include "module_image.h"

/* The symbol of a function, or of a variable, that an image defines; 0 if it defines no such symbol. */
uint32_t cl_image_symbol(const Elf *elf, const char *name, bool function);
bool cl_has_undefined(const Elf *elf);
/* A function by its name, or a kernel of a library; made at its first use. Under the lock of the modules. */
CUresult cl_function_in(Module *module, const char *name, Function **out);
/* A setting, under the lock of the modules: what is set of a function comes before what is set of its kernel, whichever
   came first (cuda.h: cuKernelSetAttribute). */
int cl_setting(const Function *function, int setting);
unsigned cl_kernel_count(const Elf *elf);
/* The first functions of a module, or kernels of a library; under the lock of the modules. */
CUresult cl_list_kernels(Module *module, void **out, unsigned room);
/* The function that a kernel is in a context; what is a function already, or has no context (NULL), stays what it is.
   NULL if memory is out. Likewise. */
Function *cl_function_of(Function *function, Context *context);
/* The same in the current context. */
Function *cl_function_here(Function *function);
