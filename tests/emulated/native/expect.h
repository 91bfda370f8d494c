/* What an answer must be; a program ends with exit code 1 at the first one that is another. */
#ifndef CUDALINK_EXPECT_H
#define CUDALINK_EXPECT_H

#include <stdio.h>
#include <stdlib.h>

#define EXPECT(code, expression)                                                                          \
  do {                                                                                                    \
    int answer = (int)(expression);                                                                       \
    if (answer != (int)(code)) {                                                                          \
      fprintf(stderr, "%s:%d: %s is %d, not %d\n", __FILE__, __LINE__, #expression, answer, (int)(code)); \
      exit(1);                                                                                            \
    }                                                                                                     \
  } while (0)
#define OK(expression) EXPECT(CUDA_SUCCESS, expression)
#define TRUE(expression) EXPECT(1, !!(expression))

#endif
