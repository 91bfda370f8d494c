/* Images as the driver meets them. */
#include "image.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "caller_memory.h"
#include "calls.h"
#include "config.h"
#include "containers.h"
#include "cubin.h"
#include "inspect.h"
#include "ptx.h"
#include "tileir.h"
#include "images.inc" /* elf_formats */
#include "releases.inc"

/* A driver takes text for PTX that its compiler then refuses. */
static bool begins_like_ptx(Bytes text) {
  uint64_t at = art_ptx_start(text);
  Bytes rest = {text.at + at, text.size - at};
  return art_begins(rest, ".version") && rest.size > 8 && isspace(rest.at[8]);
}

ImageKind cl_image_kind(const void *data, size_t size) {
  Bytes image = {data, size};
  switch (art_kind(image)) {
    case KIND_CUBIN:
    case KIND_OBJECT: return IMAGE_ELF;
    case KIND_FATBIN: return IMAGE_FATBIN;
    case KIND_LTOIR: return IMAGE_LTOIR;
    case KIND_LIBRARY: return IMAGE_ARCHIVE;
    case KIND_TILEIR: return IMAGE_TILEIR;
    default: return begins_like_ptx(image) ? IMAGE_PTX : IMAGE_UNKNOWN;
  }
}

enum { IMAGE_LIMIT = 0x40000000 }; /* bytes; a damaged header may claim anything */

/* The size of an image by its own headers; 0 if they do not give one. */
static uint64_t claimed_size(const uint8_t head[64]) {
  if (!memcmp(head, "\177ELF", 4)) {
    /* the section table or the program headers come last */
    uint64_t sections = art_u64(head + 40) + (uint64_t)art_u16(head + 58) * art_u16(head + 60);
    uint64_t segments = art_u64(head + 32) + (uint64_t)art_u16(head + 54) * art_u16(head + 56);
    uint64_t end = sections > segments ? sections : segments;
    return head[ELF_CLASS_AT] != ELF_CLASS_64 || end < 64 || end > IMAGE_LIMIT ? 64 : end;
  }
  if (!memcmp(head, FATBIN_MAGIC, 4)) {
    Problem problem;
    FatbinSize size;
    bool sound = art_fatbin_size((Bytes){head, 64}, 0, &size, &problem) && size.body <= IMAGE_LIMIT;
    return sound ? size.header + size.body : FATBIN_HEADER;
  }
  if (!memcmp(head, LTOIR_MAGIC, 4) || !memcmp(head, AR_MAGIC, 8)) return 8; /* no module can be made of it */
  return 0;
}

/* How far the page of an address goes on: what is there at one of its bytes is there at all of them. */
static size_t rest_of_page(const char *at) { return 4096 - ((uintptr_t)at & 4095); }

size_t cl_text_size(const char *text) {
  char page[4096];
  for (size_t size = 0; size < IMAGE_LIMIT;) {
    size_t step = rest_of_page(text + size);
    if (!cl_read_safely(text + size, page, step)) return 0;
    const char *end = memchr(page, 0, step);
    if (end) return size + (size_t)(end - page) + 1;
    size += step;
  }
  return 0;
}

/* Whether memory is there as far as a header claims, before any is reserved for it: little is reserved at once. */
static bool is_there(const char *data, size_t size) {
  enum { AT_ONCE = 1 << 16, PAGE = 4096 };
  char byte;
  for (size_t at = size > AT_ONCE ? 0 : size; at < size; at += PAGE)
    if (!cl_read_safely(data + at, &byte, 1)) return false;
  return true;
}

/* The size of Tile IR, by the heads of its sections; that of its header where they do not lead to its end. */
static uint64_t tileir_size(const char *data) {
  uint64_t at = TILEIR_HEADER;
  uint8_t head[TILEIR_SECTION_HEAD] = {0};
  for (;;) {
    size_t step = rest_of_page(data + at);
    if (!cl_read_safely(data + at, head, sizeof head) &&
        (step >= sizeof head || !cl_read_safely(data + at, head, step)))
      return TILEIR_HEADER;
    if (!head[0]) return at + 1;
    Problem problem;
    if (!art_tileir_section((Bytes){head, sizeof head}, &at, &problem) || at > IMAGE_LIMIT) return TILEIR_HEADER;
  }
}

