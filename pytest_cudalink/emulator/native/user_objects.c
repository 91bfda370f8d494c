/* User objects: counted references, and destructors that run once the lock is released. */
#include "user_objects.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "streams.h"
#include "violations.h"

/* The call that gave the caller its last references. */
typedef struct {
  const char *name;
  Stack stack;
} Giver;

struct UserObject {
  Object head;
  Deferred destroy;
  void (*destructor)(void *);
  void *data;
  int64_t callers, graphs; /* references of either, below 0 if too many were released: a driver does not look */
  UserReference *references;
  Giver giver;
};

/* What the call of this thread was noticed to do; object is 0 if that is nothing. */
static _Thread_local struct {
  uint64_t object;
  const char *what;
  char expected[64], found[64];
  Giver giver;
} noticed;

/* Compares the references that a call takes with those that their owner has, which a driver does not. */
static void check_taken(const UserObject *object, int64_t count, int64_t had, const char *owner, bool moved) {
  if (count <= had || !cl_config()->lifetime) return;
  if (had < 0) had = 0;
  noticed.object = object->head.number;
  noticed.what = moved ? "moved too often" : "released too often";
  noticed.giver = object->giver;
  if (object->giver.stack.python) noticed.giver.stack.python = strdup(object->giver.stack.python);
  snprintf(noticed.expected, sizeof noticed.expected, "at most %lld reference%s of the %s", (long long)had,
           had == 1 ? "" : "s", owner);
  snprintf(noticed.found, sizeof noticed.found, "%lld", (long long)count);
}

CUresult cl_user_objects_report(const char *call, CUresult result) {
  if (!noticed.object) return result;
  cl_note_violation_of(&(Violation){
      .kind = "user object",
      .number = noticed.object,
      .rule = "CUuserObject",
      .what = noticed.what,
      .call = call,
      .expected = noticed.expected,
      .found = noticed.found,
      .fix = "Release each reference once, and use a CUuserObject only while a reference to it is left.",
      .maker = noticed.giver.name,
      .made = &noticed.giver.stack,
  });
  noticed.object = 0;
  cl_free_stack(&noticed.giver.stack);
  cl_report_violations();
  return result;
}

/* The object of a handle of which so many references are given or taken; NULL if either is not valid. */
static UserObject *known(void *handle, unsigned count) {
  return cl_handle_is(handle, HANDLE_USER_OBJECT) && count && count <= INT_MAX ? handle : NULL;
}

static void destroy(void *data) {
  UserObject *object = data;
  bool before = cl_in_host_function;
  cl_in_host_function = true; /* it is one (measured: edges/user_objects) */
  object->destructor(object->data);
  cl_in_host_function = before;
  cl_free_stack(&object->giver.stack);
  cl_object_end(&object->head);
}

static void free_reference(UserReference *reference) {
  for (UserList at = 0; at < USER_LISTS; at++) {
    UserReference *before = reference->before[at], *behind = reference->behind[at];
    *(before ? &before->behind[at] : reference->lists[at]) = behind;
    if (behind) behind->before[at] = before;
  }
  free(reference);
}

static void destroy_unused(UserObject *object) {
  if (object->callers + object->graphs) return;
  for (UserReference *one = object->references, *next; one; one = next) {
    next = one->behind[USERS_OF_OBJECT];
    free_reference(one);
  }
  cl_object_unname(&object->head);
  object->destroy = (Deferred){.function = destroy, .data = object};
  cl_defer(&object->destroy);
}

/* Not under the lock, because Python may be asked. */
static Giver note_giver(const char *name) {
  Giver giver = {.name = name};
  if (cl_config()->lifetime) cl_note_stack(&giver.stack);
  return giver;
}

API_WHEN(false, cuUserObjectCreate,
         (void **out, void *data, void (*destructor)(void *), unsigned references, unsigned flags),
         (out, data, destructor, references, flags)) {
  if (!out || !destructor || !references || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) return CUDA_ERROR_INVALID_VALUE;
  Giver giver = note_giver("cuUserObjectCreate");
  HOLD_STREAMS();
  UserObject *object = cl_object_make(sizeof *object, HANDLE_USER_OBJECT, NULL, NULL);
  if (!object) return cl_free_stack(&giver.stack), CUDA_ERROR_OUT_OF_MEMORY;
  object->destructor = destructor;
  object->data = data;
  object->callers = references;
  object->giver = giver;
  *out = object;
  return CUDA_SUCCESS;
}

