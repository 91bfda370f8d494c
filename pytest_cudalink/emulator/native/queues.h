/* Queues: work that streams cannot do inside the call that submits it, because it has to wait, or calls the host. */
#ifndef CUDALINK_QUEUES_H
#define CUDALINK_QUEUES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi.h"
#include "graph_parameters.h"
#include "streams.h"

/* Kinds of work besides those of nodes, as `parameters.type`. */
enum { WORK_CALLBACK = NODE_TYPES, WORK_FREE };

typedef struct Watch Watch;

/* Submitted work. It is freed when it is done and nobody holds it. */
typedef struct Work Work;
struct Work {
  NodeParameters parameters; /* arrays behind pointers are its own */
  Context *context;
  void *handle; /* the stream as its caller named it, for a callback; the node, for memory of a graph */
  void (*callback)(Stream *, CUresult, void *);
  void *staged;        /* bytes of pageable memory that a copy reads */
  Watch *watch;        /* on memory of the host; NULL: none */
  void (*end)(Work *); /* called when it is done, under the lock; NULL: nothing */
  Stream *last_of;     /* the stream that has nothing behind it; NULL: none */
  unsigned unmet;      /* works that must be done before; one more until it is started */
  unsigned holders;    /* threads that wait for it */
  unsigned position;   /* of a batch: the operations that were done */
  bool cancelled;      /* its context died */
  bool done;
  Work **dependents;
  size_t dependent_count, dependent_room;
  Work *before, *behind; /* in the list of all that is not done */
  Work *next;            /* in the list that is ready, or waits for a value */
};

/* Whether anything is pending at all: one atomic load, which is all that ordinary programs pay. */
bool cl_any_pending(void);
/* Does a work; CUDA_ERROR_NOT_READY: not yet, ask again. To be registered before main. */
typedef CUresult WorkRunner(Work *work);
void cl_on_work(WorkRunner *runner);
/* Frees the watch of a work. Likewise. */
typedef void WatchEnd(Watch *watch);
void cl_on_watch_end(WatchEnd *end);

/* All of these under the lock of the streams. */

/* The parameters of work that is done as soon as nothing is before it. */
extern const NodeParameters cl_no_work;
/* Makes work; copies everything that the parameters point to. NULL if memory is out. */
Work *cl_work_make(const NodeParameters *parameters, Context *context);
/* Has work wait for earlier work, which may be NULL or done; false if memory is out. */
bool cl_work_after(Work *work, Work *earlier);
/* Has work wait for everything that comes before it in a stream; `alone`: not for the streams that synchronize with it.
 */
bool cl_work_in_order(Work *work, const Stream *stream, bool alone);
/* Has work wait for all that a context has pending; NULL: for all. */
bool cl_work_after_context(Work *work, const Context *context);
/* The first pending work that is what is looked for, or NULL. */
Work *cl_find_pending(bool (*is)(const Work *work, const void *data), const void *data);
/* Makes it the last of a stream. */
void cl_work_append(Work *work, Stream *stream);
/* Lets it go as soon as nothing is before it: by the caller if it can be done at once, else by the engine. */
void cl_work_start(Work *work);
/* Frees work that was not started. */
void cl_work_drop(Work *work);

/* Whether new work of a stream would have to wait; `alone`: for its own work. */
bool cl_is_busy(const Stream *stream, bool alone);
/* Submits work to a stream: `cl_work_make`, its order, `cl_work_start`. *out is only of use under the same lock. */
CUresult cl_queue(Stream *stream, const NodeParameters *parameters, bool alone, Work **out);
/* The same for work that waits for other work too, which may be NULL. */
CUresult cl_queue_behind(Work *other, Stream *stream, const NodeParameters *parameters, bool alone, Work **out);
/* Has an event stand for a work that records it, or for none (NULL) before it is recorded at once or freed. */
void cl_event_follow(Event *event, Work *work);
/* Waits, and lets go of the lock meanwhile: for a work, for a stream as it is now, for the work of a context as it is
   now (NULL: of all). */
void cl_wait_for(Work *work);
void cl_wait_for_stream(Stream *stream);
/* Waits until new work of a stream could be done; a call that then does it itself keeps the order. */
void cl_drain(Stream *stream);
void cl_wait_for_context(const Context *context);

#endif
