/* What happens before what, by the rules of CUDA: vector clocks of streams, events and the host, and the accesses to
   memory that nothing orders. */
#pragma once

#include "conflicts.h"
#include "streams.h"

/* All of these are called only if order is checked. */

/* -- making; an Op is dropped by the function that made it -- */

/* Work of a stream, behind what comes before it there; `alone`: not behind the streams that synchronize with it. Under
   the lock of the streams. `later`: it is not done yet, and cl_order_done will be called. */
Op *cl_order_submit(Stream *stream, bool alone, bool later);
/* The same for a handle, without the lock; NULL if there is no such stream. */
Op *cl_order_enter(const void *handle);
/* Drops it; the stream knows what it learned. */
void cl_order_leave(const void *handle, Op *op);
/* What the host does now; `behind`: behind all work of a context, for which it waits first. */
Op *cl_order_host(const Context *behind);
/* Work that is not of a stream by itself; `cl_order_after` says what is before it, then `cl_order_place` is called. */
Op *cl_order_fork(bool later);
void cl_order_place(Op *op);
void cl_order_drop(Op *op);

void cl_order_after(Op *op, Op *earlier);
/* Has a clock know a work, and a work what a clock knows. */
void cl_order_keep(struct Clock **clock, const Op *op);
void cl_order_know(Op *op, const struct Clock *clock);
/* A queued work is done. */
void cl_order_done(Op *op);
/* An event is recorded: in a stream, or behind all work of a context; a stream waits for it. Under the lock of the
   streams. */
void cl_order_record(Event *event, Stream *stream);
void cl_order_record_context(Event *event, const Context *context);
void cl_order_wait(Stream *stream, const Event *event);

/* The host knows that work is done: it waited, or asked, or a host function runs behind it. Under the lock of the
   streams, but for the last two. */
void cl_order_waited_stream(const Stream *stream);
void cl_order_waited_event(const Event *event);
void cl_order_waited_context(const Context *context);
void cl_order_learn(const Op *op);

/* The work that this thread does now, for what does not know it; NULL: none. */
extern _Thread_local Op *cl_order_current;

/* Compares an access with those before it, names each pair that nothing orders, and keeps the access. */
void cl_order_touch(Op *op, const Range *range, AccessKind kind);
/* Work goes on because of the value of a word. */
void cl_order_released(Op *op, uintptr_t word);
