/* The driver's JIT compiler and linker: libnvJitLink, answered in the driver's codes and words. */
#pragma once

#include "image.h"
#include "options.h"

typedef struct Linker Linker; /* one nvJitLink handle */

/* Text of one call, from nvJitLink's logs, in the driver's words. */
typedef struct {
  char *error, *info; /* owned; NULL: none */
} LinkText;

CUresult cl_linker_open(Linker **out, const LinkOptions *options, LinkText *text);
CUresult cl_linker_add(Linker *linker, ImageKind kind, bool host_object, const void *data, size_t size,
                       const char *name, LinkText *text);
/* CUDA_ERROR_INVALID_SOURCE for an undefined symbol: there is an image all the same. */
CUresult cl_linker_complete(Linker *linker, void **image, size_t *size, LinkText *text);
void cl_linker_close(Linker *linker);
/* Why the linker itself failed in this thread since it was last asked: its process was killed, or cannot be started.
   NULL: it did not. The input is not the cause then, and the answer is CUDA_ERROR_UNKNOWN whatever it is. */
char *cl_take_linker_failure(void);
/* Has the event of this thread's call, which fails, say so. */
void cl_note_linker_failure(const char *failure);
void cl_text_free(LinkText *text);

/* Compiles PTX for the device; the image is owned by the caller. */
CUresult cl_compile(const void *data, size_t size, const LinkOptions *options, void **image, size_t *image_size,
                    LinkText *text);
