/* The program `cudalink-link-worker LIBRARY PID [pidfd]`: performs links through one libnvJitLink for the process PID,
   which asks on a socket. It ends when that process has ended or closed the socket, whatever the library does. */
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "channel.h"
#include "library_file.h"
#include "protocol.h"

typedef void *Handle;

static struct {
  const char *path;
  bool tried, opened;
  char problem[512]; /* the loader's words */
  int (*create)(Handle *, uint32_t, const char **);
  int (*destroy)(Handle *);
  int (*add)(Handle, int, const void *, size_t, const char *);
  int (*complete)(Handle);
  int (*log_size[2])(Handle, size_t *); /* errors, infos */
  int (*log[2])(Handle, char *);
  int (*image_size[TARGETS])(Handle, size_t *);
  int (*image[TARGETS])(Handle, void *);
} library;

typedef struct Name {
  struct Name *next;
  char text[];
} Name;

typedef struct Link {
  struct Link *next;
  uint64_t number;
  Handle handle;
  size_t seen[2]; /* how much of each log was sent */
  Name *names;    /* of its inputs: nvJitLink keeps the pointers and reads them when it completes */
} Link;

enum { BUCKETS = 1024, READ_BEHIND = 64, KEPT_BUFFER = 1 << 20, THREAD_STACK = 16 << 20, ALT_STACK = 64 * 1024 };

static Link *links[BUCKETS];
static Channel channel = {.fd = WORKER_SOCKET};

/* -- the library -- */

/* 12.0 to 12.2 export their functions under names with a version only. */
static void *function(void *opened, const char *name) {
  char versioned[96];
  void *found = dlsym(opened, name);
  for (int minor = 2; !found && minor >= 0; minor--) {
    snprintf(versioned, sizeof versioned, "__%s_12_%d", name, minor);
    found = dlsym(opened, versioned);
  }
  return found;
}

static bool load(void) {
  if (library.tried) return library.opened;
  library.tried = true;
  /* nvJitLink initializes a driver of the machine, for each link: it finds this one, which has no functions */
  dlopen("$ORIGIN/../../lib/absent/libcuda.so.1", RTLD_LAZY);
  const char *damage = library_damage(library.path);
  void *opened = damage ? NULL : dlopen(library.path, RTLD_NOW | RTLD_LOCAL);
  if (opened) {
    *(void **)&library.create = function(opened, "nvJitLinkCreate");
    *(void **)&library.destroy = function(opened, "nvJitLinkDestroy");
    *(void **)&library.add = function(opened, "nvJitLinkAddData");
    *(void **)&library.complete = function(opened, "nvJitLinkComplete");
    *(void **)&library.log_size[0] = function(opened, "nvJitLinkGetErrorLogSize");
    *(void **)&library.log[0] = function(opened, "nvJitLinkGetErrorLog");
    *(void **)&library.log_size[1] = function(opened, "nvJitLinkGetInfoLogSize");
    *(void **)&library.log[1] = function(opened, "nvJitLinkGetInfoLog");
    *(void **)&library.image_size[TARGET_CUBIN] = function(opened, "nvJitLinkGetLinkedCubinSize");
    *(void **)&library.image[TARGET_CUBIN] = function(opened, "nvJitLinkGetLinkedCubin");
    *(void **)&library.image_size[TARGET_PTX] = function(opened, "nvJitLinkGetLinkedPtxSize");
    *(void **)&library.image[TARGET_PTX] = function(opened, "nvJitLinkGetLinkedPtx");
    *(void **)&library.image_size[TARGET_LTOIR] = function(opened, "nvJitLinkGetLinkedLTOIRSize");
    *(void **)&library.image[TARGET_LTOIR] = function(opened, "nvJitLinkGetLinkedLTOIR");
    library.opened = library.create && library.destroy && library.add && library.complete && library.log_size[0] &&
                     library.log[0] && library.log_size[1] && library.log[1];
  }
  const char *problem = opened ? "it lacks functions of nvJitLink" : damage ? damage : dlerror();
  if (!library.opened)
    snprintf(library.problem, sizeof library.problem, "%s%s%s", damage ? library.path : "", damage ? " " : "",
             problem ? problem : "unknown");
  return library.opened;
}

static Link **place_of(uint64_t number) {
  Link **place = &links[number % BUCKETS];
  while (*place && (*place)->number != number) place = &(*place)->next;
  return place;
}

static void destroy(Link **place) {
  Link *link = *place;
  if (!link) return;
  *place = link->next;
  library.destroy(&link->handle);
  while (link->names) {
    Name *next = link->names->next;
    free(link->names);
    link->names = next;
  }
  free(link);
}

static const char *keep_name(Link *link, const char *text) {
  Name *name = malloc(sizeof *name + strlen(text) + 1);
  if (!name) _exit(0);
  strcpy(name->text, text);
  name->next = link->names;
  link->names = name;
  return name->text;
}

