/* Reading images. */
#include "image.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "caller.h"

enum {
  SHT_SYMTAB = 2,
  SHT_STRTAB = 3,
  SHT_NOTE = 7,
  SHT_NOBITS = 8,
  NV_GLOBAL = 0x70000007,
  NV_LOCAL = 0x70000009,
  NV_SHARED = 0x7000000a,
  NV_SHARED_RESERVED = 0x70000015,
  NOTE_TOOL = 2000,
};

static uint16_t u16(const uint8_t *at) { return (uint16_t)(at[0] | at[1] << 8); }
static uint32_t u32(const uint8_t *at) { return u16(at) | (uint32_t)u16(at + 2) << 16; }
static uint64_t u64(const uint8_t *at) { return u32(at) | (uint64_t)u32(at + 4) << 32; }

uint64_t cl_little(const uint8_t *at, int bytes) {
  uint64_t value = 0;
  while (bytes-- > 0) value = value << 8 | at[bytes];
  return value;
}

/* -- kinds -- */

static size_t skip_space(const char *text, size_t at, size_t size) {
  while (at < size) {
    if (isspace((unsigned char)text[at])) at++;
    else if (at + 1 < size && text[at] == '/' && text[at + 1] == '/') {
      while (at < size && text[at] != '\n') at++;
    } else if (at + 1 < size && text[at] == '/' && text[at + 1] == '*') {
      at += 2;
      while (at + 1 < size && !(text[at] == '*' && text[at + 1] == '/')) at++;
      at = at + 2 < size ? at + 2 : size;
    } else break;
  }
  return at;
}

ImageKind cl_image_kind(const void *data, size_t size) {
  const uint8_t *bytes = data;
  if (size >= 4 && !memcmp(bytes, "\177ELF", 4)) return IMAGE_ELF;
  if (size >= 4 && !memcmp(bytes, "\x50\xed\x55\xba", 4)) return IMAGE_FATBIN;
  if (size >= 4 && !memcmp(bytes, "\xed\x43\x4e\x7f", 4)) return IMAGE_LTOIR;
  if (size >= 8 && !memcmp(bytes, "!<arch>\n", 8)) return IMAGE_ARCHIVE;
  size_t at = skip_space(data, 0, size);
  if (size - at >= 9 && !memcmp(bytes + at, ".version", 8) && isspace(bytes[at + 8])) return IMAGE_PTX;
  return IMAGE_UNKNOWN;
}

enum { IMAGE_LIMIT = 0x40000000 }; /* bytes; a damaged header may claim anything */

