int cudaRuntimeGetVersion(int *version); /* from cuda_runtime_api.h */

int report(void) {
  int version = 0;
  return cudaRuntimeGetVersion(&version);
}
