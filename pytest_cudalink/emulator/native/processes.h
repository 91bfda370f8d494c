/* The processes of a run: what each has taken of the devices, and whether it is locked for a checkpoint. */
#pragma once

#include <stdatomic.h>

#include "abi.h"
#include "config.h"

typedef struct {
  int process;                 /* 0: the place is free */
  int arch;                    /* of its devices; those that have the same, and the same size, are the same devices */
  uint64_t born;               /* so that another process with this number is not taken for it */
  uint64_t total;              /* bytes of each device */
  uint64_t taken[DEVICES_MAX]; /* bytes, by the devices' places in the machine */
  atomic_size_t pending;       /* works that are not done */
  atomic_size_t managed;       /* blocks of managed memory, of which there is no checkpoint */
  atomic_int state;            /* CUprocessState */
} Process;

/* This process, as the others see it. */
extern _Atomic(Process *) cl_own_process;
/* Lets the others see this process, from its cuInit on. */
void cl_join_run(void);

/* Takes memory of a device, as far as the processes of the run have left some; gives it back. */
bool cl_memory_take(CUdevice device, size_t bytes);
void cl_memory_give(CUdevice device, size_t bytes);
size_t cl_memory_left(CUdevice device);
/* Waits, if this process is locked, until it is not. */
void cl_wait_while_locked(void);
