/* A libnvJitLink that does on request what the real one does on damaged inputs: an input with "!WORD" in it asks for it
 * when it is added, the last one with "?WORD" when the link is completed. The image is the names and bytes of all
 * inputs. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
  char *image, *log, late[32];
  size_t size, log_size;
  int refused;
} Link;

static int overflow(volatile char *before, int depth) {
  volatile char here[4096];
  here[0] = before ? before[0] : 0;
  return depth ? overflow(here, depth - 1) + here[0] : 0;
}

static int stained; /* by an input that was refused */

/* A reply by which a worker whose memory is overwritten claims more than there is: one of four sizes. */
static void forge(int which, uint64_t size) {
  struct {
    uint32_t reply;
    int32_t code, fetch_code;
    uint32_t last;
    uint64_t sizes[4]; /* error, info, printed, image */
  } reply = {.reply = 1};
  reply.sizes[which] = size;
  if (write(3, &reply, sizeof reply) > 0) _exit(0);
}

static int perform(const char *word, Link *link) {
  if (!strncmp(word, "forge", 5)) forge(word[5] & 3, word[6] == 'm' ? UINT64_MAX : (uint64_t)1 << 40);
  if (!strncmp(word, "segv", 4)) raise(SIGSEGV);
  if (!strncmp(word, "bus", 3)) raise(SIGBUS);
  if (!strncmp(word, "ill", 3)) raise(SIGILL);
  if (!strncmp(word, "fpe", 3)) raise(SIGFPE);
  if (!strncmp(word, "abort", 5)) abort();
  if (!strncmp(word, "kill", 4)) raise(SIGKILL);
  if (!strncmp(word, "bad_alloc", 9)) {
    fprintf(stderr, "terminate called after throwing an instance of 'std::bad_alloc'\n");
    abort();
  }
  if (!strncmp(word, "overflow", 8)) return overflow(NULL, 1 << 30);
  if (!strncmp(word, "exit", 4)) exit(0);
  if (!strncmp(word, "hang", 4)) pause();
  if (!strncmp(word, "slow", 4)) usleep(500000);
  if (!strncmp(word, "fatal", 5)) fprintf(stderr, "noise\nfatal   : Internal error: on purpose\n");
  if (!strncmp(word, "print", 5)) printf("printed on purpose\n");
  if (!strncmp(word, "refuse", 6)) return link->refused = 4; /* as nvJitLink refuses PTX */
  if (!strncmp(word, "stain", 5)) return link->refused = stained = 3;
  if (!strncmp(word, "weak", 4) && stained) raise(SIGSEGV);
  return 0;
}

static void append(char **text, size_t *size, const void *bytes, size_t count) {
  *text = realloc(*text, *size + count + 1);
  memcpy(*text + *size, bytes, count);
  *size += count;
  (*text)[*size] = 0;
}

int nvJitLinkCreate(void **handle, uint32_t count, const char **options) {
  for (uint32_t at = 0; at < count; at++)
    if (!strcmp(options[at], "-wrong")) return 1;
  Link *link = calloc(1, sizeof *link);
  for (uint32_t at = 0; at < count; at++)
    if (!strcmp(options[at], "-crash")) raise(SIGSEGV);
  append(&link->log, &link->log_size, "", 0);
  append(&link->image, &link->size, "", 0);
  *handle = link;
  return 0;
}

int nvJitLinkDestroy(void **handle) {
  Link *link = *handle;
  free(link->image);
  free(link->log);
  free(link);
  return 0;
}

int nvJitLinkAddData(void *handle, int type, const void *data, size_t size, const char *name) {
  Link *link = handle;
  (void)type;
  append(&link->log, &link->log_size, name, strlen(name));
  append(&link->log, &link->log_size, " was added\n", 11);
  for (size_t at = 0; at < size; at++) {
    char word[17] = {0};
    const char *mark = (const char *)data + at;
    memcpy(word, mark + 1, size - at - 1 < 16 ? size - at - 1 : 16);
    if (*mark == '?') strcpy(link->late, word);
    int code = *mark == '!' ? perform(word, link) : 0;
    if (code) return code;
  }
  append(&link->image, &link->size, name, strlen(name));
  append(&link->image, &link->size, data, size);
  return 0;
}

int nvJitLinkComplete(void *handle) {
  Link *link = handle;
  return perform(link->late, link);
}

static int size_of(size_t from, size_t *size) {
  *size = from;
  return 0;
}

int nvJitLinkGetErrorLogSize(void *handle, size_t *size) { return size_of(((Link *)handle)->refused ? 14 : 1, size); }
int nvJitLinkGetErrorLog(void *handle, char *log) {
  strcpy(log, ((Link *)handle)->refused ? "error   : no\n" : "");
  return 0;
}
int nvJitLinkGetInfoLogSize(void *handle, size_t *size) { return size_of(((Link *)handle)->log_size + 1, size); }
int nvJitLinkGetInfoLog(void *handle, char *log) {
  memcpy(log, ((Link *)handle)->log, ((Link *)handle)->log_size + 1);
  return 0;
}
int nvJitLinkGetLinkedCubinSize(void *handle, size_t *size) { return size_of(((Link *)handle)->size, size); }
int nvJitLinkGetLinkedCubin(void *handle, void *image) {
  memcpy(image, ((Link *)handle)->image, ((Link *)handle)->size);
  return 0;
}
