/* nvJitLink's contract: a call that the library would not survive is not made, and each violation is noted. No lock is
   held while the library works, and none of Python's is ever taken: the thread that holds it may wait for this one. */
#include "jitlink_contract.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "locks.h"
#include "safe_memory.h"

#define EXPORT __attribute__((visibility("default")))

static const char *const names[JL_FUNCTIONS] = {"nvJitLinkCreate",         "nvJitLinkDestroy",
                                                "nvJitLinkAddData",        "nvJitLinkAddFile",
                                                "nvJitLinkComplete",       "nvJitLinkGetLinkedCubinSize",
                                                "nvJitLinkGetLinkedCubin", "nvJitLinkGetLinkedPtxSize",
                                                "nvJitLinkGetLinkedPtx",   "nvJitLinkGetLinkedLTOIRSize",
                                                "nvJitLinkGetLinkedLTOIR", "nvJitLinkGetErrorLogSize",
                                                "nvJitLinkGetErrorLog",    "nvJitLinkGetInfoLogSize",
                                                "nvJitLinkGetInfoLog"};

const char *cl_jitlink_name(JitLinkFunction function) { return names[function]; }

JitLinkFunction cl_jitlink_function(const char *name) {
  bool numbered = name[0] == '_' && name[1] == '_';
  if (numbered) name += 2;
  if (strncmp(name, "nvJitLink", 9) != 0) return JL_FUNCTIONS;
  size_t length = strcspn(name, "_");
  if (numbered != (name[length] == '_')) return JL_FUNCTIONS;
  for (int at = 0; at < JL_FUNCTIONS; at++)
    if (strlen(names[at]) == length && !strncmp(names[at], name, length)) return (JitLinkFunction)at;
  return JL_FUNCTIONS;
}

/* -- the handles of this process, alive and destroyed, under the lock */

enum { NAMES = 16, NAME_SIZE = 64, CONTENTS = 5 };

/* The name of an input, where the caller has it and as it was: nvJitLink keeps the pointer until it completes. */
typedef struct {
  uintptr_t at;
  unsigned size; /* with its end; a longer name than NAME_SIZE is compared as far as that */
  char text[NAME_SIZE];
} InputName;

typedef struct {
  uintptr_t value;
  uint64_t number; /* 0: a handle whose creation was not seen */
  bool destroyed, refused, completed;
  unsigned busy;     /* threads that are in a call */
  int failed;        /* the first function that added or completed and failed; -1: none */
  int at_work;       /* the function that the last of them is in */
  unsigned changes;  /* calls that can change a size */
  unsigned reported; /* rules that are reported once for a handle, as bits */
  uintptr_t created_by, destroyed_by;
  struct {
    size_t size;
    unsigned changes; /* as above, when the size was asked */
    bool asked;
  } sizes[CONTENTS];
  unsigned name_count;
  InputName names[NAMES];
} Handle;

enum { HANDLES = 4096 };
static uintptr_t values[HANDLES]; /* apart from the rest, so that a search reads little memory */
static Handle handles[HANDLES];
static unsigned used, oldest;
static bool lost; /* too many were alive once: a value may be unknown although it was created */

/* The handle with a value; NULL if none ever had it. */
static Handle *find_handle(uintptr_t value) {
  for (unsigned at = 0; at < used; at++)
    if (values[at] == value) return &handles[at];
  return NULL;
}

/* A place for a value that has none: a free one, or that of a destroyed handle, in turn. */
static Handle *place(void) {
  if (used < HANDLES) return &handles[used++];
  for (unsigned step = 0; step < HANDLES; step++) {
    Handle *handle = &handles[oldest++ % HANDLES];
    if (handle->destroyed && !handle->busy) return handle;
  }
  lost = true;
  return NULL;
}

/* A new entry for a value, which replaces one that was destroyed; NULL if too many handles are alive. */
static Handle *new_handle(uintptr_t value) {
  Handle *handle = find_handle(value);
  if (!handle) handle = place();
  if (!handle) return NULL;
  memset(handle, 0, offsetof(Handle, names));
  handle->value = values[handle - handles] = value;
  handle->failed = handle->at_work = -1;
  return handle;
}

/* -- state of the process, under the lock */

STATIC_LOCK(lock);
static int mode;
static bool missed;
static uint64_t handle_count, violation_count;
static pthread_t main_thread;
static int (*add_pending)(int (*)(void *), void *);
static int (*tell_python)(void *);

/* Violations that were not taken yet. What comes when it is full is counted all the same. */
enum { VIOLATIONS = 256, HELD = 256 };
static ContractViolation violations[VIOLATIONS];
static unsigned violations_begin, violations_end;
static ContractViolation unseen, *latest = &unseen;

