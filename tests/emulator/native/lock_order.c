/* Preloaded: writes to the file $LOCK_ORDER each pair of locks of which a thread took the second while it held the
   first, as places in the driver; a lock in the heap, which is a link state's, is at 0. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_HELD = 16, PAIRS = 4096 };

typedef int Act(void *lock);

static Act *lock_mutex, *unlock_mutex, *read_lock, *write_lock, *unlock_shared;
static _Thread_local uintptr_t held[MOST_HELD];
static _Thread_local unsigned held_count;
static _Atomic uint64_t pairs[PAIRS];

__attribute__((constructor)) static void find(void) {
  lock_mutex = (Act *)dlsym(RTLD_NEXT, "pthread_mutex_lock");
  unlock_mutex = (Act *)dlsym(RTLD_NEXT, "pthread_mutex_unlock");
  read_lock = (Act *)dlsym(RTLD_NEXT, "pthread_rwlock_rdlock");
  write_lock = (Act *)dlsym(RTLD_NEXT, "pthread_rwlock_wrlock");
  unlock_shared = (Act *)dlsym(RTLD_NEXT, "pthread_rwlock_unlock");
}

/* Where the driver lies, and the first and the last lock that were seen there: looking one up takes long. */
static _Atomic uintptr_t base, first = UINTPTR_MAX, last;

/* The place of a lock in the driver, or 0 in the heap; false for a lock of another library. */
static bool is_ours(const void *lock, uintptr_t *place) {
  uintptr_t at = (uintptr_t)lock;
  Dl_info library;
  bool known = at >= first && at <= last;
  *place = known ? at - base : 0;
  if (known || !dladdr(lock, &library)) return 1;
  if (!strstr(library.dli_fname, "/libcuda.so.1")) return 0;
  base = (uintptr_t)library.dli_fbase;
  if (at < first) first = at;
  if (at > last) last = at;
  *place = at - base;
  return 1;
}

static void note(uintptr_t outer, uintptr_t inner) {
  uint64_t pair = (uint64_t)outer << 32 | inner, none = 0;
  if (outer == inner) return; /* of two locks of the heap nothing is known; a shared lock may be taken twice */
  for (unsigned at = 0; at < PAIRS; at++, none = 0)
    if (atomic_compare_exchange_strong(&pairs[at], &none, pair) || none == pair) return;
  abort();
}

static int take(Act *act, void *lock) {
  uintptr_t place;
  int result = act(lock);
  if (result || !is_ours(lock, &place)) return result;
  for (unsigned at = 0; at < held_count; at++) note(held[at], place);
  if (held_count == MOST_HELD) abort();
  held[held_count++] = place;
  return result;
}

static int release(Act *act, void *lock) {
  uintptr_t place;
  unsigned at = held_count;
  if (is_ours(lock, &place)) {
    while (at && held[at - 1] != place) at--;
    if (at) memmove(&held[at - 1], &held[at], (held_count-- - at) * sizeof *held);
  }
  return act(lock);
}

int pthread_mutex_lock(pthread_mutex_t *mutex) { return take(lock_mutex, mutex); }
int pthread_mutex_unlock(pthread_mutex_t *mutex) { return release(unlock_mutex, mutex); }
int pthread_rwlock_rdlock(pthread_rwlock_t *lock) { return take(read_lock, lock); }
int pthread_rwlock_wrlock(pthread_rwlock_t *lock) { return take(write_lock, lock); }
int pthread_rwlock_unlock(pthread_rwlock_t *lock) { return release(unlock_shared, lock); }

__attribute__((destructor)) static void report(void) {
  const char *path = getenv("LOCK_ORDER");
  FILE *file = path ? fopen(path, "a") : NULL;
  for (unsigned at = 0; file && at < PAIRS && pairs[at]; at++)
    fprintf(file, "%llu %llu\n", (unsigned long long)(pairs[at] >> 32), (unsigned long long)(uint32_t)pairs[at]);
  if (file) fclose(file);
}
