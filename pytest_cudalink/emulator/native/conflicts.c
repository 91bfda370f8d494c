/* The accesses to memory that later ones are compared with, in the order of their addresses. */
#include "conflicts.h"

#include <string.h>

enum { ACCESSES = 4096, ROWS_COMPARED = 65536 };

typedef struct {
  Range range;
  uintptr_t end;
  Op *op;
  AccessKind kind;
  uint64_t number;
} Access;

static Access accesses[ACCESSES]; /* by their start */
static size_t access_count;
static size_t widest; /* of all that were there since there was none */
static uint64_t last_number;

static uintptr_t end_of(const Range *range) {
  return range->start + (range->layers - 1) * range->layer + (range->rows - 1) * range->pitch + range->width;
}

static bool is_dense(const Range *range) {
  return (range->rows == 1 || range->pitch == range->width) &&
         (range->layers == 1 || range->layer == range->rows * range->pitch);
}

static void remove_at(size_t at) {
  cl_op_release(accesses[at].op);
  memmove(accesses + at, accesses + at + 1, (--access_count - at) * sizeof *accesses);
  if (!access_count) widest = 0;
}

void cl_conflicts_forget(const Clock *known) {
  size_t kept = 0;
  for (size_t at = 0; at < access_count; at++) {
    const Op *op = accesses[at].op;
    if (!known || cl_clock_count(known, op->chain) >= op->count) cl_op_release(accesses[at].op);
    else accesses[kept++] = accesses[at];
  }
  access_count = kept;
  if (!kept) widest = 0;
}

/* The first access that may reach an address. */
static size_t first_at(uintptr_t start) {
  uintptr_t least = start > widest ? start - widest : 0;
  size_t low = 0, high = access_count;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (accesses[middle].range.start < least) low = middle + 1;
    else high = middle;
  }
  return low;
}

/* Whether a row of one range holds bytes of another. */
static bool row_meets(uintptr_t start, uintptr_t end, const Range *range) {
  for (size_t layer = 0; layer < range->layers; layer++) {
    uintptr_t first = range->start + layer * range->layer;
    if (end <= first || start >= first + (range->rows - 1) * range->pitch + range->width) continue;
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
  if (one->rows * one->layers > ROWS_COMPARED) return false; /* too many to say */
  for (size_t layer = 0; layer < one->layers; layer++)
    for (size_t row = 0; row < one->rows; row++) {
      uintptr_t start = one->start + layer * one->layer + row * one->pitch;
      if (row_meets(start, start + one->width, other)) return true;
    }
  return false;
}

/* Words that are written as values may be read and written at any time. */
static bool conflicts(AccessKind one, AccessKind other) {
  if (one == ACCESS_READ || one == ACCESS_VALUE) return other != ACCESS_READ && other != ACCESS_VALUE;
  return true;
}

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

static void insert(const Access *fresh) {
  if (access_count == ACCESSES) {
    size_t oldest = 0;
    for (size_t at = 1; at < access_count; at++)
      if (accesses[at].number < accesses[oldest].number) oldest = at;
    remove_at(oldest);
  }
  size_t at = access_count++;
  for (; at && accesses[at - 1].range.start > fresh->range.start; at--) accesses[at] = accesses[at - 1];
  accesses[at] = *fresh;
  fresh->op->holders++;
  if (widest < fresh->end - fresh->range.start) widest = fresh->end - fresh->range.start;
}

enum { PAIRS = 16 };

/* Of the accesses of one chain only the last one is named: whatever orders it orders those before it. */
static void add_pair(const Access **pairs, size_t *count, const Access *one) {
  size_t at = 0;
  while (at < *count && pairs[at]->op->chain != one->op->chain) at++;
  if (at == PAIRS || (at < *count && pairs[at]->op->count > one->op->count)) return;
  pairs[at] = one;
  if (at == *count) ++*count;
}

static bool is_ordered(const Access *earlier, const Op *op) {
  return earlier->op == op || cl_clock_count(op->clock, earlier->op->chain) >= earlier->op->count;
}

static void find_pairs(const Access *fresh) {
  const Access *pairs[PAIRS];
  size_t count = 0;
  for (size_t at = first_at(fresh->range.start); at < access_count && accesses[at].range.start < fresh->end; at++) {
    const Access *one = &accesses[at];
    /* a work that waits for all uses of memory need not wait for its allocation, too */
    if (one->kind == ACCESS_ALLOCATE && !fresh->op->chain) continue;
    if (!is_ordered(one, fresh->op) && conflicts(one->kind, fresh->kind) && meets(&one->range, &fresh->range))
      add_pair(pairs, &count, one);
  }
  for (size_t at = 0; at < count; at++) name_pair(pairs[at], fresh);
}

/* Whether what meets an older access meets a fresh one, too, and is not ordered behind it either. */
static bool outlasts(const Access *fresh, const Access *older) {
  if (fresh->kind == ACCESS_FREE || fresh->kind == ACCESS_ALLOCATE) return true;
  if (!is_ordered(older, fresh->op)) return false;
  return fresh->kind == ACCESS_WRITE || (older->kind == ACCESS_READ && older->op->chain == fresh->op->chain);
}

static void forget_covered(const Access *fresh) {
  if (!is_dense(&fresh->range)) return;
  for (size_t at = first_at(fresh->range.start); at < access_count && accesses[at].range.start < fresh->end;) {
    const Access *one = &accesses[at];
    if (one->range.start >= fresh->range.start && one->end <= fresh->end && outlasts(fresh, one)) remove_at(at);
    else at++;
  }
}

void cl_conflicts_touch(Op *op, const Range *range, AccessKind kind, bool kept) {
  const Access fresh = {.range = *range, .end = end_of(range), .op = op, .kind = kind, .number = ++last_number};
  if (kind != ACCESS_ALLOCATE) find_pairs(&fresh); /* the allocating work has seen to the order of those before */
  forget_covered(&fresh);
  if (kept) insert(&fresh);
}

void cl_conflicts_writers(uintptr_t word, Op *op, WriterHook *hook) {
  for (size_t at = first_at(word); at < access_count && accesses[at].range.start <= word; at++)
    if (accesses[at].kind != ACCESS_READ && accesses[at].end > word) hook(op, accesses[at].op);
}
