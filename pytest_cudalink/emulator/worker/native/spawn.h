/* Starting the link worker so that the program it serves never sees a child. */
#pragma once

enum { PIDFD_OPEN = 434 }; /* SYS_pidfd_open, the same number on all machines */

typedef struct {
  int socket; /* ours; -1: not started */
  int output; /* what the worker prints lands in this file */
  int pid;    /* 0: unknown */
} Spawned;

/* Starts `program` for a library; on failure `errno` says why. A program that cannot be executed is reported on the
   socket, as REPLY_NOT_STARTED. */
Spawned lw_spawn(const char *program, const char *library);
