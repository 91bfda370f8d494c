/* Who called: the frames of a thread, and the lines of Python that it runs. */
#include "call_stacks.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>

#include "abi.h"
#include "grow.h"
#include "locks.h"

/* The functions of Python's C API that are needed here: the driver is not linked with Python, so Python hands them
   over. Calling a function written in Python would be shorter, but an interrupt could arrive in it and be lost. */
typedef struct {
  void *(*thread_state)(void);
  int (*ensure)(void);
  void (*release)(int);
  void (*fetch)(void **type, void **value, void **trace);
  void (*restore)(void *type, void *value, void *trace);
  void *(*frame)(void);
  void *(*back)(void *frame);
  void *(*code)(void *frame);
  int (*line)(void *frame);
  void *(*attribute)(void *object, const char *name);
  const char *(*text)(void *object);
  void (*keep)(void *object);
  void (*drop)(void *object);
  int (*holds)(void);
  void *(*import)(const char *name);
  void *(*call)(void *object, const char *method, const char *format, ...);
} Python;

static _Atomic(const Python *) python;

/* Sets the table of Python's functions, which must stay where it is; NULL: no lines of Python are noted from now on. */
EXPORT void cudalinkSetPython(const Python *functions) { atomic_store(&python, functions); }

enum { PYTHON_LINES = 64, OWN_LINES = 3, SITE_LINES = 16 };
enum { LINE_ROOM = 512, PATH_ROOM = 377, FRAME_ROOM = 160, ESCAPE_ROOM = 16 };

/* Where the end of a text begins that has room, between two characters: the end of a path says most. */
static const char *end_of(const char *text, size_t length, size_t room) {
  const char *at = length > room ? text + length - room : text;
  while (at > text && (*at & 0xc0) == 0x80) at++;
  return at;
}

/* One line: file, number and function. */
static int describe_line(const Python *api, void *frame, char *line) {
  void *code = api->code(frame);
  void *file = api->attribute(code, "co_filename"), *name = api->attribute(code, "co_name");
  const char *file_text = file ? api->text(file) : NULL, *name_text = name ? api->text(name) : NULL;
  if (!file_text) file_text = "?";
  const char *end = end_of(file_text, strlen(file_text), PATH_ROOM);
  int length = snprintf(line, LINE_ROOM, "%s%s:%d in %.100s\n", end > file_text ? "..." : "", end, api->line(frame),
                        name_text ? name_text : "?");
  for (char *at = line; at < line + length - 1; at++)
    if (*at == '\n') *at = '?';
  if (file) api->drop(file);
  if (name) api->drop(name);
  api->drop(code);
  return length;
}

/* Only in a thread that Python knows: another one would wait for a lock that its own waiter may hold. */
static char *python_lines(int most) {
  const Python *api = atomic_load(&python);
  if (!api || !api->thread_state()) return NULL;
  int held = api->ensure();
  void *type, *value, *trace;
  api->fetch(&type, &value, &trace);
  char *lines = NULL;
  size_t length = 0, room = 0;
  void *frame = api->frame();
  if (frame) api->keep(frame);
  for (int count = 0; frame && count < most; count++) {
    if (!cl_grow(&lines, length + LINE_ROOM, &room, 1)) break;
    length += (size_t)describe_line(api, frame, lines + length);
    void *outer = api->back(frame);
    api->drop(frame);
    frame = outer;
  }
  if (frame) api->drop(frame);
  api->restore(type, value, trace); /* also drops what failed above */
  api->release(held);
  return lines;
}

bool cl_holds_python(void) {
  const Python *api = atomic_load(&python);
  return api && api->thread_state() && api->holds();
}

bool cl_python_catches_interrupts(void) {
  const Python *api = atomic_load(&python);
  if (!api || !api->thread_state()) return false;
  int held = api->ensure();
  void *type, *value, *trace;
  api->fetch(&type, &value, &trace);
  void *module = api->import("_signal");
  void *handler = module ? api->call(module, "getsignal", "i", SIGINT) : NULL;
  void *usual = module ? api->attribute(module, "default_int_handler") : NULL;
  bool catches = handler && handler != usual;
  if (usual) api->drop(usual);
  if (handler) api->drop(handler);
  if (module) api->drop(module);
  api->restore(type, value, trace);
  api->release(held);
  return catches;
}

void cl_note_stack(Stack *stack) {
  stack->depth = backtrace(stack->frames, STACK_FRAMES);
  stack->python = python_lines(PYTHON_LINES);
}

void cl_free_stack(Stack *stack) {
  free(stack->python);
  stack->python = NULL;
}

uint64_t cl_hash(uint64_t hash, const void *bytes, size_t count) {
  if (!hash) hash = 0xcbf29ce484222325; /* FNV-1a */
  for (size_t at = 0; at < count; at++) hash = (hash ^ ((const unsigned char *)bytes)[at]) * 0x100000001b3;
  return hash;
}

