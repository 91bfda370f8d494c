/* Entering and leaving, configuration, faults, events: what every exported function goes through. */
#define _GNU_SOURCE
#include "emulator.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

pthread_mutex_t cl_lock = PTHREAD_MUTEX_INITIALIZER;

/* -- configuration -- */

static Config config;
static pthread_once_t config_once = PTHREAD_ONCE_INIT;

static void copy_env(const char *name, char *out, size_t size) {
  const char *value = getenv(name);
  snprintf(out, size, "%s", value ? value : "");
}

static int number_env(const char *name, int otherwise) {
  const char *value = getenv(name);
  return value && *value ? atoi(value) : otherwise;
}

static void read_config(void) {
  const char *version = getenv("CUDALINK_EMULATOR_VERSION");
  int major = 13, minor = 0;
  if (version) sscanf(version, "%d.%d", &major, &minor);
  config.version = major * 1000 + minor * 10;
  copy_env("CUDALINK_EMULATOR_RELEASE", config.release, sizeof config.release);
  if (!*config.release) snprintf(config.release, sizeof config.release, "%d.%d.0", major, minor);
  const char *arch = getenv("CUDALINK_EMULATOR_ARCH");
  config.arch = arch && !strncmp(arch, "sm_", 3) ? atoi(arch + 3) : 90;
  config.devices = number_env("CUDALINK_EMULATOR_DEVICES", 1);
  if (config.devices < 0 || config.devices > DEVICES_MAX) config.devices = config.devices < 0 ? 0 : DEVICES_MAX;
  copy_env("CUDALINK_EMULATOR_NVJITLINK", config.nvjitlink, sizeof config.nvjitlink);
  copy_env("CUDALINK_EMULATOR_NVJITLINK_OLD", config.nvjitlink_old, sizeof config.nvjitlink_old);
  /* there is no nvJitLink 12.7 to be had */
  snprintf(config.toolchain, sizeof config.toolchain, "%d.%d", major, major == 12 && minor == 7 ? 8 : minor);
  copy_env("CUDALINK_EMULATOR_EVENTS", config.events, sizeof config.events);
  config.perturb = number_env("MALLOC_PERTURB_", 0) & 0xff;
  const char *lifetime = getenv("CUDALINK_LIFETIME");
  config.lifetime = !lifetime || strcmp(lifetime, "off");
  config.punish = lifetime && !strcmp(lifetime, "punish");
}

const Config *cl_config(void) {
  pthread_once(&config_once, read_config);
  return &config;
}

/* -- events -- */

enum { EVENT_SIZE = 1024, EVENTS_KEPT = 16384 };

static struct {
  pthread_mutex_t lock;
  char (*ring)[EVENT_SIZE];
  uint64_t count; /* events ever written; the ring keeps the last EVENTS_KEPT */
  int file;
  bool file_tried;
} events = {.lock = PTHREAD_MUTEX_INITIALIZER, .file = -1};

/* The bytes of the UTF-8 character beyond ASCII that begins here; 0 if none does (RFC 3629). */
static size_t utf8_length(const unsigned char *c) {
  size_t length = c[0] >= 0xc2 && c[0] < 0xe0 ? 2 : (c[0] & 0xf0) == 0xe0 ? 3 : c[0] >= 0xf0 && c[0] < 0xf5 ? 4 : 0;
  for (size_t at = 1; at < length; at++)
    if ((c[at] & 0xc0) != 0x80) return 0; /* a NUL too */
  bool longer_than_needed = (c[0] == 0xe0 && c[1] < 0xa0) || (c[0] == 0xf0 && c[1] < 0x90);
  bool no_character = (c[0] == 0xed && c[1] > 0x9f) || (c[0] == 0xf4 && c[1] > 0x8f);
  return longer_than_needed || no_character ? 0 : length;
}

const char *cl_json(const char *text, char *out, size_t size) {
  size_t at = 0, length;
  for (const unsigned char *c = (const unsigned char *)(text ? text : ""); *c && at + 7 < size; c++) {
    if ((length = utf8_length(c))) {
      memcpy(out + at, c, length);
      at += length;
      c += length - 1;
    } else if (*c == '"' || *c == '\\') {
      out[at++] = '\\';
      out[at++] = (char)*c;
    } else if (*c == '\n') {
      out[at++] = '\\';
      out[at++] = 'n';
    } else if (*c < 0x20 || *c >= 0x7f) {
      at += (size_t)snprintf(out + at, 7, "\\u%04x", *c);
    } else {
      out[at++] = (char)*c;
    }
  }
  out[at] = 0;
  return out;
}

