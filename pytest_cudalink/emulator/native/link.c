/* cuLink*: a driver's linker over nvJitLink, with the measured codes, texts and order. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "abi.h"
#include "caller.h"
#include "calls.h"
#include "config.h"
#include "contexts.h"
#include "events.h"
#include "jitlink.h"
#include "lifetimes.h"
#include "link_inputs.h"
#include "link_state.h"
#include "options.h"

/* -- calls on a state -- */

/* Finds a state, and keeps it and its lock. NULL if it is none; that the caller destroyed it before, perhaps a moment ago
   in another thread, is reported. */
static State *enter_state(State *handle, const char *call) {
  uint64_t destroyed;
  State *state = cl_hold_state(handle, &destroyed);
  if (state) {
    pthread_mutex_lock(&state->lock);
    if (!state->destroyed) {
      cl_check_memory(state, call);
      return state;
    }
    destroyed = state->id;
    pthread_mutex_unlock(&state->lock);
    cl_drop_state(state);
  }
  if (destroyed) {
    cl_report_destroyed(destroyed, call);
    cl_tell_violations();
  }
  return NULL;
}

static void leave_state(State *state) {
  pthread_mutex_unlock(&state->lock);
  cl_drop_state(state);
  cl_tell_violations();
}

/* -- create -- */

static void take_buffer(Log *log, const LogBuffer *given) {
  log->buffer = given->buffer;
  log->capacity = given->capacity;
  log->slot = given->slot;
}

static CUresult create(unsigned count, const int *keys, uint64_t *values, State **out, uint64_t *id) {
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
    cl_free_state(state);
    return result;
  }
  state->values = values;
  /* before the caller's memory is looked at or written to: a create that is refused leaves it as it was (recorded) */
  LinkText text;
  Overlap found[OVERLAPS];
  result = cl_linker_open(&state->linker, &state->options, &text);
  if (result && result != CUDA_ERROR_JIT_COMPILER_NOT_FOUND) {
    cl_text_free(&text);
    cl_free_state(state);
    return result;
  }
  /* held as by every call: a thread with the handle of an older state at this address must not get between */
  pthread_mutex_lock(&state->lock);
  pthread_mutex_lock(&cl_states_lock);
  int overlaps = cl_find_overlaps(state, found);
  cl_keep_state(state);
  state->holders++;
  pthread_mutex_unlock(&cl_states_lock);
  cl_report_overlaps(state, found, overlaps);
  /* also where the size given is 0 (recorded) */
  if (state->info.buffer) cl_write_safely(state->info.buffer, "", 1);
  if (state->error.buffer) cl_write_safely(state->error.buffer, "", 1);
  cl_flush_log(state, &state->info);
  cl_flush_log(state, &state->error);
  /* the caller learns of a missing linker where a real driver without its compiler says so: at add */
  state->poison = result;
  cl_write_logs(state, &text, false);
  *out = state;
  *id = state->id;
  leave_state(state);
  return CUDA_SUCCESS;
}

static CUresult create_and_leave(Call *call, unsigned count, const int *keys, void **values, State **out) {
  uint64_t id = 0;
  CUresult result = create(count, keys, (uint64_t *)values, out, &id);
  char text[512];
  size_t at = 0;
  text[0] = 0;
  for (unsigned option = 0; keys && option < count && at + 64 < sizeof text; option++)
    at += (size_t)snprintf(text + at, sizeof text - at, "%s%d", option ? "," : "", keys[option]);
  return cl_leave(call, result, ",\"state\":%llu,\"options\":[%s]", (unsigned long long)id, text);
}

EXPORT CUresult cuLinkCreate_v2(unsigned count, int *keys, void **values, State **out) {
  ENTER(cuLinkCreate_v2);
  return create_and_leave(&call, count, keys, values, out);
}

EXPORT CUresult cuLinkCreate(unsigned count, int *keys, void **values, State **out) {
  ENTER(cuLinkCreate);
  return create_and_leave(&call, count, keys, values, out);
}

/* -- add -- */

static CUresult leave_add(Call *call, CUresult result, uint64_t state, int type, size_t size, const char *name,
                          unsigned count) {
  char text[160];
  return cl_leave(call, result, ",\"state\":%llu,\"type\":%d,\"bytes\":%zu,\"name\":\"%s\"%s",
                  (unsigned long long)state, type, size, cl_json(name, text, sizeof text),
                  count && !result ? ",\"note\":\"options of one input are checked and not applied\"" : "");
}

static CUresult add_and_leave(Call *call, State *handle, int type, const void *data, size_t size, const char *name,
                              unsigned count, const int *keys, void *const *values) {
  State *state = enter_state(handle, "cuLinkAddData_v2");
  if (!state) return leave_add(call, CUDA_ERROR_INVALID_HANDLE, 0, type, size, name, count);
  uint64_t id = state->id;
  CUresult result = cl_add_data(state, type, data, size, name, count, keys, values);
  leave_state(state);
  return leave_add(call, result, id, type, size, name, count);
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

static CUresult add_file_and_leave(Call *call, State *handle, int type, const char *path, unsigned count, const int *keys,
                                   void *const *values) {
  void *data = NULL;
  size_t size = 0;
  State *state = enter_state(handle, "cuLinkAddFile_v2");
  if (!state) return leave_add(call, CUDA_ERROR_INVALID_HANDLE, 0, type, size, path, count);
  uint64_t id = state->id;
  CUresult result = cl_read_input(path, &data, &size);
  if (!result) {
    result = cl_add_data(state, type, data, size, path, count, keys, values);
    free(data);
  }
  leave_state(state);
  return leave_add(call, result, id, type, size, path, count);
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
    if (result == CUDA_ERROR_INVALID_SOURCE && cl_ptx_failure)
      result = cl_ptx_failure == CUDA_ERROR_UNSUPPORTED_PTX_VERSION ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
    if (result) cl_poison(state, result);
  }
  cl_write_logs(state, &text, true);
  if (state->wall_time >= 0) cl_write_value(state, (unsigned)state->wall_time, cl_wall_time(&state->started));
  if (result) return result;
  *image = state->image;
  if (size) *size = state->image_size;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuLinkComplete(State *handle, void **image, size_t *size) {
  ENTER_ANY_TIME(cuLinkComplete);
  State *state = enter_state(handle, "cuLinkComplete");
  if (!state) LEAVE(CUDA_ERROR_INVALID_HANDLE, "");
  CUresult result = complete(state, image, size);
  unsigned long long id = state->id;
  size_t bytes = result ? 0 : state->image_size;
  leave_state(state);
  LEAVE(result, ",\"state\":%llu,\"bytes\":%zu", id, bytes);
}

EXPORT CUresult cuLinkDestroy(State *handle) {
  ENTER_ANY_TIME(cuLinkDestroy);
  State *state = enter_state(handle, "cuLinkDestroy");
  if (!state) LEAVE(CUDA_ERROR_INVALID_HANDLE, "");
  unsigned long long id = state->id;
  cl_remove_state(state);
  pthread_mutex_unlock(&state->lock);
  cl_tell_violations(); /* before the memory is written to, which may end the process */
  if (cl_config()->punish) {
    /* the driver of the recording does not touch the memory here; the contract says that one may */
    cl_flush_log(state, &state->info);
    cl_flush_log(state, &state->error);
  }
  cl_drop_state(state);
  LEAVE(CUDA_SUCCESS, ",\"state\":%llu", id);
}
