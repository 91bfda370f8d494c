/* What the programs have in common: cases, each in a forked process, and a line for each question.
 *
 * A line is "CASE/QUESTION: CODE VALUES". ASK makes one from a call. RISK is for a call on which a driver may die:
 * those of a case run in a second process, where the other questions are silent, and in a further one after each death.
 * ALONE is a RISK that changes what comes after it: it has its own process. DO is a step that the questions after it
 * need. */
#ifndef ASK_H
#define ASK_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <cuda.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define SET(x) memset(&(x), 0, sizeof(x)) /* zeros, padding too */
#define UNUSED __attribute__((unused))

static const char *case_;
static struct {
  int risks, at;   /* how many risks a case has, and the last that was taken */
  int open, alone; /* whether a line waits for its end, and whether the process ends with it */
} *shared_;
static int chosen_, risk_ UNUSED; /* the first risk to take, or 0; and the number of the next */
static CUcontext context UNUSED;  /* the primary context of device 0 */

static UNUSED const char *W(const char *format, ...) {
  static char words[8][160];
  static int next;
  va_list list;
  va_start(list, format);
  char *at = words[next++ % 8];
  vsnprintf(at, sizeof words[0], format, list);
  va_end(list);
  return at;
}

static UNUSED void tell_(const char *words, int code, const char *format, ...) {
  va_list list;
  va_start(list, format);
  if (!shared_->open) printf("%s/%s:", case_, words);
  if (code >= 0) printf(" %d", code);
  if (*format) putchar(' ');
  vprintf(format, list);
  putchar('\n');
  fflush(stdout);
  shared_->open = 0;
  va_end(list);
}

#define ASK(words, call, ...)                           \
  do {                                                  \
    const char *words_ = (words);                       \
    int code_ = (int)(call);                            \
    if (!chosen_) tell_(words_, code_, "" __VA_ARGS__); \
  } while (0)
#define SAY(words, ...)                             \
  do {                                              \
    if (!chosen_) tell_(words, -1, "" __VA_ARGS__); \
  } while (0)
#define TAKE_(is_alone, words, call, ...)                               \
  do {                                                                  \
    shared_->risks = ++risk_ > shared_->risks ? risk_ : shared_->risks; \
    if (chosen_ && risk_ >= chosen_) {                                  \
      shared_->at = risk_;                                              \
      printf("%s/%s:", case_, (words));                                 \
      fflush(stdout);                                                   \
      shared_->open = 1;                                                \
      int code_ = (int)(call);                                          \
      tell_("", code_, "" __VA_ARGS__);                                 \
      if ((shared_->alone = is_alone)) _exit(0);                        \
    }                                                                   \
  } while (0)
#define RISK(words, call, ...) TAKE_(0, words, call, __VA_ARGS__)
#define ALONE(words, call, ...) TAKE_(1, words, call, __VA_ARGS__)
#define DO(call)                                            \
  do {                                                      \
    int code_ = (int)(call);                                \
    if (code_ && !chosen_) tell_("step " #call, code_, ""); \
  } while (0)

static UNUSED void begin(void) {
  DO(cuInit(0));
  DO(cuDevicePrimaryCtxRetain(&context, 0));
  DO(cuCtxSetCurrent(context));
}

static UNUSED void run_(const char *name, void (*body)(void), int cold) {
  case_ = name;
  shared_->risks = 0;
  for (chosen_ = 0; chosen_ <= shared_->risks; chosen_ = shared_->at + 1) {
    fflush(stdout);
    shared_->open = shared_->alone = 0;
    shared_->at = chosen_ ? 99999 : 0; /* without a death, all are taken */
    pid_t child = fork();
    if (!child) {
      alarm(60);
      if (!cold) begin();
      body();
      fflush(stdout);
      shared_->at = chosen_ ? 99999 : 0;
      _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status)) {
      const char *end = WTERMSIG(status) == SIGALRM ? "hangs" : W("dies of SIG%s", sigabbrev_np(WTERMSIG(status)));
      if (shared_->open) printf(" %s\n", end);
      else printf("%s/end: %s\n", name, end);
    } else if (WEXITSTATUS(status)) printf("%s/end: exit %d\n", name, WEXITSTATUS(status));
  }
}

