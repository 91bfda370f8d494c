/* Contexts: primary ones and those that the caller makes, and each thread's stack of them. */
#pragma once

#include <stdatomic.h>

#include "calls.h"
#include "handles.h"

enum { CONTEXT_LIMITS = 10, GREATEST_PRIORITY = -5 };

struct Context {
  Object head; /* of a green one: its handle is that of its green context */
  uint32_t magic;
  CUdevice device;
  bool primary;
  atomic_bool dead; /* these three are read and written without the lock, by every thread that has it current */
  atomic_uint flags;
  atomic_size_t limits[CONTEXT_LIMITS];
  unsigned references;
  uint64_t id, legacy_id; /* the latter is that of its legacy stream */
  atomic_int cache_config, attached;
  Site *end;             /* the call that destroyed it; NULL: it is not known */
  const void *green;     /* the resources of a green context; NULL: it is not green */
  struct Stream *legacy; /* under the lock of the streams; NULL: it was never used */
};

/* The calling thread's current context, or NULL; cl_context says what a call that needs one must answer. */
Context *cl_current(void);
Context *cl_context(CUresult *result);

/* Finds it, or has a function answer that. */
// NOLINTBEGIN(bugprone-macro-parentheses): it defines a variable
#define IN_CONTEXT(name)                     \
  CUresult name##_state;                     \
  Context *name = cl_context(&name##_state); \
  if (name##_state) return name##_state
// NOLINTEND(bugprone-macro-parentheses)
/* What a call that needs a current context must answer if it needs nothing of it. */
CUresult cl_check_context(void);

/* CUexecAffinityParam */
typedef struct {
  int type;
  unsigned multiprocessors;
} Affinity;

/* Whether a context that a caller names exists; NULL is the current one. */
bool cl_is_known_context(const Context *context);
/* What a call answers that is given contexts of which a driver dies once they are destroyed; NULL is not looked at. */
CUresult cl_check_peers(const Context *one, const Context *other);
/* Whether one context takes the events and functions of another: a green one those of its device's primary context, and
   the other way round. */
bool cl_shares(const Context *one, const Context *other);
/* Whether a context may access the memory of another one of another device. In context_settings.c. */
bool cl_is_peer(const Context *context, const Context *peer);
/* The next number that no stream has had. */
uint64_t cl_next_id(void);

/* How many contexts were made and not destroyed; adds up the references to primary ones. */
size_t cl_contexts_alive(size_t *references);

/* The primary context of a device, whether it is active or not. */
Context *cl_primary_context(CUdevice device);
/* A context of a green one, current to no thread, which keeps the primary one of its device; NULL if memory is out. */
Context *cl_make_green_context(CUdevice device, void *green);
void cl_end_green_context(Context *context);
/* Makes a context current for what the emulator does itself; false if memory is out. */
bool cl_push_context(Context *context);
void cl_pop_context(void);

/* Called with the contexts of the calling thread's stack, outermost first, then with those of other threads. */
typedef void StackVisitor(void *with, bool own, Context *const *list, size_t count);
void cl_each_stack(StackVisitor *visit, void *with);

/* Waits for all unfinished work of a context. Under no lock. In queues.c. */
void cl_finish(const Context *context);
/* What a call answers that synchronized a context, a stream or an event; pools give back memory. In pools.c. */
CUresult cl_synchronized(void);

/* What is of a context goes with it, in the file that has it; under the lock of the contexts. */
typedef void EndOfContext(const Context *context);
EndOfContext cl_end_streams, cl_end_order, cl_end_works, cl_end_captures, cl_end_coredumps, cl_end_memory,
    cl_end_arrays, cl_end_textures, cl_end_texture_references, cl_end_modules;

/* Prepares this file as the library is loaded. */
void cl_start_contexts(void);
