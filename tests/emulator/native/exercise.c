/* A driver program that goes through everything the emulated driver implements, to be run plainly, under valgrind and
 * with sanitizers. Built against the cuda.h of a toolkit, so that the compiler compares our functions with its own.
 *
 *     exercise FOLDER [links]
 *
 * FOLDER is tests/data/artifacts. Exit code 1 at the first answer that is not the expected one. */
#include <cuda.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "expect.h"

/* What tests ask of the emulated driver. */
void cudalinkKeepDriver(void);
uint64_t cudalinkRefusalCount(void);
void cudalinkUnsupported(const char *function, const char *note);
uint64_t cudalinkEventCount(void);
int cudalinkEventRead(uint64_t number, char *out, size_t size);
size_t cudalinkCreator(uint64_t id, char *buffer, size_t size);
uint64_t cudalinkStateCount(void);
unsigned cudalinkLiveStates(void);
uint64_t cudalinkViolationCount(void);
int cudalinkSweep(unsigned number, int code, int stays);
unsigned cudalinkSweepEnd(void);
size_t cudalinkSweptStack(unsigned number, char *out, size_t size);

static const char *folder;

/* One sample in memory of exactly its size, so that a checker sees a read behind its end; text has its NUL. */
static void *sample(const char *name, size_t *size) {
  char path[1024];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *file = fopen(path, "rb");
  if (!file) {
    perror(path);
    exit(1);
  }
  fseek(file, 0, SEEK_END);
  *size = (size_t)ftell(file);
  rewind(file);
  int text = strstr(name, ".ptx") != NULL;
  char *data = malloc(*size + (size_t)text);
  TRUE(fread(data, 1, *size, file) == *size);
  fclose(file);
  if (text) data[(*size)++] = 0;
  return data;
}

static void devices(void) {
  int count, value, minor;
  char text[128];
  size_t bytes;
  CUdevice device;
  CUuuid uuid;
  const char *name;
  OK(cuDeviceGetCount(&count));
  TRUE(count == 2);
  EXPECT(CUDA_ERROR_INVALID_DEVICE, cuDeviceGet(&device, 2));
  OK(cuDeviceGet(&device, 1));
  OK(cuDeviceGetName(text, sizeof text, device));
  OK(cuDeviceGetName(text, 2, device));
  OK(cuDeviceTotalMem(&bytes, device));
  OK(cuDeviceGetUuid(&uuid, device));
  OK(cuDeviceGetPCIBusId(text, sizeof text, device));
  OK(cuDeviceGetByPCIBusId(&device, text));
  OK(cuDeviceComputeCapability(&value, &minor, device));
  for (int attribute = 0; attribute < 200; attribute++)
    cuDeviceGetAttribute(&value, (CUdevice_attribute)attribute, device);
  CUdevprop properties;
  OK(cuDeviceGetProperties(&properties, device));
  for (int code = -2; code < 1002; code++) {
    if (!cuGetErrorName((CUresult)code, &name)) TRUE(strlen(name) > 0);
    if (!cuGetErrorString((CUresult)code, &name)) TRUE(strlen(name) > 0);
  }
  CUdriverProcAddressQueryResult status;
  void *address;
  OK(cuGetProcAddress("cuMemAlloc", &address, 3020, 0, &status));
  TRUE(address == (void *)cuMemAlloc);
  OK(cuGetProcAddress("cuNothing", &address, 12000, 0, &status));
  TRUE(!address && status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
}

static void *contexts(void *unused) {
  CUcontext primary, own, current;
  CUdevice device;
  size_t limit;
  unsigned flags;
  int active;
  OK(cuDevicePrimaryCtxRetain(&primary, 0));
  OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
  TRUE(active);
  OK(cuCtxCreate(&own, NULL, 0, 1));
  for (int depth = 0; depth < 40; depth++) OK(cuCtxPushCurrent(depth % 2 ? own : primary));
  OK(cuCtxGetDevice(&device));
  OK(cuCtxGetLimit(&limit, CU_LIMIT_STACK_SIZE));
  OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, limit + 16));
  for (int depth = 0; depth < 40; depth++) OK(cuCtxPopCurrent(&current));
  CUdeviceptr lost;
  OK(cuMemAlloc(&lost, 100)); /* dies with its context */
  OK(cuMemAlloc(&lost, 1 << 20));
  OK(cuCtxDestroy(own));
  EXPECT(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuCtxDestroy(own));
  EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuCtxSetCurrent((CUcontext)(uintptr_t)0x1234));
  OK(cuCtxSetCurrent(primary));
  OK(cuCtxSynchronize());
  OK(cuDevicePrimaryCtxRelease(0));
  return unused;
}

static void count_call(void *counter) { ++*(int *)counter; }

