/* Memory and semaphores of graphics libraries: files that can be mapped, and counters. */
#include <stdlib.h>

#include "../../base/native/own_file.h"
#include "blocks.h"
#include "device_addresses.h"
#include "locks.h"
#include "streams.h"

STATIC_LOCK(lock); /* of memory and semaphores */

/* Functions that hold the lock, so that nothing is destroyed, and nothing half made is found, meanwhile. */
#define API_HELD(name, parameters, names) API_AS(EXPORTED_WHEN, true, HELD, name, parameters, names)
#define HELD(answer) (pthread_mutex_lock(&lock), let_go(answer))
static CUresult let_go(CUresult result) {
  pthread_mutex_unlock(&lock);
  return result;
}

enum { DEDICATED = 1 }; /* CUDA_EXTERNAL_MEMORY_DEDICATED */

/* The types that Linux has: files, those of Windows, and those of NvSci (measured: edges/external). */
typedef enum { NO_TYPE, OF_FILES, OF_WINDOWS, OF_NEITHER } TypeKind;
static const unsigned char memory_types[] = {NO_TYPE, OF_FILES, OF_WINDOWS, OF_WINDOWS, OF_WINDOWS,
                                             NO_TYPE, NO_TYPE,  NO_TYPE,    OF_WINDOWS, OF_NEITHER};
static const unsigned char semaphore_types[] = {NO_TYPE,    OF_FILES,   OF_WINDOWS, OF_WINDOWS, OF_WINDOWS, OF_WINDOWS,
                                                OF_WINDOWS, OF_WINDOWS, OF_WINDOWS, OF_FILES,   OF_WINDOWS};

/* What a type with a handle is refused with; a file must be one that can be mapped. */
enum { LATER_FILE = 9 }; /* DMABUF_FD, and TIMELINE_SEMAPHORE_FD, which the driver looks at itself */
static CUresult check_type(EventLine *line, TypeKind kind, unsigned type, int file, const void *handle) {
  struct stat known;
  if (kind == NO_TYPE || (kind == OF_WINDOWS && !handle) || (type == LATER_FILE && file < 0))
    return CUDA_ERROR_INVALID_VALUE;
  if (kind != OF_FILES) return cl_noted(line, CUDA_ERROR_NOT_SUPPORTED, "no type of Linux, or of this device");
  if (!fstat(file, &known) && S_ISREG(known.st_mode)) return CUDA_SUCCESS;
  close(file); /* the driver's even if it is refused (measured: edges/processes_more) */
  return CUDA_ERROR_UNKNOWN;
}

typedef union {
  int file;
  void *win32[2];
} SharedHandle;

typedef struct {
  int type;
  SharedHandle handle;
  unsigned long long size;
  unsigned flags, reserved[16];
} MemoryDescription;
_Static_assert(sizeof(MemoryDescription) == 104, "CUDA_EXTERNAL_MEMORY_HANDLE_DESC");

typedef struct {
  unsigned long long offset, size;
  unsigned flags, reserved[16];
} BufferDescription;
_Static_assert(sizeof(BufferDescription) == 88, "CUDA_EXTERNAL_MEMORY_BUFFER_DESC");

/* What memory and semaphores begin with. */
typedef struct {
  Object head;
  OwnFile file;
} External;

static void free_external(Object *object) {
  close_own(&((External *)object)->file);
  free(object);
}

static Objects all = {.free = free_external};

static void *make(size_t size, HandleKind kind, int file) {
  External *made = cl_object_make(size, kind, NULL, &all);
  if (made) made->file = own_file(file); /* which is the driver's from now on */
  return made;
}

static CUresult destroy(void *handle, HandleKind kind) {
  if (!handle) return CUDA_ERROR_INVALID_VALUE;
  if (!cl_handle_is(handle, kind)) return CUDA_ERROR_INVALID_HANDLE;
  cl_object_end(handle);
  return CUDA_SUCCESS;
}

typedef struct {
  External of;
  unsigned long long size;
} ExternalMemory;

API_HELD(cuImportExternalMemory, (ExternalMemory * *out, const MemoryDescription *description), (out, description)) {
  if (!out || !description) return CUDA_ERROR_INVALID_VALUE;
  TRY(cl_check_context());
  unsigned type = (unsigned)description->type;
  if (type >= sizeof memory_types || !description->size || description->flags > DEDICATED ||
      !cl_are_zeros(description->reserved, sizeof description->reserved))
    return CUDA_ERROR_INVALID_VALUE;
  TRY(check_type(line, memory_types[type], type, description->handle.file, description->handle.win32[0]));
  ExternalMemory *memory = make(sizeof *memory, HANDLE_EXTERNAL_MEMORY, description->handle.file);
  if (!memory) return CUDA_ERROR_OUT_OF_MEMORY;
  memory->size = description->size;
  *out = memory;
  return CUDA_SUCCESS;
}

API_HELD(cuExternalMemoryGetMappedBuffer,
         (CUdeviceptr *out, ExternalMemory *memory, const BufferDescription *description), (out, memory, description)) {
  if (!out || !description || !memory) return CUDA_ERROR_INVALID_VALUE;
  if (!cl_handle_is(memory, HANDLE_EXTERNAL_MEMORY)) return CUDA_ERROR_INVALID_HANDLE;
  IN_CONTEXT(context);
  unsigned long long end;
  if (description->flags || !description->size || !cl_are_zeros(description->reserved, sizeof description->reserved) ||
      __builtin_add_overflow(description->offset, description->size, &end) || end > memory->size)
    return CUDA_ERROR_INVALID_VALUE;
  size_t before = description->offset & (cl_page_size() - 1), size = description->size + before;
  uintptr_t pages = cl_device_file(own_descriptor(&memory->of.file), description->offset - before, size, 0);
  if (!pages) return CUDA_ERROR_INVALID_VALUE;
  Block block = {
      .start = pages + before,
      .size = description->size,
      .origin = FROM_EXTERNAL,
      .device = context->device,
      .context = context,
      .pages = pages,
      .pages_size = size,
  };
  CUresult result = cl_block_enter(&block);
  if (result) cl_block_free(&block);
  else *out = block.start;
  return result;
}

