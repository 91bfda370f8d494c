/* Memory and events of this process for others, and those of others for this one. */
#include <string.h>
#include <unistd.h>

#include "blocks.h"
#include "device_addresses.h"
#include "devices.h"
#include "streams.h"
#include "visible.h"

/* CUipcMemHandle and CUipcEventHandle, as we fill them. */
typedef struct {
  char magic[8];
  int kind, process, file, place;
  uint64_t key, offset, size, end, end_number;
} IpcHandle;
_Static_assert(sizeof(IpcHandle) == 64, "CUipcMemHandle, CUipcEventHandle");

enum { OF_MEMORY = 1, OF_EVENT = 2 };

static const char magic[8] = "clk-ipc";

/* A handle of this process; false if it has no file to share. */
static bool fill(IpcHandle *handle, int kind, CUdevice device) {
  *handle = (IpcHandle){.kind = kind, .process = (int)getpid(), .place = cl_place_of_device(device)};
  memcpy(handle->magic, magic, sizeof magic);
  handle->file = cl_process_file(&handle->key);
  return handle->file >= 0;
}

/* Opens the file of the process that a handle comes from. */
static CUresult open_origin(const IpcHandle *handle, int kind, int *file) {
  uint64_t key;
  if (memcmp(handle->magic, magic, sizeof magic) || handle->kind != kind) return CUDA_ERROR_INVALID_VALUE;
  if (cl_process_file(&key) >= 0 && key == handle->key) return CUDA_ERROR_INVALID_CONTEXT; /* our own */
  *file = cl_process_open(handle->process, handle->file, handle->key);
  return *file < 0 ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS; /* its process is gone */
}

static bool is_empty(const unsigned char *page, size_t size) { return !page[0] && !memcmp(page, page + 1, size - 1); }

/* Moves a slab into the file of this process, at the address where it is; false if memory is out. The table is locked,
   so that nothing is copied there meanwhile. */
static bool share(Slab *slab) {
  uint64_t key;
  int file = cl_process_file(&key);
  if (slab->shared && slab->key == key) return true;
  size_t page = cl_page_size(), size = slab->size, offset = cl_process_part(size);
  if (!offset) return false;
  for (size_t at = 0; at < slab->reached; at += page) {
    const unsigned char *from = (const unsigned char *)cl_bytes_of(slab->start) + at;
    if (!is_empty(from, page) && pwrite(file, from, page, (off_t)(offset + at)) != (ssize_t)page) return false;
  }
  if (!cl_file_map(file, offset, size, cl_bytes_of(slab->start))) return false;
  slab->shared = true;
  slab->key = key;
  slab->offset = offset;
  return true;
}

/* Where an address of a slab that is shared lies in the file. */
static size_t offset_of(const Slab *slab, CUdeviceptr address) {
  return slab->offset + ((uintptr_t)address - slab->start);
}

/* Where another process will read that a block of this one is freed; false if memory is out. */
static bool mark(Block *block, IpcHandle *handle) {
  if (block->key != handle->key) block->end_number = 0;
  block->shared_end = cl_process_end(&block->end_number, &handle->end);
  block->key = handle->key;
  handle->end_number = block->end_number;
  return block->shared_end;
}

API_WHEN(address != 0, cuIpcGetMemHandle, (IpcHandle * out, CUdeviceptr address), (out, address)) {
  if (!out || !address) return CUDA_ERROR_INVALID_VALUE;
  TRY(cl_check_context());
  HOLD_BLOCK(block, address);
  if (!block || block->origin != FROM_ALLOCATION || block->place != ON_DEVICE) return CUDA_ERROR_INVALID_VALUE;
  if (!share(block->slab) || !fill(out, OF_MEMORY, block->device) || !mark(block, out)) return CUDA_ERROR_OUT_OF_MEMORY;
  out->offset = offset_of(block->slab, block->start);
  out->size = block->size;
  return CUDA_SUCCESS;
}

/* What a context opened by the same handle before. */
static bool is_opened(const Block *block, const Block *wanted) {
  return block->origin == FROM_IPC && block->references && block->key == wanted->key &&
         block->end_number == wanted->end_number && block->size == wanted->size && block->context == wanted->context;
}

static CUresult map_handle(int file, const IpcHandle *handle, Block *block) {
  size_t before = handle->offset % cl_page_size();
  block->pages_size = cl_rounded(before + handle->size, cl_page_size());
  block->pages = cl_device_file(file, handle->offset - before, block->pages_size, 0);
  if (!block->pages) return CUDA_ERROR_MAP_FAILED;
  block->start = block->pages + before;
  CUresult result = cl_block_enter(block);
  if (result) cl_block_free(block);
  return result;
}

