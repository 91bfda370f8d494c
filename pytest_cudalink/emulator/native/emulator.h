/* The emulated driver: what its parts share. Includes no CUDA header; types and numbers are those of the driver's ABI. */
#ifndef CUDALINK_EMULATOR_H
#define CUDALINK_EMULATOR_H

#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))
#define PRINTF(text, first) __attribute__((format(printf, text, first)))

typedef int CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;

/* Codes that the emulator answers with; cuGetErrorName knows them all. */
enum {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_NOT_INITIALIZED = 3,
  CUDA_ERROR_DEINITIALIZED = 4,
  CUDA_ERROR_NO_DEVICE = 100,
  CUDA_ERROR_INVALID_DEVICE = 101,
  CUDA_ERROR_INVALID_IMAGE = 200,
  CUDA_ERROR_INVALID_CONTEXT = 201,
  CUDA_ERROR_NO_BINARY_FOR_GPU = 209,
  CUDA_ERROR_UNSUPPORTED_LIMIT = 215,
  CUDA_ERROR_INVALID_PTX = 218,
  CUDA_ERROR_JIT_COMPILER_NOT_FOUND = 221,
  CUDA_ERROR_UNSUPPORTED_PTX_VERSION = 222,
  CUDA_ERROR_INVALID_SOURCE = 300,
  CUDA_ERROR_FILE_NOT_FOUND = 301,
  CUDA_ERROR_INVALID_HANDLE = 400,
  CUDA_ERROR_NOT_FOUND = 500,
  CUDA_ERROR_CONTEXT_IS_DESTROYED = 709,
  CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712,
  CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED = 713,
  CUDA_ERROR_NOT_SUPPORTED = 801,
  CUDA_ERROR_UNKNOWN = 999,
};

/* -- names (generated from data/functions.toml) -- */

#define SYMBOL_IDS_ONLY
#include "names.inc"
#undef SYMBOL_IDS_ONLY

typedef struct {
  const char *name;
  int since; /* driver version that introduced it; 0 where the headers do not say */
  void *address;
} Symbol;

extern const Symbol cl_symbols[SYMBOL_COUNT];

/* -- configuration, from the environment -- */

typedef struct {
  int version;          /* 13000 */
  char release[32];     /* "580.65.06" */
  int arch;             /* 90 */
  int devices;          /* how many */
  char nvjitlink[1024]; /* path of the libnvJitLink that links; empty: none was found */
  char nvjitlink_old[1024]; /* path of one for architectures that the other no longer knows */
  char toolchain[32];   /* what `cudalink toolchain add` needs for the missing one */
  char events[1024];    /* file that events are appended to; empty: none */
  bool lifetime;        /* whether memory is checked */
  int perturb;          /* what malloc writes over freed memory; 0: nothing */
  bool punish;          /* whether dead memory is written to all the same */
} Config;

enum { DEVICES_MAX = 64 };

const Config *cl_config(void);

/* -- entering and leaving a function -- */

/* One call of an exported function: its faults, its event. */
typedef struct {
  Sym symbol;
  CUresult result;
} Call;

/* Begins a call; false if it must return call->result at once: an injected fault, a lost device, no cuInit. */
bool cl_enter(Call *call, Sym symbol, bool needs_init);
/* Ends it: writes the event with the arguments that matter, as JSON members, and returns the result. */
CUresult cl_leave(Call *call, CUresult result, const char *arguments, ...) PRINTF(3, 4);

