/* Violations: rules of CUDA that the caller broke. */
#pragma once

#include "call_stacks.h"

typedef struct {
  const char *kind; /* of the object, in words */
  uint64_t number;  /* of the object, among those of its kind */
  const char *rule, *what, *call, *expected, *found;
  const char *after;    /* the call that ended the object, for a use after that; else NULL */
  const int *threads;   /* those that wait for each other, and 0; NULL: none */
  const char *fix;      /* a sentence */
  const char *maker;    /* the call that made the object, if `made` is known */
  const Stack *made;    /* who called it; NULL: Python asks for it */
  const Stack *noticed; /* who called `call`, and then `fix` is a member of the event; NULL: this thread does now */
} Violation;

/* Counts a violation, and notes it for the process above or for cl_report_violations. */
void cl_note_violation_of(const Violation *one);

/* Passes what this thread noted to the hook. Never under a lock: the hook waits for Python's lock, whose holder may
   wait for ours. */
void cl_report_violations(void);