API(cuIpcOpenMemHandle_v2, (CUdeviceptr *out, IpcHandle handle, unsigned flags), (out, handle, flags)) {
  int file;
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  IN_CONTEXT(context);
  if (!(flags & CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)) return CUDA_ERROR_INVALID_VALUE;
  TRY(open_origin(&handle, OF_MEMORY, &file));
  CUdevice device = cl_device_at_place(handle.place);
  Block block = {.size = handle.size, .origin = FROM_IPC, .context = context, .references = 1, .key = handle.key};
  block.device = cl_is_device(device) ? device : context->device;
  block.offset = handle.offset;
  block.end_number = handle.end_number;
  Block *opened = cl_block_find(is_opened, &block);
  if (opened) {
    opened->references++;
    *out = opened->start;
  }
  cl_block_unlock();
  CUresult result = CUDA_SUCCESS;
  if (!opened) {
    size_t into = handle.end % cl_page_size();
    uintptr_t page = cl_file_map(file, handle.end - into, cl_page_size(), 0);
    if (page) block.shared_end = (SharedEnd *)(page + into);
    result = !page ? CUDA_ERROR_MAP_FAILED : cl_is_freed_elsewhere(&block) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    if (!result) result = map_handle(file, &handle, &block);
    else cl_block_free(&block);
    if (!result) *out = block.start;
  }
  close(file);
  return result;
}

API(cuIpcCloseMemHandle, (CUdeviceptr address), (address)) {
  TRY(cl_check_context());
  Block *block = cl_block_lock(address);
  bool found = block && block->origin == FROM_IPC && block->start == address;
  if (found) cl_note_freed_elsewhere(block);
  bool last = found && --block->references == 0;
  cl_block_unlock();
  Block taken;
  if (last && cl_block_take(address, FROM_IPC, &taken)) cl_block_free(&taken);
  return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* -- DMA buffers: no other device of this machine takes one, so what counts is whose bytes the descriptor has -- */

/* A descriptor of the file that a slab is in, which stands where the range begins; -1 if it cannot be opened. */
static int open_range(const Slab *slab, CUdeviceptr address) {
  uint64_t key;
  int own = cl_process_file(&key), file = cl_process_open((int)getpid(), own, key);
  if (file < 0 || lseek(file, (off_t)offset_of(slab, address), SEEK_SET) >= 0) return file;
  close(file);
  return -1;
}

/* What is behind an allocation belongs to the range, as far as its slab reaches (measured: programs/order). */
static CUresult range_of_block(EventLine *line, int *out, const Block *block, CUdeviceptr address, size_t size) {
  if (!block || block->place != ON_DEVICE) return CUDA_ERROR_INVALID_VALUE;
  if (block->origin != FROM_ALLOCATION)
    return cl_unsupported(line, "DMA buffers are emulated for memory of cuMemAlloc alone");
  if (size > block->slab->start + block->slab->size - address) return CUDA_ERROR_INVALID_VALUE;
  if (!share(block->slab)) return CUDA_ERROR_OUT_OF_MEMORY;
  *out = open_range(block->slab, address);
  return *out < 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

API_WHEN(out &&address, cuMemGetHandleForAddressRange,
         (int *out, CUdeviceptr address, size_t size, int type, unsigned long long flags),
         (out, address, size, type, flags)) {
  if (!out || !address) return CUDA_ERROR_INVALID_VALUE;
  TRY(cl_check_context());
  if (type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD || flags > CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE || !size ||
      address % cl_page_size() || size % cl_page_size())
    return CUDA_ERROR_INVALID_VALUE;
  *out = -1;
  HOLD_BLOCK(block, address);
  if (block && flags == CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE)
    return cl_noted(line, CUDA_ERROR_NOT_SUPPORTED, "no device maps its memory by PCIe");
  return range_of_block(line, out, block, address, size);
}

/* -- events: all work is done when a call returns, so one of another process is over as soon as it is there -- */

API_WHEN(event != NULL, cuIpcGetEventHandle, (IpcHandle * out, void *event), (out, event)) {
  unsigned flags;
  if (!out || !event) return CUDA_ERROR_INVALID_VALUE;
  TRY(cl_check_context());
  TRY(cl_flags_of_event(event, &flags));
  if (!(flags & CU_EVENT_INTERPROCESS) || !(flags & CU_EVENT_DISABLE_TIMING)) return CUDA_ERROR_INVALID_HANDLE;
  return fill(out, OF_EVENT, 0) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API(cuIpcOpenEventHandle, (void **out, IpcHandle handle), (out, handle)) {
  int file;
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  TRY(cl_check_context());
  CUresult result = open_origin(&handle, OF_EVENT, &file);
  if (!result) close(file);
  else if (result != CUDA_ERROR_INVALID_HANDLE) /* an event outlives its process (measured: edges/processes_more) */
    return result == CUDA_ERROR_INVALID_CONTEXT ? result : CUDA_ERROR_MAP_FAILED;
  return cl_make_event(out, CU_EVENT_DISABLE_TIMING); /* only its maker shares it further */
}
