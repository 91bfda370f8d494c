/* cuLink*: a driver's linker over nvJitLink, with the measured codes, texts and order, and a watch on the caller's memory. */
#define _GNU_SOURCE
#include "options.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

/* -- the state -- */

/* One log buffer of the caller, and how much of the unused part behind the text is watched. */
enum { WATCHED = 64 };

typedef struct {
  char *buffer;      /* NULL: none was given */
  uint64_t capacity;
  unsigned slot;     /* index of the option value that gets the size */
  char *text;        /* everything that was logged */
  size_t length;
  size_t written;    /* bytes in the caller's buffer, with the final NUL */
  size_t watched;    /* bytes behind them that were read */
  char behind[WATCHED];
  atomic_bool dead;  /* known to be freed: not touched any more; a newer state may find it out in another thread */
} Log;

typedef struct Name {
  struct Name *next;
  const char *input;
  char name[];
} Name;

typedef struct State {
  struct State *next;
  uint64_t id;
  pthread_mutex_t lock;
  Linker *linker;
  LinkOptions options;
  bool without_code; /* a target that no compiler of this driver knows */
  unsigned inputs;
  CUresult poison;   /* what every further add and complete answers */
  CUresult spoiled;  /* what complete answers, while adds go on */
  bool completed;
  void *image;
  size_t image_size;
  Name *definitions;
  Name *inputs_named;
  struct timespec started;

  unsigned count;        /* options */
  int *keys;
  uint64_t *values;      /* the caller's array */
  uint64_t *expected;    /* what must stand there */
  int wall_time;         /* index, or -1 */
  atomic_bool values_dead;
  Log info, error;
} State;

/* Of the last PTX that did not compile on this thread, in whatever state: it decides what an undefined symbol is at a
   later complete (recorded; nvJitLink remembers it in the same way). */
static __thread CUresult ptx_failure;

static State *states; /* live ones, under cl_lock */
static uint64_t last_state;

static State *find_state(State *handle) {
  pthread_mutex_lock(&cl_lock);
  State *found = states;
  while (found && found != handle) found = found->next;
  pthread_mutex_unlock(&cl_lock);
  return found;
}

/* -- the watch on the caller's memory -- */

static void (*violation_hook)(const char *event);
static uint64_t violations;

/* Called for each violation with its event, in the thread that made it, before the call returns. */
EXPORT void cudalinkSetViolationHook(void (*hook)(const char *event)) {
  __atomic_store_n(&violation_hook, hook, __ATOMIC_RELEASE);
}

EXPORT uint64_t cudalinkViolationCount(void) { return __atomic_load_n(&violations, __ATOMIC_ACQUIRE); }

/* How many states there ever were; they are numbered from 1. */
EXPORT uint64_t cudalinkStateCount(void) {
  pthread_mutex_lock(&cl_lock);
  uint64_t count = last_state;
  pthread_mutex_unlock(&cl_lock);
  return count;
}

/* How many states are alive: what a test left behind shows up when they are destroyed. */
EXPORT unsigned cudalinkLiveStates(void) {
  unsigned count = 0;
  pthread_mutex_lock(&cl_lock);
  for (State *state = states; state; state = state->next) count++;
  pthread_mutex_unlock(&cl_lock);
  return count;
}

static void describe_stack(char *out, size_t size) {
  void *frames[24];
  size_t at = 0;
  int depth = backtrace(frames, 24);
  out[0] = 0;
  for (int frame = 3; frame < depth && at + 160 < size; frame++) {
    Dl_info where;
    char text[128];
    const char *file = "?";
    if (!dladdr(frames[frame], &where)) memset(&where, 0, sizeof where);
    if (where.dli_fname) {
      const char *slash = strrchr(where.dli_fname, '/');
      file = slash ? slash + 1 : where.dli_fname;
    }
    snprintf(text, sizeof text, "%.48s+0x%zx %.48s", file, (size_t)frames[frame] - (size_t)where.dli_fbase,
             where.dli_sname ? where.dli_sname : "");
    char safe[160];
    at += (size_t)snprintf(out + at, size - at, "%s\"%s\"", at ? "," : "", cl_json(text, safe, sizeof safe));
  }
}

typedef struct Untold {
  struct Untold *next;
  char event[2200];
} Untold;

static __thread Untold *untold; /* oldest first */

static void violation(uint64_t state, const char *call, const char *option, const char *what, const char *expected,
                      const char *found) {
  char stack[640], expected_text[96], found_text[96], event[1400];
  describe_stack(stack, sizeof stack);
  uint64_t number = __atomic_add_fetch(&violations, 1, __ATOMIC_ACQ_REL);
  snprintf(event, sizeof event,
           "\"violation\":%llu,\"state\":%llu,\"option\":\"%s\",\"what\":\"%s\",\"expected\":\"%s\",\"found\":\"%s\",\"call\":\"%s\"",
           (unsigned long long)number, (unsigned long long)state, option, what,
           cl_json(expected, expected_text, sizeof expected_text), cl_json(found, found_text, sizeof found_text), call);
  cl_event("%s,\"stack\":[%s]", event, stack);
  Untold *fresh = malloc(sizeof *fresh), **last = &untold;
  if (!fresh) return;
  fresh->next = NULL;
  snprintf(fresh->event, sizeof fresh->event, "{%s,\"stack\":[%s]}", event, stack);
  while (*last) last = &(*last)->next;
  *last = fresh;
}