static CUresult add(void *handle, unsigned count, Giver *giver) {
  UserObject *object = known(handle, count);
  if (!object) return CUDA_ERROR_INVALID_VALUE;
  object->callers += count;
  Giver before = object->giver;
  object->giver = *giver;
  *giver = before;
  return CUDA_SUCCESS;
}

API_WHEN(false, cuUserObjectRetain, (void *handle, unsigned count), (handle, count)) {
  Giver giver = note_giver("cuUserObjectRetain");
  CUresult result = LOCKED(add(handle, count, &giver));
  cl_free_stack(&giver.stack);
  return cl_user_objects_report("cuUserObjectRetain", result);
}

static CUresult give_back(void *handle, unsigned count) {
  UserObject *object = known(handle, count);
  if (!object) return CUDA_ERROR_INVALID_VALUE;
  check_taken(object, count, object->callers, "caller", false);
  object->callers -= count;
  destroy_unused(object);
  return CUDA_SUCCESS;
}
EXPORTED_ANY_TIME(cuUserObjectRelease, (void *object, unsigned count),
                  cl_user_objects_report("cuUserObjectRelease", LOCKED(give_back(object, count))))

/* Looks through the shorter one of the two lists that it would be in. */
static UserReference *held(UserReference **list, const UserObject *object) {
  UserReference *one = *list, *other = object->references;
  while (one && other && one->object != object && other->lists[USERS_OF_GRAPH] != list) {
    one = one->behind[USERS_OF_GRAPH];
    other = other->behind[USERS_OF_OBJECT];
  }
  if (!one || !other) return NULL;
  return one->object == object ? one : other;
}

static UserReference *enter_reference(UserReference **list, UserObject *object) {
  UserReference *reference = calloc(1, sizeof *reference);
  if (!reference) return NULL;
  *reference = (UserReference){.lists = {list, &object->references}, .object = object};
  for (UserList at = 0; at < USER_LISTS; at++) {
    UserReference **first = reference->lists[at];
    reference->behind[at] = *first;
    if (*first) (*first)->before[at] = reference;
    *first = reference;
  }
  return reference;
}

CUresult cl_user_object_hold(UserReference **list, void *handle, unsigned count, bool move) {
  UserObject *object = known(handle, count);
  if (!object) return CUDA_ERROR_INVALID_VALUE;
  UserReference *reference = held(list, object);
  if (!reference) reference = enter_reference(list, object);
  if (!reference) return CUDA_ERROR_OUT_OF_MEMORY;
  reference->count += count;
  object->graphs += count;
  if (!move) return CUDA_SUCCESS;
  check_taken(object, count, object->callers, "caller", true);
  object->callers -= count;
  return CUDA_SUCCESS;
}

CUresult cl_user_object_let_go(UserReference **list, void *handle, unsigned count) {
  UserObject *object = known(handle, count);
  if (!object) return CUDA_ERROR_INVALID_VALUE;
  UserReference *reference = held(list, object);
  check_taken(object, count, reference ? reference->count : 0, "graph", false);
  object->graphs -= count; /* a graph lets go of what it does not hold, too */
  if (reference) reference->count -= count;
  if (reference && !reference->count) free_reference(reference); /* a later executable or clone must not share it */
  destroy_unused(object);
  return CUDA_SUCCESS;
}

bool cl_user_objects_share(UserReference **to, const UserReference *from) {
  for (; from; from = from->behind[USERS_OF_GRAPH])
    if (cl_user_object_hold(to, from->object, 1, false)) return false;
  return true;
}

void cl_user_objects_drop(UserReference **list) {
  for (UserReference *one = *list, *next; one; one = next) {
    UserObject *object = one->object;
    next = one->behind[USERS_OF_GRAPH];
    object->graphs -= one->count;
    free_reference(one);
    destroy_unused(object);
  }
}

static void name_list(UserReference **list) {
  for (UserReference *at = *list; at; at = at->behind[USERS_OF_GRAPH]) at->lists[USERS_OF_GRAPH] = list;
}

void cl_user_objects_exchange(UserReference **one, UserReference **other) {
  UserReference *first = *one;
  *one = *other;
  *other = first;
  name_list(one);
  name_list(other);
}
