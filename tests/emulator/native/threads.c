/* Many threads on the emulated driver at once, to be run plainly and with the address and the thread sanitizer.
 *
 *     threads all ROUNDS MAIN.ptx
 *     threads one-state ROUNDS
 *
 * Every part begins in all threads at the same moment. Exit code 1 at the first answer that is not among the expected
 * ones. */
#include <cuda.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What the emulated driver exports besides the API (emulator/control.py). */
uint64_t cudalinkViolationCount(void);
void cudalinkSetViolationHook(void (*hook)(const char *event));
unsigned cudalinkInject(const char *function, unsigned nth, int code, unsigned delay);
int cudalinkFaultMet(unsigned number, int take_back);
int cudalinkLoseDevice(int code);
void cudalinkClearFaults(void);
uint64_t cudalinkEventCount(void);
int cudalinkEventRead(uint64_t number, char *out, size_t size);
unsigned cudalinkLiveStates(void);

static void check(int line, const char *what, int actual, int expected, int or_else) {
  if (actual == expected || actual == or_else) return;
  fprintf(stderr, "threads.c:%d: %s is %d, not %d\n", line, what, actual, expected);
  _exit(1); /* the other threads go on: nothing may be torn down under them */
}

#define EXPECT(code, expression) check(__LINE__, #expression, (int)(expression), (int)(code), (int)(code))
#define OK(expression) EXPECT(CUDA_SUCCESS, expression)
#define TRUE(expression) EXPECT(1, !!(expression))
/* Of a handle that another thread destroys at this moment. */
#define OK_OR(code, expression) check(__LINE__, #expression, (int)(expression), CUDA_SUCCESS, (int)(code))

enum { THREADS = 6, SIZE = 4096 };

static pthread_barrier_t barrier;
static char *text;
static size_t text_size;
static CUcontext primary;
static _Thread_local int self;

static const char ptx[] =
    ".version 8.0\n.target sm_70\n.address_size 64\n.visible .global .align 4 .u32 answer = 42;\n"
    ".visible .entry small(.param .u64 out) { .reg .b64 %rd<2>; ld.param.u64 %rd1, [out]; st.global.u64 [%rd1], %rd1; ret; }\n"
    ".visible .entry other(.param .u64 out) { .reg .b64 %rd<2>; ld.param.u64 %rd1, [out]; st.global.u64 [%rd1], %rd1; ret; }\n";

/* All threads together; one of them prepares what they share before. */
static int together(void) { return pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD; }

static void devices(void) {
  int major, minor, first = 0;
  OK(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0));
  OK(cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0));
  const char *wanted = getenv("CUDALINK_EMULATOR_ARCH");
  sscanf(wanted ? wanted : "sm_90", "sm_%d", &first);
  EXPECT(first, major * 10 + minor);
}

static void contexts(void) {
  CUcontext own, current;
  size_t limit;
  unsigned flags, version;
  unsigned long long id;
  OK(cuCtxGetLimit(&limit, CU_LIMIT_STACK_SIZE));
  OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1024 + (size_t)self));
  OK(cuCtxGetFlags(&flags));
  OK(cuCtxSetFlags(CU_CTX_SCHED_SPIN));
  OK(cuCtxGetApiVersion(primary, &version));
  OK(cuCtxGetId(primary, &id));
  OK(cuDevicePrimaryCtxRetain(&current, 0));
  TRUE(current == primary);
  OK(cuDevicePrimaryCtxRelease(0));
  OK(cuCtxCreate(&own, NULL, 0, 1));
  cuCtxEnablePeerAccess(primary, 0);
  OK(cuCtxSetCurrent(primary));
  cuCtxEnablePeerAccess(own, 0);
  cuCtxDisablePeerAccess(own);
  CUdeviceptr lost;
  OK(cuCtxPushCurrent(own));
  OK(cuMemAlloc(&lost, SIZE)); /* dies with its context */
  OK(cuCtxDestroy(own));
}

/* One context that a thread destroys while it is current in all. */
static void dying_context(void) {
  static CUcontext shared;
  size_t limit;
  CUdeviceptr block;
  if (together()) {
    OK(cuCtxCreate(&shared, NULL, 0, 0));
    OK(cuCtxPopCurrent(NULL));
  }
  together();
  OK(cuCtxPushCurrent(shared));
  if (together()) OK(cuCtxDestroy(shared));
  else {
    OK_OR(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuCtxGetLimit(&limit, CU_LIMIT_STACK_SIZE));
    OK_OR(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuMemAlloc(&block, SIZE));
  }
  together();
  OK(cuCtxSetCurrent(primary));
}

static void memory(void) {
  CUdeviceptr first, second;
  char host[SIZE] = {1};
  size_t left, total;
  int type;
  OK(cuMemAlloc(&first, SIZE));
  OK(cuMemAlloc(&second, SIZE));
  OK(cuMemcpyHtoD(first, host, SIZE));
  OK(cuMemcpyDtoD(second, first, SIZE));
  OK(cuMemsetD8(first, 7, SIZE));
  OK(cuMemcpyDtoH(host, second, SIZE));
  TRUE(host[0] == 1);
  OK(cuMemGetInfo(&left, &total));
  OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, first));
  OK(cuMemFree(first));
  OK(cuMemFree(second));
}