/* Tells what this thread found; never under a lock, because the hook waits for Python's, whose holder may wait for ours. */
static void tell_violations(void) {
  void (*hook)(const char *) = __atomic_load_n(&violation_hook, __ATOMIC_ACQUIRE);
  for (Untold *one; (one = untold); free(one)) {
    untold = one->next;
    if (hook) hook(one->event);
  }
}

static bool overlap(const void *a, size_t a_size, const void *b, size_t b_size) {
  return a && b && a_size && b_size && (uintptr_t)a < (uintptr_t)b + b_size && (uintptr_t)b < (uintptr_t)a + a_size;
}

static void check_values(State *state, const char *call) {
  if (state->values_dead || !state->count) return;
  uint64_t here[64], *now = state->count <= 64 ? here : malloc(state->count * sizeof *now);
  if (!now) return;
  if (!cl_read_safely(state->values, now, state->count * sizeof *now)) {
    violation(state->id, call, "optionValues", "unmapped", "the array given to cuLinkCreate", "no memory at that address");
    state->values_dead = true;
  } else {
    for (unsigned at = 0; at < state->count; at++) {
      if (now[at] == state->expected[at]) continue;
      char expected[32], found[32];
      snprintf(expected, sizeof expected, "0x%llx", (unsigned long long)state->expected[at]);
      snprintf(found, sizeof found, "0x%llx", (unsigned long long)now[at]);
      violation(state->id, call, cl_option_name(state->keys[at]), "option value changed", expected, found);
      state->values_dead = true;
      break; /* the array is one piece of memory: one finding tells it all */
    }
  }
  if (now != here) free(now);
}

/* An empty log is one NUL, and freed memory may well begin with one: a pointer of malloc's free list does, one time in
   sixteen. So what lies behind the text is watched too. Cleared memory is no finding: a caller may clear a buffer. */
static void check_log(State *state, Log *log, int option, const char *call) {
  if (log->dead || !log->buffer || !log->capacity) return;
  char here[256];
  size_t checked = 0;
  const char *problem = NULL;
  const Log *other = log == &state->info ? &state->error : &state->info;
  bool shared = overlap(log->buffer, log->capacity, other->buffer, other->capacity); /* each log overwrites the other */
  /* our own text, piece by piece, then the last byte: both ends must be there */
  while (!problem && !shared && checked < log->written) {
    size_t piece = log->written - checked < sizeof here ? log->written - checked : sizeof here;
    if (!cl_read_safely(log->buffer + checked, here, piece)) problem = "unmapped";
    for (size_t at = 0; !problem && at < piece; at++) {
      char mine = checked + at + 1 == log->written ? 0 : log->text[checked + at];
      if (here[at] != mine) problem = "log text changed";
    }
    checked += piece;
  }
  if (!problem && !cl_read_safely(log->buffer + log->capacity - 1, here, 1)) problem = "unmapped";
  if (!problem && !shared && log->watched) {
    if (!cl_read_safely(log->buffer + log->written, here, log->watched)) problem = "unmapped";
    for (size_t at = 0; !problem && at < log->watched; at++)
      if (here[at] && here[at] != log->behind[at]) problem = "memory behind the log text changed";
  }
  if (!problem) return;
  char expected[64], found[64] = "no memory at that address";
  snprintf(expected, sizeof expected, "%zu bytes of own text", log->written);
  if (strcmp(problem, "unmapped") && cl_read_safely(log->buffer, here, 24)) {
    int to = 0;
    for (int at = 0; at < 16; at++) to += snprintf(found + to, sizeof found - (size_t)to, "%02x ", (unsigned char)here[at]);
  }
  violation(state->id, call, cl_option_name(option), problem, expected, found);
  log->dead = true;
}

static void check_memory(State *state, const char *call) {
  if (!cl_config()->lifetime) return;
  check_values(state, call);
  check_log(state, &state->info, INFO_BUFFER, call);
  check_log(state, &state->error, ERROR_BUFFER, call);
}

typedef struct {
  uint64_t state;
  const char *option;
} Overlap;

enum { OVERLAPS = 16 };

