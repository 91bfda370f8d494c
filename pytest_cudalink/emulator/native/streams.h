/* The streams and events that are alive. */
#pragma once

#include <time.h>

#include "contexts.h"

typedef struct Node Node;
typedef struct Capture Capture;
typedef struct Work Work;

typedef struct {
  uint8_t from_port, to_port, type, reserved[5];
} EdgeData;
_Static_assert(sizeof(EdgeData) == 8, "CUgraphEdgeData");

/* Nodes that the next one depends on; two arrays, because callers get each of them. */
typedef struct {
  Node **nodes;
  EdgeData *data;
  size_t *places; /* of many nodes, by their addresses; NULL: there are few */
  size_t count, room;
} Dependencies;

enum { STREAM_ATTRIBUTES = 32, ATTRIBUTE_SIZE = 64 };

typedef union {
  char bytes[ATTRIBUTE_SIZE];
  int number;
  uint64_t numbers[ATTRIBUTE_SIZE / 8];
} AttributeValue;
_Static_assert(sizeof(AttributeValue) == 64, "CUlaunchAttributeValue");

typedef struct Stream {
  Object head; /* of the context whose work it does */
  unsigned flags;
  int priority;
  uint64_t id;
  Context *context; /* NULL: a default stream, which is of the current one */
  bool is_legacy;
  bool dead;           /* its context is */
  bool destroyed;      /* it has no handle, and is freed when its work is done */
  Work *last;          /* of its work that is not done */
  unsigned depth;      /* works of it that are not done, but for those that call the host */
  struct Clock *clock; /* what happens before its next work; NULL: nothing, or order is not checked */
  unsigned chain;      /* in clocks; 0: none yet */
  Capture *capture;    /* that it takes part in */
  Dependencies next;
  AttributeValue window; /* the attributes that have a value */
  int policy, domain;
  uint8_t domains[2];
  struct Stream *sibling; /* the next default stream of the same thread */
} Stream;

typedef struct Event {
  Object head;
  unsigned flags;
  bool recorded, dead;
  struct timespec time;
  uint64_t captured;   /* number of the capture that it was last recorded in; 0: in none */
  Dependencies work;   /* what it stands for in that capture */
  Work *record;        /* that is not done, and records it */
  struct Clock *clock; /* what happens before it */
} Event;

enum { EVENT_FLAGS = 7 }; /* CUevent_flags */

/* Prepares this file as the library is loaded. */
void cl_start_streams(void);
/* One lock for streams, events, captures and graphs. What is deferred is called once it is released. */
void cl_streams_lock(void);
/* Releases it; returns the result, so that a call can be one expression. */
CUresult cl_streams_unlock(CUresult result);
/* Releases it under another lock: what is deferred is called by the thread that unlocks next. */
void cl_streams_leave(void);
#define LOCKED(answer) (cl_streams_lock(), cl_streams_unlock(answer))
/* Holds it until the block ends. */
#define HOLD_STREAMS()                                                             \
  __attribute__((cleanup(cl_streams_drop), unused)) const char held_until_end = 0; \
  cl_streams_lock()
static inline void cl_streams_drop(const char *unused) { cl_streams_unlock(CUDA_SUCCESS); }
/* Has a function called by the thread that holds the lock, after it is released. Memory for it is the caller's. */
typedef struct Deferred {
  void (*function)(void *);
  void *data;
  struct Deferred *next;
} Deferred;
void cl_defer(Deferred *call);
/* A condition for the two below. */
void cl_condition_make(pthread_cond_t *condition);
/* Waits for a condition, without the lock meanwhile. */
void cl_streams_wait(pthread_cond_t *condition);
void cl_streams_wait_at_most(pthread_cond_t *condition, long nanoseconds);
/* The same in two steps. */
struct timespec cl_streams_later(long nanoseconds);
void cl_streams_wait_until(pthread_cond_t *condition, const struct timespec *until);

/* Under the lock: the stream of a handle, a default one too; NULL if there is none. */
Stream *cl_stream(const void *handle);
/* Whether an attribute of a stream or a kernel can have a value; that of a priority is brought within its range. */
bool cl_fit_attribute(int attribute, AttributeValue *value);
/* Writes the value of an attribute to a caller; of a map the two bytes that it has (measured: edges/streams). */
void cl_write_attribute(AttributeValue *to, const AttributeValue *from, int attribute);
/* The answer to a call on a stream: 0, 400 if it does not exist, 201 if its context died, and 709 if the current one
   did too; what a call without a context answers for a default stream. */
CUresult cl_stream_state(const void *handle, Stream **stream);
Event *cl_event(const void *handle);
/* All streams but the legacy ones; also those whose context is dead. */
extern Objects cl_streams;
enum { LEGACY = 1 }; /* CU_STREAM_LEGACY, CU_STREAM_PER_THREAD */
/* Whether a handle is the legacy stream's in the current call: NULL is, unless its name ends in `_ptsz` or `_ptds`. */
bool cl_is_legacy(const void *handle);
/* The legacy stream of a context; NULL if it was never used. */
Stream *cl_legacy_of(const Context *context);
/* Whether a stream and the legacy one of a context wait for each other. */
static inline bool cl_synchronizes(const Stream *stream, const Context *context) {
  return stream->head.context == context && !(stream->flags & CU_STREAM_NON_BLOCKING) && !stream->is_legacy;
}
void cl_stream_free(Stream *stream);
/* Called with each stream that is freed. In happens_before.c. */
void cl_order_end_stream(Stream *stream);
void cl_event_free(Event *event);
CUresult cl_event_make(unsigned flags, Context *context, Event **out);
void cl_event_stamp(Event *event);

bool cl_dependencies_add(Dependencies *to, Node *node, EdgeData data);
void cl_dependencies_empty(Dependencies *of);
bool cl_dependencies_copy(Dependencies *to, const Dependencies *from);
void cl_dependencies_clear(Dependencies *of);

/* The context and the device that a stream works on: its own, for which none need be current; a default stream's are
   those of the current context. Both take the lock. */
/* The context of a stream, of a default stream the current one; under the lock. */
Context *cl_context_of(const Stream *stream);
Context *cl_context_in(const void *handle);
CUresult cl_stream_device(const void *handle, CUdevice *device);
/* CUDA_ERROR_INVALID_HANDLE for what is neither a living stream nor one of the default ones. Takes the lock. */
CUresult cl_check_stream(const void *handle);
/* The flags that an event was made with; CUDA_ERROR_INVALID_HANDLE if it is not alive. Takes the lock. */
CUresult cl_flags_of_event(const void *handle, unsigned *flags);
/* Makes an event of the current context; its flags were checked. Takes the lock. */
CUresult cl_make_event(void **out, unsigned flags);