API(cuExternalMemoryGetMappedMipmappedArray, (void **out, void *memory, const void *description),
    (out, memory, description)) {
  if (!out || !description || !memory) return CUDA_ERROR_INVALID_VALUE;
  if (!cl_handle_is(memory, HANDLE_EXTERNAL_MEMORY)) return CUDA_ERROR_INVALID_HANDLE;
  return cl_unsupported(line, "arrays of external memory are not emulated");
}

EXPORTED(cuDestroyExternalMemory, (ExternalMemory * memory), HELD(destroy(memory, HANDLE_EXTERNAL_MEMORY)))

/* CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC */
typedef struct {
  int type;
  SharedHandle handle;
  unsigned flags, reserved[16];
} SemaphoreDescription;
_Static_assert(sizeof(SemaphoreDescription) == 96, "CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC");

/* Only the value counts here. */
typedef struct {
  unsigned long long value;
  unsigned char others[64];
  unsigned flags, reserved[16];
} SemaphoreParameters;
_Static_assert(sizeof(SemaphoreParameters) == 144,
               "CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS, CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS");

typedef struct {
  External of;
  bool timeline;
  unsigned long long value; /* of one without a timeline: 1 when it was signaled and not waited for */
} Semaphore;

API_HELD(cuImportExternalSemaphore, (Semaphore * *out, const SemaphoreDescription *description), (out, description)) {
  if (!out || !description) return CUDA_ERROR_INVALID_VALUE;
  TRY(cl_check_context());
  unsigned type = (unsigned)description->type;
  if (type >= sizeof semaphore_types || description->flags ||
      !cl_are_zeros(description->reserved, sizeof description->reserved))
    return CUDA_ERROR_INVALID_VALUE;
  TRY(check_type(line, semaphore_types[type], type, description->handle.file, description->handle.win32[0]));
  Semaphore *semaphore = make(sizeof *semaphore, HANDLE_EXTERNAL_SEMAPHORE, description->handle.file);
  if (!semaphore) return CUDA_ERROR_OUT_OF_MEMORY;
  semaphore->timeline = type == CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD;
  *out = semaphore;
  return CUDA_SUCCESS;
}

static CUresult check_semaphores(Semaphore *const *list, const SemaphoreParameters *parameters, unsigned count,
                                 const void *stream) {
  if (!list || !parameters || !count) return CUDA_ERROR_INVALID_VALUE;
  TRY(cl_check_context());
  if (cl_check_stream(stream)) return CUDA_ERROR_INVALID_HANDLE;
  for (unsigned at = 0; at < count; at++)
    if (!cl_handle_is(list[at], HANDLE_EXTERNAL_SEMAPHORE))
      return list[at] ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

API_HELD(cuSignalExternalSemaphoresAsync,
         (Semaphore *const *list, const SemaphoreParameters *parameters, unsigned count, void *stream),
         (list, parameters, count, stream)) {
  CUresult result = check_semaphores(list, parameters, count, stream);
  for (unsigned at = 0; at < count && !result; at++) list[at]->value = list[at]->timeline ? parameters[at].value : 1;
  return result;
}

/* Work is done in order and at once: what was not signaled yet would never be. */
API_HELD(cuWaitExternalSemaphoresAsync,
         (Semaphore *const *list, const SemaphoreParameters *parameters, unsigned count, void *stream),
         (list, parameters, count, stream)) {
  CUresult result = check_semaphores(list, parameters, count, stream);
  for (unsigned at = 0; at < count && !result; at++) {
    if (list[at]->value < (list[at]->timeline ? parameters[at].value : 1))
      return cl_unsupported(line, "waits for a semaphore that only another library can signal");
    if (!list[at]->timeline) list[at]->value = 0;
  }
  return result;
}

EXPORTED(cuDestroyExternalSemaphore, (Semaphore * semaphore), HELD(destroy(semaphore, HANDLE_EXTERNAL_SEMAPHORE)))

/* -- graphics: nothing can be registered, so no resource is known -- */

static CUresult use_resources(unsigned count, void *const *list) {
  return !count || !list ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
}
EXPORTED(cuGraphicsMapResources, (unsigned count, void **list, void *stream), use_resources(count, list))
EXPORTED(cuGraphicsUnmapResources, (unsigned count, void **list, void *stream), use_resources(count, list))
EXPORTED(cuGraphicsUnregisterResource, (void *resource), CUDA_ERROR_INVALID_HANDLE)
EXPORTED(cuGraphicsResourceSetMapFlags_v2, (void *resource, unsigned flags), CUDA_ERROR_INVALID_HANDLE)
EXPORTED(cuGraphicsResourceGetMappedPointer_v2, (CUdeviceptr *out, size_t *size, void *resource),
         CUDA_ERROR_INVALID_HANDLE)
EXPORTED(cuGraphicsResourceGetMappedMipmappedArray, (void **out, void *resource), CUDA_ERROR_INVALID_HANDLE)
EXPORTED(cuGraphicsSubResourceGetMappedArray, (void **out, void *resource, unsigned index, unsigned level),
         CUDA_ERROR_INVALID_HANDLE)
