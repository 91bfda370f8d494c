/* Reading the options of just-in-time compilation: which there are, their values, and nvJitLink's words for them. */
#include "options.h"

#include <stdarg.h>
#include <stdio.h>

#include "caller_memory.h"
#include "config.h"
#include "grow.h"

#include "architectures.inc" /* targets, targets_without_code */
#include "option_names.inc"  /* option_names */

const char *cl_option_name(int key) { return key >= 0 && key < OPTION_COUNT ? option_names[key] : "optionValues"; }
bool cl_can_have_options(unsigned count) { return count <= MOST_OPTIONS; }

/* Whatever form a target has, the driver compiles for the architecture-specific profile (measured:
 * profile/0x5a-sm_90a). */
static char specific_profile(int arch) { return arch >= FIRST_SPECIFIC_ARCH ? 'a' : 0; }

enum { PLAIN, SPECIFIC, FAMILY }; /* forms of a target: sm_90, sm_90a, sm_100f */

/* Reads a value of CUjit_target: the number of an architecture, with the form of its suffix in the high half. */
static bool target_known(int64_t value, LinkOptions *options, bool *without_code) {
  int64_t number = value & 0xffff, form = value >> 16;
  int version = cl_config()->version;
  *without_code = false;
  for (size_t at = 0; at < sizeof targets_without_code / sizeof *targets_without_code; at++) {
    if (targets_without_code[at] != value) continue;
    options->arch = FIRST_ARCH_OF_13;
    *without_code = true; /* accepted at create, and no compiler for it (measured: create/target-0x1e) */
    return true;
  }
  for (const struct target *one = targets; one < targets + sizeof targets / sizeof *targets; one++) {
    if (one->number != number || one->since > version) continue;
    bool known = form == PLAIN || (form == SPECIFIC && one->specific) || (form == FAMILY && one->family);
    if (!known) return false;
    options->arch = one->renamed && version >= one->dropped ? one->renamed : one->number;
    options->suffix = specific_profile(options->arch);
    return true;
  }
  return false;
}

