/* The inputs of a link: each pair of a declared type and real bytes is answered as a driver was recorded to. */
#include "link_inputs.h"

#include <stdio.h>
#include <stdlib.h>

#include "caller_memory.h"
#include "calls.h"
#include "config.h"
#include "fatbins.h"

_Thread_local CUresult cl_ptx_failure;

typedef struct {
  State *state;
  const char *input;
  const Name *clash;
} Search;

static void look_for_clash(void *context, const char *name, size_t length) {
  Search *search = context;
  for (const Name *known = search->state->definitions; !search->clash && known; known = known->next)
    if (strlen(known->name) == length && !memcmp(known->name, name, length)) search->clash = known;
}

static void keep_definition(void *context, const char *name, size_t length) {
  Search *search = context;
  Name *fresh = malloc(sizeof *fresh + length + 1);
  if (!fresh) return;
  memcpy(fresh->name, name, length);
  fresh->name[length] = 0;
  fresh->input = search->input;
  fresh->next = search->state->definitions;
  search->state->definitions = fresh;
}

enum { STB_GLOBAL = 1, STT_SECTION = 3 };

static void each_definition(ImageKind kind, const void *data, size_t size, const Elf *elf, Definition *found,
                            void *context) {
  if (kind == IMAGE_PTX) {
    cl_ptx_definitions(data, size, found, context);
    return;
  }
  ElfSymbol symbol;
  for (uint32_t at = 1; kind == IMAGE_ELF && elf && cl_elf_symbol(elf, at, &symbol); at++)
    if (symbol.section && symbol.info >> 4 == STB_GLOBAL && (symbol.info & 15) != STT_SECTION)
      found(context, symbol.name, strlen(symbol.name));
}

/* Whether PTX was wrong on this thread, or an input fatal: later refusals have another code. */
static bool was_wrong(void) { return cl_ptx_failure && cl_ptx_failure != CUDA_ERROR_UNSUPPORTED_PTX_VERSION; }

/* The driver refuses a second strong definition when it is added; nvJitLink would link it and print to stdout. Once
   PTX was wrong on this thread, the refusal has another code, but not once it was only too new (measured:
   test_after_ptx_that_failed). */
static CUresult check_duplicates(State *state, ImageKind kind, const void *data, size_t size, const Elf *elf,
                                 const char *name) {
  Search search = {.state = state, .input = name};
  each_definition(kind, data, size, elf, look_for_clash, &search);
  if (search.clash) {
    cl_log_error(state, "error   : Multiple definition of '%s' in '%s', first defined in '%s'", search.clash->name,
                 name, search.clash->input);
    return cl_poison(state, was_wrong() ? CUDA_ERROR_UNKNOWN : CUDA_ERROR_INVALID_SOURCE);
  }
  each_definition(kind, data, size, elf, keep_definition, &search);
  return CUDA_SUCCESS;
}

static const char *keep_input_name(State *state, const char *name) {
  char numbered[32];
  snprintf(numbered, sizeof numbered, "Input %u", state->inputs);
  if (!name) name = numbered;
  Name *kept = malloc(sizeof *kept + strlen(name) + 1);
  if (!kept) return "";
  strcpy(kept->name, name);
  kept->next = state->inputs_named;
  state->inputs_named = kept;
  return kept->name;
}

/* Gives one input to nvJitLink. */
static CUresult give(State *state, ImageKind kind, bool host_object, const void *data, size_t size, const char *name) {
  LinkText text = {0};
  if (state->without_code) return CUDA_ERROR_INVALID_IMAGE;
  CUresult result = cl_linker_add(state->linker, kind, host_object, data, size, name, &text);
  if (result == CUDA_ERROR_NO_BINARY_FOR_GPU) cl_text_free(&text);
  cl_write_logs(state, &text, false);
  return result;
}

/* Where a real driver was seen to read behind the end of the data and crash (recorded: damage/cubin-cut-64). */
static CUresult cut_short(State *state, const char *what, const char *name, size_t size) {
  cl_log_error(state, "error   : '%s' is %s cut at %zu bytes, on which a real driver may crash", name, what, size);
  return CUDA_ERROR_INVALID_IMAGE;
}

/* Has data be a copy that goes on with zeros, for what ends a little early without a real driver noticing; returns it,
   or NULL if memory is out. */
