/* FastRPC in C, as dsp/hexagon/fastrpc has it in Python: that package gives the evidence of each fact. */
#ifndef RPC_H
#define RPC_H
#include "runner.h"

/* system.c: the seam to the kernel. Tests put another file in its place. */
int system_open(const char *path);                                 /* -errno on failure */
void system_close(int file);
int64_t system_ioctl(int file, unsigned long request, void *data); /* -errno; 0; or what the DSP answered */
void *system_map(int file, size_t bytes);                          /* NULL on failure */

struct buffer {
  uint64_t address, bytes; /* of the mapping */
  int32_t file;
};

/* misc/fastrpc.h: a buffer of a call; with `file` -1 the kernel copies it. */
struct argument {
  uint64_t address, bytes;
  int32_t file;
  uint32_t attributes;
};

struct file {
  const uint8_t *data;
  size_t bytes;
};

/* dsp.c. A call's first input is `words`; 0 words: there is none. As system_ioctl returns. */
int64_t call(uint32_t handle, uint32_t method, const uint32_t *words, uint32_t count,
             const struct argument *arguments, uint32_t inputs, uint32_t outputs);
int64_t heap_grow(uint32_t flags, uint64_t bytes, uint64_t *address);
int64_t heap_shrink(uint64_t address, uint64_t bytes);
/* A file by a plain name in the directories of the DSP's libraries; data NULL: there is none. */
struct file library(const char *name);

/* listener.c: answers the process on the DSP, which may load `object` by `name`. */
void listener_start(const char *name, struct file object);
#endif
