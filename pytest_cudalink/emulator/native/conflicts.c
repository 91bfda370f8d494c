/* The accesses to memory that later ones are compared with: in a tree by address, and in a list for each chain in the
   order of their works. */
#include "conflicts.h"

#include <stdlib.h>

#include "address_tree.h"

typedef struct Access {
  AddressNode node;
  Range range;
  uintptr_t end;
  Op *op;
  AccessKind kind;
  Clock *clock; /* of a written value: what happened before */
  struct Access *older, *newer;
  struct Access *covered; /* the next one that is to go */
  /* of all that are below it in the tree, and itself */
  uintptr_t reach;
  unsigned kinds;
  unsigned chain; /* MIXED: more than one */
  uint64_t latest;
} Access;

enum { MIXED = CHAINS };

static struct {
  Access *oldest, *newest;
} lists[CHAINS];
static uint64_t last_number;

static uintptr_t end_of(const Range *range) {
  return range->start + (range->layers - 1) * range->layer + (range->rows - 1) * range->pitch + range->width;
}

static bool is_dense(const Range *range) {
  return (range->rows == 1 || range->pitch == range->width) &&
         (range->layers == 1 || range->layer == range->rows * range->pitch);
}

static void sum_up(AddressNode *node) {
  Access *one = (Access *)node;
  const Access *const below[] = {(Access *)node->left, (Access *)node->right};
  one->reach = one->end;
  one->kinds = 1u << one->kind;
  one->chain = one->op->chain;
  one->latest = one->op->count;
  for (size_t at = 0; at < 2; at++) {
    if (!below[at]) continue;
    if (one->reach < below[at]->reach) one->reach = below[at]->reach;
    if (one->latest < below[at]->latest) one->latest = below[at]->latest;
    if (one->chain != below[at]->chain) one->chain = MIXED;
    one->kinds |= below[at]->kinds;
  }
}

static AddressTree tree = {.sum_up = sum_up};

static void drop(Access *one) {
  cl_tree_leave(&tree, &one->node);
  const unsigned chain = one->op->chain;
  *(one->older ? &one->older->newer : &lists[chain].oldest) = one->newer;
  *(one->newer ? &one->newer->older : &lists[chain].newest) = one->older;
  cl_op_release(one->op);
  free(one->clock);
  free(one);
}

static void insert(const Access *fresh) {
  Access *one = malloc(sizeof *one);
  if (!one) {
    cl_order_ends("memory is out");
    return;
  }
  *one = *fresh;
  one->op->holders++;
  if (one->kind == ACCESS_VALUE) cl_clock_join(&one->clock, one->op->clock);
  const unsigned chain = one->op->chain;
  one->older = lists[chain].newest;
  *(one->older ? &one->older->newer : &lists[chain].oldest) = one;
  lists[chain].newest = one;
  cl_tree_enter(&tree, &one->node);
}

/* Which accesses are looked for: those that reach into bytes, of some kinds, and not all known to a clock. */
typedef struct {
  uintptr_t start, end;
  unsigned kinds;
  const Clock *unknown; /* NULL: the known ones, too */
} Query;
typedef void Visit(Access *one, void *data);

static void visit(AddressNode *node, const Query *wanted, Visit *each, void *data) {
  Access *from = (Access *)node;
  if (!from || from->reach <= wanted->start || !(from->kinds & wanted->kinds)) return;
  if (wanted->unknown && from->chain != MIXED && cl_clock_count(wanted->unknown, from->chain) >= from->latest) return;
  visit(node->left, wanted, each, data);
  if (node->start >= wanted->end) return;
  if (from->end > wanted->start) each(from, data);
  visit(node->right, wanted, each, data);
}

void cl_conflicts_forget(const Clock *known) {
  for (unsigned chain = 0; chain < (known && known->size < CHAINS ? known->size : CHAINS); chain++)
    while (lists[chain].oldest && (!known || known->counts[chain] >= lists[chain].oldest->op->count))
      drop(lists[chain].oldest);
}

/* Whether a row of one range holds bytes of another. */
static bool row_meets(uintptr_t start, uintptr_t end, const Range *range) {
  const size_t span = (range->rows - 1) * range->pitch + range->width;
  const bool later = range->layers > 1 && range->layer && start >= range->start + span;
  size_t layer = later ? (start - range->start - span) / range->layer : 0;
  for (; layer < range->layers && range->start + layer * range->layer < end; layer++) {
    uintptr_t first = range->start + layer * range->layer;
    size_t row = start > first && range->rows > 1 ? (start - first) / range->pitch : 0;
    for (; row < range->rows && first + row * range->pitch < end; row++)
      if (start < first + row * range->pitch + range->width) return true;
  }
  return false;
}

