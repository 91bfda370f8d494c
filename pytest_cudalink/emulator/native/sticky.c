/* An error that stays: what every context of the process answers after a kernel went wrong. */
#include "sticky.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

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

static bool begins(const char *name, const char *with) { return !strncmp(name, with, strlen(with)); }

/* What does not reach the device: questions about devices, and each thread's stack of contexts (measured:
 * test_errors_that_stay). */
static bool on_host(Sym symbol) {
  const char *name = cl_symbols[symbol].name;
  switch (symbol) {
    case SYM_cuInit:
    case SYM_cuDriverGetVersion:
    case SYM_cuGetErrorName:
    case SYM_cuGetErrorString:
    case SYM_cuGetProcAddress:
    case SYM_cuGetProcAddress_v2:
    case SYM_cuCtxGetCurrent:
    case SYM_cuCtxSetCurrent:
    case SYM_cuCtxPushCurrent_v2:
    case SYM_cuCtxPopCurrent_v2:
    case SYM_cuCtxGetDevice: return true;
    case SYM_cuDevicePrimaryCtxRetain: return false;
    default: return begins(name, "cuDeviceGet") || begins(name, "cuDevicePrimaryCtx");
  }
}

static bool makes_context(Sym symbol) {
  return symbol == SYM_cuDevicePrimaryCtxRetain || begins(cl_symbols[symbol].name, "cuCtxCreate");
}

CUresult cl_sticky_answer(Sym symbol) {
  int code = atomic_load(&error);
  if (!code || on_host(symbol)) return CUDA_SUCCESS;
  return atomic_load(&was_reset) && !makes_context(symbol) ? CUDA_ERROR_INVALID_CONTEXT : code;
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