/* An ELF and a fatbin know their size, a text ends with NUL. Nothing is read that is not there. */
CUresult cl_copy_image(const void *data, void **copy, size_t *size) {
  uint8_t head[64] = {0};
  size_t step = rest_of_page(data);
  if (!cl_read_safely(data, head, sizeof head) && (step >= sizeof head || !cl_read_safely(data, head, step)))
    return CUDA_ERROR_INVALID_IMAGE;
  *size = (size_t)claimed_size(head);
  if (!memcmp(head, TILEIR_MAGIC, sizeof TILEIR_MAGIC)) *size = (size_t)tileir_size(data);
  if (!*size) *size = cl_text_size(data);
  if (!*size || !is_there(data, *size)) return CUDA_ERROR_INVALID_IMAGE;
  *copy = malloc(*size);
  if (!*copy) return CUDA_ERROR_OUT_OF_MEMORY;
  if (cl_read_safely(data, *copy, *size)) return CUDA_SUCCESS;
  free(*copy);
  return CUDA_ERROR_INVALID_IMAGE;
}

CUresult cl_read_file(const char *path, void **data, size_t *size) {
  struct stat about;
  if (!path || !*path) return CUDA_ERROR_INVALID_VALUE;
  if (stat(path, &about)) return CUDA_ERROR_FILE_NOT_FOUND;
  if (S_ISDIR(about.st_mode)) return CUDA_ERROR_OUT_OF_MEMORY;      /* (measured: file/folder) */
  if (!S_ISREG(about.st_mode)) return CUDA_ERROR_INVALID_IMAGE;     /* as an empty file; a pipe might never end */
  if (about.st_size > IMAGE_LIMIT) return CUDA_ERROR_OUT_OF_MEMORY; /* a file with a hole has any size */
  FILE *file = fopen(path, "rb");
  if (!file) return CUDA_ERROR_FILE_NOT_FOUND;
  *size = (size_t)about.st_size;
  *data = calloc(1, *size + 64);
  bool read = *data && fread(*data, 1, *size, file) == *size;
  fclose(file);
  if (read) return CUDA_SUCCESS;
  free(*data);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

/* -- what is refused -- */

enum { IMAGE_ROOM = 400, TARGET_ROOM = 16 }; /* in an event */

static void describe_version(char *out, size_t room, uint32_t major, uint32_t minor) {
  snprintf(out, room, major || minor ? "%u.%u" : "-", major, minor);
}

/* One image of the records: its kind, architecture, release and version, with "-" for what is not known. */
static void describe_record(EventLine *line, const ArtRecord *record, const char *names) {
  const char *kind = art_kind_name(record->kind);
  char words[96], arch[TARGET_ROOM] = "-", release[24], version[24];
  describe_version(release, sizeof release, record->release_major, record->release_minor);
  describe_version(version, sizeof version, record->version_major, record->version_minor);
  if (record->kind == KIND_CUBIN && record->flags & HAS_LINKAGE)
    snprintf(version, sizeof version, record->flags & RELOCATABLE ? "relocatable" : "linked");
  if (record->flags & HAS_TARGET) snprintf(arch, sizeof arch, "%s", names);
  else if (record->flags & HAS_ARCH) snprintf(arch, sizeof arch, "sm_%u", record->arch);
  if (record->flags & HAS_PROBLEM) snprintf(words, sizeof words, "%s damaged", kind);
  else if (record->parts) snprintf(words, sizeof words, "%s", kind);
  else snprintf(words, sizeof words, "%s %s %s %s", kind, arch, release, version);
  cl_event_text(line, NULL, words, sizeof words);
}

static bool is_of_image(CUresult result) {
  switch (result) {
    case CUDA_ERROR_INVALID_IMAGE:
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_INVALID_PTX:
    case CUDA_ERROR_JIT_COMPILER_NOT_FOUND:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
    case CUDA_ERROR_INVALID_SOURCE: return true;
    default: return false;
  }
}

void cl_refuse_image(CUresult result, const char *container, const void *data, size_t size, int arch) {
  uint64_t room = is_of_image(result) ? art_inspect(data, size, LATEST_KNOWN, NULL, 0) : 0, at = 0;
  char *records = room ? malloc(room) : NULL;
  if (!records) return;
  room = art_inspect(data, size, LATEST_KNOWN, records, room);
  EventLine line;
  cl_event_begin(&line);
  cl_event_int(&line, "for", arch);
  cl_event_list(&line, "image");
  if (container) cl_event_text(&line, NULL, container, TARGET_ROOM);
  while (room - at >= sizeof(ArtRecord)) {
    ArtRecord record;
    memcpy(&record, records + at, sizeof record);
    at += sizeof record;
    if (record.kind >= KIND_COUNT || record.names > room - at) break;
    if (line.length > IMAGE_ROOM) {
      cl_event_text(&line, NULL, "more", TARGET_ROOM);
      break;
    }
    describe_record(&line, &record, records + at);
    at += record.names;
  }
  cl_event_list_end(&line);
  free(records);
  cl_refused_image(strdup(line.text));
}

/* -- containers -- */

size_t cl_fatbin_usable(const uint8_t *data, size_t size, int arch) {
  Bytes image = {data, size};
  Problem problem;
  FatbinSize claimed;
  FatbinEntry entry;
  if (!art_fatbin_size(image, 0, &claimed, &problem) || claimed.body > IMAGE_LIMIT) return 0;
  uint64_t end = claimed.header + claimed.body;
  size_t wanted = end > size ? (size_t)end : size;
  bool found = false, whole = true;
  for (uint64_t at = claimed.header; at < end; at += entry.header + entry.size) {
    if (at > size || size - at < FATBIN_ENTRY) return found ? wanted : 0;
    if (!art_fatbin_entry_head(image, at, &entry, &problem) || entry.size > UINT32_MAX) return 0;
    bool inside = entry.header + entry.size <= size - at;
    if (entry.kind == FATBIN_ELF && entry.arch == (uint32_t)arch) {
      char text[128];
      Elf elf;
      const uint8_t *code = data + at + entry.header;
      if (!inside || (!entry.packed && !cl_elf_open(&elf, code, (size_t)entry.size, text, sizeof text))) return 0;
      found = true;
    }
    whole = whole && inside;
  }
  return found || whole ? wanted : 0;
}

/* -- ELF -- */

static bool open_elf(Elf *elf, const void *data, size_t size, Problem *problem) {
  if (!art_elf_open(elf, (Bytes){data, size}, problem)) return false;
  /* the driver takes code for another machine, too; a host object has no architecture */
  bool host = elf->machine != EM_CUDA && !art_cubin_arch(elf);
  return host || art_cubin_check(elf, LATEST_KNOWN, problem);
}

bool cl_elf_open(Elf *elf, const void *data, size_t size, char *problem, size_t problem_size) {
  Problem found = {0};
  bool sound = open_elf(elf, data, size, &found);
  if (!sound) snprintf(problem, problem_size, "%s", found.text);
  return sound;
}

enum { ELF_HEADER = 64, OSABI_AT = 7, MACHINE_AT = 18, FLAGS_AT = 48, OSABI_13 = 65, CUDA_13 = 13000 };
/* EI_ABIVERSION, which the driver does not look at (measured: test_answers) */
enum { ABI_OF_12 = 7, ABI_OF_13 = 8 };

/* The architecture in a header: the OSABI says what the flags are (measured: test_answers). */
static int arch_of_header(const uint8_t *header) {
  uint32_t flags = art_u32(header + FLAGS_AT);
  return (int)(header[OSABI_AT] == OSABI_13 ? flags >> 8 & 0xfff : flags & 0xff);
}

bool cl_elf_is_known(const uint8_t *data, size_t size) {
  if (size < ELF_HEADER || art_u16(data + MACHINE_AT) != EM_CUDA) return true; /* judged by those who read on */
  for (size_t at = 0; at < sizeof elf_formats / sizeof *elf_formats; at++)
    if (data[OSABI_AT] == elf_formats[at].osabi && cl_config()->version >= elf_formats[at].since &&
        arch_of_header(data) >= elf_formats[at].from_arch)
      return true;
  return false;
}

/* A driver runs the code of newer toolkits only of the same major release: those of the next are refused even where
   they have a form that it knows. */
static bool is_of_next_major(const Elf *elf) {
  return elf->data[OSABI_AT] == OSABI_13 && cl_config()->version < CUDA_13 && cl_elf_release(elf) >= CUDA_13;
}

CUresult cl_elf_load(Elf *elf, const void *data, size_t size) {
  Problem found = {0};
  if (!cl_elf_is_known(data, size)) return CUDA_ERROR_NO_BINARY_FOR_GPU;
  if (art_elf_open(elf, (Bytes){data, size}, &found) && elf->machine == EM_CUDA) {
    elf->abi_version = elf->data[OSABI_AT] == OSABI_13 ? ABI_OF_13 : ABI_OF_12;
    if (art_cubin_check(elf, LATEST_KNOWN, &found))
      return is_of_next_major(elf) ? CUDA_ERROR_NO_BINARY_FOR_GPU : CUDA_SUCCESS;
  }
  return found.out_of_memory ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_IMAGE;
}

bool cl_elf_section(const Elf *elf, uint32_t index, ElfSection *section) {
  if (index >= elf->sections) return false;
  *section = art_elf_section(elf, index);
  return true;
}

const uint8_t *cl_elf_bytes(const Elf *elf, const ElfSection *section) {
  return art_elf_has_bytes(section->type) ? elf->data + section->offset : NULL;
}

bool cl_elf_symbol(const Elf *elf, uint32_t index, ElfSymbol *symbol) {
  ElfSymbols symbols = elf->sections ? art_elf_symbols(elf, elf->symbols) : (ElfSymbols){0};
  if (index >= symbols.count) return false;
  *symbol = art_elf_symbol(&symbols, index);
  return true;
}

int cl_elf_arch(const Elf *elf) {
  return elf->machine == EM_CUDA ? arch_of_header(elf->data) : (int)art_cubin_arch(elf);
}

int cl_elf_release(const Elf *elf) {
  uint32_t release = art_cubin_release(elf);
  return (int)(release >> 16) * 1000 + (int)(release & 0xffff) * 10;
}

/* -- PTX -- */

bool cl_ptx_head(const char *text, size_t size, int *version, int *target) {
  Bytes image = {(const uint8_t *)text, size};
  Problem problem;
  uint32_t major, minor;
  Ptx ptx;
  if (!art_ptx_begins(image, &major, &minor)) return false;
  *version = (int)(major * 10 + minor);
  *target = 0;
  if (!art_ptx_open(&ptx, image, &problem)) return true;
  char number[8] = {0};
  if (art_begins(ptx.target, "sm_"))
    memcpy(number, ptx.target.at + 3, ptx.target.size - 3 < 7 ? ptx.target.size - 3 : 7);
  *target = atoi(number);
  art_ptx_close(&ptx);
  return true;
}

typedef struct {
  Definition *found;
  void *context;
} Definitions;

static void take_definition(void *context, const char *name, size_t length, unsigned what) {
  Definitions *definitions = context;
  if (what & PTX_DEFINED) definitions->found(definitions->context, name, length);
}

void cl_ptx_definitions(const char *text, size_t size, Definition *found, void *context) {
  Definitions definitions = {found, context};
  Problem problem;
  Ptx ptx;
  if (!art_ptx_open(&ptx, (Bytes){(const uint8_t *)text, strnlen(text, size)}, &problem)) return;
  art_ptx_symbols(&ptx, take_definition, &definitions, &problem); /* what comes before an early end counts */
  art_ptx_close(&ptx);
}

/* Whether a declaration, behind ".extern", is of a variable whose size is known. */
static bool is_sized(const char *at, const char *end) {
  while (at < end && isspace((unsigned char)*at)) at++;
  const char *stop = memchr(at, ';', (size_t)(end - at));
  if (!stop || (strncmp(at, ".global", 7) != 0 && strncmp(at, ".const", 6) != 0)) return false;
  if (memmem(at, (size_t)(stop - at), "ref ", 4)) return false; /* .texref, .samplerref, .surfref */
  const char *bracket = memchr(at, '[', (size_t)(stop - at));
  return !bracket || bracket[1 + strspn(bracket + 1, " \t\r\n")] != ']';
}

enum { ISA_OF_PARTS = 31, ISA_OF_ADDRESS_SIZE = 23 };

bool cl_ptx_as_part(char *text, size_t size) {
  static const char whole[] = "\"enable_smem_spilling\"", external[] = ".extern", own[] = ".weak  ";
  int isa, target;
  if (!cl_ptx_head(text, size, &isa, &target)) return true;
  if (isa < ISA_OF_PARTS) {
    int newest = isa < 12 ? 11 : isa < 20 ? 13 : isa < 30 ? 21 : target;
    if (target > newest || (isa < ISA_OF_ADDRESS_SIZE && memmem(text, size, ".address_size", 13))) return false;
    char *number = text + art_ptx_start((Bytes){(const uint8_t *)text, size}) + strlen(".version");
    while (isspace((unsigned char)*number)) number++;
    number[0] = '3'; /* one digit each, as what they replace */
    number[2] = '1';
  }
  char *end = text + size;
  for (char *at = text; (at = memmem(at, (size_t)(end - at), whole, strlen(whole))); at++) at[1] = 'E';
  for (char *at = text; (at = memmem(at, (size_t)(end - at), external, strlen(external))); at++)
    if (is_sized(at + strlen(external), end)) memcpy(at, own, strlen(own));
  return true;
}