static uint8_t *pad(const uint8_t **data, size_t *size, uint64_t wanted) {
  uint8_t *copy = calloc(1, wanted);
  if (!copy) return NULL;
  memcpy(copy, *data, *size);
  *data = copy;
  *size = wanted;
  return copy;
}

static CUresult fatal(State *state, const char *what) {
  cl_log_error(state, "fatal   : %s", what);
  return CUDA_ERROR_UNKNOWN;
}

enum {
  UNREAD_TAIL = 64,     /* bytes at the end of the last header that a real driver does not read */
  SMALLEST_ARCHIVE = 16 /* fewer are not looked into */
};

static CUresult not_recognized(State *state, int times) {
  while (times-- > 0) cl_log_error(state, "error   : Binary format for key='0', ident='' is not recognized");
  return CUDA_ERROR_INVALID_IMAGE;
}

static void no_code(State *state, const char *name) {
  LinkText text = {0};
  if (asprintf(&text.info, " No code for sm_%d in %s; continuing.", state->options.arch, name) < 0) text.info = NULL;
  cl_write_logs(state, &text, false);
}

/* A stand-in for the driver's own nvJitLink reads newer PTX than the driver did; a missing one reads nothing. */
static CUresult check_ptx_limit(State *state, const char *data) {
  int version, target, line = 1, limit = cl_config()->ptx_limit;
  if (!limit || !cl_ptx_head(data, strlen(data), &version, &target) || version <= limit) return CUDA_SUCCESS;
  for (const char *at = data; at < strstr(data, ".version"); at++) line += *at == '\n';
  cl_log_error(state,
               "ptxas application ptx input, line %d; fatal   : Unsupported .version %d.%d; current version is '%d.%d'",
               line, version / 10, version % 10, limit / 10, limit % 10);
  cl_ptx_failure = CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
  return cl_ptx_failure;
}

/* Compiles PTX apart from the link: a second definition of a symbol would make nvJitLink print to stdout. */
static CUresult compile_apart(State *state, const char *data, const char *name) {
  Linker *apart = NULL;
  LinkText text;
  CUresult result = cl_linker_open(&apart, &state->options, &text);
  if (!result) result = cl_linker_add(apart, IMAGE_PTX, false, data, strlen(data) + 1, name, &text);
  cl_linker_close(apart);
  cl_write_logs(state, &text, false);
  return result;
}

static CUresult add_ptx(State *state, const char *data, const char *name) {
  if (check_ptx_limit(state, data)) return cl_ptx_failure;
  if (!state->linker) return state->poison;
  Search search = {.state = state, .input = name};
  if (!state->without_code) each_definition(IMAGE_PTX, data, strlen(data), NULL, look_for_clash, &search);
  bool apart = search.clash || (state->poison && !state->without_code);
  CUresult result =
      apart ? compile_apart(state, data, name) : give(state, IMAGE_PTX, false, data, strlen(data) + 1, name);
  if (result) return cl_ptx_failure = result;
  return state->poison ? state->poison : check_duplicates(state, IMAGE_PTX, data, strlen(data), NULL, name);
}

enum { ET_REL = 1, ELF_HEADER = 64, TYPE_AT = 16, MACHINE_AT = 18 };

static unsigned machine_of(const uint8_t *elf) { return art_u16(elf + MACHINE_AT); }

/* Where the section table of an ELF image begins and ends, by its own header. */
static uint64_t sections_start(const uint8_t *data) { return art_u64(data + 40); }
static uint64_t sections_end(const uint8_t *data) { return sections_start(data) + (uint64_t)art_u16(data + 60) * 64; }

