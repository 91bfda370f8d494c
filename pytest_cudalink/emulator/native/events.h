/* Events: one JSON object for each call that is worth one, in memory and in a file. */
#ifndef CUDALINK_EVENTS_H
#define CUDALINK_EVENTS_H

#include <stddef.h>
#include <stdint.h>

#include "abi.h"

/* Appends one event; the text is a JSON object without its braces. */
void cl_event(const char *format, ...) PRINTF(1, 2);
/* Copies text into a JSON string's inside, cut to the size. */
const char *cl_json(const char *text, char *out, size_t size);

#endif
