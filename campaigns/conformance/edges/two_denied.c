/* Two devices: copies by contexts, without and with access to the peer, whichever context is current. */
#include "two.h"
static void copies(const char *when) {
  char *w = strdup(when);
  for (int now = -1; now < 2; now++)
    for (int a = 0; a < 2; a++)
      for (int b = 0; b < 2; b++)
        for (int ca = 0; ca < 2; ca++)
          for (int cb = 0; cb < 2; cb++) {
            CUdeviceptr to = memory(a, 4096, 1), from = memory(b, 4096, 9);
            CUstream s = NULL;
            on(now);
            const char *name = strdup(W("%s, %d current: to %d by %d, from %d by %d", w, now, a, ca, b, cb));
            ASK(name, cuMemcpyPeer(to, of[ca], from, of[cb], 64), "%x", word(a, to));
            on(a);
            DO(cuMemsetD8(to, 1, 64));
            DO(cuCtxSynchronize());
            on(now);
            if (now >= 0) {
              DO(cuStreamCreate(&s, 1));
              ASK(W("%s, in a stream", name), cuMemcpyPeerAsync(to, of[ca], from, of[cb], 64, s));
              ASK(W("%s, waited", name), cuStreamSynchronize(s), "%x", word(a, to));
            }
            on(a);
            DO(cuMemsetD8(to, 1, 64));
            DO(cuCtxSynchronize());
            on(now);
            if (ca == a && cb == b && now >= 0)
              ASK(W("%s, by addresses", name), cuMemcpy(to, from, 64), "%x", word(a, to));
            on(a);
            DO(cuMemFree(to));
            on(b);
            DO(cuMemFree(from));
          }
}
static void without(void) {
  both();
  copies("no access");
}
static void one_way(void) {
  both();
  on(0);
  ASK("enable", cuCtxEnablePeerAccess(of[1], 0));
  copies("0 sees 1");
}
static void both_ways(void) {
  both();
  on(0);
  ASK("enable", cuCtxEnablePeerAccess(of[1], 0));
  on(1);
  ASK("enable back", cuCtxEnablePeerAccess(of[0], 0));
  copies("both see");
}
/* memory of pools and of cuMemMap without access of the other device */
static void denied(void) {
  both();
  for (int kind = 0; kind < 2; kind++)
    for (int d = 0; d < 2; d++) {
      CUdeviceptr p = 0, q = 0;
      size_t size = 4 * MIB;
      on(d);
      if (kind) {
        CUmemAllocationProp prop = pinned();
        CUmemGenericAllocationHandle h;
        CUmemAccessDesc x = access_of(d, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        prop.location.id = d;
        DO(cuMemCreate(&h, size, &prop, 0));
        DO(cuMemAddressReserve(&p, size, 0, 0, 0));
        DO(cuMemMap(p, size, 0, h, 0));
        DO(cuMemSetAccess(p, size, &x, 1));
      } else {
        DO(cuMemAllocAsync(&p, size, 0));
        DO(cuStreamSynchronize(0));
      }
      DO(cuMemsetD8(p, 3, size));
      DO(cuCtxSynchronize());
      q = memory(d, 4096, 4);
      for (int now = 0; now < 2; now++) {
        on(now);
        for (int ca = 0; ca < 2; ca++)
          for (int cb = 0; cb < 2; cb++)
            ASK(W("%s of %d, %d current, by %d and %d", kind ? "mapped" : "a pool's", d, now, ca, cb),
                cuMemcpyPeer(p, of[ca], p + 2 * MIB, of[cb], 64), "%x", word(d, p));
        ASK(W("%s of %d, %d current, from plain", kind ? "mapped" : "a pool's", d, now),
            cuMemcpyPeer(p, of[d], q, of[d], 64), "%x", word(d, p));
        ASK(W("%s of %d, %d current, by addresses", kind ? "mapped" : "a pool's", d, now), cuMemcpy(p, p + 2 * MIB, 64),
            "%x", word(d, p));
        ASK(W("%s of %d, %d current, fill", kind ? "mapped" : "a pool's", d, now), cuMemsetD8(p, 5, 64), "%x",
            word(d, p));
      }
    }
}
CASES RUN(without) RUN(one_way) RUN(both_ways) RUN(denied) END
