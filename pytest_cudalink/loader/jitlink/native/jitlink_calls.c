/* Links that code below Python makes through libnvJitLink. Its functions, and on request those of NVRTC, are redirected
   where the loader looks them up, in the library's own symbols, and in the slots of objects that are bound to them
   already. */
#include "jitlink_calls.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jitlink_contract.h"
#include "loaded_object.h"
#include "locks.h"
#include "safe_memory.h"

#define EXPORT __attribute__((visibility("default")))
#if defined __has_attribute
#if __has_attribute(musttail)
#define TAIL_CALL __attribute__((musttail))
#endif
#endif
#ifndef TAIL_CALL
#define TAIL_CALL /* an optimizing compiler makes it one; a test looks */
#endif

/* -- counting */

typedef struct {
  uintptr_t caller; /* the address to which the calls return; 0: free */
  unsigned long count;
} Place;

enum { PLACES = 1024 };
static Place places[PLACES];
STATIC_LOCK(looking);
static unsigned long elsewhere;   /* calls from more places than the table has */
static unsigned long waiting;     /* calls that were not taken yet */
static _Thread_local int covered; /* by Python */
static _Thread_local int depth;   /* calls that are at work: a function of nvJitLink may call another one */

static void count(uintptr_t caller) {
  unsigned long *counter = &elsewhere;
  for (unsigned step = 0, at = (unsigned)(caller >> 2) % PLACES; step < PLACES; step++, at = (at + 1) % PLACES) {
    uintptr_t free = 0;
    if (__atomic_load_n(&places[at].caller, __ATOMIC_RELAXED) != caller &&
        !__atomic_compare_exchange_n(&places[at].caller, &free, caller, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED) &&
        free != caller)
      continue;
    counter = &places[at].count;
    break;
  }
  __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
  __atomic_fetch_add(&waiting, 1, __ATOMIC_RELEASE);
}

static unsigned long take(unsigned long *counter) {
  unsigned long taken = __atomic_exchange_n(counter, 0, __ATOMIC_RELAXED);
  if (taken) __atomic_fetch_sub(&waiting, taken, __ATOMIC_RELAXED);
  return taken;
}

/* -- the input that was refused last, by any thread: a library may raise its own error for it */

static struct {
  pthread_mutex_t lock;
  void *content; /* of the input, or the name of its file; owned; NULL: there is none */
  RefusedInput about;
} refusal = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Reads memory that may not be there: what was refused need not have been read. */
static void *copy_of(const void *content, size_t size) {
  void *copy = content && size ? malloc(size) : NULL;
  if (copy && cl_read_safely(content, copy, size)) return copy;
  free(copy);
  return NULL;
}

static void keep_refused(JitLinkCall *original, bool is_file, int code, const void *content, size_t size) {
  RefusedInput about = {.size = size, .code = code, .is_file = is_file};
  Dl_info library = {0};
  int error = errno;
  void *copy = copy_of(content, size);
  if (copy && dladdr((void *)original, &library) && library.dli_fname &&
      strlen(library.dli_fname) < sizeof about.library)
    strcpy(about.library, library.dli_fname);
  if (copy) {
    pthread_mutex_lock(&refusal.lock);
    free(refusal.content);
    refusal.about = about;
    __atomic_store_n(&refusal.content, copy, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&refusal.lock);
  }
  errno = error;
}

EXPORT int cudalinkTakeRefusedInput(RefusedInput *about, void *out, size_t room) {
  HOLD(refusal.lock);
  bool found = refusal.content;
  *about = refusal.about;
  if (found && refusal.about.size <= room) {
    memcpy(out, refusal.content, refusal.about.size);
    free(refusal.content);
    refusal.content = NULL;
  }
  return found;
}

static int opening; /* how many calls of dlopen with a path are under way */

/* The links of the parent are the parent's. */
static void forget_in_child(void) {
  for (int at = 0; at < PLACES; at++) places[at].count = 0;
  elsewhere = waiting = 0;
  opening = 0;            /* (a thread that the child lacks may have been there) */
  refusal.content = NULL; /* (its memory may be half freed) */
}

