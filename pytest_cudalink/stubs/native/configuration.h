/* The names and numbers that the generator writes before the other files: here those of an example library, with which
 * each file compiles alone. Generated stubs have this file's include replaced by their own. */
#ifndef STUB_CONFIGURATION_H
#define STUB_CONFIGURATION_H

#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include <stddef.h>

#define STUB_SLOTS stub_example_slots
#define STUB_TRAMPOLINES stub_example_trampolines
#define STUB_RESOLVE stub_example_resolve
#define STUB_COUNT 1
#define STUB_DESCRIBE stub_example_describe
#define STUB_FILE "libstub_example.so"
#define STUB_LIBRARY "example"
#define STUB_STEM "libexample"
#define STUB_VARIABLE "CUDALINK_STUBS_EXAMPLE"
#define STUB_HOMES 1        /* whether CUDA_PATH, CUDA_HOME and /usr/local are searched */
#define STUB_VERSION_KIND 1 /* 1: int version(int *), 2: int version(int *, int *), 0: there is no such function */
#define STUB_VERSION_SYMBOL "exampleVersion"
#define STUB_HINT_SYMBOL "" /* a function whose presence shows the version where the library does not answer */
#define STUB_HINT_VERSION 0
#define STUB_COMPANION ""      /* what the library opens by name, and must find in its own folder */
#define STUB_HEADERS 0         /* CUDA major of the callers' headers; 0: any */
#define STUB_MISSING_SYMBOL 11 /* what a function answers that the library lacks */
/* which functions have an adapter */
#define STUB_HAS_graph_instantiate 1
#define STUB_HAS_runtime_version 1
#define STUB_HAS_function_attributes 1
#define STUB_HAS_properties 1
#define STUB_HAS_properties_v2 1

/* file names, places in wheels, and folders of the system, in the order in which they are tried */
static const char *const stub_names[] = {"libexample.so.1", "libexample.so", NULL};
static const char *const stub_wheels[] = {NULL};
static const char *const stub_folders[] = {NULL};

#endif