/* The size of an image by its own headers; 0 if they do not give one. */
static uint64_t claimed_size(const uint8_t head[64]) {
  if (!memcmp(head, "\177ELF", 4)) {
    /* the section table or the program headers come last */
    uint64_t sections = u64(head + 40) + (uint64_t)u16(head + 58) * u16(head + 60);
    uint64_t segments = u64(head + 32) + (uint64_t)u16(head + 54) * u16(head + 56);
    uint64_t end = sections > segments ? sections : segments;
    return head[ELF_CLASS_AT] != ELF_CLASS_64 || end < 64 || end > IMAGE_LIMIT ? 64 : end;
  }
  if (!memcmp(head, "\x50\xed\x55\xba", 4)) {
    uint64_t header = u16(head + 6), body = u64(head + 8);
    return header < 16 || body > IMAGE_LIMIT ? 16 : header + body;
  }
  if (!memcmp(head, "\xed\x43\x4e\x7f", 4) || !memcmp(head, "!<arch>\n", 8)) return 8; /* no module can be made of it */
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

/* An ELF and a fatbin know their size, a text ends with NUL. Nothing is read that is not there. */
CUresult cl_copy_image(const void *data, void **copy, size_t *size) {
  uint8_t head[64] = {0};
  size_t step = rest_of_page(data);
  if (!cl_read_safely(data, head, sizeof head) && (step >= sizeof head || !cl_read_safely(data, head, step)))
    return CUDA_ERROR_INVALID_IMAGE;
  *size = (size_t)claimed_size(head);
  if (!*size) *size = cl_text_size(data);
  if (!*size) return CUDA_ERROR_INVALID_IMAGE;
  *copy = malloc(*size);
  if (!*copy) return CUDA_ERROR_OUT_OF_MEMORY;
  if (cl_read_safely(data, *copy, *size)) return CUDA_SUCCESS;
  free(*copy);
  return CUDA_ERROR_INVALID_IMAGE;
}

CUresult cl_read_file(const char *path, void **data, size_t *size) {
  struct stat about;
  if (!path) return CUDA_ERROR_INVALID_VALUE;
  FILE *file = stat(path, &about) || !S_ISREG(about.st_mode) ? NULL : fopen(path, "rb");
  if (!file) return CUDA_ERROR_FILE_NOT_FOUND;
  *size = (size_t)about.st_size;
  *data = calloc(1, *size + 64);
  bool read = *data && fread(*data, 1, *size, file) == *size;
  fclose(file);
  if (read) return CUDA_SUCCESS;
  free(*data);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

/* -- containers -- */

enum { FATBIN_HEADER = 16, FATBIN_ENTRY = 64, FATBIN_ELF = 2, FATBIN_PACKED = 0x2000 | 0x8000 };

size_t cl_fatbin_usable(const uint8_t *data, size_t size, int arch) {
  if (size < FATBIN_HEADER) return 0;
  uint64_t header = u16(data + 6), body = u64(data + 8);
  if (header < FATBIN_HEADER || body > IMAGE_LIMIT) return 0;
  size_t wanted = (size_t)(header + body);
  bool found = false, whole = true;
  for (size_t at = (size_t)header; at < wanted;) {
    if (at > size || size - at < FATBIN_ENTRY) return found ? (wanted > size ? wanted : size) : 0;
    uint64_t entry = u32(data + at + 4), payload = u64(data + at + 8);
    if (entry < FATBIN_ENTRY || entry > UINT32_MAX || payload > UINT32_MAX) return 0;
    bool inside = entry + payload <= size - at;
    if (u16(data + at) == FATBIN_ELF && u32(data + at + 28) == (uint32_t)arch) {
      char problem[128];
      Elf elf;
      bool packed = u64(data + at + 40) & FATBIN_PACKED;
      if (!inside || (!packed && !cl_elf_open(&elf, data + at + entry, (size_t)payload, problem, sizeof problem)))
        return 0;
      found = true;
    }
    whole = whole && inside;
    at += (size_t)(entry + payload);
  }
  return found || whole ? (wanted > size ? wanted : size) : 0;
}

enum { AR_MAGIC = 8, AR_HEADER = 60, AR_SIZE_AT = 48 };

uint64_t cl_archive_size(const uint8_t *data, size_t size) {
  uint64_t at = AR_MAGIC;
  while (at < size) {
    if (size - at < AR_HEADER) return 0;
    uint64_t length = 0;
    for (int digit = 0; digit < 10 && isdigit(data[at + AR_SIZE_AT + (size_t)digit]); digit++)
      length = length * 10 + (uint64_t)(data[at + AR_SIZE_AT + (size_t)digit] - '0');
    at += AR_HEADER + length;
    if (at < size) at += at & 1; /* members begin at even places; the last one need not be filled up */
  }
  return at;
}

/* -- ELF -- */

static bool fail(char *problem, size_t size, const char *text) {
  snprintf(problem, size, "%s", text);
  return false;
}

bool cl_elf_section(const Elf *elf, uint32_t index, ElfSection *section) {
  if (index >= elf->sections) return false;
  const uint8_t *at = elf->data + elf->section_table + (size_t)index * 64;
  *section = (ElfSection){
      .type = u32(at + 4),
      .flags = u64(at + 8),
      .address = u64(at + 16),
      .offset = u64(at + 24),
      .size = u64(at + 32),
      .link = u32(at + 40),
      .info = u32(at + 44),
      .align = u64(at + 48),
      .entry_size = u64(at + 56),
      .name = "",
  };
  const uint8_t *names = elf->data + elf->section_table + (size_t)elf->names * 64;
  if (elf->names < elf->sections) section->name = (const char *)elf->data + u64(names + 24) + u32(at);
  return true;
}

static bool has_bytes(uint32_t type) {
  return type != SHT_NOBITS && type != NV_GLOBAL && type != NV_LOCAL && type != NV_SHARED && type != NV_SHARED_RESERVED;
}

/* Whether a section is a string table within the image that ends with NUL. */
static bool strings_ok(const Elf *elf, uint32_t index, uint64_t *size) {
  if (index >= elf->sections) return false;
  const uint8_t *at = elf->data + elf->section_table + (size_t)index * 64;
  uint64_t offset = u64(at + 24);
  *size = u64(at + 32);
  return u32(at + 4) == SHT_STRTAB && *size && offset <= elf->size && *size <= elf->size - offset &&
         !elf->data[offset + *size - 1];
}

bool cl_elf_open(Elf *elf, const void *data, size_t size, char *problem, size_t problem_size) {
  const uint8_t *bytes = data;
  memset(elf, 0, sizeof *elf);
  if (size < 64 || memcmp(bytes, "\177ELF\x02\x01", 6))
    return fail(problem, problem_size, "no 64-bit little-endian ELF header");
  elf->data = bytes;
  elf->size = size;
  elf->abi_version = bytes[8];
  elf->type = u16(bytes + 16);
  elf->machine = u16(bytes + 18);
  elf->version = u32(bytes + 20);
  elf->flags = u32(bytes + 48);
  elf->section_table = u64(bytes + 40);
  elf->sections = u16(bytes + 60);
  elf->names = u16(bytes + 62);
  if (!elf->sections || u16(bytes + 58) != 64 || elf->section_table > size ||
      (uint64_t)elf->sections * 64 > size - elf->section_table)
    return fail(problem, problem_size, "the section table ends outside of the image");
  uint64_t segments = u64(bytes + 32), segment_bytes = (uint64_t)u16(bytes + 54) * u16(bytes + 56);
  if (segment_bytes && (segments > size || segment_bytes > size - segments))
    return fail(problem, problem_size, "the program headers end outside of the image");
  uint64_t names_size;
  if (!strings_ok(elf, elf->names, &names_size))
    return fail(problem, problem_size, "the section names are no string table");
  for (uint32_t index = 1; index < elf->sections; index++) {
    const uint8_t *at = bytes + elf->section_table + (size_t)index * 64;
    uint32_t type = u32(at + 4);
    uint64_t offset = u64(at + 24), length = u64(at + 32);
    if (u32(at) >= names_size) return fail(problem, problem_size, "a section's name starts outside of the names");
    if (u32(at + 40) >= elf->sections) return fail(problem, problem_size, "a section refers to one that is not there");
    if (has_bytes(type) && (offset > size || length > size - offset))
      return fail(problem, problem_size, "a section ends outside of the image");
    if (type != SHT_SYMTAB) continue;
    uint64_t strings;
    if (u64(at + 56) != 24 || length % 24 || !strings_ok(elf, u32(at + 40), &strings))
      return fail(problem, problem_size, "the symbol table is inconsistent");
    elf->symbols = index;
    for (uint64_t symbol = 0; symbol < length / 24; symbol++) {
      const uint8_t *entry = bytes + offset + symbol * 24;
      uint16_t home = u16(entry + 6);
      if (u32(entry) >= strings) return fail(problem, problem_size, "a symbol's name starts outside of the names");
      if (home >= elf->sections && home < 0xfff1)
        return fail(problem, problem_size, "a symbol lies in a section that is not there");
    }
  }
  return true;
}

const uint8_t *cl_elf_bytes(const Elf *elf, const ElfSection *section) {
  return has_bytes(section->type) ? elf->data + section->offset : NULL;
}

bool cl_elf_symbol(const Elf *elf, uint32_t index, ElfSymbol *symbol) {
  ElfSection table, names;
  if (!elf->symbols || !cl_elf_section(elf, elf->symbols, &table) || index >= table.size / 24 ||
      !cl_elf_section(elf, table.link, &names))
    return false;
  const uint8_t *entry = elf->data + table.offset + (size_t)index * 24;
  *symbol = (ElfSymbol){
      .name = (const char *)elf->data + names.offset + u32(entry),
      .info = entry[4],
      .other = entry[5],
      .section = u16(entry + 6),
      .value = u64(entry + 8),
      .size = u64(entry + 16),
  };
  return true;
}

/* With ELF ABI version 8 the architecture moved from the first byte of e_flags to the second and third. */
int cl_elf_arch(const Elf *elf) {
  return elf->abi_version >= 8 ? (int)(elf->flags >> 8 & 0xfff) : (int)(elf->flags & 0xff);
}

int cl_elf_release(const Elf *elf) {
  int release = 0;
  ElfSection section;
  for (uint32_t index = 1; cl_elf_section(elf, index, &section); index++) {
    if (section.type != SHT_NOTE) continue;
    uint64_t at = section.offset, end = section.offset + section.size;
    while (end - at >= 12) {
      uint64_t name = ((uint64_t)u32(elf->data + at) + 3) & ~(uint64_t)3, length = u32(elf->data + at + 4);
      uint32_t type = u32(elf->data + at + 8);
      uint64_t start = at + 12 + name;
      if (start > end || length > end - start) break;
      /* the note of a tool has its version as text: "… release 13.0, V13.0.88" */
      for (uint64_t c = start; type == NOTE_TOOL && c + 12 < start + length; c++) {
        int major, minor;
        char text[24] = {0};
        if (memcmp(elf->data + c, "release ", 8)) continue;
        memcpy(text, elf->data + c + 8, start + length - c - 8 < 16 ? start + length - c - 8 : 16);
        if (sscanf(text, "%d.%d", &major, &minor) == 2 && major * 1000 + minor * 10 > release)
          release = major * 1000 + minor * 10;
      }
      at = start + ((length + 3) & ~(uint64_t)3);
      if (at > end) break;
    }
  }
  if (!release && elf->version >= 120 && elf->version <= 129)
    release = (int)(elf->version / 10) * 1000 + (int)(elf->version % 10) * 10;
  return release;
}

/* -- PTX -- */

static bool name_char(char c) { return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '%'; }

bool cl_ptx_head(const char *text, size_t size, int *version, int *target) {
  size_t at = skip_space(text, 0, size);
  int major = 0, minor = 0;
  char head[32] = {0};
  if (size - at < 9 || memcmp(text + at, ".version", 8)) return false;
  memcpy(head, text + at + 8, size - at - 8 < sizeof head - 1 ? size - at - 8 : sizeof head - 1);
  if (sscanf(head, " %d.%d", &major, &minor) != 2) return false;
  *version = major * 10 + minor;
  *target = 0;
  while (at < size) {
    at = skip_space(text, at, size);
    if (size - at > 11 && !memcmp(text + at, ".target", 7)) {
      at = skip_space(text, at + 7, size);
      if (size - at > 3 && !memcmp(text + at, "sm_", 3)) *target = atoi(text + at + 3);
      break;
    }
    while (at < size && !isspace((unsigned char)text[at])) at++;
  }
  return true;
}

void cl_ptx_definitions(const char *text, size_t size, Definition *found, void *context) {
  /* Statements at depth 0: words up to ';' or '{'. A strong external definition is a visible function with a body or a
   * visible variable; its name is the last word before its parameters, its initializer or its end. */
  size_t at = 0;
  while (at < size && text[at]) {
    bool visible = false, function = false, variable = false, closed = false, named = false;
    size_t name = 0, length = 0;
    int parentheses = 0;
    while (at < size && text[at]) {
      at = skip_space(text, at, size);
      if (at >= size || !text[at]) break;
      char c = text[at];
      if (c == ';' || c == '{' || c == '=') {
        if (c == '{' && function && visible && length) found(context, text + name, length);
        if (c != '{' && variable && visible && length) found(context, text + name, length);
        closed = c == ';';
        break;
      }
      if (c == '(') {
        /* a function's first parentheses before its name hold its return value */
        parentheses++;
        if (length && parentheses == 1) named = true;
        at++;
      } else if (c == ')') {
        parentheses--;
        at++;
      } else if (c == '.') {
        size_t start = at++;
        while (at < size && name_char(text[at])) at++;
        size_t word = at - start;
        if (word == 8 && !memcmp(text + start, ".visible", 8)) visible = true;
        else if ((word == 5 && !memcmp(text + start, ".func", 5)) || (word == 6 && !memcmp(text + start, ".entry", 6)))
          function = true;
        else if ((word == 7 && !memcmp(text + start, ".global", 7)) ||
                 (word == 6 && !memcmp(text + start, ".const", 6))) {
          if (!function) variable = true;
        } else if ((word == 8 && !memcmp(text + start, ".version", 8)) ||
                   (word == 7 && !memcmp(text + start, ".target", 7)) ||
                   (word == 13 && !memcmp(text + start, ".address_size", 13))) {
          while (at < size && text[at] != '\n') at++; /* directives that end with their line */
          break;
        }
      } else if (name_char(c)) {
        size_t start = at;
        while (at < size && name_char(text[at])) at++;
        if (!named && !parentheses && (function || variable) && !isdigit((unsigned char)c)) {
          name = start;
          length = at - start;
        }
      } else if (c == '[') {
        named = true;
        at++;
      } else at++;
    }
    if (at >= size || !text[at]) break;
    if (closed) {
      at++;
      continue;
    }
    /* skip an initializer up to ';', or a body with everything in it */
    int depth = 0;
    for (; at < size && text[at]; at++) {
      if (text[at] == '/' && at + 1 < size && (text[at + 1] == '/' || text[at + 1] == '*')) {
        size_t after = skip_space(text, at, size);
        at = after > at ? after - 1 : at;
      } else if (text[at] == '"') {
        for (at++; at < size && text[at] && text[at] != '"'; at++) {}
      } else if (text[at] == '{') depth++;
      else if (text[at] == '}') {
        if (--depth == 0 && function) {
          at++;
          break;
        }
      } else if (depth == 0 && (text[at] == ';' || (!function && !variable && text[at] == '\n'))) {
        at++;
        break;
      }
    }
  }
}