/* Memory that one thread frees, and memory that dies with its context, while the others write there. */
static void dying_memory(void) {
  enum { PART = 1 << 18 };
  static CUcontext owner;
  static CUdeviceptr freed, lost;
  if (together()) {
    OK(cuMemAlloc(&freed, PART * THREADS));
    OK(cuCtxCreate(&owner, NULL, 0, 0));
    OK(cuMemAlloc(&lost, PART * THREADS));
    OK(cuCtxPopCurrent(NULL));
  }
  int last = together();
  size_t own = (size_t)self * PART;
  for (int again = 0; again < 20; again++) {
    if (last && again == 5) OK(cuMemFree(freed));
    if (last && again == 10) OK(cuCtxDestroy(owner));
    OK_OR(CUDA_ERROR_INVALID_VALUE, cuMemsetD8(freed + own, 1, PART));
    OK_OR(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoD(lost + own, freed + own, PART));
    OK_OR(CUDA_ERROR_INVALID_VALUE, cuMemsetD2D8(lost + own, 512, 1, 100, PART / 512));
  }
  together();
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpy(freed, lost, 1));
}

/* A stream and an event that all use, and that some thread destroys. */
static void streams(void) {
  static CUstream stream;
  static CUevent event;
  unsigned flags;
  int priority;
  float milliseconds;
  CUcontext context;
  if (together()) {
    OK(cuStreamCreate(&stream, 0));
    OK(cuEventCreate(&event, 0));
  }
  together();
  OK(cuEventRecord(event, stream));
  OK(cuStreamWaitEvent(stream, event, 0));
  OK(cuEventElapsedTime(&milliseconds, event, event));
  OK(cuStreamGetPriority(stream, &priority));
  int last = together();
  if (last) {
    OK(cuStreamDestroy(stream));
    OK(cuEventDestroy(event));
  }
  OK_OR(CUDA_ERROR_INVALID_HANDLE, cuStreamGetFlags(stream, &flags));
  OK_OR(CUDA_ERROR_INVALID_HANDLE, cuStreamGetCtx(stream, &context));
  OK_OR(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuEventRecord(event, NULL));
  OK_OR(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&milliseconds, event, event));
}

/* One module whose functions and variables all ask for, and that some thread unloads. */
static void modules(void) {
  static CUmodule module;
  static CUlibrary library;
  CUlibrary its_library;
  CUmodule own;
  CUfunction function, same;
  CUkernel kernel;
  CUdeviceptr address;
  size_t bytes;
  const char *name;
  int value;
  if (together()) {
    OK(cuModuleLoadData(&module, ptx));
    OK(cuLibraryLoadData(&library, ptx, NULL, NULL, 0, NULL, NULL, 0));
  }
  together();
  OK(cuModuleGetFunction(&function, module, "small"));
  OK(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, self));
  OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, function));
  OK(cuModuleGetGlobal(&address, &bytes, module, "answer"));
  OK(cuMemcpyDtoH(&value, address, sizeof value));
  TRUE(value == 42);
  OK(cuLibraryGetKernel(&kernel, library, "other"));
  OK(cuModuleLoadData(&own, ptx));
  OK(cuModuleUnload(own));
  if (together()) {
    OK(cuModuleUnload(module));
    OK(cuLibraryUnload(library));
  }
  OK_OR(CUDA_ERROR_INVALID_HANDLE, cuModuleGetFunction(&same, module, "other"));
  OK_OR(CUDA_ERROR_INVALID_HANDLE, cuModuleGetGlobal(&address, &bytes, module, "answer"));
  OK_OR(CUDA_ERROR_INVALID_HANDLE, cuLibraryGetGlobal(&address, &bytes, library, "answer"));
  OK_OR(CUDA_ERROR_INVALID_HANDLE, cuLibraryGetModule(&own, library));
  OK_OR(CUDA_ERROR_INVALID_HANDLE, cuFuncGetName(&name, function));
  OK_OR(CUDA_ERROR_INVALID_HANDLE, cuFuncGetModule(&own, function));
  OK_OR(CUDA_ERROR_INVALID_HANDLE, cuKernelGetLibrary(&its_library, kernel));
  void *parameters[] = {&address};
  int answer = (int)cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL);
  TRUE(answer == CUDA_ERROR_NOT_SUPPORTED || answer == CUDA_ERROR_INVALID_HANDLE);
}

static void faults(void) {
  unsigned flags;
  char event[1024];
  unsigned number = cudalinkInject("cuCtxGetFlags", 1, 719, 0);
  cuCtxGetFlags(&flags);
  cudalinkFaultMet(number, 1);
  cudalinkLoseDevice(self % 2 ? 719 : 0);
  cuCtxGetFlags(&flags);
  cudalinkClearFaults();
  cudalinkEventRead(cudalinkEventCount() - 1, event, sizeof event);
  together();
  for (int again = 0; again < 200; again++) { /* a call without an event takes no lock that would keep the two apart */
    int version;
    if (self % 2) cudalinkClearFaults();
    else OK(cuDriverGetVersion(&version));
  }
  cudalinkClearFaults();
  together();
  OK(cuCtxGetFlags(&flags));
}

