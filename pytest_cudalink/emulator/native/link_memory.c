/* The watch on the memory that the caller gave to a link. */
#include "link_memory.h"

#include <stdio.h>

#include "caller_memory.h"
#include "config.h"
#include "violations.h"

static void violation(uint64_t state, const char *call, const char *option, const char *what, const char *expected,
                      const char *found) {
  bool used = !strcmp(option, "CUlinkState");
  cl_note_violation_of(&(Violation){
      .kind = "link state",
      .number = state,
      .rule = option,
      .what = what,
      .call = call,
      .expected = expected,
      .found = found,
      .fix = used ? "Make no call with a CUlinkState after its cuLinkDestroy."
                  : "Keep the memory that cuLinkCreate was given until cuLinkDestroy.",
  });
}

static bool overlap(const void *a, size_t a_size, const void *b, size_t b_size) {
  return a && b && a_size && b_size && (uintptr_t)a < (uintptr_t)b + b_size && (uintptr_t)b < (uintptr_t)a + a_size;
}

/* The array is one piece of memory: one finding is enough. */
static void check_values(State *state, const char *call) {
  uint64_t here[64];
  for (unsigned from = 0, piece; from < state->count && !state->values_dead; from += piece) {
    piece = state->count - from < 64 ? state->count - from : 64;
    if (!cl_read_safely(state->values + from, here, piece * sizeof *here)) {
      violation(state->id, call, "optionValues", "unmapped", "the array given to cuLinkCreate",
                "no memory at that address");
      state->values_dead = true;
    }
    for (unsigned at = 0; at < piece && !state->values_dead; at++) {
      if (here[at] == state->expected[from + at]) continue;
      char expected[32], found[32];
      snprintf(expected, sizeof expected, "0x%llx", (unsigned long long)state->expected[from + at]);
      snprintf(found, sizeof found, "0x%llx", (unsigned long long)here[at]);
      violation(state->id, call, cl_option_name(state->keys[from + at]), "option value changed", expected, found);
      state->values_dead = true;
    }
  }
}

/* An empty log is one NUL, and freed memory may well begin with one: a pointer of malloc's free list does, one time in
   sixteen. So what lies behind the text is watched too. Cleared memory is no finding: a caller may clear a buffer. */
static void check_log(State *state, Log *log, int option, const char *call) {
  if (log->dead || !log->buffer || !log->capacity) return;
  char here[256];
  size_t checked = 0;
  const char *problem = NULL;
  const Log *other = log == &state->info ? &state->error : &state->info;
  bool shared = overlap(log->buffer, log->capacity, other->buffer, other->capacity); /* each log overwrites the other */
  /* our own text, piece by piece, then the last byte: both ends must be there */
  while (!problem && !shared && checked < log->written) {
    size_t piece = log->written - checked < sizeof here ? log->written - checked : sizeof here;
    if (!cl_read_safely(log->buffer + checked, here, piece)) problem = "unmapped";
    for (size_t at = 0; !problem && at < piece; at++) {
      char mine = checked + at + 1 == log->written ? 0 : log->text[checked + at];
      if (here[at] != mine) problem = "log text changed";
    }
    checked += piece;
  }
  if (!problem && !cl_read_safely(log->buffer + log->capacity - 1, here, 1)) problem = "unmapped";
  if (!problem && !shared && log->watched) {
    if (!cl_read_safely(log->buffer + log->written, here, log->watched)) problem = "unmapped";
    for (size_t at = 0; !problem && at < log->watched; at++)
      if (here[at] && here[at] != log->behind[at]) problem = "memory behind the log text changed";
  }
  if (!problem) return;
  char expected[64], found[64] = "no memory at that address";
  snprintf(expected, sizeof expected, "%zu byte%s of own text", log->written, log->written == 1 ? "" : "s");
  if (strcmp(problem, "unmapped") && cl_read_safely(log->buffer, here, 24)) {
    int to = 0;
    for (int at = 0; at < 16; at++)
      to += snprintf(found + to, sizeof found - (size_t)to, at ? " %02x" : "%02x", (unsigned char)here[at]);
  }
  violation(state->id, call, cl_option_name(option), problem, expected, found);
  log->dead = true;
}

void cl_check_memory(State *state, const char *call) {
  if (!cl_config()->lifetime) return;
  check_values(state, call);
  check_log(state, &state->info, CU_JIT_INFO_LOG_BUFFER, call);
  check_log(state, &state->error, CU_JIT_ERROR_LOG_BUFFER, call);
}

void cl_report_destroyed(uint64_t state, const char *call) {
  if (!cl_config()->lifetime) return;
  violation(state, call, "CUlinkState", "used after cuLinkDestroy", "a state that is alive",
            "the handle of a destroyed one");
}

int cl_find_overlaps(const State *fresh, Overlap found[OVERLAPS]) {
  struct {
    const void *start;
    size_t size;
  } own[3] = {{fresh->values, fresh->count * sizeof *fresh->values},
              {fresh->info.buffer, fresh->info.capacity},
              {fresh->error.buffer, fresh->error.capacity}};
  int count = 0;
  if (!cl_config()->lifetime) return 0;
  for (State *other = cl_states; other; other = other->next) {
    struct {
      const void *start;
      size_t size;
      atomic_bool *dead;
      const char *option;
    } its[3] = {
        {other->values, other->count * sizeof *other->values, &other->values_dead, "optionValues"},
        {other->info.buffer, other->info.capacity, &other->info.dead, cl_option_name(CU_JIT_INFO_LOG_BUFFER)},
        {other->error.buffer, other->error.capacity, &other->error.dead, cl_option_name(CU_JIT_ERROR_LOG_BUFFER)}};
    for (int at = 0; at < 9; at++)
      if (overlap(own[at / 3].start, own[at / 3].size, its[at % 3].start, its[at % 3].size) && count < OVERLAPS &&
          !atomic_exchange(its[at % 3].dead, true))
        found[count++] = (Overlap){.state = other->id, .option = its[at % 3].option};
  }
  return count;
}

void cl_report_overlaps(const State *fresh, const Overlap *found, int count) {
  char by[64];
  snprintf(by, sizeof by, "memory of state %llu", (unsigned long long)fresh->id);
  for (int at = 0; at < count; at++)
    violation(found[at].state, "cuLinkCreate_v2", found[at].option, "overlap with a newer state", "its own memory", by);
}
