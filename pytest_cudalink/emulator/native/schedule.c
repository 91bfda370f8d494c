/* Schedules: who draws what from a seed, what is due, and the log of it. */
#include "grow.h"
#include "locks.h"
#include "queues.h"

enum { SCHEDULE_LATE = UINT32_MAX };

/* A piece of work that was submitted under a schedule. Times are numbers of calls that the program made; 0: not yet. */
typedef struct {
  uint32_t number; /* from 1 on */
  uint32_t delay;  /* for how many calls it stayed pending; SCHEDULE_LATE: until something waited for it, or 200 */
  uint32_t stream; /* number of the stream, in the order of their first work; 0: that of no stream */
  uint64_t submitted, started, ended;
  const char *kind, *function, *call; /* the function that submitted it, and the one that it ended in */
} ScheduledWork;

typedef struct {
  ScheduledWork work;
  uint64_t thread; /* of the call, while that is not left */
  uint32_t site;   /* 0: none */
} Entry;

/* All of it under the lock of the streams. */
static struct {
  uint64_t seed;
  uint32_t *displaced; /* sorted */
  size_t displaced_count;
  bool all;
  uint64_t calls;   /* that were left */
  unsigned leaving; /* threads that are just leaving one */
  uint64_t questions, waits;
  uint64_t thread;   /* that called last; */
  bool threads;      /* more than one has */
  const char *actor; /* the function whose call does work */
  Entry *entries;
  size_t count, room;
  Stack *sites; /* of the calls that submitted work */
  size_t site_count, site_room;
  uint64_t *streams; /* by number */
  size_t stream_count, stream_room;
} now;
static Work *held;          /* works that nothing is before */
static atomic_bool unnoted; /* who submitted each */

static _Thread_local bool submitted_some;

/* -- drawing -- */

/* What a seed says to a question (splitmix64). */
static uint64_t draw(uint64_t number, uint64_t question) {
  uint64_t mixed = now.seed + (number * 8 + question) * 0x9E3779B97F4A7C15u;
  mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9u;
  mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EBu;
  return mixed ^ mixed >> 31;
}

enum { LATEST = 200 }; /* calls after which work is done that nothing waits for, as in a loop that looks at memory */
enum { HOW_LONG, IN_WHICH_ORDER, WHEN_TO_READ, WHETHER_IMPATIENT, WHETHER_LATE };

static int compare(const void *one, const void *other) {
  uint32_t first = *(const uint32_t *)one, second = *(const uint32_t *)other;
  return (first > second) - (first < second);
}

static bool may_be_displaced(uint32_t number) {
  return now.all ||
         (now.displaced_count && bsearch(&number, now.displaced, now.displaced_count, sizeof number, compare));
}

/* Of eight works two are not displaced, three are for up to four calls, one for up to 24, and two are late. */
static uint32_t draw_delay(uint32_t number) {
  uint64_t drawn = draw(number, HOW_LONG);
  if (!may_be_displaced(number)) return 0;
  switch (drawn & 7) {
    case 0:
    case 1: return 0;
    case 2:
    case 3:
    case 4: return 1 + (uint32_t)(drawn >> 8 & 3);
    case 5: return 1 + (uint32_t)((drawn >> 8) % 24);
    default: return SCHEDULE_LATE;
  }
}

/* -- the log -- */

static uint64_t this_call(void) { return now.calls + !now.leaving; }

static uint32_t stream_number(uint64_t id) {
  if (!id) return 0;
  for (uint32_t at = 0; at < now.stream_count; at++)
    if (now.streams[at] == id) return at + 1;
  if (!cl_grow(&now.streams, now.stream_count, &now.stream_room, sizeof *now.streams)) return 0;
  now.streams[now.stream_count++] = id;
  return now.stream_count;
}

static const char *kind_of(const Work *work) {
  switch (work->parameters.type) {
    case NODE_COPY: return "copy";
    case NODE_FILL: return "fill";
    case NODE_HOST: return "host function";
    case NODE_RECORD: return "record";
    case NODE_ALLOCATE: return "allocation";
    case NODE_FREE:
    case WORK_FREE: return "free";
    case NODE_MEMORY_OPERATIONS: return "memory operations";
    case WORK_CALLBACK: return "callback";
    case WORK_LAUNCHED: return "end of a graph";
    default: return NULL;
  }
}

static uint64_t this_thread(void) {
  static _Thread_local char own;
  return (uintptr_t)&own;
}

static Entry *entry_of(const Work *work) { return work->number ? &now.entries[work->number - 1] : NULL; }

/* -- what the queues ask -- */

static void submitted(Work *work) {
  const char *kind = kind_of(work);
  if (!kind || !cl_grow(&now.entries, now.count, &now.room, sizeof *now.entries)) return;
  uint32_t number = work->number = ++now.count, delay = draw_delay(number);
  uint64_t call = this_call();
  work->due = call + (delay == SCHEDULE_LATE ? LATEST : delay);
  work->reads_late = draw(number, WHEN_TO_READ) & 1;
  now.entries[number - 1] = (Entry){
      .work = {.number = number,
               .delay = delay,
               .stream = stream_number(work->stream),
               .submitted = call,
               .kind = kind,
               .function = cl_called()},
      .thread = this_thread(),
  };
  submitted_some = true;
}

static bool is_due(const Work *work) { return !work->number || work->hurried || work->due <= this_call(); }

