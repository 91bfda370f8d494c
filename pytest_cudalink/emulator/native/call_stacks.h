/* Who called: the frames of a thread, and the lines of Python that it runs. */
#pragma once

#include "event_log.h"

enum { STACK_FRAMES = 24 };

typedef struct {
  int depth;
  void *frames[STACK_FRAMES]; /* innermost first */
  char *python;               /* a line for each frame of Python, innermost first; NULL: no Python runs here */
} Stack;

/* Notes where this thread is. Never under a lock: it may wait for Python's, which may free what destroys a state. */
void cl_note_stack(Stack *stack);
/* Whether this thread holds Python's lock, as far as is known. */
bool cl_holds_python(void);
/* Whether Python's handler of SIGINT is not the one that raises KeyboardInterrupt. Never under a lock, either. */
bool cl_python_catches_interrupts(void);
void cl_free_stack(Stack *stack);

/* A driver call and the place that makes it; several objects may keep one. */
typedef struct Site {
  unsigned holders;
  const char *call;
  Stack stack;
  uint64_t hash;
  struct Site *next;
} Site;

/* The site of a call from a place, kept; NULL if memory is out. It takes the stack over. */
Site *cl_site_find(const char *call, Stack *stack);
/* Notes the site of this thread's call, until it is forgotten as the call ends. Never under a lock. */
void cl_site_note(const char *call);
void cl_site_forget(void);
/* The site of this thread's call; NULL if none was noted. */
Site *cl_site(void);
/* Keeps a site, if there is one, until it is dropped. */
Site *cl_site_keep(Site *site);
void cl_site_drop(Site *site);
/* Adds bytes to a hash, which begins with 0. */
uint64_t cl_hash(uint64_t hash, const void *bytes, size_t count);
/* Adds a place in the program to a hash: its lines of Python, or the native frames if there are none. */
uint64_t cl_hash_stack(uint64_t hash, const Stack *stack);
/* Adds the innermost lines of Python to an event, as a list, or the native frames if there are none. */
void cl_event_stack(EventLine *line, const char *name, const Stack *stack, size_t room);
/* Writes all lines to a buffer, `n` before native frames and `p` before those of Python; returns the size with the NUL
   that this takes. */
size_t cl_write_stack(const Stack *stack, char *buffer, size_t size);
