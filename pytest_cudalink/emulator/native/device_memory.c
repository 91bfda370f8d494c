/* How much memory of the devices is taken: by this process, and by the others of its run, of which each notes its part
   where all see it. The part of a process that has ended, in whatever way, counts no more. */
#include "device_memory.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#include "../worker/native/channel.h"
#include "calls.h"
#include "config.h"
#include "locks.h"
#include "notes.h"
#include "profiles.h"
#include "visible.h"

/* What one process has taken of one device. */
typedef struct {
  int process; /* 0: nothing is noted here */
  int arch_of; /* architecture and place of the device: of another kind or size it is another device */
  uint64_t born, total, taken;
} Part;

static struct {
  atomic_int holder; /* the process that looks at the parts; 0: none */
  unsigned count;
  Part list[];
} *parts; /* NULL: this process is of no run */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the following */
static size_t taken[DEVICES_MAX];                        /* by this process, by the places of devices */
static size_t room;
static pid_t process;
static uint64_t born;

OPEN_IN_CHILDREN(lock);

/* A process that was killed holds nothing. */
static void hold(void) {
  int holder = 0;
  for (unsigned turn = 1; !atomic_compare_exchange_weak(&parts->holder, &holder, process); turn++) {
    if (holder && (turn % 1024 || lw_started(holder))) holder = 0;
    sched_yield();
  }
}

static void drop(void) { atomic_store(&parts->holder, 0); }

/* Makes the parts the run's; what a predecessor with this number has noted is forgotten, as after an execve. */
static bool join(void) {
  size_t size;
  void *of_run = cl_parts(&size);
  if (of_run == parts && process == getpid()) return parts;
  parts = of_run, process = getpid(), born = lw_started(process);
  if (!parts) return false;
  room = (size - sizeof *parts) / sizeof *parts->list;
  hold();
  for (unsigned at = 0; at < parts->count; at++)
    if (parts->list[at].process == process) parts->list[at] = (Part){0};
  drop();
  return true;
}

static Part part_of(int place) {
  return (Part){process, cl_config()->arch * DEVICES_MAX + place, born, cl_device_memory(), taken[place]};
}

static bool same_device(const Part *one, const Part *other) {
  return one->arch_of == other->arch_of && one->total == other->total;
}

/* Notes this process's part; without room for it the others do not see it. */
static void note(int place) {
  Part own = part_of(place), *found = NULL;
  for (Part *at = parts->list; at < parts->list + parts->count; at++) {
    if (!at->process) found = at;
    if (at->process != process || !same_device(at, &own)) continue;
    found = at;
    break;
  }
  if (!found && parts->count < room) found = &parts->list[parts->count++];
  if (found) *found = own;
}

/* What nobody has taken of a device; `looks`: whether the others are still there. */
static size_t left(int place, bool looks) {
  Part own = part_of(place);
  /* a forked child has a copy of what its parent has taken, and cannot use it */
  uint64_t all = cl_initialized() ? own.taken : 0;
  for (unsigned at = 0; parts && at < parts->count; at++) {
    Part *other = &parts->list[at];
    if (!other->taken || other->process == process || !same_device(other, &own)) continue;
    if (looks && lw_started(other->process) != other->born) *other = (Part){0};
    all += other->taken;
  }
  return all < own.total ? own.total - all : 0;
}

bool cl_memory_take(CUdevice device, size_t bytes) {
  int place = cl_place_of_device(device);
  HOLD(lock);
  bool shared = join();
  if (shared) hold();
  bool fits = bytes <= left(place, false) || bytes <= left(place, true);
  if (fits) taken[place] += bytes;
  if (shared && fits) note(place);
  if (shared) drop();
  return fits;
}

void cl_memory_give(CUdevice device, size_t bytes) {
  int place = cl_place_of_device(device);
  HOLD(lock);
  taken[place] -= bytes;
  if (!join()) return;
  hold();
  note(place);
  drop();
}

static size_t left_now(int place) {
  HOLD(lock);
  bool shared = join();
  if (shared) hold();
  size_t bytes = left(place, true);
  if (shared) drop();
  return bytes;
}

size_t cl_memory_left(CUdevice device) { return left_now(cl_place_of_device(device)); }

/* The memory in use on a device, by its place in the machine, for the emulated NVML of the same process. */
EXPORT size_t cudalinkMemoryUsed(int place) {
  return place < 0 || place >= DEVICES_MAX ? 0 : cl_device_memory() - left_now(place);
}