/* -- answering -- */

/* The new text of a log; *text is owned by the caller. */
static size_t new_log(Link *link, int which, char **text) {
  size_t size = 0;
  *text = NULL;
  if (library.log_size[which](link->handle, &size) || size <= link->seen[which] + 1) return 0;
  char *log = calloc(1, size + 1);
  if (!log || library.log[which](link->handle, log)) return free(log), 0;
  size_t length = strlen(log), seen = link->seen[which] < length ? link->seen[which] : length;
  memmove(log, log + seen, length - seen);
  link->seen[which] = length;
  *text = log;
  return length - seen;
}

/* What was printed since it was last asked; *text is owned by the caller. */
static size_t printed(char **text) {
  struct stat about;
  *text = NULL;
  if (fstat(1, &about) || about.st_size <= 0) return 0;
  *text = malloc((size_t)about.st_size);
  ssize_t got = *text ? pread(1, *text, (size_t)about.st_size, 0) : 0;
  if (ftruncate(1, 0) || got <= 0) return 0;
  return (size_t)got;
}

/* Without the socket no client can be served. */
static void answer(Reply *reply, const char *error, const char *info, const void *image) {
  char *text;
  reply->printed_size = printed(&text);
  struct iovec parts[] = {
      {reply, sizeof *reply},      {(void *)error, reply->error_size}, {(void *)info, reply->info_size},
      {text, reply->printed_size}, {(void *)image, reply->image_size},
  };
  if (lw_send(&channel, parts, sizeof parts / sizeof *parts, 0)) _exit(0);
  free(text);
}

/* Opens a link; `data` has its options. */
static void open_link(const Request *request, char *data) {
  Reply reply = {.reply = REPLY_ANSWER, .fetch_code = NOT_FETCHED};
  const char **options = malloc((request->detail + 1) * sizeof *options);
  Link *link = calloc(1, sizeof *link);
  if (!options || !link) _exit(0);
  const char *at = data;
  for (uint32_t option = 0; option < request->detail; option++, at += strlen(at) + 1) options[option] = at;
  const char *problem = NULL;
  if (!load()) {
    reply.reply = REPLY_NO_LIBRARY;
    problem = library.problem;
    reply.error_size = strlen(problem);
  } else reply.code = library.create(&link->handle, request->detail, options);
  free(options);
  if (reply.code || problem) free(link);
  else {
    link->number = request->link;
    link->next = links[link->number % BUCKETS];
    links[link->number % BUCKETS] = link;
  }
  answer(&reply, problem, NULL, NULL);
}

/* The image of a link; owned by the caller. */
static void *fetch(Link *link, uint32_t target, Reply *reply) {
  size_t size = 0;
  if (target >= TARGETS || !library.image_size[target] || !library.image[target]) return NULL;
  reply->fetch_code = library.image_size[target](link->handle, &size);
  if (reply->fetch_code) return NULL;
  void *image = malloc(size ? size : 1);
  if (!image) _exit(0);
  reply->fetch_code = library.image[target](link->handle, image);
  if (!reply->fetch_code) reply->image_size = size;
  return image;
}

/* What a refusal leaves behind in the library. nvJitLink remembers for the thread that PTX was refused, and later calls
   a link with an undefined symbol a success. Other refusals may leave a lock to the thread, so that another thread
   would wait for ever (13.0.88). */
typedef enum { LEAVES_NOTHING, LEAVES_MEMORY, LEAVES_LOCKS } Remains;

static Remains remains_of(const Request *request, int code) {
  if (!code || request->ask == ASK_CLOSE) return LEAVES_NOTHING;
  return request->ask == ASK_ADD && code == PTX_REFUSED ? LEAVES_MEMORY : LEAVES_LOCKS;
}

/* `locked`: whether an earlier refusal may have left locks. */
static Remains use_link(const Request *request, const char *name, const char *data, bool locked) {
  Reply reply = {.reply = REPLY_ANSWER, .code = NOT_FETCHED, .fetch_code = NOT_FETCHED};
  Link **place = place_of(request->link);
  char *error = NULL, *info = NULL;
  void *image = NULL;
  if (*place && request->ask != ASK_CLOSE) {
    if (request->ask == ASK_ADD)
      reply.code =
          library.add((*place)->handle, (int)request->detail, data, request->data_size, keep_name(*place, name));
    else {
      reply.code = library.complete((*place)->handle);
      image = fetch(*place, request->detail, &reply); /* with an undefined symbol there is one all the same */
    }
    reply.error_size = new_log(*place, 0, &error);
    reply.info_size = new_log(*place, 1, &info);
  }
  if (request->ask != ASK_ADD) destroy(place); /* before the answer: a library that dies here dies in this call */
  Remains remains = remains_of(request, reply.code);
  reply.last = locked && remains == LEAVES_MEMORY;
  answer(&reply, error, info, image);
  if (reply.last) _exit(0);
  free(error);
  free(info);
  free(image);
  return remains;
}

