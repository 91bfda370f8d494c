/* Room in streams. */
#ifndef CUDALINK_ROOM_H
#define CUDALINK_ROOM_H

#include "abi.h"
#include "waits.h"

/* Waits until a stream has room for more work; a captured one has. Under no lock. */
CUresult cl_make_room(const void *handle, Room what);

#endif
