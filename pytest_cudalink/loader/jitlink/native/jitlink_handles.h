/* The nvJitLink handles of this process, alive and destroyed. All functions are called under the lock of the caller. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { NAMES = 16, NAME_SIZE = 64, CONTENTS = 5 };

/* The name of an input, where the caller has it and as it was: nvJitLink keeps the pointer until it completes. */
typedef struct {
  uintptr_t at;
  unsigned size; /* with its end; a longer name than NAME_SIZE is compared as far as that */
  char text[NAME_SIZE];
} InputName;

typedef struct {
  uintptr_t value;
  uint64_t number; /* 0: a handle whose creation was not seen */
  bool destroyed, refused, completed;
  unsigned busy;     /* threads that are in a call */
  int failed;        /* the first function that added or completed and failed; -1: none */
  int at_work;       /* the function that the last of them is in */
  unsigned changes;  /* calls that can change a size */
  unsigned reported; /* rules that are reported once for a handle, as bits */
  uintptr_t created_by, destroyed_by;
  struct {
    size_t size;
    unsigned changes; /* as above, when the size was asked */
    bool asked;
  } sizes[CONTENTS];
  unsigned name_count;
  InputName names[NAMES];
} Handle;

/* The handle with a value; NULL if none ever had it. */
Handle *cl_find_handle(uintptr_t value);

/* A new entry for a value, which replaces one that was destroyed; NULL if too many handles are alive. */
Handle *cl_new_handle(uintptr_t value);

/* Whether too many handles were alive once, so that a value may be unknown although it was created. */
bool cl_handles_lost(void);

/* Forgets every handle. */
void cl_forget_handles(void);

/* Calls of other threads do not go on in a child of this process. */
void cl_handles_after_fork(void);

/* As cudalinkContractAlive. */
unsigned cl_handles_alive(uint64_t after, uint64_t *numbers, unsigned size);
