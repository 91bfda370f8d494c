/* A driver program that goes through everything the emulated driver implements, to be run plainly, under valgrind and
 * with sanitizers. Built against the cuda.h of a toolkit, so that the compiler compares our functions with its own.
 *
 *     exercise FOLDER [links]
 *
 * FOLDER is tests/data/artifacts. Exit code 1 at the first answer that is not the expected one. */
#include <cuda.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "expect.h"

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

int main(int count, char **arguments) {
  if (count < 2) {
    fprintf(stderr, "usage: exercise FOLDER [links]\n");
    return 2;
  }
  folder = arguments[1];
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
  int rounds = count > 2 ? atoi(arguments[2]) : 1;
  static const CUjitInputType both[] = {CU_JIT_INPUT_PTX, CU_JIT_INPUT_PTX};
  for (int round = 0; round < rounds; round++) link(0, 0, (const char *[]){"13.0/main.ptx", "13.0/user.ptx"}, both, 2);
  static const char *const images[] = {
      "13.0/linked.cubin",    "13.0/main.cubin", "12.9/user.cubin", "nvcc/user-plain.fatbin",
      "nvcc/user-lto.fatbin", "13.0/main.ltoir", "nvcc/user.a"};
  for (size_t at = 0; at < sizeof images / sizeof *images; at++) damaged(images[at]);
  OK(cuDevicePrimaryCtxRelease(0));
  puts("done");
  return 0;
}
