/* The part that is the same in every stub: find the library once, look each function up at its first call.
 *
 * No lock is taken anywhere. A thread may be inside the loader already when it calls a stub (a constructor), and a thread
 * that waits for another one which waits for the loader's lock would never come back. Instead every thread that meets an
 * unresolved function searches by itself, all of them by the same rules, and the first to finish publishes its answer. */

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
  const char *symbol;                                        /* exact entry point */
  const char *older;                                         /* same signature in older libraries, or NULL */
  int optional;                                              /* tier */
  stub_function fallback;                                    /* zeroes the outputs and returns the error */
  stub_function (*adapt)(void *handle, stub_function real);  /* puts something between, or NULL */
};

/* What the search came to; published once, never changed, never freed. */
struct stub_choice {
  void *handle;        /* NULL: there is no library */
  const char *file;
  const char *why;     /* the rule that found it */
  const char *looked;  /* where it was looked for, and what went wrong there */
};

static const struct stub_entry stub_entries[STUB_COUNT];
extern stub_function STUB_SLOTS[STUB_COUNT] __attribute__((visibility("hidden")));
extern const ElfW(Addr) STUB_TRAMPOLINES[STUB_COUNT] __attribute__((visibility("hidden")));
static struct stub_choice *stub_chosen;
static char *stub_in_process; /* "" : nothing was in the process before the first search */
static char *stub_description;
static const struct stub_choice stub_no_memory = {NULL, NULL, "out of memory", "nowhere: out of memory"};

/* Other stubs know by this symbol that a library is a stub and not the real one. */
STUB_EXPORT __attribute__((weak)) const char cudalink_stub_marker[] = "pytest-cudalink";

/* ---- text that grows; when memory is out it stays as it is ---- */

struct stub_text {
  char *bytes;
  size_t length, capacity;
};

