/* What happens before what: the rules of streams, events and the host. */
#include "happens_before.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "locks.h"

enum { HOST = 0 };

_Thread_local Op *cl_order_current;

STATIC_LOCK(lock); /* of all of it, and of the clocks of streams and events */
static uint64_t counts[CHAINS];
static const Stream *owners[CHAINS]; /* NULL: of a piece of work */
static unsigned chains = 1;
static Clock *host, *orphans; /* what the host knows is done; what streams did that are gone */
static size_t queued;         /* works that are not done */

static void forget_parent(void) { queued = 0; }

FORGET_IN_CHILDREN(forget_parent);

/* -- chains -- */

/* Whether all the host's later steps are behind a chain: then it can be another's. */
static bool is_past(unsigned chain) { return cl_clock_count(host, chain) >= counts[chain]; }

/* The last chain is shared by all that find none. */
static unsigned take_chain(const Stream *owner) {
  unsigned chain = 1;
  while (chain < chains && (owners[chain] || !is_past(chain))) chain++;
  if (chain == chains && chains < CHAINS) chains++;
  for (unsigned other = 1; chain == CHAINS && other < CHAINS; other++)
    if (is_past(other)) chain = other;
  if (chain == CHAINS) {
    cl_order_shares();
    chain--;
  }
  owners[chain] = owner;
  return chain;
}

/* -- works -- */

static Op *make(void) {
  Op *op = calloc(1, sizeof *op);
  if (!op) return cl_order_ends("memory is out"), NULL;
  op->holders = 1;
  op->site = cl_site_keep(cl_site());
  return op;
}

static void place(Op *op) {
  if (!op->chain) op->chain = take_chain(NULL);
  op->count = ++counts[op->chain];
  cl_clock_tick(&op->clock, op->chain, op->count);
}

/* A work that is done needs no clock: its chain and its count say what is behind it. */
static void end(Op *op) {
  if (op->queued) queued--;
  op->queued = false;
  free(op->clock);
  op->clock = NULL;
}

void cl_order_drop(Op *op) {
  if (!op) return;
  HOLD(lock);
  end(op);
  cl_op_release(op);
}

/* Joins what the legacy stream waits for, or what waits for it. */
static void join_others(Clock **clock, const Stream *stream) {
  if (stream->flags & CU_STREAM_NON_BLOCKING || !stream->head.context) return;
  const Stream *legacy = cl_legacy_of(stream->head.context);
  if (!stream->is_legacy) {
    if (legacy) cl_clock_join(clock, legacy->clock);
    return;
  }
  EACH (Stream, other, &cl_streams)
    if (cl_synchronizes(other, stream->head.context)) cl_clock_join(clock, other->clock);
}

static void name_stream(Op *op, const Stream *stream) {
  if (stream->is_legacy) snprintf(op->where, sizeof op->where, "the legacy stream");
  else if (!stream->context) snprintf(op->where, sizeof op->where, "a thread's default stream");
  else
    snprintf(op->where, sizeof op->where, "%sstream %llu",
             stream->flags & CU_STREAM_NON_BLOCKING ? "non-blocking " : "", (unsigned long long)stream->id);
}

Op *cl_order_submit(Stream *stream, bool alone, bool later) {
  HOLD(lock);
  Op *op = make();
  if (op) {
    name_stream(op, stream);
    op->queued = later;
    queued += later;
    cl_clock_join(&op->clock, host);
    cl_clock_join(&op->clock, stream->clock);
    if (!alone || stream->is_legacy) join_others(&op->clock, stream);
    if (!stream->chain || owners[stream->chain] != stream) stream->chain = take_chain(stream);
    op->chain = stream->chain;
    place(op);
    cl_clock_join(&stream->clock, op->clock);
  }
  return op;
}

Op *cl_order_enter(const void *handle) {
  HOLD_STREAMS();
  Stream *stream = cl_stream(handle);
  return stream ? cl_order_submit(stream, false, false) : NULL;
}

/* What all streams of a context did; NULL: of all contexts. */
static void join_context(Clock **clock, const Context *context) {
  EACH (Stream, stream, &cl_streams)
    if (!context || stream->head.context == context) cl_clock_join(clock, stream->clock);
  const Stream *legacy = context ? cl_legacy_of(context) : NULL;
  if (legacy) cl_clock_join(clock, legacy->clock);
  cl_clock_join(clock, orphans);
}

void cl_order_leave(const void *handle, Op *op) {
  HOLD_STREAMS();
  Stream *stream = cl_stream(handle);
  if (stream) cl_order_keep(&stream->clock, op);
  cl_order_drop(op);
}

