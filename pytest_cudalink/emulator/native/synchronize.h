/* What happens when the host waits for the device: by then all of its work was done long ago. */
#ifndef CUDALINK_SYNCHRONIZE_H
#define CUDALINK_SYNCHRONIZE_H

typedef void SynchronizeHook(void);
/* To be registered before main: there is no lock, and there is one. */
void cl_on_synchronize(SynchronizeHook *hook);
/* To be called where a context, a stream or an event was synchronized. */
void cl_synchronized(void);

#endif
