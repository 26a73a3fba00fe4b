/* /dev/fastrpc-*, the driver of mainline kernels: misc/fastrpc.h (evidence: published). */
#include "rpc.h"

#include <fcntl.h>
#include <stdio.h>

struct alloc {
  int32_t file;
  uint32_t flags;
  uint64_t bytes;
};
struct invoke {
  uint32_t handle, scalars;
  uint64_t arguments;
};
struct create {
  uint32_t bytes;
  int32_t file;
  uint32_t attributes, signature;
  uint64_t address;
};

#define ALLOC_DMA_BUFF REQUEST(3, 'R', 1, struct alloc)
#define INVOKE REQUEST(3, 'R', 3, struct invoke)
#define INIT_CREATE REQUEST(3, 'R', 5, struct create)

_Static_assert(sizeof(struct alloc) == 16 && sizeof(struct invoke) == 16, "as in misc/fastrpc.h");
_Static_assert(sizeof(struct create) == 24 && sizeof(struct argument) == 24, "as in misc/fastrpc.h");

static void path(char to[64], const char *domain, int is_signed, int second) {
  snprintf(to, 64, "/dev/fastrpc-%s%s", domain, is_signed != second ? "-secure" : "");
}

/* The path says which DSP. */
static int64_t prepare(int node, uint32_t domain) {
  (void)node, (void)domain;
  return 0;
}

static int64_t create(int node, const struct buffer *shell, int is_signed) {
  struct create request = {(uint32_t)shell->bytes, shell->file, is_signed ? 0 : UNSIGNED_MODULE, 0, shell->address};
  return system_ioctl(node, INIT_CREATE, &request);
}

static int64_t invoke(int node, uint32_t handle, uint32_t scalars, const struct argument *arguments,
                      uint32_t count) {
  (void)count;
  struct invoke request = {handle, scalars, (uintptr_t)arguments};
  return system_ioctl(node, INVOKE, &request);
}

static int64_t allocate_own(int node, uint64_t bytes, int32_t *file) {
  struct alloc request = {-1, 0, bytes};
  int64_t result = system_ioctl(node, ALLOC_DMA_BUFF, &request);
  *file = request.file;
  return result;
}

const struct driver MAINLINE = {
    .name = "mainline",
    .flags = O_RDWR,
    .mmap = REQUEST(3, 'R', 6, struct grow),
    .munmap = REQUEST(3, 'R', 7, struct shrink),
    .path = path,
    .prepare = prepare,
    .create = create,
    .invoke = invoke,
    .allocate = allocate_own,
};
