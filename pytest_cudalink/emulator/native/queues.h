/* Queues: work that streams cannot do inside the call that submits it, because it has to wait, or calls the host. */
#pragma once

#include "work_order.h"

/* Prepares this file and waiters.c as the library is loaded. */
void cl_start_queues(void);
/* Does a work; CUDA_ERROR_NOT_READY: not yet, ask again. In works.c. */
CUresult cl_run_work(Work *work);
/* The first gate from one on that need not stay closed. Nothing is looked at but the values, as this is done again and
   again. In stream_operations.c. */
size_t cl_skip_closed_gates(size_t at);

/* All of these under the lock of the streams. */

/* Has something else than the order of readiness say what is done when; NULL: nothing else. While something does, all
   work goes into queues, and no work of the device is done but in calls of the driver. */
typedef struct {
  void (*submitted)(Work *work);
  void (*ready)(Work *work); /* nothing is before it any more */
  Work *(*next)(bool calls); /* takes the next one that is due, or NULL; `calls`: it may call the host */
  void (*done)(const Work *work);
  bool (*is_late)(void);   /* whether a thread that waited goes on later than it could */
  bool (*impatient)(void); /* whether a question that was answered with 600 now counts as waiting */
} Scheduler;
void cl_schedule(const Scheduler *one);
bool cl_scheduled(void);
/* Whether who submits work is noted; only a schedule may do without. In schedule.c. */
bool cl_notes_submitters(void);
void cl_progress(void);
void cl_begin_work(Work *work);
/* Whether this thread is the driver's own. */
bool cl_is_engine(void);

/* Lets it go as soon as nothing is before it: by the caller if it can be done at once, else by the engine. */
void cl_work_start(Work *work);
/* Submits work to a stream: `cl_work_make`, its order, `cl_work_start`. *out is only of use under the same lock. */
CUresult cl_queue(Stream *stream, const NodeParameters *parameters, bool alone, Work **out);
/* The same for work that waits for other work too, which may be NULL. */
CUresult cl_queue_behind(Work *other, Stream *stream, const NodeParameters *parameters, bool alone, Work **out);
/* Notes that a call asked whether a work, or all of a stream, is done, and that the answer was no. */
void cl_asked_for(Work *work);
void cl_asked_for_stream(const Stream *stream);
/* Waits, and lets go of the lock meanwhile: for a work, or for a stream as it is now. */
void cl_wait_for(Work *work);
void cl_wait_for_stream(Stream *stream);
/* Waits until new work of a stream could be done; a call that then does it itself keeps the order. */
void cl_drain(Stream *stream);
