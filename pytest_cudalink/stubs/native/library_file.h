/* Files of which the loader would die.
 *
 * The loader maps what the program headers name without asking whether the file has it: of a library that was cut it
 * dies by SIGBUS. Its own errors suffice for everything else, such as a text, a folder or another architecture.
 *
 * The link worker includes this file too; base/elf.py has the same rule. */
#ifndef STUB_LIBRARY_FILE_H
#define STUB_LIBRARY_FILE_H

#include <fcntl.h>
#include <link.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct library_file {
  int descriptor;
  uint64_t size;
  int count;
  ElfW(Phdr) parts[64]; /* the largest library of CUDA has 12 */
};

static int library_read_at(const struct library_file *file, void *to, size_t size, uint64_t offset) {
  return offset <= file->size && size <= file->size - offset &&
         pread(file->descriptor, to, size, (off_t)offset) == (ssize_t)size;
}

/* Where in the file an address is, of which SIZE bytes are needed; 0 if it is nowhere. */
static uint64_t library_offset_of(const struct library_file *file, uint64_t address, uint64_t size) {
  for (int i = 0; i < file->count; i++) {
    const ElfW(Phdr) *part = &file->parts[i];
    if (part->p_type == PT_LOAD && address >= part->p_vaddr && address - part->p_vaddr <= part->p_filesz &&
        size <= part->p_filesz - (address - part->p_vaddr))
      return part->p_offset + (address - part->p_vaddr);
  }
  return 0;
}

/* The names and symbols of a library must be in the file. */
static const char *library_damage_of_dynamic(const struct library_file *file, const ElfW(Phdr) * part) {
  uint64_t at = library_offset_of(file, part->p_vaddr, part->p_filesz), names = 0, symbols = 0, length = 0;
  ElfW(Dyn) entry;
  for (uint64_t read = 0; at && part->p_filesz - read >= sizeof entry; read += sizeof entry) {
    if (!library_read_at(file, &entry, sizeof entry, at + read)) break;
    if (entry.d_tag == DT_STRTAB) names = entry.d_un.d_ptr;
    if (entry.d_tag == DT_SYMTAB) symbols = entry.d_un.d_ptr;
    if (entry.d_tag == DT_STRSZ) length = entry.d_un.d_val;
    if (entry.d_tag != DT_NULL) continue;
    if (!library_offset_of(file, names, length) || !library_offset_of(file, symbols, sizeof(ElfW(Sym)))) break;
    return NULL;
  }
  return "is damaged: it has no names or symbols";
}

static const char *library_damage_of(struct library_file *file) {
  ElfW(Ehdr) head;
  struct stat status;
  if (fstat(file->descriptor, &status) || !S_ISREG(status.st_mode)) return NULL;
  file->size = (uint64_t)status.st_size;
  if (!library_read_at(file, &head, sizeof head, 0) || memcmp(head.e_ident, ELFMAG, SELFMAG) ||
      head.e_ident[EI_CLASS] != ELFCLASS64 || head.e_phentsize != sizeof file->parts[0])
    return NULL;
  if (head.e_phnum > sizeof file->parts / sizeof file->parts[0]) return "is damaged: it has too many program headers";
  if (!library_read_at(file, file->parts, head.e_phnum * sizeof file->parts[0], head.e_phoff)) return NULL;
  file->count = head.e_phnum;
  for (int i = 0; i < file->count; i++) {
    const ElfW(Phdr) *part = &file->parts[i];
    if (part->p_type != PT_LOAD) continue;
    if (part->p_offset > file->size || part->p_filesz > file->size - part->p_offset) return "is cut off";
  }
  for (int i = 0; i < file->count; i++)
    if (file->parts[i].p_type == PT_DYNAMIC) return library_damage_of_dynamic(file, &file->parts[i]);
  return NULL;
}

/* Whether opening a file could wait, as for a pipe, or do something, as for a device. */
static int library_is_special(const char *path) {
  struct stat status;
  return !stat(path, &status) && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode);
}

/* Why the loader must not be given a file; NULL if it may try. */
static const char *library_damage(const char *path) {
  if (library_is_special(path)) return "is not a regular file";
  struct library_file file = {.descriptor = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC)};
  if (file.descriptor < 0) return NULL;
  const char *damage = library_damage_of(&file);
  close(file.descriptor);
  return damage;
}

#endif
