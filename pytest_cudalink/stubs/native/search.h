/* The search for the real library; its result is published once. */
#ifndef STUB_SEARCH_H
#define STUB_SEARCH_H

#include "opening.h"

#include <dirent.h>

struct stub_search {
  void *handle;
  const char *why;
  struct stub_text looked;
};

__attribute__((format(printf, 2, 3))) static void stub_place(struct stub_search *search, const char *format, ...) {
  char place[PATH_MAX + 64];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(place, sizeof place, format, arguments);
  va_end(arguments);
  stub_add(&search->looked, "%s%s", search->looked.length ? "; " : "", place);
}

/* Take a file if it is there and can be opened; a file that is there and cannot be opened is reported. */
static int stub_take_file(struct stub_search *search, const char *path, const char *why) {
  const char *fault = NULL;
  if (access(path, F_OK)) return 0;
  search->handle = stub_open(path, 0, &fault);
  if (search->handle) search->why = why;
  else stub_add(&search->looked, " (%s: %s)", path, fault);
  return search->handle != NULL;
}

static int stub_take_from(struct stub_search *search, const char *folder, const char *why) {
  char path[PATH_MAX];
  for (int rank = 0; stub_names[rank]; rank++)
    if (snprintf(path, sizeof path, "%s/%s", folder, stub_names[rank]) < (int)sizeof path &&
        stub_take_file(search, path, why))
      return 1;
  return 0;
}

/* Wheels: nvidia/…/lib below a folder that contains FILE, or below one that contains that folder, and so on. */
static int stub_take_beside(struct stub_search *search, const char *file, const char *why) {
  char folder[PATH_MAX], path[PATH_MAX];
  if (!file || file[0] != '/' || strlen(file) >= sizeof folder) return 0;
  strcpy(folder, file);
  stub_place(search, "wheels beside %s", file);
  for (char *slash; (slash = strrchr(folder, '/')) != NULL;) {
    *slash = '\0';
    for (int i = 0; stub_wheels[i]; i++)
      if (snprintf(path, sizeof path, "%s/%s", folder, stub_wheels[i]) < (int)sizeof path &&
          stub_take_file(search, path, why))
        return 1;
  }
  return 0;
}

static int stub_take_beside_address(struct stub_search *search, void *address, const char *why) {
  Dl_info info;
  char real[PATH_MAX];
  if (!stub_wheels[0] || !address || !dladdr(address, &info) || !info.dli_fname) return 0;
  const char *file = strchr(info.dli_fname, '/') ? info.dli_fname : "/proc/self/exe"; /* the program: argv[0] */
  int resolved = realpath(file, real) != NULL;
  if (file[0] == '/' && strcmp(file, "/proc/self/exe") && stub_take_beside(search, file, why)) return 1;
  return resolved && strcmp(file, real) && stub_take_beside(search, real, why);
}

static const char *const stub_home_folders[] = {
    "lib64",
    "lib",
#if defined(__x86_64__)
    "targets/x86_64-linux/lib",
#else
    "targets/sbsa-linux/lib",
#endif
    NULL,
};

static int stub_take_home(struct stub_search *search, const char *home, const char *why) {
  char folder[PATH_MAX];
  for (int i = 0; stub_home_folders[i]; i++)
    if (snprintf(folder, sizeof folder, "%s/%s", home, stub_home_folders[i]) < (int)sizeof folder &&
        stub_take_from(search, folder, why))
      return 1;
  return 0;
}

/* The environment counts only where it is the user's own. */
static const char *stub_setting(const char *name) {
  const char *value = secure_getenv(name);
  return value && *value ? value : NULL;
}

static int stub_take_variable(struct stub_search *search, const char *name, const char *why) {
  const char *home = stub_setting(name);
  if (!home) {
    stub_place(search, "%s (not set)", name);
    return 0;
  }
  stub_place(search, "%s=%s", name, home);
  return stub_take_home(search, home, why);
}

