/* The use of what is dead: a handle after its end, memory after it was freed. */
#include <stdio.h>
#include <string.h>

#include "config.h"
#include "handles.h"
#include "violations.h"

/* The first that this thread's call was given. */
static _Thread_local DeadHandle used;

void cl_note_dead_use(HandleKind kind, uint64_t number, Site *end) {
  if (!used.kind) used = (DeadHandle){kind, number, cl_site_keep(end)};
}

bool cl_used_dead(HandleKind kind) { return kind && used.kind == kind; }

void cl_check_dead_use(const char *call, unsigned kinds) {
  if (!used.kind) return;
  DeadHandle use = used;
  used = (DeadHandle){0};
  const struct KindName *kind = &cl_kinds[use.kind];
  const char *after = use.end ? use.end->call : "its end";
  bool memory = !strcmp(kind->type, "CUdeviceptr");
  /* what was of a context may not be used after it, by whatever function (CUDA Driver API, cuCtxDestroy) */
  bool orphan = !memory && use.kind != HANDLE_CONTEXT && !strncmp(after, "cuCtxDestroy", strlen("cuCtxDestroy"));
  if (cl_config()->lifetime && (orphan || kinds >> use.kind & 1)) {
    char what[64], expected[64];
    snprintf(what, sizeof what, "used after %s", after);
    if (memory) snprintf(expected, sizeof expected, "%s that is allocated", kind->name);
    else
      snprintf(expected, sizeof expected, "%s %s that is alive", strchr("aei", *kind->name) ? "an" : "a", kind->name);
    cl_note_violation_of(&(Violation){
        .kind = kind->name,
        .number = use.number,
        .rule = kind->type,
        .what = what,
        .call = call,
        .after = after,
        .expected = expected,
        .found = memory ? "an address of freed memory" : "the handle of a destroyed one",
        .maker = use.end ? use.end->call : NULL,
        .made = use.end ? &use.end->stack : NULL,
    });
  }
  cl_site_drop(use.end);
  cl_report_violations();
}
