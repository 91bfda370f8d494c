/* The words of tensor maps that are not 0, but the address. */
#include "ask.h"
static CUtensorMap map;
static const char *words(void) {
  static char text[512];
  const unsigned *w = (const unsigned *)&map;
  size_t n = 0;
  text[0] = 0;
  for (int i = 2; i < 32; i++)
    if (w[i]) n += snprintf(text + n, sizeof text - n, "%d:%x ", i, w[i]);
  return text;
}
static cuuint64_t dim[5], stride[5];
static cuuint32_t box[5], step[5];
static void usual(int bytes) {
  cuuint64_t s = bytes;
  for (int i = 0; i < 5; i++) {
    dim[i] = i ? 32 + i : 256;
    s *= i ? 64 : 256;
    stride[i] = s;
    box[i] = i ? 1 + i : 16;
    step[i] = 1;
  }
}
#define TILED(w, type, rank, inter, swizzle, l2, fill)                                                             \
  ASK(w,                                                                                                           \
      cuTensorMapEncodeTiled(&map, type, rank, (void *)0x7f0000000000, dim, stride, box, step, inter, swizzle, l2, \
                             fill),                                                                                \
      "%s", words())
static void tiled(void) {
  static const int bytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
  for (int rank = 1; rank < 6; rank++) {
    usual(2);
    TILED(W("rank %d", rank), 6, rank, 0, 0, 0, 0);
  }
  for (int type = 0; type < 13; type++) {
    usual(bytes[type]);
    TILED(W("type %d", type), type, 3, 0, 0, 0, 0);
  }
  usual(1);
  for (int s = 0; s < 4; s++)
    for (int n = 0; n < 3; n++) TILED(W("swizzle %d interleave %d", s, n), 0, 3, n, s, 0, 0);
  for (int l = 0; l < 4; l++) TILED(W("promotion %d", l), 0, 3, 0, 0, l, 0);
  usual(4);
  TILED("fill", 7, 3, 0, 0, 0, 1);
  static const cuuint32_t sizes[][5] = {{4, 1, 1, 1, 1},           {256, 256, 1, 1, 1}, {256, 256, 256, 1, 1},
                                        {256, 256, 256, 256, 256}, {4, 256, 3, 7, 11},  {64, 64, 64, 64, 64}};
  for (int i = 0; i < 6; i++) {
    memcpy(box, sizes[i], sizeof box);
    TILED(W("box %d", i), 7, 5, 0, 0, 0, 0);
  }
  usual(4);
  for (int i = 0; i < 5; i++) step[i] = i + 2;
  TILED("steps", 7, 5, 0, 0, 0, 0);
  for (int d = 0; d < 3; d++)
    for (int i = 0; i < 3; i++) {
      usual(4);
      box[d] = i ? 8 : 16, step[d] = i == 2 ? 8 : 2;
      TILED(W("step %u of box %u in %d", step[d], box[d], d), 7, 3, 0, 0, 0, 0);
    }
}
static void columns(void) {
  for (int rank = 3; rank < 6; rank++)
    for (int kind = 0; kind < 6; kind++) {
      int low[3] = {-1, -2, -3}, high[3] = {1, 2, 3};
      usual(2);
      if (kind == 4)
        for (int i = 0; i < 5; i++) step[i] = 2;
      ASK(W("rank %d kind %d", rank, kind),
          cuTensorMapEncodeIm2col(&map, 6, rank, (void *)0x7f0000000000, dim, stride, low, high, kind == 1 ? 64 : 16,
                                  kind == 2 ? 1024 : 32, step, kind == 5 ? 2 : 0, kind == 3 ? 3 : 0, 0, 0),
          "%s", words());
      for (int mode = 0; mode < 2; mode++)
        ASK(W("wide, rank %d kind %d mode %d", rank, kind, mode),
            cuTensorMapEncodeIm2colWide(&map, 6, rank, (void *)0x7f0000000000, dim, stride, -1, 2, kind == 1 ? 64 : 16,
                                        kind == 2 ? 1024 : 32, step, kind == 5 ? 2 : 0, mode, kind == 3 ? 3 : 1, 0, 0),
            "%s", words());
    }
}
CASES RUN(tiled) RUN(columns) END
