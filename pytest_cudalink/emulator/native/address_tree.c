/* A treap: a tree that is sorted by addresses, and a heap of numbers that look like random ones. */
#include "address_tree.h"

#include <stddef.h>

static uint64_t height_of(const AddressNode *node) {
  uint64_t mixed = (node->start ^ node->number << 20) * 0x9E3779B97F4A7C15u;
  return (mixed ^ mixed >> 29) * 0xBF58476D1CE4E5B9u;
}

static void sum_up(const AddressTree *tree, AddressNode *node) {
  if (tree->sum_up) tree->sum_up(node);
}

static bool is_before(const AddressNode *node, uintptr_t start, uint64_t number) {
  return node->start < start || (node->start == start && node->number < number);
}

/* Splits a tree before a node. */
static void split(const AddressTree *tree, AddressNode *from, const AddressNode *at, AddressNode **before,
                  AddressNode **behind) {
  if (!from) {
    *before = *behind = NULL;
    return;
  }
  if (is_before(from, at->start, at->number)) {
    split(tree, from->right, at, &from->right, behind);
    *before = from;
  } else {
    split(tree, from->left, at, before, &from->left);
    *behind = from;
  }
  sum_up(tree, from);
}

static AddressNode *merge(const AddressTree *tree, AddressNode *before, AddressNode *behind) {
  if (!before || !behind) return before ? before : behind;
  AddressNode *top = height_of(before) > height_of(behind) ? before : behind;
  if (top == before) before->right = merge(tree, before->right, behind);
  else behind->left = merge(tree, before, behind->left);
  sum_up(tree, top);
  return top;
}

static AddressNode *last_before(const AddressTree *tree, uintptr_t start, uint64_t number) {
  AddressNode *found = NULL;
  for (AddressNode *at = tree->root; at;) {
    bool before = is_before(at, start, number);
    if (before) found = at;
    at = before ? at->right : at->left;
  }
  return found;
}

AddressNode *cl_tree_at(const AddressTree *tree, uintptr_t address) { return last_before(tree, address, UINT64_MAX); }

AddressNode *cl_tree_from(const AddressTree *tree, uintptr_t address) {
  AddressNode *before = last_before(tree, address, 0);
  return before ? before->behind : tree->first;
}

void cl_tree_enter(AddressTree *tree, AddressNode *fresh) {
  AddressNode *before = last_before(tree, fresh->start, fresh->number), *lower, *upper;
  fresh->before = before;
  fresh->behind = before ? before->behind : tree->first;
  *(before ? &before->behind : &tree->first) = fresh;
  if (fresh->behind) fresh->behind->before = fresh;
  fresh->left = fresh->right = NULL;
  sum_up(tree, fresh);
  split(tree, tree->root, fresh, &lower, &upper);
  tree->root = merge(tree, merge(tree, lower, fresh), upper);
}

void cl_tree_leave(AddressTree *tree, AddressNode *old) {
  AddressNode *lower, *upper, *behind = old->behind;
  *(old->before ? &old->before->behind : &tree->first) = behind;
  if (behind) behind->before = old->before;
  split(tree, tree->root, old, &lower, &upper);
  if (behind) split(tree, upper, behind, &old, &upper);
  else upper = NULL;
  tree->root = merge(tree, lower, upper);
}
