/* Damaged images given to cuModuleLoadData, cuLibraryLoadData and cuLinkAddData, each in a child process.
 *
 *     fuzz FOLDER CHANGES
 *
 * A signal is put down to the innermost library of ours or NVIDIA's on the stack. Exit code 1 if it is ours. */
#define _GNU_SOURCE
#include <cuda.h>

#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { OURS = 10, THEIRS = 11, SLOW = 12 };

static const struct {
  const char *file;
  CUjitInputType type;
} samples[] = {
    {"13.0/main.cubin", CU_JIT_INPUT_CUBIN},
    {"13.0/linked.cubin", CU_JIT_INPUT_CUBIN},
    {"12.9/user.cubin", CU_JIT_INPUT_CUBIN},
    {"13.0/main.ptx", CU_JIT_INPUT_PTX},
    {"nvcc/user.fatbin", CU_JIT_INPUT_FATBINARY},
    {"nvcc/user-plain.fatbin", CU_JIT_INPUT_FATBINARY},
    {"nvcc/user.o", CU_JIT_INPUT_OBJECT},
    {"nvcc/user.a", CU_JIT_INPUT_LIBRARY},
    {"nvcc/user-lto.fatbin", CU_JIT_INPUT_FATBINARY},
};
enum { SAMPLES = sizeof samples / sizeof *samples };

static unsigned char *data;
static size_t size;

static void load(const char *folder, const char *name) {
  char path[1024];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *file = fopen(path, "rb");
  if (!file) {
    perror(path);
    exit(2);
  }
  free(data);
  data = calloc(1, 1 << 20);
  size = fread(data, 1, (1 << 20) - 1, file);
  fclose(file);
}

static uint64_t state;
static uint64_t any(uint64_t limit) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (state >> 33) % limit;
}

/* One change of the image: its end, a byte, or one of the numbers that point elsewhere. */
static size_t change(unsigned char *copy, unsigned number) {
  static const uint64_t numbers[] = {0,  1, 0x7fffffff, 0xffffffff, 0x100000000, 0x7fffffffffffffff, ~(uint64_t)0,
                                     64, 63};
  memcpy(copy, data, size);
  state = number;
  any(2);
  if (any(5) == 0) return any(size);
  for (uint64_t left = 1 + any(3); left; left--) {
    size_t at = any(3) ? any(size < 512 ? size : 512) : any(size);
    uint64_t section_table;
    memcpy(&section_table, data + 40, 8);
    if (any(3) == 0 && section_table < size) at = section_table + any(size - section_table);
    if (any(2)) {
      static const unsigned char bytes[] = {0, 0xff, 0x7f, 0x80, 1};
      copy[at] = any(3) ? bytes[any(5)] : (unsigned char)any(256);
    } else {
      uint64_t value = any(4) ? numbers[any(9)] : any(size);
      size_t width = any(2) ? 8 : 4;
      at &= ~(size_t)3;
      if (at + width <= size) memcpy(copy + at, &value, width);
    }
  }
  return size;
}

/* Whose code it was: the first frame of the driver or of nvJitLink. */
static void on_signal(int number) {
  void *frames[64];
  int depth = backtrace(frames, 64);
  if (number == SIGALRM) _exit(SLOW);
  for (int frame = 1; frame < depth; frame++) {
    Dl_info where;
    if (!dladdr(frames[frame], &where) || !where.dli_fname) continue;
    if (strstr(where.dli_fname, "nvJitLink")) _exit(THEIRS);
    if (strstr(where.dli_fname, "libcuda")) {
      backtrace_symbols_fd(frames, depth, 2);
      _exit(OURS);
    }
  }
  backtrace_symbols_fd(frames, depth, 2);
  _exit(OURS);
}

/* In the child: everything from `first` on, saying in shared memory how far it is. */
static void run(CUjitInputType type, unsigned first, unsigned last, volatile unsigned *reached,
                volatile unsigned *accepted) {
  static char stack[1 << 16];
  stack_t own = {.ss_sp = stack, .ss_size = sizeof stack};
  struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
  void *warm[2];
  backtrace(warm, 2); /* loads libgcc now, not in the handler */
  sigaltstack(&own, NULL);
  for (int at = 0, numbers[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGALRM}; at < 6; at++)
    sigaction(numbers[at], &action, NULL);
  int nowhere = open("/dev/null", O_WRONLY);
  dup2(nowhere, 1);
  CUcontext context;
  if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) _exit(2);
  unsigned char *pages = NULL;
  for (unsigned number = first; number < last; number++) {
    *reached = number;
    alarm(20);
    /* the image ends with the page, so that a read behind it is a signal */
    size_t length, room = (size + 4096 * 2 + 1) & ~(size_t)4095;
    unsigned char *copy = malloc(size + 1);
    length = change(copy, number);
    if (pages) munmap(pages, room);
    pages = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(pages + room - 4096, 4096, PROT_NONE);
    unsigned char *image = pages + room - 4096 - length;
    memcpy(image, copy, length);
    free(copy);
    CUmodule module;
    CUlibrary library;
    CUlinkState link;
    if (!cuModuleLoadData(&module, image)) {
      CUfunction function;
      CUdeviceptr address;
      size_t bytes;
      int value;
      if (!cuModuleGetFunction(&function, module, "user_transform"))
        for (int attribute = 0; attribute < 10; attribute++)
          cuFuncGetAttribute(&value, (CUfunction_attribute)attribute, function);
      cuModuleGetGlobal(&address, &bytes, module, "nothing");
      cuModuleUnload(module);
      ++*accepted;
    }
    if (!cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0)) cuLibraryUnload(library);
    if (length && !cuLinkCreate(0, NULL, NULL, &link)) {
      void *linked;
      size_t bytes;
      if (!cuLinkAddData(link, type, image, length, "fuzz", 0, NULL, NULL)) {
        cuLinkComplete(link, &linked, &bytes);
        ++*accepted;
      }
      cuLinkDestroy(link);
    }
  }
  *reached = last;
  _exit(0);
}

int main(int count, char **arguments) {
  if (count != 3) return 2;
  unsigned changes = (unsigned)atoi(arguments[2]), ours = 0, theirs = 0, slow = 0;
  volatile unsigned *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  for (int sample = 0; sample < SAMPLES; sample++) {
    load(arguments[1], samples[sample].file);
    for (unsigned first = 0; first < changes; first = shared[0] + 1) {
      pid_t child = fork();
      if (!child) run(samples[sample].type, first, changes, &shared[0], &shared[1]);
      int status;
      waitpid(child, &status, 0);
      int code = WIFEXITED(status) ? WEXITSTATUS(status) : OURS;
      if (code == 2) return 2;
      if (code == THEIRS) theirs++;
      else if (code == SLOW) slow++;
      else if (code) ours++;
      if (code)
        printf("%s, change %u: %s\n", samples[sample].file, shared[0],
               code == THEIRS ? "killed nvJitLink"
               : code == SLOW ? "took too long"
                              : "killed the driver");
      if (!code) break;
    }
  }
  printf("%d changes: %u accepted, %u killed nvJitLink, %u took too long, %u killed the driver\n",
         SAMPLES * (int)changes, shared[1], theirs, slow, ours);
  return ours ? 1 : 0;
}
