/* What an idle card draws. */
#ifndef CUDALINK_NVML_CLOCKS
#define CUDALINK_NVML_CLOCKS

#include <stdint.h>

unsigned cl_nvml_power(void);
uint64_t cl_nvml_energy(void);

#endif
