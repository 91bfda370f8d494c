/* Peers: which devices may use each other's memory. */
#ifndef CUDALINK_PEERS_H
#define CUDALINK_PEERS_H

#include "abi.h"

/* Whether a device may be allowed to use the memory of another one. */
int cl_can_access_peer(CUdevice device, CUdevice peer);

#endif
