/* An error that stays: what every context of the process answers after a kernel went wrong. */
#pragma once

#include "abi.h"
#include "symbols.h"

/* Lets the error stay if it is one that does; the first one wins. */
void cl_stick(int code);
/* What a call answers because of such an error; 0: the call is made. */
CUresult cl_sticky_answer(Sym symbol);
/* The error that stays; 0: none. */
int cl_sticky_error(void);
/* Has this thread's call answer CUDA_ERROR_LAUNCH_TIMEOUT, because its waiting was given up. */
void cl_give_up_call(void);
/* That answer, once; 0: nothing was given up. */
CUresult cl_take_given_up(void);
/* That answer, or the error that stays: what a call answers that has waited. */
CUresult cl_waited_answer(void);
/* Notes that a primary context was reset, after which the contexts of the process are no longer valid. */
void cl_sticky_reset(void);
/* Lets the error end, which no call of a real driver does. */
void cl_sticky_end(void);