/* -- threads and signals -- */

static void report_end(int signal_number) {
  Reply reply = {.reply = REPLY_DIED, .code = signal_number};
  send(WORKER_SOCKET, &reply, sizeof reply, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void on_signal(int signal_number) {
  report_end(signal_number);
  _exit(128 + signal_number);
}

static void on_exit_call(void) {
  report_end(0);
  _exit(0);
}

static void start_serving(void);

/* Serves until another thread must go on, which remembers nothing. Where that might wait for locks the process has
   ended with its answer, and the client starts another. */
static void *serve(void *unused) {
  char *buffer = NULL;
  size_t room = 0;
  bool locked = false;
  Remains remains = LEAVES_NOTHING;
  Request request;
  stack_t alternate = {.ss_size = ALT_STACK, .ss_sp = malloc(ALT_STACK)}, none = {.ss_flags = SS_DISABLE};
  if (alternate.ss_sp) sigaltstack(&alternate, NULL);
  while (remains != LEAVES_MEMORY) {
    if (lw_receive(&channel, &request, sizeof request, 0)) _exit(0);
    size_t size = request.name_size + request.data_size;
    if (!buffer || size + READ_BEHIND > room) {
      free(buffer);
      room = size + READ_BEHIND;
      buffer = malloc(room);
      if (!buffer) _exit(0);
    }
    if (lw_receive(&channel, buffer, size, 0)) _exit(0);
    memset(buffer + size, 0, READ_BEHIND); /* a library that reads too far finds the same each time */
    if (request.ask == ASK_OPEN) open_link(&request, buffer);
    else remains = use_link(&request, buffer, buffer + request.name_size, locked);
    locked = locked || remains == LEAVES_LOCKS;
    if (room > KEPT_BUFFER) {
      free(buffer);
      buffer = NULL;
      room = 0;
    }
  }
  free(buffer);
  if (!sigaltstack(&none, &alternate)) free(alternate.ss_sp);
  start_serving();
  return unused;
}

static void start_serving(void) {
  pthread_attr_t attributes;
  pthread_t thread;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, THREAD_STACK);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  if (pthread_create(&thread, &attributes, serve, NULL)) _exit(0);
  pthread_attr_destroy(&attributes);
}

/* -- the process -- */

/* Returns when the process that is served has ended or has closed its socket. */
static void wait_for_end(int pid, bool has_pidfd) {
  struct pollfd watched[] = {{.fd = WORKER_SOCKET}, {.fd = WORKER_PARENT, .events = POLLIN}};
  unsigned long long born = has_pidfd ? 0 : lw_started(pid);
  for (;;) {
    int ready = poll(watched, has_pidfd ? 2 : 1, has_pidfd ? -1 : 200);
    if (ready > 0) return;
    if (!has_pidfd && born && lw_started(pid) != born) return;
  }
}

static void close_from(int first) {
#ifdef SYS_close_range
  if (!syscall(SYS_close_range, (unsigned)first, ~0U, 0U)) return;
#endif
  struct rlimit limit;
  int end = getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur > 65536 ? 65536 : (int)limit.rlim_cur;
  for (int fd = first; fd < end; fd++) close(fd);
}

/* No signal of the program that started this one has a meaning here. */
static void reset_signals(void) {
  struct sigaction handler = {.sa_handler = SIG_DFL};
  for (int number = 1; number < NSIG; number++) sigaction(number, &handler, NULL);
  static const int deadly[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
  handler.sa_handler = on_signal;
  handler.sa_flags = SA_ONSTACK;
  sigfillset(&handler.sa_mask);
  for (size_t at = 0; at < sizeof deadly / sizeof *deadly; at++) sigaction(deadly[at], &handler, NULL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
}

static void be_first_for_the_killer(void) {
  int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (fd < 0) return;
  ssize_t written = write(fd, "500", 3);
  (void)written;
  close(fd);
}

int main(int count, char **arguments) {
  if (count < 3 || fcntl(WORKER_SOCKET, F_GETFD) < 0) {
    fprintf(stderr, "cudalink-link-worker performs links for pytest-cudalink, which starts it\n");
    return 2;
  }
  bool has_pidfd = count > 3;
  close_from(has_pidfd ? WORKER_PARENT + 1 : WORKER_PARENT);
  close(0);
  if (open("/dev/null", O_RDONLY)) _exit(0);
  if (chdir("/")) _exit(0);
  setrlimit(RLIMIT_CORE, &(struct rlimit){0});
  be_first_for_the_killer();
  reset_signals();
  setvbuf(stdout, NULL, _IONBF, 0);
  atexit(on_exit_call);
  library.path = arguments[1];
  start_serving();
  wait_for_end((int)strtol(arguments[2], NULL, 10), has_pidfd);
  _exit(0);
}
