/* A library with each of the driver's names and none of its functions: what a process loads if it must not find a
   driver. */
__attribute__((visibility("default"))) int cudalinkAbsentDriver(void) { return 1; }
