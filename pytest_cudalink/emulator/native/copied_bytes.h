/* Copying and filling memory, for the functions that do it and for the graphs that do it later. */
#pragma once

#include "happens_before.h"

/* Under a schedule, larger boxes are copied at once, when it is their turn. */
enum { COPIED_LATER_MAX = 1 << 26 };

/* Each has three forms. `check` says what is wrong now, for work that is done later; `copy` and `fill` check and do it
   while the memory is held, so that no thread frees it meanwhile; `run` does what was checked before, and does not ask
   again what is allocated: it answers CUDA_ERROR_ILLEGAL_ADDRESS where there are no bytes any more. */
CUresult cl_check_box(const Box *box);
CUresult cl_copy_box(const Box *box);
CUresult cl_run_box(const Box *box);
/* What a copy is that takes time: `begin` keeps its source and fills its destination with poison; `run_from` writes
   what was kept. NULL: nothing was kept, and nothing is poisoned, as of large boxes and of memory that is gone.
   *reads_late is cleared where the poison is in the source. */
char *cl_begin_box(const Box *box, bool *reads_late);
CUresult cl_run_box_from(const Box *box, const char *source);
void cl_begin_fill(CUdeviceptr to, size_t width, size_t pitch, size_t count, size_t rows);
/* Rows of values of `width` bytes, `pitch` bytes apart. */
CUresult cl_check_fill(CUdeviceptr to, size_t width, size_t pitch, size_t count, size_t rows);
CUresult cl_fill(CUdeviceptr to, uint32_t value, size_t width, size_t pitch, size_t count, size_t rows);
CUresult cl_run_fill(CUdeviceptr to, uint32_t value, size_t width, size_t pitch, size_t count, size_t rows);
/* One line, of which a side is no array. */
CUresult cl_copy_line(const Side *to, const Side *from, size_t size);
/* What `other` of a side points to whose context was asked for access already: the current one does not matter. */
extern const char cl_of_peer;

/* Copies a box of an asynchronous form in the order of a stream, which is not captured: at once if nothing is before
   it, else in its queue, or the caller waits, as data/emulator/synchronization.toml says. In memcpy_memset.c. */
CUresult cl_copy_box_in(const Box *box, const void *stream);

/* The bytes of one side of a copy. False if there are none. */
bool cl_range_of(const Side *side, const Box *box, Range *range);
/* What a copy reads, one row behind the other; NULL if memory is out. */
char *cl_read_box(const Box *box);

/* What a copy reads and writes, if order is checked; `staged`: it was read before. */
void cl_touch_box(Op *op, const Box *box, bool staged);
