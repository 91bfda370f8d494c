/* A driver program that makes and destroys arrays, textures, texture references, tensor maps, green contexts and
 * settings many times, from several threads, to be run plainly, under valgrind and with sanitizers.
 *
 *     exercise_objects [rounds]
 *
 * Exit code 1 at the first answer that is not the expected one. */
#include <cuda.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "expect.h"

enum { THREADS = 3, FOREIGN = 0x1234 };

static CUcontext primary;

static void arrays(void) {
  CUDA_ARRAY3D_DESCRIPTOR flat = {
      .Width = 33, .Height = 9, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4, .Flags = CUDA_ARRAY3D_SURFACE_LDST};
  CUDA_ARRAY3D_DESCRIPTOR video = {.Width = 16,
                                   .Height = 8,
                                   .Format = CU_AD_FORMAT_NV12,
                                   .NumChannels = 3,
                                   .Flags = CUDA_ARRAY3D_VIDEO_ENCODE_DECODE};
  CUDA_ARRAY3D_DESCRIPTOR sparse = {
      .Width = 512, .Height = 512, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1, .Flags = CUDA_ARRAY3D_SPARSE};
  CUDA_ARRAY_SPARSE_PROPERTIES properties;
  CUDA_ARRAY_MEMORY_REQUIREMENTS needs;
  CUarray array, planes, plane, level, unbound;
  CUmipmappedArray mipmap;
  char line[33 * 16];
  OK(cuArray3DCreate(&array, &flat));
  OK(cuArray3DCreate(&planes, &video));
  OK(cuArrayGetPlane(&plane, planes, 1));
  OK(cuArray3DGetDescriptor(&video, plane));
  EXPECT(2, video.NumChannels);
  OK(cuArrayDestroy(plane)); /* a plane goes with its array: this changes nothing */
  memset(line, 5, sizeof line);
  OK(cuMemcpyHtoA(array, 0, line, sizeof line));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyAtoA(array, sizeof line, array, 0, sizeof line)); /* all but the first row */
  OK(cuMemcpyAtoA(array, 8, array, 0, sizeof line - 8));
  memset(line, 0, sizeof line);
  OK(cuMemcpyAtoH(line, array, 0, sizeof line));
  EXPECT(5, line[sizeof line - 1]);
  CUDA_MEMCPY2D box = {.srcMemoryType = CU_MEMORYTYPE_ARRAY,
                       .srcArray = array,
                       .srcY = 8,
                       .dstMemoryType = CU_MEMORYTYPE_HOST,
                       .dstHost = line,
                       .dstPitch = sizeof line,
                       .WidthInBytes = sizeof line,
                       .Height = 1};
  OK(cuMemcpy2D(&box));
  box.Height = 2;
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D(&box));
  flat.Flags = 0;
  OK(cuMipmappedArrayCreate(&mipmap, &flat, 4));
  OK(cuMipmappedArrayGetLevel(&level, mipmap, 3));
  OK(cuArray3DCreate(&unbound, &sparse));
  OK(cuArrayGetSparseProperties(&properties, unbound));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuArrayGetMemoryRequirements(&needs, unbound, 0));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuArrayGetSparseProperties(&properties, array));

  CUDA_RESOURCE_DESC of_array = {.resType = CU_RESOURCE_TYPE_ARRAY, .res.array.hArray = array};
  CUDA_RESOURCE_DESC of_mipmap = {.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY, .res.mipmap.hMipmappedArray = mipmap};
  CUDA_TEXTURE_DESC sampling = {.flags = CU_TRSF_NORMALIZED_COORDINATES};
  CUtexObject texture, levels;
  CUsurfObject surface;
  OK(cuTexObjectCreate(&texture, &of_array, &sampling, NULL));
  OK(cuTexObjectCreate(&levels, &of_mipmap, &sampling, NULL));
  OK(cuSurfObjectCreate(&surface, &of_array));
  OK(cuTexObjectGetTextureDesc(&sampling, texture));
  OK(cuSurfObjectGetResourceDesc(&of_array, surface));
  OK(cuTexObjectDestroy(FOREIGN));
  OK(cuTexObjectDestroy(texture));
  OK(cuTexObjectDestroy(levels));
  OK(cuSurfObjectDestroy(surface));
  OK(cuMipmappedArrayDestroy(mipmap));
  OK(cuArrayDestroy(unbound));
  OK(cuArrayDestroy(planes));
  OK(cuArrayDestroy(array));
  EXPECT(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuArrayDestroy(array));
  EXPECT(CUDA_ERROR_INVALID_HANDLE, cuArrayDestroy((CUarray)FOREIGN));
}