static void forget_in_child(void) {
  for (unsigned at = 0; at < used; at++) handles[at].busy = 0; /* calls of other threads do not go on here */
  violations_begin = violations_end;
  main_thread = pthread_self();
}

FORGET_IN_CHILDREN(forget_in_child);

/* The main thread runs what is pending between two instructions of Python, so that its stack is the caller's. */
static void note(uint64_t kind, uint64_t number) {
  if (!add_pending || !pthread_equal(main_thread, pthread_self())) return;
  add_pending(tell_python, (void *)(uintptr_t)(number << 2 | kind));
}

/* Never NULL. */
static ContractViolation *report(ContractRule rule, const JitLinkUse *use, uintptr_t value, const Handle *handle) {
  violation_count++;
  bool is_full = violations_end - violations_begin == VIOLATIONS;
  ContractViolation *found = latest = is_full ? &unseen : &violations[violations_end++ % VIOLATIONS];
  *found = (ContractViolation){.number = violation_count, .handle = value, .called_by = use->caller};
  found->rule = (int32_t)rule;
  found->function = (int32_t)use->function;
  found->other = -1;
  found->thread = (uint64_t)pthread_self();
  if (handle) {
    found->handle_number = handle->number;
    found->created_by = handle->created_by;
    found->destroyed_by = handle->destroyed ? handle->destroyed_by : 0;
  }
  note(NOTE_VIOLATION, violation_count);
  return found;
}

/* The same, for a rule that is reported once for a handle, since asking for a size and a content breaks it twice. */
static void report_once(ContractRule rule, const JitLinkUse *use, Handle *handle) {
  if (handle->reported & 1U << rule) return;
  handle->reported |= 1U << rule;
  report(rule, use, handle->value, handle)->other = rule == RULE_FAILED ? handle->failed : -1;
}

/* -- names */

/* Whether memory has the content that it had. */
static bool is_kept(const InputName *name) {
  char now[NAME_SIZE];
  return cl_read_safely((const void *)name->at, now, name->size) && !memcmp(now, name->text, name->size);
}

static void keep_name(Handle *handle, const char *name) {
  if (!name || handle->name_count == NAMES) return;
  InputName *kept = &handle->names[handle->name_count++];
  size_t length = strnlen(name, NAME_SIZE);
  kept->at = (uintptr_t)name;
  kept->size = (unsigned)(length < NAME_SIZE ? length + 1 : NAME_SIZE);
  memcpy(kept->text, name, kept->size);
}

static void check_names(const JitLinkUse *use, Handle *handle) {
  for (unsigned at = 0; at < handle->name_count; at++) {
    if (is_kept(&handle->names[at])) continue;
    ContractViolation *found = report(RULE_NAME, use, handle->value, handle);
    memcpy(found->name, handle->names[at].text, handle->names[at].size);
    found->name[NAME_SIZE - 1] = 0;
    return;
  }
}

/* -- the checks of one call */

static bool is_result(JitLinkFunction function) { return function >= JL_CUBIN_SIZE && function <= JL_LTOIR; }
static bool is_size(JitLinkFunction function) {
  return function >= JL_CUBIN_SIZE && (function - JL_CUBIN_SIZE) % 2 == 0;
}
static bool is_content(JitLinkFunction function) { return function > JL_CUBIN_SIZE && !is_size(function); }
static int content_of(JitLinkFunction function) { return ((int)function - JL_CUBIN_SIZE) / 2; }
static bool is_adding(JitLinkFunction function) { return function == JL_ADD_DATA || function == JL_ADD_FILE; }

static bool has_null(const JitLinkUse *use, const uintptr_t arguments[5]) {
  if (use->function == JL_ADD_DATA) return !arguments[2];
  return use->function != JL_COMPLETE && use->function != JL_DESTROY &&
         !arguments[use->function == JL_ADD_FILE ? 2 : 1];
}

/* Reports what is wrong with a call of a handle that is alive; returns whether the library must not see the call. */
static bool check(const JitLinkUse *use, Handle *handle, const uintptr_t arguments[5]) {
  JitLinkFunction function = use->function;
  bool is_log = function >= JL_ERROR_SIZE;
  if (handle->refused && !is_log && function != JL_DESTROY) return report(RULE_REFUSED, use, handle->value, handle);
  if (has_null(use, arguments)) return report(RULE_NULL, use, handle->value, handle);
  if (handle->completed && is_adding(function)) return report(RULE_COMPLETED, use, handle->value, handle);
  if (handle->completed && function == JL_COMPLETE) report(RULE_TWICE, use, handle->value, handle);
  if (mode == 2 && function == JL_COMPLETE && !handle->completed) check_names(use, handle);
  if (is_result(function)) {
    if (!handle->completed) report_once(RULE_EARLY, use, handle);
    else if (handle->failed >= 0) report_once(RULE_FAILED, use, handle);
  }
  if (is_content(function) && !handle->sizes[content_of(function)].asked && (is_log || handle->completed))
    report_once(RULE_UNSIZED, use, handle);
  return false;
}