/* Cuts an overlong event between two members, so that every line stays a JSON object. */
static void close_event(char *line, size_t length) {
  if (length + 2 >= EVENT_SIZE) {
    length = EVENT_SIZE - 24;
    bool quoted = false;
    size_t comma = 0;
    int depth = 0;
    for (size_t at = 0; at < length; at++) {
      if (line[at] == '\\') at++;
      else if (line[at] == '"') quoted = !quoted;
      else if (quoted) continue;
      else if (line[at] == '[') depth++;
      else if (line[at] == ']') depth--;
      else if (line[at] == ',' && !depth) comma = at;
    }
    length = comma ? comma : 1;
    length += (size_t)snprintf(line + length, EVENT_SIZE - length, "%s\"cut\":true", comma ? "," : "");
  }
  line[length++] = '}';
  line[length] = 0;
}

void cl_event(const char *format, ...) {
  char line[EVENT_SIZE];
  pthread_mutex_lock(&events.lock);
  size_t length = (size_t)snprintf(line, sizeof line, "{\"n\":%llu,\"pid\":%d,\"thread\":%ld,",
                                   (unsigned long long)events.count, (int)getpid(), (long)syscall(SYS_gettid));
  va_list arguments;
  va_start(arguments, format);
  length += (size_t)vsnprintf(line + length, sizeof line - length, format, arguments);
  va_end(arguments);
  close_event(line, length);
  if (!events.ring) { /* not calloc: with MALLOC_PERTURB_ that writes to all of the 16 MiB */
    void *pages = mmap(NULL, (size_t)EVENTS_KEPT * EVENT_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages != MAP_FAILED) events.ring = pages;
  }
  if (events.ring) memcpy(events.ring[events.count % EVENTS_KEPT], line, strlen(line) + 1);
  events.count++;
  if (!events.file_tried) {
    events.file_tried = true;
    const char *path = cl_config()->events;
    if (*path && (events.file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) < 0)
      fprintf(stderr, "cudalink: CUDALINK_EMULATOR_EVENTS: cannot append to %s: %s\n", path, strerror(errno));
  }
  if (events.file >= 0) {
    length = strlen(line);
    line[length++] = '\n';
    /* one write for one line, so that lines of several processes do not mix and a crash loses none */
    ssize_t written = write(events.file, line, length);
    (void)written;
  }
  pthread_mutex_unlock(&events.lock);
}

EXPORT uint64_t cudalinkEventCount(void) {
  pthread_mutex_lock(&events.lock);
  uint64_t count = events.count;
  pthread_mutex_unlock(&events.lock);
  return count;
}

/* Copies event `number`; returns its length, or -1 if it is not kept (any more). */
EXPORT int cudalinkEventRead(uint64_t number, char *out, size_t size) {
  int length = -1;
  pthread_mutex_lock(&events.lock);
  if (events.ring && number < events.count && number + EVENTS_KEPT >= events.count)
    length = snprintf(out, size, "%s", events.ring[number % EVENTS_KEPT]);
  pthread_mutex_unlock(&events.lock);
  return length;
}

EXPORT int cudalinkEmulatorVersion(void) { return cl_config()->version; }

/* -- faults -- */

enum { FAULTS = 64 };

typedef struct {
  unsigned number; /* in the order in which they were made, from 1; 0: no fault */
  bool met;        /* by a call */
  Sym symbol;
  unsigned nth;    /* 1: the next call; 0: every call */
  CUresult code;   /* 0: do not fail */
  unsigned delay;  /* milliseconds */
} Fault;

static struct {
  pthread_mutex_t lock;
  int active;    /* faults in use; 0 lets calls pass without the lock */
  unsigned made; /* number of the newest fault */
  Fault list[FAULTS];
  int lost; /* code that everything answers once the device is lost */
} faults = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int symbol_named(const char *name) {
  for (int symbol = 0; symbol < SYMBOL_COUNT; symbol++)
    if (!strcmp(cl_symbols[symbol].name, name)) return symbol;
  return -1;
}

/* Adds a fault to one function. Returns its number, 0 if there is no such function or no room. */
static unsigned add_fault(const char *function, unsigned nth, int code, unsigned delay) {
  int symbol = symbol_named(function);
  unsigned number = 0;
  if (symbol < 0) return 0;
  pthread_mutex_lock(&faults.lock);
  for (int at = 0; at < FAULTS; at++) {
    if (faults.list[at].number) continue;
    number = ++faults.made;
    faults.list[at] = (Fault){number, false, (Sym)symbol, nth, code, delay};
    __atomic_add_fetch(&faults.active, 1, __ATOMIC_RELEASE);
    break;
  }
  pthread_mutex_unlock(&faults.lock);
  return number;
}

