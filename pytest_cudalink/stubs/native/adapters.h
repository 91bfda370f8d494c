/* Functions whose callers and libraries may disagree on the signature. */
#ifndef STUB_ADAPTERS_H
#define STUB_ADAPTERS_H

#include "search.h"

/* The CUDA major of a runtime library, known from what it exports: asking it would need a driver in CUDA 11. */
__attribute__((unused)) static int stub_generation(void *handle) {
  if (!dlsym(handle, "cudaGraphInstantiateWithParams")) return 11;
  return dlsym(handle, "cudaGetDeviceProperties_v2") ? 12 : 13;
}

#if STUB_HAS_graph_instantiate
/* cudaGraphInstantiate: up to CUDA 11 (exec, graph, error node *, log, size), from 12 on (exec, graph, flags), under
 * one name. Unless --headers gave the callers' generation, the third argument shows it: flags are small numbers, and no
 * address lies in the first page. A third argument of 0 means the same in both: no flags, and no caller that asks for
 * the error node; the log is not written then, because a caller of the second generation has no such argument. */

/* cudaGraphInstantiateParams of CUDA 12 and 13 */
struct stub_instantiate_params {
  unsigned long long flags;
  void *upload_stream;
  void *error_node;
  int result;
};

typedef int (*stub_instantiate_5_t)(void **, void *, void **, char *, size_t);
typedef int (*stub_instantiate_flags_t)(void **, void *, unsigned long long);
typedef int (*stub_instantiate_params_t)(void **, void *, struct stub_instantiate_params *);
static _Atomic(stub_instantiate_5_t) stub_instantiate_5;
static _Atomic(stub_instantiate_flags_t) stub_instantiate_flags;
static _Atomic(stub_instantiate_params_t) stub_instantiate_params;

static int stub_graph_instantiate(void **exec, void *graph, uintptr_t third, char *log, size_t size) {
  atomic_thread_fence(memory_order_acquire); /* the slot was read before; now what was stored before the slot is seen */
  stub_instantiate_5_t with_5 = atomic_load(&stub_instantiate_5);
  stub_instantiate_flags_t with_flags = atomic_load(&stub_instantiate_flags);
  stub_instantiate_params_t with_params = atomic_load(&stub_instantiate_params);
  if (STUB_HEADERS ? STUB_HEADERS > 11 : third < 4096) {
    if (with_flags) return with_flags(exec, graph, third);
    if (with_5 && !third) return with_5(exec, graph, NULL, NULL, 0); /* before CUDA 11.4 */
    if (exec) *exec = NULL;
    return STUB_MISSING_SYMBOL;
  }
  if (with_5) return with_5(exec, graph, (void **)third, log, size);
  if (third) *(void **)third = NULL;
  if (log && size) *log = '\0';
  if (with_params) {
    struct stub_instantiate_params params = {.flags = 0};
    int result = with_params(exec, graph, &params);
    if (third) *(void **)third = params.error_node;
    return result;
  }
  if (with_flags) return with_flags(exec, graph, 0);
  if (exec) *exec = NULL;
  return STUB_MISSING_SYMBOL;
}

/* Every thread stores the same values before it publishes the function that reads them. */
static stub_function stub_adapt_graph_instantiate(void *handle, stub_function real) {
  int generation = stub_generation(handle);
  void *flags = dlsym(handle, "cudaGraphInstantiateWithFlags");
  void *params = dlsym(handle, "cudaGraphInstantiateWithParams");
  if (!flags && generation > 11) flags = (void *)(uintptr_t)real;
  atomic_store(&stub_instantiate_5, generation < 12 ? (stub_instantiate_5_t)real : NULL);
  atomic_store(&stub_instantiate_flags, (stub_instantiate_flags_t)(uintptr_t)flags);
  atomic_store(&stub_instantiate_params, (stub_instantiate_params_t)(uintptr_t)params);
  return (stub_function)stub_graph_instantiate;
}
#endif

#if STUB_HAS_runtime_version
/* cudaRuntimeGetVersion of CUDA 11 asks the driver first and fails where there is none; later ones just answer. */
typedef int (*stub_runtime_version_t)(int *);
static _Atomic(stub_runtime_version_t) stub_real_runtime_version;

static int stub_runtime_version(int *version) {
  atomic_thread_fence(memory_order_acquire);
  int result = atomic_load(&stub_real_runtime_version)(version);
  if (!result || !version) return result;
  int known = stub_version(atomic_load(&stub_chosen)->handle);
  if (!known) return result;
  *version = known;
  return 0;
}

static stub_function stub_adapt_runtime_version(void *handle, stub_function real) {
  if (stub_generation(handle) > 11) return real;
  atomic_store(&stub_real_runtime_version, (stub_runtime_version_t)real);
  return (stub_function)stub_runtime_version;
}
#endif

#if STUB_HAS_function_attributes
/* cudaFuncAttributes has 56 bytes in CUDA 11 and 144 from 12 on, which begin with the former. */
enum { STUB_ATTRIBUTES = STUB_HEADERS == 11 ? 56 : 144, STUB_ATTRIBUTES_ROOM = 1024 };

typedef int (*stub_attributes_t)(void *, const void *);
static _Atomic(stub_attributes_t) stub_real_attributes;

static int stub_function_attributes(void *attributes, const void *function) {
  union {
    char bytes[STUB_ATTRIBUTES_ROOM]; /* more than any library writes */
    long long align;
  } theirs;
  atomic_thread_fence(memory_order_acquire);
  stub_attributes_t real = atomic_load(&stub_real_attributes);
  if (!attributes) return real(NULL, function);
  memset(&theirs, 0, sizeof theirs);
  int result = real(&theirs, function);
  memcpy(attributes, theirs.bytes, STUB_ATTRIBUTES);
  return result;
}