enum { STUB_TOOLKITS = 32 };

/* /usr/local/cuda, then /usr/local/cuda-13.0, /usr/local/cuda-12.9 …, newest first. */
static int stub_take_installed(struct stub_search *search) {
  static const char why[] = "toolkit in /usr/local";
  struct {
    int major, minor;
    char name[32];
  } found[STUB_TOOLKITS];
  int count = 0;
  stub_place(search, "/usr/local/cuda*");
  if (stub_take_home(search, "/usr/local/cuda", why)) return 1;
  DIR *folder = opendir("/usr/local");
  if (!folder) return 0;
  for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
    int major, minor = 0;
    if (strlen(entry->d_name) >= sizeof found[0].name || sscanf(entry->d_name, "cuda-%d.%d", &major, &minor) < 1)
      continue;
    int at = count;
    while (at && (found[at - 1].major < major || (found[at - 1].major == major && found[at - 1].minor < minor))) at--;
    if (at == STUB_TOOLKITS) continue; /* older than all that there is room for */
    if (count < STUB_TOOLKITS) count++;
    memmove(&found[at + 1], &found[at], (size_t)(count - 1 - at) * sizeof found[0]);
    found[at].major = major;
    found[at].minor = minor;
    strcpy(found[at].name, entry->d_name);
  }
  closedir(folder);
  for (int i = 0; i < count; i++) {
    char home[64];
    snprintf(home, sizeof home, "/usr/local/%s", found[i].name);
    if (stub_take_home(search, home, why)) return 1;
  }
  return 0;
}

static void stub_look(struct stub_search *search, void *caller) {
  const char *fault = NULL;
  const char *given = stub_setting(STUB_VARIABLE);
  struct stat status;
  if (given) { /* says what is to be used: nothing else is tried */
    stub_place(search, STUB_VARIABLE "=%s", given);
    if (!stat(given, &status) && S_ISDIR(status.st_mode)) {
      stub_take_from(search, given, "environment variable " STUB_VARIABLE);
    } else {
      search->handle = stub_open(given, 0, &fault);
      if (search->handle) search->why = "environment variable " STUB_VARIABLE;
      else stub_add(&search->looked, " (%s)", fault);
    }
    return;
  }
  const char *loaded = stub_find_in_process();
  stub_place(search, "the process");
  if (*loaded && (search->handle = stub_open(loaded, RTLD_NOLOAD, &fault)) != NULL) {
    search->why = "already in the process";
    return;
  }
  if (stub_take_beside_address(search, caller, "wheel beside the caller")) return;
  if (stub_take_beside_address(search, (void *)(uintptr_t)&stub_entries, "wheel beside the stub")) return;
  if (STUB_HOMES && stub_take_variable(search, "CUDA_PATH", "CUDA_PATH")) return;
  if (STUB_HOMES && stub_take_variable(search, "CUDA_HOME", "CUDA_HOME")) return;
  stub_place(search, "the loader's path for");
  for (int rank = 0; stub_names[rank]; rank++) {
    stub_add(&search->looked, "%s %s", rank ? "," : "", stub_names[rank]);
    search->handle = stub_open(stub_names[rank], 0, &fault);
    if (search->handle) {
      search->why = "the loader's path";
      return;
    }
    if (!strstr(fault, "No such file")) stub_add(&search->looked, " (%s)", fault);
  }
  for (int i = 0; stub_folders[i]; i++) {
    stub_place(search, "%s", stub_folders[i]);
    if (stub_take_from(search, stub_folders[i], "folder of the system")) return;
  }
  if (STUB_HOMES) stub_take_installed(search);
}

