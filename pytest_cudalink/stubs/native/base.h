/* The part that is the same in every stub: find the library once, look each function up at its first call.
 *
 * No lock is taken anywhere. A thread may be inside the loader already when it calls a stub (a constructor), and a
 * thread that waits for another one which waits for the loader's lock would never come back. Instead every thread that
 * meets an unresolved function searches by itself, all of them by the same rules, and the first to finish publishes its
 * answer. */
#ifndef STUB_BASE_H
#define STUB_BASE_H

#include "configuration.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(_WIN32)
#error "cudalink stubs are written for Linux; there is no Windows implementation"
#endif
#if !defined(__linux__) || !(defined(__x86_64__) || defined(__aarch64__))
#error "cudalink stubs need Linux on x86-64 or aarch64"
#endif

#define STUB_HIDDEN __attribute__((visibility("hidden"), used))
#define STUB_EXPORT __attribute__((visibility("default"), used))

typedef void (*stub_function)(void);

struct stub_entry {
  const char *symbol;                                       /* exact entry point */
  const char *older;                                        /* same signature in older libraries, or NULL */
  int optional;                                             /* tier */
  stub_function fallback;                                   /* zeroes the outputs and returns the error */
  stub_function (*adapt)(void *handle, stub_function real); /* puts something between, or NULL */
};

/* The result of the search; published once, never changed, never freed. */
struct stub_choice {
  void *handle; /* NULL: there is no library */
  const char *file;
  const char *why;    /* the rule that found it */
  const char *looked; /* where it was looked for, and what went wrong there */
};

static const struct stub_entry stub_entries[STUB_COUNT];
extern _Atomic(stub_function) STUB_SLOTS[STUB_COUNT] __attribute__((visibility("hidden")));
extern const ElfW(Addr) STUB_TRAMPOLINES[STUB_COUNT] __attribute__((visibility("hidden")));
static _Atomic(struct stub_choice *) stub_chosen;
static _Atomic(char *) stub_in_process; /* "" : nothing was in the process before the first search */
static _Atomic(char *) stub_description;
static const struct stub_choice stub_no_memory = {.why = "out of memory", .looked = "nowhere: out of memory"};

/* Other stubs know by this symbol that a library is a stub and not the real one. */
STUB_EXPORT __attribute__((weak)) const char cudalink_stub_marker[] = "pytest-cudalink";

/* ---- text that grows; when memory is out it stays as it is ---- */

struct stub_text {
  char *bytes;
  size_t length, capacity;
};

__attribute__((format(printf, 2, 3))) static void stub_add(struct stub_text *text, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int needed = vsnprintf(NULL, 0, format, arguments);
  va_end(arguments);
  if (needed < 0) return;
  if (text->length + (size_t)needed + 1 > text->capacity) {
    size_t capacity = 2 * (text->length + (size_t)needed) + 256;
    char *grown = realloc(text->bytes, capacity);
    if (!grown) return;
    text->bytes = grown;
    text->capacity = capacity;
  }
  va_start(arguments, format);
  text->length += (size_t)vsnprintf(text->bytes + text->length, (size_t)needed + 1, format, arguments);
  va_end(arguments);
}

static void stub_add_json(struct stub_text *text, const char *value) {
  if (!value) {
    stub_add(text, "null");
    return;
  }
  stub_add(text, "\"");
  for (; *value; value++) {
    unsigned char c = (unsigned char)*value;
    if (c == '"' || c == '\\') stub_add(text, "\\%c", c);
    else if (c < 0x20) stub_add(text, "\\u%04x", (unsigned)c);
    else stub_add(text, "%c", c);
  }
  stub_add(text, "\"");
}

/* ---- what is already in the process ---- */

/* Place of a file name among the wanted names: 0 is the newest; -1 is another library. Takes STEM.so.N…, and
 * STEM-HASH.so.N… as wheel repair tools rename it. */
static int stub_rank(const char *path) {
  const char *name = strrchr(path, '/');
  name = name ? name + 1 : path;
  size_t stem = sizeof STUB_STEM - 1;
  if (strncmp(name, STUB_STEM, stem)) return -1;
  const char *rest = name + stem;
  if (*rest == '-') {
    size_t digits = strspn(rest + 1, "0123456789abcdef");
    if (!digits) return -1;
    rest += 1 + digits;
  }
  for (int rank = 0; stub_names[rank]; rank++) {
    const char *wanted = stub_names[rank] + stem; /* ".so.12" */
    size_t length = strlen(wanted);
    if (!strncmp(rest, wanted, length) && (!rest[length] || (rest[length] == '.' && strcmp(wanted, ".so"))))
      return rank;
  }
  return -1;
}

struct stub_scan {
  int rank;
  char path[PATH_MAX];
};

static int stub_visit(struct dl_phdr_info *info, size_t size, void *data) {
  struct stub_scan *scan = data;
  (void)size;
  if (!info->dlpi_name || strlen(info->dlpi_name) >= sizeof scan->path) return 0;
  int rank = stub_rank(info->dlpi_name);
  if (rank >= 0 && (scan->rank < 0 || rank < scan->rank)) {
    scan->rank = rank;
    strcpy(scan->path, info->dlpi_name);
  }
  return 0;
}

#endif
