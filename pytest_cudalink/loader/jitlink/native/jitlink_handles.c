/* The nvJitLink handles of this process, alive and destroyed. */
#include "jitlink_handles.h"

#include <string.h>

enum { HANDLES = 4096 };
static uintptr_t values[HANDLES]; /* apart from the rest, so that a search reads little memory */
static Handle handles[HANDLES];
static unsigned used, oldest;
static bool lost;

Handle *cl_find_handle(uintptr_t value) {
  for (unsigned at = 0; at < used; at++)
    if (values[at] == value) return &handles[at];
  return NULL;
}

/* A place for a value that has none: a free one, or that of a destroyed handle, in turn. */
static Handle *place(void) {
  if (used < HANDLES) return &handles[used++];
  for (unsigned step = 0; step < HANDLES; step++) {
    Handle *handle = &handles[oldest++ % HANDLES];
    if (handle->destroyed && !handle->busy) return handle;
  }
  lost = true;
  return NULL;
}

Handle *cl_new_handle(uintptr_t value) {
  Handle *handle = cl_find_handle(value);
  if (!handle) handle = place();
  if (!handle) return NULL;
  memset(handle, 0, offsetof(Handle, names));
  handle->value = values[handle - handles] = value;
  handle->failed = handle->at_work = -1;
  return handle;
}

bool cl_handles_lost(void) { return lost; }
void cl_forget_handles(void) { used = 0; }

void cl_handles_after_fork(void) {
  for (unsigned at = 0; at < used; at++) handles[at].busy = 0;
}

unsigned cl_handles_alive(uint64_t after, uint64_t *numbers, unsigned size) {
  unsigned count = 0;
  for (unsigned at = 0; at < used; at++) {
    if (handles[at].destroyed || handles[at].number <= after) continue;
    if (count < size) numbers[count] = handles[at].number;
    count++;
  }
  return count;
}
