/* Loads a PTX file, as a program in C or C++ does that compiles device code when it starts. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

int main(int count, char **arguments) {
  void *cuda = dlopen("libcuda.so.1", RTLD_NOW), *context, *module;
  if (!cuda || count != 2) return fprintf(stderr, "jit: no libcuda.so.1, or no file given\n"), 2;
  int (*init)(unsigned) = (int (*)(unsigned))dlsym(cuda, "cuInit");
  int (*retain)(void **, int) = (int (*)(void **, int))dlsym(cuda, "cuDevicePrimaryCtxRetain");
  int (*make_current)(void *) = (int (*)(void *))dlsym(cuda, "cuCtxSetCurrent");
  int (*load)(void **, const char *) = (int (*)(void **, const char *))dlsym(cuda, "cuModuleLoad");
  int (*explain)(int, const char **) = (int (*)(int, const char **))dlsym(cuda, "cuGetErrorString");
  int code = init(0);
  if (!code) code = retain(&context, 0);
  if (!code) code = make_current(context);
  if (!code) code = load(&module, arguments[1]);
  const char *text = NULL;
  explain(code, &text);
  printf("%s: %d, %s\n", arguments[1], code, text);
  return code ? 1 : 0;
}