/* Memory of a new state that a live one already has: the live one's was freed. Under cl_lock; gives how many there are. */
static int find_overlaps(const State *fresh, Overlap found[OVERLAPS]) {
  struct {
    const void *start;
    size_t size;
  } own[3] = {{fresh->values, fresh->count * 8}, {fresh->info.buffer, fresh->info.capacity}, {fresh->error.buffer, fresh->error.capacity}};
  int count = 0;
  if (!cl_config()->lifetime) return 0;
  for (State *other = states; other; other = other->next) {
    struct {
      const void *start;
      size_t size;
      atomic_bool *dead;
      const char *option;
    } its[3] = {{other->values, other->count * 8, &other->values_dead, "optionValues"},
                {other->info.buffer, other->info.capacity, &other->info.dead, cl_option_name(INFO_BUFFER)},
                {other->error.buffer, other->error.capacity, &other->error.dead, cl_option_name(ERROR_BUFFER)}};
    for (int at = 0; at < 9; at++)
      if (overlap(own[at / 3].start, own[at / 3].size, its[at % 3].start, its[at % 3].size) && count < OVERLAPS &&
          !atomic_exchange(its[at % 3].dead, true))
        found[count++] = (Overlap){other->id, its[at % 3].option};
  }
  return count;
}

static void tell_overlaps(const State *fresh, const Overlap *found, int count) {
  char by[64];
  snprintf(by, sizeof by, "memory of state %llu", (unsigned long long)fresh->id);
  for (int at = 0; at < count; at++)
    violation(found[at].state, "cuLinkCreate_v2", found[at].option, "overlap with a newer state", "its own memory", by);
  tell_violations();
}

/* -- writing back -- */

/* Writes to the caller's memory; to dead memory only to punish, and then as plainly as a real driver would. */
static void put(bool dead, void *to, const void *from, size_t size) {
  if (!dead) cl_write_safely(to, from, size);
  else if (cl_config()->punish) memcpy(to, from, size);
}

static void write_value(State *state, unsigned index, uint32_t value) {
  state->expected[index] = (state->expected[index] & ~(uint64_t)UINT32_MAX) | value;
  put(state->values_dead, (char *)state->values + 8 * (size_t)index, &value, sizeof value);
}

/* Puts what fits of a log into the caller's buffer, and its size into the option value. */
static void flush_log(State *state, Log *log) {
  if (!log->buffer) return;
  uint32_t size;
  size_t capacity = log->capacity, shown = cl_log_shown(capacity, log->length, &size);
  if (capacity) {
    put(log->dead, log->buffer, log->text ? log->text : "", shown);
    put(log->dead, log->buffer + shown, "", 1);
    log->written = shown + 1;
    size_t behind = capacity - log->written;
    log->watched = behind < WATCHED ? behind : WATCHED;
    if (log->dead || !cl_read_safely(log->buffer + log->written, log->behind, log->watched)) log->watched = 0;
  }
  write_value(state, log->slot, size);
}

static void append(Log *log, const char *text) {
  if (!text || !*text) return;
  size_t more = strlen(text);
  char *grown = realloc(log->text, log->length + more + 2);
  if (!grown) return;
  if (log->length) grown[log->length++] = '\n';
  memcpy(grown + log->length, text, more + 1);
  log->length += more;
  log->text = grown;
}

/* Adds new text to both logs; sizes are written back when there is any, and always at complete. */
static void write_logs(State *state, LinkText *text, bool always) {
  append(&state->error, text->error);
  append(&state->info, text->info);
  if (text->error || always) flush_log(state, &state->error);
  if (text->info || always) flush_log(state, &state->info);
  cl_text_free(text);
}

static void log_error(State *state, const char *format, ...) PRINTF(2, 3);
static void log_error(State *state, const char *format, ...) {
  LinkText text = {0};
  va_list list;
  va_start(list, format);
  if (vasprintf(&text.error, format, list) < 0) text.error = NULL;
  va_end(list);
  write_logs(state, &text, false);
}

/* -- create -- */

static void free_names(Name *list) {
  while (list) {
    Name *next = list->next;
    free(list);
    list = next;
  }
}

static void free_state(State *state) {
  cl_linker_close(state->linker);
  cl_options_free(&state->options);
  free_names(state->definitions);
  free_names(state->inputs_named);
  free(state->image);
  free(state->keys);
  free(state->expected);
  free(state->info.text);
  free(state->error.text);
  pthread_mutex_destroy(&state->lock);
  free(state);
}

static void take_buffer(Log *log, const LogBuffer *given) {
  log->buffer = given->buffer;
  log->capacity = given->capacity;
  log->slot = given->slot;
}

