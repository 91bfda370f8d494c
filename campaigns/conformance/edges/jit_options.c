/* Each option of just-in-time compilation, with valid values and others, in loads and links. */
#include "ask.h"

static const char BAD[] = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() { nonsense; }\n";
enum { LAST = 37 };

/* What a link answers with an option: to create, to add and to complete, until one fails. */
static const char *linked(unsigned n, CUjit_option *keys, void **values, int later) {
  CUlinkState l = NULL;
  void *image = NULL;
  size_t size = 0;
  int created = cuLinkCreate(later ? 0 : n, later ? NULL : keys, later ? NULL : values, &l);
  if (created) return W("%d at create", created);
  int added = cuLinkAddData(l, CU_JIT_INPUT_PTX, (void *)PTX, sizeof PTX, "x", later ? n : 0, later ? keys : NULL,
                            later ? values : NULL);
  int done = added ? 0 : cuLinkComplete(l, &image, &size);
  cuLinkDestroy(l);
  return added ? W("%d at add", added) : W("%d %d", done, image != NULL);
}

static int load(const char *text, unsigned n, CUjit_option *keys, void **values) {
  CUmodule m = NULL;
  int code = cuModuleLoadDataEx(&m, text, n, keys, values);
  if (m) cuModuleUnload(m);
  return code;
}

static int library(const char *text, unsigned n, CUjit_option *keys, void **values) {
  CUlibrary l = NULL;
  int code = cuLibraryLoadData(&l, text, keys, values, n, NULL, NULL, 0);
  if (l) cuLibraryUnload(l);
  return code;
}

static void values(void) {
  static const long given[] = {0, 1, 2, 4, 16, 256, 1025, -1};
  for (int o = -1; o <= LAST; o++) {
    if (o == CU_JIT_THREADS_PER_BLOCK || (o >= CU_JIT_INFO_LOG_BUFFER && o <= CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES))
      continue;
    for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
      if (o == CU_JIT_SPLIT_COMPILE && (given[i] < 0 || given[i] > 16))
        continue; /* as many threads: an H200's driver hangs */
      CUjit_option key = o;
      void *value = (void *)given[i];
      RISK(W("%d of %ld, module", o, given[i]), load(PTX, 1, &key, &value));
      value = (void *)given[i];
      RISK(W("%d of %ld, library", o, given[i]), library(PTX, 1, &key, &value));
      value = (void *)given[i];
      RISK(W("%d of %ld, link", o, given[i]), -1, "%s", linked(1, &key, &value, 0));
      if (i > 2) continue;
      value = (void *)given[i];
      RISK(W("%d of %ld, added", o, given[i]), -1, "%s", linked(1, &key, &value, 1));
    }
  }
}

static void threads(void) {
  static const long given[] = {1, 2, 32, 128, 1024, 1025, 65536, -1};
  for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
    CUjit_option key = CU_JIT_THREADS_PER_BLOCK;
    void *value = (void *)given[i];
    RISK(W("%ld, module", given[i]), load(PTX, 1, &key, &value), "%ld", (long)value);
    value = (void *)given[i];
    RISK(W("%ld, library", given[i]), library(PTX, 1, &key, &value), "%ld", (long)value);
    value = (void *)given[i];
    RISK(W("%ld, link", given[i]), -1, "%s", linked(1, &key, &value, 0));
  }
}

static void targets(void) {
  static const int given[] = {10,  20,  30,  32,  35,      37,      50,      53,      60,      61,      62,
                              70,  72,  75,  80,  86,      87,      88,      89,      90,      100,     101,
                              103, 110, 120, 121, 0x1005a, 0x20064, 0x10064, 0x1005b, 0x2005a, 0x10050, 12345};
  for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
    CUjit_option key = CU_JIT_TARGET;
    void *value = (void *)(long)given[i];
    RISK(W("0x%x, module", given[i]), load(PTX, 1, &key, &value));
    RISK(W("0x%x, library", given[i]), library(PTX, 1, &key, &value));
    RISK(W("0x%x, link", given[i]), -1, "%s", linked(1, &key, &value, 0));
  }
}

static void pairs(void) {
  static const struct {
    int keys[2];
    long values[2];
  } rows[] = {
      {{8, 9}, {0, 90}},     {{9, 8}, {90, 0}},   {{9, 9}, {90, 90}},  {{9, 9}, {80, 90}},   {{9, 9}, {90, 80}},
      {{7, 7}, {0, 4}},      {{7, 11}, {4, 1}},   {{11, 7}, {1, 0}},   {{11, 13}, {1, 1}},   {{0, 1}, {32, 128}},
      {{1, 9}, {128, 90}},   {{9, 1}, {90, 128}}, {{1, 31}, {128, 2}}, {{32, 31}, {128, 2}}, {{31, 33}, {2, 1}},
      {{1, 32}, {128, 128}}, {{9, 10}, {90, 0}},  {{10, 9}, {1, 90}},  {{8, 10}, {0, 1}},    {{14, 14}, {1, 2}},
      {{16, 7}, {1, 4}},     {{30, 13}, {1, 1}},  {{12, 12}, {1, 0}},  {{20, 7}, {1, 3}},    {{20, 20}, {1, 0}},
      {{17, 18}, {0, 0}},    {{18, 19}, {0, 0}},  {{17, 19}, {0, 0}},  {{25, 26}, {0, 0}},   {{25, 26}, {0, 1}},
      {{27, 28}, {0, 0}},    {{26, 26}, {0, 0}},  {{28, 29}, {0, 1}},  {{0, 0}, {16, 32}},   {{0, 0}, {0, 32}},
      {{99, 7}, {0, 0}},     {{7, 99}, {0, 0}},   {{2, 2}, {0, 0}},    {{34, 7}, {2, 0}},    {{35, 7}, {2, 0}},
      {{35, 34}, {0, 0}},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    CUjit_option keys[] = {rows[i].keys[0], rows[i].keys[1]};
    const char *what =
        W("%d of %ld, %d of %ld", rows[i].keys[0], rows[i].values[0], rows[i].keys[1], rows[i].values[1]);
    for (int way = 0; way < 4; way++) {
      void *v[] = {(void *)rows[i].values[0], (void *)rows[i].values[1]};
      if (way == 0) RISK(W("%s, module", what), load(PTX, 2, keys, v));
      if (way == 1) RISK(W("%s, library", what), library(PTX, 2, keys, v));
      if (way == 2) RISK(W("%s, link", what), -1, "%s", linked(2, keys, v, 0));
      if (way == 3) RISK(W("%s, added", what), -1, "%s", linked(2, keys, v, 1));
    }
  }
}

