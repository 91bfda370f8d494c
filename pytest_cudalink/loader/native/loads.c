/* The objects that are loaded into this process, in the order in which they were loaded.

   C and not a callback in Python: the loader holds a lock while it calls back, and a thread that waits for the
   interpreter's lock at that moment may itself be waited for by one that loads a library. */
#include <string.h>

#include "loaded_object.h"

#define EXPORT __attribute__((visibility("default")))

enum { MOST_NEEDED = 4096 };

typedef struct {
  char *out;
  size_t size, length;
} Text;

/* Appends a text with its end; what does not fit is counted only. */
static void append(Text *text, const char *more) {
  size_t count = strlen(more) + 1;
  if (text->length + count <= text->size) memcpy(text->out + text->length, more, count);
  text->length += count;
}

static int read_count(struct dl_phdr_info *info, size_t size, void *count) {
  if (size >= offsetof(struct dl_phdr_info, dlpi_adds) + sizeof info->dlpi_adds)
    *(unsigned long long *)count = info->dlpi_adds;
  return 1;
}

/* Appends path, SONAME and the names of the needed libraries, and an empty text after them. */
static int append_object(struct dl_phdr_info *info, size_t size, void *context) {
  (void)size;
  Text *text = context;
  LoadedObject object;
  cl_read_object(info, &object);
  append(text, info->dlpi_name ? info->dlpi_name : "");
  append(text, object.names && object.soname ? object.names + object.soname : "");
  int left = MOST_NEEDED;
  for (const ElfW(Dyn) *entry = object.names ? object.dynamic : NULL; entry && entry->d_tag != DT_NULL && left; entry++)
    if (entry->d_tag == DT_NEEDED && object.names[entry->d_un.d_val])
      append(text, object.names + entry->d_un.d_val), left--;
  append(text, "");
  return 0;
}

/* How often this process has loaded an object; 0 where the loader does not count. */
EXPORT unsigned long long cudalinkLoadCount(void) {
  unsigned long long count = 0;
  dl_iterate_phdr(read_count, &count);
  return count;
}

/* Writes every object; returns the bytes that this takes, which may be more than there are. */
EXPORT size_t cudalinkLoadedObjects(char *out, size_t size) {
  Text text = {out, size, 0};
  dl_iterate_phdr(append_object, &text);
  return text.length;
}
