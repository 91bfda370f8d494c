/* Events: one JSON object for each call that is worth one, in memory and in a file. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "limits.inc"

/* The members of one event, in the order in which they are added; each begins with a comma. There is room for more than
   a line shows, because a hook gets all of them. */
typedef struct {
  size_t length;
  const char *unsupported; /* why the call was refused as not emulated; else NULL */
  char text[2 * LIMIT_EVENT_SIZE];
} EventLine;

void cl_event_begin(EventLine *line);
/* Members; without a name the next item of a list. */
void cl_event_int(EventLine *line, const char *name, int64_t value);
void cl_event_uint(EventLine *line, const char *name, uint64_t value);
void cl_event_bool(EventLine *line, const char *name, bool value);
/* Text is escaped, and cut so that it takes less than `room` bytes. */
void cl_event_text(EventLine *line, const char *name, const char *text, size_t room);
/* A text of ours that explains the event to its reader. */
void cl_event_note(EventLine *line, const char *text);
void cl_event_list(EventLine *line, const char *name);
void cl_event_list_end(EventLine *line);
/* Adds the members of another line. */
void cl_event_join(EventLine *line, const EventLine *other);
/* The same of their text. */
void cl_event_members(EventLine *line, const char *members);
/* Writes the event. */
void cl_event_end(const EventLine *members);
