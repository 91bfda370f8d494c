/* Locks and forks: a thread may hold a lock while another one forks, and in the child no thread would release it.

   The order of the driver's locks, each by the file that has it. A thread that holds one takes locks of lower rows
   alone, and none of its own row. A test compares the locks that are there, and those that threads take.

     each state of link_state
     contexts external_memory green_contexts physical_memory pools texture_references tools
     arrays coredumps link_state module_image streams textures
     memory
     device_addresses
     handles shared_memory
     each worker of pool
     pool
     happens_before
     events faults no_wait notes sweep
 */
#ifndef CUDALINK_LOCKS_H
#define CUDALINK_LOCKS_H

#include <pthread.h>

/* Both are to be called before main: there is no lock for these tables. */

/* Has a lock be open in every forked child. */
void cl_open_in_children(pthread_mutex_t *lock);
void cl_open_shared_in_children(pthread_rwlock_t *lock);
/* Has a function be called in every forked child, once the locks are open. */
typedef void Forget(void);
void cl_forget_in_children(Forget *forget);

/* A lock that many hold to read. Who waits to write comes before who asks to read, so a thread must not hold it twice.
 */
#ifdef PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP
#define SHARED_LOCK PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP
#else
#define SHARED_LOCK PTHREAD_RWLOCK_INITIALIZER
#endif

#endif
