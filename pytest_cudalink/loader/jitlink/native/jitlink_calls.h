/* Links that code below Python makes through libnvJitLink: counted, with the object that called it. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* What cudalinkLook answers. */
enum {
  LOOK_CALLS = 1,      /* there are calls to take */
  LOOK_LATE = 2,       /* a libnvJitLink was loaded unnoticed: it is watched from now on */
  LOOK_REFUSED = 4,    /* a libnvJitLink cannot be watched */
  LOOK_IMPOSSIBLE = 8, /* none can on this system: only glibc on x86-64 and aarch64 is known */
  LOOK_INPUT = 16,     /* an input was refused */
};

/* Redirects the functions of nvJitLink in every object that is loaded now, and sees to those that are loaded later. */
int cudalinkLook(void);

/* Rises if cudalinkLook is going to answer something, and with each handle and violation of the contract. */
uint64_t cudalinkNews(void);

/* Takes the calls from one place: their number, and the path of the object that made them, or "". 0: there are none. */
unsigned long cudalinkTakeCalls(char *path, size_t size);

/* Whether the calls of this thread are not counted, because its Python code reports them. */
void cudalinkCover(int on);

/* From now on `wanted` is asked before each call of a program; NULL: not. `jitlink`, `nvrtc`: of which library. */
void cudalinkMeddle(int (*wanted)(const char *function), int jitlink, int nvrtc);

/* Redirects functions of NVRTC, too, by their names, which stay where they are; NULL stands behind the last. Each has
   at most six arguments that are no floating-point numbers, and returns an nvrtcResult. */
void cudalinkWatchNvrtc(const char *const *functions);

/* How many programs of NVRTC were created and not destroyed since it is watched. */
long cudalinkLivePrograms(void);

/* An input that nvJitLinkAddData or nvJitLinkAddFile refused. Python reads the same structure. */
typedef struct {
  uint64_t size; /* bytes of the input, or of the name of its file */
  int32_t code, is_file;
  char library[1024]; /* the path of the libnvJitLink that refused it; "": not known */
} RefusedInput;

/* Describes the input that was refused last, and takes it if there is room for it; 0: there is none. */
int cudalinkTakeRefusedInput(RefusedInput *about, void *out, size_t room);
