/* What the client and the link worker send each other: a request or a reply, followed by its bytes. Both are built
   together, so that the layout of these structures is the same on both sides. */
#pragma once

#include <stdint.h>

/* The worker's descriptors; what the library prints goes to 1 and 2. */
enum { WORKER_SOCKET = 3, WORKER_PARENT = 4 };

enum { ASK_OPEN = 1, ASK_ADD, ASK_COMPLETE, ASK_CLOSE };

/* Of ASK_COMPLETE: what is fetched. */
enum { TARGET_CUBIN, TARGET_PTX, TARGET_LTOIR, TARGETS };

typedef struct {
  uint32_t ask;
  uint32_t detail;    /* ASK_OPEN: number of options; ASK_ADD: nvJitLink's type of input; ASK_COMPLETE: a target */
  uint64_t link;      /* the client's number of the link */
  uint64_t name_size; /* ASK_ADD: bytes of the name, with its NUL */
  uint64_t data_size; /* ASK_ADD: bytes of the input; ASK_OPEN: bytes of the options, each with its NUL */
} Request;

enum {
  REPLY_ANSWER = 1,
  REPLY_NO_LIBRARY, /* to ASK_OPEN: the library cannot be opened; the error log has the loader's words */
  REPLY_DIED,       /* the process ends; `code` is the signal, 0 for a call of exit() */
  REPLY_NOT_STARTED /* instead of the worker: `code` is the errno of its start */
};

enum { NOT_FETCHED = -1, PTX_REFUSED = 4 /* a result of nvJitLink's */ };

typedef struct {
  uint32_t reply;
  int32_t code;                   /* nvJitLink's result */
  int32_t fetch_code;             /* of the functions that fetch; NOT_FETCHED */
  uint32_t last;                  /* whether the worker ends now */
  uint64_t error_size, info_size; /* new text of both logs */
  uint64_t printed_size;          /* what was printed during the call */
  uint64_t image_size;
} Reply;
