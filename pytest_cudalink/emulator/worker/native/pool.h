/* The workers of this process: which there are, and which one a link is given to. */
#pragma once

#include <pthread.h>

#include "../../../base/native/own_file.h"
#include "channel.h"

typedef struct {
  pthread_mutex_t lock; /* of a call; what stands above `users` is read and written under it */
  Channel channel;
  bool stained;           /* by a refusal, after which a library may not be what it was */
  OwnFile socket, output; /* the channel's, and the file of what the worker prints */
  int pid;
  unsigned long long born; /* when that process started; 0: unknown */
  _Atomic uint64_t serial; /* of the process; 0: none */
  /* under the lock of the pool */
  unsigned users; /* links that the process holds */
  unsigned calls; /* that are inside, or wait */
  char *program, *library;
} Worker;

/* A worker that holds the link already, or one to open it on, locked; `serial` is that of the process which holds it.
   NULL if there is not one: then `errno` says why. */
Worker *lw_take(Worker *holder, uint64_t serial, const char *program, const char *library);
/* Whether the process that held a link still runs, as far as is known. */
bool lw_holds(const Worker *worker, uint64_t serial);
/* Unlocks. */
void lw_give_back(Worker *worker);
/* A locked worker gets one more link. */
void lw_attach(Worker *worker);
/* A link is no longer held; nothing happens if its process ended. */
void lw_detach(Worker *worker, uint64_t serial);
/* Ends the process of a locked worker. */
void lw_end(Worker *worker);

/* Whether a library accepted these options before; `options` are `size` bytes. */
bool lw_accepted(const char *library, const char *options, uint64_t size);
void lw_accept(const char *library, const char *options, uint64_t size);
