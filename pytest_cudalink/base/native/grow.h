/* The one way in which arrays grow, and the one in which an item leaves a list. */
#pragma once

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Makes room for item number `at` of the array at `*array`, which may move, and whose new items are zero. Returns
   false, and leaves all as it is, if memory is out. */
static inline bool cl_grow(void *array, size_t at, size_t *room, size_t item) {
  if (at < *room) return true;
  char *list;
  size_t more = *room ? 2 * *room : 8;
  while (more <= at) more *= 2;
  memcpy(&list, array, sizeof list);
  char *grown = realloc(list, more * item);
  if (!grown) return false;
  memset(grown + *room * item, 0, (more - *room) * item);
  memcpy(array, &grown, sizeof grown);
  *room = more;
  return true;
}

/* Takes an item out of a list that is linked by `next`, if it is there. */
#define UNLINK(list, item)                                              \
  do {                                                                  \
    __typeof__(list) *link_to = &(list);                                \
    while (*link_to && *link_to != (item)) link_to = &(*link_to)->next; \
    if (*link_to) *link_to = (*link_to)->next;                          \
  } while (0)
