/* The host waits for the device. */
#ifndef CUDALINK_SYNCHRONIZE_H
#define CUDALINK_SYNCHRONIZE_H

struct Context;

typedef void SynchronizeHook(void);
/* To be registered before main: there is no lock, and there is one. */
void cl_on_synchronize(SynchronizeHook *hook);
/* To be called where a context, a stream or an event was synchronized. */
void cl_synchronized(void);

typedef void FinishHook(const struct Context *context);
/* Likewise. */
void cl_on_finish(FinishHook *hook);
/* Waits for all unfinished work of a context. Under no lock. */
void cl_finish(const struct Context *context);

#endif
