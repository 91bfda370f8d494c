/* Starting the link worker so that the program it serves never sees a child. */
#ifndef CUDALINK_WORKER_SPAWN_H
#define CUDALINK_WORKER_SPAWN_H

typedef struct {
  int socket; /* ours; -1: not started */
  int output; /* what the worker prints lands in this file */
} Spawned;

/* Starts `program` for a library; on failure `errno` says why. A program that cannot be executed is reported on the
   socket, as REPLY_NOT_STARTED. */
Spawned lw_spawn(const char *program, const char *library);

#endif