/* An array that one thread may destroy while another one asks for its plane. At its address another array can be made
   meanwhile, with planes or without. */
static _Atomic(CUarray) latest;

static void arrays_of_others(void) {
  CUDA_ARRAY3D_DESCRIPTOR video = {.Width = 16,
                                   .Height = 8,
                                   .Format = CU_AD_FORMAT_NV12,
                                   .NumChannels = 3,
                                   .Flags = CUDA_ARRAY3D_VIDEO_ENCODE_DECODE};
  CUarray own, plane;
  for (int time = 0; time < 100; time++) {
    OK(cuArray3DCreate(&own, &video));
    atomic_store(&latest, own);
    for (int again = 0; again < 10; again++) {
      CUresult asked = cuArrayGetPlane(&plane, atomic_load(&latest), 1);
      TRUE(asked == CUDA_SUCCESS || asked == CUDA_ERROR_INVALID_HANDLE || asked == CUDA_ERROR_INVALID_VALUE);
    }
    OK(cuArrayDestroy(own));
  }
}

static void texture_references(void) {
  CUDA_ARRAY3D_DESCRIPTOR flat = {.Width = 16, .Height = 4, .Format = CU_AD_FORMAT_HALF, .NumChannels = 2};
  CUDA_ARRAY_DESCRIPTOR rows = {.Width = 64, .Height = 4, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
  CUtexref reference;
  CUarray array, bound;
  CUdeviceptr memory, found;
  CUarray_format format;
  CUaddress_mode mode;
  size_t offset;
  int channels;
  float color[4] = {1, 2, 3, 4}, same[4];
  OK(cuTexRefCreate(&reference));
  OK(cuMemAlloc(&memory, 4096));
  OK(cuArray3DCreate(&array, &flat));
  OK(cuTexRefSetAddress(&offset, reference, memory, 4096));
  OK(cuTexRefGetAddress(&found, reference));
  EXPECT(1, found == memory && !offset);
  OK(cuTexRefSetAddress2D(reference, &rows, memory, 1024));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuTexRefSetAddress2D(reference, &rows, memory, 224));  /* less than a row */
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuTexRefSetAddress2D(reference, &rows, memory, 1040)); /* not a multiple of 32 */
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuTexRefGetArray(&bound, reference));
  OK(cuTexRefSetArray(reference, array, CU_TRSA_OVERRIDE_FORMAT));
  OK(cuTexRefGetArray(&bound, reference));
  OK(cuTexRefGetFormat(&format, &channels, reference));
  EXPECT(1, bound == array && format == CU_AD_FORMAT_HALF && channels == 2);
  OK(cuTexRefSetAddressMode(reference, 2, CU_TR_ADDRESS_MODE_MIRROR));
  OK(cuTexRefGetAddressMode(&mode, reference, 2));
  EXPECT(CU_TR_ADDRESS_MODE_MIRROR, mode);
  OK(cuTexRefSetBorderColor(reference, color));
  OK(cuTexRefGetBorderColor(same, reference));
  EXPECT(0, memcmp(color, same, sizeof same));
  OK(cuArrayDestroy(array));
  EXPECT(CUDA_ERROR_INVALID_HANDLE, cuTexRefSetArray(reference, array, CU_TRSA_OVERRIDE_FORMAT));
  OK(cuMemFree(memory));
  OK(cuTexRefDestroy(reference));
  EXPECT(CUDA_ERROR_INVALID_HANDLE, cuTexRefDestroy(reference));
}