static CUresult create(unsigned count, const int *keys, uint64_t *values, State **out) {
  CUresult result;
  cl_context(&result);
  if (!out || (count && (!keys || !values))) return CUDA_ERROR_INVALID_VALUE;
  if (result) return result;
  State *state = calloc(1, sizeof *state);
  if (!state) return CUDA_ERROR_OUT_OF_MEMORY;
  pthread_mutex_init(&state->lock, NULL);
  state->count = count;
  state->keys = malloc((count ? count : 1) * sizeof *state->keys);
  state->expected = malloc((count ? count : 1) * sizeof *state->expected);
  clock_gettime(CLOCK_MONOTONIC, &state->started);
  if (!state->keys || !state->expected) result = CUDA_ERROR_OUT_OF_MEMORY;
  else {
    if (count) {
      memcpy(state->keys, keys, count * sizeof *keys);
      memcpy(state->expected, values, count * sizeof *values);
    }
    JitOptions options = cl_device_options();
    result = cl_read_options(&options, FOR_LINK, count, keys, values);
    state->options = options.link;
    state->without_code = options.without_code;
    state->wall_time = options.wall_time;
    take_buffer(&state->info, &options.info);
    take_buffer(&state->error, &options.error);
  }
  if (result) {
    free_state(state);
    return result;
  }
  state->values = values;
  /* before the caller's memory is looked at or written to: a create that is refused leaves it as it was (recorded) */
  LinkText text;
  Overlap found[OVERLAPS];
  result = cl_linker_open(&state->linker, &state->options, &text);
  if (result && result != CUDA_ERROR_JIT_COMPILER_NOT_FOUND) {
    cl_text_free(&text);
    free_state(state);
    return result;
  }
  pthread_mutex_lock(&cl_lock);
  state->id = ++last_state;
  int overlaps = find_overlaps(state, found);
  state->next = states;
  states = state;
  pthread_mutex_unlock(&cl_lock);
  tell_overlaps(state, found, overlaps);
  /* also where the size given is 0 (recorded) */
  if (state->info.buffer) cl_write_safely(state->info.buffer, "", 1);
  if (state->error.buffer) cl_write_safely(state->error.buffer, "", 1);
  flush_log(state, &state->info);
  flush_log(state, &state->error);
  /* the caller learns of a missing linker where a real driver without its compiler says so: at add */
  state->poison = result;
  write_logs(state, &text, false);
  *out = state;
  return CUDA_SUCCESS;
}

static CUresult leave_create(Call *call, CUresult result, unsigned count, const int *keys, State **out) {
  char text[512];
  size_t at = 0;
  text[0] = 0;
  for (unsigned option = 0; keys && option < count && at + 64 < sizeof text; option++)
    at += (size_t)snprintf(text + at, sizeof text - at, "%s%d", option ? "," : "", keys[option]);
  return cl_leave(call, result, ",\"state\":%llu,\"options\":[%s]",
                  result ? 0ULL : (unsigned long long)(*out)->id, text);
}

EXPORT CUresult cuLinkCreate_v2(unsigned count, int *keys, void **values, State **out) {
  ENTER(cuLinkCreate_v2);
  return leave_create(&call, create(count, keys, (uint64_t *)values, out), count, keys, out);
}

EXPORT CUresult cuLinkCreate(unsigned count, int *keys, void **values, State **out) {
  ENTER(cuLinkCreate);
  return leave_create(&call, create(count, keys, (uint64_t *)values, out), count, keys, out);
}

/* -- add -- */

enum { TYPE_CUBIN, TYPE_PTX, TYPE_FATBIN, TYPE_OBJECT, TYPE_LIBRARY, TYPE_NVVM, TYPES };

static CUresult poison(State *state, CUresult code) { return state->poison = code; }

typedef struct {
  State *state;
  const char *input;
  const Name *clash;
} Search;

static void look_for_clash(void *context, const char *name, size_t length) {
  Search *search = context;
  for (const Name *known = search->state->definitions; !search->clash && known; known = known->next)
    if (strlen(known->name) == length && !memcmp(known->name, name, length)) search->clash = known;
}

static void keep_definition(void *context, const char *name, size_t length) {
  Search *search = context;
  Name *fresh = malloc(sizeof *fresh + length + 1);
  if (!fresh) return;
  memcpy(fresh->name, name, length);
  fresh->name[length] = 0;
  fresh->input = search->input;
  fresh->next = search->state->definitions;
  search->state->definitions = fresh;
}

enum { STB_GLOBAL = 1, STT_SECTION = 3 };

static void each_definition(ImageKind kind, const void *data, size_t size, const Elf *elf, Definition *found, void *context) {
  if (kind == IMAGE_PTX) {
    cl_ptx_definitions(data, size, found, context);
    return;
  }
  ElfSymbol symbol;
  for (uint32_t at = 1; kind == IMAGE_ELF && elf && cl_elf_symbol(elf, at, &symbol); at++)
    if (symbol.section && symbol.info >> 4 == STB_GLOBAL && (symbol.info & 15) != STT_SECTION)
      found(context, symbol.name, strlen(symbol.name));
}

/* The driver refuses a second strong definition when it is added; nvJitLink would link it and print to stdout. */
static CUresult check_duplicates(State *state, ImageKind kind, const void *data, size_t size, const Elf *elf, const char *name) {
  Search search = {state, name, NULL};
  each_definition(kind, data, size, elf, look_for_clash, &search);
  if (search.clash) {
    log_error(state, "error   : Multiple definition of '%s' in '%s', first defined in '%s'", search.clash->name, name,
              search.clash->input);
    return poison(state, CUDA_ERROR_INVALID_SOURCE);
  }
  each_definition(kind, data, size, elf, keep_definition, &search);
  return CUDA_SUCCESS;
}

