/* How the functions of data/nvml.toml answer. */
#ifndef CUDALINK_NVML_ANSWERS
#define CUDALINK_NVML_ANSWERS

#include <stdint.h>

#include "nvml.h"

Result cl_nvml_refuse(Result result);
Result cl_nvml_refuse_of_device(Device device, Result result);

#endif
