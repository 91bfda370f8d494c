/* Opening a library: never a stub, never a file of which the loader would die. */
#ifndef STUB_OPENING_H
#define STUB_OPENING_H

#include "base.h"
#include "library_file.h"

static const char *stub_special(const char *path) { return library_is_special(path) ? "is not a regular file" : NULL; }

/* What a check says of the file that the loader would find by its name, in the folders that it lists. A file of another
 * architecture is passed over by the loader, as it is here. */
static const char *stub_damage_by_name(const char *name, const char *(*check)(const char *path)) {
  const char *damage = NULL;
#if defined(__GLIBC__)
  Dl_serinfo size, *folders = NULL;
  void *self = dlopen(NULL, RTLD_LAZY);
  char path[PATH_MAX];
  if (self && !dlinfo(self, RTLD_DI_SERINFOSIZE, &size) && (folders = malloc(size.dls_size)) != NULL) {
    folders->dls_size = size.dls_size;
    folders->dls_cnt = size.dls_cnt;
    if (!dlinfo(self, RTLD_DI_SERINFO, folders))
      for (unsigned i = 0; i < folders->dls_cnt && !damage; i++)
        if (snprintf(path, sizeof path, "%s/%s", folders->dls_serpath[i].dls_name, name) < (int)sizeof path)
          damage = check(path);
  }
  free(folders);
  if (self) dlclose(self);
#else
  (void)name, (void)check;
#endif
  return damage;
}

/* A handle, but never one of a stub: two stubs that point at each other would call in circles. So would a library that
 * is linked with one, for every function that it lacks itself: the loader also looks in what the library needs. */
static void *stub_open(const char *name, int mode, const char **fault) {
  /* with RTLD_NOLOAD the loader maps nothing, but it opens a file to see whether that is in the process */
  const char *(*check)(const char *) = mode & RTLD_NOLOAD ? stub_special : library_damage;
  const char *damage = strchr(name, '/') ? check(name) : stub_damage_by_name(name, check);
  if (damage) {
    if (fault) *fault = damage;
    return NULL;
  }
  void *handle = dlopen(name, mode | RTLD_LAZY | RTLD_LOCAL);
  if (!handle) {
    const char *text = dlerror();
    if (fault) *fault = text ? text : "cannot be opened";
    return NULL;
  }
  if (dlsym(handle, "cudalink_stub_marker")) {
    dlclose(handle);
    if (fault) *fault = "is a stub itself, or linked with one";
    return NULL;
  }
  dlerror();
  return handle;
}

static const char *stub_file_of(void *handle) {
  struct link_map *map = NULL;
  if (dlinfo(handle, RTLD_DI_LINKMAP, &map) || !map || !map->l_name) return "";
  return map->l_name;
}

/* The copy that was in the process before this stub opened anything: every thread gets the same answer, also one that
 * looks while another thread is already opening a file. Returns its path, "" for none. */
static const char *stub_find_in_process(void) {
  char *known = atomic_load(&stub_in_process);
  if (known) return known;
  struct stub_scan scan = {.rank = -1};
  dl_iterate_phdr(stub_visit, &scan);
  for (int rank = 0; stub_names[rank] && (scan.rank < 0 || rank < scan.rank); rank++) {
    /* by SONAME: the file may be called anything */
    void *handle = stub_open(stub_names[rank], RTLD_NOLOAD, NULL);
    if (!handle) continue;
    const char *file = stub_file_of(handle);
    if (strlen(file) < sizeof scan.path) {
      scan.rank = rank;
      strcpy(scan.path, file);
    }
    dlclose(handle);
    break;
  }
  char *found = strdup(scan.path);
  if (!found) return "";
  char *before = NULL;
  if (atomic_compare_exchange_strong(&stub_in_process, &before, found)) return found;
  free(found);
  return before;
}

#endif
