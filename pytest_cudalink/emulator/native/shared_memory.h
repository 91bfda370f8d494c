/* Memory that other processes can map: files without names, which end with the last process that has them. */
#pragma once

#include <stdatomic.h>

#include "abi.h"

/* What the first page of such a file says of it. */
typedef enum { FILE_OF_PROCESS = 1, FILE_OF_POOL, FILE_OF_MEMORY } FileKind;
typedef struct {
  char magic[8];
  FileKind kind;
  int device;
  uint64_t key;  /* a number that no other file has */
  uint64_t size; /* of what follows the first page */
  unsigned char properties[64];
} FileHead;

/* What a process says to those that have memory of it: whether it freed that, and from where. A file has room for the
   latest that were shared. */
typedef struct {
  atomic_uint_least64_t number; /* of the memory among those that the process shared; another one: it says nothing */
  atomic_bool freed;
  char call[40], place[456]; /* `place`: lines as Stack has them */
} SharedEnd;
_Static_assert(!(4096 % sizeof(SharedEnd)), "none reaches over the end of a page");

/* Makes a file; -1 if the machine gives none. */
int cl_file_make(FileHead *head);
/* Reads what a file says of itself: 999 if it is not one of ours, 801 if it is one of another kind. */
CUresult cl_file_check(int file, FileKind kind, FileHead *head);
size_t cl_page_size(void);
/* Where the contents of a file begin. */
size_t cl_file_begin(void);
/* Makes a file large enough; a file never shrinks. */
bool cl_file_reach(int file, size_t end);
/* Gives pages of a file back to the machine. */
void cl_file_forget(int file, size_t offset, size_t size);
/* Maps a part of a file: at an address, whatever was there, or anywhere if that is 0. 0 if it cannot be done. */
uintptr_t cl_file_map(int file, size_t offset, size_t size, uintptr_t where);
/* Another descriptor of a file, for the caller; -1 if it cannot be made. */
int cl_file_duplicate(int file);

/* A part of the file of this process; its offset, or 0 if the file cannot grow. */
size_t cl_process_part(size_t size);
/* Room in the file of this process for what happens to memory that it shares, with its offset and its number, which is
   0 where the memory was not shared before; NULL if the file cannot grow. */
SharedEnd *cl_process_end(uint64_t *number, size_t *offset);
/* The file of this process, and its key; -1 if there is none. */
int cl_process_file(uint64_t *key);
/* Opens the file of another process; -1 if that process or its file is gone. */
int cl_process_open(int process, int file, uint64_t key);
