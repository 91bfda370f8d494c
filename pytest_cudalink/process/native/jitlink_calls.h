/* Links that code below Python makes through libnvJitLink: counted, with the object that called it. */
#ifndef CUDALINK_JITLINK_CALLS_H
#define CUDALINK_JITLINK_CALLS_H

#include <stddef.h>

/* What cudalinkLook answers. */
enum {
  LOOK_CALLS = 1,      /* there are calls to take */
  LOOK_LATE = 2,       /* a libnvJitLink was loaded unnoticed: it is watched from now on */
  LOOK_REFUSED = 4,    /* a libnvJitLink cannot be watched */
  LOOK_IMPOSSIBLE = 8, /* none can on this system: only glibc on x86-64 and aarch64 is known */
};

/* Redirects the functions of nvJitLink in every object that is loaded now, and sees to those that are loaded later. */
int cudalinkLook(void);

/* Takes the calls from one place: their number, and the path of the object that made them, or "". 0: there are none. */
unsigned long cudalinkTakeCalls(char *path, size_t size);

/* Whether the calls of this thread are not counted, because its Python code reports them. */
void cudalinkCover(int on);

#endif
