/* Sets of events: made, waited for and freed. No event ever occurs. */
#include <stdlib.h>
#include <time.h>

#include "locks.h"
#include "nvml.h"

typedef struct EventSet {
  struct EventSet *next;
} EventSet;

STATIC_LOCK(lock);
static EventSet *sets;

/* Where the table refers to a set; NULL if there is no such set. Only what the table has is followed. */
static EventSet **find(const EventSet *wanted) {
  for (EventSet **at = &sets; *at; at = &(*at)->next)
    if (*at == wanted) return at;
  return NULL;
}

static bool is_set(const EventSet *set) {
  HOLD(lock);
  return find(set) != NULL;
}

static Result create(EventSet **set) {
  EventSet *made = malloc(sizeof *made);
  if (!made) return INSUFFICIENT_MEMORY;
  HOLD(lock);
  made->next = sets;
  *set = sets = made;
  return SUCCESS;
}

static Result discard(const EventSet *set) {
  HOLD(lock);
  EventSet **found = find(set), *freed = found ? *found : NULL;
  if (found) *found = freed->next;
  free(freed);
  return found ? SUCCESS : INVALID_ARGUMENT;
}

/* Waits until the time is over. */
static Result wait_for(unsigned milliseconds) {
  struct timespec time = {.tv_sec = milliseconds / 1000, .tv_nsec = (long)(milliseconds % 1000) * 1000000};
  while (nanosleep(&time, &time)) continue;
  return TIMEOUT;
}

EXPORT Result nvmlEventSetCreate(EventSet **set) {
  READY(set);
  return create(set);
}

EXPORT Result nvmlEventSetFree(const EventSet *set) {
  READY(set);
  return discard(set);
}

EXPORT Result nvmlDeviceRegisterEvents(Device device, uint64_t types, const EventSet *set) {
  const uint64_t supported = 0xff9f; /* as nvmlDeviceGetSupportedEventTypes says */
  CHECK(device, is_set(set));
  return types & ~supported ? NOT_SUPPORTED : SUCCESS;
}

EXPORT Result nvmlEventSetWait_v2(const EventSet *set, void *event, unsigned milliseconds) {
  READY(event && is_set(set));
  return wait_for(milliseconds);
}

EXPORT Result nvmlEventSetWait(const EventSet *set, void *event, unsigned milliseconds) {
  return nvmlEventSetWait_v2(set, event, milliseconds);
}

typedef struct {
  uint32_t version;
  EventSet *set;
} SetRequest;
_Static_assert(sizeof(SetRequest) == 16, "nvmlSystemEventSetCreateRequest_v1_t, nvmlSystemEventSetFreeRequest_v1_t");

EXPORT Result nvmlSystemEventSetCreate(SetRequest *request) {
  READY(request);
  return cl_nvml_is_version(request, sizeof *request, 1) ? create(&request->set) : ARGUMENT_VERSION_MISMATCH;
}

EXPORT Result nvmlSystemEventSetFree(const SetRequest *request) {
  READY(request);
  return cl_nvml_is_version(request, sizeof *request, 1) ? discard(request->set) : ARGUMENT_VERSION_MISMATCH;
}

typedef struct {
  uint32_t version;
  uint64_t types;
  EventSet *set;
} RegisterRequest;
_Static_assert(sizeof(RegisterRequest) == 24, "nvmlSystemRegisterEventRequest_v1_t");

EXPORT Result nvmlSystemRegisterEvents(const RegisterRequest *request) {
  READY(request);
  if (!cl_nvml_is_version(request, sizeof *request, 1)) return ARGUMENT_VERSION_MISMATCH;
  return is_set(request->set) ? SUCCESS : INVALID_ARGUMENT;
}

typedef struct {
  uint32_t version, milliseconds;
  EventSet *set;
  void *events;
  uint32_t room, count;
} WaitRequest;
_Static_assert(sizeof(WaitRequest) == 32, "nvmlSystemEventSetWaitRequest_v1_t");

EXPORT Result nvmlSystemEventSetWait(WaitRequest *request) {
  READY(request);
  if (!cl_nvml_is_version(request, sizeof *request, 1)) return ARGUMENT_VERSION_MISMATCH;
  if (!request->events || !request->room || !is_set(request->set)) return INVALID_ARGUMENT;
  request->count = 0;
  return wait_for(request->milliseconds);
}
