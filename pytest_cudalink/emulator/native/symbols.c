/* The names of the driver's functions, and since when there are such. */
#include "symbols.h"

#include "handles.h"

#include <string.h>

#define SYMBOL_TABLE
const Symbol cl_symbols[SYMBOL_COUNT] = {
#include "names.inc"
};
#undef SYMBOL_TABLE

int cl_symbol_named(const char *name) {
  for (int symbol = 0; symbol < SYMBOL_COUNT; symbol++)
    if (!strcmp(cl_symbols[symbol].name, name)) return symbol;
  return -1;
}
