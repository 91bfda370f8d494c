/* Links in a worker. What a link was given is kept until it is complete: a worker may end because of another link, and
   then this one is repeated on the next worker, which its caller does not notice. */
#include "client.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pool.h"
#include "protocol.h"

typedef struct Input {
  struct Input *next;
  Request request;
  char bytes[]; /* name and data */
} Input;

struct WorkerLink {
  uint64_t number;
  char *program, *library;
  Request open;
  char *options; /* each with its NUL */
  unsigned limit;
  Input *first, **last;
  Worker *worker; /* that holds it, as long as its process is that of `serial` */
  uint64_t serial;
  bool over; /* completed: the worker has nothing of it */
};

static uint64_t last_number;

static void clear(WorkerAnswer *answer) { *answer = (WorkerAnswer){.fetch_code = NOT_FETCHED}; }

void lw_free_answer(WorkerAnswer *answer) {
  free(answer->error);
  free(answer->info);
  free(answer->printed);
  free(answer->problem);
  free(answer->image);
  clear(answer);
}

__attribute__((format(printf, 3, 4))) static void fail(WorkerAnswer *answer, WorkerOutcome outcome, const char *format,
                                                       ...) {
  va_list list;
  va_start(list, format);
  free(answer->problem);
  if (vasprintf(&answer->problem, format, list) < 0) answer->problem = NULL;
  va_end(list);
  answer->outcome = outcome;
}

static const char *signal_name(int number) {
  switch (number) {
    case SIGSEGV: return "SIGSEGV";
    case SIGBUS: return "SIGBUS";
    case SIGILL: return "SIGILL";
    case SIGFPE: return "SIGFPE";
    case SIGABRT: return "SIGABRT";
    default: return "another signal";
  }
}

/* -- one reply -- */

/* What a worker printed that cannot say so any more. */
static void read_output(const Worker *worker, WorkerAnswer *answer) {
  enum { MOST = 4096 };
  if (answer->printed) return;
  answer->printed = calloc(1, MOST + 1);
  if (answer->printed && pread(own_descriptor(&worker->output), answer->printed, MOST, 0) > 0) return;
  free(answer->printed);
  answer->printed = NULL;
}

/* Ends a worker whose answer has not come, or has no place; always false. */
static bool lost(Worker *worker, WorkerAnswer *answer, ChannelState state, unsigned limit) {
  read_output(worker, answer);
  if (state == CHANNEL_NO_MEMORY) answer->outcome = WORKER_NO_MEMORY;
  else if (state == CHANNEL_LATE) fail(answer, WORKER_LATE, "did not finish within %u s", limit);
  else fail(answer, WORKER_KILLED, "ended without a word, as by SIGKILL");
  lw_end(worker);
  return false;
}

/* Most bytes of a reply's texts and image: a worker whose memory an input has overwritten may claim anything. */
enum { MOST_TEXT = 64 << 20, MOST_IMAGE = 1 << 30 };

/* A text of the reply; its owner is the answer. */
static ChannelState receive_text(Worker *worker, char **text, uint64_t size, int64_t deadline) {
  if (!size) return CHANNEL_OK;
  if (size > MOST_TEXT) return CHANNEL_GONE;
  *text = malloc(size + 1);
  if (!*text) return CHANNEL_NO_MEMORY;
  (*text)[size] = 0;
  return lw_receive(&worker->channel, *text, size, deadline);
}

/* False if the worker has ended. */
static bool receive_answer(Worker *worker, WorkerAnswer *answer, int64_t deadline, unsigned limit) {
  Reply reply;
  ChannelState state = lw_receive(&worker->channel, &reply, sizeof reply, deadline);
  if (!state && reply.reply == REPLY_DIED) {
    answer->signal = reply.code;
    read_output(worker, answer);
    if (reply.code) fail(answer, WORKER_DIED, "ended with signal %d (%s)", reply.code, signal_name(reply.code));
    else fail(answer, WORKER_DIED, "called exit()");
    lw_end(worker);
    return false;
  }
  if (!state && reply.reply == REPLY_NOT_STARTED) {
    fail(answer, WORKER_NOT_STARTED, "%s", strerror(reply.code));
    lw_end(worker);
    return false;
  }
  if (!state) state = receive_text(worker, &answer->error, reply.error_size, deadline);
  if (!state) state = receive_text(worker, &answer->info, reply.info_size, deadline);
  if (!state) state = receive_text(worker, &answer->printed, reply.printed_size, deadline);
  if (!state && reply.image_size > MOST_IMAGE) state = CHANNEL_GONE;
  if (!state && (!reply.fetch_code || reply.image_size)) {
    answer->image = malloc(reply.image_size ? reply.image_size : 1);
    answer->image_size = reply.image_size;
    state = answer->image ? lw_receive(&worker->channel, answer->image, reply.image_size, deadline) : CHANNEL_NO_MEMORY;
  }
  if (state) return lost(worker, answer, state, limit);
  answer->code = reply.code;
  answer->fetch_code = reply.fetch_code;
  if (reply.code) worker->stained = true;
  if (reply.last) lw_end(worker);
  if (reply.reply == REPLY_NO_LIBRARY) fail(answer, WORKER_NO_LIBRARY, "%s", answer->error ? answer->error : "");
  return true;
}