static void streams(void) {
  CUstream stream;
  CUevent start, end;
  float milliseconds;
  int calls = 0;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(cuEventCreate(&start, 0));
  OK(cuEventCreate(&end, 0));
  OK(cuEventRecord(start, stream));
  OK(cuEventRecord(end, NULL));
  OK(cuEventElapsedTime(&milliseconds, start, end));
  OK(cuStreamWaitEvent(stream, end, 0));
  OK(cuLaunchHostFunc(stream, count_call, &calls));
  OK(cuStreamSynchronize(stream));
  TRUE(calls == 1);
  OK(cuStreamDestroy(stream));
  EXPECT(CUDA_ERROR_INVALID_HANDLE, cuStreamDestroy(stream));
  EXPECT(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(start, stream));
  OK(cuEventDestroy(start));
  OK(cuEventDestroy(end));
  EXPECT(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuEventQuery(end));
  EXPECT(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&milliseconds, start, end));
}

static void memory(void) {
  enum { SIZE = 4096 };
  CUdeviceptr first, second, large;
  char host[SIZE];
  void *pinned;
  OK(cuMemAlloc(&first, SIZE));
  OK(cuMemAlloc(&second, SIZE));
  OK(cuMemAlloc(&large, (size_t)8 << 30));
  OK(cuMemsetD8(large + ((size_t)8 << 30) - 1, 1, 1));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemsetD8(large + ((size_t)8 << 30) - 1, 1, 2));
  OK(cuMemFree(large));
  OK(cuMemsetD32(first, 0x01020304, SIZE / 4));
  OK(cuMemsetD2D16(first, 64, 7, 10, SIZE / 64));
  OK(cuMemcpyDtoD(second, first, SIZE));
  OK(cuMemcpyDtoH(host, second, SIZE));
  TRUE(host[0] == 7 && host[20] == 4);
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH(host, second + 1, SIZE));
  CUDA_MEMCPY2D flat = {
      .srcMemoryType = CU_MEMORYTYPE_DEVICE,
      .srcDevice = first,
      .srcPitch = 64,
      .dstMemoryType = CU_MEMORYTYPE_HOST,
      .dstHost = host,
      .dstPitch = 100,
      .dstXInBytes = 36,
      .WidthInBytes = 64,
      .Height = 40,
  };
  OK(cuMemcpy2D(&flat));
  flat.Height = SIZE / 64 + 1;
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D(&flat));
  CUDA_MEMCPY3D box = {
      .srcMemoryType = CU_MEMORYTYPE_DEVICE,
      .srcDevice = first,
      .srcPitch = 16,
      .srcHeight = 16,
      .dstMemoryType = CU_MEMORYTYPE_DEVICE,
      .dstDevice = second,
      .dstPitch = 16,
      .dstHeight = 16,
      .WidthInBytes = 16,
      .Height = 16,
      .Depth = 16,
  };
  OK(cuMemcpy3D(&box));
  box.Depth = (size_t)-1;
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpy3D(&box));
  unsigned type;
  OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, first + 1));
  OK(cuMemFree(first));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree(first));
  OK(cuMemFree(second));
  OK(cuMemAllocHost(&pinned, SIZE));
  memset(pinned, 1, SIZE);
  OK(cuMemFreeHost(pinned));
  OK(cuMemHostRegister(host, SIZE, 0));
  OK(cuMemHostUnregister(host));
  /* many at once, freed in another order */
  CUdeviceptr many[200];
  for (int at = 0; at < 200; at++) OK(cuMemAlloc(&many[at], (size_t)at * 900 + 1));
  for (int at = 0; at < 200; at++) OK(cuMemFree(many[(at * 77) % 200]));
}

static const char ptx[] =
    ".version 8.0\n.target sm_70\n.address_size 64\n"
    ".visible .global .align 4 .u32 answer = 42;\n.visible .global .align 4 .b8 zeros[64];\n"
    ".visible .entry small(.param .u64 out) { .reg .b64 %rd<2>; ld.param.u64 %rd1, [out]; st.global.u64 [%rd1], %rd1; ret; }\n";

static void modules(void) {
  CUmodule module;
  CUfunction function;
  CUdeviceptr address;
  CUlibrary library;
  CUkernel kernel;
  size_t size, bytes, offset;
  const char *name;
  int value;
  unsigned number, count;
  void *cubin = sample("13.0/linked.cubin", &size);
  OK(cuModuleLoadData(&module, cubin));
  free(cubin); /* nothing refers to it now */
  OK(cuModuleGetFunction(&function, module, "apply_transform"));
  EXPECT(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&function, module, "apply_transforms"));
  for (int attribute = -1; attribute < 20; attribute++)
    cuFuncGetAttribute(&value, (CUfunction_attribute)attribute, function);
  OK(cuFuncGetName(&name, function));
  OK(cuFuncGetParamInfo(function, 2, &offset, &bytes));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuFuncGetParamInfo(function, 3, &offset, &bytes));
  unsigned long long zeros = 0;
  void *parameters[] = {&zeros, &zeros, &zeros};
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
  EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
  OK(cuModuleUnload(module));
  EXPECT(CUDA_ERROR_INVALID_HANDLE, cuFuncGetName(&name, function));
  EXPECT(CUDA_ERROR_INVALID_HANDLE, cuModuleUnload(module));
  char *text = strdup(ptx);
  OK(cuModuleLoadData(&module, text));
  free(text);
  OK(cuModuleGetGlobal(&address, &bytes, module, "answer"));
  OK(cuMemcpyDtoH(&number, address, bytes));
  TRUE(number == 42);
  OK(cuModuleUnload(module));
  OK(cuLibraryLoadData(&library, ptx, NULL, NULL, 0, NULL, NULL, 0));
  OK(cuLibraryGetKernelCount(&count, library));
  TRUE(count == 1);
  OK(cuLibraryGetKernel(&kernel, library, "small"));
  OK(cuLibraryGetModule(&module, library));
  OK(cuModuleGetFunction(&function, module, "small"));
  OK(cuKernelGetFunction(&function, kernel));
  OK(cuLibraryGetGlobal(&address, &bytes, library, "zeros"));
  OK(cuLibraryUnload(library));
  EXPECT(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData(&module, "neither PTX nor a cubin"));
}

