/* The state of a link, the table of the live ones, and the logs that are written back to the caller. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "jit_compiler.h"
#include "call_stacks.h"

/* One log buffer of the caller, and how much of the unused part behind the text is watched. */
enum { WATCHED = 64 };

typedef struct {
  char *buffer; /* NULL: none was given */
  uint64_t capacity;
  unsigned slot; /* index of the option value that gets the size */
  char *text;    /* everything that was logged */
  size_t length, room;
  size_t written; /* bytes in the caller's buffer, with the final NUL */
  size_t watched; /* bytes behind them that were read */
  char behind[WATCHED];
  atomic_bool dead; /* known to be freed, and left alone; another thread's new state may find out */
} Log;

typedef struct Name {
  struct Name *next;
  const char *input;
  char name[];
} Name;

typedef struct State {
  struct State *next;
  uint64_t id;
  unsigned holders; /* the table, and every call that is inside; under the lock of the table */
  pthread_mutex_t lock;
  bool destroyed; /* by a call that came first */
  Linker *linker;
  LinkOptions options;
  bool without_code; /* a target that no compiler of this driver knows */
  unsigned inputs;
  CUresult poison; /* what every further add and complete answers */
  char *failure;   /* of the linker itself, when the link was created; NULL: none */
  bool completed;
  void *image;
  size_t image_size;
  Name *definitions;
  Name *inputs_named;
  struct timespec started;
  Stack creator; /* who called cuLinkCreate */

  unsigned count; /* options */
  int *keys;
  uint64_t *values;   /* the caller's array */
  uint64_t *expected; /* what must stand there */
  int wall_time;      /* index, or -1 */
  atomic_bool values_dead;
  Log info, error;
} State;

extern pthread_mutex_t cl_states_lock;
extern State *cl_states; /* the live ones, under the lock */

/* A live state, which stays in memory until it is dropped, also if another thread destroys it. NULL for another handle:
   then *destroyed is the number of the last state that had this handle, or 0. */
State *cl_hold_state(State *handle, uint64_t *destroyed);
void cl_drop_state(State *state);
/* Numbers a state and puts it into the table; under the lock of the table. */
void cl_keep_state(State *state);
/* Takes a state out of the table, in the name of cuLinkDestroy; under the state's lock. */
void cl_remove_state(State *state);
void cl_free_state(State *state);
/* Forgets the definitions that came after others. */
void cl_forget_definitions(State *state, const Name *after);

/* Every further add and complete answers this. */
CUresult cl_poison(State *state, CUresult code);

/* Writes a number to the caller's option value. */
void cl_write_value(State *state, unsigned index, uint32_t value);
/* Puts what fits of a log into the caller's buffer, and its size into the option value. */
void cl_flush_log(State *state, Log *log);
/* Puts the sizes of both logs into the option values, as every input does that is looked at (measured:
 * test_sizes_of_logs). */
void cl_write_sizes(State *state);
/* Adds new text to both logs, and flushes those that got some; both of them if `always`. */
void cl_write_logs(State *state, LinkText *text, bool always);
void cl_log_error(State *state, const char *format, ...) PRINTF(2, 3);

/* How many states are alive. */
unsigned cudalinkLiveStates(void);