/* A library that reports success and prints a fatal error has made nothing usable, and may have more of it. */
static void look_for_fatal(Worker *worker, WorkerAnswer *answer) {
  bool said_so = answer->outcome || answer->code || !answer->printed;
  const char *fatal = said_so ? NULL : strstr(answer->printed, "fatal   :");
  if (!fatal) return;
  fail(answer, WORKER_FATAL, "printed '%.*s' and reported success", (int)strcspn(fatal, "\n"), fatal);
  free(answer->image);
  answer->image = NULL;
  answer->image_size = 0;
  lw_end(worker);
}

/* -- one call -- */

/* Sends a request with its bytes, after those that open its link if no worker holds it. False if the worker has ended;
   then, and if the link cannot be opened, the answer is complete. */
static bool exchange(WorkerLink *link, Worker *worker, const Request *request, const char *name, const void *data,
                     WorkerAnswer *answer, int64_t deadline) {
  bool opening = worker->serial != link->serial;
  struct iovec parts[] = {
      {&link->open, opening ? sizeof link->open : 0},   {link->options, opening ? link->open.data_size : 0},
      {(void *)request, request ? sizeof *request : 0}, {(void *)name, request ? request->name_size : 0},
      {(void *)data, request ? request->data_size : 0},
  };
  ChannelState sent = lw_send(&worker->channel, parts, sizeof parts / sizeof *parts, deadline);
  if (sent == CHANNEL_LATE) return lost(worker, answer, sent, link->limit);
  if (opening) { /* a worker that has ended still has its last words to say */
    if (!receive_answer(worker, answer, deadline, link->limit)) return false;
    if (answer->outcome || answer->code) {
      answer->opening = true;
      WorkerAnswer unused = {0};
      bool lives = !request || receive_answer(worker, &unused, deadline, link->limit);
      lw_free_answer(&unused);
      return lives;
    }
    link->worker = worker;
    link->serial = worker->serial;
    lw_attach(worker);
    if (request) lw_free_answer(answer);
  }
  return !request || receive_answer(worker, answer, deadline, link->limit);
}

/* Repeats what the link was given, on a worker that does not hold it. */
static bool repeat(WorkerLink *link, Worker *worker, WorkerAnswer *answer, int64_t deadline) {
  for (Input *input = link->first; input; input = input->next) {
    if (!exchange(link, worker, &input->request, input->bytes, input->bytes + input->request.name_size, answer,
                  deadline) ||
        answer->opening)
      return false;
    lw_free_answer(answer); /* delivered before */
  }
  return true;
}

/* Performs a request of a link on the worker that holds it, or on another. True if that died after an earlier refusal,
   so that this request need not be the cause. */
static bool try_call(WorkerLink *link, const Request *request, const char *name, const void *data,
                     WorkerAnswer *answer) {
  clear(answer);
  Worker *worker = lw_take(link->worker, link->serial, link->program, link->library);
  if (!worker) {
    if (errno == ENOMEM) answer->outcome = WORKER_NO_MEMORY;
    else fail(answer, WORKER_NOT_STARTED, "%s", strerror(errno));
    return false;
  }
  bool stained = worker->stained;
  int64_t deadline = lw_now() + (int64_t)link->limit * 1000;
  if ((worker->serial == link->serial || repeat(link, worker, answer, deadline)) &&
      exchange(link, worker, request, name, data, answer, deadline))
    look_for_fatal(worker, answer);
  lw_give_back(worker);
  return stained && (answer->outcome == WORKER_DIED || answer->outcome == WORKER_KILLED);
}

