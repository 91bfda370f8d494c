/* User objects: counted references, and destructors that run once the lock is released. */
#include "user_objects.h"

#include <limits.h>
#include <stdlib.h>

#include "calls.h"
#include "handles.h"
#include "streams.h"

struct UserObject {
  Deferred destroy; /* first: what is deferred is the object itself */
  void (*destructor)(void *);
  void *data;
  uint64_t references; /* the caller's and the graphs' */
};

enum { NO_DESTRUCTOR_SYNC = 1 }; /* CUuserObject_flags */

static void destroy(void *data) {
  UserObject *object = data;
  object->destructor(object->data);
  free(object);
}

static void release(UserObject *object, uint64_t count) {
  object->references -= count < object->references ? count : object->references;
  if (object->references) return;
  cl_handle_remove(object, HANDLE_USER_OBJECT);
  object->destroy = (Deferred){.function = destroy, .data = object};
  cl_defer(&object->destroy);
}

static UserObject *known(void *handle) {
  return cl_handle_is(handle, HANDLE_USER_OBJECT) ? (UserObject *)handle : NULL;
}

static CUresult create(void **out, void *data, void (*destructor)(void *), unsigned references, unsigned flags) {
  if (!out || !destructor || !references || flags != NO_DESTRUCTOR_SYNC) return CUDA_ERROR_INVALID_VALUE;
  UserObject *object = cl_handle_make(sizeof *object, HANDLE_USER_OBJECT);
  if (!object) return CUDA_ERROR_OUT_OF_MEMORY;
  object->destructor = destructor;
  object->data = data;
  object->references = references;
  *out = object;
  return CUDA_SUCCESS;
}
EXPORTED_ANY_TIME(cuUserObjectCreate,
                  (void **out, void *data, void (*destructor)(void *), unsigned references, unsigned flags),
                  LOCKED(create(out, data, destructor, references, flags)))

static CUresult retain(void *handle, unsigned count) {
  UserObject *object = known(handle);
  if (!object || !count || count > INT_MAX) return CUDA_ERROR_INVALID_VALUE;
  object->references += count;
  return CUDA_SUCCESS;
}
EXPORTED_ANY_TIME(cuUserObjectRetain, (void *object, unsigned count), LOCKED(retain(object, count)))

static CUresult give_back(void *handle, unsigned count) {
  UserObject *object = known(handle);
  if (!object || !count || count > INT_MAX) return CUDA_ERROR_INVALID_VALUE;
  release(object, count);
  return CUDA_SUCCESS;
}
EXPORTED_ANY_TIME(cuUserObjectRelease, (void *object, unsigned count), LOCKED(give_back(object, count)))

static UserReference *held(UserReference *list, const UserObject *object) {
  while (list && list->object != object) list = list->next;
  return list;
}

CUresult cl_user_object_hold(UserReference **list, void *handle, unsigned count, bool move) {
  UserObject *object = known(handle);
  if (!object || !count || count > INT_MAX) return CUDA_ERROR_INVALID_VALUE;
  UserReference *reference = held(*list, object);
  if (!reference) {
    reference = calloc(1, sizeof *reference);
    if (!reference) return CUDA_ERROR_OUT_OF_MEMORY;
    *reference = (UserReference){.next = *list, .object = object};
    *list = reference;
  }
  reference->count += count;
  if (!move) object->references += count;
  return CUDA_SUCCESS;
}

CUresult cl_user_object_let_go(UserReference **list, void *handle, unsigned count) {
  UserObject *object = known(handle);
  if (!object || !count || count > INT_MAX) return CUDA_ERROR_INVALID_VALUE;
  for (UserReference **at = list; *at; at = &(*at)->next) {
    UserReference *reference = *at;
    if (reference->object != object) continue;
    if (count > reference->count) count = reference->count;
    reference->count -= count;
    if (!reference->count) {
      *at = reference->next;
      free(reference);
    }
    release(object, count);
    break;
  }
  return CUDA_SUCCESS; /* a graph lets go of what it does not hold, too */
}

bool cl_user_objects_share(UserReference **to, const UserReference *from) {
  for (; from; from = from->next)
    if (cl_user_object_hold(to, from->object, 1, false)) return false;
  return true;
}

void cl_user_objects_drop(UserReference **list) {
  while (*list) {
    UserReference *reference = *list;
    *list = reference->next;
    release(reference->object, reference->count);
    free(reference);
  }
}