static const char *keep_input_name(State *state, const char *name) {
  char numbered[32];
  snprintf(numbered, sizeof numbered, "Input %u", state->inputs);
  if (!name) name = numbered;
  Name *kept = malloc(sizeof *kept + strlen(name) + 1);
  if (!kept) return "";
  strcpy(kept->name, name);
  kept->next = state->inputs_named;
  state->inputs_named = kept;
  return kept->name;
}

/* Gives one input to nvJitLink. */
static CUresult give(State *state, ImageKind kind, bool host_object, const void *data, size_t size, const char *name) {
  LinkText text = {0};
  if (state->without_code) return CUDA_ERROR_INVALID_IMAGE;
  CUresult result = cl_linker_add(state->linker, kind, host_object, data, size, name, &text);
  if (result == CUDA_ERROR_NO_BINARY_FOR_GPU || result == CUDA_ERROR_UNKNOWN) cl_text_free(&text);
  write_logs(state, &text, false);
  return result;
}

/* Where a real driver was seen to read behind the end of the data and crash, or not to return (recorded). */
static CUresult cut_short(State *state, const char *what, const char *name, size_t size) {
  log_error(state, "error   : '%s' is %s cut at %zu bytes, on which a real driver may crash", name, what, size);
  return CUDA_ERROR_INVALID_IMAGE;
}

/* A copy that goes on with zeros, for what ends a little early without a real driver noticing. */
static uint8_t *padded(const uint8_t *data, size_t size, size_t wanted) {
  uint8_t *copy = calloc(1, wanted);
  if (copy) memcpy(copy, data, size);
  return copy;
}

enum { UNREAD_TAIL = 64, SMALLEST_ARCHIVE = 68 }; /* bytes at the end of the last header that a real driver does not read */

static CUresult not_recognized(State *state, int times) {
  while (times-- > 0) log_error(state, "error   : Binary format for key='0', ident='' is not recognized");
  return CUDA_ERROR_INVALID_IMAGE;
}

static void no_code(State *state, const char *name) {
  LinkText text = {0};
  if (asprintf(&text.info, " No code for sm_%d in %s; continuing.", state->options.arch, name) < 0) text.info = NULL;
  write_logs(state, &text, false);
}

/* CUDA 12.7 has no nvJitLink of its own; that of 12.8 reads newer PTX than the driver did. */
static CUresult check_ptx_12_7(State *state, const char *data) {
  int version, target, line = 1;
  enum { DRIVER = 12070, PTX = 86 };
  if (cl_config()->version != DRIVER || !cl_ptx_head(data, strlen(data), &version, &target) || version <= PTX)
    return CUDA_SUCCESS;
  for (const char *at = data; at < strstr(data, ".version"); at++) line += *at == '\n';
  log_error(state, "ptxas application ptx input, line %d; fatal   : Unsupported .version %d.%d; current version is '8.6'",
            line, version / 10, version % 10);
  return ptx_failure = CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
}

/* Compiles PTX apart from the link: one that defines a symbol anew would make nvJitLink print to stdout. */
static CUresult compile_apart(State *state, const char *data, const char *name) {
  Linker *apart = NULL;
  LinkText text;
  CUresult result = cl_linker_open(&apart, &state->options, &text);
  if (!result) result = cl_linker_add(apart, IMAGE_PTX, false, data, strlen(data) + 1, name, &text);
  cl_linker_close(apart);
  write_logs(state, &text, false);
  return result;
}

static CUresult add_ptx(State *state, const char *data, const char *name) {
  if (check_ptx_12_7(state, data)) return ptx_failure;
  Search search = {state, name, NULL};
  if (!state->without_code) each_definition(IMAGE_PTX, data, strlen(data), NULL, look_for_clash, &search);
  CUresult result = search.clash ? compile_apart(state, data, name)
                                 : give(state, IMAGE_PTX, false, data, strlen(data) + 1, name);
  if (result) ptx_failure = result;
  return result ? result : check_duplicates(state, IMAGE_PTX, data, strlen(data), NULL, name);
}

enum { ET_REL = 1, ELF_HEADER = 64 };

/* Where the section table of an ELF image ends, by its own header. */
static uint64_t sections_end(const uint8_t *data) {
  uint64_t table = 0;
  for (int at = 7; at >= 0; at--) table = table << 8 | data[40 + at];
  return table + (uint64_t)(data[60] | data[61] << 8) * 64;
}