/* One link with logs; the memory of the options lives until destroy, as the contract wants it. */
static void link(CUresult add, CUresult complete, const char *const *names, const CUjitInputType *types, int inputs) {
  char error[512], info[512];
  CUjit_option keys[] = {CU_JIT_WALL_TIME,
                         CU_JIT_INFO_LOG_BUFFER,
                         CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
                         CU_JIT_ERROR_LOG_BUFFER,
                         CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
                         CU_JIT_LOG_VERBOSE};
  void *values[] = {NULL, info, (void *)sizeof info, error, (void *)sizeof error, (void *)1};
  CUlinkState state;
  OK(cuLinkCreate(6, keys, values, &state));
  for (int at = 0; at < inputs; at++) {
    size_t size;
    void *data = sample(names[at], &size);
    EXPECT(at == inputs - 1 ? add : CUDA_SUCCESS,
           cuLinkAddData(state, types[at], data, size, names[at], 0, NULL, NULL));
    free(data); /* no reference is kept */
  }
  void *image;
  size_t size;
  EXPECT(complete, cuLinkComplete(state, &image, &size));
  if (!complete) {
    CUmodule module;
    void *copy = malloc(size);
    memcpy(copy, image, size);
    OK(cuModuleLoadData(&module, copy));
    free(copy);
    OK(cuModuleUnload(module));
  }
  OK(cuLinkDestroy(state));
}

static void links(void) {
  const CUjitInputType all_ptx[] = {CU_JIT_INPUT_PTX, CU_JIT_INPUT_PTX},
                       cubins[] = {CU_JIT_INPUT_CUBIN, CU_JIT_INPUT_CUBIN};
  const CUjitInputType fat[] = {CU_JIT_INPUT_PTX, CU_JIT_INPUT_FATBINARY},
                       object[] = {CU_JIT_INPUT_PTX, CU_JIT_INPUT_OBJECT};
  const CUjitInputType archive[] = {CU_JIT_INPUT_PTX, CU_JIT_INPUT_LIBRARY}, lto[] = {CU_JIT_INPUT_NVVM};
  link(0, 0, (const char *[]){"13.0/main.ptx", "13.0/user.ptx"}, all_ptx, 2);
  link(0, 0, (const char *[]){"13.0/main.cubin", "13.0/user.cubin"}, cubins, 2);
  link(0, 0, (const char *[]){"13.0/main.ptx", "nvcc/user.fatbin"}, fat, 2);
  link(0, 0, (const char *[]){"13.0/main.ptx", "nvcc/user.o"}, object, 2);
  link(0, 0, (const char *[]){"13.0/main.ptx", "nvcc/user.a"}, archive, 2);
  link(CUDA_ERROR_JIT_COMPILER_NOT_FOUND, CUDA_ERROR_JIT_COMPILER_NOT_FOUND, (const char *[]){"13.0/main.ltoir"}, lto,
       1);
  link(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, 0, (const char *[]){"13.2/main.ptx"}, all_ptx, 1);
  link(CUDA_ERROR_NO_BINARY_FOR_GPU, CUDA_ERROR_NO_BINARY_FOR_GPU, (const char *[]){"13.2/main.cubin"}, cubins, 1);
  link(CUDA_ERROR_INVALID_SOURCE, CUDA_ERROR_INVALID_SOURCE, (const char *[]){"13.0/user.ptx", "13.0/user.ptx"},
       all_ptx, 2);
  CUlinkState state;
  CUjit_option unknown = (CUjit_option)999;
  void *value = NULL;
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuLinkCreate(1, &unknown, &value, &state));
  EXPECT(CUDA_ERROR_INVALID_HANDLE, cuLinkDestroy(NULL));
  OK(cuLinkCreate(0, NULL, NULL, &state));
  EXPECT(CUDA_ERROR_FILE_NOT_FOUND, cuLinkAddFile(state, CU_JIT_INPUT_PTX, "/no/such/file", 0, NULL, NULL));
  OK(cuLinkDestroy(state));
}