/* Another thread is in a call of this handle. Returns whether the library must not see the call. */
static bool check_busy(const JitLinkUse *use, Handle *handle) {
  if (!handle->busy) return false;
  report(RULE_BUSY, use, handle->value, handle)->other = handle->at_work;
  return use->function == JL_DESTROY;
}

/* Asks for a content whose size may have changed: a buffer of the size that the caller knows gets no more than that. */
static int guarded_content(const JitLinkUse *use, Handle *handle, uintptr_t arguments[5], size_t asked) {
  size_t actual = 0;
  if (use->size(arguments[0], (uintptr_t)&actual, 0, 0, 0) || actual <= asked)
    return use->original(arguments[0], arguments[1], 0, 0, 0);
  pthread_mutex_lock(&lock);
  ContractViolation *found = report(RULE_GREW, use, handle->value, handle);
  found->asked = asked;
  found->actual = actual;
  found->prevented = 1;
  pthread_mutex_unlock(&lock);
  char *whole = malloc(actual + 1); /* a log of no bytes is written with its end */
  if (!whole) return use->original(0, 0, 0, 0, 0);
  int result = use->original(arguments[0], (uintptr_t)whole, 0, 0, 0);
  if (!result) memcpy((char *)arguments[1], whole, asked);
  if (!result && asked && use->function >= JL_ERROR_SIZE) ((char *)arguments[1])[asked - 1] = 0;
  free(whole);
  return result;
}

/* Keeps what the call has changed. */
static void finish(const JitLinkUse *use, Handle *handle, const uintptr_t arguments[5], int result) {
  JitLinkFunction function = use->function;
  bool changes = is_adding(function) || function == JL_COMPLETE;
  if (changes || result) handle->changes++; /* a refusal can be logged */
  if (changes && result && handle->failed < 0 && !(function == JL_COMPLETE && handle->completed))
    handle->failed = (int)function;
  if (mode == 2 && function == JL_ADD_DATA && !result) keep_name(handle, (const char *)arguments[4]);
  if (function == JL_COMPLETE) handle->completed = true;
  if (is_size(function) && !result) {
    int content = content_of(function);
    handle->sizes[content].asked = true;
    handle->sizes[content].size = *(const size_t *)arguments[1];
    handle->sizes[content].changes = handle->changes;
  }
  if (function == JL_DESTROY && result) handle->destroyed = false;
}

static void destroyed(const JitLinkUse *use, Handle *handle) {
  handle->destroyed = true;
  handle->destroyed_by = use->caller;
  note(NOTE_DESTROYED, handle->number);
}

/* -- calls */

static int create(const JitLinkUse *use, uintptr_t arguments[5]) {
  static struct {
    uintptr_t value;
    JitLinkCall *destroy;
  } held[HELD];
  static unsigned held_count;
  uintptr_t *value = (uintptr_t *)arguments[0], before = value ? *value : 0;
  int result = use->original(arguments[0], arguments[1], arguments[2], 0, 0);
  if (!value) {
    HOLD(lock);
    report(RULE_NULL, use, 0, NULL);
    return result;
  }
  if (result && *value == before) return result; /* the library has not written a handle */
  pthread_mutex_lock(&lock);
  Handle *old = find_handle(*value);
  if (mode == 2 && !result && old && old->destroyed) {
    /* the address belonged to another handle: this one keeps it from use, and the caller gets a new one */
    unsigned at = held_count++ % HELD;
    uintptr_t given_up = held[at].value;
    JitLinkCall *destroy = held[at].destroy;
    held[at].value = *value;
    held[at].destroy = use->destroy;
    pthread_mutex_unlock(&lock);
    if (given_up && destroy) destroy((uintptr_t)&given_up, 0, 0, 0, 0);
    result = use->original(arguments[0], arguments[1], arguments[2], 0, 0);
    pthread_mutex_lock(&lock);
  }
  Handle *handle = new_handle(*value);
  if (handle) {
    handle->number = ++handle_count;
    handle->created_by = use->caller;
    handle->refused = result != 0;
    note(NOTE_CREATED, handle->number);
  }
  pthread_mutex_unlock(&lock);
  return result;
}

