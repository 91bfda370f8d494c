/* Who may open a gate without being a thread that runs: handlers of signals, other processes, a debugger. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Reads what the kernel says of a thread of this process: "stat", "status", "syscall". */
bool cl_read_task(pid_t thread, const char *name, char *text, size_t size);
/* Whether other processes may map what is at an address of the host. */
bool cl_is_shared(uintptr_t address);
/* Whether a signal may come whose handler does something; `main_waits`: the main thread, in which alone Python calls
   its handlers, is in a call of the driver; `interrupts`: Python's handler of SIGINT is the program's. */
bool cl_signal_may_come(bool main_waits, bool interrupts);
/* Whether a debugger has this process. */
bool cl_is_traced(void);
