/* Links whose option memory dies at a chosen moment. Prints how many violations the emulated driver noticed.
 *
 *     lifetimes SCENARIO MAIN.ptx
 *
 * The PTX has an undefined symbol, so that there is text for the error log at complete. */
#include <cuda.h>

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { LOG = 8192 };

static void must(int code, int line) {
  if (!code) return;
  fprintf(stderr, "lifetimes.c:%d: %d\n", line, code);
  exit(3);
}
#define OK(expression) must((int)(expression), __LINE__)

static char *text;
static size_t size;
static CUjit_option keys[2] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};

static void **make_values(char *log) {
  void **values = malloc(2 * sizeof *values);
  values[0] = log;
  values[1] = (void *)(uintptr_t)LOG;
  return values;
}

int main(int count, char **arguments) {
  if (count != 3) return 2;
  const char *scenario = arguments[1];
  FILE *file = fopen(arguments[2], "rb");
  if (!file) return 2;
  text = calloc(1, 1 << 20);
  size = fread(text, 1, (1 << 20) - 1, file) + 1;
  fclose(file);

  CUcontext context;
  CUlinkState state, other = NULL;
  void *image;
  size_t image_size;
  OK(cuInit(0));
  OK(cuDevicePrimaryCtxRetain(&context, 0));
  OK(cuCtxSetCurrent(context));

  int mapped = !strcmp(scenario, "log-unmapped");
  char *log = mapped ? mmap(NULL, LOG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) : malloc(LOG);
  void **values = make_values(log), **more = NULL;
  char *second = NULL;
  OK(cuLinkCreate(2, keys, values, &state));
  if (!strcmp(scenario, "values-after-create")) free(values);
  if (!strcmp(scenario, "log-after-create")) free(log);
  OK(cuLinkAddData(state, CU_JIT_INPUT_PTX, text, size, "main", 0, NULL, NULL));
  if (!strcmp(scenario, "overlap")) { /* its memory is given to the next state: with glibc's malloc the same block */
    free(log);
    second = malloc(LOG);
    more = make_values(second);
    OK(cuLinkCreate(2, keys, more, &other));
  }
  cuLinkComplete(state, &image, &image_size); /* 0 or 300 for the undefined symbol, by version and target */
  if (!strcmp(scenario, "values-after-complete")) free(values);
  if (!strcmp(scenario, "log-after-complete")) free(log);
  if (mapped) munmap(log, LOG);
  OK(cuLinkDestroy(state));
  if (other) OK(cuLinkDestroy(other));

  if (!strncmp(scenario, "values-", 7)) free(log);
  else free(values);
  if (!strcmp(scenario, "kept")) free(log);
  free(more);
  free(second);
  free(text);
  uint64_t (*violations)(void) = (uint64_t (*)(void))dlsym(RTLD_DEFAULT, "cudalinkViolationCount");
  printf("%d\n", (int)violations());
  return 0;
}
