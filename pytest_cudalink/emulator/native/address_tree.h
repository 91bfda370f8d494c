/* Things in the order of their addresses. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* What such a thing begins with. */
typedef struct AddressNode {
  uintptr_t start;
  uint64_t number; /* the order of those that start at one address */
  struct AddressNode *left, *right;
  struct AddressNode *before, *behind; /* its neighbours */
} AddressNode;

typedef struct {
  AddressNode *root, *first;         /* of a treap, and by address */
  void (*sum_up)(AddressNode *node); /* notes something about all that are below a node, and itself; NULL: nothing */
} AddressTree;

void cl_tree_enter(AddressTree *tree, AddressNode *fresh);
void cl_tree_leave(AddressTree *tree, AddressNode *old);
/* The last one that starts at an address or before it; NULL: none does. */
AddressNode *cl_tree_at(const AddressTree *tree, uintptr_t address);
/* The first one that starts at an address or behind it; NULL: none does. */
AddressNode *cl_tree_from(const AddressTree *tree, uintptr_t address);