static bool meets(const Range *one, const Range *other) {
  if (end_of(one) <= other->start || end_of(other) <= one->start) return false;
  if (is_dense(one)) return is_dense(other) || row_meets(one->start, end_of(one), other);
  if (is_dense(other)) return row_meets(other->start, end_of(other), one);
  if (one->rows * one->layers > other->rows * other->layers) return meets(other, one);
  for (size_t layer = 0; layer < one->layers; layer++)
    for (size_t row = 0; row < one->rows; row++) {
      uintptr_t start = one->start + layer * one->layer + row * one->pitch;
      if (row_meets(start, start + one->width, other)) return true;
    }
  return false;
}

enum { HARMLESS = 1u << ACCESS_READ | 1u << ACCESS_VALUE, EVERY_KIND = ~0u };

/* Words that are written as values may be read and written at any time. */
static unsigned conflicting(AccessKind kind) { return 1u << kind & HARMLESS ? EVERY_KIND & ~HARMLESS : EVERY_KIND; }

static void name_pair(const Access *first, const Access *second) {
  uintptr_t start = first->range.start > second->range.start ? first->range.start : second->range.start;
  uintptr_t end = first->end < second->end ? first->end : second->end;
  cl_order_finding(&(Finding){
      .kinds = {(int)first->kind, (int)second->kind},
      .sites = {first->op->site, second->op->site},
      .where = {first->op->where, second->op->where},
      .start = start,
      .size = end - start,
  });
}

enum { PAIRS = 16 };

typedef struct {
  const Access *fresh;
  const Access *pairs[PAIRS];
  size_t count;
  Access *covered;
} Comparison;

/* Of the accesses of one chain only the last one is named: whatever orders it orders those before it. */
static void add_pair(Comparison *with, const Access *one) {
  size_t at = 0;
  while (at < with->count && with->pairs[at]->op->chain != one->op->chain) at++;
  if (at == PAIRS || (at < with->count && with->pairs[at]->op->count > one->op->count)) return;
  with->pairs[at] = one;
  if (at == with->count) ++with->count;
}

static bool is_ordered(const Access *earlier, const Op *op) {
  return earlier->op == op || cl_clock_count(op->clock, earlier->op->chain) >= earlier->op->count;
}

static void compare(Access *one, void *data) {
  Comparison *with = data;
  const Access *fresh = with->fresh;
  if (!(conflicting(fresh->kind) >> one->kind & 1) || is_ordered(one, fresh->op)) return;
  /* a work that waits for all uses of memory need not wait for its allocation, too */
  if (one->kind == ACCESS_ALLOCATE && !fresh->op->chain) return;
  if (meets(&one->range, &fresh->range)) add_pair(with, one);
}

/* Whether what meets an older access meets a fresh one, too, and is not ordered behind it either. */
static bool outlasts(const Access *fresh, const Access *older) {
  if (fresh->kind == ACCESS_FREE || fresh->kind == ACCESS_ALLOCATE) return true;
  if (!is_ordered(older, fresh->op)) return false;
  return fresh->kind == ACCESS_WRITE ||
         (older->op->chain == fresh->op->chain && (older->kind == ACCESS_READ || older->kind == fresh->kind));
}

static void cover(Access *one, void *data) {
  Comparison *with = data;
  const Access *fresh = with->fresh;
  if (one->range.start < fresh->range.start || one->end > fresh->end || !outlasts(fresh, one)) return;
  one->covered = with->covered;
  with->covered = one;
}

void cl_conflicts_touch(Op *op, const Range *range, AccessKind kind, bool kept) {
  const Access fresh = {
      .node = {.start = range->start, .number = ++last_number},
      .range = *range,
      .end = end_of(range),
      .op = op,
      .kind = kind,
  };
  Comparison with = {.fresh = &fresh};
  Query wanted = {range->start, fresh.end, conflicting(kind), op->clock};
  if (kind != ACCESS_ALLOCATE) visit(tree.root, &wanted, compare, &with); /* its work has seen to what was before */
  for (size_t at = 0; at < with.count; at++) name_pair(with.pairs[at], &fresh);
  wanted.unknown = NULL;
  wanted.kinds = 1u << kind & HARMLESS ? HARMLESS : EVERY_KIND;
  if (is_dense(range)) visit(tree.root, &wanted, cover, &with);
  while (with.covered) {
    Access *one = with.covered;
    with.covered = one->covered;
    drop(one);
  }
  if (kept) insert(&fresh);
}

typedef struct {
  Op *op;
  WriterHook *hook;
} WriterVisit;

static void release(Access *one, void *data) {
  const WriterVisit *released = data;
  released->hook(released->op, one->op, one->clock);
}

void cl_conflicts_writers(uintptr_t word, Op *op, WriterHook *hook) {
  visit(tree.root, &(Query){word, word + 1, EVERY_KIND & ~(1u << ACCESS_READ), NULL}, release,
        &(WriterVisit){op, hook});
}