/* Images cut at every step of their length, and with bytes changed: refused or loaded, never more. */
static void damaged(const char *name) {
  size_t size;
  unsigned char *whole = sample(name, &size);
  unsigned random = 12345;
  for (int round = 0; round < 60; round++) {
    size_t cut = round < 30 ? size * (size_t)round / 30 : size;
    unsigned char *copy = malloc(cut + 1);
    memcpy(copy, whole, cut);
    copy[cut] = 0;
    for (int change = 0; round >= 30 && change < 1 + round % 4; change++) {
      random = random * 1664525u + 1013904223u;
      /* most often in a header, where the numbers are that are followed */
      size_t range = round % 3 ? 64 : size, at = (random >> 8) % (range < size ? range : size);
      copy[at] = (unsigned char)(random >> 24);
    }
    CUmodule module;
    CUlibrary library;
    if (!cuModuleLoadData(&module, copy)) {
      CUfunction function;
      CUdeviceptr address;
      size_t bytes;
      int value;
      void *handles[16];
      unsigned count = 0;
      OK(cuModuleGetFunctionCount(&count, module));
      OK(cuModuleEnumerateFunctions((CUfunction *)handles, count < 16 ? count : 16, module));
      if (!cuModuleGetFunction(&function, module, "apply_transform")) cuFuncGetAttribute(&value, 0, function);
      cuModuleGetGlobal(&address, &bytes, module, "answer");
      OK(cuModuleUnload(module));
    }
    /* what a fatbin offers and is no cubin is refused at once; the rest when it is used */
    CUresult loaded = cuLibraryLoadData(&library, copy, NULL, NULL, 0, NULL, NULL, 0);
    if (loaded) TRUE(loaded == CUDA_ERROR_INVALID_IMAGE);
    else OK(cuLibraryUnload(library));
    free(copy);
  }
  free(whole);
}

/* -- what the driver tells of itself -- */

/* Whether the last event has a text in it. */
static int last_event_has(const char *wanted) {
  char text[8192] = "";
  TRUE(cudalinkEventRead(cudalinkEventCount() - 1, text, sizeof text) > 0);
  if (!strstr(text, wanted)) fprintf(stderr, "%s lacks %s\n", text, wanted);
  return strstr(text, wanted) != NULL;
}

static void events(void) {
  CUcontext context;
  char text[200];
  uint64_t before = cudalinkRefusalCount();
  OK(cuCtxGetCurrent(&context));
  cudalinkUnsupported("aFunction", "the \"words\" of a note\n\xe2\x82\xac \xe2\x82");
  EXPECT(1, cudalinkRefusalCount() - before);
  TRUE(last_event_has("\"call\":\"aFunction\""));
  TRUE(last_event_has("\"result\":801"));
  TRUE(last_event_has("the \\u0022words\\u0022 of a note\\u000a\xe2\x82\xac \\u00e2\\u0082\""));
  EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuCtxSetCurrent((CUcontext)(uintptr_t)0x1234));
  TRUE(last_event_has("\"call\":\"cuCtxSetCurrent\"") && last_event_has("\"result\":201"));
  EXPECT(-1, cudalinkEventRead(cudalinkEventCount(), text, sizeof text));
  EXPECT(3, cudalinkEventRead(cudalinkEventCount() - 1, text, 4));
  EXPECT(3, strlen(text));
}

/* Of links: who made them, as lines of frames, whose numbers lead into this program. */
static void creators(void) {
  CUlinkState state;
  char text[4096] = "";
  uint64_t first = cudalinkStateCount(), violations = cudalinkViolationCount();
  unsigned live = cudalinkLiveStates();
  for (int time = 0; time < 200; time++) {
    OK(cuLinkCreate(0, NULL, NULL, &state));
    EXPECT(live + 1, cudalinkLiveStates());
    uint64_t number = cudalinkStateCount();
    EXPECT(first + (uint64_t)time + 1, number);
    for (int dead = 0; dead < 2; dead++) {
      size_t needed = cudalinkCreator(number, text, sizeof text);
      TRUE(needed == strlen(text) + 1);
      const char *own = strstr(text, "nlibcuda.so.1+0x"), *here = strstr(text, " cuLinkCreate_v2\nnexercise+0x");
      TRUE(own && here && strtoul(own + 14, NULL, 16) < 1 << 26 && strtoul(here + 27, NULL, 16) < 1 << 26);
      EXPECT(needed, cudalinkCreator(number, text, 5));
      EXPECT(4, strlen(text));
      if (!dead) OK(cuLinkDestroy(state));
    }
    EXPECT(0, cudalinkCreator(number + 1, text, sizeof text));
  }
  EXPECT(0, cudalinkCreator(first + 1, text, sizeof text)); /* too long ago */
  EXPECT(live, cudalinkLiveStates());
  EXPECT(violations, cudalinkViolationCount());
}

/* What a sweep counts, and where its calls were made. */
static void sweeps(void) {
  char text[4096];
  TRUE(cudalinkSweep(0, CUDA_ERROR_UNKNOWN, 0));
  OK(cuCtxSynchronize());
  OK(cuCtxSynchronize());
  EXPECT(2, cudalinkSweepEnd());
  EXPECT(0, cudalinkSweptStack(0, text, sizeof text));
  EXPECT(0, cudalinkSweptStack(3, text, sizeof text));
  EXPECT(0, cudalinkSweptStack(1u << 30, text, sizeof text));
  TRUE(cudalinkSweep(2, CUDA_ERROR_UNKNOWN, 0));
  OK(cuCtxSynchronize());
  EXPECT(CUDA_ERROR_UNKNOWN, cuCtxSynchronize());
  OK(cuCtxSynchronize());
  EXPECT(3, cudalinkSweepEnd());
  OK(cuCtxSynchronize());
}

