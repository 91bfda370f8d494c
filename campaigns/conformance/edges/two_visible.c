/* Two devices: CUDA_VISIBLE_DEVICES in processes of their own: orders, one of them, none, wrong words. */
#include "two.h"

struct seen {
  int init, code, count, could;
  CUuuid ids[4];
  int p2p, current;
};

/* What a process sees with a value of the variable (NULL: unset); {id0}, {id1} stand for the devices' identifiers. */
static struct seen look(const char *value, const char *order) {
  struct seen s;
  int pipe_[2];
  SET(s);
  s.init = 7777;
  if (pipe(pipe_)) return s;
  fflush(stdout);
  pid_t child = fork();
  if (!child) {
    alarm(20);
    if (value) setenv("CUDA_VISIBLE_DEVICES", value, 1);
    else unsetenv("CUDA_VISIBLE_DEVICES");
    if (order) setenv("CUDA_DEVICE_ORDER", order, 1);
    s.init = cuInit(0);
    s.code = cuDeviceGetCount(&s.count);
    for (int d = 0; d < 4 && d < s.count; d++) cuDeviceGetUuid(&s.ids[d], d);
    CUdevice d = 77;
    s.could = cuDeviceGet(&d, 1);
    int v = 77;
    s.p2p = cuDeviceCanAccessPeer(&v, 0, 1);
    char name[64];
    s.current = cuDeviceGetName(name, sizeof name, 0);
    if (write(pipe_[1], &s, sizeof s) != sizeof s) _exit(1);
    _exit(0);
  }
  close(pipe_[1]);
  if (read(pipe_[0], &s, sizeof s) != sizeof s) s.init = 8888;
  close(pipe_[0]);
  waitpid(child, NULL, 0);
  return s;
}

static void told(const char *value, const char *words, const char *order, const struct seen *plain) {
  if (chosen_) return;
  struct seen s = look(value, order);
  int which[4];
  for (int d = 0; d < 4; d++) {
    which[d] = -1;
    for (int p = 0; p < plain->count && p < 4 && d < s.count; p++)
      if (!memcmp(&s.ids[d], &plain->ids[p], sizeof s.ids[d])) which[d] = p;
  }
  SAY(words, "%d %d %d: %d %d %d; %d %d %d", s.init, s.code, s.count, which[0], which[1], which[2], s.could, s.p2p,
      s.current);
}

static char *identifier(const CUuuid *u, int length, int upper) {
  static char words[4][64];
  static int next;
  const unsigned char *b = (const unsigned char *)u->bytes;
  char *at = words[next++ % 4];
  int n = sprintf(at, "GPU-");
  for (int i = 0; i < 16; i++)
    n += sprintf(at + n,
                 i == 4 || i == 6 || i == 8 || i == 10 ? (upper ? "-%02X" : "-%02x") : (upper ? "%02X" : "%02x"), b[i]);
  if (length < n) at[length] = 0;
  return at;
}

static void orders(int first) {
  struct seen plain = look(NULL, NULL);
  SAY("unset", "%d %d %d", plain.init, plain.code, plain.count >= 2);
  static const char *values[] = {"0,1", "1,0", "0",   "1",           "",           " ",    "0,0",  "1,1",    "0,1,0",
                                 "2",   "0,2", "2,0", "1,2,0",       "-1",         "0,-1", "-1,0", "1,-1,0", "x",
                                 "0,x", "x,0", "0 1", "0, 1",        " 1",         "1 ",   "01",   "1,",     ",1",
                                 ",",   "+1",  "0x1", "99999999999", "NoDevFiles", "GPU-", "1,,0", "\t1"};
  for (int i = first; i < first + 7; i++) told(values[i], W("'%s'", values[i]), NULL, &plain);
}

static void orders_0(void) { orders(0); }
static void orders_1(void) { orders(7); }
static void orders_2(void) { orders(14); }
static void orders_3(void) { orders(21); }
static void orders_4(void) { orders(28); }

static void by_identifiers(int d) {
  struct seen plain = look(NULL, NULL);
  char both_[160];
  {
    told(identifier(&plain.ids[d], 99, 0), W("identifier of %d", d), NULL, &plain);
    told(identifier(&plain.ids[d], 99, 1), W("identifier of %d, large", d), NULL, &plain);
    told(identifier(&plain.ids[d], 12, 0), W("12 bytes of %d's", d), NULL, &plain);
    told(identifier(&plain.ids[d], 39, 0), W("39 bytes of %d's", d), NULL, &plain);
    told(identifier(&plain.ids[d], 99, 0) + 4, W("%d's without its head", d), NULL, &plain);
    snprintf(both_, sizeof both_, "%s,%s", identifier(&plain.ids[d], 99, 0), identifier(&plain.ids[!d], 99, 0));
    told(both_, W("both, first %d", d), NULL, &plain);
    snprintf(both_, sizeof both_, "%s,%d", identifier(&plain.ids[d], 99, 0), !d);
    told(both_, W("identifier of %d, then the other's number", d), NULL, &plain);
    snprintf(both_, sizeof both_, "%d,%s", d, identifier(&plain.ids[!d], 99, 0));
    told(both_, W("number %d, then the other's identifier", d), NULL, &plain);
    snprintf(both_, sizeof both_, "%s,%s", identifier(&plain.ids[d], 99, 0), identifier(&plain.ids[d], 99, 0));
    told(both_, W("identifier of %d twice", d), NULL, &plain);
  }
  told("GPU-00000000-0000-0000-0000-000000000000", "identifier of none", NULL, &plain);
}

static void by_identifiers_0(void) { by_identifiers(0); }
static void by_identifiers_1(void) { by_identifiers(1); }

static void by_bus(void) {
  struct seen plain = look(NULL, NULL);
  static const char *const orders_[] = {"PCI_BUS_ID", "FASTEST_FIRST", "", "x"};
  static const char *const values[] = {"1,0", "1"};
  for (int o = 0; o < 4; o++)
    for (int v = 0; v < 2; v++) told(values[v], W("order '%s', '%s'", orders_[o], values[v]), orders_[o], &plain);
}

static void late(void) {
  int n = 77;
  setenv("CUDA_VISIBLE_DEVICES", "1", 1);
  ASK("cuInit with 1", cuInit(0));
  ASK("count with 1", cuDeviceGetCount(&n), "%d", n);
  setenv("CUDA_VISIBLE_DEVICES", "0,1", 1);
  ASK("cuInit again with 0,1", cuInit(0));
  ASK("count again", cuDeviceGetCount(&n), "%d", n);
  CUcontext c = NULL;
  CUdevice d = 77;
  ASK("retain 0", cuDevicePrimaryCtxRetain(&c, 0));
  ASK("retain 1", cuDevicePrimaryCtxRetain(&c, 1));
  DO(cuCtxSetCurrent(c));
  ASK("device", cuCtxGetDevice(&d), "%d", d);
}

CASES RUN_COLD(orders_0) RUN_COLD(orders_1) RUN_COLD(orders_2) RUN_COLD(orders_3) RUN_COLD(orders_4)
    RUN_COLD(by_identifiers_0) RUN_COLD(by_identifiers_1) RUN_COLD(by_bus) RUN_COLD(late) END