/* An ELF image where a cubin is expected; every failure spoils the state, as it does with a real driver. */
static CUresult add_cubin(State *state, const uint8_t *data, size_t size, const char *name) {
  Elf elf;
  char problem[128];
  uint8_t *copy = NULL;
  uint64_t end = size >= ELF_HEADER ? sections_end(data) : 0;
  if (end > size && size < 2 * ELF_HEADER && data[4] == 2) return poison(state, cut_short(state, "a cubin", name, size));
  if (size >= 18 && (data[16] | data[17] << 8) != ET_REL) return poison(state, CUDA_ERROR_NO_BINARY_FOR_GPU);
  if (size >= 5 && data[4] != 2) return poison(state, CUDA_ERROR_NO_BINARY_FOR_GPU);
  if (size < ELF_HEADER) {
    if (size < 5) return poison(state, CUDA_ERROR_NO_BINARY_FOR_GPU);
    log_error(state, "fatal   : Unknown arch name ''");
    return poison(state, CUDA_ERROR_UNKNOWN);
  }
  if (end - 64 * (uint64_t)(data[60] | data[61] << 8) >= size) {
    log_error(state, "fatal   : Internal error: symsec not found");
    return poison(state, CUDA_ERROR_UNKNOWN);
  }
  if (end > size) {
    if (end - size >= UNREAD_TAIL) {
      log_error(state, "fatal   : Internal error: section not mapped");
      return poison(state, CUDA_ERROR_UNKNOWN);
    }
    if (!(copy = padded(data, size, (size_t)end))) return CUDA_ERROR_OUT_OF_MEMORY;
    data = copy;
    size = (size_t)end;
  }
  CUresult result;
  if (!cl_elf_open(&elf, data, size, problem, sizeof problem)) {
    log_error(state, "error   : '%s' is a damaged cubin, on which a real driver may crash: %s", name, problem);
    result = poison(state, CUDA_ERROR_INVALID_IMAGE);
  } else if (!cl_elf_arch(&elf)) {
    log_error(state, "fatal   : Unknown arch name ''");
    result = poison(state, CUDA_ERROR_UNKNOWN);
  } else if (cl_elf_arch(&elf) != state->options.arch || cl_elf_release(&elf) > cl_config()->version)
    result = poison(state, CUDA_ERROR_NO_BINARY_FOR_GPU);
  else {
    result = check_duplicates(state, IMAGE_ELF, data, size, &elf, name);
    if (!result) {
      if (elf.machine != 190 && !copy) { /* the driver does not look at the machine; nvJitLink does */
        copy = malloc(size);
        if (copy) memcpy(copy, data, size), data = copy;
      }
      if (copy) copy[18] = 190, copy[19] = 0;
      result = give(state, IMAGE_ELF, false, data, size, name);
      if (result) poison(state, result = CUDA_ERROR_NO_BINARY_FOR_GPU);
    }
  }
  free(copy);
  return result;
}

static CUresult add_fatbin(State *state, const uint8_t *data, size_t size, const char *name, bool as_ptx) {
  CUresult result = give(state, IMAGE_FATBIN, false, data, size, name);
  if (result == CUDA_ERROR_NO_BINARY_FOR_GPU && !as_ptx) {
    no_code(state, name);
    return CUDA_SUCCESS;
  }
  return result == CUDA_ERROR_UNKNOWN ? CUDA_ERROR_INVALID_IMAGE : result;
}

/* A fatbin whose end is missing still links if what fits the target is there. */
static CUresult add_cut_fatbin(State *state, const uint8_t *data, size_t size, const char *name, bool as_ptx) {
  size_t wanted = cl_fatbin_usable(data, size, state->options.arch);
  if (!wanted) return cut_short(state, "a fatbin", name, size);
  if (wanted == size) return add_fatbin(state, data, size, name, as_ptx);
  uint8_t *copy = padded(data, size, wanted);
  if (!copy) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = add_fatbin(state, copy, wanted, name, as_ptx);
  free(copy);
  return result;
}

static CUresult add_object(State *state, const uint8_t *data, size_t size, const char *name) {
  uint8_t *copy = NULL;
  if (size < ELF_HEADER) return cut_short(state, "an object", name, size);
  uint64_t end = sections_end(data);
  if (end > size) {
    if (size < 2 * ELF_HEADER) return CUDA_ERROR_INVALID_IMAGE;
    if (end - size >= UNREAD_TAIL) return cut_short(state, "an object", name, size);
    if (!(copy = padded(data, size, (size_t)end))) return CUDA_ERROR_OUT_OF_MEMORY;
    data = copy;
    size = (size_t)end;
  }
  enum { EM_CUDA = 190 };
  CUresult result = (data[18] | data[19] << 8) == EM_CUDA ? CUDA_ERROR_UNKNOWN : give(state, IMAGE_ELF, true, data, size, name);
  free(copy);
  if (result == CUDA_ERROR_NO_BINARY_FOR_GPU) return no_code(state, name), CUDA_SUCCESS;
  return result == CUDA_ERROR_UNKNOWN ? CUDA_ERROR_INVALID_IMAGE : result;
}

