/* The head and the symbols of PTX text, in one pass each: what was passed over is never read again, except for a word
 * or two, so that a text of nothing but beginnings costs no more than another one. */
#include "ptx.h"

#include <stdlib.h>

enum { HEAD_ROOM = 65536 }; /* a PTX file starts with a few hundred bytes of comments */
enum { MOST_DIGITS = 4 };

/* -- characters and words, as in the C locale -- */

static bool is_space(uint8_t c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
static bool is_digit(uint8_t c) { return c >= '0' && c <= '9'; }
static bool is_letter(uint8_t c) { return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_'; }
static bool is_word(uint8_t c) { return is_letter(c) || is_digit(c); }
static bool begins_name(uint8_t c) { return is_letter(c) || c == '$' || c == '%'; }
static bool is_in_name(uint8_t c) { return is_word(c) || c == '$'; }

static uint64_t skip_space(Bytes text, uint64_t at) {
  while (at < text.size && is_space(text.at[at])) at++;
  return at;
}

static uint64_t skip_to(Bytes text, uint64_t at, char c) {
  const uint8_t *found = at < text.size ? memchr(text.at + at, c, text.size - at) : NULL;
  return found ? (uint64_t)(found - text.at) : text.size;
}

/* Whether a text stands at a place, which then moves behind it. */
static bool take(Bytes text, uint64_t *at, const char *word) {
  size_t length = strlen(word);
  if (*at > text.size || text.size - *at < length || memcmp(text.at + *at, word, length) != 0) return false;
  *at += length;
  return true;
}

/* The same for a word that does not go on. */
static bool take_word(Bytes text, uint64_t *at, const char *word) {
  uint64_t end = *at;
  if (!take(text, &end, word) || (end < text.size && is_word(text.at[end]))) return false;
  *at = end;
  return true;
}

static bool take_space(Bytes text, uint64_t *at) {
  uint64_t start = *at;
  *at = skip_space(text, start);
  return *at > start;
}

static bool take_number(Bytes text, uint64_t *at, uint32_t *number) {
  uint64_t start = *at;
  *number = 0;
  while (*at < text.size && is_digit(text.at[*at]) && *at - start <= MOST_DIGITS)
    *number = *number * 10 + (uint32_t)(text.at[(*at)++] - '0');
  return *at > start && *at - start <= MOST_DIGITS;
}

/* A version of two numbers, such as 9.0. */
static bool take_version(Bytes text, uint64_t *at, uint32_t *major, uint32_t *minor) {
  return take_number(text, at, major) && take(text, at, ".") && take_number(text, at, minor);
}

static bool take_name(Bytes text, uint64_t *at, Bytes *name) {
  uint64_t start = *at;
  if (start >= text.size || !begins_name(text.at[start])) return false;
  for (++*at; *at < text.size && is_in_name(text.at[*at]); ++*at) {}
  *name = (Bytes){text.at + start, *at - start};
  return true;
}

/* Parentheses without others inside. */
static bool take_parentheses(Bytes text, uint64_t *at) {
  uint64_t end = *at;
  if (!take(text, &end, "(")) return false;
  while (end < text.size && text.at[end] != '(' && text.at[end] != ')') end++;
  if (!take(text, &end, ")")) return false;
  *at = end;
  return true;
}

/* -- the head -- */

/* Where a comment ends that begins here; the place itself if none does. */
static uint64_t skip_comment(Bytes text, uint64_t at, bool *open) {
  uint64_t inside = at;
  *open = false;
  if (take(text, &inside, "//")) return skip_to(text, inside, '\n');
  if (!take(text, &inside, "/*")) return at;
  uint64_t end = art_find(text, inside, "*/");
  *open = end == text.size;
  return *open ? at : end + 2;
}

static bool take_directive(Bytes text, uint64_t *at, uint32_t *major, uint32_t *minor) {
  return take(text, at, ".version") && take_space(text, at) && take_version(text, at, major, minor);
}

uint64_t art_ptx_start(Bytes text) {
  uint64_t at = 0, before;
  bool open;
  do {
    before = at;
    at = skip_comment(text, skip_space(text, at), &open);
  } while (at > before && !open);
  return at;
}

bool art_ptx_begins(Bytes text, uint32_t *major, uint32_t *minor) {
  if (text.size > HEAD_ROOM) text.size = HEAD_ROOM;
  uint64_t at = art_ptx_start(text);
  return take_directive(text, &at, major, minor);
}

static void read_release(Ptx *ptx, Bytes text) {
  static const char before[] = "Cuda compilation tools, release ";
  for (uint64_t at = art_find(text, 0, before); at < text.size; at = art_find(text, at, before)) {
    at += sizeof before - 1;
    if (take_version(text, &at, &ptx->release_major, &ptx->release_minor)) return;
  }
  ptx->release_major = ptx->release_minor = 0;
}

/* Copies the text with each comment as a blank and each string as two quotes. */
static bool blank(Ptx *ptx, Bytes text, Problem *problem) {
  uint8_t *plain = malloc(text.size ? text.size : 1);
  uint64_t used = 0;
  if (!plain) return art_no_memory(problem);
  for (uint64_t at = 0; at < text.size;) {
    uint8_t c = text.at[at];
    if (c == '"') {
      uint64_t end = at + 1;
      while (end < text.size && text.at[end] != '"' && text.at[end] != '\n') end++;
      if (end < text.size && text.at[end] == '"') {
        plain[used++] = '"';
        at = end;
      }
    } else if (c == '/') {
      bool open;
      uint64_t end = skip_comment(text, at, &open);
      if (open) {
        free(plain);
        return art_damaged(problem, "PTX has a comment at byte %llu that does not end", (unsigned long long)at);
      }
      if (end > at) {
        plain[used++] = ' ';
        at = end;
        continue;
      }
    }
    plain[used++] = text.at[at++];
  }
  ptx->plain = (Bytes){plain, used};
  return true;
}

static bool find_version(Ptx *ptx) {
  for (uint64_t at = skip_to(ptx->plain, 0, '.'); at < ptx->plain.size; at = skip_to(ptx->plain, at + 1, '.')) {
    uint64_t inside = at;
    if (take_directive(ptx->plain, &inside, &ptx->isa_major, &ptx->isa_minor)) return true;
  }
  return false;
}

static bool find_target(Ptx *ptx) {
  Bytes plain = ptx->plain;
  for (uint64_t at = skip_to(plain, 0, '.'); at < plain.size; at = skip_to(plain, at + 1, '.')) {
    uint64_t inside = at;
    if (!take(plain, &inside, ".target") || !take_space(plain, &inside) || inside >= plain.size ||
        !is_letter(plain.at[inside]))
      continue;
    uint64_t start = inside;
    while (inside < plain.size && is_word(plain.at[inside])) inside++;
    ptx->target = (Bytes){plain.at + start, inside - start};
    return true;
  }
  return false;
}

bool art_ptx_open(Ptx *ptx, Bytes text, Problem *problem) {
  while (text.size && !text.at[text.size - 1]) text.size--;
  uint64_t nul = skip_to(text, 0, 0);
  if (nul < text.size)
    return art_damaged(problem, "PTX has a NUL at byte %llu, before its end", (unsigned long long)nul);
  read_release(ptx, text);
  if (!blank(ptx, text, problem)) return false;
  bool version = find_version(ptx);
  if (version && find_target(ptx)) return true;
  art_ptx_close(ptx);
  return art_damaged(problem, "PTX has no %s directive", version ? ".target" : ".version");
}

void art_ptx_close(Ptx *ptx) { free((void *)ptx->plain.at); }

/* -- symbols -- */

typedef enum { LINKAGE_NONE, VISIBLE, EXTERN, WEAK } Linkage;

static const char *const linkages[] = {[VISIBLE] = "visible", [EXTERN] = "extern", [WEAK] = "weak"};

/* ".visible .", ".extern ." or ".weak .": the place moves behind the second dot. */
static Linkage take_linkage(Bytes text, uint64_t *at, Linkage last) {
  for (Linkage linkage = VISIBLE; linkage <= last; linkage++) {
    uint64_t end = *at;
    if (!take(text, &end, ".") || !take(text, &end, linkages[linkage]) || !take_space(text, &end) ||
        !take(text, &end, "."))
      continue;
    *at = end;
    return linkage;
  }
  return LINKAGE_NONE;
}

typedef struct {
  Linkage linkage;
  const char *kind; /* of a function: "entry" or "func"; NULL: a variable */
  Bytes name;
  char end; /* 0: the text ended before */
} Declaration;

/* A function with its optional return parameter, its name, its parameters, up to its body or its end. */
static bool take_function(Bytes text, uint64_t *at, Declaration *function) {
  uint64_t end = *at;
  function->linkage = take_linkage(text, &end, WEAK);
  if (!function->linkage && !take(text, &end, ".")) return false;
  if (take_word(text, &end, "entry")) function->kind = "entry";
  else if (take_word(text, &end, "func")) function->kind = "func";
  else return false;
  end = skip_space(text, end);
  if (take_word(text, &end, ".noreturn")) end = skip_space(text, end);
  if (take_parentheses(text, &end)) end = skip_space(text, end);
  if (!take_name(text, &end, &function->name)) return false;
  end = skip_space(text, end);
  take_parentheses(text, &end);
  while (end < text.size && text.at[end] != ';' && text.at[end] != '{') end++;
  function->end = end < text.size ? (char)text.at[end++] : 0;
  *at = end;
  return true;
}

static bool ends_variable(uint8_t c) { return c == ';' || c == '=' || c == '{' || c == '['; }

/* The name is the last word before the size, value or end. Without a name it is nothing that others can use. */
static Bytes last_name(Bytes head) {
  Bytes name;
  while (head.size && is_space(head.at[head.size - 1])) head.size--;
  uint64_t start = head.size, end;
  while (start && (is_in_name(head.at[start - 1]) || head.at[start - 1] == '%')) start--;
  end = start;
  return take_name(head, &end, &name) && end == head.size ? name : (Bytes){head.at, 0};
}

static bool take_variable(Bytes text, uint64_t *at, Declaration *variable) {
  uint64_t end = *at;
  variable->linkage = take_linkage(text, &end, EXTERN);
  if (!variable->linkage ||
      !(take_word(text, &end, "global") || take_word(text, &end, "const") || take_word(text, &end, "shared")))
    return false;
  uint64_t start = end;
  while (end < text.size && !ends_variable(text.at[end])) end++;
  variable->name = last_name((Bytes){text.at + start, end - start});
  variable->end = end < text.size ? (char)text.at[end++] : 0;
  *at = end;
  return true;
}

static unsigned function_is(const Declaration *function) {
  if (function->end == ';') return function->linkage == EXTERN ? PTX_DECLARED : 0;
  return (function->kind[0] == 'e' ? PTX_KERNEL : 0u) | (function->linkage == VISIBLE ? PTX_DEFINED : 0u);
}

static unsigned variable_is(const Declaration *variable) {
  if (variable->end == '{' || !variable->name.size) return 0;
  return variable->linkage == EXTERN ? PTX_DECLARED : PTX_DEFINED;
}

typedef bool Take(Bytes text, uint64_t *at, Declaration *one);

static bool each(Bytes text, Take *take_one, PtxFound *found, void *context, Problem *problem) {
  Declaration one = {0};
  for (uint64_t at = skip_to(text, 0, '.'); at < text.size; at = skip_to(text, at, '.')) {
    if (!take_one(text, &at, &one)) {
      at++;
      continue;
    }
    if (!one.end && !one.kind)
      return art_damaged(problem, "PTX ends in the declaration of a .%s variable", linkages[one.linkage]);
    if (!one.end)
      return art_damaged(problem, "PTX ends in the head of .%s %.*s", one.kind,
                         one.name.size < 80 ? (int)one.name.size : 80, (const char *)one.name.at);
    unsigned what = one.kind ? function_is(&one) : variable_is(&one);
    if (what) found(context, (const char *)one.name.at, one.name.size, what);
  }
  return true;
}

bool art_ptx_symbols(const Ptx *ptx, PtxFound *found, void *context, Problem *problem) {
  return each(ptx->plain, take_function, found, context, problem) &&
         each(ptx->plain, take_variable, found, context, problem);
}