OPEN_IN_CHILDREN(refusal.lock);
FORGET_IN_CHILDREN(forget_in_child);

EXPORT unsigned long cudalinkTakeCalls(char *path, size_t size) {
  unsigned long taken = 0;
  Dl_info object = {0};
  for (int at = 0; at < PLACES && !taken; at++) {
    taken = take(&places[at].count);
    if (taken && !dladdr((void *)places[at].caller, &object)) object.dli_fname = NULL;
  }
  if (!taken) taken = take(&elsewhere);
  if (size) path[0] = 0;
  if (object.dli_fname && strlen(object.dli_fname) < size) memcpy(path, object.dli_fname, strlen(object.dli_fname) + 1);
  return taken;
}

EXPORT void cudalinkCover(int on) { covered = on; }

/* -- the functions that stand in for those of nvJitLink and of NVRTC: one for each original */

typedef int NvrtcCall(uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t);

/* Two major releases of both libraries in one process have about 330. */
enum { ORIGINALS = 512 };
static struct {
  JitLinkFunction function; /* JL_FUNCTIONS for one of NVRTC */
  const char *name;         /* without a release; lives as long as the process */
  JitLinkCall *call;
  uintptr_t base; /* of the library */
} originals[ORIGINALS];
static int original_count;

/* A function of the same library as that with a number; NULL if it has none that is redirected. */
static JitLinkCall *sibling(int number, JitLinkFunction function) {
  for (int at = 0; at < original_count; at++)
    if (originals[at].function == function && originals[at].base == originals[number].base) return originals[at].call;
  return NULL;
}

/* Answers what a call must return instead of being made, or -1: who lets calls fail says so. */
static int (*meddler_of_jitlink)(const char *function);
static int (*meddler_of_nvrtc)(const char *function);

EXPORT void cudalinkMeddle(int (*wanted)(const char *), int jitlink, int nvrtc) {
  __atomic_store_n(&meddler_of_jitlink, jitlink ? wanted : NULL, __ATOMIC_RELEASE);
  __atomic_store_n(&meddler_of_nvrtc, nvrtc ? wanted : NULL, __ATOMIC_RELEASE);
}

static long live_programs;

EXPORT long cudalinkLivePrograms(void) { return __atomic_load_n(&live_programs, __ATOMIC_RELAXED); }

static int call_nvrtc(int number, const uintptr_t arguments[6]) {
  NvrtcCall *original = (NvrtcCall *)(uintptr_t)originals[number].call;
  int result = original(arguments[0], arguments[1], arguments[2], arguments[3], arguments[4], arguments[5]);
  const char *name = originals[number].name;
  if (!result && !strcmp(name, "nvrtcCreateProgram")) __atomic_fetch_add(&live_programs, 1, __ATOMIC_RELAXED);
  if (!result && !strcmp(name, "nvrtcDestroyProgram")) __atomic_fetch_sub(&live_programs, 1, __ATOMIC_RELAXED);
  return result;
}

static int call(int number, uintptr_t arguments[6], void *caller) {
  JitLinkFunction function = originals[number].function;
  JitLinkCall *original = originals[number].call;
  int (**meddler)(const char *) = function == JL_FUNCTIONS ? &meddler_of_nvrtc : &meddler_of_jitlink;
  int (*asked)(const char *) = depth ? NULL : __atomic_load_n(meddler, __ATOMIC_ACQUIRE);
  int failure = asked ? asked(originals[number].name) : -1;
  if (failure >= 0) return failure;
  if (function == JL_COMPLETE && !depth && !covered) count((uintptr_t)caller);
  int result;
  if (function == JL_FUNCTIONS) {
    depth++;
    result = call_nvrtc(number, arguments);
  } else if (!depth++ && cl_is_checked()) {
    bool has_size = function > JL_CUBIN_SIZE && (function - JL_CUBIN_SIZE) % 2 == 1;
    JitLinkUse use = {.function = function, .original = original, .caller = (uintptr_t)caller};
    if (has_size) use.size = sibling(number, (JitLinkFunction)(function - 1));
    if (function == JL_CREATE) use.destroy = sibling(number, JL_DESTROY);
    result = cl_checked_call(&use, arguments);
  } else {
    result = original(arguments[0], arguments[1], arguments[2], arguments[3], arguments[4]);
  }
  depth--;
  if (result && !depth) {
    if (function == JL_ADD_DATA) keep_refused(original, false, result, (void *)arguments[2], arguments[3]);
    const char *path = function == JL_ADD_FILE ? (const char *)arguments[2] : NULL;
    if (path) keep_refused(original, true, result, path, strlen(path));
  }
  return result;
}

