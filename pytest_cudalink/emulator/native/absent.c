/* A library of the driver, under each of its names, without a single function of it: what a process sees that shall find
   no driver. */
__attribute__((visibility("default"))) int cudalinkAbsentDriver(void) { return 1; }
