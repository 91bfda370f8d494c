/* Objects, and their handles: a hash table with open addresses. */
#include "handles.h"

#include <stdlib.h>

#include "locks.h"

const struct KindName cl_kinds[] = {
#define HANDLE_KIND_ROWS
#include "names.inc"
};

enum { REMEMBERED = 1024 };

typedef struct {
  const void *handle; /* NULL: there is nothing in it */
  DeadHandle died;
} Grave;

typedef struct {
  const void *handle; /* NULL: free */
  HandleKind kind;    /* NO_HANDLE: it is dead */
  Grave *grave;       /* of a dead one */
} Entry;

static struct {
  Entry *entries;
  size_t count, room; /* room is a power of two, and at least twice as large as count */
  uint64_t numbers[HANDLE_KINDS];
  Grave graves[REMEMBERED];
  size_t buried; /* how many ever */
} table;

STATIC_LOCK(lock);

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

static void empty(Grave *grave) {
  cl_site_drop(grave->died.end);
  *grave = (Grave){0};
}

/* Returns the number among those of the kind; 0 if memory is out. */
static uint64_t add(const void *handle, HandleKind kind) {
  HOLD(lock);
  bool fits = 2 * (table.count + 1) <= table.room || grow();
  if (!fits) return 0;
  Entry *entry = &table.entries[place(handle)];
  if (!entry->handle) table.count++;
  if (entry->grave) empty(entry->grave);
  *entry = (Entry){.handle = handle, .kind = kind};
  return ++table.numbers[kind];
}

bool cl_handle_is(const void *handle, HandleKind kind) {
  HOLD(lock);
  const Entry *entry = handle && table.room ? &table.entries[place(handle)] : NULL;
  if (!entry || !entry->handle) return false;
  if (entry->grave && entry->grave->died.kind == kind)
    cl_note_dead_use(kind, entry->grave->died.number, entry->grave->died.end);
  return entry->kind == kind;
}

static void take_out(const void *handle) {
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

/* Leaves the handle of an object in the table as a dead one; or as one whose uses are noted, if it goes on. */
static void bury(const Object *object, bool goes_on) {
  HOLD(lock);
  Grave *grave = &table.graves[table.buried++ % REMEMBERED];
  Entry *entry = grave->handle ? &table.entries[place(grave->handle)] : NULL;
  if (entry && entry->kind != NO_HANDLE) entry->grave = NULL;
  else if (entry) take_out(grave->handle);
  empty(grave);
  entry = &table.entries[place(object)];
  if (entry->grave) empty(entry->grave);
  *grave = (Grave){object, {object->kind, object->number, cl_site_keep(cl_site())}};
  if (!goes_on) entry->kind = NO_HANDLE;
  entry->grave = grave;
}

size_t cl_handles_alive(HandleKind kind) {
  size_t count = 0;
  HOLD(lock);
  for (size_t at = 0; at < table.room; at++) count += table.entries[at].handle && table.entries[at].kind == kind;
  return count;
}

bool cl_object_enter(Object *object, HandleKind kind, Context *context, Objects *list) {
  uint64_t number = kind == NO_HANDLE ? 0 : add(object, kind);
  if (kind != NO_HANDLE && !number) return false;
  *object = (Object){.kind = kind, .number = number, .context = context, .list = list};
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
  if (object->kind != NO_HANDLE) bury(object, false);
  object->kind = NO_HANDLE;
}

void cl_object_orphan(const Object *object) {
  if (object->kind != NO_HANDLE) bury(object, true);
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
