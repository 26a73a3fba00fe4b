/* FastRPC in C, as dsp/hexagon/fastrpc has it in Python: that package gives the evidence of each fact. */
#ifndef RPC_H
#define RPC_H
#include "runner.h"

/* system.c: the seam to the kernel. Tests put another file in its place. */
int system_open(const char *path, int flags);                      /* -errno on failure */
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

/* Kernel memory for the heap of the process on the DSP: both drivers' structures. */
struct grow {
  int32_t file;
  uint32_t flags;
  uint64_t in, bytes, out;
};
struct shrink {
  uint64_t address, bytes;
};
_Static_assert(sizeof(struct grow) == 32 && sizeof(struct shrink) == 16, "as in the kernels' headers");

#define REQUEST(kind, letter, number, type) \
  ((unsigned long)(kind) << 30 | sizeof(type) << 16 | (unsigned long)(letter) << 8 | (number))
enum { UNSIGNED_MODULE = 8, ARGUMENTS = 8 };

/* A kernel's driver: mainline.c, android.c. The functions return as system_ioctl. */
struct driver {
  const char *name; /* as in a device string */
  int flags;        /* of open */
  int by_shell;     /* whether processes on the cdsp are of the kind whose shell is there */
  unsigned long mmap, munmap;
  void (*path)(char to[64], const char *domain, int is_signed, int second);
  int64_t (*prepare)(int node, uint32_t domain);
  int64_t (*create)(int node, const struct buffer *shell, int is_signed);
  int64_t (*invoke)(int node, uint32_t handle, uint32_t scalars, const struct argument *arguments, uint32_t count);
  int64_t (*allocate)(int node, uint64_t bytes, int32_t *file);
};
extern const struct driver MAINLINE, ANDROID;

/* dsp.c. What a driver adds to its last error, or "". */
extern const char *reason;
/* Ends the program with the result of a request: its step, and who refused it how, for the laptop to say. */
_Noreturn void refused(const char *step, int64_t result);
/* A call's first input is `words`; 0 words: there is none. As system_ioctl returns. */
int64_t call(uint32_t handle, uint32_t method, const uint32_t *words, uint32_t count,
             const struct argument *arguments, uint32_t inputs, uint32_t outputs);
int64_t heap_grow(uint32_t flags, uint64_t bytes, uint64_t *address);
int64_t heap_shrink(uint64_t address, uint64_t bytes);
/* A file by a plain name in the directories of the DSP's libraries; data NULL: there is none. */
struct file library(const char *name);

/* listener.c: answers the process on the DSP, which may load `object` by `name`. */
void listener_start(const char *name, struct file object);
#endif
