/* Sending and receiving whole pieces, however the system cuts them; and who is at the other end. */
#include "channel.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { TURN_MS = 100, SOCKET_BUFFER = 1 << 20 };

int64_t lw_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void lw_channel_prepare(int fd) {
  struct timeval turn = {.tv_usec = TURN_MS * 1000L};
  int size = SOCKET_BUFFER;
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &turn, sizeof turn);
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &turn, sizeof turn);
  setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
}

/* After a system call that moved nothing: whether it is worth another try. */
static ChannelState again(int64_t deadline) {
  if (errno != EINTR && errno != EAGAIN && errno != EWOULDBLOCK) return CHANNEL_GONE;
  return deadline && lw_now() >= deadline ? CHANNEL_LATE : CHANNEL_OK;
}

ChannelState lw_send(Channel *channel, struct iovec *parts, int count, int64_t deadline) {
  for (size_t sent = 0;;) {
    for (; count && sent >= parts->iov_len; parts++, count--) sent -= parts->iov_len;
    if (!count) return CHANNEL_OK;
    parts->iov_base = (char *)parts->iov_base + sent;
    parts->iov_len -= sent;
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = (size_t)count};
    ssize_t done = sendmsg(channel->fd, &message, MSG_NOSIGNAL);
    ChannelState state = done < 0 ? again(deadline) : CHANNEL_OK;
    if (state) return state;
    sent = done < 0 ? 0 : (size_t)done;
  }
}

ChannelState lw_receive(Channel *channel, void *to, size_t size, int64_t deadline) {
  for (char *at = to;;) {
    size_t there = channel->end - channel->start, taken = there < size ? there : size;
    memcpy(at, channel->buffer + channel->start, taken);
    channel->start += taken;
    at += taken;
    size -= taken;
    if (!size) return CHANNEL_OK;
    bool direct = size >= sizeof channel->buffer;
    ssize_t got = direct ? recv(channel->fd, at, size, 0) : recv(channel->fd, channel->buffer, CHANNEL_BUFFER, 0);
    if (!got) return CHANNEL_GONE;
    if (got < 0) {
      ChannelState state = again(deadline);
      if (state) return state;
    } else if (direct) {
      at += got;
      size -= (size_t)got;
    } else {
      channel->start = 0;
      channel->end = (size_t)got;
    }
  }
}

unsigned long long lw_started(int pid) {
  char path[32], text[1024];
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t got = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
  if (fd >= 0) close(fd);
  text[got > 0 ? got : 0] = 0;
  char *at = strrchr(text, ')'); /* a name may have any characters */
  if (!at || strlen(at) < 3 || strchr("ZX", at[2])) return 0;
  for (int field = 2; at && field < 22; field++) at = strchr(at + 1, ' ');
  return at ? strtoull(at, NULL, 10) : 0;
}