static stub_function stub_adapt_function_attributes(void *handle, stub_function real) {
  if ((stub_generation(handle) > 11) == (STUB_HEADERS != 11)) return real;
  atomic_store(&stub_real_attributes, (stub_attributes_t)real);
  return (stub_function)stub_function_attributes;
}
#endif

#if STUB_HAS_properties || STUB_HAS_properties_v2
/* cudaDeviceProp has three layouts: of CUDA 11 (728 bytes), of 12 (1032 bytes: the former, longer), of 13 (1008 bytes:
 * eight fields gone). Programs compiled with the headers of 12 call cudaGetDeviceProperties_v2; those of 11 and of 13
 * both call cudaGetDeviceProperties, so what that name means is fixed when the stub is built (13, or 11 by --headers
 * 11). */

enum { STUB_PROP_11 = 728, STUB_PROP_12 = 1032, STUB_PROP_13 = 1008, STUB_PROP_ROOM = 8192 };

/* offset in 12, offset in 13, bytes: from offsetof on the headers of 12.9 and 13.0 */
static const unsigned short stub_prop_pieces[][3] = {
    {0, 0, 348},     {352, 352, 32}, {388, 384, 4},  {396, 388, 8},  {408, 396, 8},
    {420, 404, 188}, {612, 592, 28}, {640, 624, 28}, {672, 652, 20}, {696, 672, 84},
};

/* offset in 12 and cudaDeviceAttr of the fields that 13 no longer has; cooperativeMultiDeviceLaunch stays 0 */
static const unsigned short stub_prop_gone[][2] = {
    {348, 13}, {384, 15}, {392, 17}, {404, 20}, {416, 69}, {608, 36}, {668, 87},
};

union stub_prop {
  char bytes[STUB_PROP_ROOM]; /* more than any library writes */
  long long align;
};

typedef int (*stub_prop_t)(void *, int);
typedef int (*stub_prop_attribute_t)(int *, int, int);
static _Atomic(stub_prop_t) stub_prop_real;
static _Atomic(stub_prop_attribute_t) stub_prop_attribute;
static atomic_int stub_prop_generation;

/* The properties in the layout of 12, whatever the library's is. */
static int stub_prop_as_12(union stub_prop *out, int device) {
  union stub_prop theirs;
  atomic_thread_fence(memory_order_acquire);
  memset(out, 0, sizeof *out);
  stub_prop_t real = atomic_load(&stub_prop_real);
  if (atomic_load(&stub_prop_generation) < 13) return real(out, device);
  memset(&theirs, 0, sizeof theirs);
  int result = real(&theirs, device);
  if (result) return result;
  for (size_t i = 0; i < sizeof stub_prop_pieces / sizeof *stub_prop_pieces; i++)
    memcpy(out->bytes + stub_prop_pieces[i][0], theirs.bytes + stub_prop_pieces[i][1], stub_prop_pieces[i][2]);
  stub_prop_attribute_t attribute = atomic_load(&stub_prop_attribute);
  for (size_t i = 0; attribute && i < sizeof stub_prop_gone / sizeof *stub_prop_gone; i++) {
    int value = 0;
    if (!attribute(&value, stub_prop_gone[i][1], device))
      memcpy(out->bytes + stub_prop_gone[i][0], &value, sizeof value);
  }
  return 0;
}

static void stub_prop_prepare(void *handle, stub_function real) {
  stub_function newer = (stub_function)(uintptr_t)dlsym(handle, "cudaGetDeviceProperties_v2");
  void *attribute = dlsym(handle, "cudaDeviceGetAttribute");
  atomic_store(&stub_prop_generation, stub_generation(handle));
  atomic_store(&stub_prop_real, (stub_prop_t)(newer ? newer : real));
  atomic_store(&stub_prop_attribute, (stub_prop_attribute_t)(uintptr_t)attribute);
}
#endif

#if STUB_HAS_properties_v2
static int stub_properties_v2(void *prop, int device) {
  union stub_prop made;
  int result = stub_prop_as_12(&made, device);
  if (prop) memcpy(prop, made.bytes, STUB_PROP_12);
  return result;
}

static stub_function stub_adapt_properties_v2(void *handle, stub_function real) {
  if (stub_generation(handle) == 12) return real;
  stub_prop_prepare(handle, real);
  return (stub_function)stub_properties_v2;
}
#endif

#if STUB_HAS_properties
static int stub_properties(void *prop, int device) {
  union stub_prop made;
  int result = stub_prop_as_12(&made, device);
  if (!prop) return result;
#if STUB_HEADERS == 11
  memcpy(prop, made.bytes, STUB_PROP_11);
#else
  memset(prop, 0, STUB_PROP_13);
  for (size_t i = 0; i < sizeof stub_prop_pieces / sizeof *stub_prop_pieces; i++)
    memcpy((char *)prop + stub_prop_pieces[i][1], made.bytes + stub_prop_pieces[i][0], stub_prop_pieces[i][2]);
#endif
  return result;
}

static stub_function stub_adapt_properties(void *handle, stub_function real) {
  int generation = stub_generation(handle);
  if (STUB_HEADERS == 11 ? generation < 13 : generation >= 13) return real;
  stub_prop_prepare(handle, real);
  return (stub_function)stub_properties;
}
#endif

#endif