/* CUDALINK_EMULATOR_FAULTS: FUNCTION:NTH=CODE[@MILLISECONDS], separated by semicolons; "lost=CODE" loses the device. */
static void read_faults(void) {
  const char *text = getenv("CUDALINK_EMULATOR_FAULTS");
  char copy[4096], *rest = copy, *entry;
  if (!text) return;
  snprintf(copy, sizeof copy, "%s", text);
  while ((entry = strsep(&rest, ";"))) {
    char name[128];
    unsigned nth = 0, delay = 0;
    int code = 0;
    if (sscanf(entry, "lost=%d", &code) == 1) __atomic_store_n(&faults.lost, code, __ATOMIC_RELEASE);
    else if (sscanf(entry, "%127[^:]:%u=%d@%u", name, &nth, &code, &delay) >= 3) {
      if (!add_fault(name, nth, code, delay))
        fprintf(stderr, "cudalink: CUDALINK_EMULATOR_FAULTS: no function %s, or too many faults\n", name);
    } else if (*entry)
      fprintf(stderr, "cudalink: CUDALINK_EMULATOR_FAULTS: cannot read '%s'; expected FUNCTION:NTH=CODE[@MS]\n", entry);
  }
}

static pthread_once_t faults_once = PTHREAD_ONCE_INIT;

/* `add_fault`, behind those of the environment, which therefore have the first numbers. */
EXPORT unsigned cudalinkInject(const char *function, unsigned nth, int code, unsigned delay) {
  pthread_once(&faults_once, read_faults);
  return add_fault(function, nth, code, delay);
}

/* Whether some call met a fault; if asked to, takes back what is left of it. One that is no longer there was met. */
EXPORT int cudalinkFaultMet(unsigned number, int take_back) {
  int met = 1;
  pthread_once(&faults_once, read_faults);
  pthread_mutex_lock(&faults.lock);
  for (int at = 0; at < FAULTS; at++) {
    Fault *fault = &faults.list[at];
    if (fault->number != number) continue;
    met = fault->met;
    if (take_back) {
      fault->number = 0;
      __atomic_sub_fetch(&faults.active, 1, __ATOMIC_RELEASE);
    }
    break;
  }
  pthread_mutex_unlock(&faults.lock);
  return met;
}

/* Makes every function that needs the device answer `code`; 0 brings it back. What is on the host can still be freed.
 * Returns what it was told before. */
EXPORT int cudalinkLoseDevice(int code) {
  pthread_once(&faults_once, read_faults);
  return __atomic_exchange_n(&faults.lost, code, __ATOMIC_ACQ_REL);
}

EXPORT void cudalinkClearFaults(void) {
  pthread_once(&faults_once, read_faults);
  pthread_mutex_lock(&faults.lock);
  memset(faults.list, 0, sizeof faults.list);
  faults.active = 0;
  faults.lost = 0;
  pthread_mutex_unlock(&faults.lock);
}

/* What cudalinkLoseDevice was told, for NVML in the same process; 0: nothing is lost. */
EXPORT int cudalinkDeviceLost(void) {
  pthread_once(&faults_once, read_faults);
  return __atomic_load_n(&faults.lost, __ATOMIC_ACQUIRE);
}

/* The code that an injected fault gives to this call, or -1; waits for an injected delay. */
static int fault_of(Sym symbol) {
  int code = -1;
  unsigned delay = 0;
  pthread_mutex_lock(&faults.lock);
  for (int at = 0; at < FAULTS; at++) {
    Fault *fault = &faults.list[at];
    if (!fault->number || fault->symbol != symbol) continue;
    if (fault->nth > 1) {
      fault->nth--;
      continue;
    }
    if (fault->code) code = fault->code;
    delay += fault->delay;
    fault->met = true;
    if (fault->nth == 1) {
      fault->number = 0;
      __atomic_sub_fetch(&faults.active, 1, __ATOMIC_RELEASE);
    }
  }
  pthread_mutex_unlock(&faults.lock);
  if (delay) {
    struct timespec wait = {delay / 1000, (long)(delay % 1000) * 1000000};
    nanosleep(&wait, NULL);
  }
  return code;
}

/* -- initialization -- */

static pid_t initialized_in; /* 0: not yet */

bool cl_initialized(void) { return __atomic_load_n(&initialized_in, __ATOMIC_ACQUIRE) == getpid(); }

