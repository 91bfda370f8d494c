/* The part that is the same in every stub: find the library once, look each function up at its first call.
 *
 * No lock is taken anywhere. A thread may be inside the loader already when it calls a stub (a constructor), and a
 * thread that waits for another one which waits for the loader's lock would never come back. Instead every thread that
 * meets an unresolved function searches by itself, all of them by the same rules, and the first to finish publishes its
 * answer. */

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

static void stub_add(struct stub_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void stub_add(struct stub_text *text, const char *format, ...) {
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

/* ---- files of which the loader would die ----
 *
 * The loader maps what the program headers name without asking whether the file has it: of a library that was cut it
 * dies by SIGBUS. Its own errors suffice for everything else, such as a text, a folder or another architecture. */

struct stub_file {
  int descriptor;
  uint64_t size;
  int count;
  ElfW(Phdr) parts[64]; /* the largest library of CUDA has 12 */
};

static int stub_read_at(const struct stub_file *file, void *to, size_t size, uint64_t offset) {
  return offset <= file->size && size <= file->size - offset &&
         pread(file->descriptor, to, size, (off_t)offset) == (ssize_t)size;
}

/* Where in the file an address is, of which SIZE bytes are needed; 0 if it is nowhere. */
static uint64_t stub_offset_of(const struct stub_file *file, uint64_t address, uint64_t size) {
  for (int i = 0; i < file->count; i++) {
    const ElfW(Phdr) *part = &file->parts[i];
    if (part->p_type == PT_LOAD && address >= part->p_vaddr && address - part->p_vaddr <= part->p_filesz &&
        size <= part->p_filesz - (address - part->p_vaddr))
      return part->p_offset + (address - part->p_vaddr);
  }
  return 0;
}

/* The names and symbols of a library must be in the file. */
static const char *stub_damage_of_dynamic(const struct stub_file *file, const ElfW(Phdr) * part) {
  uint64_t at = stub_offset_of(file, part->p_vaddr, part->p_filesz), names = 0, symbols = 0, length = 0;
  ElfW(Dyn) entry;
  for (uint64_t read = 0; at && part->p_filesz - read >= sizeof entry; read += sizeof entry) {
    if (!stub_read_at(file, &entry, sizeof entry, at + read)) break;
    if (entry.d_tag == DT_STRTAB) names = entry.d_un.d_ptr;
    if (entry.d_tag == DT_SYMTAB) symbols = entry.d_un.d_ptr;
    if (entry.d_tag == DT_STRSZ) length = entry.d_un.d_val;
    if (entry.d_tag != DT_NULL) continue;
    if (!stub_offset_of(file, names, length) || !stub_offset_of(file, symbols, sizeof(ElfW(Sym)))) break;
    return NULL;
  }
  return "is damaged: it has no names or symbols";
}

static const char *stub_damage_of(struct stub_file *file) {
  ElfW(Ehdr) head;
  struct stat status;
  if (fstat(file->descriptor, &status) || S_ISDIR(status.st_mode)) return NULL;
  if (!S_ISREG(status.st_mode)) return "is not a regular file";
  file->size = (uint64_t)status.st_size;
  if (!stub_read_at(file, &head, sizeof head, 0) || memcmp(head.e_ident, ELFMAG, SELFMAG) ||
      head.e_ident[EI_CLASS] != ELFCLASS64 || head.e_phentsize != sizeof file->parts[0])
    return NULL;
  if (head.e_phnum > sizeof file->parts / sizeof file->parts[0]) return "is damaged: it has too many program headers";
  if (!stub_read_at(file, file->parts, head.e_phnum * sizeof file->parts[0], head.e_phoff)) return NULL;
  file->count = head.e_phnum;
  for (int i = 0; i < file->count; i++) {
    const ElfW(Phdr) *part = &file->parts[i];
    if (part->p_type != PT_LOAD) continue;
    if (part->p_offset > file->size || part->p_filesz > file->size - part->p_offset) return "is cut off";
  }
  for (int i = 0; i < file->count; i++)
    if (file->parts[i].p_type == PT_DYNAMIC) return stub_damage_of_dynamic(file, &file->parts[i]);
  return NULL;
}

/* Why the loader must not be given a file; NULL if it may try. */
static const char *stub_damage(const char *path) {
  struct stub_file file = {.descriptor = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC)};
  if (file.descriptor < 0) return NULL;
  const char *damage = stub_damage_of(&file);
  close(file.descriptor);
  return damage;
}

/* The same for a name: of the file that the loader would find in the folders that it searches, as far as it lists them.
 * A file of another architecture is passed over by the loader, as it is here. */
static const char *stub_damage_by_name(const char *name) {
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
          damage = stub_damage(path);
  }
  free(folders);
  if (self) dlclose(self);
#else
  (void)name;
#endif
  return damage;
}

/* A handle, but never one of a stub: two stubs that point at each other would call in circles. So would a library that
 * is linked with one, for every function that it lacks itself: the loader also looks in what the library needs. */
static void *stub_open(const char *name, int mode, const char **fault) {
  const char *damage = mode & RTLD_NOLOAD ? NULL : strchr(name, '/') ? stub_damage(name) : stub_damage_by_name(name);
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