#define CASES      \
  int main(void) { \
    shared_ = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
#define RUN(name) run_(#name, name, 0);      /* with the primary context current */
#define RUN_COLD(name) run_(#name, name, 1); /* before cuInit */
#define END       \
  fflush(stdout); \
  return 0;       \
  }

/* PTX with two kernels, a variable and a constant. */
static UNUSED const char PTX[] =
    ".version 8.0\n.target sm_80\n.address_size 64\n"
    ".visible .global .align 4 .u32 variable = 7;\n.visible .const .align 4 .b8 fixed[16];\n"
    ".visible .entry empty() { ret; }\n"
    ".visible .entry two(.param .u64 a, .param .u32 b) { .reg .u64 p; .reg .u32 v; ld.param.u64 p, [a]; ld.param.u32 v, [b];\n"
    " cvta.to.global.u64 p, p; st.global.u32 [p], v; ret; }\n";

static UNUSED CUmemAllocationProp pinned(void) {
  CUmemAllocationProp p;
  SET(p);
  p.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  p.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  return p;
}

static UNUSED CUmemPoolProps pool_on_device(CUmemAllocationHandleType handles) {
  CUmemPoolProps p;
  SET(p);
  p.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  p.handleTypes = handles;
  p.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  return p;
}

static UNUSED CUmemAccessDesc access_of(int device, CUmemAccess_flags flags) {
  CUmemAccessDesc d = {{CU_MEM_LOCATION_TYPE_DEVICE, device}, flags};
  return d;
}

static UNUSED void send_fd(int to, int fd) {
  char byte = 'x', room[CMSG_SPACE(sizeof(int))] = {0};
  struct iovec io = {&byte, 1};
  struct msghdr m = {0};
  m.msg_iov = &io, m.msg_iovlen = 1, m.msg_control = room, m.msg_controllen = sizeof room;
  struct cmsghdr *c = CMSG_FIRSTHDR(&m);
  c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(sizeof(int));
  memcpy(CMSG_DATA(c), &fd, sizeof fd);
  if (sendmsg(to, &m, 0) < 0) perror("sendmsg");
}

static UNUSED int receive_fd(int from) {
  char byte, room[CMSG_SPACE(sizeof(int))] = {0};
  struct iovec io = {&byte, 1};
  struct msghdr m = {0};
  m.msg_iov = &io, m.msg_iovlen = 1, m.msg_control = room, m.msg_controllen = sizeof room;
  if (recvmsg(from, &m, 0) < 0) perror("recvmsg");
  int fd;
  memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof fd);
  return fd;
}

/* Another process that runs `body` with its end of a socket; it starts before cuInit. */
static UNUSED pid_t other(int *end, void (*body)(int)) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) perror("socketpair");
  pid_t child = fork();
  if (!child) {
    close(pair[0]);
    alarm(20);
    body(pair[1]);
    fflush(stdout);
    _exit(0);
  }
  close(pair[1]);
  *end = pair[0];
  return child;
}

static UNUSED void pass(int end) {
  if (write(end, "x", 1) != 1) perror("write");
}
static UNUSED void await(int end) {
  char byte;
  if (read(end, &byte, 1) != 1) SAY("the other process ended", "%s", "");
}

/* Makes a pool and memory of it, whose bytes are 9, and sends both to another process; returns the memory. */
static UNUSED CUdeviceptr share_pool(int end) {
  int fd = -1;
  CUmemoryPool pool = NULL;
  CUmemPoolProps p = pool_on_device(1);
  CUmemPoolPtrExportData data;
  CUdeviceptr m = 0;
  DO(cuMemPoolCreate(&pool, &p));
  DO(cuMemAllocFromPoolAsync(&m, 4096, pool, 0));
  DO(cuMemsetD8(m, 9, 4096));
  DO(cuCtxSynchronize());
  DO(cuMemPoolExportToShareableHandle(&fd, pool, 1, 0));
  DO(cuMemPoolExportPointer(&data, m));
  send_fd(end, fd);
  if (write(end, &data, sizeof data) != sizeof data) perror("write");
  return m;
}
#endif