static void stub_add(struct stub_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void stub_add(struct stub_text *text, const char *format, ...)
{
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

static void stub_add_json(struct stub_text *text, const char *value)
{
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

/* Place of a file name among the wanted names: 0 is the newest; -1 is another library. Takes STEM.so.N…, and STEM-HASH.so.N…
 * as wheel repair tools rename it. */
static int stub_rank(const char *path)
{
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
    if (!strncmp(rest, wanted, length) && (!rest[length] || (rest[length] == '.' && strcmp(wanted, ".so")))) return rank;
  }
  return -1;
}

struct stub_scan {
  int rank;
  char path[PATH_MAX];
};

static int stub_visit(struct dl_phdr_info *info, size_t size, void *data)
{
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

/* A handle, but never one of a stub: two stubs that point at each other would call in circles. So would a library that is
 * linked with one, for every function that it lacks itself: the loader looks for it in what the library needs, too. */
static void *stub_open(const char *name, int mode, const char **fault)
{
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

static const char *stub_file_of(void *handle)
{
  struct link_map *map = NULL;
  if (dlinfo(handle, RTLD_DI_LINKMAP, &map) || !map || !map->l_name) return "";
  return map->l_name;
}

/* The copy that was in the process before this stub opened anything: every thread gets the same answer, also one that
 * looks while another thread is already opening a file. Returns its path, "" for none. */
static const char *stub_find_in_process(void)
{
  char *known = __atomic_load_n(&stub_in_process, __ATOMIC_ACQUIRE);
  if (known) return known;
  struct stub_scan scan = {-1, ""};
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
  if (__atomic_compare_exchange_n(&stub_in_process, &before, found, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) return found;
  free(found);
  return before;
}

/* ---- the search ---- */

struct stub_search {
  void *handle;
  const char *why;
  struct stub_text looked;
};

static void stub_place(struct stub_search *search, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void stub_place(struct stub_search *search, const char *format, ...)
{
  char place[PATH_MAX + 64];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(place, sizeof place, format, arguments);
  va_end(arguments);
  stub_add(&search->looked, "%s%s", search->looked.length ? "; " : "", place);
}

/* Take a file if it is there and can be opened; a file that is there and cannot be opened is reported. */
static int stub_take_file(struct stub_search *search, const char *path, const char *why)
{
  const char *fault = NULL;
  if (access(path, F_OK)) return 0;
  search->handle = stub_open(path, 0, &fault);
  if (search->handle) search->why = why;
  else stub_add(&search->looked, " (%s: %s)", path, fault);
  return search->handle != NULL;
}

static int stub_take_from(struct stub_search *search, const char *folder, const char *why)
{
  char path[PATH_MAX];
  for (int rank = 0; stub_names[rank]; rank++)
    if (snprintf(path, sizeof path, "%s/%s", folder, stub_names[rank]) < (int)sizeof path &&
        stub_take_file(search, path, why))
      return 1;
  return 0;
}

/* Wheels: nvidia/…/lib below a folder that contains FILE, or below one that contains that folder, and so on. */
static int stub_take_beside(struct stub_search *search, const char *file, const char *why)
{
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

static int stub_take_beside_address(struct stub_search *search, void *address, const char *why)
{
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
    NULL};

static int stub_take_home(struct stub_search *search, const char *home, const char *why)
{
  char folder[PATH_MAX];
  for (int i = 0; stub_home_folders[i]; i++)
    if (snprintf(folder, sizeof folder, "%s/%s", home, stub_home_folders[i]) < (int)sizeof folder &&
        stub_take_from(search, folder, why))
      return 1;
  return 0;
}

/* The environment counts only where it is the user's own. */
static const char *stub_setting(const char *name)
{
  const char *value = secure_getenv(name);
  return value && *value ? value : NULL;
}

static int stub_take_variable(struct stub_search *search, const char *name, const char *why)
{
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
static int stub_take_installed(struct stub_search *search)
{
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
    if (strlen(entry->d_name) >= sizeof found[0].name || sscanf(entry->d_name, "cuda-%d.%d", &major, &minor) < 1) continue;
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

static void stub_look(struct stub_search *search, void *caller)
{
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

/* Major * 1000 + minor * 10, or 0 when the library does not tell. */
static int stub_version(void *handle)
{
#if STUB_VERSION_KIND == 1
  int (*ask)(int *) = (int (*)(int *))dlsym(handle, STUB_VERSION_SYMBOL);
  int version = 0;
  if (ask && !ask(&version)) return version;
  /* CUDA 11's runtime does not tell without a driver */
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
static void stub_open_companion(void *handle)
{
  char path[PATH_MAX], name[64];
  const char *file = stub_file_of(handle), *slash = strrchr(file, '/');
  int version = *STUB_COMPANION ? stub_version(handle) : 0;
  if (!version || !slash) return;
  snprintf(name, sizeof name, "%s.%d.%d", STUB_COMPANION, version / 1000, version % 1000 / 10);
  if (snprintf(path, sizeof path, "%.*s%s", (int)(slash + 1 - file), file, name) >= (int)sizeof path) return;
  if (!access(path, F_OK) && !dlopen(path, RTLD_LAZY | RTLD_LOCAL)) dlerror();
}

static stub_function stub_symbol(void *handle, const struct stub_entry *entry)
{
  void *found = dlsym(handle, entry->symbol);
  if (!found && entry->older) found = dlsym(handle, entry->older);
  return (stub_function)(uintptr_t)found;
}

/* Under CUDALINK_STUBS_VERBOSE=1: one line, by one write. */
static void stub_report(const struct stub_choice *choice)
{
  const char *switch_ = stub_setting("CUDALINK_STUBS_VERBOSE");
  struct stub_text line = {NULL, 0, 0};
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
  if (line.bytes && write(2, line.bytes, line.length) < 0) { /* nobody to tell */
  }
  free(line.bytes);
}

static const struct stub_choice *stub_choose(void *caller)
{
  struct stub_choice *known = __atomic_load_n(&stub_chosen, __ATOMIC_ACQUIRE);
  if (known) return known;
  struct stub_search search = {NULL, NULL, {NULL, 0, 0}};
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
  if (__atomic_compare_exchange_n(&stub_chosen, &known, mine, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
    stub_report(mine);
    return mine;
  }
  if (mine->handle) dlclose(mine->handle);
  free(search.looked.bytes);
  free(mine);
  return known;
}

/* ---- binding the caller directly ---- */

#if defined(__x86_64__)
#define STUB_JUMP_SLOT R_X86_64_JUMP_SLOT
#else
#define STUB_JUMP_SLOT R_AARCH64_JUMP_SLOT
#endif

struct stub_binding {
  ElfW(Addr) caller, trampoline, function;
};

static int stub_bind(struct dl_phdr_info *info, size_t size, void *data)
{
  const struct stub_binding *binding = data;
  const ElfW(Dyn) *dynamic = NULL;
  const ElfW(Rela) *slots = NULL;
  size_t bytes = 0;
  int mine = 0;
  (void)size;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *part = &info->dlpi_phdr[i];
    if (part->p_type == PT_LOAD && binding->caller - info->dlpi_addr - part->p_vaddr < part->p_memsz) mine = 1;
    if (part->p_type == PT_DYNAMIC) dynamic = (const ElfW(Dyn) *)(info->dlpi_addr + part->p_vaddr);
  }
  if (!mine) return 0;
  for (; dynamic && dynamic->d_tag != DT_NULL; dynamic++) {
    if (dynamic->d_tag == DT_PLTRELSZ) bytes = dynamic->d_un.d_val;
    if (dynamic->d_tag == DT_PLTREL && dynamic->d_un.d_val != DT_RELA) return 1;
    if (dynamic->d_tag == DT_JMPREL) {
      ElfW(Addr) where = dynamic->d_un.d_ptr; /* glibc has added the base, other loaders have not */
      slots = (const ElfW(Rela) *)(where < info->dlpi_addr ? where + info->dlpi_addr : where);
    }
  }
  for (size_t i = 0; slots && i < bytes / sizeof *slots; i++) {
    if (ELF64_R_TYPE(slots[i].r_info) != STUB_JUMP_SLOT) continue;
    ElfW(Addr) *slot = (ElfW(Addr) *)(info->dlpi_addr + slots[i].r_offset);
    if (__atomic_load_n(slot, __ATOMIC_RELAXED) != binding->trampoline) continue;
    int writable = 0;
    for (int j = 0; j < info->dlpi_phnum; j++) {
      const ElfW(Phdr) *part = &info->dlpi_phdr[j];
      if (slots[i].r_offset - part->p_vaddr >= part->p_memsz) continue;
      if (part->p_type == PT_LOAD && part->p_flags & PF_W) writable |= 1;
      if (part->p_type == PT_GNU_RELRO) writable |= 2; /* read-only once everything is bound */
    }
    if (writable == 1) __atomic_store_n(slot, binding->function, __ATOMIC_RELEASE);
  }
  return 1;
}

/* What the loader does for a lazily bound call, once more: the caller's own slot for this function, which holds our
 * trampoline, gets the function itself. From then on its calls cost what a direct call costs. Only slots for calls are
 * changed, never an address that a program may compare; where they are read-only, the trampoline stays between. */
static void stub_bind_caller(void *caller, unsigned index, stub_function function)
{
  struct stub_binding binding = {(ElfW(Addr))caller, STUB_TRAMPOLINES[index], (ElfW(Addr))function};
  dl_iterate_phdr(stub_bind, &binding);
}

/* ---- what the trampolines and the fallbacks call ---- */

/* The function behind slot INDEX, at its first call. CALLER is an address in the calling library. */
STUB_HIDDEN stub_function STUB_RESOLVE(unsigned index, void *caller)
{
  int saved = errno;
  const struct stub_entry *entry = &stub_entries[index];
  const struct stub_choice *choice = stub_choose(caller);
  stub_function function = choice->handle ? stub_symbol(choice->handle, entry) : NULL;
  if (function && entry->adapt) function = entry->adapt(choice->handle, function);
  if (function) stub_bind_caller(caller, index, function);
  else function = entry->fallback;
  if (choice != &stub_no_memory) __atomic_store_n(&STUB_SLOTS[index], function, __ATOMIC_RELEASE);
  errno = saved;
  return function;
}

__attribute__((unused)) static int stub_failed(int missing_library, int missing_symbol)
{
  __atomic_thread_fence(__ATOMIC_ACQUIRE); /* the slot was read before the choice is */
  const struct stub_choice *choice = __atomic_load_n(&stub_chosen, __ATOMIC_ACQUIRE);
  return choice && choice->handle ? missing_symbol : missing_library;
}

/* What is missing and where it was looked for; never NULL, lives as long as the stub. */
__attribute__((unused)) static const char *stub_complaint(const char *function)
{
  static char *text;
  char *known = __atomic_load_n(&text, __ATOMIC_ACQUIRE);
  if (known) return known;
  const struct stub_choice *choice = stub_choose(NULL);
  struct stub_text made = {NULL, 0, 0};
  if (choice->handle)
    stub_add(&made, STUB_FILE ": %s lacks %s, so errors cannot be explained", choice->file, function);
  else
    stub_add(&made, STUB_FILE ": no " STUB_STEM " was found; looked in %s. Install it, or name it in " STUB_VARIABLE,
             choice->looked);
  if (!made.bytes) return STUB_FILE ": no " STUB_STEM " was found";
  if (__atomic_compare_exchange_n(&text, &known, made.bytes, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) return made.bytes;
  free(made.bytes);
  return known;
}

/* JSON: library, stub, file, version, why, looked, functions, missing (symbols), degraded (tiers). Searches, if no call did so before. */
STUB_EXPORT const char *STUB_DESCRIBE(void)
{
  char *known = __atomic_load_n(&stub_description, __ATOMIC_ACQUIRE);
  if (known) return known;
  int saved = errno, first = 1, degraded[2] = {0, 0};
  const struct stub_choice *choice = stub_choose(__builtin_return_address(0));
  int version = choice->handle ? stub_version(choice->handle) : 0;
  struct stub_text text = {NULL, 0, 0};
  stub_add(&text, "{\"library\": \"" STUB_LIBRARY "\", \"stub\": \"" STUB_FILE "\", \"file\": ");
  stub_add_json(&text, choice->file);
  if (version) stub_add(&text, ", \"version\": \"%d.%d\", \"why\": ", version / 1000, version % 1000 / 10);
  else stub_add(&text, ", \"version\": null, \"why\": ");
  stub_add_json(&text, choice->why);
  stub_add(&text, ", \"looked\": ");
  stub_add_json(&text, choice->looked);
  stub_add(&text, ", \"functions\": %d, \"missing\": [", STUB_COUNT);
  for (int i = 0; i < STUB_COUNT; i++) {
    if (choice->handle && stub_symbol(choice->handle, &stub_entries[i])) continue;
    degraded[stub_entries[i].optional] = 1;
    stub_add(&text, "%s\"%s\"", first ? "" : ", ", stub_entries[i].symbol);
    first = 0;
  }
  stub_add(&text, "], \"degraded\": [%s%s%s]}", degraded[0] ? "\"core\"" : "", degraded[0] && degraded[1] ? ", " : "",
           degraded[1] ? "\"optional\"" : "");
  errno = saved;
  if (!text.bytes) return "{}";
  if (__atomic_compare_exchange_n(&stub_description, &known, text.bytes, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
    return text.bytes;
  free(text.bytes);
  return known;
}
