/* Works: what was submitted to streams and is not done, and what comes before what. */
#pragma once

#include "graph_parameters.h"

/* Kinds of work besides those of nodes, as `parameters.type`. */
enum { WORK_CALLBACK = NODE_TYPES, WORK_FREE, WORK_LAUNCHED };

typedef struct Watch Watch;

/* Submitted work. It is freed when it is done and not held. */
typedef struct Work {
  NodeParameters parameters; /* arrays behind pointers are its own */
  Context *context;
  void *handle; /* the stream as its caller named it, for a callback; the node, for memory of a graph */
  void (*callback)(Stream *, CUresult, void *);
  void *staged;               /* bytes of pageable memory that a copy reads */
  Watch *watch;               /* on memory of the host; NULL: none */
  void (*end)(struct Work *); /* called when it is done, under the lock; NULL: nothing */
  struct Op *op;              /* in the order that is checked; NULL: none */
  Stream *last_of;            /* the stream that has nothing behind it; NULL: none */
  Stream *in;                 /* the stream in which it takes room; NULL: none */
  uint64_t stream;            /* the number of its stream; 0: none */
  unsigned unmet;             /* works that must be done before; one more until it is started */
  unsigned holders;           /* threads that wait for it */
  unsigned position;          /* of a batch: the operations that were done */
  bool cancelled;             /* its context died */
  bool done;
  bool reached; /* by a search */
  struct Work **dependents;
  size_t dependent_count, dependent_room;
  struct Work *before, *behind; /* in the list of all that is not done */
  struct Work *next;            /* in the list that is ready */
  /* under a schedule */
  uint32_t number; /* 0: none, it is done as soon as it can be */
  uint64_t due;    /* the call after which it is done */
  bool hurried;    /* something waits for it: it is due */
  bool reads_late; /* a copy that began earlier: it reads its source when it ends */
  char *source;    /* what that was when it began; NULL: not kept */
} Work;

static inline bool cl_calls_host(const Work *work) {
  return work->parameters.type == NODE_HOST || work->parameters.type == WORK_CALLBACK;
}
static inline bool cl_may_be_gate(const Work *work) { return work->parameters.type == NODE_MEMORY_OPERATIONS; }
/* Whether anything is pending at all: one atomic load, which is all that ordinary programs pay. */
bool cl_any_pending(void);
/* Frees the watch of a work, or NULL. In watched_copies.c. */
void cl_watch_end(Watch *watch);

/* All of these under the lock of the streams. */

/* The parameters of work that is done as soon as nothing is before it. */
extern const NodeParameters cl_no_work;
/* Makes work; copies everything that the parameters point to. NULL if memory is out. */
Work *cl_work_make(const NodeParameters *parameters, Context *context);
/* Has work wait for earlier work, which may be NULL or done; false if memory is out. */
bool cl_work_after(Work *work, Work *earlier);
/* Has work wait for all that comes before it in a stream; `alone`: not for the streams that synchronize with it. */
bool cl_work_in_order(Work *work, const Stream *stream, bool alone);
/* Has work wait for all that a context has pending; NULL: for all. */
bool cl_is_work_of(const Work *work, const Context *context, bool of_device);
bool cl_work_after_context(Work *work, const Context *context, bool of_device);
/* The first pending work that is what is looked for, or NULL. */
Work *cl_find_pending(bool (*is)(const Work *work, const void *data), const void *data);
/* Makes it the last of a stream. */
void cl_work_append(Work *work, Stream *stream);
/* Frees work that was not started. */
void cl_work_drop(Work *work);

/* Whether new work of a stream would have to wait; `alone`: for its own work. */
bool cl_is_busy(const Stream *stream, bool alone);
/* Has an event stand for a work that records it, or for none (NULL) before it is recorded at once or freed. */
void cl_event_follow(Event *event, Work *work);
/* Visits the works that come before new work of a stream, until a visit is false; whether none was. `alone`: not those
   of the streams that synchronize with it. */
typedef bool WorkVisit(Work *new, Work *earlier);
bool cl_visit_earlier(const Stream *stream, bool alone, WorkVisit *visit, Work *new);
/* A work that waits for a value, with a copy of the operation, so that a look at many gates reads little memory. */
typedef struct {
  Work *work; /* NULL: it is open */
  MemoryOperation operation;
} Gate;
/* Those that are closed, in the order in which works came to them; there is room for one of each work. */
extern struct Gates {
  Gate *list;
  size_t count, room, works;
} cl_gates;
/* The works that are not done, in the order of their submission. */
extern Work *cl_pending, *cl_newest;
void cl_pending_add(Work *work);
void cl_pending_remove(Work *work);
/* To be called when all is done that belongs to the end of a work: another thread may see that nothing is pending. */
void cl_pending_end(void);
/* Has `cl_any_pending` be true, whatever is pending, until it is called with false. */
void cl_pending_keep(bool kept);
void cl_pending_forget(void);
/* Has nothing of a context be done any more (NULL: of all); what is behind it goes on. In queues.c. */
void cl_cancel_works(const Context *context);
/* Has a work be due under a schedule, and all that it waits for. */
void cl_work_hurry(Work *last);
/* Has all that is pending be due; whether there was anything that was not. */
bool cl_hurry_all(void);
