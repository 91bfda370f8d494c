/* cuLink*: a driver's linker over nvJitLink, with the measured codes, texts and order. */
#include <stdlib.h>

#include "caller_memory.h"
#include "faults.h"
#include "config.h"
#include "contexts.h"
#include "link_memory.h"
#include "link_inputs.h"
#include "violations.h"

/* Finds a live state, and keeps it and its lock; else NULL. If the caller destroyed it before, perhaps a moment ago in
   another thread, that is reported. */
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
    cl_report_violations();
  }
  return NULL;
}

static void leave_state(State *state) {
  pthread_mutex_unlock(&state->lock);
  cl_drop_state(state);
  cl_report_violations();
}

static void take_buffer(Log *log, const LogBuffer *given) {
  log->buffer = given->buffer;
  log->capacity = given->capacity;
  log->slot = given->slot;
}

enum { OPTIONS_ROOM = 448, CREATOR_ROOM = 600 }; /* in an event: the list of options, the stack */

static CUresult create(EventLine *line, unsigned count, const int *keys, uint64_t *values, State **out, uint64_t *id) {
  TRY(cl_check_context());
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  if (cl_fault_of_jit()) return cl_fault_of_jit();
  JitOptions options = cl_device_options();
  CUresult result = cl_read_options(&options, FOR_LINK, count, keys, values);
  State *state = result ? NULL : calloc(1, sizeof *state);
  if (!state) return cl_options_free(&options.link), result ? result : CUDA_ERROR_OUT_OF_MEMORY;
  pthread_mutex_init(&state->lock, NULL);
  state->options = options.link;
  state->without_code = options.without_code;
  state->wall_time = options.wall_time;
  take_buffer(&state->info, &options.info);
  take_buffer(&state->error, &options.error);
  state->count = count;
  state->keys = malloc((count ? count : 1) * sizeof *state->keys);
  state->expected = malloc((count ? count : 1) * sizeof *state->expected);
  clock_gettime(CLOCK_MONOTONIC, &state->started);
  if (!state->keys || !state->expected) return cl_free_state(state), CUDA_ERROR_OUT_OF_MEMORY;
  if (count) {
    memcpy(state->keys, keys, count * sizeof *keys);
    memcpy(state->expected, values, count * sizeof *values);
  }
  state->values = values;
  /* before the caller's memory is looked at or written to: a create that is refused leaves it as it was (recorded:
     create/option-99) */
  LinkText text;
  Overlap found[OVERLAPS];
  result = cl_linker_open(&state->linker, &state->options, &text);
  state->failure = cl_take_linker_failure();
  if (result && result != CUDA_ERROR_JIT_COMPILER_NOT_FOUND && !state->failure) {
    cl_text_free(&text);
    cl_free_state(state);
    return result;
  }
  if (cl_config()->lifetime) {
    cl_note_stack(&state->creator);
    cl_event_stack(line, "stack", &state->creator, CREATOR_ROOM);
  }
  /* held as by every call: a thread with the handle of an older state at this address must not get between */
  pthread_mutex_lock(&state->lock);
  pthread_mutex_lock(&cl_states_lock);
  int overlaps = cl_find_overlaps(state, found);
  cl_keep_state(state);
  state->holders++;
  pthread_mutex_unlock(&cl_states_lock);
  cl_report_overlaps(state, found, overlaps);
  /* also where the size given is 0 (recorded: log/error-of-0) */
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

API(cuLinkCreate_v2, (unsigned count, int *keys, void **values, State **out), (count, keys, values, out)) {
  uint64_t id = 0;
  CUresult result = create(line, count, keys, (uint64_t *)values, out, &id);
  cl_event_uint(line, "state", id);
  cl_event_list(line, "options");
  size_t start = line->length;
  for (unsigned option = 0; keys && cl_can_have_options(count) && option < count && line->length - start < OPTIONS_ROOM;
       option++)
    cl_event_int(line, NULL, keys[option]);
  cl_event_list_end(line);
  return result;
}

enum { NAME_ROOM = 160 }; /* of a name in an event */

static void describe_input(EventLine *line, uint64_t state, int type, size_t size, const char *name) {
  cl_event_uint(line, "state", state);
  cl_event_int(line, "type", type);
  cl_event_uint(line, "bytes", size);
  cl_event_text(line, "name", name, NAME_ROOM);
}

static const char ONLY_CHECKED[] = "options of one input are checked and not applied";

API_WHEN(false, cuLinkAddData_v2,
         (State *handle, int type, void *data, size_t size, const char *name, unsigned count, int *keys, void **values),
         (handle, type, data, size, name, count, keys, values)) {
  State *state = enter_state(handle, "cuLinkAddData_v2");
  describe_input(line, state ? state->id : 0, type, size, name);
  if (!state) return CUDA_ERROR_INVALID_HANDLE;
  CUresult result = cl_add_data(state, type, data, size, name, count, keys, values);
  leave_state(state);
  if (count && !result) cl_event_note(line, ONLY_CHECKED);
  return result;
}

API_WHEN(false, cuLinkAddFile_v2, (State *handle, int type, const char *path, unsigned count, int *keys, void **values),
         (handle, type, path, count, keys, values)) {
  void *data = NULL;
  size_t size = 0;
  State *state = enter_state(handle, "cuLinkAddFile_v2");
  CUresult result = !state             ? CUDA_ERROR_INVALID_HANDLE
                    : state->completed ? CUDA_ERROR_INVALID_VALUE
                                       : cl_read_input(path, &data, &size);
  describe_input(line, state ? state->id : 0, type, size, path);
  if (!state) return result;
  if (!result) {
    result = cl_add_data(state, type, data, size, path, count, keys, values);
    free(data);
  }
  leave_state(state);
  if (count && !result) cl_event_note(line, ONLY_CHECKED);
  return result;
}

static _Atomic uint64_t links;

/* Links that made an image, those that code below Python asked for included. */
EXPORT uint64_t cudalinkLinkCount(void) { return atomic_load(&links); }

static CUresult complete(State *state, void **image, size_t *size) {
  if (!image) return CUDA_ERROR_INVALID_VALUE;
  if (state->completed && !state->poison) return CUDA_ERROR_INVALID_HANDLE;
  LinkText text = {0};
  CUresult result = state->poison;
  if (!result) {
    state->completed = true;
    result = cl_linker_complete(state->linker, &state->image, &state->image_size, &text);
    /* what another input died of counts for none that is complete (measured: edges/modules_more) */
    if (result == CUDA_ERROR_INVALID_SOURCE && cl_ptx_failure && cl_ptx_failure != CUDA_ERROR_UNKNOWN)
      result = cl_ptx_failure == CUDA_ERROR_UNSUPPORTED_PTX_VERSION ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
    char *failure = cl_take_linker_failure();
    if (failure) cl_note_linker_failure(failure);
    free(failure);
    cl_poison(state, result);
  } else if (state->failure) cl_note_linker_failure(state->failure);
  cl_write_logs(state, &text, true);
  if (state->wall_time >= 0) cl_write_value(state, (unsigned)state->wall_time, cl_wall_time(&state->started));
  if (result) return result;
  atomic_fetch_add(&links, 1);
  *image = state->image;
  if (size) *size = state->image_size;
  return CUDA_SUCCESS;
}

API_WHEN(false, cuLinkComplete, (State *handle, void **image, size_t *size), (handle, image, size)) {
  State *state = enter_state(handle, "cuLinkComplete");
  if (!state) return CUDA_ERROR_INVALID_HANDLE;
  CUresult result = complete(state, image, size);
  uint64_t id = state->id;
  size_t bytes = result ? 0 : state->image_size;
  leave_state(state);
  cl_event_uint(line, "state", id);
  cl_event_uint(line, "bytes", bytes);
  return result;
}

API_WHEN(false, cuLinkDestroy, (State *handle), (handle)) {
  State *state = enter_state(handle, "cuLinkDestroy");
  if (!state) return CUDA_ERROR_INVALID_HANDLE;
  uint64_t id = state->id;
  cl_remove_state(state);
  pthread_mutex_unlock(&state->lock);
  cl_report_violations(); /* before the memory is written to, which may end the process */
  if (cl_config()->punish) {
    /* the driver of the recording does not touch the memory here; the contract says that one may */
    cl_flush_log(state, &state->info);
    cl_flush_log(state, &state->error);
  }
  cl_drop_state(state);
  cl_event_uint(line, "state", id);
  return CUDA_SUCCESS;
}
