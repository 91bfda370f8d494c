/* An error that stays: what every context of the process answers after a kernel went wrong. */
#include "sticky.h"

#include <stdatomic.h>

static atomic_int error; /* 0: none */
static atomic_bool was_reset;

/* CUresults that stay. 700, 715, 716 and 719 were measured, the others are documented to leave the process unusable. */
static const int staying[] = {700, 702, 710, 714, 715, 716, 717, 718, 719};

static bool stays(int code) {
  for (size_t at = 0; at < sizeof staying / sizeof *staying; at++)
    if (staying[at] == code) return true;
  return false;
}

void cl_stick(int code) {
  int none = 0;
  if (stays(code)) atomic_compare_exchange_strong(&error, &none, code);
}

CUresult cl_sticky_answer(Sym symbol) {
  int code = atomic_load(&error);
  if (!code || cl_symbols[symbol].on_host) return CUDA_SUCCESS;
  return atomic_load(&was_reset) && !cl_symbols[symbol].makes_context ? CUDA_ERROR_INVALID_CONTEXT : code;
}

static atomic_bool gave_up; /* ever: asking for the thread's own costs more */
static _Thread_local bool given_up;

void cl_give_up_call(void) { gave_up = given_up = true; }

CUresult cl_take_given_up(void) {
  if (!gave_up) return CUDA_SUCCESS;
  bool taken = given_up;
  given_up = false;
  return taken ? CUDA_ERROR_LAUNCH_TIMEOUT : CUDA_SUCCESS;
}

CUresult cl_waited_answer(void) {
  CUresult answer = cl_take_given_up();
  return answer ? answer : cl_sticky_error();
}

void cl_sticky_reset(void) {
  if (atomic_load(&error)) atomic_store(&was_reset, true);
}

void cl_sticky_end(void) {
  atomic_store(&error, 0);
  atomic_store(&was_reset, false);
}

/* For a test that injected the error into code that it tests, and goes on. */
EXPORT void cudalinkEndError(void) { cl_sticky_end(); }
int cl_sticky_error(void) { return atomic_load(&error); }
