/* Links through libnvJitLink in a worker process: what it does to that process costs an answer, not the caller. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef CUDALINK_WORKER_LIBRARY
#define WORKER_API __attribute__((visibility("default")))
#else
#define WORKER_API
#endif

typedef struct WorkerLink WorkerLink;

typedef enum {
  WORKER_ANSWERED,
  WORKER_NOT_STARTED,
  WORKER_NO_LIBRARY, /* the library cannot be opened */
  WORKER_DIED,
  WORKER_LATE,  /* beyond the limit: the worker was ended */
  WORKER_FATAL, /* the library reported success and printed a fatal error */
  WORKER_NO_MEMORY,
  WORKER_KILLED, /* without a word, as by another process: its input need not be the cause */
} WorkerOutcome;

typedef struct {
  int outcome;
  int code;                     /* nvJitLink's result */
  int fetch_code;               /* of the functions that fetch an image; -1: not called */
  int signal;                   /* that the worker died of; 0: none is known */
  int opening;                  /* whether this is the answer of nvJitLinkCreate */
  char *error, *info, *printed; /* what is new in the logs, and what was printed; NULL: nothing */
  char *problem;                /* what happened to the worker, for a sentence that begins with the library; NULL */
  void *image;
  size_t image_size;
} WorkerAnswer;

/* Every function fills `answer`, whose texts and image are then the caller's until lw_free_answer. One thread at a time
   may use a link. */

/* Opens a link; leaves `opened` as it is if that failed. `limit` is in seconds, for each call. */
WORKER_API void lw_open(WorkerLink **opened, const char *program, const char *library, unsigned count,
                        const char *const *options, unsigned limit, WorkerAnswer *answer);
WORKER_API void lw_add(WorkerLink *link, int type, const void *data, size_t size, const char *name,
                       WorkerAnswer *answer);
/* Completes the link and fetches the target: 0 a cubin, 1 PTX, 2 LTO-IR. Only lw_close may follow. */
WORKER_API void lw_complete(WorkerLink *link, unsigned target, WorkerAnswer *answer);
/* Empties `closed`; does nothing if it is empty. */
WORKER_API void lw_close(WorkerLink **closed, WorkerAnswer *answer);
WORKER_API void lw_free_answer(WorkerAnswer *answer);
