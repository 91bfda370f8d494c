/* Memory that other processes can map. */
#include "shared_memory.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>

#include "locks.h"

#include "../../base/native/own_file.h"

/* Not in the headers of glibc 2.17. */
#ifndef MFD_CLOEXEC
#define MFD_CLOEXEC 1U
#endif
#ifndef FALLOC_FL_KEEP_SIZE
#define FALLOC_FL_KEEP_SIZE 1
#endif
#ifndef FALLOC_FL_PUNCH_HOLE
#define FALLOC_FL_PUNCH_HOLE 2
#endif
#ifdef SYS_memfd_create
enum { MEMFD_CREATE = SYS_memfd_create };
#elif defined(__x86_64__)
enum { MEMFD_CREATE = 319 };
#else
enum { MEMFD_CREATE = 279 }; /* of the generic table, as on aarch64 */
#endif

static const char magic[8] = "cudalnk";

static struct {
  pid_t process; /* whose file this is: a forked child makes its own */
  OwnFile file;
  uint64_t key;
  size_t end;
  SharedEnd *ends; /* NULL: nothing is shared yet */
  size_t ends_offset;
  uint64_t shared; /* how often */
} own;

STATIC_LOCK(lock); /* of the file of this process */

/* A number that no other file has, nor one of another process. */
static uint64_t new_key(void) {
  static uint64_t last;
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  uint64_t count = __atomic_add_fetch(&last, 1, __ATOMIC_RELAXED);
  uint64_t mixed = ((uint64_t)now.tv_sec << 30 ^ (uint64_t)now.tv_nsec) * 0x9e3779b97f4a7c15u;
  return mixed ^ (uint64_t)getpid() << 32 ^ count;
}

int cl_file_make(FileHead *head) {
  int file = moved_up((int)syscall(MEMFD_CREATE, "cudalink", MFD_CLOEXEC));
  if (file < 0) return -1;
  memcpy(head->magic, magic, sizeof magic);
  head->key = new_key();
  if (pwrite(file, head, sizeof *head, 0) == (ssize_t)sizeof *head && cl_file_reach(file, cl_file_begin() + head->size))
    return file;
  close(file);
  return -1;
}

CUresult cl_file_check(int file, FileKind kind, FileHead *head) {
  if (pread(file, head, sizeof *head, 0) != (ssize_t)sizeof *head || memcmp(head->magic, magic, sizeof magic))
    return CUDA_ERROR_UNKNOWN;
  return head->kind == kind ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

size_t cl_page_size(void) { return (size_t)sysconf(_SC_PAGESIZE); }
size_t cl_file_begin(void) { return cl_page_size(); }

bool cl_file_reach(int file, size_t end) {
  struct stat known;
  if (fstat(file, &known)) return false;
  return (size_t)known.st_size >= end || !ftruncate(file, (off_t)end);
}

void cl_file_forget(int file, size_t offset, size_t size) {
  /* where holes are unknown the pages stay until the file ends */
  if (fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)size)) return;
}

uintptr_t cl_file_map(int file, size_t offset, size_t size, uintptr_t where) {
  struct stat known;
  int flags = MAP_SHARED | (where ? MAP_FIXED : 0);
  /* behind the end of a file there is a mapping, and a signal for who uses it */
  if (fstat(file, &known) || offset > (size_t)known.st_size || size > (size_t)known.st_size - offset) return 0;
  void *pages = mmap((void *)where, size, PROT_READ | PROT_WRITE, flags, file, (off_t)offset);
  return pages == MAP_FAILED ? 0 : (uintptr_t)pages;
}

int cl_file_duplicate(int file) { return fcntl(file, F_DUPFD_CLOEXEC, 3); }

/* Makes the file of this process, under the lock: another one if the program closed the first. */
static bool make_own(void) {
  if (own.process == getpid() && own_descriptor(&own.file) >= 0) return true;
  FileHead head = {.kind = FILE_OF_PROCESS};
  OwnFile file = own_file(cl_file_make(&head));
  if (file.number < 0) return false;
  own.process = getpid();
  own.file = file;
  own.key = head.key;
  own.end = cl_file_begin();
  own.ends = NULL;
  return true;
}

static size_t take_part(size_t size) {
  size_t offset = 0;
  if (make_own() && size <= SIZE_MAX / 4 && cl_file_reach(own.file.number, own.end + size)) {
    offset = own.end;
    own.end += size; /* no part is used twice: the file may be as large as it likes, what was given back is holes */
  }
  return offset;
}

size_t cl_process_part(size_t size) {
  HOLD(lock);
  return take_part(size);
}

enum { ENDS = 256 };

SharedEnd *cl_process_end(uint64_t *number, size_t *offset) {
  HOLD(lock);
  if (!make_own()) return NULL;
  size_t size = ENDS * sizeof *own.ends, part = own.ends ? 0 : take_part(size);
  SharedEnd *ends = part ? (SharedEnd *)cl_file_map(own.file.number, part, size, 0) : own.ends;
  if (!ends) return NULL;
  if (part) {
    memset(ends, 0, size); /* the file has the pages from now on */
    own.ends_offset = part;
  }
  own.ends = ends;
  bool known = *number && atomic_load(&ends[*number % ENDS].number) == *number;
  if (!known) *number = ++own.shared;
  SharedEnd *end = &ends[*number % ENDS];
  *offset = own.ends_offset + *number % ENDS * sizeof *end;
  if (!known) atomic_store(&end->freed, false);
  atomic_store(&end->number, *number);
  return end;
}

int cl_process_file(uint64_t *key) {
  HOLD(lock);
  int file = make_own() ? own.file.number : -1;
  *key = own.key;
  return file;
}

int cl_process_open(int process, int file, uint64_t key) {
  char path[64];
  FileHead head;
  snprintf(path, sizeof path, "/proc/%d/fd/%d", process, file);
  int opened = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
  if (opened < 0) return -1;
  if (!cl_file_check(opened, FILE_OF_PROCESS, &head) && head.key == key) return opened;
  close(opened);
  return -1;
}
