/* One end of the socket between a client and its worker. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

enum { CHANNEL_BUFFER = 32 * 1024 };

typedef enum { CHANNEL_OK, CHANNEL_GONE, CHANNEL_LATE, CHANNEL_NO_MEMORY } ChannelState;

typedef struct {
  int fd; /* -1: closed */
  size_t start, end;
  char buffer[CHANNEL_BUFFER]; /* what was received and not yet taken */
} Channel;

/* The clock of deadlines, in milliseconds. */
int64_t lw_now(void);
/* Makes both ends wait in short turns, so that deadlines are noticed. */
void lw_channel_prepare(int fd);
/* Sends all parts, which are changed; 0 means no deadline. */
ChannelState lw_send(Channel *channel, struct iovec *parts, int count, int64_t deadline);
ChannelState lw_receive(Channel *channel, void *to, size_t size, int64_t deadline);
/* When a process started, in ticks, which tells it from a later one of its number; 0 if it is gone or only waits to be
   reaped. */
unsigned long long lw_started(int pid);
