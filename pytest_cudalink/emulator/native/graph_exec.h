/* Executable graphs: copies of graphs as they were when they were made. */
#pragma once

#include "graphs.h"

typedef struct {
  Object head;
  Graph *graph; /* hidden */
  uint64_t flags, source_id, id;
  Graph *source;       /* that it was made of, if it is still alive */
  unsigned running;    /* launches that are not done */
  Work *last;          /* the end of the last of them */
  struct Clock *clock; /* what happens before the next one */
  bool sole;           /* its graph may have no other meanwhile */
} Executable;

/* Under the lock of the streams. */
Executable *cl_executable(const void *handle);
void cl_executable_leave(Executable *executable);
/* The node of an executable graph that stands for one of a caller's graph. */
Node *cl_stand_in(void *handle, void *node_handle);
/* Gives a child of an executable graph the parameters of a graph of the same shape. */
CUresult cl_put_child(void *executable, void *handle, void *child);