#define STAND_IN(N)                                                                                       \
  static int stand_in_##N(uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d, uintptr_t e, uintptr_t f) { \
    return call(0##N, (uintptr_t[6]){a, b, c, d, e, f}, __builtin_return_address(0));                     \
  }
#define EIGHT(DO, T) DO(T##0) DO(T##1) DO(T##2) DO(T##3) DO(T##4) DO(T##5) DO(T##6) DO(T##7)
#define SIXTY_FOUR(DO, T) \
  EIGHT(DO, T##0)         \
  EIGHT(DO, T##1) EIGHT(DO, T##2) EIGHT(DO, T##3) EIGHT(DO, T##4) EIGHT(DO, T##5) EIGHT(DO, T##6) EIGHT(DO, T##7)
#define ALL(DO)     \
  SIXTY_FOUR(DO, 0) \
  SIXTY_FOUR(DO, 1) \
  SIXTY_FOUR(DO, 2) SIXTY_FOUR(DO, 3) SIXTY_FOUR(DO, 4) SIXTY_FOUR(DO, 5) SIXTY_FOUR(DO, 6) SIXTY_FOUR(DO, 7)
#define NAME(N) stand_in_##N,
ALL(STAND_IN)
static NvrtcCall *const stand_ins[ORIGINALS] = {ALL(NAME)};

static bool is_stand_in(uintptr_t address) {
  for (int at = 0; at < original_count; at++)
    if ((uintptr_t)stand_ins[at] == address) return true;
  return false;
}

static const char *const *nvrtc_functions; /* NULL: they are not watched */

/* The name of a function of NVRTC that is watched, as it was given; NULL for others. */
static const char *nvrtc_name(const char *name) {
  if (nvrtc_functions && !strncmp(name, "nvrtc", 5))
    for (const char *const *one = nvrtc_functions; *one; one++)
      if (!strcmp(*one, name)) return *one;
  return NULL;
}

/* 0 if there are more originals than stand-ins. */
static uintptr_t stand_in_for(uintptr_t original, const char *name, uintptr_t base) {
  int at = 0;
  while (at < original_count && (uintptr_t)originals[at].call != original) at++; /* one that was loaded before */
  if (at == ORIGINALS) return 0;
  originals[at].call = (JitLinkCall *)original;
  originals[at].function = cl_jitlink_function(name);
  originals[at].name = nvrtc_name(name);
  if (!originals[at].name) originals[at].name = cl_jitlink_name(originals[at].function);
  originals[at].base = base;
  if (at == original_count) original_count++;
  return (uintptr_t)stand_ins[at];
}

/* -- the objects of the process */

static bool is_watched(const char *name) {
  return (name[0] == 'n' || name[0] == '_') && (cl_jitlink_function(name) != JL_FUNCTIONS || nvrtc_name(name));
}

static void *watched_dlopen(const char *path, int mode);
static void *watched_dlsym(void *handle, const char *name);

/* The objects that need no further look: those that were looked at twice, because at the first time the loader may not
   have been done with them. */
enum { KNOWN = 8192 };
static struct {
  uintptr_t base;
  int looks;
} known[KNOWN];
static unsigned long long adds, subs;
static bool later;      /* something was left for the next look */
static int refused;     /* LOOK_REFUSED until that was answered */
static bool loaded;     /* a library may have been loaded since the last look */
static int late_before; /* LOOK_LATE if a library was found before another one was opened, until that was answered */

static int *looks_at(uintptr_t base) {
  static int overflow;
  for (unsigned step = 0, at = (unsigned)(base >> 12) % KNOWN; step < KNOWN; step++, at = (at + 1) % KNOWN) {
    if (known[at].base != base && known[at].looks) continue;
    known[at].base = base;
    return &known[at].looks;
  }
  overflow = 0;
  return &overflow;
}

static void redirect_slot(void *context, const LoadedObject *object, const char *name, uintptr_t *slot) {
  (void)context;
  uintptr_t value = __atomic_load_n(slot, __ATOMIC_RELAXED), wanted = 0;
  if (name[0] == 'd') {
    if (!strcmp(name, "dlsym")) wanted = (uintptr_t)watched_dlsym;
    if (!strcmp(name, "dlopen")) wanted = (uintptr_t)watched_dlopen;
  } else if (is_watched(name)) {
    /* the loader binds a slot that is not bound yet by the symbols, which are redirected */
    for (int at = 0; at < original_count; at++)
      if ((uintptr_t)originals[at].call == value) wanted = (uintptr_t)stand_ins[at];
  }
  if (wanted && wanted != value && !cl_replace_word(object, slot, wanted)) later = true;
}

static void redirect_symbol(void *context, const LoadedObject *object, const char *name, ElfW(Sym) * symbol) {
  int *answer = context;
  if (!is_watched(name) || is_stand_in(object->base + symbol->st_value)) return;
  uintptr_t wanted = stand_in_for(object->base + symbol->st_value, name, object->base);
  bool done = wanted && cl_replace_word(object, (uintptr_t *)&symbol->st_value, wanted - object->base);
  if (cl_jitlink_function(name) != JL_FUNCTIONS) *answer |= done ? LOOK_LATE : LOOK_REFUSED;
}

/* Whether an object defines functions that are watched: the library, or one with a copy of it that exports them. */
static bool is_library(const LoadedObject *object) {
  static const char *const names[] = {"nvJitLinkComplete", "__nvJitLinkComplete_12_0", "__nvJitLinkComplete_13_0",
                                      "__nvJitLinkComplete_14_0"};
  for (size_t at = 0; at < sizeof names / sizeof *names; at++)
    if (cl_defined_symbol(object, names[at])) return true;
  return nvrtc_functions && cl_defined_symbol(object, "nvrtcCompileProgram");
}

typedef struct {
  int answer;
  bool symbols; /* of objects that define functions that are watched; else the slots of all */
  bool first;
} Pass;

/* Runs under a lock of the loader, one at a time. */
static int look_at(struct dl_phdr_info *info, size_t size, void *context) {
  (void)size;
  Pass *pass = context;
  if (pass->first && pass->symbols) {
    pass->first = false;
    if (info->dlpi_adds == adds && info->dlpi_subs == subs && !later) return 1; /* nothing was loaded */
    if (info->dlpi_subs != subs) memset(known, 0, sizeof known); /* an address may belong to another object now */
    adds = info->dlpi_adds;
    subs = info->dlpi_subs;
    later = false;
  }
  LoadedObject object;
  if (*looks_at(info->dlpi_addr) >= 2 || !cl_read_object(info, &object)) return 0;
  if (cl_has_address(&object, (uintptr_t)places)) return 0; /* this library */
  if (pass->symbols) {
    if (is_library(&object)) cl_visit_symbols(&object, redirect_symbol, &pass->answer);
    return 0;
  }
  cl_visit_slots(&object, redirect_slot, NULL);
  if (++*looks_at(info->dlpi_addr) < 2) later = true;
  return 0;
}

#if defined __GLIBC__ && (defined __x86_64__ || defined __aarch64__)
/* A slot is compared with the functions that are redirected, so all symbols come first. A thread that has loaded
   something waits here until another one has seen to it. */
static int look(void) {
  int error = errno;
  pthread_mutex_lock(&looking);
  __atomic_store_n(&loaded, false, __ATOMIC_RELAXED);
  Pass pass = {.symbols = true, .first = true};
  if (!dl_iterate_phdr(look_at, &pass)) {
    pass.symbols = false;
    dl_iterate_phdr(look_at, &pass);
  }
  if (pass.answer & LOOK_REFUSED) __atomic_store_n(&refused, LOOK_REFUSED, __ATOMIC_RELAXED);
  pthread_mutex_unlock(&looking);
  errno = error;
  return pass.answer & LOOK_LATE;
}
#else
static int look(void) { return LOOK_IMPOSSIBLE; }
#endif

EXPORT void cudalinkWatchNvrtc(const char *const *functions) {
  pthread_mutex_lock(&looking);
  nvrtc_functions = functions;
  memset(known, 0, sizeof known); /* what was looked at may be NVRTC, or bound to it */
  later = true;
  pthread_mutex_unlock(&looking);
  look();
}

/* What cudalinkLook is going to answer. */
static int next_answer(void) {
  covered = 0; /* an interrupt may have come before the code that covers could do so */
  if (__atomic_load_n(&loaded, __ATOMIC_RELAXED)) look(); /* no function was looked up since: nothing was missed */
  int late = look();
  int answer = __atomic_or_fetch(&late_before, late, __ATOMIC_RELAXED) | __atomic_load_n(&refused, __ATOMIC_RELAXED);
  if (__atomic_load_n(&refusal.content, __ATOMIC_ACQUIRE)) answer |= LOOK_INPUT;
  return __atomic_load_n(&waiting, __ATOMIC_ACQUIRE) ? answer | LOOK_CALLS : answer;
}

EXPORT int cudalinkLook(void) {
  int answer = next_answer() | __atomic_exchange_n(&late_before, 0, __ATOMIC_RELAXED) |
               __atomic_exchange_n(&refused, 0, __ATOMIC_RELAXED);
  if (answer & LOOK_LATE) cl_contract_missed_calls();
  return answer;
}

EXPORT uint64_t cudalinkNews(void) {
  static uint64_t news;
  if (next_answer()) news++;
  return news + cudalinkContractHandles() + cudalinkContractViolations();
}

/* -- what objects call to load others, and to look functions up */

/* A folder that does not exist; empty: the driver is not hidden. */
static char hidden[4096];

EXPORT void cudalinkHideDriver(const char *folder) {
  if (strlen(folder) < sizeof hidden) strcpy(hidden, folder);
}

static bool is_hidden(const char *path) {
  const char *slash = path ? strrchr(path, '/') : NULL, *name = slash ? slash + 1 : path;
  return path && hidden[0] && (!strncmp(name, "libcuda.so", 10) || !strncmp(name, "libnvidia-ml.so", 15));
}

/* Look for a library of the driver in the folder that does not exist: the loader says that there is none. Apart from
 * `watched_dlopen`, which has no variable in memory, or else its last call would come back to it. */
static __attribute__((noinline)) void *open_hidden(const char *path, int mode) {
  char missing[sizeof hidden + 64];
  const char *slash = strrchr(path, '/');
  int length = snprintf(missing, sizeof missing, "%s/%s", hidden, slash ? slash + 1 : path);
  return dlopen(length < 0 || (size_t)length >= sizeof missing ? hidden : missing, mode);
}

/* The loader searches a plain name, and replaces "$ORIGIN", for the caller of dlopen: it must stay the same object. */
static void *watched_dlopen(const char *path, int mode) {
  if (is_hidden(path)) return open_hidden(path, mode);
  /* what is there before anything was opened was loaded unnoticed; a constructor opens while its library is loaded */
  if (!__atomic_load_n(&opening, __ATOMIC_RELAXED) && !__atomic_load_n(&loaded, __ATOMIC_RELAXED))
    __atomic_fetch_or(&late_before, look() & LOOK_LATE, __ATOMIC_RELAXED);
  if (!path || !strchr(path, '/') || strchr(path, '$')) {
    __atomic_store_n(&loaded, true, __ATOMIC_RELAXED);
    TAIL_CALL return dlopen(path, mode);
  }
  __atomic_fetch_add(&opening, 1, __ATOMIC_RELAXED);
  void *library = dlopen(path, mode);
  look();
  __atomic_fetch_sub(&opening, 1, __ATOMIC_RELAXED);
  return library;
}

/* RTLD_NEXT means the object that calls dlsym: it must stay the caller. */
static void *watched_dlsym(void *handle, const char *name) {
  if (__atomic_load_n(&loaded, __ATOMIC_RELAXED)) look();
  TAIL_CALL return dlsym(handle, name);
}