static void arrays(void) {
  CUjit_option keys[40] = {CU_JIT_OPTIMIZATION_LEVEL};
  void *v[40] = {(void *)2};
  for (int i = 1; i < 40; i++) keys[i] = keys[0], v[i] = v[0];
  RISK("no keys, module", load(PTX, 1, NULL, v));
  RISK("no values, module", load(PTX, 1, keys, NULL));
  RISK("neither, module", load(PTX, 1, NULL, NULL));
  RISK("none of some, module", load(PTX, 0, keys, v));
  RISK("40, module", load(PTX, 40, keys, v));
  RISK("no keys, library", library(PTX, 1, NULL, v));
  RISK("no values, library", library(PTX, 1, keys, NULL));
  RISK("neither, library", library(PTX, 1, NULL, NULL));
  RISK("none of some, library", library(PTX, 0, keys, v));
  RISK("40, library", library(PTX, 40, keys, v));
  for (int later = 0; later < 2; later++) {
    RISK(W("no keys, %s", later ? "added" : "link"), -1, "%s", linked(1, NULL, v, later));
    RISK(W("no values, %s", later ? "added" : "link"), -1, "%s", linked(1, keys, NULL, later));
    RISK(W("neither, %s", later ? "added" : "link"), -1, "%s", linked(1, NULL, NULL, later));
    RISK(W("none of some, %s", later ? "added" : "link"), -1, "%s", linked(0, keys, v, later));
    RISK(W("40, %s", later ? "added" : "link"), -1, "%s", linked(40, keys, v, later));
  }
  RISK("text NULL", load(NULL, 1, keys, v));
  RISK("module NULL", cuModuleLoadDataEx(NULL, PTX, 1, keys, v));
  RISK("library NULL", cuLibraryLoadData(NULL, PTX, keys, v, 1, NULL, NULL, 0));
  RISK("library of NULL", library(NULL, 1, keys, v));
}

/* Buffers of logs: half of the pair, NULL, sizes; what is written, and where. */
static void logs(void) {
  static const long sizes[] = {0, 1, 2, 3, 10, 512, -1};
  static char info[4096], error[4096];
  for (int bad = 0; bad < 2; bad++)
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
      for (int verbose = 0; verbose < 2; verbose++) {
        CUjit_option keys[] = {CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, CU_JIT_ERROR_LOG_BUFFER,
                               CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, CU_JIT_LOG_VERBOSE};
        const char *what = W("%s, %ld, verbose %d", bad ? "bad" : "good", sizes[i], verbose);
        for (int way = 0; way < 2; way++) {
          void *v[] = {info, (void *)sizes[i], error, (void *)sizes[i], (void *)(long)verbose};
          memset(info, 'x', sizeof info), memset(error, 'x', sizeof error);
          RISK(W("%s, %s", what, way ? "library" : "module"), (way ? library : load)(bad ? BAD : PTX, 5, keys, v),
               "%d %d %d %d", (long)v[1] == sizes[i], (long)v[3] == sizes[i], info[0] == 'x', error[0] == 'x');
        }
      }
  static const int halves[][2] = {{3, -1}, {4, -1}, {5, -1}, {6, -1}, {3, 6}, {4, 5}, {4, 6}, {3, 5}, {4, 3}, {6, 5}};
  for (size_t i = 0; i < sizeof halves / sizeof *halves; i++)
    for (int null = 0; null < 2; null++) {
      CUjit_option keys[2];
      unsigned n = halves[i][1] < 0 ? 1 : 2;
      const char *what = W("%d and %d, NULL %d", halves[i][0], halves[i][1], null);
      for (int way = 0; way < 4; way++) {
        void *v[2] = {NULL, NULL};
        for (unsigned at = 0; at < n; at++) {
          keys[at] = halves[i][at];
          v[at] = keys[at] % 2 ? null ? NULL : (void *)info : (void *)64;
        }
        if (way == 0) RISK(W("%s, module", what), load(PTX, n, keys, v));
        if (way == 1) RISK(W("%s, library", what), library(PTX, n, keys, v));
        if (way == 2) RISK(W("%s, link", what), -1, "%s", linked(n, keys, v, 0));
        if (way == 3) RISK(W("%s, added", what), -1, "%s", linked(n, keys, v, 1));
      }
    }
}

/* What the values are after a call: options that a driver writes. */
static void outputs(void) {
  for (int o = 0; o <= LAST; o++) {
    if (o >= CU_JIT_INFO_LOG_BUFFER && o <= CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) continue;
    CUjit_option key = o;
    void *v = (void *)1;
    CUmodule m = NULL;
    RISK(W("%d", o), cuModuleLoadDataEx(&m, PTX, 1, &key, &v), "%d", v == (void *)1);
  }
}

CASES RUN(values) RUN(threads) RUN(targets) RUN(pairs) RUN(arrays) RUN(logs) RUN(outputs) END
