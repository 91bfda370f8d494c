/* What is alive: the objects of the driver by kind, and their bytes, for who looks for leaks. */
#include <stdarg.h>
#include <stdio.h>

#include "blocks.h"
#include "capture.h"
#include "link_state.h"
#include "module_image.h"

/* Nodes go with their graph, and conditional handles too: to count them says nothing more. Modules, libraries and
   memory are counted apart. */
enum {
  NOT_COUNTED = 1u << HANDLE_GRAPH_NODE | 1u << HANDLE_CONDITIONAL | 1u << HANDLE_FUNCTION | 1u << HANDLE_MODULE |
  1u << HANDLE_LIBRARY | 1u << HANDLE_LIBRARY_MODULE | 1u << HANDLE_RESOURCE_DESCRIPTION | 1u << MEMORY_OF_POOL |
  1u << MEMORY_OF_PROCESS
};

/* Variables of modules go with their module. */
static const struct {
  Origin origin;
  const char *name;
} origins[] = {
    {FROM_ALLOCATION, "device memory"},
    {FROM_HOST_ALLOCATION, "host memory"},
    {FROM_REGISTRATION, "registered memory"},
    {FROM_POOL, "memory of a pool"},
    {FROM_POOL_OF_OTHER, "imported memory of a pool"},
    {FROM_IPC, "memory of another process"},
    {FROM_MAPPING, "mapping"},
    {FROM_EXTERNAL, "buffer of external memory"},
};

typedef struct {
  char *out;
  size_t size, length;
} Output;

static void write(Output *text, const char *format, ...) {
  va_list values;
  size_t room = text->length < text->size ? text->size - text->length : 0;
  va_start(values, format);
  text->length += (size_t)vsnprintf(room ? text->out + text->length : NULL, room, format, values);
  va_end(values);
}

static void add(Output *text, const char *name, size_t count, size_t bytes) {
  if (count) write(text, "%s:%zu:%zu\n", name, count, bytes);
}

/* Writes a line for each kind of which something is alive: its name, how many there are, and their bytes, 0 for what
   has none. Returns the size with the NUL that this takes, also where it does not fit. */
EXPORT size_t cudalinkAlive(char *out, size_t size) {
  Output text = {out, size, 0};
  if (size) *out = 0;
  for (HandleKind kind = NO_HANDLE + 1; kind < HANDLE_KINDS; kind++)
    if (!(NOT_COUNTED >> kind & 1)) add(&text, cl_kinds[kind].name, cl_handles_alive(kind), 0);
  for (size_t at = 0; at < sizeof origins / sizeof *origins; at++) {
    size_t bytes, count = cl_blocks_alive(origins[at].origin, &bytes);
    add(&text, origins[at].name, count, bytes);
  }
  size_t bytes, orphans = cl_blocks_orphaned(&bytes);
  add(&text, "allocation that only the end of its context freed", orphans, bytes);
  add(&text, "module", cl_handles_alive(HANDLE_MODULE), 0);
  add(&text, "module that only the end of its context unloaded", cl_modules_orphaned(), 0);
  add(&text, "library", cl_handles_alive(HANDLE_LIBRARY), 0);
  add(&text, "link state", cudalinkLiveStates(), 0);
  size_t uses, contexts = cl_contexts_alive(&uses);
  add(&text, "context", contexts, 0);
  add(&text, "use of a primary context", uses, 0);
  return text.length + 1;
}

static void write_stack(void *text, bool own, Context *const *list, size_t count) {
  if (!own && !count) return;
  write(text, own ? "stack" : "thread");
  for (size_t at = 0; at < count; at++) {
    const Context *context = list[at];
    if (context->primary) write(text, "\tprimary context of device %d", context->device);
    else write(text, context->green ? "\tgreen context" : "\tcontext");
  }
  write(text, "\n");
}

/* Writes what later calls depend on: a line for the calling thread's stack of contexts, outermost first, and for that
   of each other thread that has one; one with the number of open captures and the calling thread's mode of capture; one
   with that of captures that were ever invalidated, the call that last did, and whether another mode allows it.
   Returns the size with the NUL that this takes, also where it does not fit. */
EXPORT size_t cudalinkState(char *out, size_t size) {
  Output text = {out, size, 0};
  int mode;
  uint64_t invalid;
  const char *call;
  bool by_mode;
  size_t open = cl_captures_open(&mode, &invalid, &call, &by_mode);
  if (size) *out = 0;
  cl_each_stack(write_stack, &text);
  write(&text, "captures\t%zu\t%d\ninvalid\t%llu\t%s\t%d\n", open, mode, (unsigned long long)invalid, call, by_mode);
  return text.length + 1;
}
