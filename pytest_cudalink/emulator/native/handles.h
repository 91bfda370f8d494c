/* The handles that are alive, each with what it is: a stale or foreign one is told by this table, and never followed.
 */
#ifndef CUDALINK_HANDLES_H
#define CUDALINK_HANDLES_H

#include <stdbool.h>
#include <stddef.h>

typedef enum {
  HANDLE_STREAM = 1,
  HANDLE_EVENT,
  HANDLE_POOL,
  HANDLE_PHYSICAL_MEMORY,
  HANDLE_EXTERNAL_MEMORY,
  HANDLE_EXTERNAL_SEMAPHORE,
  HANDLE_ARRAY,
  HANDLE_MIPMAP,
  HANDLE_TEXTURE,
  HANDLE_SURFACE,
  HANDLE_TEXTURE_REFERENCE,
  HANDLE_GRAPH,
  HANDLE_GRAPH_NODE,
  HANDLE_GRAPH_EXEC,
  HANDLE_CONDITIONAL,
  HANDLE_USER_OBJECT,
  HANDLE_GREEN_CONTEXT,
  HANDLE_RESOURCE_DESCRIPTION,
  HANDLE_NOTIFICATION,
} HandleKind;

/* Makes a zeroed object and enters it; NULL if memory is out. Its owner removes the handle and frees it. */
void *cl_handle_make(size_t size, HandleKind kind);
/* Enters a handle; false if memory is out. */
bool cl_handle_add(const void *handle, HandleKind kind);
/* Whether a handle is alive and of this kind. The answer holds while the lock of its owner is held: each file adds,
   asks and removes its own kinds under a lock of its own, so that an object cannot go while another thread uses it. */
bool cl_handle_is(const void *handle, HandleKind kind);
/* Removes a handle; false if it is not alive or of another kind. */
bool cl_handle_remove(const void *handle, HandleKind kind);
/* How many of a kind are alive. */
size_t cl_handles_alive(HandleKind kind);

#endif