/* Performs a request of a link; without a request only opens it. A link without blame gets a second worker, and a
   deadly one shows that it is. */
static void call(WorkerLink *link, const Request *request, const char *name, const void *data, WorkerAnswer *answer) {
  if (!try_call(link, request, name, data, answer)) return;
  lw_free_answer(answer);
  try_call(link, request, name, data, answer);
}

/* -- links -- */

static void free_link(WorkerLink *link) {
  while (link->first) {
    Input *next = link->first->next;
    free(link->first);
    link->first = next;
  }
  free(link->program);
  free(link->library);
  free(link->options);
  free(link);
}

/* A link that no worker holds. */
static WorkerLink *new_link(const char *program, const char *library, unsigned count, const char *const *options,
                            unsigned limit) {
  size_t size = 0, at = 0;
  for (unsigned option = 0; option < count; option++) size += strlen(options[option]) + 1;
  WorkerLink *link = calloc(1, sizeof *link);
  if (!link) return NULL;
  link->last = &link->first;
  link->program = strdup(program);
  link->library = strdup(library);
  link->options = malloc(size ? size : 1);
  if (!link->program || !link->library || !link->options) return free_link(link), NULL;
  for (unsigned option = 0; option < count; option++) {
    size_t length = strlen(options[option]) + 1;
    memcpy(link->options + at, options[option], length);
    at += length;
  }
  link->number = __atomic_add_fetch(&last_number, 1, __ATOMIC_RELAXED);
  link->limit = limit;
  link->open = (Request){.ask = ASK_OPEN, .detail = count, .link = link->number, .data_size = size};
  return link;
}

void lw_open(WorkerLink **opened, const char *program, const char *library, unsigned count, const char *const *options,
             unsigned limit, WorkerAnswer *answer) {
  memset(answer, 0, sizeof *answer);
  WorkerLink *link = new_link(program, library, count, options, limit);
  if (!link) {
    answer->outcome = WORKER_NO_MEMORY;
    return;
  }
  if (!lw_accepted(library, link->options, link->open.data_size)) { /* else it is opened with its first input */
    call(link, NULL, NULL, NULL, answer);
    if (answer->outcome || answer->code) {
      answer->opening = true;
      free_link(link);
      return;
    }
    lw_accept(library, link->options, link->open.data_size);
  }
  *opened = link;
}

/* Keeps an input for another worker. */
static Input *keep(WorkerLink *link, int type, const void *data, size_t size, const char *name) {
  size_t name_size = strlen(name) + 1;
  Input *input = malloc(sizeof *input + name_size + size);
  if (!input) return NULL;
  input->next = NULL;
  input->request = (Request){
      .ask = ASK_ADD, .detail = (uint32_t)type, .link = link->number, .name_size = name_size, .data_size = size};
  memcpy(input->bytes, name, name_size);
  memcpy(input->bytes + name_size, data, size);
  return input;
}

void lw_add(WorkerLink *link, int type, const void *data, size_t size, const char *name, WorkerAnswer *answer) {
  memset(answer, 0, sizeof *answer);
  Input *input = keep(link, type, data, size, name);
  if (!input) {
    answer->outcome = WORKER_NO_MEMORY;
    return;
  }
  call(link, &input->request, input->bytes, input->bytes + input->request.name_size, answer);
  /* what ends a worker is not repeated, nor what may leave it with locks */
  if (answer->outcome || (answer->code && answer->code != PTX_REFUSED)) {
    free(input);
    return;
  }
  *link->last = input;
  link->last = &input->next;
}

static void finish(WorkerLink *link, uint32_t ask, uint32_t detail, WorkerAnswer *answer) {
  Request request = {.ask = ask, .detail = detail, .link = link->number};
  call(link, &request, NULL, NULL, answer);
  lw_detach(link->worker, link->serial);
  link->over = true;
}

void lw_complete(WorkerLink *link, unsigned target, WorkerAnswer *answer) {
  finish(link, ASK_COMPLETE, target, answer);
}

void lw_close(WorkerLink **closed, WorkerAnswer *answer) {
  clear(answer);
  WorkerLink *link = *closed;
  *closed = NULL;
  if (!link) return;
  if (!link->over && lw_holds(link->worker, link->serial)) finish(link, ASK_CLOSE, 0, answer);
  free_link(link);
}