/* -- settings, one after the other -- */

static void settings(void) {
  CUstream stream;
  CUlaunchAttributeValue value, found;
  CUcontext context;
  CUdeviceptr memory;
  CUtexref reference;
  CUlogIterator place = 7;
  char text[1024];
  size_t size = sizeof text, offset;
  int widest;
  OK(cuCtxGetCurrent(&context));
  OK(cuCoredumpGetAttribute(CU_COREDUMP_FILE, text, &size));
  TRUE(!strncmp(text, "core.cuda.", 10));
  size = sizeof text;
  OK(cuCoredumpGetAttributeGlobal(CU_COREDUMP_PIPE, text, &size));
  TRUE(!strncmp(text, "corepipe.cuda.", 14));
  OK(cuLogsCurrent(&place, 0));
  EXPECT(0, place);
  OK(cuStreamCreate(&stream, 0));
  memset(&value, 0, sizeof value);
  value.memSyncDomain = CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE;
  OK(cuStreamSetAttribute(stream, CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN, &value));
  value.memSyncDomainMap.default_ = 2;
  value.memSyncDomainMap.remote = 3;
  OK(cuStreamSetAttribute(stream, CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP, &value));
  memset(&value, 0, sizeof value);
  value.syncPolicy = CU_SYNC_POLICY_YIELD;
  OK(cuStreamSetAttribute(stream, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
  OK(cuStreamGetAttribute(stream, CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN, &found));
  EXPECT(CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE, found.memSyncDomain);
  OK(cuStreamGetAttribute(stream, CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP, &found));
  TRUE(found.memSyncDomainMap.default_ == 2 && found.memSyncDomainMap.remote == 3);
  OK(cuStreamGetAttribute(stream, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &found));
  EXPECT(CU_SYNC_POLICY_YIELD, found.syncPolicy);
  OK(cuStreamDestroy(stream));
  OK(cuDeviceGetAttribute(&widest, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH, 0));
  OK(cuTexRefCreate(&reference));
  OK(cuTexRefSetFormat(reference, CU_AD_FORMAT_UNSIGNED_INT8, 1));
  OK(cuMemAlloc(&memory, (size_t)widest + 1));
  OK(cuTexRefSetAddress(&offset, reference, memory, (size_t)widest));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuTexRefSetAddress(&offset, reference, memory, (size_t)widest + 1));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuTexRefSetAddress(NULL, reference, memory + 1, 16));
  OK(cuTexRefSetAddress(&offset, reference, memory + 1, 16));
  EXPECT(1, offset);
  OK(cuTexRefDestroy(reference));
  OK(cuMemFree(memory));
}

/* -- shapes of textures, arrays and their tiles -- */

