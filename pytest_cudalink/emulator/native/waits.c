/* Which calls wait for unfinished work. */
#include "waits.h"

#include <stdlib.h>
#include <string.h>

#include "abi.h"

#include "waits.inc" /* waiting_calls, rooms */

enum { COUNT = sizeof waiting_calls / sizeof *waiting_calls };

unsigned cl_room_for(Room what) { return rooms[what]; }

bool cl_loads_eagerly(void) {
  const char *wanted = getenv("CUDA_MODULE_LOADING");
  return wanted && !strcmp(wanted, "EAGER");
}

static bool fits(const WaitRow *row, const WaitFacts *facts) {
  if ((row->lazy || row->eager) && row->eager != cl_loads_eagerly()) return false;
  if (!facts) return true;
  return (!row->memory || row->memory & 1 << facts->memory) && (!row->to || row->to & 1 << facts->to) &&
         (!row->source || row->source & 1 << facts->source) && (!row->larger_than || facts->size > row->larger_than) &&
         (!row->has_limit || row->limit == facts->limit) && (!row->has_first || row->first == facts->first) &&
         (!row->sync_memops || facts->sync_memops);
}

const WaitRow *cl_wait_row(Sym symbol, const WaitFacts *facts) {
  unsigned at = cl_symbols[symbol].waits;
  for (; at && at <= COUNT && waiting_calls[at - 1].call == symbol; at++) {
    const WaitRow *row = &waiting_calls[at - 1].row;
    if (row->given == (facts != NULL) && fits(row, facts)) return row;
  }
  return NULL;
}
