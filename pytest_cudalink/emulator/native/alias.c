/* libcuda.so: for programs that open the driver by its development name; it needs libcuda.so.1, and says so by a
 * reference, because linkers leave out a library that nothing refers to. */
extern int cuDriverGetVersion(int *version);

__attribute__((visibility("default"))) int (*const cudalinkAlias)(int *) = cuDriverGetVersion;
