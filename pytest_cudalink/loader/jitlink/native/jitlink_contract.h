/* nvJitLink's contract: which calls of a handle are sound, and what to do with the others. Knows nothing of objects. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The functions that take a handle. Each pair of a size and a content stands together, the size first. */
typedef enum {
  JL_CREATE,
  JL_DESTROY,
  JL_ADD_DATA,
  JL_ADD_FILE,
  JL_COMPLETE,
  JL_CUBIN_SIZE,
  JL_CUBIN,
  JL_PTX_SIZE,
  JL_PTX,
  JL_LTOIR_SIZE,
  JL_LTOIR,
  JL_ERROR_SIZE,
  JL_ERROR,
  JL_INFO_SIZE,
  JL_INFO,
  JL_FUNCTIONS,
} JitLinkFunction;

/* The function that a name means, such as "nvJitLinkCreate" and "__nvJitLinkCreate_13_0"; JL_FUNCTIONS for others. */
JitLinkFunction cl_jitlink_function(const char *name);

/* Its name without a release: "nvJitLinkCreate". */
const char *cl_jitlink_name(JitLinkFunction function);

/* Every function as a stand-in passes it on: the registers of five arguments, of which it uses as many as it has. */
typedef int JitLinkCall(uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t);

typedef struct {
  JitLinkFunction function;
  JitLinkCall *original;
  JitLinkCall *size;    /* for a content: the function of the same library that answers its size; else NULL */
  JitLinkCall *destroy; /* of the same library */
  uintptr_t caller;     /* the address to which the call returns */
} JitLinkUse;

/* Makes a call as far as the contract allows it, and returns the result. Not for the library's own calls. */
int cl_checked_call(const JitLinkUse *use, uintptr_t arguments[5]);

/* Whether calls are checked. */
bool cl_is_checked(void);

/* Some calls were not seen: a handle that is not known may be sound from now on. */
void cl_contract_missed_calls(void);

/* The rules that a call can break. */
typedef enum {
  RULE_DESTROYED,
  RULE_UNKNOWN,
  RULE_NULL,
  RULE_REFUSED,
  RULE_COMPLETED,
  RULE_TWICE,
  RULE_EARLY,
  RULE_FAILED,
  RULE_UNSIZED,
  RULE_GREW,
  RULE_BUSY,
  RULE_NAME,
} ContractRule;

/* One violation; Python reads the same structure (jitlink_contract.py). */
typedef struct {
  uint64_t number;        /* from 1 */
  uint64_t handle_number; /* in the order of creation, from 1; 0 for a handle that is not known */
  uint64_t handle;
  uint64_t created_by, destroyed_by, called_by; /* addresses in the code that called */
  uint64_t thread;                              /* as pthread_self */
  uint64_t asked, actual;                       /* sizes in bytes, of RULE_GREW */
  int32_t rule, function, other; /* `other`: the function that failed, or that another thread was in; else -1 */
  int32_t prevented;             /* whether the library was kept from the call */
  char name[64];                 /* of RULE_NAME: the name that the input was given */
} ContractViolation;

/* What the main thread did, which Python hears between two of its instructions: the kind, and four times the number of
   the handle or violation, in place of an address. */
enum { NOTE_CREATED, NOTE_DESTROYED, NOTE_VIOLATION };

/* Begins to check, or stops (`wanted` 0); 2 also checks names, and keeps the address of a destroyed handle from being
   used again. `main` is the main thread of Python, as pthread_self. `adder` is Py_AddPendingCall: it takes no
   lock of Python. `teller` hears in the main thread. */
void cudalinkContract(int wanted, uint64_t main, int (*adder)(int (*)(void *), void *), int (*teller)(void *));

/* Takes the oldest violation; 0 if there are none. */
int cudalinkTakeViolation(ContractViolation *violation);

/* Numbers so far in this process. */
uint64_t cudalinkContractHandles(void);
uint64_t cudalinkContractViolations(void);

/* Writes the numbers of up to `size` handles that are alive and newer than `after`, and returns how many there are. */
unsigned cudalinkContractAlive(uint64_t after, uint64_t *numbers, unsigned size);

/* Writes which function of which object an address belongs to. */
void cudalinkPlace(uint64_t address, char *text, size_t size);
