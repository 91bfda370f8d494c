/* Owning what the parameters of nodes point to. */
#include "graph_parameters.h"

#include <stdlib.h>
#include <string.h>

/* A kernel's parameters: this, pointers to the values, and the values, in one block of malloc. */
typedef struct {
  size_t size, count;
} KernelBlock;

enum { VALUE_ALIGNMENT = 16 };

static size_t aligned(size_t size) { return (size + VALUE_ALIGNMENT - 1) / VALUE_ALIGNMENT * VALUE_ALIGNMENT; }

void **cl_kernel_block(size_t count, const size_t *sizes, void *const *values) {
  size_t start = aligned(sizeof(KernelBlock) + count * sizeof(void *)), size = start;
  for (size_t at = 0; at < count; at++) size += aligned(sizes[at]);
  KernelBlock *block = malloc(size);
  if (!block) return NULL;
  *block = (KernelBlock){size, count};
  void **pointers = (void **)(block + 1);
  char *value = (char *)block + start;
  for (size_t at = 0; at < count; value += aligned(sizes[at]), at++)
    pointers[at] = memcpy(value, values[at], sizes[at]);
  return pointers;
}

static KernelBlock *block_of(void **pointers) { return (KernelBlock *)(void *)pointers - 1; }

static void **copy_block(void **pointers) {
  const KernelBlock *old = block_of(pointers);
  KernelBlock *block = malloc(old->size);
  if (!block) return NULL;
  memcpy(block, old, old->size);
  void **copies = (void **)(block + 1);
  for (size_t at = 0; at < block->count; at++)
    copies[at] = (char *)block + ((const char *)pointers[at] - (const char *)old);
  return copies;
}

/* Copies an array; one of no bytes is NULL. */
static bool copy_array(void *pointer, size_t size) {
  void *from, *copy = size ? malloc(size) : NULL;
  memcpy(&from, pointer, sizeof from);
  if (size && !copy) return false;
  if (size) memcpy(copy, from, size);
  memcpy(pointer, &copy, sizeof copy);
  return true;
}

bool cl_parameters_own(NodeParameters *parameters) {
  NodeParameters copy = *parameters;
  bool whole = true;
  switch (copy.type) {
    case NODE_KERNEL:
      if (copy.kernel.parameters) whole = (copy.kernel.parameters = copy_block(copy.kernel.parameters));
      break;
    case NODE_SIGNAL_SEMAPHORES:
    case NODE_WAIT_SEMAPHORES:
      whole = copy_array(&copy.semaphores.semaphores, copy.semaphores.count * sizeof(void *));
      if (whole && !copy_array(&copy.semaphores.values, (size_t)copy.semaphores.count * SEMAPHORE_VALUE)) {
        free(copy.semaphores.semaphores);
        whole = false;
      }
      break;
    case NODE_ALLOCATE:
      whole = copy_array(&copy.allocate.accesses, copy.allocate.access_count * sizeof(AccessDescription));
      break;
    case NODE_MEMORY_OPERATIONS:
      whole = copy_array(&copy.operations.list, copy.operations.count * sizeof *copy.operations.list);
      break;
    case NODE_CONDITIONAL: whole = copy_array(&copy.conditional.bodies, copy.conditional.size * sizeof(Graph *)); break;
    default: break;
  }
  if (whole) *parameters = copy;
  return whole;
}

void cl_parameters_free(NodeParameters *parameters) {
  switch (parameters->type) {
    case NODE_KERNEL:
      if (parameters->kernel.parameters) free(block_of(parameters->kernel.parameters));
      break;
    case NODE_SIGNAL_SEMAPHORES:
    case NODE_WAIT_SEMAPHORES:
      free(parameters->semaphores.semaphores);
      free(parameters->semaphores.values);
      break;
    case NODE_ALLOCATE: free((void *)(uintptr_t)parameters->allocate.accesses); break;
    case NODE_MEMORY_OPERATIONS: free(parameters->operations.list); break;
    case NODE_CONDITIONAL: free(parameters->conditional.bodies); break;
    default: break;
  }
}
