/* Locks and forks: a thread may hold a lock while another one forks, and in the child no thread would release it.

   The order of the driver's locks, each by the file that has it. A thread that holds one takes locks of lower rows
   alone, and no other of the same row. A test compares the locks that are there, and those that threads take.

     each state of link_state
     contexts external_memory green_contexts physical_memory pools tools
     texture_references
     arrays context_settings link_state module_image streams textures
     blocks
     device_addresses processes
     handles shared_memory
     each worker of pool
     pool
     happens_before
     call_stacks event_log faults no_wait notes sweep
 */
#pragma once

#include <pthread.h>

typedef void Hook(void);

/* Has a lock be open in every forked child: the linker lays all of a library side by side. */
#define OPEN_IN_CHILDREN(lock) ON_LIST(cl_locks, pthread_mutex_t *, &(lock), __LINE__)
/* Such a lock of one file. */
#define STATIC_LOCK(lock)                                  \
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; \
  OPEN_IN_CHILDREN(lock)
#define OPEN_SHARED_IN_CHILDREN(lock) ON_LIST(cl_shared_locks, pthread_rwlock_t *, &(lock), __LINE__)
/* Has a function be called in every forked child, once the locks are open. */
#define FORGET_IN_CHILDREN(forget) ON_LIST(cl_forgetters, Hook *, forget, __LINE__)
/* Has a function be called as the library is loaded, by its one constructor. */
#define START(start) ON_LIST(cl_starters, Hook *, start, __LINE__)
#define ON_LIST(list, type, one, line) ON_LIST_AT(list, type, one, line)
#define ON_LIST_AT(list, type, one, line) static type const list##_##line __attribute__((section(#list), KEPT)) = one
/* zig links with --gc-sections, by which lld drops what nothing names */
#if defined __clang__ && __has_attribute(retain)
#define KEPT used, retain
#else
#define KEPT used
#endif

/* A lock that many hold to read. Who waits to write comes before later readers, so a thread must not hold it twice. */
#ifdef PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP
#define SHARED_LOCK PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP
#else
#define SHARED_LOCK PTHREAD_RWLOCK_INITIALIZER
#endif

/* Holds a lock until the block ends; what is returned is found under it. */
#define HOLD(lock) UNTIL_END(mutex, lock, mutex_lock)
#define HOLD_TO_READ(lock) UNTIL_END(rwlock, lock, rwlock_rdlock)
#define HOLD_TO_WRITE(lock) UNTIL_END(rwlock, lock, rwlock_wrlock)
#define UNTIL_END(kind, lock, take) UNTIL_END_OF(kind, lock, take, __LINE__)
#define UNTIL_END_OF(kind, lock, take, line) UNTIL_END_AT(kind, lock, take, line)
#define UNTIL_END_AT(kind, lock, take, line)                                                     \
  __attribute__((cleanup(cl_drop_##kind))) pthread_##kind##_t *const held_from_##line = &(lock); \
  pthread_##take(held_from_##line)
static inline void cl_drop_mutex(pthread_mutex_t *const *lock) { pthread_mutex_unlock(*lock); }
static inline void cl_drop_rwlock(pthread_rwlock_t *const *lock) { pthread_rwlock_unlock(*lock); }
