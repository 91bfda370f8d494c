/* The handles that are alive: a hash table with open addresses. */
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

bool cl_handle_add(const void *handle, HandleKind kind) {
  pthread_mutex_lock(&lock);
  bool fits = 2 * (table.count + 1) <= table.room || grow();
  if (fits) {
    Entry *entry = &table.entries[place(handle)];
    if (!entry->handle) table.count++;
    *entry = (Entry){handle, kind};
  }
  pthread_mutex_unlock(&lock);
  return fits;
}

void *cl_handle_make(size_t size, HandleKind kind) {
  void *object = calloc(1, size);
  if (object && cl_handle_add(object, kind)) return object;
  free(object);
  return NULL;
}

bool cl_handle_is(const void *handle, HandleKind kind) {
  pthread_mutex_lock(&lock);
  bool alive = handle && table.room && table.entries[place(handle)].handle && table.entries[place(handle)].kind == kind;
  pthread_mutex_unlock(&lock);
  return alive;
}

bool cl_handle_remove(const void *handle, HandleKind kind) {
  pthread_mutex_lock(&lock);
  bool alive = false;
  if (handle && table.room) {
    size_t at = place(handle);
    alive = table.entries[at].handle && table.entries[at].kind == kind;
    /* what was entered behind it moves up, so that no search ends too early */
    for (size_t next = at; alive;) {
      table.entries[at].handle = NULL;
      do next = (next + 1) & (table.room - 1);
      while (table.entries[next].handle &&
             ((next - home(table.entries[next].handle)) & (table.room - 1)) < ((next - at) & (table.room - 1)));
      if (!table.entries[next].handle) break;
      table.entries[at] = table.entries[next];
      at = next;
    }
    if (alive) table.count--;
  }
  pthread_mutex_unlock(&lock);
  return alive;
}

size_t cl_handles_alive(HandleKind kind) {
  size_t count = 0;
  pthread_mutex_lock(&lock);
  for (size_t at = 0; at < table.room; at++) count += table.entries[at].handle && table.entries[at].kind == kind;
  pthread_mutex_unlock(&lock);
  return count;
}
