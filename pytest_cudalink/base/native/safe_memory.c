/* Reading and writing memory that may not be there. */
#include "safe_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

/* The same by way of the kernel alone: write(2) and read(2) answer EFAULT where memory is not there. A pipe for each
   copy, because one that is kept would be shared with forked children. */
static bool copy_through_pipe(void *to, const void *from, size_t size) {
  enum { PIECE = 4096 }; /* a pipe takes that much without a reader */
  int ends[2];
  if (pipe2(ends, O_CLOEXEC)) { /* no descriptor is left: trust the caller */
    memcpy(to, from, size);
    return true;
  }
  size_t done = 0;
  while (done < size) {
    ssize_t given = write(ends[1], (const char *)from + done, size - done < PIECE ? size - done : PIECE);
    if (given <= 0 || read(ends[0], (char *)to + done, (size_t)given) != given) break;
    done += (size_t)given;
  }
  close(ends[0]);
  close(ends[1]);
  return done == size;
}

/* Whether a copy was made; only EFAULT says that memory is not there, anything else that a sandbox forbids the call. */
static bool copied(ssize_t count, void *to, const void *from, size_t size) {
  return count < 0 && errno != EFAULT ? copy_through_pipe(to, from, size) : count == (ssize_t)size;
}

bool cl_read_safely(const void *from, void *to, size_t size) {
  struct iovec here = {to, size}, there = {(void *)(uintptr_t)from, size};
  return !size || copied(process_vm_readv(getpid(), &here, 1, &there, 1, 0), to, from, size);
}

bool cl_write_if_there(void *to, const void *from, size_t size) {
  struct iovec here = {(void *)(uintptr_t)from, size}, there = {to, size};
  return !size || copied(process_vm_writev(getpid(), &here, 1, &there, 1, 0), to, from, size);
}
