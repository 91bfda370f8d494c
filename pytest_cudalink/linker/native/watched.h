/* Calls of libnvJitLink that are watched: it reports some failures on stderr alone, and returns success. */
#pragma once

#include <stddef.h>

typedef int AddData(void *handle, int type, const void *data, size_t size, const char *name);
typedef int Complete(void *handle);
typedef int Create(void **handle, unsigned count, const char **options);
typedef int Destroy(void **handle);

/* Added to a result when this thread printed a line with "fatal   :" during the call. */
enum { PRINTED_FATAL = 1 << 16 };

/* Lets a library that is loaded print to the watched stream instead of stderr, for good; `library` is what dlopen
   returned. False if it does not print to stderr, or where that cannot be changed. */
int cudalinkWatch(void *library);
int cudalinkAddData(AddData *add, void *handle, int type, const void *data, size_t size, const char *name);
int cudalinkComplete(Complete *complete, void *handle);
/* A signal may arrive as a call returns to Python, where its result is then lost: so the caller's memory says which
   handle there is. It is written only if one was made, and emptied before it is destroyed. */
int cudalinkCreate(Create *create, void **handle, unsigned count, const char **options);
int cudalinkDestroy(Destroy *destroy, void **handle);
/* That line of this thread's last watched call; "" if there was none. */
const char *cudalinkFatalLine(void);
