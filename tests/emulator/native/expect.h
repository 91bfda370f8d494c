/* What an answer must be; a program ends with exit code 1 at the first one that is another. */
#ifndef CUDALINK_EXPECT_H
#define CUDALINK_EXPECT_H

#include <stdio.h>
#include <stdlib.h>

/* The name of the variable is not one of a program: `EXPECT(code, answer)` would compare what is not set. */
#define EXPECT(code, expression)                                                                              \
  do {                                                                                                        \
    int expect_got = (int)(expression);                                                                       \
    if (expect_got != (int)(code)) {                                                                          \
      fprintf(stderr, "%s:%d: %s is %d, not %d\n", __FILE__, __LINE__, #expression, expect_got, (int)(code)); \
      exit(1);                                                                                                \
    }                                                                                                         \
  } while (0)
#define OK(expression) EXPECT(CUDA_SUCCESS, expression)
#define TRUE(expression) EXPECT(1, !!(expression))

#endif
