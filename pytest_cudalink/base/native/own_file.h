/* A descriptor of ours. A program may close every descriptor, as daemons do, and open its own files at their numbers:
   we recognise a file before each use, and live above the numbers that a program counts on. */
#pragma once

#include <fcntl.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OWN_FILES_FROM = 200, OWN_FILES_AT_LEAST_FROM = 10 };

typedef struct {
  int number; /* -1: none */
  dev_t device;
  ino_t inode;
} OwnFile;

#define NO_FILE ((OwnFile){.number = -1})

/* A higher descriptor of the same file, which replaces the given one; that itself where the limit leaves no other. */
static inline int moved_up(int file) {
  if (file < 0) return file;
  int moved = fcntl(file, F_DUPFD_CLOEXEC, OWN_FILES_FROM);
  if (moved < 0) moved = fcntl(file, F_DUPFD_CLOEXEC, OWN_FILES_AT_LEAST_FROM);
  if (moved < 0) return file;
  close(file);
  return moved;
}

/* What is known of a descriptor that we have just opened, or were just given. */
static inline OwnFile own_file(int file) {
  struct stat known;
  if (file < 0 || fstat(file, &known)) return NO_FILE;
  return (OwnFile){file, known.st_dev, known.st_ino};
}

/* The descriptor; -1 if the program closed it, whatever file has its number now. A signal handler may ask. */
static inline int own_descriptor(const OwnFile *file) {
  struct stat now;
  if (file->number < 0 || fstat(file->number, &now)) return -1;
  return now.st_dev == file->device && now.st_ino == file->inode ? file->number : -1;
}

static inline void close_own(OwnFile *file) {
  int descriptor = own_descriptor(file);
  if (descriptor >= 0) close(descriptor);
  *file = NO_FILE;
}
