/* What every object begins with, how it is entered and how it ends. The handles that are alive are in a table, each
   with what it is: a stale or foreign one is recognized by it, and never followed. While lifetimes are checked, the
   table also has the latest that died, each until malloc gives its address to another object. */
#pragma once

#include <pthread.h>

#include "call_stacks.h"

typedef struct Context Context;

typedef enum {
  NO_HANDLE,
#define HANDLE_KIND_NAMES
#include "names.inc"
  HANDLE_KINDS
} HandleKind;

/* The kinds as messages name them, and their types in cuda.h. */
extern const struct KindName {
  const char *name, *type;
} cl_kinds[HANDLE_KINDS];

typedef struct Object Object;

/* The objects of a file, the newest first, under its lock; objects that are never looked for have a list, too, if they
   are to be freed in another way than by free(). */
typedef struct {
  void (*free)(Object *object); /* that has left the list; NULL: free() */
  pthread_mutex_t *lock;        /* of those that end with their context */
  Object *first;
} Objects;

/* What an object begins with. */
struct Object {
  HandleKind kind;  /* NO_HANDLE: its address is not a handle, or not any more */
  uint64_t number;  /* among those of its kind, from 1 on */
  Context *context; /* that it is of; NULL: of none, or of whichever is current */
  Objects *list;    /* NULL: it is on none */
  Object *before, *behind;
};

/* Goes through the objects of a list, of which none may end meanwhile. */
// NOLINTNEXTLINE(bugprone-macro-parentheses): the names of a type and of a variable
#define EACH(Type, one, list) for (Type *one = (Type *)(list)->first; one; one = (Type *)one->head.behind)

/* Makes a zeroed object, and enters it; NULL if memory is out. */
void *cl_object_make(size_t size, HandleKind kind, Context *context, Objects *list);
/* Puts an object on a list, and its handle into the table; false, and nothing is done, if memory is out. */
bool cl_object_enter(Object *object, HandleKind kind, Context *context, Objects *list);
/* Takes away the handle of an object that goes on without one, if it still has one. */
void cl_object_unname(Object *object);
/* Has each use of an object noted from now on, because its context was destroyed. */
void cl_object_orphan(const Object *object);
/* Ends an object: it loses its handle, leaves its list and is freed. */
void cl_object_end(Object *object);
/* Ends all of a context, under the lock of the list; returns how many they were. */
size_t cl_objects_end(const Objects *list, const Context *context);
/* Whether a handle is alive and of this kind. The answer holds while the lock of its owner is held: each file adds,
   asks and removes its own kinds under its own lock, so that an object cannot go while another thread uses it. */
bool cl_handle_is(const void *handle, HandleKind kind);
/* How many of a kind are alive. */
size_t cl_handles_alive(HandleKind kind);

/* -- the use of what is dead: use_after_destroy.c -- */

typedef struct {
  HandleKind kind; /* NO_HANDLE: there is none */
  uint64_t number;
  Site *end; /* the call that ended it; NULL: it is not known */
} DeadHandle;

/* Notes that this thread's call was given a handle that had died, or memory that was freed. */
void cl_note_dead_use(HandleKind kind, uint64_t number, Site *end);
/* Whether this thread's call was given a handle of a kind that had died. */
bool cl_used_dead(HandleKind kind);
/* Reports, as a function leaves, that it was given a handle that had died, if it is of a kind, one bit each, of which a
   driver dies there. Never under a lock. */
void cl_check_dead_use(const char *call, unsigned kinds);
