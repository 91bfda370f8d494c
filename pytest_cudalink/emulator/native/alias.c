/* libcuda.so: for programs that open the driver by its development name; it only needs libcuda.so.1. */
__attribute__((visibility("default"))) int cudalinkAlias(void) { return 1; }
