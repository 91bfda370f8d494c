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

/* An array that parameters of a kind own: where its pointer and the number of its items are, and the bytes of one. */
typedef struct {
  int type;
  size_t pointer, count, count_size, item;
} OwnedArray;
// NOLINTBEGIN(bugprone-macro-parentheses): the names of members
#define OWNED(kind, member, pointer, number, item)                                          \
  {kind, offsetof(NodeParameters, member.pointer), offsetof(NodeParameters, member.number), \
   sizeof((NodeParameters *)0)->member.number, item}
// NOLINTEND(bugprone-macro-parentheses)
static const OwnedArray arrays[] = {
    OWNED(NODE_SIGNAL_SEMAPHORES, semaphores, semaphores, count, sizeof(void *)),
    OWNED(NODE_SIGNAL_SEMAPHORES, semaphores, values, count, SEMAPHORE_VALUE),
    OWNED(NODE_WAIT_SEMAPHORES, semaphores, semaphores, count, sizeof(void *)),
    OWNED(NODE_WAIT_SEMAPHORES, semaphores, values, count, SEMAPHORE_VALUE),
    OWNED(NODE_ALLOCATE, allocate, accesses, access_count, sizeof(AccessDescription)),
    OWNED(NODE_MEMORY_OPERATIONS, operations, list, count, sizeof(MemoryOperation)),
    OWNED(NODE_CONDITIONAL, conditional, bodies, size, sizeof(Graph *)),
};
#define EACH_ARRAY(parameters)                                                                                       \
  for (const OwnedArray *array = arrays; array < arrays + sizeof arrays / sizeof *arrays; array++) /* of its kind */ \
    if (array->type == (parameters)->type)

bool cl_parameters_own(NodeParameters *parameters) {
  NodeParameters copy = *parameters;
  bool whole = true;
  if (copy.type == NODE_KERNEL && copy.kernel.parameters)
    whole = (copy.kernel.parameters = copy_block(copy.kernel.parameters));
  EACH_ARRAY(&copy) {
    void *from, *made = NULL; /* of no bytes */
    size_t count = 0;
    memcpy(&from, (char *)&copy + array->pointer, sizeof from);
    memcpy(&count, (char *)&copy + array->count, array->count_size); /* little-endian hosts */
    if (whole && count) made = malloc(count * array->item);
    if (made) memcpy(made, from, count * array->item);
    whole = whole && (made || !count);
    memcpy((char *)&copy + array->pointer, &made, sizeof made);
  }
  if (whole) *parameters = copy;
  else cl_parameters_free(&copy);
  return whole;
}

void cl_parameters_free(NodeParameters *parameters) {
  if (parameters->type == NODE_KERNEL && parameters->kernel.parameters) free(block_of(parameters->kernel.parameters));
  EACH_ARRAY(parameters) {
    void *owned;
    memcpy(&owned, (char *)parameters + array->pointer, sizeof owned);
    free(owned);
  }
}