/* A link of each thread's own, whose options stay as they are. */
static void links(void) {
  char log[512];
  CUjit_option keys[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void *values[] = {log, (void *)sizeof log}, *image;
  size_t size;
  CUlinkState state;
  OK(cuLinkCreate(2, keys, values, &state));
  OK(cuLinkAddData(state, CU_JIT_INPUT_PTX, (void *)ptx, sizeof ptx, "small", 0, NULL, NULL));
  OK(cuLinkComplete(state, &image, &size));
  OK(cuLinkDestroy(state));
  OK(cuLinkCreate(2, keys, values, &state)); /* the PTX has an undefined symbol */
  OK(cuLinkAddData(state, CU_JIT_INPUT_PTX, text, text_size, "main", 0, NULL, NULL));
  TRUE(cuLinkComplete(state, &image, &size) != CUDA_SUCCESS);
  OK(cuLinkDestroy(state));
}

static atomic_ulong reported;
static void hook(const char *event) {
  TRUE(strstr(event, "\"violation\":") != NULL);
  atomic_fetch_add(&reported, 1);
}

/* Each thread changes its own option value. */
static void violations(void) {
  static uint64_t before;
  CUjit_option keys[] = {CU_JIT_LOG_VERBOSE};
  void *values[] = {NULL};
  CUlinkState state;
  if (together()) {
    before = cudalinkViolationCount();
    atomic_store(&reported, 0);
  }
  together();
  OK(cuLinkCreate(1, keys, values, &state));
  values[0] = (void *)(uintptr_t)7;
  OK(cuLinkDestroy(state));
  together();
  EXPECT(THREADS, cudalinkViolationCount() - before);
  EXPECT(THREADS, atomic_load(&reported));
  together();
}

/* One state that all threads use and destroy at once: one of them has it, and each other one is a violation. */
static void one_state(void) {
  static CUlinkState state;
  static atomic_int destroyed;
  static uint64_t before;
  CUjit_option keys[] = {CU_JIT_LOG_VERBOSE};
  static void *values[1];
  void *image;
  size_t size;
  if (together()) {
    OK(cuLinkCreate(1, keys, values, &state));
    atomic_store(&destroyed, 0);
    atomic_store(&reported, 0);
    before = cudalinkViolationCount();
  }
  together();
  if (self % 3 == 0) cuLinkAddData(state, CU_JIT_INPUT_PTX, (void *)"no", 3, "x", 0, NULL, NULL);
  if (self % 3 == 1) cuLinkComplete(state, &image, &size);
  CUresult answer = cuLinkDestroy(state);
  if (answer) EXPECT(CUDA_ERROR_INVALID_HANDLE, answer);
  else atomic_fetch_add(&destroyed, 1);
  together();
  EXPECT(1, atomic_load(&destroyed));
  EXPECT(0, cudalinkLiveStates());
  TRUE(cudalinkViolationCount() - before >= THREADS - 1);
  EXPECT(cudalinkViolationCount() - before, atomic_load(&reported));
  together();
}

static int rounds;

static void *use_all(void *unused) {
  static atomic_int numbers;
  (void)unused;
  self = atomic_fetch_add(&numbers, 1);
  together();
  devices(); /* the very first call that asks for the device */
  OK(cuCtxSetCurrent(primary));
  for (int round = 0; round < rounds; round++) {
    contexts();
    dying_context();
    memory();
    dying_memory();
    streams();
    modules();
    together();
    faults();
    violations();
    links();
  }
  return NULL;
}

static void *destroy_one_state(void *unused) {
  static atomic_int numbers;
  (void)unused;
  self = atomic_fetch_add(&numbers, 1);
  OK(cuCtxSetCurrent(primary));
  for (int round = 0; round < rounds; round++) one_state();
  return NULL;
}

int main(int count, char **arguments) {
  if (count < 3) return 2;
  int all = !strcmp(arguments[1], "all");
  rounds = atoi(arguments[2]);
  FILE *file = all ? fopen(arguments[3], "rb") : NULL;
  if (all && !file) return 2;
  text = calloc(1, 1 << 20);
  text_size = file ? fread(text, 1, (1 << 20) - 1, file) + 1 : 0;
  if (file) fclose(file);
  alarm(300); /* threads that wait for each other must not wait for ever */
  OK(cuInit(0));
  OK(cuDevicePrimaryCtxRetain(&primary, 0));
  cudalinkSetViolationHook(hook);
  pthread_barrier_init(&barrier, NULL, THREADS);
  pthread_t threads[THREADS];
  for (int at = 0; at < THREADS; at++)
    TRUE(!pthread_create(&threads[at], NULL, all ? use_all : destroy_one_state, NULL));
  for (int at = 0; at < THREADS; at++) TRUE(!pthread_join(threads[at], NULL));
  free(text);
  puts("done");
  return 0;
}
