/* Works, and what comes before what. */
#include "work_order.h"

#include "grow.h"
#include "happens_before.h"
#include "processes.h"

Work *cl_pending, *cl_newest;
struct Gates cl_gates;
static atomic_size_t pending_count;

bool cl_any_pending(void) { return atomic_load_explicit(&pending_count, memory_order_acquire); }

const NodeParameters cl_no_work = {.type = NODE_EMPTY};

Work *cl_work_make(const NodeParameters *parameters, Context *context) {
  Work *work = calloc(1, sizeof *work);
  if (!work) return NULL;
  work->parameters = *parameters;
  work->context = context;
  work->unmet = 1;
  bool room = !cl_may_be_gate(work) || cl_grow(&cl_gates.list, cl_gates.works, &cl_gates.room, sizeof *cl_gates.list);
  if (room && cl_parameters_own(&work->parameters)) {
    cl_gates.works += cl_may_be_gate(work);
    return work;
  }
  free(work);
  return NULL;
}

void cl_work_drop(Work *work) {
  cl_gates.works -= cl_may_be_gate(work);
  cl_parameters_free(&work->parameters);
  cl_watch_end(work->watch);
  cl_order_drop(work->op);
  free(work->staged);
  free(work->source);
  free(work->dependents);
  free(work);
}

bool cl_work_after(Work *work, Work *earlier) {
  if (!earlier || earlier->done) return true;
  if (!cl_grow(&earlier->dependents, earlier->dependent_count, &earlier->dependent_room, sizeof(Work *))) return false;
  earlier->dependents[earlier->dependent_count++] = work;
  work->unmet++;
  return true;
}

bool cl_visit_earlier(const Stream *stream, bool alone, WorkVisit *visit, Work *new) {
  if (stream->last && !visit(new, stream->last)) return false;
  if (stream->flags & CU_STREAM_NON_BLOCKING || (alone && !stream->is_legacy)) return true;
  if (!stream->is_legacy) {
    const Stream *legacy = cl_legacy_of(stream->head.context);
    return !legacy || !legacy->last || visit(new, legacy->last);
  }
  EACH (Stream, other, &cl_streams)
    if (other->last && cl_synchronizes(other, stream->head.context) && !visit(new, other->last)) return false;
  return true;
}

bool cl_work_in_order(Work *work, const Stream *stream, bool alone) {
  work->stream = stream->id;
  return cl_visit_earlier(stream, alone, cl_work_after, work);
}

static bool is_nothing(Work *new, Work *earlier) { return !earlier; }

bool cl_is_busy(const Stream *stream, bool alone) {
  return cl_any_pending() && !cl_visit_earlier(stream, alone, is_nothing, NULL);
}

bool cl_is_work_of(const Work *work, const Context *context, bool of_device) {
  return !context || work->context == context || (of_device && work->context->device == context->device);
}

bool cl_work_after_context(Work *work, const Context *context, bool of_device) {
  for (Work *other = cl_pending; other; other = other->behind)
    if (cl_is_work_of(other, context, of_device) && !cl_work_after(work, other)) return false;
  return true;
}

Work *cl_find_pending(bool (*is)(const Work *work, const void *data), const void *data) {
  Work *work = cl_pending;
  while (work && !is(work, data)) work = work->behind;
  return work;
}

void cl_work_append(Work *work, Stream *stream) {
  if (stream->last) stream->last->last_of = NULL;
  stream->last = work;
  work->last_of = stream;
  if (cl_calls_host(work) || work->parameters.type == NODE_EMPTY) return;
  work->in = stream;
  stream->depth++;
}

void cl_event_follow(Event *event, Work *work) {
  if (event->record) event->record->parameters.event = NULL; /* only the last record counts */
  event->record = work;
}

void cl_pending_add(Work *work) {
  work->before = cl_newest;
  if (cl_newest) cl_newest->behind = work;
  else cl_pending = work;
  cl_newest = work;
  atomic_fetch_add_explicit(&pending_count, 1, memory_order_release);
  atomic_fetch_add(&cl_own_process->pending, 1);
}

void cl_pending_remove(Work *work) {
  if (work->before) work->before->behind = work->behind;
  else cl_pending = work->behind;
  if (work->behind) work->behind->before = work->before;
  else cl_newest = work->before;
}

void cl_pending_end(void) {
  atomic_fetch_sub_explicit(&pending_count, 1, memory_order_release);
  atomic_fetch_sub(&cl_own_process->pending, 1);
}

void cl_pending_keep(bool kept) {
  if (kept) atomic_fetch_add_explicit(&pending_count, 1, memory_order_release);
  else atomic_fetch_sub_explicit(&pending_count, 1, memory_order_release);
}

void cl_pending_forget(void) {
  cl_pending = cl_newest = NULL;
  cl_gates.count = 0;
  atomic_store(&pending_count, 0);
}

bool cl_hurry_all(void) {
  bool any = false;
  for (Work *work = cl_pending; work; work = work->behind) {
    any = any || !work->hurried;
    work->hurried = true;
  }
  return any;
}

void cl_work_hurry(Work *last) {
  last->hurried = true;
  for (bool more = true; more;) { /* nearly all works wait for older ones, so that few rounds are enough */
    more = false;
    for (Work *work = cl_newest; work; work = work->before)
      for (size_t at = 0; at < work->dependent_count && !work->hurried; at++)
        if (work->dependents[at]->hurried) more = work->hurried = true;
  }
}
