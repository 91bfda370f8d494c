/* A libcuda.so.1 without a single driver function: what a process sees that shall find no driver. */
__attribute__((visibility("default"))) int cudalinkAbsentDriver(void) { return 1; }