#define ENTER(name)                                   \
  Call call;                                          \
  if (!cl_enter(&call, SYM_##name, true)) return call.result
#define ENTER_ANY_TIME(name)                          \
  Call call;                                          \
  if (!cl_enter(&call, SYM_##name, false)) return call.result
#define LEAVE(result, ...) return cl_leave(&call, (result), __VA_ARGS__)

/* -- events -- */

/* Appends one event; the text is a JSON object without its braces. */
void cl_event(const char *format, ...) PRINTF(1, 2);
/* Copies text into a JSON string's inside, cut to the size. */
const char *cl_json(const char *text, char *out, size_t size);

/* -- the process's driver state -- */

extern pthread_mutex_t cl_lock;    /* every table below */
extern pthread_mutex_t cl_placing; /* giving the variables of a module their memory */

bool cl_initialized(void);
CUresult cl_initialize(unsigned flags);

typedef struct Context Context;
struct Context {
  uint32_t magic;
  CUdevice device;
  bool primary;
  bool dead;
  unsigned flags;
  unsigned references;
  uint64_t id;
  uint64_t peers; /* devices whose memory it may access, one bit each */
  size_t limits[10];
};

/* The calling thread's current context, or NULL; *result is what a call that needs one must answer. */
Context *cl_context(CUresult *result);

#define NEED_CONTEXT(variable)                               \
  CUresult context_result;                                   \
  Context *variable = cl_context(&context_result);           \
  (void)variable;                                            \
  if (context_result) LEAVE(context_result, "")

int cl_device_attribute(int attribute, int *value); /* 0, or an error code */
size_t cl_device_memory(void);
const char *cl_device_name(void);
void cl_device_uuid(CUdevice device, unsigned char uuid[16]);

/* -- memory of the device -- */

/* Allocates; the address is that of host memory. 0 when there is none left. */
CUdeviceptr cl_allocate(size_t size);
bool cl_release(CUdeviceptr address);
/* Frees what a context owns, when it dies; under cl_lock. */
void cl_release_context(const Context *context);

/* -- handles -- */

/* CUDA_ERROR_INVALID_HANDLE for what is neither a living stream nor one of the default ones. */
CUresult cl_check_stream(const void *stream);

/* -- the caller's memory, which may be dead -- */

/* Reads without a fault; false if some page is not there. */
bool cl_read_safely(const void *from, void *to, size_t size);
/* Writes without a fault; false if some page is not there. */
bool cl_write_safely(void *to, const void *from, size_t size);

/* -- reading images -- */

typedef struct {
  const char *name; /* inside the image; the image outlives this */
  uint64_t value, size;
  uint16_t section;
  uint8_t info, other;
} ElfSymbol;

typedef enum { IMAGE_UNKNOWN, IMAGE_PTX, IMAGE_ELF, IMAGE_FATBIN, IMAGE_LTOIR, IMAGE_ARCHIVE } ImageKind;

/* A sound ELF image, with its tables where they lie in the data. */
typedef struct {
  const uint8_t *data;
  size_t size;
  uint16_t type, machine;
  uint32_t version, flags;
  uint8_t abi_version;
  uint64_t section_table;
  uint32_t sections;
  uint32_t names;       /* section with the section names */
  uint32_t symbols;     /* section with the symbols; 0: none */
} Elf;

typedef struct {
  const char *name;
  uint32_t type;
  uint64_t flags, address, offset, size;
  uint32_t link, info;
  uint64_t align, entry_size;
} ElfSection;

ImageKind cl_image_kind(const void *data, size_t size);
/* A copy of an image whose caller did not say its size, with its size; NULL if it is not all there. */
void *cl_copy_image(const void *data, size_t *size);
/* The size of a text with its NUL; 0 if memory ends before one. */
size_t cl_text_size(const char *text);
/* A file's bytes, with zeros behind them: text gets its NUL, and the head of a short file can be looked at. Owned. */
CUresult cl_read_file(const char *path, void **data, size_t *size);
/* Reads the header and checks every table; on failure `problem` says what is wrong. */
bool cl_elf_open(Elf *elf, const void *data, size_t size, char *problem, size_t problem_size);
bool cl_elf_section(const Elf *elf, uint32_t index, ElfSection *section);
bool cl_elf_symbol(const Elf *elf, uint32_t index, ElfSymbol *symbol);
/* The bytes of a section; NULL for one that has none in the image. */
const uint8_t *cl_elf_bytes(const Elf *elf, const ElfSection *section);
int cl_elf_arch(const Elf *elf);
/* CUDA release that wrote it, as 13000; 0 if it does not say. */
int cl_elf_release(const Elf *elf);

/* The size that a fatbin says it has, or that of the data if that is more, when all that suits the architecture lies
   within the data; 0 when it does not. */
size_t cl_fatbin_usable(const uint8_t *data, size_t size, int arch);
/* Where the last member of an archive ends; 0 when a member's header is cut. */
uint64_t cl_archive_size(const uint8_t *data, size_t size);

/* Calls back for each strong external definition of a PTX text. */
typedef void Definition(void *context, const char *name, size_t length);
void cl_ptx_definitions(const char *text, size_t size, Definition *found, void *context);
/* The .version of a PTX text as 90 for 9.0, and its .target; false if the text is no PTX. */
bool cl_ptx_head(const char *text, size_t size, int *version, int *target);

/* -- linking, also for modules -- */

typedef struct Linker Linker; /* one nvJitLink handle */

typedef struct {
  int arch;
  char suffix;            /* 'a', 'f' or 0 */
  int max_registers;      /* 0: not given */
  int level;              /* -1: not given */
  bool debug, line_info, verbose;
  char *extra;            /* further options, each with its NUL; owned */
  size_t extra_size;
} LinkOptions;

/* Text of one call, from nvJitLink's logs, in the driver's words. */
typedef struct {
  char *error, *info; /* owned; NULL: none */
} LinkText;

CUresult cl_linker_open(Linker **linker, const LinkOptions *options, LinkText *text);
CUresult cl_linker_add(Linker *linker, ImageKind kind, bool host_object, const void *data, size_t size, const char *name,
                       LinkText *text);
/* CUDA_ERROR_INVALID_SOURCE for an undefined symbol: there is an image all the same. */
CUresult cl_linker_complete(Linker *linker, void **image, size_t *size, LinkText *text);
void cl_linker_close(Linker *linker);
void cl_linker_unlock_in_child(void);
void cl_text_free(LinkText *text);

/* Compiles PTX, or takes what fits out of a fatbin, for the device; the image is owned by the caller. */
CUresult cl_compile(const void *data, size_t size, const LinkOptions *options, void **image, size_t *image_size,
                    LinkText *text);

#endif