static CUresult add_library(State *state, const uint8_t *data, size_t size, const char *name) {
  uint8_t *copy = NULL;
  uint64_t wanted = cl_archive_size(data, size);
  if (!wanted || (wanted > size && wanted - size >= UNREAD_TAIL)) return cut_short(state, "a library", name, size);
  if (wanted > size) {
    if (!(copy = padded(data, size, (size_t)wanted))) return CUDA_ERROR_OUT_OF_MEMORY;
    data = copy;
    size = (size_t)wanted;
  }
  CUresult result = give(state, IMAGE_ARCHIVE, false, data, size, name);
  free(copy);
  return result == CUDA_ERROR_UNKNOWN ? CUDA_ERROR_INVALID_IMAGE : result;
}

/* Adds one input by what the caller says it is and what its bytes are; the pairs are those of the recording. */
static CUresult add_input(State *state, int type, const uint8_t *data, size_t size, const char *name) {
  ImageKind kind = cl_image_kind(data, size);
  switch (type) {
    case TYPE_CUBIN:
      if (kind == IMAGE_ELF) return add_cubin(state, data, size, name);
      return state->spoiled = CUDA_ERROR_INVALID_IMAGE;
    case TYPE_PTX:
    case TYPE_FATBIN:
      if (kind == IMAGE_PTX) return add_ptx(state, (const char *)data, name);
      if (kind == IMAGE_ELF && size > 19 && (data[18] | data[19] << 8) == 190) return add_cubin(state, data, size, name);
      if (kind == IMAGE_FATBIN) return add_cut_fatbin(state, data, size, name, type == TYPE_PTX);
      return not_recognized(state, type == TYPE_FATBIN ? 2 : 1);
    case TYPE_OBJECT:
      if (kind == IMAGE_ELF) return add_object(state, data, size, name);
      log_error(state, "fatal   : Could not find fatbin in '%s'", name);
      return CUDA_ERROR_UNKNOWN;
    case TYPE_LIBRARY:
      if (kind == IMAGE_ARCHIVE) return add_library(state, data, size, name);
      if (kind == IMAGE_PTX || size < SMALLEST_ARCHIVE) return CUDA_ERROR_INVALID_IMAGE;
      log_error(state, "fatal   : unexpected archive format");
      return CUDA_ERROR_UNKNOWN;
    default:
      return poison(state, CUDA_ERROR_JIT_COMPILER_NOT_FOUND); /* LTO-IR of CUDA 12 and later is not the driver's */
  }
}

static CUresult check_input_options(unsigned count, const int *keys, void *const *values) {
  static const bool allowed[OPTION_COUNT] = {
      [MAX_REGISTERS] = true, [THREADS_PER_BLOCK] = true, [OPTIMIZATION_LEVEL] = true, [DEBUG_INFO] = true,
      [LOG_VERBOSE] = true,   [LINE_INFO] = true,         [CACHE_MODE] = true,         [POSITION_INDEPENDENT] = true,
      [MIN_CTA] = true,       [MAX_THREADS] = true,       [OVERRIDE_DIRECTIVES] = true, [SPLIT_COMPILE] = true,
  };
  if (count && (!keys || !values)) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned at = 0; at < count; at++)
    if (keys[at] < 0 || keys[at] >= OPTION_COUNT || !allowed[keys[at]]) return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

static CUresult add_data(State *state, int type, const void *data, size_t size, const char *name, unsigned count,
                         const int *keys, void *const *values) {
  if (!data || !size || type < 0 || type >= TYPES || check_input_options(count, keys, values)) return CUDA_ERROR_INVALID_VALUE;
  if (state->completed) return CUDA_ERROR_INVALID_VALUE;
  if (state->poison) return state->poison;
  state->inputs++;
  const char *kept = keep_input_name(state, name);
  if (cl_image_kind(data, size) == IMAGE_PTX && (type == TYPE_PTX || type == TYPE_FATBIN)) {
    size_t whole = cl_text_size(data); /* PTX counts up to its NUL, whatever size was given (measured) */
    if (!whole) return cut_short(state, "PTX without its NUL,", kept, size);
    char *text = malloc(whole);
    if (!text) return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(text, data, whole);
    CUresult result = add_ptx(state, text, kept);
    free(text);
    return result;
  }
  return add_input(state, type, data, size, kept);
}

static CUresult leave_add(Call *call, CUresult result, const State *state, int type, size_t size, const char *name,
                          unsigned count) {
  char text[160];
  return cl_leave(call, result, ",\"state\":%llu,\"type\":%d,\"bytes\":%zu,\"name\":\"%s\"%s",
                  state ? (unsigned long long)state->id : 0ULL, type, size, cl_json(name, text, sizeof text),
                  count && !result ? ",\"note\":\"options of one input are checked and not applied\"" : "");
}

static CUresult add_and_leave(Call *call, State *handle, int type, const void *data, size_t size, const char *name,
                              unsigned count, const int *keys, void *const *values) {
  State *state = find_state(handle);
  CUresult result = CUDA_ERROR_INVALID_HANDLE;
  if (state) {
    pthread_mutex_lock(&state->lock);
    check_memory(state, "cuLinkAddData_v2");
    result = add_data(state, type, data, size, name, count, keys, values);
    pthread_mutex_unlock(&state->lock);
    tell_violations();
  }
  return leave_add(call, result, state, type, size, name, count);
}