PRINTF(2, 3) static CUresult extra_option(LinkOptions *options, const char *format, ...) {
  char *text = NULL;
  va_list list;
  va_start(list, format);
  int length = vasprintf(&text, format, list);
  va_end(list);
  if (length < 0) return CUDA_ERROR_OUT_OF_MEMORY;
  bool grown = cl_grow(&options->extra, options->extra_size + (size_t)length, &options->extra_room, 1);
  if (grown) {
    memcpy(options->extra + options->extra_size, text, (size_t)length + 1);
    options->extra_size += (size_t)length + 1;
  }
  free(text);
  return grown ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Names that the caller gave as an array. */
static CUresult name_options(LinkOptions *options, const char *option, uint64_t array, uint64_t count) {
  for (uint64_t at = 0; at < count; at++) {
    const char *name;
    if (!cl_read_safely((const char *const *)(uintptr_t)array + at, &name, sizeof name) || !name)
      return CUDA_ERROR_INVALID_VALUE;
    TRY(extra_option(options, "%s=%s", option, name));
  }
  return CUDA_SUCCESS;
}

static uint32_t threads(uint32_t value) { return value < 32 ? 32 : value < 1024 ? value : 1024; }

/* Reads an option that applies to all inputs of a link. */
static CUresult read_option(LinkOptions *options, int key, uint32_t value) {
  switch (key) {
    case CU_JIT_MAX_REGISTERS:
      if (!value) return CUDA_ERROR_INVALID_VALUE;
      options->max_registers = (int)value;
      break;
    case CU_JIT_OPTIMIZATION_LEVEL: options->level = (int)value; break;
    case CU_JIT_GENERATE_DEBUG_INFO: options->debug = value; break;
    case CU_JIT_LOG_VERBOSE: options->verbose = value; break;
    case CU_JIT_GENERATE_LINE_INFO: options->line_info = value; break;
    case CU_JIT_CACHE_MODE:
      if (value > CU_JIT_CACHE_OPTION_CA) return CUDA_ERROR_INVALID_VALUE;
      return value ? extra_option(options, "-Xptxas=-dlcm=%s", value == CU_JIT_CACHE_OPTION_CG ? "cg" : "ca")
                   : CUDA_SUCCESS;
    case CU_JIT_NEW_SM3X_OPT: return extra_option(options, "-Xptxas=--new-sm3x-opt%s", value ? "" : "=false");
    case CU_JIT_FAST_COMPILE: return value ? extra_option(options, "-Xptxas=--fast-compile") : CUDA_SUCCESS;
    case CU_JIT_POSITION_INDEPENDENT_CODE:
      return value ? extra_option(options, "-Xptxas=--position-independent-code=true") : CUDA_SUCCESS;
    case CU_JIT_MIN_CTA_PER_SM: return extra_option(options, "-Xptxas=-minnctapersm=%u", value);
    case CU_JIT_THREADS_PER_BLOCK: /* an H200 dies of SIGFPE of 0, and of the largest number below */
      return value ? extra_option(options, "-Xptxas=-maxntid=%u", threads(value)) : CUDA_ERROR_INVALID_VALUE;
    case CU_JIT_MAX_THREADS_PER_BLOCK:
      return ~value ? extra_option(options, "-Xptxas=-maxntid=%u", value) : CUDA_ERROR_INVALID_VALUE;
    case CU_JIT_OVERRIDE_DIRECTIVE_VALUES: return extra_option(options, "-Xptxas=-override-directive-values");
    case CU_JIT_SPLIT_COMPILE: return extra_option(options, "-Xptxas=-split-compile=%u", value);
    default: break;
  }
  return CUDA_SUCCESS;
}

#define BIT(option) ((uint64_t)1 << (option))

/* Whether one of two options is given, which go together. */
static bool is_half(uint64_t given, int one, int other) { return !(given & BIT(one)) != !(given & BIT(other)); }

CUresult cl_read_options(JitOptions *options, OptionUse use, unsigned count, const int *keys, const uint64_t *values) {
  LinkOptions *link = &options->link;
  uint64_t given = 0, value_of[OPTION_COUNT] = {0};
  if (!cl_can_have_options(count) || (count && (!keys || !values))) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned at = 0; at < count; at++) {
    uint64_t value = values[at];
    if (keys[at] < 0 || keys[at] >= OPTION_COUNT) return CUDA_ERROR_INVALID_VALUE;
    given |= BIT(keys[at]);
    value_of[keys[at]] = value;
    switch (keys[at]) {
      case CU_JIT_WALL_TIME: options->wall_time = (int)at; break;
      case CU_JIT_THREADS_PER_BLOCK:
        options->threads = (int)at, options->most_threads = threads((uint32_t)value);
        break;
      case CU_JIT_INFO_LOG_BUFFER:
      case CU_JIT_ERROR_LOG_BUFFER:
        if (!value) return CUDA_ERROR_INVALID_VALUE;
        (keys[at] == CU_JIT_INFO_LOG_BUFFER ? &options->info : &options->error)->buffer = (char *)(uintptr_t)value;
        break;
      case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
      case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES: {
        LogBuffer *log = keys[at] == CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES ? &options->info : &options->error;
        log->capacity = (uint32_t)value;
        log->slot = at;
        break;
      }
      case CU_JIT_TARGET:
        if (!target_known((int64_t)(uint32_t)value, link, &options->without_code)) return CUDA_ERROR_INVALID_VALUE;
        break;
      case CU_JIT_FALLBACK_STRATEGY:
        if (use == FOR_LINK) return CUDA_ERROR_INVALID_VALUE; /* "cannot be used with cuLink* APIs" (cuda.h) */
        break;
      case CU_JIT_GLOBAL_SYMBOL_NAMES:
      case CU_JIT_GLOBAL_SYMBOL_ADDRESSES:
      case CU_JIT_GLOBAL_SYMBOL_COUNT: return CUDA_ERROR_INVALID_VALUE;
      default: break;
    }
    TRY(read_option(link, keys[at], (uint32_t)value));
  }
  if (is_half(given, CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES) ||
      is_half(given, CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) ||
      (given & BIT(CU_JIT_TARGET) && given & BIT(CU_JIT_THREADS_PER_BLOCK)))
    return CUDA_ERROR_INVALID_VALUE;
  const int names[] = {CU_JIT_REFERENCED_KERNEL_NAMES, CU_JIT_REFERENCED_VARIABLE_NAMES};
  for (int at = 0; at < 2; at++)
    if (given & BIT(names[at]) ? !value_of[names[at]] : use == FOR_LINK && value_of[names[at] + 1])
      return CUDA_ERROR_INVALID_VALUE; /* of a link's names that are not there an H200 dies */
  for (int at = 0; at < 2; at++)
    if (given & BIT(names[at]))
      TRY(name_options(link, at ? "-variables-used" : "-kernels-used", value_of[names[at]],
                       (uint32_t)value_of[names[at] + 1]));
  return CUDA_SUCCESS;
}

JitOptions cl_device_options(void) {
  JitOptions options = {.link = {.arch = cl_config()->arch, .level = -1}, .wall_time = -1, .threads = -1};
  options.link.suffix = specific_profile(options.link.arch);
  return options;
}

void cl_options_free(LinkOptions *options) {
  free(options->extra);
  options->extra = NULL;
  options->extra_size = options->extra_room = 0;
}

bool cl_options_equal(const LinkOptions *options, const LinkOptions *others) {
  return options->arch == others->arch && options->suffix == others->suffix &&
         options->max_registers == others->max_registers && options->level == others->level &&
         options->debug == others->debug && options->line_info == others->line_info &&
         options->verbose == others->verbose && options->extra_size == others->extra_size &&
         (!options->extra_size || !memcmp(options->extra, others->extra, options->extra_size));
}

size_t cl_log_shown(uint64_t capacity, size_t length, uint32_t *size) {
  if (capacity < 2) { /* no room for a character: nothing is reported (measured: log/error-of-1) */
    *size = 0;
    return 0;
  }
  *size = (uint32_t)(length < capacity ? length : capacity);
  return length < capacity ? length : capacity - 1;
}

uint32_t cl_wall_time(const struct timespec *since) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  float milliseconds = (float)(now.tv_sec - since->tv_sec) * 1e3f + (float)(now.tv_nsec - since->tv_nsec) * 1e-6f;
  uint32_t bits;
  memcpy(&bits, &milliseconds, sizeof bits);
  return bits;
}