/* The answer to a call that the library must not see: that to a NULL handle, which each release has its code for. */
static int answer_to_null(const JitLinkUse *use, const uintptr_t arguments[5]) {
  uintptr_t null = 0;
  if (use->function == JL_DESTROY) return use->original((uintptr_t)&null, 0, 0, 0, 0);
  return use->original(0, arguments[1], arguments[2], arguments[3], arguments[4]);
}

int cl_checked_call(const JitLinkUse *use, uintptr_t arguments[5]) {
  if (use->function == JL_CREATE) return create(use, arguments);
  uintptr_t value = use->function != JL_DESTROY ? arguments[0] : arguments[0] ? *(uintptr_t *)arguments[0] : 0;
  if (!value) return use->original(arguments[0], arguments[1], arguments[2], arguments[3], arguments[4]);
  pthread_mutex_lock(&lock);
  Handle *handle = find_handle(value);
  bool prevent = false;
  if (!handle && !missed && !lost) prevent = report(RULE_UNKNOWN, use, value, NULL);
  if (handle && handle->destroyed) prevent = report(RULE_DESTROYED, use, value, handle);
  if (handle && !prevent) prevent = check_busy(use, handle) || check(use, handle, arguments);
  if (prevent) latest->prevented = 1;
  if (handle && !prevent) {
    handle->busy++;
    handle->at_work = (int)use->function;
  }
  uint64_t number = handle ? handle->number : 0;
  /* before the library frees it: from then on another thread may get a new handle at this address */
  if (handle && !prevent && use->function == JL_DESTROY) destroyed(use, handle);
  bool may_have_grown = false;
  size_t asked = 0;
  if (handle && !prevent && is_content(use->function) && use->size) {
    int content = content_of(use->function);
    asked = handle->sizes[content].size;
    may_have_grown = handle->sizes[content].asked && handle->sizes[content].changes != handle->changes;
  }
  pthread_mutex_unlock(&lock);
  if (prevent) return answer_to_null(use, arguments);
  int result = may_have_grown ? guarded_content(use, handle, arguments, asked)
                              : use->original(arguments[0], arguments[1], arguments[2], arguments[3], arguments[4]);
  if (!handle) return result;
  HOLD(lock);
  if (handle->number == number) {
    finish(use, handle, arguments, result);
    handle->busy--;
  }
  return result;
}

bool cl_is_checked(void) { return __atomic_load_n(&mode, __ATOMIC_RELAXED) != 0; }
void cl_contract_missed_calls(void) { __atomic_store_n(&missed, true, __ATOMIC_RELAXED); }

/* -- for Python */

EXPORT void cudalinkContract(int wanted, uint64_t main, int (*adder)(int (*)(void *), void *), int (*teller)(void *)) {
  HOLD(lock);
  if (mode && !wanted) { /* what is created until it is checked again is not seen */
    missed = true;
    used = 0;
  }
  __atomic_store_n(&mode, wanted, __ATOMIC_RELAXED);
  add_pending = adder;
  tell_python = teller;
  main_thread = (pthread_t)main;
}

EXPORT int cudalinkTakeViolation(ContractViolation *violation) {
  HOLD(lock);
  bool found = violations_begin != violations_end;
  if (found) *violation = violations[violations_begin++ % VIOLATIONS];
  return found;
}

EXPORT uint64_t cudalinkContractHandles(void) { return __atomic_load_n(&handle_count, __ATOMIC_RELAXED); }
EXPORT uint64_t cudalinkContractViolations(void) { return __atomic_load_n(&violation_count, __ATOMIC_RELAXED); }

EXPORT unsigned cudalinkContractAlive(uint64_t after, uint64_t *numbers, unsigned size) {
  unsigned count = 0;
  HOLD(lock);
  for (unsigned at = 0; at < used; at++) {
    if (handles[at].destroyed || handles[at].number <= after) continue;
    if (count < size) numbers[count] = handles[at].number;
    count++;
  }
  return count;
}

EXPORT void cudalinkPlace(uint64_t address, char *text, size_t size) {
  Dl_info place = {0};
  if (!size) return;
  text[0] = 0;
  if (!address || !dladdr((void *)(uintptr_t)address, &place) || !place.dli_fname) return;
#ifdef __GLIBC__
  const ElfW(Sym) *symbol = NULL; /* the nearest one before the address may end before it, too */
  if (dladdr1((void *)(uintptr_t)address, &place, (void **)&symbol, RTLD_DL_SYMENT) && symbol && place.dli_sname &&
      address - (uintptr_t)place.dli_saddr < symbol->st_size) {
    snprintf(text, size, "%s (%s)", place.dli_fname, place.dli_sname);
    return;
  }
#endif
  snprintf(text, size, "%s (+0x%lx)", place.dli_fname, (unsigned long)(address - (uintptr_t)place.dli_fbase));
}
