/* Room in streams: one with very much unfinished work takes no more. */
#include "room.h"

#include "calls.h"
#include "capture.h"
#include "queues.h"
#include "sticky.h"

CUresult cl_make_room(const void *handle, Room what) {
  Stream *stream;
  bool waited = false;
  if (!cl_any_pending()) return CUDA_SUCCESS;
  cl_streams_lock();
  while (!cl_stream_ready(handle, &stream) && !stream->capture && stream->depth > cl_room_for(what)) {
    Work *first = cl_pending;
    while (first->in != stream) first = first->behind;
    cl_wait_for(first);
    waited = true;
  }
  cl_streams_unlock(CUDA_SUCCESS);
  return waited ? cl_waited_answer() : CUDA_SUCCESS;
}
