/* Calls of libnvJitLink that are watched: it reports some failures on stderr alone, and returns success. */
#ifndef CUDALINK_WATCHED_H
#define CUDALINK_WATCHED_H

#include <stddef.h>

typedef int AddData(void *handle, int type, const void *data, size_t size, const char *name);
typedef int Complete(void *handle);

/* Added to a result when this thread printed a line with "fatal   :" during the call. */
enum { PRINTED_FATAL = 1 << 16 };

int cudalinkAddData(AddData *add, void *handle, int type, const void *data, size_t size, const char *name);
int cudalinkComplete(Complete *complete, void *handle);
/* That line of this thread's last watched call; "" if there was none. */
const char *cudalinkFatalLine(void);

#endif