CUresult cl_initialize(unsigned flags) {
  if (flags) return CUDA_ERROR_INVALID_VALUE;
  if (cl_config()->devices == 0) return CUDA_ERROR_NO_DEVICE;
  pid_t none = 0, here = getpid();
  /* a child that was forked after cuInit cannot initialize again (measured: 3) */
  if (!__atomic_compare_exchange_n(&initialized_in, &none, here, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE) && none != here)
    return CUDA_ERROR_NOT_INITIALIZED;
  return CUDA_SUCCESS;
}

/* A thread may hold a lock while another one forks; in the child nobody would release it. */
static void unlock_in_child(void) {
  pthread_mutex_init(&cl_lock, NULL);
  pthread_mutex_init(&cl_placing, NULL);
  pthread_mutex_init(&events.lock, NULL);
  pthread_mutex_init(&faults.lock, NULL);
  cl_linker_unlock_in_child();
}

__attribute__((constructor)) static void watch_forks(void) { pthread_atfork(NULL, NULL, unlock_in_child); }

/* -- calls -- */

/* Functions that are asked hundreds of times and change nothing are not worth an event when they succeed. */
static bool quiet(Sym symbol) {
  switch (symbol) {
    case SYM_cuGetProcAddress:
    case SYM_cuGetProcAddress_v2:
    case SYM_cuGetErrorName:
    case SYM_cuGetErrorString:
    case SYM_cuDriverGetVersion:
    case SYM_cuCtxGetCurrent:
    case SYM_cuCtxGetDevice:
    case SYM_cuCtxPushCurrent_v2:
    case SYM_cuCtxPopCurrent_v2:
    case SYM_cuCtxSetCurrent:
    case SYM_cuDeviceGetAttribute:
    case SYM_cuFuncGetAttribute:
    case SYM_cuKernelGetAttribute:
    case SYM_cuPointerGetAttribute:
    case SYM_cuPointerGetAttributes:
      return true;
    default:
      return false;
  }
}

static bool forked(void) {
  pid_t there = __atomic_load_n(&initialized_in, __ATOMIC_ACQUIRE);
  return there && there != getpid();
}

/* Link states that a forked child inherits are not its own; a lock in one may be held by nobody. */
static bool uses_state(Sym symbol) {
  switch (symbol) {
    case SYM_cuLinkAddData:
    case SYM_cuLinkAddData_v2:
    case SYM_cuLinkAddFile:
    case SYM_cuLinkAddFile_v2:
    case SYM_cuLinkComplete:
    case SYM_cuLinkDestroy:
      return true;
    default:
      return false;
  }
}

bool cl_enter(Call *call, Sym symbol, bool needs_init) {
  int lost = cudalinkDeviceLost();
  call->symbol = symbol;
  if (__atomic_load_n(&faults.active, __ATOMIC_ACQUIRE)) {
    int code = fault_of(symbol);
    if (code >= 0) {
      call->result = cl_leave(call, code, ",\"injected\":true");
      return false;
    }
  }
  const Symbol *self = &cl_symbols[symbol];
  if (self->since > cl_config()->version) { /* by its symbol: cuGetProcAddress does not give it away */
    call->result = cl_leave(call, CUDA_ERROR_NOT_SUPPORTED,
                            ",\"note\":\"newer than the emulated driver: introduced in %d.%d\"", self->since / 1000,
                            self->since % 1000 / 10);
    return false;
  }
  if ((needs_init || (forked() && uses_state(symbol))) && !cl_initialized()) {
    call->result = cl_leave(call, CUDA_ERROR_NOT_INITIALIZED, "");
    return false;
  }
  if (lost && (needs_init || uses_state(symbol)) && symbol != SYM_cuLinkDestroy) {
    call->result = cl_leave(call, lost, ",\"device lost\":true");
    return false;
  }
  return true;
}

CUresult cl_leave(Call *call, CUresult result, const char *arguments, ...) {
  if (result == CUDA_SUCCESS && quiet(call->symbol)) return result;
  char text[768];
  va_list list;
  va_start(list, arguments);
  vsnprintf(text, sizeof text, arguments, list);
  va_end(list);
  cl_event("\"call\":\"%s\",\"result\":%d%s", cl_symbols[call->symbol].name, result, text);
  return result;
}

/* What is in the headers but not in this emulator: says so, and never pretends. */
CUresult cl_unimplemented(Sym symbol) {
  Call call;
  if (!cl_enter(&call, symbol, true)) return call.result;
  return cl_leave(&call, CUDA_ERROR_NOT_SUPPORTED, ",\"note\":\"not implemented by the emulated driver\"");
}
