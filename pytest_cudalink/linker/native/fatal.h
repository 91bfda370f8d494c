/* A watch on what libnvJitLink prints: it reports some failures on stderr alone, and returns success. */
#ifndef CUDALINK_FATAL_H
#define CUDALINK_FATAL_H

/* Watches what this thread prints through the C library's stderr; everything still gets to descriptor 2 at once. */
void cudalinkWatchFatal(void);
/* Ends the watch of this thread: the last line that has "fatal   :", or "" if none had. Valid until the next watch of
   the thread. */
const char *cudalinkFatalLine(void);

#endif
