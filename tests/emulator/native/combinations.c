/* Calls a function of the API with values of its arguments, two at a time, and sums up the answers; for ctypes. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { MOST = 12, ROOM = 512, SPARE = 1 << 16, CODES = 1000 };
typedef uint64_t Word;
typedef int (*Function)(Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word);

typedef struct {
  const Word *values; /* the first is the usual one; of a pointer, addresses of the bytes that it points to */
  int few, all;       /* the first few are tried with those of other parameters */
  int pointer;
  Word words; /* which words of 32 bits of the usual bytes are changed, two at a time */
} Parameter;

typedef struct {
  Function function;
  int count;
  const Parameter *parameters;
} Subject;

typedef struct {
  Word answers; /* a sum of all of them, and of those to questions that follow each call */
  unsigned codes[CODES];
  const Subject *questions;
  int question_count;
  void (*end_error)(void);
  uint64_t (*event_count)(void);
  int (*read_event)(uint64_t number, char *out, size_t size);
} Outcome;

typedef struct {
  int parameter, at[2]; /* words of its bytes */
  uint32_t to[2];
} Change;

/* What is called back. */
Word nothing(void) { return 0; }

static unsigned char rooms[MOST][SPARE];

static void sum_up(Outcome *out, Word word) { out->answers = (out->answers ^ word) * 0x100000001b3u; }

/* Addresses differ between runs. */
static Word shown(Word word) { return word >> 32 > 255 || (!(word >> 32) && word > 1 << 23) ? '+' : word; }

static int call(const Subject *of, const Word *given, const Change *change, Outcome *out) {
  Word words[MOST] = {0}, before[MOST][ROOM / 8];
  for (int at = 0; at < of->count; at++) {
    words[at] = given[at];
    if (!of->parameters[at].pointer || !given[at]) continue;
    memcpy(before[at], (const void *)given[at], ROOM);
    for (int two = 0; change && at == change->parameter && two < 2; two++)
      memcpy((char *)before[at] + 4 * change->at[two], &change->to[two], 4);
    memcpy(rooms[at], before[at], ROOM);
    words[at] = (Word)rooms[at];
  }
  int code = of->function(words[0], words[1], words[2], words[3], words[4], words[5], words[6], words[7], words[8],
                          words[9], words[10], words[11]);
  sum_up(out, (Word)code);
  for (int at = 0; at < of->count; at++)
    for (int word = 0; of->parameters[at].pointer && given[at] && word < ROOM / 8; word++) {
      Word is;
      memcpy(&is, rooms[at] + 8 * word, 8);
      if (is == before[at][word]) continue;
      sum_up(out, (Word)(at * ROOM + word));
      sum_up(out, shown(is));
    }
  return code;
}

/* Without what differs between runs: who called, addresses and long numbers. */
static void sum_up_events(uint64_t from, Outcome *out) {
  char text[1 << 13];
  for (; from < out->event_count(); from++) {
    const char *at = out->read_event(from, text, sizeof text) < 0 ? NULL : strstr(text, "\"call\":");
    for (size_t digits; at && *at; at += digits > 6 ? digits : 1) {
      digits = strspn(at, "0123456789abcdefx");
      sum_up(out, digits > 6 ? '+' : (Word)*at);
    }
  }
}

static void usual_of(const Subject *of, Word *given) {
  for (int at = 0; at < of->count; at++) given[at] = of->parameters[at].values[0];
}

static void ask(const Subject *of, const Word *given, const Change *change, Outcome *out) {
  uint64_t events = out->event_count();
  out->codes[(unsigned)call(of, given, change, out) % CODES]++;
  sum_up_events(events, out);
  for (int at = 0; at < out->question_count; at++) {
    Word usual[MOST];
    usual_of(&out->questions[at], usual);
    call(&out->questions[at], usual, NULL, out);
  }
  out->end_error();
}

static void change_words(const Subject *of, int parameter, Outcome *out) {
  static const uint32_t numbers[] = {0, 1, 2, 3, 9};
  enum { NUMBERS = sizeof numbers / sizeof *numbers };
  Word usual[MOST];
  usual_of(of, usual);
  Word words = of->parameters[parameter].words;
  for (int at = 0; at < 64; at++)
    for (int with = 0; words >> at & 1 && with <= at; with++)
      for (int pair = 0; words >> with & 1 && pair < NUMBERS * (with < at ? NUMBERS : 1); pair++)
        ask(of, usual, &(Change){parameter, {with, at}, {numbers[pair / NUMBERS], numbers[pair % NUMBERS]}}, out);
}

void combine(const Subject *of, Outcome *out) {
  Word given[MOST];
  usual_of(of, given);
  ask(of, given, NULL, out);
  for (int one = 0; one < of->count; one++) {
    const Parameter *first = &of->parameters[one];
    for (int value = 1; value < first->all; value++) {
      usual_of(of, given);
      given[one] = first->values[value];
      ask(of, given, NULL, out);
      for (int two = one + 1; value < first->few && two < of->count; two++) {
        const Parameter *second = &of->parameters[two];
        for (int other = 1; other < second->few; other++) {
          given[two] = second->values[other];
          ask(of, given, NULL, out);
        }
        given[two] = second->values[0];
      }
    }
    change_words(of, one, out);
  }
}
