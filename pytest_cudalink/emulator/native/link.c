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

/* -- create -- */

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
  pthread_mutex_lock(&cl_states_lock);
  int overlaps = cl_find_overlaps(state, found);
  cl_keep_state(state);
  pthread_mutex_unlock(&cl_states_lock);
  cl_tell_overlaps(state, found, overlaps);
  /* also where the size given is 0 (recorded) */
  if (state->info.buffer) cl_write_safely(state->info.buffer, "", 1);
  if (state->error.buffer) cl_write_safely(state->error.buffer, "", 1);
  cl_flush_log(state, &state->info);
  cl_flush_log(state, &state->error);
  /* the caller learns of a missing linker where a real driver without its compiler says so: at add */
  state->poison = result;
  cl_write_logs(state, &text, false);
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

static CUresult leave_add(Call *call, CUresult result, const State *state, int type, size_t size, const char *name,
                          unsigned count) {
  char text[160];
  return cl_leave(call, result, ",\"state\":%llu,\"type\":%d,\"bytes\":%zu,\"name\":\"%s\"%s",
                  state ? (unsigned long long)state->id : 0ULL, type, size, cl_json(name, text, sizeof text),
                  count && !result ? ",\"note\":\"options of one input are checked and not applied\"" : "");
}

static CUresult add_and_leave(Call *call, State *handle, int type, const void *data, size_t size, const char *name,
                              unsigned count, const int *keys, void *const *values) {
  State *state = cl_find_state(handle);
  CUresult result = CUDA_ERROR_INVALID_HANDLE;
  if (state) {
    pthread_mutex_lock(&state->lock);
    cl_check_memory(state, "cuLinkAddData_v2");
    result = cl_add_data(state, type, data, size, name, count, keys, values);
    pthread_mutex_unlock(&state->lock);
    cl_tell_violations();
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

static CUresult add_file_and_leave(Call *call, State *handle, int type, const char *path, unsigned count, const int *keys,
                                   void *const *values) {
  State *state = cl_find_state(handle);
  CUresult result = CUDA_ERROR_INVALID_HANDLE;
  void *data = NULL;
  size_t size = 0;
  if (state) {
    pthread_mutex_lock(&state->lock);
    cl_check_memory(state, "cuLinkAddFile_v2");
    result = cl_read_input(path, &data, &size);
    if (!result) {
      result = cl_add_data(state, type, data, size, path, count, keys, values);
      free(data);
    }
    pthread_mutex_unlock(&state->lock);
    cl_tell_violations();
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
  State *state = cl_find_state(handle);
  if (!state) LEAVE(CUDA_ERROR_INVALID_HANDLE, "");
  pthread_mutex_lock(&state->lock);
  cl_check_memory(state, "cuLinkComplete");
  CUresult result = complete(state, image, size);
  pthread_mutex_unlock(&state->lock);
  cl_tell_violations();
  LEAVE(result, ",\"state\":%llu,\"bytes\":%zu", (unsigned long long)state->id, result ? (size_t)0 : state->image_size);
}

EXPORT CUresult cuLinkDestroy(State *handle) {
  ENTER_ANY_TIME(cuLinkDestroy);
  State *state = cl_find_state(handle);
  if (!state) LEAVE(CUDA_ERROR_INVALID_HANDLE, "");
  cl_check_memory(state, "cuLinkDestroy");
  cl_tell_violations();
  if (cl_config()->punish) {
    /* the driver of the recording does not touch the memory here; the contract says that one may */
    cl_flush_log(state, &state->info);
    cl_flush_log(state, &state->error);
  }
  pthread_mutex_lock(&cl_states_lock);
  for (State **link = &cl_states; *link; link = &(*link)->next)
    if (*link == state) {
      *link = state->next;
      break;
    }
  pthread_mutex_unlock(&cl_states_lock);
  uint64_t id = state->id;
  cl_free_state(state);
  LEAVE(CUDA_SUCCESS, ",\"state\":%llu", (unsigned long long)id);
}
