/* An error that stays: what every context of the process answers after a kernel went wrong. */
#ifndef CUDALINK_STICKY_H
#define CUDALINK_STICKY_H

#include "abi.h"
#include "symbols.h"

/* Lets the error stay if it is one that does; the first one wins. */
void cl_stick(int code);
/* What a call answers because of such an error; 0: the call is made. */
CUresult cl_sticky_answer(Sym symbol);
/* The error that stays; 0: none. */
int cl_sticky_error(void);
/* Notes that a primary context was reset, after which the contexts of the process are no longer valid. */
void cl_sticky_reset(void);
/* Lets the error end, which no call of a real driver does. */
void cl_sticky_end(void);

#endif