static void shapes(void) {
  CUDA_ARRAY3D_DESCRIPTOR layers = {.Width = 16, .Height = 8, .Depth = 4, .Format = CU_AD_FORMAT_FLOAT};
  CUDA_ARRAY3D_DESCRIPTOR sparse = {.Width = 512, .Height = 384, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
  CUDA_TEXTURE_DESC sampling = {0};
  CUDA_RESOURCE_VIEW_DESC view = {.format = CU_RES_VIEW_FORMAT_FLOAT_1X32, .width = 16, .height = 8, .depth = 4};
  CUDA_ARRAY_SPARSE_PROPERTIES tiles;
  CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                    .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
  CUmemGenericAllocationHandle memory;
  CUarray array;
  CUmipmappedArray levels;
  CUtexObject texture;
  CUdeviceptr linear;
  layers.NumChannels = 1;
  layers.Flags = CUDA_ARRAY3D_LAYERED;
  OK(cuArray3DCreate(&array, &layers));
  CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_ARRAY, .res.array.hArray = array};
  for (unsigned last = 0; last < 6; last++) {
    view.lastLayer = last;
    CUresult made = cuTexObjectCreate(&texture, &resource, &sampling, &view);
    EXPECT(last < 4 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE, made);
    if (!made) OK(cuTexObjectDestroy(texture));
  }
  view.firstLayer = 3;
  view.lastLayer = 2;
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuTexObjectCreate(&texture, &resource, &sampling, &view));
  OK(cuArrayDestroy(array));
  layers.Flags = 0;
  OK(cuMipmappedArrayCreate(&levels, &layers, 2));
  resource = (CUDA_RESOURCE_DESC){.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY, .res.mipmap.hMipmappedArray = levels};
  sampling.flags = CU_TRSF_NORMALIZED_COORDINATES;
  OK(cuTexObjectCreate(&texture, &resource, &sampling, NULL));
  OK(cuTexObjectDestroy(texture));
  OK(cuMipmappedArrayDestroy(levels));
  OK(cuMemAlloc(&linear, 4096));
  resource = (CUDA_RESOURCE_DESC){.resType = CU_RESOURCE_TYPE_LINEAR};
  resource.res.linear.devPtr = linear;
  resource.res.linear.format = CU_AD_FORMAT_FLOAT;
  resource.res.linear.numChannels = 1;
  resource.res.linear.sizeInBytes = 4096;
  sampling.flags = 0;
  OK(cuTexObjectCreate(&texture, &resource, &sampling, NULL));
  OK(cuTexObjectDestroy(texture));
  OK(cuMemFree(linear));
  sparse.Flags = CUDA_ARRAY3D_SPARSE;
  OK(cuArray3DCreate(&array, &sparse));
  OK(cuArrayGetSparseProperties(&tiles, array));
  properties.allocFlags.usage = CU_MEM_CREATE_USAGE_TILE_POOL;
  OK(cuMemCreate(&memory, 2 << 20, &properties, 0));
  CUarrayMapInfo map = {.resourceType = CU_RESOURCE_TYPE_ARRAY, .resource.array = array};
  map.subresourceType = CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL;
  map.memOperationType = CU_MEM_OPERATION_TYPE_MAP;
  map.memHandleType = CU_MEM_HANDLE_TYPE_GENERIC;
  map.memHandle.memHandle = memory;
  map.deviceBitMask = 1;
  /* begin and extent in two dimensions: whole tiles inside the array, and no others */
  const unsigned wide = tiles.tileExtent.width, high = tiles.tileExtent.height;
  const struct {
    unsigned x, width, y, height;
    bool fits;
  } rows[] = {{0, wide, 0, high, true},
              {wide, wide, high, high, true},
              {0, 512, 0, 384, true},
              {1, wide, 0, high, false},
              {0, wide, 1, high, false},
              {0, wide + 1, 0, high, false},
              {0, wide, 0, high + 1, false},
              {0, 0, 0, high, false},
              {0, wide, 0, 0, false},
              {512, wide, 0, high, false},
              {0, wide, 384, high, false},
              {512 - wide, 2 * wide, 0, high, false},
              {0, wide, 384 - high, 2 * high, false}};
  for (size_t at = 0; at < sizeof rows / sizeof *rows; at++) {
    map.subresource.sparseLevel.offsetX = rows[at].x;
    map.subresource.sparseLevel.extentWidth = rows[at].width;
    map.subresource.sparseLevel.offsetY = rows[at].y;
    map.subresource.sparseLevel.extentHeight = rows[at].height;
    map.subresource.sparseLevel.extentDepth = 1;
    EXPECT(10 * at + !rows[at].fits, 10 * at + (cuMemMapArrayAsync(&map, 1, NULL) != CUDA_SUCCESS));
  }
  OK(cuMemRelease(memory));
  OK(cuArrayDestroy(array));
}

/* -- code in contexts, and what is set of it -- */