/* Major * 1000 + minor * 10, or 0 when the library does not say. */
static int stub_version(void *handle) {
#if STUB_VERSION_KIND == 1
  int (*ask)(int *) = (int (*)(int *))dlsym(handle, STUB_VERSION_SYMBOL);
  int version = 0;
  if (ask && !ask(&version)) return version;
  /* without a driver CUDA 11's runtime does not answer */
  return STUB_HINT_VERSION && dlsym(handle, STUB_HINT_SYMBOL) ? STUB_HINT_VERSION : 0;
#elif STUB_VERSION_KIND == 2
  int (*ask)(int *, int *) = (int (*)(int *, int *))dlsym(handle, STUB_VERSION_SYMBOL);
  int major = 0, minor = 0;
  return ask && !ask(&major, &minor) ? 1000 * major + 10 * minor : 0;
#else
  (void)handle;
  return 0;
#endif
}

/* A library may open another one by name and rely on its own RUNPATH for it; NVRTC 13.0 has none (other releases have).
 * Opened here, from the same folder, it is in the process when it is asked for. */
static void stub_open_companion(void *handle) {
  char path[PATH_MAX], name[64];
  const char *file = stub_file_of(handle), *slash = strrchr(file, '/');
  int version = *STUB_COMPANION ? stub_version(handle) : 0;
  if (!version || !slash) return;
  snprintf(name, sizeof name, "%s.%d.%d", STUB_COMPANION, version / 1000, version % 1000 / 10);
  if (snprintf(path, sizeof path, "%.*s%s", (int)(slash + 1 - file), file, name) >= (int)sizeof path) return;
  if (!access(path, F_OK) && !library_damage(path) && !dlopen(path, RTLD_LAZY | RTLD_LOCAL)) dlerror();
}

static stub_function stub_symbol(void *handle, const struct stub_entry *entry) {
  void *found = dlsym(handle, entry->symbol);
  if (!found && entry->older) found = dlsym(handle, entry->older);
  return (stub_function)(uintptr_t)found;
}

/* Under CUDALINK_STUBS_VERBOSE=1: one line, by one write. */
static void stub_report(const struct stub_choice *choice) {
  const char *switch_ = stub_setting("CUDALINK_STUBS_VERBOSE");
  struct stub_text line = {.bytes = NULL};
  if (!switch_ || !strcmp(switch_, "0")) return;
  if (choice->handle) {
    int version = stub_version(choice->handle), missing = 0;
    stub_add(&line, "cudalink stubs: " STUB_FILE " uses %s (", choice->file);
    if (version) stub_add(&line, "version %d.%d, ", version / 1000, version % 1000 / 10);
    stub_add(&line, "%s)", choice->why);
    for (int i = 0; i < STUB_COUNT; i++)
      if (!stub_symbol(choice->handle, &stub_entries[i]))
        stub_add(&line, "%s %s", missing++ ? "," : "; it lacks", stub_entries[i].symbol);
    stub_add(&line, "\n");
  } else {
    stub_add(&line, "cudalink stubs: " STUB_FILE " found no " STUB_STEM ": looked in %s\n", choice->looked);
  }
  if (line.bytes && write(2, line.bytes, line.length) < 0) { /* the report is lost, and the search is not */
  }
  free(line.bytes);
}

static const struct stub_choice *stub_choose(void *caller) {
  struct stub_choice *known = atomic_load(&stub_chosen);
  if (known) return known;
  struct stub_search search = {.handle = NULL};
  stub_look(&search, caller);
  struct stub_choice *mine = malloc(sizeof *mine);
  if (!mine) {
    free(search.looked.bytes);
    return &stub_no_memory;
  }
  mine->handle = search.handle;
  mine->why = search.why ? search.why : "not found";
  mine->looked = search.looked.bytes ? search.looked.bytes : "";
  mine->file = search.handle ? stub_file_of(search.handle) : NULL;
  if (mine->handle) stub_open_companion(mine->handle);
  if (atomic_compare_exchange_strong(&stub_chosen, &known, mine)) {
    stub_report(mine);
    return mine;
  }
  if (mine->handle) dlclose(mine->handle);
  free(search.looked.bytes);
  free(mine);
  return known;
}

#endif