EXPORT CUresult cuLinkAddData_v2(State *state, int type, void *data, size_t size, const char *name, unsigned count,
                                 int *keys, void **values) {
  ENTER_ANY_TIME(cuLinkAddData_v2);
  return add_and_leave(&call, state, type, data, size, name, count, keys, values);
}

EXPORT CUresult cuLinkAddData(State *state, int type, void *data, size_t size, const char *name, unsigned count, int *keys,
                              void **values) {
  ENTER_ANY_TIME(cuLinkAddData);
  return add_and_leave(&call, state, type, data, size, name, count, keys, values);
}

static CUresult read_input(const char *path, void **data, size_t *size) {
  struct stat about;
  if (!path || !*path) return CUDA_ERROR_INVALID_VALUE;
  if (!stat(path, &about) && !S_ISREG(about.st_mode)) return CUDA_ERROR_OUT_OF_MEMORY; /* a folder (measured) */
  CUresult result = cl_read_file(path, data, size);
  if (result || *size) return result;
  free(*data);
  return CUDA_ERROR_INVALID_IMAGE;
}

static CUresult add_file_and_leave(Call *call, State *handle, int type, const char *path, unsigned count, const int *keys,
                                   void *const *values) {
  State *state = find_state(handle);
  CUresult result = CUDA_ERROR_INVALID_HANDLE;
  void *data = NULL;
  size_t size = 0;
  if (state) {
    pthread_mutex_lock(&state->lock);
    check_memory(state, "cuLinkAddFile_v2");
    result = read_input(path, &data, &size);
    if (!result) {
      result = add_data(state, type, data, size, path, count, keys, values);
      free(data);
    }
    pthread_mutex_unlock(&state->lock);
    tell_violations();
  }
  return leave_add(call, result, state, type, size, path, count);
}

EXPORT CUresult cuLinkAddFile_v2(State *state, int type, const char *path, unsigned count, int *keys, void **values) {
  ENTER_ANY_TIME(cuLinkAddFile_v2);
  return add_file_and_leave(&call, state, type, path, count, keys, values);
}

EXPORT CUresult cuLinkAddFile(State *state, int type, const char *path, unsigned count, int *keys, void **values) {
  ENTER_ANY_TIME(cuLinkAddFile);
  return add_file_and_leave(&call, state, type, path, count, keys, values);
}

/* -- complete and destroy -- */

static CUresult complete(State *state, void **image, size_t *size) {
  if (!image) return CUDA_ERROR_INVALID_VALUE;
  if (state->completed && !state->poison) return CUDA_ERROR_INVALID_HANDLE;
  LinkText text = {0};
  CUresult result = state->poison ? state->poison : state->spoiled;
  if (!result) {
    state->completed = true;
    result = cl_linker_complete(state->linker, &state->image, &state->image_size, &text);
    if (result == CUDA_ERROR_INVALID_SOURCE && ptx_failure)
      result = ptx_failure == CUDA_ERROR_UNSUPPORTED_PTX_VERSION ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
    if (result) poison(state, result);
  }
  write_logs(state, &text, true);
  if (state->wall_time >= 0) write_value(state, (unsigned)state->wall_time, cl_wall_time(&state->started));
  if (result) return result;
  *image = state->image;
  if (size) *size = state->image_size;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuLinkComplete(State *handle, void **image, size_t *size) {
  ENTER_ANY_TIME(cuLinkComplete);
  State *state = find_state(handle);
  if (!state) LEAVE(CUDA_ERROR_INVALID_HANDLE, "");
  pthread_mutex_lock(&state->lock);
  check_memory(state, "cuLinkComplete");
  CUresult result = complete(state, image, size);
  pthread_mutex_unlock(&state->lock);
  tell_violations();
  LEAVE(result, ",\"state\":%llu,\"bytes\":%zu", (unsigned long long)state->id, result ? (size_t)0 : state->image_size);
}

EXPORT CUresult cuLinkDestroy(State *handle) {
  ENTER_ANY_TIME(cuLinkDestroy);
  State *state = find_state(handle);
  if (!state) LEAVE(CUDA_ERROR_INVALID_HANDLE, "");
  check_memory(state, "cuLinkDestroy");
  tell_violations();
  if (cl_config()->punish) {
    /* the driver of the recording does not touch the memory here; the contract says that one may */
    flush_log(state, &state->info);
    flush_log(state, &state->error);
  }
  pthread_mutex_lock(&cl_lock);
  for (State **link = &states; *link; link = &(*link)->next)
    if (*link == state) {
      *link = state->next;
      break;
    }
  pthread_mutex_unlock(&cl_lock);
  uint64_t id = state->id;
  free_state(state);
  LEAVE(CUDA_SUCCESS, ",\"state\":%llu", (unsigned long long)id);
}
