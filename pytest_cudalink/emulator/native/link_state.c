/* The state of a link, the table of the live ones, and the logs that are written back to the caller. */
#include "link_state.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "caller_memory.h"
#include "config.h"
#include "grow.h"
#include "locks.h"

pthread_mutex_t cl_states_lock = PTHREAD_MUTEX_INITIALIZER;
State *cl_states;
static uint64_t last_state;

OPEN_IN_CHILDREN(cl_states_lock);

/* The handles of the latest states that were destroyed: what uses one of them is a fault of the caller's, until malloc
   gives the address to another state. */
enum { REMEMBERED = 64 };

static struct {
  const State *handle;
  uint64_t id;
  Stack creator;
} graves[REMEMBERED];
static unsigned buried; /* how many ever */

State *cl_hold_state(State *handle, uint64_t *destroyed) {
  *destroyed = 0;
  HOLD(cl_states_lock);
  State *found = cl_states;
  while (found && found != handle) found = found->next;
  if (found) found->holders++;
  for (unsigned at = 0; handle && !found && at < REMEMBERED; at++)
    if (graves[at].handle == handle) *destroyed = graves[at].id;
  return found;
}

void cl_drop_state(State *state) {
  pthread_mutex_lock(&cl_states_lock);
  bool last = --state->holders == 0;
  pthread_mutex_unlock(&cl_states_lock);
  if (last) cl_free_state(state);
}

void cl_keep_state(State *state) {
  for (unsigned at = 0; at < REMEMBERED; at++)
    if (graves[at].handle == state) graves[at].handle = NULL;
  state->id = ++last_state;
  state->holders++;
  state->next = cl_states;
  cl_states = state;
}

void cl_remove_state(State *state) {
  state->destroyed = true;
  pthread_mutex_lock(&cl_states_lock);
  UNLINK(cl_states, state);
  state->holders--; /* the caller still holds it */
  unsigned at = buried++ % REMEMBERED;
  graves[at].handle = state;
  graves[at].id = state->id;
  char *oldest = graves[at].creator.python;
  graves[at].creator = state->creator;
  state->creator.python = NULL;
  pthread_mutex_unlock(&cl_states_lock);
  free(oldest);
}

/* Who created a state that is alive, or one of the last that were destroyed: lines as of cl_write_stack, cut if they do
   not fit. Returns the size that they take; 0: the state is not known, or nothing was noted. */
EXPORT size_t cudalinkCreator(uint64_t id, char *buffer, size_t size) {
  Stack found = {.depth = 0};
  pthread_mutex_lock(&cl_states_lock);
  const Stack *known = NULL;
  for (State *state = cl_states; state && !known; state = state->next)
    if (state->id == id) known = &state->creator;
  for (unsigned at = 0; at < REMEMBERED && !known; at++)
    if (graves[at].id == id) known = &graves[at].creator;
  if (known) {
    found = *known;
    found.python = known->python ? strdup(known->python) : NULL;
  }
  pthread_mutex_unlock(&cl_states_lock);
  size_t needed = found.depth ? cl_write_stack(&found, buffer, size) : 0;
  cl_free_stack(&found);
  return needed;
}

/* How many states there ever were; they are numbered from 1. */
EXPORT uint64_t cudalinkStateCount(void) {
  HOLD(cl_states_lock);
  return last_state;
}

/* How many states are alive: what a test left behind shows up when they are destroyed. */
EXPORT unsigned cudalinkLiveStates(void) {
  unsigned count = 0;
  HOLD(cl_states_lock);
  for (State *state = cl_states; state; state = state->next) count++;
  return count;
}

/* Writes to the caller's memory; to dead memory only to punish, and then as plainly as a real driver would. */
static void put(bool dead, void *to, const void *from, size_t size) {
  if (!dead) cl_write_safely(to, from, size);
  else if (cl_config()->punish) memcpy(to, from, size);
}

void cl_write_value(State *state, unsigned index, uint32_t value) {
  state->expected[index] = (state->expected[index] & ~(uint64_t)UINT32_MAX) | value;
  put(state->values_dead, (char *)state->values + 8 * (size_t)index, &value, sizeof value);
}

void cl_flush_log(State *state, Log *log) {
  if (!log->buffer) return;
  uint32_t size;
  size_t capacity = log->capacity, shown = cl_log_shown(capacity, log->length, &size);
  if (capacity) {
    put(log->dead, log->buffer, log->text ? log->text : "", shown);
    put(log->dead, log->buffer + shown, "", 1);
    log->written = shown + 1;
    size_t behind = capacity - log->written;
    log->watched = behind < WATCHED ? behind : WATCHED;
    if (log->dead || !cl_read_safely(log->buffer + log->written, log->behind, log->watched)) log->watched = 0;
  }
  cl_write_value(state, log->slot, size);
}

static void write_size(State *state, const Log *log) {
  uint32_t size;
  if (!log->buffer) return;
  cl_log_shown(log->capacity, log->length, &size);
  cl_write_value(state, log->slot, size);
}

void cl_write_sizes(State *state) {
  write_size(state, &state->info);
  write_size(state, &state->error);
}

static void append(Log *log, const char *text) {
  if (!text || !*text) return;
  size_t more = strlen(text);
  if (!cl_grow(&log->text, log->length + more + 1, &log->room, 1)) return;
  if (log->length) log->text[log->length++] = '\n';
  memcpy(log->text + log->length, text, more + 1);
  log->length += more;
}

void cl_write_logs(State *state, LinkText *text, bool always) {
  append(&state->error, text->error);
  append(&state->info, text->info);
  if (text->error || always) cl_flush_log(state, &state->error);
  if (text->info || always) cl_flush_log(state, &state->info);
  cl_text_free(text);
}

void cl_log_error(State *state, const char *format, ...) {
  LinkText text = {0};
  va_list list;
  va_start(list, format);
  if (vasprintf(&text.error, format, list) < 0) text.error = NULL;
  va_end(list);
  cl_write_logs(state, &text, false);
}

/* Frees the names up to one, which stays. */
static Name *free_names(Name *list, const Name *end) {
  while (list != end) {
    Name *next = list->next;
    free(list);
    list = next;
  }
  return list;
}

void cl_forget_definitions(State *state, const Name *after) {
  state->definitions = free_names(state->definitions, after);
}

void cl_free_state(State *state) {
  cl_linker_close(state->linker);
  cl_options_free(&state->options);
  cl_free_stack(&state->creator);
  free_names(state->definitions, NULL);
  free_names(state->inputs_named, NULL);
  free(state->failure);
  free(state->image);
  free(state->keys);
  free(state->expected);
  free(state->info.text);
  free(state->error.text);
  pthread_mutex_destroy(&state->lock);
  free(state);
}

CUresult cl_poison(State *state, CUresult code) {
  state->poison = code;
  return code;
}
