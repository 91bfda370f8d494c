/* Objects, and their handles that are alive: a hash table with open addresses. */
#include "handles.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

#include "locks.h"

typedef struct {
  const void *handle; /* NULL: free */
  HandleKind kind;
} Entry;

static struct {
  Entry *entries;
  size_t count, room; /* room is a power of two, and at least twice as large as count */
} table;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

OPEN_IN_CHILDREN(lock);

static size_t home(const void *handle) {
  return (size_t)(((uintptr_t)handle * 0x9e3779b97f4a7c15u) >> 20) & (table.room - 1);
}

/* Where a handle is, or where it would be entered. */
static size_t place(const void *handle) {
  size_t at = home(handle);
  while (table.entries[at].handle && table.entries[at].handle != handle) at = (at + 1) & (table.room - 1);
  return at;
}

static bool grow(void) {
  Entry *old = table.entries;
  size_t room = table.room, larger = room ? 2 * room : 256;
  Entry *entries = calloc(larger, sizeof *entries);
  if (!entries) return false;
  table.entries = entries;
  table.room = larger;
  for (size_t at = 0; at < room; at++)
    if (old[at].handle) entries[place(old[at].handle)] = old[at];
  free(old);
  return true;
}

static bool add(const void *handle, HandleKind kind) {
  HOLD(lock);
  bool fits = 2 * (table.count + 1) <= table.room || grow();
  if (fits) {
    Entry *entry = &table.entries[place(handle)];
    if (!entry->handle) table.count++;
    *entry = (Entry){handle, kind};
  }
  return fits;
}

bool cl_handle_is(const void *handle, HandleKind kind) {
  HOLD(lock);
  return handle && table.room && table.entries[place(handle)].handle && table.entries[place(handle)].kind == kind;
}

static void take_out(const void *handle) {
  HOLD(lock);
  /* what was entered behind it moves up, so that no search ends too early */
  for (size_t at = place(handle), next = at;;) {
    table.entries[at].handle = NULL;
    do next = (next + 1) & (table.room - 1);
    while (table.entries[next].handle &&
           ((next - home(table.entries[next].handle)) & (table.room - 1)) < ((next - at) & (table.room - 1)));
    if (!table.entries[next].handle) break;
    table.entries[at] = table.entries[next];
    at = next;
  }
  table.count--;
}

size_t cl_handles_alive(HandleKind kind) {
  size_t count = 0;
  HOLD(lock);
  for (size_t at = 0; at < table.room; at++) count += table.entries[at].handle && table.entries[at].kind == kind;
  return count;
}

/* -- objects -- */

bool cl_object_enter(Object *object, HandleKind kind, Context *context, Objects *list) {
  if (kind != NO_HANDLE && !add(object, kind)) return false;
  *object = (Object){.kind = kind, .context = context, .list = list};
  if (!list) return true;
  object->behind = list->first;
  if (list->first) list->first->before = object;
  list->first = object;
  return true;
}

void *cl_object_make(size_t size, HandleKind kind, Context *context, Objects *list) {
  Object *object = calloc(1, size);
  if (object && cl_object_enter(object, kind, context, list)) return object;
  free(object);
  return NULL;
}

void cl_object_unname(Object *object) {
  if (object->kind != NO_HANDLE) take_out(object);
  object->kind = NO_HANDLE;
}

void cl_object_end(Object *object) {
  Objects *list = object->list;
  cl_object_unname(object);
  if (list) {
    if (object->before) object->before->behind = object->behind;
    else list->first = object->behind;
    if (object->behind) object->behind->before = object->before;
  }
  if (list && list->free) list->free(object);
  else free(object);
}

size_t cl_objects_end(const Objects *list, const Context *context) {
  size_t count = 0;
  pthread_mutex_lock(list->lock);
  for (Object *object = list->first, *next; object; object = next) {
    next = object->behind;
    if (object->context != context) continue;
    cl_object_end(object);
    count++;
  }
  pthread_mutex_unlock(list->lock);
  return count;
}
