/* The processes of a run, in memory that they share: what each has taken of the devices, and its checkpoints. One that
   has ended, in whatever way, counts no more. */
#include "processes.h"

#include <sched.h>
#include <time.h>
#include <unistd.h>

#include "../worker/native/channel.h"
#include "calls.h"
#include "locks.h"
#include "notes.h"
#include "profiles.h"
#include "visible.h"

enum { MOST_PROCESSES = 100 };

typedef struct {
  atomic_int holder; /* the process that reads or changes the list; 0: none */
  Process list[MOST_PROCESSES];
} Run;
_Static_assert(sizeof(Run) <= SHARED_BY_RUN, "the processes of a run");

STATIC_LOCK(lock);    /* of the run, in this process */
static Run *run;      /* NULL: this process is of no run */
static Process alone; /* this process, where it is of none, or beyond the most */
_Atomic(Process *) cl_own_process = &alone;

/* A forked process is another one; what it inherited is its own only if it goes on with the driver. */
static void leave(void) {
  if (cl_own_process != &alone) alone = *cl_own_process;
  alone.pending = 0;
  alone.state = 0;
  cl_own_process = &alone;
}

FORGET_IN_CHILDREN(leave);

/* A place for this process: that of a predecessor with its number, as before an execve, or of one that has ended. */
static Process *place(void) {
  Process *free = NULL, *ended = NULL;
  for (Process *at = run->list; at < run->list + MOST_PROCESSES; at++) {
    if (at->process == getpid()) return at;
    if (!free && !at->process) free = at;
    if (!free && !ended && lw_started(at->process) != at->born) ended = at;
  }
  return free ? free : ended ? ended : &alone;
}

static void join(void) {
  Process own = {0}, *before = cl_own_process, *now;
  if (cl_initialized()) own = *before;
  own.process = getpid(), own.born = lw_started(own.process);
  own.arch = cl_config()->arch, own.total = cl_device_memory();
  if (before != &alone) before->process = 0;
  now = run ? place() : &alone;
  *now = own;
  cl_own_process = now;
}

static void hold(void) {
  pthread_mutex_lock(&lock);
  Run *before = run;
  run = cl_shared_by_run();
  int holder = 0;
  for (unsigned turn = 1; run && !atomic_compare_exchange_weak(&run->holder, &holder, getpid()); turn++) {
    if (holder && (turn % 1024 || lw_started(holder))) holder = 0; /* one that was killed holds nothing */
    sched_yield();
  }
  if (run != before || cl_own_process->process != getpid()) join();
}

static void drop(void) {
  if (run) atomic_store(&run->holder, 0);
  pthread_mutex_unlock(&lock);
}

void cl_join_run(void) {
  hold();
  drop();
}

/* What the others have taken of a device. `looks`: whether they are still there. */
static uint64_t of_others(const Process *own, int device, bool looks) {
  uint64_t all = 0;
  for (Process *at = run ? run->list : NULL; at && at < run->list + MOST_PROCESSES; at++) {
    bool same = at->process && at != own && at->arch == own->arch && at->total == own->total;
    if (!same || !at->taken[device] || at->state == CU_PROCESS_STATE_CHECKPOINTED) continue;
    if (looks && lw_started(at->process) != at->born) *at = (Process){0};
    all += at->taken[device];
  }
  return all;
}

/* Whether there is room for some more bytes of a process. */
static bool fits(const Process *own, int device, size_t more) {
  if (more > own->total - own->taken[device]) return false;
  uint64_t least = own->total - own->taken[device] - more;
  return of_others(own, device, false) <= least || of_others(own, device, true) <= least;
}

bool cl_memory_take(CUdevice device, size_t bytes) {
  int at = cl_place_of_device(device);
  hold();
  Process *own = cl_own_process;
  bool taken = fits(own, at, bytes);
  if (taken) own->taken[at] += bytes;
  drop();
  return taken;
}

void cl_memory_give(CUdevice device, size_t bytes) {
  hold();
  cl_own_process->taken[cl_place_of_device(device)] -= bytes;
  drop();
}

/* The memory in use on a device, by its place in the machine, for the emulated NVML of the same process. */
EXPORT size_t cudalinkMemoryUsed(int device) {
  if (device < 0 || device >= DEVICES_MAX) return 0;
  hold();
  const Process *own = cl_own_process;
  uint64_t used = own->taken[device] + of_others(own, device, true);
  drop();
  return used < own->total ? used : own->total;
}