static void ready(Work *work) {
  Entry *entry = entry_of(work);
  if (entry) entry->work.started = this_call();
  if (!is_due(work)) cl_begin_work(work);
  work->next = held;
  held = work;
}

/* Whether work is done before other work that is due too: displaced works in an order that is drawn. */
static bool is_first(const Work *one, const Work *other) {
  const Entry *first = entry_of(one), *second = entry_of(other);
  uint64_t early = first && first->work.delay ? draw(one->number, IN_WHICH_ORDER) : 0;
  uint64_t late = second && second->work.delay ? draw(other->number, IN_WHICH_ORDER) : 0;
  return early != late ? early < late : one->number < other->number;
}

static Work *next(bool calls) {
  Work **best = NULL;
  if (!cl_is_engine()) now.actor = cl_called();
  for (Work **at = &held; *at; at = &(*at)->next) {
    if (!is_due(*at) || (!calls && cl_calls_host(*at))) continue;
    if (!best || is_first(*at, *best)) best = at;
  }
  if (!best) return NULL;
  Work *work = *best;
  *best = work->next;
  return work;
}

static void done(const Work *work) {
  Entry *entry = entry_of(work);
  if (!entry) return;
  entry->work.ended = this_call();
  entry->work.call = now.actor;
}

/* A program that asks again and again is answered in the end. */
static bool impatient(void) { return !(draw(++now.questions, WHETHER_IMPATIENT) & 3); }

/* Waking up late makes a difference to other threads alone. */
static bool is_late(void) { return now.threads && !(draw(++now.waits, WHETHER_LATE) & 3); }

static const Scheduler scheduler = {submitted, ready, next, done, is_late, impatient};

/* -- calls -- */

bool cl_notes_submitters(void) { return !atomic_load(&unnoted); }

/* Gives the works that this thread submitted in its call the place of that. */
static void note_site(Stack *stack) {
  uint64_t thread = this_thread();
  bool kept = cl_grow(&now.sites, now.site_count, &now.site_room, sizeof *now.sites);
  if (kept) now.sites[now.site_count++] = *stack;
  else cl_free_stack(stack);
  for (uint32_t at = now.count; at-- > 0;) {
    Entry *entry = &now.entries[at];
    if (entry->thread == thread && kept) entry->site = now.site_count;
    if (entry->work.submitted < this_call() && entry->thread != thread) break;
    if (entry->thread == thread) entry->thread = 0;
  }
}

static void leave(void) {
  if (cl_in_host_function) return;
  Stack stack = {.depth = 0};
  bool noted = submitted_some && cl_notes_submitters();
  submitted_some = false;
  if (noted) cl_note_stack(&stack); /* never under the lock */
  HOLD_STREAMS();
  if (noted) note_site(&stack);
  if (now.calls && now.thread != this_thread()) now.threads = true;
  now.thread = this_thread();
  now.calls++;
  now.leaving++;
  cl_progress();
  now.leaving--;
}

/* -- beginning and ending -- */

static void end_schedule(void) {
  if (!cl_scheduled()) return;
  cl_hurry_all();
  cl_progress();
  cl_schedule(NULL);
  atomic_store(&unnoted, false);
  atomic_store(&cl_call_end, NULL);
}

static void forget_log(void) {
  for (uint32_t at = 0; at < now.site_count; at++) cl_free_stack(&now.sites[at]);
  now.count = now.site_count = now.stream_count = 0;
}

/* Begins a schedule: work of the given numbers, which rise, is displaced, or any if `all`; `stacks`: whether to note
   who submitted each. The one before ends. */
EXPORT int cudalinkStartSchedule(uint64_t seed, const uint32_t *displaced, size_t count, int all, int stacks) {
  uint32_t *copy = malloc(count * sizeof *copy + 1);
  if (!copy) return CUDA_ERROR_OUT_OF_MEMORY;
  if (count) memcpy(copy, displaced, count * sizeof *copy);
  HOLD_STREAMS();
  end_schedule();
  forget_log();
  free(now.displaced);
  now.seed = seed;
  now.displaced = copy;
  now.displaced_count = count;
  now.all = all;
  atomic_store(&unnoted, !stacks);
  now.calls = now.questions = now.waits = 0;
  now.threads = false;
  cl_schedule(&scheduler);
  atomic_store(&cl_call_end, leave);
  return CUDA_SUCCESS;
}

/* Does what is pending, as far as no gate holds it up, and goes back to doing work as soon as it may be done. */
EXPORT void cudalinkEndSchedule(void) {
  HOLD_STREAMS();
  end_schedule();
}

/* How many pieces of work were submitted under the last schedule. */
EXPORT uint32_t cudalinkScheduledCount(void) {
  HOLD_STREAMS();
  return now.count;
}

/* One of them, and the stack of its submission as lines; returns the size of that with the NUL, 0: there is none. */
EXPORT size_t cudalinkScheduledWork(uint32_t number, ScheduledWork *out, char *stack, size_t size) {
  HOLD_STREAMS();
  bool known = number && number <= now.count;
  uint32_t site = known ? now.entries[number - 1].site : 0;
  if (known) *out = now.entries[number - 1].work;
  return site ? cl_write_stack(&now.sites[site - 1], stack, size) : 0;
}

/* A forked child has none of the work. */
static void forget(void) {
  held = NULL;
  now.leaving = 0;
  forget_log();
  atomic_store(&cl_call_end, NULL);
}

FORGET_IN_CHILDREN(forget);
