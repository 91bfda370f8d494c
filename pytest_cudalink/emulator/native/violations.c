/* Violations: counting them, and handing them to Python or to the process above. */
#include "violations.h"

#include <execinfo.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

#include "abi.h"
#include "notes.h"

typedef void Hook(const char *event);
static _Atomic(Hook *) violation_hook;
static _Atomic pid_t hooked; /* the process that set it: in a forked one no plugin reads what it notes */
static atomic_uint_least64_t violations;

/* Called for each violation with its event, in the thread that made it, before the call returns. */
EXPORT void cudalinkSetViolationHook(Hook *hook) {
  atomic_store(&violation_hook, hook);
  atomic_store(&hooked, hook ? getpid() : 0);
}

/* How many there ever were, also those that the hook did not get because memory was out. */
EXPORT uint64_t cudalinkViolationCount(void) { return atomic_load(&violations); }

enum { STACK_ROOM = 900, VALUE_ROOM = 96, SENTENCE_ROOM = 640 }; /* in an event */

typedef struct Report {
  struct Report *next;
  char event[sizeof(EventLine)];
} Report;

static _Thread_local Report *unreported; /* oldest first */

void cl_note_violation_of(const Violation *one) {
  EventLine line;
  Stack here = {0};
  if (!one->noticed) here.depth = backtrace(here.frames, STACK_FRAMES);
  cl_event_begin(&line);
  cl_event_uint(&line, "violation", atomic_fetch_add(&violations, 1) + 1);
  cl_event_text(&line, "object", one->kind, VALUE_ROOM);
  cl_event_uint(&line, "number", one->number);
  cl_event_text(&line, "option", one->rule, VALUE_ROOM);
  cl_event_text(&line, "what", one->what, one->noticed ? SENTENCE_ROOM : VALUE_ROOM);
  if (one->after) cl_event_text(&line, "after", one->after, VALUE_ROOM);
  cl_event_text(&line, "expected", one->expected, VALUE_ROOM);
  cl_event_text(&line, "found", one->found, VALUE_ROOM);
  cl_event_text(&line, "call", one->call, VALUE_ROOM);
  if (one->made) {
    cl_event_text(&line, "maker", one->maker, VALUE_ROOM);
    cl_event_stack(&line, "made", one->made, STACK_ROOM);
    if (!one->made->python) cl_event_bool(&line, "made native", true);
  }
  if (one->threads) {
    cl_event_list(&line, "threads");
    for (const int *thread = one->threads; *thread; thread++) cl_event_int(&line, NULL, *thread);
    cl_event_list_end(&line);
  }
  if (one->noticed) cl_event_text(&line, "fix", one->fix, SENTENCE_ROOM);
  const Stack *stack = one->noticed ? one->noticed : &here;
  cl_event_stack(&line, "stack", stack, STACK_ROOM);
  if (!stack->python) cl_event_bool(&line, "stack native", true);
  cl_event_end(&line);
  if (atomic_load(&hooked) != getpid()) {
    char sentence[512];
    snprintf(sentence, sizeof sentence, "%s %llu: %s: %s, noticed by %s; expected %s, found %s", one->kind,
             (unsigned long long)one->number, one->rule, one->what, one->call, one->expected, one->found);
    cl_note_violation(&line, sentence, one->fix);
    return;
  }
  Report *fresh = malloc(sizeof *fresh), **last = &unreported;
  if (!fresh) return;
  fresh->next = NULL;
  snprintf(fresh->event, sizeof fresh->event, "{%s}", line.text + 1); /* without the comma of the first member */
  while (*last) last = &(*last)->next;
  *last = fresh;
}

void cl_report_violations(void) {
  Hook *hook = atomic_load(&violation_hook);
  while (unreported) {
    Report *one = unreported;
    unreported = one->next;
    if (hook) hook(one->event);
    free(one);
  }
}