size_t cl_memory_left(CUdevice device) { return cl_device_memory() - cudalinkMemoryUsed(cl_place_of_device(device)); }

/* -- checkpoints (measured: test_checkpoints) -- */

static void sleep_a_little(void) { nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL); }

void cl_wait_while_locked(void) {
  while (cl_own_process->state && !cl_in_host_function) sleep_a_little();
}

/* Finds a process that has initialized the driver, while the list is held; NULL: the answer is in *result. */
static Process *find(int process, CUresult *result) {
  uint64_t born = lw_started(process);
  for (Process *at = run && born ? run->list : NULL; at && at < run->list + MOST_PROCESSES; at++)
    if (at->process == process && at->born == born) return at;
  if (process == getpid() && cl_initialized()) return cl_own_process;
  *result = born ? CUDA_ERROR_NOT_INITIALIZED : CUDA_ERROR_OPERATING_SYSTEM;
  return NULL;
}

static CUresult process_state(int process, int *state) {
  if (!state) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = CUDA_SUCCESS;
  hold();
  Process *found = find(process, &result);
  if (found) *state = found->state;
  drop();
  return result;
}
EXPORTED_ANY_TIME(cuCheckpointProcessGetState, (int process, int *state), process_state(process, state))

/* The main thread of a process has the process's number. */
API_WHEN(false, cuCheckpointProcessGetRestoreThreadId, (int process, int *thread), (process, thread)) {
  int state;
  CUresult result = process_state(process, thread ? &state : NULL);
  if (!result) *thread = process;
  return result;
}

/* Whether what a process gave up for its checkpoint is there for it. */
static bool can_restore(const Process *process) {
  int device = 0;
  while (device < DEVICES_MAX && (!process->taken[device] || fits(process, device, 0))) device++;
  return device == DEVICES_MAX;
}

/* Moves a process from one state to another; the arguments are to be zeros. */
static CUresult move(int process, int from, int to, const void *arguments, size_t size) {
  if (arguments && !cl_are_zeros(arguments, size)) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = CUDA_SUCCESS;
  hold();
  Process *found = find(process, &result);
  if (found) {
    bool taken = from == CU_PROCESS_STATE_CHECKPOINTED && !can_restore(found);
    if (found->state != from) result = CUDA_ERROR_ILLEGAL_STATE;
    else if (taken) result = CUDA_ERROR_OUT_OF_MEMORY;
    else if (to == CU_PROCESS_STATE_CHECKPOINTED && found->managed) result = CUDA_ERROR_NOT_SUPPORTED;
    else found->state = to;
  }
  drop();
  return result;
}

/* CUcheckpointLockArgs: a limit in milliseconds, if it is not 0, and zeros. */
API_WHEN(false, cuCheckpointProcessLock, (int process, void *given), (process, given)) {
  const unsigned *arguments = given;
  CUresult result = move(process, CU_PROCESS_STATE_RUNNING, CU_PROCESS_STATE_LOCKED, arguments ? arguments + 1 : NULL,
                         64 - sizeof *arguments);
  for (unsigned waited = 0; !result; waited++) {
    hold();
    const Process *found = find(process, &result);
    bool pending = found && found->pending;
    drop();
    if (result || !pending) break;
    if (arguments && *arguments && waited >= *arguments) {
      move(process, CU_PROCESS_STATE_LOCKED, CU_PROCESS_STATE_RUNNING, NULL, 0);
      return CUDA_ERROR_NOT_READY;
    }
    sleep_a_little();
  }
  return result;
}
EXPORTED_ANY_TIME(cuCheckpointProcessCheckpoint, (int process, void *arguments),
                  move(process, CU_PROCESS_STATE_LOCKED, CU_PROCESS_STATE_CHECKPOINTED, arguments, 64))

/* CUcheckpointRestoreArgs, with pairs of UUIDs. */
API_WHEN(false, cuCheckpointProcessRestore, (int process, void *given), (process, given)) {
  const unsigned *arguments = given;
  if (arguments && arguments[2]) return cl_unsupported(line, "processes are restored on their own devices alone");
  return move(process, CU_PROCESS_STATE_CHECKPOINTED, CU_PROCESS_STATE_LOCKED, arguments, 64);
}
EXPORTED_ANY_TIME(cuCheckpointProcessUnlock, (int process, void *arguments),
                  move(process, CU_PROCESS_STATE_LOCKED, CU_PROCESS_STATE_RUNNING, arguments, 64))
