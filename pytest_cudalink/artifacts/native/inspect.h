/* Inspecting an image of any kind, with everything in it, without trusting any byte of it. */
#pragma once

#include "record.h"

#define ART_EXPORT __attribute__((visibility("default")))

/* The word for a kind, which Python knows, too. */
const char *art_kind_name(ArtKind kind);
/* What an image is by its first bytes. */
ArtKind art_kind(Bytes image);
/* Writes what is found about an image into `out`, as records (record.h), and returns the bytes that this takes; if they
 * are more than `room`, some are missing there. 0: out of memory. `latest` is the last known CUDA release, its major
 * version in the upper 16 bits. */
ART_EXPORT uint64_t art_inspect(const void *data, uint64_t size, uint32_t latest, void *out, uint64_t room);
