/* Random calls from several threads, sound ones and others: the library must never see one that it would not survive.
   Built with the sources of the checks and a sanitizer; the library is played by the functions below. */
#include "jitlink_contract.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(CONDITION)                                      \
  do {                                                        \
    if (!(CONDITION)) {                                       \
      fprintf(stderr, "line %d: " #CONDITION "\n", __LINE__); \
      abort();                                                \
    }                                                         \
  } while (0)

typedef struct {
  int alive; /* threads in a call, plus 1000 while the handle lives */
  size_t log;
} Fake;

enum { ALIVE = 1000, NULL_INPUT = 10, SHARED = 6, ROUNDS = 4000, THREADS = 4 };

static int enter(uintptr_t handle) { return __atomic_add_fetch(&((Fake *)handle)->alive, 1, __ATOMIC_SEQ_CST); }
static void leave(uintptr_t handle) { __atomic_sub_fetch(&((Fake *)handle)->alive, 1, __ATOMIC_SEQ_CST); }

static int create(uintptr_t handle, uintptr_t b, uintptr_t c, uintptr_t d, uintptr_t e) {
  (void)b, (void)c, (void)d, (void)e;
  if (!handle) return NULL_INPUT;
  Fake *made = calloc(1, sizeof *made);
  made->alive = ALIVE;
  *(Fake **)handle = made;
  return 0;
}

static int destroy(uintptr_t handle, uintptr_t b, uintptr_t c, uintptr_t d, uintptr_t e) {
  (void)b, (void)c, (void)d, (void)e;
  if (!handle || !*(Fake **)handle) return NULL_INPUT;
  Fake *fake = *(Fake **)handle;
  CHECK(__atomic_exchange_n(&fake->alive, 0, __ATOMIC_SEQ_CST) == ALIVE); /* and no thread is in a call */
  free(fake);
  *(Fake **)handle = NULL;
  return 0;
}

static int add(uintptr_t handle, uintptr_t b, uintptr_t data, uintptr_t d, uintptr_t e) {
  (void)b, (void)d, (void)e;
  if (!handle) return NULL_INPUT;
  CHECK(data);
  CHECK(enter(handle) > ALIVE);
  __atomic_add_fetch(&((Fake *)handle)->log, 7, __ATOMIC_RELAXED);
  leave(handle);
  return 0;
}

static int complete(uintptr_t handle, uintptr_t b, uintptr_t c, uintptr_t d, uintptr_t e) {
  return handle ? add(handle, b, 1, d, e + c) : NULL_INPUT;
}

static int size(uintptr_t handle, uintptr_t out, uintptr_t c, uintptr_t d, uintptr_t e) {
  (void)c, (void)d, (void)e;
  if (!handle || !out) return NULL_INPUT;
  CHECK(enter(handle) > ALIVE);
  *(size_t *)out = __atomic_load_n(&((Fake *)handle)->log, __ATOMIC_RELAXED);
  leave(handle);
  return 0;
}

static int content(uintptr_t handle, uintptr_t out, uintptr_t c, uintptr_t d, uintptr_t e) {
  (void)c, (void)d, (void)e;
  if (!handle || !out) return NULL_INPUT;
  CHECK(enter(handle) > ALIVE);
  memset((void *)out, 'x', __atomic_load_n(&((Fake *)handle)->log, __ATOMIC_RELAXED));
  leave(handle);
  return 0;
}

static int use(JitLinkFunction function, JitLinkCall *original, uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t e) {
  JitLinkUse one = {.function = function, .original = original, .destroy = destroy, .caller = (uintptr_t)use};
  if (function == JL_ERROR) one.size = size;
  return cl_checked_call(&one, (uintptr_t[5]){a, b, c, 0, e});
}

static uintptr_t shared[SHARED];
static int is_alone;

static void *work(void *seed) {
  unsigned state = (unsigned)(uintptr_t)seed;
  char *name = strdup("name");
  for (int round = 0; round < ROUNDS; round++) {
    uintptr_t *place = &shared[rand_r(&state) % SHARED], handle = __atomic_load_n(place, __ATOMIC_RELAXED);
    size_t asked = 0;
    switch (rand_r(&state) % 7) {
      case 0:
        if (use(JL_CREATE, create, (uintptr_t)&handle, 0, 0, 0)) break;
        handle = __atomic_exchange_n(place, handle, __ATOMIC_RELAXED);
        use(JL_DESTROY, destroy, (uintptr_t)&handle, 0, 0, 0);
        break;
      case 1: use(JL_DESTROY, destroy, (uintptr_t)&handle, 0, 0, 0); break;
      case 2: use(JL_ADD_DATA, add, handle, 1, rand_r(&state) % 8 ? handle : 0, (uintptr_t)name); break;
      case 3: use(JL_COMPLETE, complete, handle, 0, 0, 0); break;
      case 4: use(JL_CUBIN_SIZE, size, handle, rand_r(&state) % 8 ? (uintptr_t)&asked : 0, 0, 0); break;
      case 5:
        /* several threads would let the log grow between the check and the call, which no check can prevent */
        if (!is_alone || use(JL_ERROR_SIZE, size, handle, (uintptr_t)&asked, 0, 0)) break;
        char *log = malloc(asked + 1);
        if (rand_r(&state) % 2) use(JL_ADD_DATA, add, handle, 1, handle, (uintptr_t)name);
        use(JL_ERROR, content, handle, (uintptr_t)log, 0, 0);
        free(log);
        break;
      default: /* a name that lives no longer */
        free(name);
        name = strdup("other");
        break;
    }
  }
  free(name);
  return NULL;
}

int main(void) {
  uint64_t taken = 0;
  ContractViolation violation;
  for (int mode = 1; mode <= 2; mode++) {
    cudalinkContract(mode, 0, NULL, NULL);
    is_alone = 1;
    work((void *)(uintptr_t)mode);
    is_alone = 0;
    pthread_t threads[THREADS];
    for (int at = 0; at < THREADS; at++) pthread_create(&threads[at], NULL, work, (void *)(uintptr_t)(at + 10 * mode));
    for (int at = 0; at < THREADS; at++) pthread_join(threads[at], NULL);
    while (cudalinkTakeViolation(&violation)) taken++;
    cudalinkContract(0, 0, NULL, NULL);
    memset(shared, 0, sizeof shared);
  }
  CHECK(taken);
  CHECK(cudalinkContractViolations() > 1000);
  return 0;
}
