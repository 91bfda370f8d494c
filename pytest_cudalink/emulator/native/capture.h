/* Capture: operations of a stream become nodes of a graph instead of being done. */
#pragma once

#include "graphs.h"

/* CUstreamCaptureMode */
enum { CAPTURE_MODES = 3 };

/* Says what an operation in a stream answers before it is done or captured: 0, 400, 709, or a code of capture.
 *captured says whether it is to be captured. Takes the lock. */
CUresult cl_enter_stream(const void *handle, bool *captured);
/* Whether new work of a stream has to wait for other work, so that it belongs into the queue. Takes the lock. */
bool cl_must_wait(const void *handle);
/* Captures an operation, or puts it into the queue of the stream. Everything that the parameters point to is copied.
   Takes the lock. */
CUresult cl_submit(const void *handle, const NodeParameters *parameters);

/* The same under the lock, for those that have more to do; *node is the new one, `memory` is what it knows. */
CUresult cl_capture_node(Stream *stream, const NodeParameters *parameters, GraphMemory *memory, Node **node);
CUresult cl_stream_ready(const void *handle, Stream **stream);
/* What an operation answers that cannot be captured: it invalidates the capture of its stream. */
CUresult cl_refuse_captured(const void *handle, Stream **stream);
/* What a call answers that a capture of this or another thread prohibits, and by which that capture becomes invalid. */
CUresult cl_prohibited(void);
/* What a call answers that waits for a whole context, one of whose streams is captured in whatever mode; the same. */
CUresult cl_refuse_captured_context(const Context *context);
/* A capture by its number; NULL if it is over. */
Capture *cl_capture_numbered(uint64_t number);
/* Has the call of this thread invalidate a capture. */
void cl_invalidate(Capture *capture);
/* How many captures are not over; *mode is that of the calling thread. *invalid: how many ever were invalidated, the
   last one by *call, *by_mode: which a capture of another mode allows. Takes the lock. */
size_t cl_captures_open(int *mode, uint64_t *invalid, const char **call, bool *by_mode);
/* Ends every part that a stream has in a capture. */
void cl_capture_abandon(Stream *stream);

struct Capture {
  uint64_t id;
  Graph *graph;
  bool owned; /* the graph was made for it */
  bool invalid;
  int mode;
  uint64_t thread; /* that began it */
  Stream *origin;
  const Context *context; /* it ends when this dies */
  Dependencies left;      /* nodes of streams that were destroyed meanwhile */
  Capture *next;
};

/* Waits until a stream has room for more work; a captured one has. Under no lock. */
CUresult cl_make_room(const void *handle, Room what);
