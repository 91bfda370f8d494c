/* Preloaded: writes to the file $LOCK_ORDER each pair of locks of which a thread took the second while it held the
   first, as places in the driver; a lock in the heap, which is a link state's, is at 0. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_HELD = 16, PAIRS = 4096 };

typedef int Act(pthread_mutex_t *mutex);

typedef int SharedAct(pthread_rwlock_t *lock);

static Act *real_lock, *real_unlock;
static SharedAct *real_read, *real_write, *real_drop;
static _Thread_local uintptr_t held[MOST_HELD];
static _Thread_local unsigned held_count;
static _Atomic uint64_t pairs[PAIRS];

__attribute__((constructor)) static void find(void) {
  real_lock = (Act *)dlsym(RTLD_NEXT, "pthread_mutex_lock");
  real_unlock = (Act *)dlsym(RTLD_NEXT, "pthread_mutex_unlock");
  real_read = (SharedAct *)dlsym(RTLD_NEXT, "pthread_rwlock_rdlock");
  real_write = (SharedAct *)dlsym(RTLD_NEXT, "pthread_rwlock_wrlock");
  real_drop = (SharedAct *)dlsym(RTLD_NEXT, "pthread_rwlock_unlock");
}

/* Where the driver lies, and the first and the last lock that were seen there: looking one up takes long. */
static _Atomic uintptr_t base, first = UINTPTR_MAX, last;

/* The place of a lock in the driver, or 0 in the heap; false for a lock of another library. */
static bool is_ours(const void *mutex, uintptr_t *place) {
  uintptr_t at = (uintptr_t)mutex;
  Dl_info library;
  bool known = at >= first && at <= last;
  *place = known ? at - base : 0;
  if (known || !dladdr(mutex, &library)) return 1;
  if (!strstr(library.dli_fname, "/libcuda.so.1")) return 0;
  base = (uintptr_t)library.dli_fbase;
  if (at < first) first = at;
  if (at > last) last = at;
  *place = at - base;
  return 1;
}

static void note(uintptr_t outer, uintptr_t inner) {
  uint64_t pair = (uint64_t)outer << 32 | inner, none = 0;
  if (!pair) return; /* of two locks of the heap nothing is known */
  for (unsigned at = 0; at < PAIRS; at++, none = 0)
    if (atomic_compare_exchange_strong(&pairs[at], &none, pair) || none == pair) return;
  abort();
}

static int taken(int result, const void *lock) {
  uintptr_t place;
  if (result || !is_ours(lock, &place)) return result;
  for (unsigned at = 0; at < held_count; at++) note(held[at], place);
  if (held_count == MOST_HELD) abort();
  held[held_count++] = place;
  return result;
}

static void given(const void *lock) {
  uintptr_t place;
  unsigned at = held_count;
  if (!is_ours(lock, &place)) return;
  while (at && held[at - 1] != place) at--;
  if (at) memmove(&held[at - 1], &held[at], (held_count-- - at) * sizeof *held);
}

int pthread_mutex_lock(pthread_mutex_t *mutex) { return taken(real_lock(mutex), mutex); }

int pthread_mutex_unlock(pthread_mutex_t *mutex) {
  given(mutex);
  return real_unlock(mutex);
}

int pthread_rwlock_rdlock(pthread_rwlock_t *lock) { return taken(real_read(lock), lock); }

int pthread_rwlock_wrlock(pthread_rwlock_t *lock) { return taken(real_write(lock), lock); }

int pthread_rwlock_unlock(pthread_rwlock_t *lock) {
  given(lock);
  return real_drop(lock);
}

__attribute__((destructor)) static void report(void) {
  const char *path = getenv("LOCK_ORDER");
  FILE *file = path ? fopen(path, "a") : NULL;
  for (unsigned at = 0; file && at < PAIRS && pairs[at]; at++)
    fprintf(file, "%llu %llu\n", (unsigned long long)(pairs[at] >> 32), (unsigned long long)(uint32_t)pairs[at]);
  if (file) fclose(file);
}