/* An ELF image where a cubin is expected; every failure spoils the state, as it does with a real driver. */
static CUresult add_cubin(State *state, const uint8_t *data, size_t size, const char *name) {
  Elf elf;
  char problem[128];
  uint8_t *copy = NULL;
  if (state->poison) return state->poison;
  uint64_t end = size >= ELF_HEADER ? sections_end(data) : 0;
  if (end > size && size < (size_t)2 * ELF_HEADER && data[ELF_CLASS_AT] == ELF_CLASS_64)
    return cl_poison(state, cut_short(state, "a cubin", name, size));
  if (size <= ELF_CLASS_AT || data[ELF_CLASS_AT] != ELF_CLASS_64 || (size >= 18 && art_u16(data + TYPE_AT) != ET_REL))
    return cl_poison(state, CUDA_ERROR_NO_BINARY_FOR_GPU);
  if (size < ELF_HEADER) return cl_poison(state, fatal(state, "Unknown arch name ''"));
  if (sections_start(data) >= size) return cl_poison(state, fatal(state, "Internal error: symsec not found"));
  if (end > size) {
    if (end - size >= UNREAD_TAIL) return cl_poison(state, fatal(state, "Internal error: section not mapped"));
    copy = pad(&data, &size, end);
    if (!copy) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  CUresult result;
  if (!cl_elf_open(&elf, data, size, problem, sizeof problem)) {
    cl_log_error(state, "error   : '%s' is a damaged cubin, on which a real driver may crash: %s", name, problem);
    result = cl_poison(state, CUDA_ERROR_INVALID_IMAGE);
  } else if (!cl_elf_arch(&elf)) result = cl_poison(state, fatal(state, "Unknown arch name ''"));
  else if (cl_elf_arch(&elf) != state->options.arch || cl_elf_release(&elf) > cl_config()->version)
    result = cl_poison(state, CUDA_ERROR_NO_BINARY_FOR_GPU);
  else {
    result = check_duplicates(state, IMAGE_ELF, data, size, &elf, name);
    if (!result) {
      /* the driver does not look at the machine; nvJitLink does */
      if (elf.machine != EM_CUDA && !copy) copy = pad(&data, &size, size);
      if (copy) {
        copy[MACHINE_AT] = EM_CUDA;
        copy[MACHINE_AT + 1] = 0;
      }
      result = give(state, IMAGE_ELF, false, data, size, name);
      if (result && result != CUDA_ERROR_OUT_OF_MEMORY) result = cl_poison(state, CUDA_ERROR_NO_BINARY_FOR_GPU);
    }
  }
  free(copy);
  return result;
}

static CUresult add_fatbin(State *state, const uint8_t *data, size_t size, const char *name, bool as_ptx) {
  FatbinEntry chosen = cl_fatbin_choice((Bytes){data, size}, state->options.arch, false);
  void *image;
  size_t image_size;
  if (state->poison && chosen.kind != FATBIN_PTX) return state->poison;
  if (!chosen.kind) {
    if (as_ptx) return CUDA_ERROR_NO_BINARY_FOR_GPU;
    no_code(state, name);
    return CUDA_SUCCESS;
  }
  CUresult result = cl_fatbin_image(&chosen, &image, &image_size);
  if (result == CUDA_ERROR_INVALID_IMAGE) return cl_poison(state, CUDA_ERROR_NO_BINARY_FOR_GPU);
  if (result) return result;
  if (chosen.kind == FATBIN_PTX) result = add_ptx(state, image, name);
  else if (cl_image_kind(image, image_size) == IMAGE_ELF) result = add_cubin(state, image, image_size, name);
  else result = cl_poison(state, CUDA_ERROR_INVALID_IMAGE);
  cl_refuse_image(result, "fatbin", image, image_size, state->options.arch);
  free(image);
  return result;
}

/* A copy of a fatbin up to the end of its last entry that is all there, as a fatbin that claims no more; NULL without
   such an entry, or without memory. Zeros in place of the rest would be empty entries, on which nvJitLink spins. */
static uint8_t *trimmed(const uint8_t *data, size_t size, size_t *kept) {
  Bytes image = {data, size};
  Problem problem;
  FatbinSize claimed;
  FatbinEntry entry;
  if (!art_fatbin_size(image, 0, &claimed, &problem)) return NULL;
  uint64_t at = claimed.header;
  while (art_fatbin_entry(image, &at, &entry, &problem)) {}
  uint8_t *copy = at > claimed.header ? malloc(at) : NULL;
  if (!copy) return NULL;
  memcpy(copy, data, at);
  for (int byte = 0; byte < 8; byte++) copy[8 + byte] = (uint8_t)((at - claimed.header) >> 8 * byte);
  *kept = at;
  return copy;
}

/* A fatbin whose end is missing still links if what fits the target is there. */
static CUresult add_cut_fatbin(State *state, const uint8_t *data, size_t size, const char *name, bool as_ptx) {
  size_t wanted = cl_fatbin_usable(data, size, state->options.arch), kept;
  if (!wanted) return cut_short(state, "a fatbin", name, size);
  if (wanted == size) return add_fatbin(state, data, size, name, as_ptx);
  uint8_t *copy = trimmed(data, size, &kept);
  if (!copy) return cut_short(state, "a fatbin", name, size);
  CUresult result = add_fatbin(state, copy, kept, name, as_ptx);
  free(copy);
  return result;
}

static CUresult add_object(State *state, const uint8_t *data, size_t size, const char *name) {
  uint8_t *copy = NULL;
  if (size < ELF_HEADER) return cut_short(state, "an object", name, size);
  uint64_t end = sections_end(data);
  if (end > size) {
    if (size < (size_t)2 * ELF_HEADER) return CUDA_ERROR_INVALID_IMAGE;
    if (end - size >= UNREAD_TAIL) return cut_short(state, "an object", name, size);
    copy = pad(&data, &size, end);
    if (!copy) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  CUresult result = machine_of(data) == EM_CUDA ? CUDA_ERROR_UNKNOWN : give(state, IMAGE_ELF, true, data, size, name);
  free(copy);
  if (result == CUDA_ERROR_NO_BINARY_FOR_GPU) return no_code(state, name), CUDA_SUCCESS;
  return result == CUDA_ERROR_UNKNOWN ? CUDA_ERROR_INVALID_IMAGE : result;
}

static CUresult add_library(State *state, const uint8_t *data, size_t size, const char *name) {
  uint8_t *copy = NULL;
  uint64_t wanted = art_archive_end((Bytes){data, size});
  if (!wanted || (wanted > size && wanted - size >= UNREAD_TAIL)) return cut_short(state, "a library", name, size);
  if (wanted > size) {
    copy = pad(&data, &size, wanted);
    if (!copy) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  CUresult result = give(state, IMAGE_ARCHIVE, false, data, size, name);
  free(copy);
  return result == CUDA_ERROR_UNKNOWN ? CUDA_ERROR_INVALID_IMAGE : result;
}

/* Adds one input by what the caller says it is and what its bytes are; the pairs are those of the recording. */
static CUresult add_input(State *state, int type, const uint8_t *data, size_t size, const char *name) {
  ImageKind kind = cl_image_kind(data, size);
  switch (type) {
    case CU_JIT_INPUT_CUBIN:
      if (kind == IMAGE_ELF) return add_cubin(state, data, size, name);
      return cl_poison(state, CUDA_ERROR_INVALID_IMAGE);
    case CU_JIT_INPUT_PTX:
    case CU_JIT_INPUT_FATBINARY:
      if (kind == IMAGE_PTX) return add_ptx(state, (const char *)data, name);
      if (kind == IMAGE_ELF && size > 19 && machine_of(data) == EM_CUDA) return add_cubin(state, data, size, name);
      if (kind == IMAGE_FATBIN) return add_cut_fatbin(state, data, size, name, type == CU_JIT_INPUT_PTX);
      return not_recognized(state, type == CU_JIT_INPUT_FATBINARY ? 2 : 1);
    case CU_JIT_INPUT_OBJECT:
      if (kind == IMAGE_ELF) return add_object(state, data, size, name);
      cl_log_error(state, "fatal   : Could not find fatbin in '%s'", name);
      return CUDA_ERROR_UNKNOWN;
    case CU_JIT_INPUT_LIBRARY:
      if (kind == IMAGE_ARCHIVE) return add_library(state, data, size, name);
      if (kind == IMAGE_PTX) return was_wrong() ? CUDA_ERROR_UNKNOWN : CUDA_ERROR_INVALID_IMAGE;
      if (size < SMALLEST_ARCHIVE) return CUDA_ERROR_INVALID_IMAGE;
      return fatal(state, "unexpected archive format");
    /* CU_JIT_LTO-IR of CUDA 12 and later is not the driver's */
    default: return cl_poison(state, CUDA_ERROR_JIT_COMPILER_NOT_FOUND);
  }
}

static CUresult check_input_options(unsigned count, const int *keys, void *const *values) {
  const uint64_t allowed =
      1ull << CU_JIT_MAX_REGISTERS | 1ull << CU_JIT_THREADS_PER_BLOCK | 1ull << CU_JIT_OPTIMIZATION_LEVEL |
      1ull << CU_JIT_GENERATE_DEBUG_INFO | 1ull << CU_JIT_LOG_VERBOSE | 1ull << CU_JIT_GENERATE_LINE_INFO |
      1ull << CU_JIT_CACHE_MODE | 1ull << CU_JIT_NEW_SM3X_OPT | 1ull << CU_JIT_FAST_COMPILE |
      1ull << CU_JIT_POSITION_INDEPENDENT_CODE | 1ull << CU_JIT_MIN_CTA_PER_SM | 1ull << CU_JIT_MAX_THREADS_PER_BLOCK |
      1ull << CU_JIT_OVERRIDE_DIRECTIVE_VALUES | 1ull << CU_JIT_SPLIT_COMPILE;
  if (!cl_can_have_options(count) || (count && (!keys || !values))) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned at = 0; at < count; at++)
    if (keys[at] < 0 || keys[at] >= OPTION_COUNT || !(allowed >> keys[at] & 1) ||
        (keys[at] == CU_JIT_MAX_REGISTERS && !(uint32_t)(uintptr_t)values[at]))
      return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

static CUresult add_data(State *state, int type, const void *data, size_t size, const char *name, unsigned count,
                         const int *keys, void *const *values) {
  if (!data || !size || type < 0 || type >= CU_JIT_NUM_INPUT_TYPES || check_input_options(count, keys, values) ||
      state->completed)
    return CUDA_ERROR_INVALID_VALUE;
  /* PTX and containers are looked into before a link remembers that it has failed (measured:
     test_inputs_of_a_link_that_has_failed) */
  bool examined = type == CU_JIT_INPUT_PTX || type == CU_JIT_INPUT_FATBINARY;
  /* PTX counts up to its NUL, whatever size was given (measured: add/size-cuts-text) */
  size_t whole = examined ? cl_text_size(data) : 0;
  bool ptx = examined && cl_image_kind(data, whole > size ? whole : size) == IMAGE_PTX;
  if (state->poison && !examined) return state->poison;
  state->inputs++;
  const char *kept = keep_input_name(state, name);
  if (ptx) {
    if (!whole) return cut_short(state, "PTX without its NUL,", kept, size);
    char *text = malloc(whole);
    if (!text) return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(text, data, whole);
    CUresult result = add_ptx(state, text, kept);
    free(text);
    return result;
  }
  return add_input(state, type, data, size, kept);
}

/* From a copy: the caller may have given any size, of which a link reads what the headers claim. */
static void note_refused(const State *state, CUresult result, const void *data, size_t size) {
  if (cl_image_kind(data, size) == IMAGE_PTX) size = cl_text_size(data);
  void *copy = size ? malloc(size) : NULL;
  if (copy && cl_read_safely(data, copy, size)) cl_refuse_image(result, NULL, copy, size, state->options.arch);
  free(copy);
}

CUresult cl_add_data(State *state, int type, const void *data, size_t size, const char *name, unsigned count,
                     const int *keys, void *const *values) {
  CUresult before = state->poison, ptx_before = cl_ptx_failure;
  Name *known = state->definitions;
  cl_refused_image(NULL);
  CUresult result = add_data(state, type, data, size, name, count, keys, values);
  char *failure = cl_take_linker_failure();
  if (failure) { /* the input was not added: it may be again */
    state->poison = before;
    cl_ptx_failure = ptx_before;
    cl_forget_definitions(state, known);
    cl_note_linker_failure(failure);
    free(failure);
    return CUDA_ERROR_UNKNOWN;
  }
  if (result == CUDA_ERROR_UNKNOWN && !was_wrong()) cl_ptx_failure = result; /* (measured: edges/links) */
  if (result && result == before && state->failure) cl_note_linker_failure(state->failure);
  char *inside = cl_take_refused_image();
  if (inside) cl_refused_image(inside);
  else if (data && result && result != before) note_refused(state, result, data, size);
  if (result != CUDA_ERROR_INVALID_VALUE) cl_write_sizes(state);
  return result;
}

CUresult cl_read_input(const char *path, void **data, size_t *size) {
  CUresult result = cl_read_file(path, data, size);
  if (result || *size) return result;
  free(*data);
  return CUDA_ERROR_INVALID_IMAGE;
}
