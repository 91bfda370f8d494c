/* One loaded image, as a module, a library, or the module of a library in one context: how it is read, its functions
   and variables. */
#pragma once

#include "contexts.h"
#include "jit_compiler.h"

typedef struct Function Function;
typedef struct Global Global;

typedef struct Module {
  Object head;
  struct Module *library; /* that it is of, whose image it has; NULL: it was loaded itself */
  void *image;
  Elf elf;
  int ptx_target;      /* that of the PTX that it was compiled from; 0: of none */
  CUresult state;      /* of a library: what its first use answers */
  CUresult on_device;  /* of a library: what its first use on the device answers */
  char *refusal;       /* of a library: what the image is that the device does not take, for events; owned, or NULL */
  bool refused;        /* there is nothing that could be kept of it */
  bool used;           /* of the module of a library: it is loaded */
  Function *functions; /* of a library: kernels */
  bool placed;
  Global *globals;
} Module;

/* What can be set of a function: attributes by their numbers, and which caches it prefers. */
enum { CACHE_CONFIG = CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE + 1, SETTINGS };

struct Function {
  Object head;
  Function *next;
  Module *module;
  char *name;
  uint32_t symbol;
  Function *kernel; /* that it is of, in its context; NULL: it is one, or of no library */
  int max_threads, shared, constant, local, registers;
  int required_block[3];       /* 0: the image requires none */
  int max_cluster_rank;        /* 0: the image sets none */
  int settings[SETTINGS];      /* of a kernel: where none was set */
  int (*on_devices)[SETTINGS]; /* of a kernel: on each device; NULL: none was set */
  unsigned own;                /* of a kernel's function: which settings are its own, a bit each */
  bool loaded;                 /* a function that is only enumerated is not */
  bool tile;                   /* made by tileiras */
  bool explicit_cluster;
  struct {
    unsigned block[3], shared, parameters;
  } old; /* what cuFuncSetBlockShape and its neighbours set for cuLaunch */
  struct {
    size_t offset, size;
  } *parameters;
  size_t parameter_count, parameter_room;
};

struct Global {
  Global *next;
  uint32_t symbol;
  CUdeviceptr address;
  size_t size;
};

/* Nothing of a module is looked at without it: another thread may unload the module. */
extern pthread_mutex_t cl_modules_lock;

/* A module that was loaded as one, or the module of a library. Under the lock. */
Module *cl_find_module(const void *handle, HandleKind kind);
/* A function or kernel handle, in whatever module it is. Under the lock. */
Function *cl_find_function(const void *handle);
/* Whether a function can be used in a context: that of its module; kernels of libraries are of every context. */
bool cl_is_usable(const Function *function, const Context *context);
/* Whether it is a kernel, that is one of a library and not yet of a context. */
bool cl_is_kernel(const Function *function);
/* The module of a library in a context; `make`: it is made at its first use. NULL: there is none, or memory is out. */
Module *cl_module_of(Module *library, Context *context, bool make);
void cl_free_function(Function *function);

typedef CUresult Load(Module **out, const void *data, const JitOptions *options, LinkText *text);
Load cl_load_module, cl_load_library;
/* One loading call: logs and wall time are written before it returns, so nothing of the caller's must outlive it. */
CUresult cl_load_with_options(Load *load_as, Module **out, const void *data, unsigned count, const int *keys,
                              void **values);
CUresult cl_unload(void *handle, HandleKind kind);
/* How many modules were not unloaded before their context died. */
size_t cl_modules_orphaned(void);
/* Waits as a call does that uses the library of a handle, which is a kernel or the library itself; the first use in a
   context loads it. Returns what the call must answer. Not under the lock; a context is current. */
CUresult cl_use_library(const void *handle);
/* The same for a call that ends it. */
CUresult cl_end_library(const void *handle);
/* Returns what a use of a library answers, with its image in the event where it is that of loading it. */
CUresult cl_answer_of(const Module *library, CUresult result);