static void tensor_maps(void) {
  CUtensorMap map;
  CUdeviceptr memory;
  cuuint64_t extents[] = {64, 64}, strides[] = {256};
  cuuint32_t box[] = {32, 32}, steps[] = {1, 1};
  OK(cuMemAlloc(&memory, 1 << 15));
  OK(cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, (void *)memory, extents, strides, box, steps, 0,
                            0, 0, 0));
  OK(cuTensorMapReplaceAddress(&map, (void *)(memory + 256)));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuTensorMapReplaceAddress(&map, (void *)(memory + 1)));
  OK(cuMemFree(memory));
}

/* The description is made once, as none is ever freed. */
static CUdevResourceDesc description;

static void describe(void) {
  CUdevResource whole, groups[2], rest;
  unsigned count = 2;
  OK(cuDeviceGetDevResource(0, &whole, CU_DEV_RESOURCE_TYPE_SM));
  OK(cuDevSmResourceSplitByCount(groups, &count, &whole, &rest, 0, 8));
  OK(cuDevResourceGenerateDesc(&description, groups, count));
}

static void settings(void) {
  CUcontext own;
  char text[1024];
  size_t size = sizeof text;
  size_t limit;
  int state;
  CUlogsCallbackHandle handle;
  OK(cuCtxCreate(&own, NULL, 0, 0));
  OK(cuCoredumpGetAttribute(CU_COREDUMP_FILE, text, &size));
  OK(cuCoredumpSetAttribute(CU_COREDUMP_FILE, text, &size));
  OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 2048));
  OK(cuCtxGetLimit(&limit, CU_LIMIT_STACK_SIZE));
  OK(cuLogsRegisterCallback((CUlogsCallback)(void *)settings, NULL, &handle));
  OK(cuLogsUnregisterCallback(handle));
  EXPECT(CUDA_ERROR_OPERATING_SYSTEM, cuCheckpointProcessGetState(-1, (CUprocessState *)&state));
  CUDA_ARRAY3D_DESCRIPTOR left = {.Width = 16, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1};
  CUarray array;
  OK(cuArray3DCreate(&array, &left)); /* goes with its context */
  OK(cuCtxDestroy(own));
}

static void green_contexts(void) {
  CUgreenCtx green;
  CUcontext context;
  CUstream stream;
  CUdevResource found;
  OK(cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
  OK(cuCtxFromGreenCtx(&context, green));
  OK(cuGreenCtxGetDevResource(green, &found, CU_DEV_RESOURCE_TYPE_SM));
  OK(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
  OK(cuStreamDestroy(stream));
  OK(cuGreenCtxDestroy(green));
  EXPECT(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuGreenCtxDestroy(green));
}

static const char *const source =
    ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry kernel(.param .u32 n) { ret; }\n";

static void launches(CUfunction kernel) {
  int blocks, grid, value = 0;
  void *parameters[] = {&value};
  EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
  EXPECT(CUDA_ERROR_INVALID_HANDLE, cuLaunchKernel((CUfunction)FOREIGN, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
  OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, 128, 1024));
  OK(cuOccupancyMaxPotentialBlockSize(&grid, &blocks, kernel, NULL, 0, 0));
}

static int rounds = 3;
static CUfunction kernel;

static void *work(void *unused) {
  (void)unused;
  OK(cuCtxSetCurrent(primary));
  for (int round = 0; round < rounds; round++) {
    arrays();
    arrays_of_others();
    texture_references();
    tensor_maps();
    settings();
    green_contexts();
    launches(kernel);
  }
  return NULL;
}

int main(int count, char **arguments) {
  if (count > 1) rounds = atoi(arguments[1]);
  pthread_t threads[THREADS];
  CUmodule module;
  OK(cuInit(0));
  OK(cuDevicePrimaryCtxRetain(&primary, 0));
  OK(cuCtxSetCurrent(primary));
  OK(cuModuleLoadData(&module, source));
  OK(cuModuleGetFunction(&kernel, module, "kernel"));
  describe();
  for (int at = 0; at < THREADS; at++) pthread_create(&threads[at], NULL, work, NULL);
  for (int at = 0; at < THREADS; at++) pthread_join(threads[at], NULL);
  OK(cuModuleUnload(module));
  puts("done");
  return 0;
}
