/* Loads every library that is named, with all that it needs at once, and asks the emulated driver for its version.
 *
 *     load_all LIBCUDA LIBRARY...
 *
 * Exit code 1, with the loader's message, at the first library that does not load. */
#include <dlfcn.h>
#include <gnu/libc-version.h>
#include <stdio.h>

typedef int (*Init)(unsigned flags);
typedef int (*DriverVersion)(int *version);

int main(int count, char **arguments) {
  void *driver = NULL;
  for (int at = 1; at < count; at++) {
    void *library = dlopen(arguments[at], RTLD_NOW | RTLD_LOCAL);
    if (!library) {
      fprintf(stderr, "%s\n", dlerror());
      return 1;
    }
    if (at == 1) driver = library;
  }
  if (!driver) return 2;
  int version = 0;
  Init init = (Init)dlsym(driver, "cuInit");
  DriverVersion driver_version = (DriverVersion)dlsym(driver, "cuDriverGetVersion");
  if (!init || !driver_version || init(0) || driver_version(&version)) return 3;
  printf("glibc %s, %d libraries, driver %d\n", gnu_get_libc_version(), count - 1, version);
  return 0;
}
