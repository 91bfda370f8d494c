int cudaRuntimeGetVersion(int *version) {
  *version = 12090;
  return 0;
}
