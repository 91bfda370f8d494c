#include <stdio.h>

int cudaRuntimeGetVersion(int *version); /* from cuda_runtime_api.h */

int report(void) {
  int version = 0;
  int code = cudaRuntimeGetVersion(&version);
  printf("code %d, CUDA %d.%d\n", code, version / 1000, version % 1000 / 10);
  return code;
}