static void functions(void) {
  CUcontext context, green_context;
  CUgreenCtx green;
  CUdevResource resource;
  CUdevResourceDesc shape;
  CUlibrary library;
  CUmodule module, same;
  CUfunction function;
  CUkernel kernel;
  CUgraph graph, copy;
  CUgraphNode node, found;
  CUDA_KERNEL_NODE_PARAMS parameters = {.gridDimX = 1, .gridDimY = 1, .gridDimZ = 1}, known;
  unsigned long long id, same_id, values[3] = {7, 8, 9};
  void *arguments[] = {&values[0], &values[1], &values[2]};
  size_t size, offset;
  int blocks;
  OK(cuCtxGetCurrent(&context));
  void *cubin = sample("13.0/linked.cubin", &size);
  OK(cuLibraryLoadData(&library, cubin, NULL, NULL, 0, NULL, NULL, 0));
  free(cubin);
  OK(cuLibraryGetKernel(&kernel, library, "apply_transform"));
  OK(cuLibraryGetModule(&module, library));
  OK(cuDeviceGetDevResource(0, &resource, CU_DEV_RESOURCE_TYPE_SM));
  OK(cuDevResourceGenerateDesc(&shape, &resource, 1));
  OK(cuGreenCtxCreate(&green, shape, 0, CU_GREEN_CTX_DEFAULT_STREAM));
  OK(cuCtxFromGreenCtx(&green_context, green));
  EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuGreenCtxGetId(NULL, &id)); /* the current one is none */
  OK(cuCtxSetCurrent(green_context));
  OK(cuLibraryGetModule(&same, library)); /* of the primary context, whose code a green one has */
  TRUE(same == module);
  OK(cuGreenCtxGetId(NULL, &id));
  OK(cuGreenCtxGetId(green, &same_id));
  TRUE(id == same_id);
  OK(cuCtxSetCurrent(context));
  OK(cuGreenCtxDestroy(green));
  EXPECT(0, cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, (CUfunction)kernel, 32, 100 << 10));
  EXPECT(0, blocks);
  OK(cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100 << 10, kernel, 0));
  OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, (CUfunction)kernel, 32, 100 << 10));
  EXPECT(2, blocks);
  OK(cuKernelGetFunction(&function, kernel));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuFuncSetBlockShape(function, 0, 1, 1));
  OK(cuFuncSetBlockShape(function, 32, 1, 1));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuFuncSetBlockShape(function, 1024, 2, 1));
  OK(cuFuncGetParamInfo(function, 2, &offset, &size));
  OK(cuParamSetSize(function, (unsigned)(offset + size)));
  EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuLaunch(function)); /* the shape is as before */
  parameters.func = function;
  parameters.blockDimX = parameters.blockDimY = parameters.blockDimZ = 1;
  parameters.kernelParams = arguments;
  OK(cuGraphCreate(&graph, 0));
  OK(cuGraphAddKernelNode(&node, graph, NULL, 0, &parameters));
  memset(values, 0, sizeof values); /* the node has a copy */
  OK(cuGraphClone(&copy, graph));
  OK(cuGraphNodeFindInClone(&found, node, copy));
  OK(cuGraphDestroy(graph));
  OK(cuGraphKernelNodeGetParams(found, &known));
  TRUE(known.func == function && known.kern == kernel);
  for (int at = 0; at < 3; at++) {
    EXPECT(7 + at, *(unsigned long long *)known.kernelParams[at]);
    TRUE((char *)known.kernelParams[at] - (char *)known.kernelParams[0] <= 16 * at); /* in its own memory */
  }
  OK(cuGraphDestroy(copy));
  CUstream stream;
  CUstreamCaptureStatus status;
  const CUgraphNode *last;
  const CUgraphEdgeData *edges;
  CUgraphEdgeData early = {.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC,
                           .type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC};
  OK(cuStreamCreate(&stream, 0));
  OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL));
  OK(cuStreamGetCaptureInfo(stream, &status, NULL, NULL, &last, NULL, &size));
  EXPECT(1, size);
  found = *last;
  OK(cuStreamUpdateCaptureDependencies(stream, &found, &early, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
  EXPECT(CUDA_ERROR_LOSSY_QUERY, cuStreamGetCaptureInfo(stream, &status, NULL, NULL, &last, NULL, &size));
  OK(cuStreamGetCaptureInfo(stream, &status, NULL, NULL, &last, &edges, &size));
  EXPECT(CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC, edges->from_port);
  OK(cuStreamEndCapture(stream, &graph));
  OK(cuGraphDestroy(graph));
  OK(cuStreamDestroy(stream));
  OK(cuLibraryUnload(library));
}

/* -- images at the end of a page, behind which nothing can be read -- */

static void at_end_of_page(const char *name) {
  size_t size, page = 4096;
  void *data = sample(name, &size);
  size_t pages = (size + page - 1) / page * page;
  char *room = mmap(NULL, pages + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  TRUE(room != MAP_FAILED && !mprotect(room + pages, page, PROT_NONE));
  memcpy(room + pages - size, data, size);
  CUmodule module;
  CUlibrary library;
  for (size_t cut = 0; cut < 2 * 4096 && cut < size; cut = cut ? 2 * cut : 1) { /* or moved, so that its end is cut */
    char *moved = room + pages - size + cut;
    memmove(moved, data, size - cut);
    CUresult loaded = cuModuleLoadData(&module, moved);
    if (!loaded) OK(cuModuleUnload(module));
    CUresult in_library = cuLibraryLoadData(&library, moved, NULL, NULL, 0, NULL, NULL, 0);
    if (!in_library) OK(cuLibraryUnload(library));
    if (!cut) {
      EXPECT(cuModuleLoadData(&module, data), loaded);
      if (!loaded) OK(cuModuleUnload(module));
      EXPECT(cuLibraryLoadData(&library, data, NULL, NULL, 0, NULL, NULL, 0), in_library);
      if (!in_library) OK(cuLibraryUnload(library));
    }
  }
  munmap(room, pages + page);
  free(data);
}

/* -- what an option changes in the code -- */

/* A kernel with more values at a time than the fewest registers hold. */
static char *wide_kernel(void) {
  enum { VALUES = 48 };
  static char text[VALUES * 120 + 1024];
  int length = sprintf(text,
                       ".version 8.0\n.target sm_70\n.address_size 64\n.visible .entry wide(.param .u64 p) {\n"
                       ".reg .b64 %%rd<2>; .reg .f32 %%f<%d>;\nld.param.u64 %%rd1, [p];\n",
                       VALUES + 1);
  for (int at = 1; at <= VALUES; at++)
    length += sprintf(text + length, "ld.global.f32 %%f%d, [%%rd1+%d];\n", at, 4 * at);
  for (int at = VALUES; at > 0; at--)
    length += sprintf(text + length, "sin.approx.f32 %%f%d, %%f%d;\nst.global.f32 [%%rd1+%d], %%f%d;\n", at, at,
                      4 * (at * 7 % VALUES), at);
  strcpy(text + length, "ret; }\n");
  return text;
}

/* What a link of the kernel makes with some options, or the result of making it. */
static uint64_t linked(unsigned count, CUjit_option *keys, void **values) {
  CUlinkState state;
  void *image;
  size_t size;
  uint64_t hash = 14695981039346656037u;
  CUresult result = cuLinkCreate(count, keys, values, &state);
  if (result) return result;
  char *text = wide_kernel();
  result = cuLinkAddData(state, CU_JIT_INPUT_PTX, text, strlen(text) + 1, "wide", 0, NULL, NULL);
  if (!result) result = cuLinkComplete(state, &image, &size);
  for (size_t at = 0; !result && at < size; at++) hash = (hash ^ ((unsigned char *)image)[at]) * 1099511628211u;
  OK(cuLinkDestroy(state));
  return result ? (uint64_t)result : hash;
}

static void options(void) {
  static const struct {
    CUjit_option key;
    uintptr_t values[2];
    bool usual, same; /* whether the first makes the image of no option, and the second that of the first */
  } rows[] = {
      {CU_JIT_MAX_REGISTERS, {24, 64}, false, false},
      {CU_JIT_THREADS_PER_BLOCK, {32, 1024}, false, false},
      {CU_JIT_OPTIMIZATION_LEVEL, {0, 4}, false, false},
      {CU_JIT_OPTIMIZATION_LEVEL, {1, 4}, false, true},
      {CU_JIT_TARGET, {CU_TARGET_COMPUTE_90, CU_TARGET_COMPUTE_80}, true, false},
      {CU_JIT_TARGET, {CU_TARGET_COMPUTE_90, CU_TARGET_COMPUTE_90A}, true, true},
      {CU_JIT_GENERATE_DEBUG_INFO, {0, 1}, true, false},
      {CU_JIT_LOG_VERBOSE, {0, 1}, true, false},
      {CU_JIT_GENERATE_LINE_INFO, {0, 1}, true, false},
      {CU_JIT_CACHE_MODE, {CU_JIT_CACHE_OPTION_CG, CU_JIT_CACHE_OPTION_CA}, false, false},
      {CU_JIT_CACHE_MODE, {CU_JIT_CACHE_OPTION_NONE, CU_JIT_CACHE_OPTION_CA}, true, false},
      {CU_JIT_FAST_COMPILE, {0, 1}, true, true},
      {CU_JIT_POSITION_INDEPENDENT_CODE, {0, 1}, true, false},
      {CU_JIT_MIN_CTA_PER_SM, {1, 8}, false, false},
      {CU_JIT_MAX_THREADS_PER_BLOCK, {32, 1024}, false, false},
      {CU_JIT_OVERRIDE_DIRECTIVE_VALUES, {0, 1}, false, true},
      {CU_JIT_SPLIT_COMPILE, {1, 2}, false, false},
  };
  uint64_t usual = linked(0, NULL, NULL);
  for (size_t at = 0; at < sizeof rows / sizeof *rows; at++) {
    CUjit_option keys[] = {rows[at].key, rows[at].key};
    void *values[] = {(void *)rows[at].values[0], (void *)rows[at].values[1]};
    uint64_t made = linked(1, keys, values);
    EXPECT(10 * at + rows[at].usual, 10 * at + (made == usual)); /* so that a failure names the row */
    EXPECT(10 * at + rows[at].same, 10 * at + (made == linked(1, keys, values + 1)));
  }
  CUjit_option keys[] = {CU_JIT_TARGET, CU_JIT_TARGET}; /* the last one counts */
  void *both[] = {(void *)CU_TARGET_COMPUTE_90A, (void *)CU_TARGET_COMPUTE_80};
  EXPECT(1, linked(2, keys, both) == linked(1, keys, both + 1));
}

int main(int count, char **arguments) {
  if (count < 2) {
    fprintf(stderr, "usage: exercise FOLDER [links]\n");
    return 2;
  }
  folder = arguments[1];
  cudalinkKeepDriver(); /* there is none to keep */
  EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuCtxSynchronize());
  OK(cuInit(0));
  devices();
  pthread_t threads[4];
  for (int at = 0; at < 4; at++) TRUE(!pthread_create(&threads[at], NULL, contexts, NULL));
  for (int at = 0; at < 4; at++) pthread_join(threads[at], NULL);
  CUcontext context;
  OK(cuDevicePrimaryCtxRetain(&context, 0));
  OK(cuCtxSetCurrent(context));
  streams();
  memory();
  modules();
  links();
  events();
  creators();
  sweeps();
  settings();
  shapes();
  functions();
  options();
  int rounds = count > 2 ? atoi(arguments[2]) : 1;
  static const CUjitInputType both[] = {CU_JIT_INPUT_PTX, CU_JIT_INPUT_PTX};
  for (int round = 0; round < rounds; round++) link(0, 0, (const char *[]){"13.0/main.ptx", "13.0/user.ptx"}, both, 2);
  static const char *const images[] = {
      "13.0/linked.cubin",    "13.0/main.cubin", "12.9/user.cubin", "nvcc/user-plain.fatbin",
      "nvcc/user-lto.fatbin", "13.0/main.ltoir", "nvcc/user.a"};
  for (size_t at = 0; at < sizeof images / sizeof *images; at++) damaged(images[at]);
  for (size_t at = 0; at < sizeof images / sizeof *images; at++) at_end_of_page(images[at]);
  OK(cuDevicePrimaryCtxRelease(0));
  puts("done");
  return 0;
}