uint64_t cl_hash_stack(uint64_t hash, const Stack *stack) {
  if (stack->python) return cl_hash(hash, stack->python, strlen(stack->python));
  return cl_hash(hash, stack->frames, (size_t)stack->depth * sizeof *stack->frames);
}

enum { BUCKETS = 4096 };

STATIC_LOCK(lock);           /* of the sites, behind all other locks */
static Site *sites[BUCKETS]; /* one for all calls from a place */
static _Thread_local Site *current;

Site *cl_site_keep(Site *site) {
  HOLD(lock);
  if (site) site->holders++;
  return site;
}

Site *cl_site(void) { return current; }

void cl_site_drop(Site *site) {
  HOLD(lock);
  if (!site || --site->holders) return;
  UNLINK(sites[site->hash % BUCKETS], site);
  cl_free_stack(&site->stack);
  free(site);
}

Site *cl_site_find(const char *call, Stack *stack) {
  const uint64_t hash = cl_hash_stack(cl_hash(0, call, strlen(call)), stack);
  HOLD(lock);
  Site *site = sites[hash % BUCKETS];
  while (site && site->hash != hash) site = site->next;
  if (site) site->holders++;
  Site *fresh = site ? NULL : malloc(sizeof *fresh);
  if (!fresh) return cl_free_stack(stack), site;
  *fresh = (Site){.holders = 1, .call = call, .stack = *stack, .hash = hash, .next = sites[hash % BUCKETS]};
  return sites[hash % BUCKETS] = fresh;
}

void cl_site_note(const char *call) {
  cl_site_forget();
  Stack stack = {.python = python_lines(SITE_LINES)};
  if (!stack.python) stack.depth = backtrace(stack.frames, STACK_FRAMES); /* no event shows both */
  current = cl_site_find(call, &stack);
}

void cl_site_forget(void) {
  if (current) cl_site_drop(current);
  current = NULL;
}

static int describe_frame(void *frame, char *text, size_t size) {
  Dl_info where;
  const char *file = "?";
  if (!dladdr(frame, &where)) memset(&where, 0, sizeof where);
  if (where.dli_fname) {
    const char *slash = strrchr(where.dli_fname, '/');
    file = slash ? slash + 1 : where.dli_fname;
  }
  return snprintf(text, size, "%.48s+0x%zx%s%.48s", file, (size_t)frame - (size_t)where.dli_fbase,
                  where.dli_sname ? " " : "", where.dli_sname ? where.dli_sname : "");
}

static void event_frames(EventLine *line, const char *name, const Stack *stack, int skipped, size_t room) {
  cl_event_list(line, name);
  size_t start = line->length;
  for (int frame = skipped; frame < stack->depth && line->length - start < room; frame++) {
    char text[128];
    describe_frame(stack->frames[frame], text, sizeof text);
    cl_event_text(line, NULL, text, FRAME_ROOM);
  }
  cl_event_list_end(line);
}

/* The number of frames that are in this library and below its exported functions. */
static int own_frames(const Stack *stack) {
  Dl_info own, where;
  int count = 0;
  if (!dladdr((void *)(uintptr_t)own_frames, &own)) return 0;
  while (count < stack->depth && dladdr(stack->frames[count], &where) && where.dli_fbase == own.dli_fbase &&
         !where.dli_sname)
    count++;
  return count;
}

void cl_event_stack(EventLine *line, const char *name, const Stack *stack, size_t room) {
  if (!stack->python) {
    event_frames(line, name, stack, own_frames(stack), room);
    return;
  }
  cl_event_list(line, name);
  const char *at = stack->python;
  for (int count = 0; *at && count < OWN_LINES; count++) {
    char text[LINE_ROOM];
    size_t length = strcspn(at, "\n");
    const char *end = end_of(at, length, room / OWN_LINES - ESCAPE_ROOM);
    snprintf(text, sizeof text, "%s%.*s", end > at ? "..." : "", (int)(at + length - end), end);
    cl_event_text(line, NULL, text, room / OWN_LINES);
    at += length + 1;
  }
  cl_event_list_end(line);
}

size_t cl_write_stack(const Stack *stack, char *buffer, size_t size) {
  size_t length = 0;
  for (int frame = own_frames(stack); frame < stack->depth; frame++) {
    char text[128];
    describe_frame(stack->frames[frame], text, sizeof text);
    length +=
        (size_t)snprintf(length < size ? buffer + length : NULL, length < size ? size - length : 0, "n%s\n", text);
  }
  for (const char *at = stack->python; at && *at; at += strcspn(at, "\n") + 1)
    length += (size_t)snprintf(length < size ? buffer + length : NULL, length < size ? size - length : 0, "p%.*s\n",
                               (int)strcspn(at, "\n"), at);
  return length + 1;
}
