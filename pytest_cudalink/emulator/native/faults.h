/* Faults that a test injects, and the loss of the device. */
#pragma once

#include "abi.h"
#include "symbols.h"

/* Whether any call may meet a fault; costs no lock. */
bool cl_faults_active(void);
/* The code that an injected fault gives to this call, or -1; waits for an injected delay. */
int cl_fault_of(Sym symbol);
/* The code that a link and PTX answer where the compiler of the driver is missing; 0: it is there. */
CUresult cl_fault_of_jit(void);
/* The code that everything answers once the device is lost; 0: it is not. */
int cudalinkDeviceLost(void);
/* Loses it; 0 brings it back. Returns the code from before. */
int cudalinkLoseDevice(int code);