Op *cl_order_host(const Context *behind) {
  if (behind) cl_streams_lock();
  pthread_mutex_lock(&lock);
  Op *op = make();
  if (op) {
    snprintf(op->where, sizeof op->where, "the host");
    cl_clock_tick(&host, HOST, op->count = ++counts[HOST]);
    cl_clock_join(&op->clock, host);
    if (behind) join_context(&op->clock, behind);
  }
  pthread_mutex_unlock(&lock);
  if (behind) cl_streams_unlock(CUDA_SUCCESS);
  return op;
}

Op *cl_order_fork(bool later) {
  HOLD(lock);
  Op *op = make();
  if (op) {
    snprintf(op->where, sizeof op->where, "a graph");
    op->queued = later;
    queued += later;
    cl_clock_join(&op->clock, host);
  }
  return op;
}

void cl_order_place(Op *op) {
  if (!op) return;
  HOLD(lock);
  place(op);
}

/* -- edges -- */

void cl_order_after(Op *op, Op *earlier) {
  if (!op || !earlier) return;
  HOLD(lock);
  cl_clock_join(&op->clock, earlier->clock);
  if (!op->chain && !op->queued && !earlier->taken) {
    op->chain = earlier->chain;
    earlier->taken = true;
  }
}

void cl_order_keep(Clock **clock, const Op *op) {
  if (!op) return;
  HOLD(lock);
  cl_clock_join(clock, op->clock);
}

void cl_order_know(Op *op, const Clock *clock) {
  if (!op) return;
  HOLD(lock);
  cl_clock_join(&op->clock, clock);
}

void cl_order_done(Op *op) {
  HOLD(lock);
  end(op);
}

void cl_order_record(Event *event, Stream *stream) {
  Clock *fresh = NULL;
  HOLD(lock);
  if (stream->is_legacy) join_others(&stream->clock, stream);
  cl_clock_join(&fresh, stream->clock); /* not what the host knows: whatever waits for the event is submitted later */
  join_others(&fresh, stream);
  free(event->clock);
  event->clock = fresh;
}

void cl_order_record_context(Event *event, const Context *context) {
  HOLD(lock);
  join_context(&event->clock, context);
}

void cl_order_wait(Stream *stream, const Event *event) {
  HOLD(lock);
  cl_clock_join(&stream->clock, event->clock);
}

void cl_order_end_stream(Stream *stream) {
  if (!stream->clock) return;
  HOLD(lock);
  cl_clock_join(&orphans, stream->clock);
  if (stream->chain && owners[stream->chain] == stream) owners[stream->chain] = NULL;
  free(stream->clock);
  stream->clock = NULL;
}

/* -- the host -- */

static void learn(const Clock *clock) {
  cl_clock_join(&host, clock);
  if (!queued && host) cl_conflicts_forget(host);
}

void cl_order_waited_stream(const Stream *stream) {
  HOLD(lock);
  if (stream->is_legacy) join_others(&host, stream);
  learn(stream->clock);
}

void cl_order_waited_event(const Event *event) {
  HOLD(lock);
  learn(event->clock);
}

void cl_order_waited_context(const Context *context) {
  HOLD_STREAMS();
  HOLD(lock);
  join_context(&host, context);
  learn(NULL);
}

void cl_order_learn(const Op *op) {
  HOLD(lock);
  learn(op->clock);
}

/* -- words -- */

static void join_writer(Op *op, const Op *writer, const Clock *before) {
  cl_clock_join(&op->clock, before);
  if (cl_clock_count(op->clock, writer->chain) < writer->count) cl_clock_tick(&op->clock, writer->chain, writer->count);
}

/* The host may have written the value, or what any work wrote there may be it. */
void cl_order_released(Op *op, uintptr_t word) {
  HOLD(lock);
  cl_clock_join(&op->clock, host);
  cl_conflicts_writers(word, op, join_writer);
}

/* -- accesses -- */

void cl_order_touch(Op *op, const Range *range, AccessKind kind) {
  if (!op || !range->width || !range->rows || !range->layers) return;
  HOLD(lock);
  bool is_known = cl_clock_count(host, op->chain) >= op->count;
  cl_conflicts_touch(op, range, kind, queued || !is_known);
}

/* -- on and off -- */

void cl_end_order(const Context *context) {
  if (cl_order_on) cl_order_waited_context(context);
}

static void watch(Sym symbol, bool entered) {
  const Context *context = cl_take_waited() && !entered ? cl_current() : NULL;
  if (context) cl_order_waited_context(context);
  cl_watch_site(symbol, entered);
}

/* Turns the check on, as if nothing had been done so far, or off. */
EXPORT void cudalinkCheckOrder(int on) {
  HOLD(lock);
  cl_order_on = on;
  cl_conflicts_forget(NULL);
  cl_forget_findings();
  cl_call_watch = on ? watch : NULL;
}
