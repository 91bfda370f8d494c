/* The call sites of works, and naming the pairs of accesses that nothing orders. */
#include "order_findings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "violations.h"

atomic_bool cl_order_on;

void cl_watch_site(Sym symbol, bool entered) {
  if (!entered) cl_report_violations();
  else if (cl_symbols[symbol].makes_accesses) cl_site_note(cl_symbols[symbol].name);
}

enum { NAMED = 512 };
static uint64_t named[NAMED], number; /* under the lock of those who call */
static unsigned named_count;

static bool shares; /* it was noted */

static void *reserve; /* memory that the last finding takes */

void cl_forget_findings(void) {
  enum { RESERVE = 1 << 17 };
  if (!reserve) reserve = malloc(RESERVE);
  named_count = 0;
  shares = false;
}

static bool is_new(const Finding *pair) {
  uint64_t hash = cl_hash(0, pair->kinds, sizeof pair->kinds);
  for (unsigned at = 0; at < 2; at++)
    if (pair->sites[at]) hash = cl_hash_stack(hash, &pair->sites[at]->stack);
  for (unsigned at = 0; at < named_count && at < NAMED; at++)
    if (named[at] == hash) return false;
  named[named_count++ % NAMED] = hash;
  return true;
}

static const char *call_of(const Site *site) { return site ? site->call : "a call"; }

static const Stack *stack_of(const Site *site) {
  static const Stack none;
  return site ? &site->stack : &none;
}

void cl_order_finding(const Finding *pair) {
  static const char *const does[] = {"reads them", "writes them", "writes values to them", "allocates them",
                                     "gives them up"};
  char what[320], fix[320], size[40];
  if (!is_new(pair)) return;
  const char *first = call_of(pair->sites[0]), *second = call_of(pair->sites[1]);
  snprintf(size, sizeof size, "%zu byte%s", pair->size, pair->size == 1 ? "" : "s");
  snprintf(what, sizeof what, "nothing orders two accesses to %s at %p: %s %s, by %s, and %s %s, by %s", size,
           (const void *)pair->start, pair->where[0], does[pair->kinds[0]], first, pair->where[1], does[pair->kinds[1]],
           second);
  if (pair->sites[0] && pair->sites[0] == pair->sites[1] && !strcmp(pair->where[0], pair->where[1]))
    snprintf(fix, sizeof fix, "Let one of the two nodes depend on the other (cuGraphAddDependencies).");
  else if (!strcmp(pair->where[1], "the host"))
    snprintf(fix, sizeof fix, "Wait for %s (cuStreamSynchronize) before %s.", pair->where[0], second);
  else if (!strcmp(pair->where[0], "the host"))
    snprintf(fix, sizeof fix, "Wait for %s (cuStreamSynchronize) before %s.", pair->where[1], first);
  else
    snprintf(fix, sizeof fix,
             "Record an event in %s after %s (cuEventRecord), and let %s wait for it (cuStreamWaitEvent) before %s.",
             pair->where[0], first, pair->where[1], second);
  cl_note_violation_of(&(Violation){
      .kind = "order",
      .number = ++number,
      .rule = "order of accesses",
      .what = what,
      .call = second,
      .expected = "one before the other",
      .found = size,
      .fix = fix,
      .maker = first,
      .made = stack_of(pair->sites[0]),
      .noticed = stack_of(pair->sites[1]),
  });
}

static void note_limit(const char *what, const char *expected, const char *found, const char *fix) {
  const Site *site = cl_site();
  cl_note_violation_of(&(Violation){
      .kind = "order",
      .number = ++number,
      .rule = "order of accesses",
      .what = what,
      .call = call_of(site),
      .expected = expected,
      .found = found,
      .fix = fix,
      .maker = call_of(site),
      .made = stack_of(site),
      .noticed = stack_of(site),
  });
}

void cl_order_ends(const char *why) {
  if (!atomic_exchange(&cl_order_on, false)) return;
  free(reserve);
  reserve = NULL;
  note_limit("the check of order ends here: what comes later in this test is not compared", "memory for all accesses",
             why, "Give the process more memory, or wait for streams more often (cuStreamSynchronize).");
}

void cl_order_shares(void) {
  if (shares) return;
  shares = true;
  note_limit("more streams have work that nothing waited for than the check of order tells apart: pairs of accesses of "
             "the others are not found",
             "at most 1,023 such streams and branches of graphs", "more",
             "Wait for streams that are done (cuStreamSynchronize), or use fewer at a time.");
}
