/* Which calls wait for unfinished work: data/emulator/waits.toml. */
#pragma once

#include <stddef.h>

#include "symbols.h"

/* What a call touches; to copies, memory of a pool is MEMORY_DEVICE. */
typedef enum { MEMORY_PAGEABLE, MEMORY_PINNED, MEMORY_DEVICE, MEMORY_MANAGED, MEMORIES, MEMORY_POOL = MEMORIES } Memory;

enum { LOCK_CONTEXT = 1, LOCK_SUBMISSION = 2 }; /* the first in the file */

enum {
  WAITS_FOR_OWN,
  WAITS_FOR_STREAM,
  WAITS_FOR_LEGACY,
  WAITS_FOR_EVENT,
  WAITS_FOR_CONTEXT,
  WAITS_FOR_DEVICE,
  WAITS_FOR_DEVICES
};

typedef struct {
  unsigned char number; /* in the file, from 1 on */
  unsigned char waits_for;
  bool promised;                    /* by CUDA's documentation, which does not only say that it may */
  bool by_itself;                   /* the function waits, not the caller of this */
  bool given;                       /* there are conditions: */
  unsigned char holds;              /* locks, one bit each */
  unsigned char memory, to, source; /* one bit for each kind; 0: whatever it is */
  bool lazy, eager;                 /* only where kernels are loaded so */
  bool has_limit, has_first, first, sync_memops;
  int limit;
  size_t larger_than;
} WaitRow;

/* What the conditions of a call are about; the others need no value. */
typedef struct {
  Memory memory, to, source;
  size_t size;
  int limit;                     /* the CUlimit that is changed */
  bool first;                    /* the library has not been used in this context */
  bool sync_memops;              /* of a synchronous form: operations on this memory, or in this context, synchronize */
  const struct Context *context; /* of the memory; NULL: the current one */
} WaitFacts;

/* What takes room in a stream, each up to another depth of it. */
typedef enum { ROOM_WORK, ROOM_COPY, ROOM_STAGED } Room;
/* How much unfinished work a stream takes behind the first before a call waits that gives it more. */
unsigned cl_room_for(Room what);

/* The row by which a call waits; NULL if it does not. NULL instead of facts: only rows without conditions. */
const WaitRow *cl_wait_row(Sym symbol, const WaitFacts *facts);
/* Whether CUDA_MODULE_LOADING says that kernels are loaded with their library. */
bool cl_loads_eagerly(void);
