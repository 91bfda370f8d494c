/* Locks and forks: a thread may hold a lock while another one forks, and in the child no thread would release it. */
#ifndef CUDALINK_LOCKS_H
#define CUDALINK_LOCKS_H

#include <pthread.h>

/* Has a lock be open in every forked child. To be called before main: there is no lock for this table. */
void cl_open_in_children(pthread_mutex_t *lock);

#endif
