/* /dev/adsprpc-smd, the driver of Android vendors' kernels, and ION for memory.
 *
 * As dsp/hexagon/fastrpc/android.py and uapi_android.py, which give the evidence: trace and published.
 */
#include "rpc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

struct remote {
  uint64_t address, bytes;
};
struct invoke {
  uint32_t handle, scalars;
  uint64_t arguments; /* as many `struct remote` */
};
struct invoke_attrs {
  struct invoke call;
  uint64_t files, attributes; /* for each: a descriptor, or -1 and the kernel copies; 0 */
};
struct init {
  uint32_t flags;
  uint64_t address;
  uint32_t bytes;
  int32_t file;
  uint64_t memory;
  uint32_t memory_bytes;
  int32_t memory_file;
};
struct init_attrs {
  struct init init;
  uint32_t attributes, signature;
};
struct control {
  uint32_t request, value, level;
};
struct ion {
  uint64_t bytes, align;
  uint32_t heaps, flags;
  int32_t handle;
};
struct ion_share {
  int32_t handle, file;
};
struct ion_new {
  uint64_t bytes;
  uint32_t heaps, flags, file, unused;
};

#define INVOKE REQUEST(3, 'R', 1, struct invoke)
#define INIT REQUEST(3, 'R', 6, struct init)
#define INVOKE_ATTRS REQUEST(3, 'R', 7, struct invoke_attrs)
#define GETINFO REQUEST(3, 'R', 8, uint32_t)
#define INIT_ATTRS REQUEST(3, 'R', 10, struct init_attrs)
#define CONTROL REQUEST(3, 'R', 12, struct control)
#define ION_ALLOC REQUEST(3, 'I', 0, struct ion)
#define ION_ALLOC_NEW REQUEST(3, 'I', 0, struct ion_new)
#define ION_FREE REQUEST(3, 'I', 1, int32_t)
#define ION_SHARE REQUEST(3, 'I', 4, struct ion_share)

_Static_assert(sizeof(struct invoke_attrs) == 32 && sizeof(struct init) == 40, "as in adsprpc_shared.h");
_Static_assert(sizeof(struct init_attrs) == 48 && sizeof(struct control) == 12, "as in adsprpc_shared.h");
_Static_assert(sizeof(struct ion) == 32 && sizeof(struct ion_new) == 24, "as in ion.h");

enum { CREATE = 1, KALLOC = 3, SYSTEM_HEAP = 1 << 25, CACHED = 1, PAGE = 4096 };

/* A DSP that restarted is a positive number (evidence: published). */
static int64_t ask(int node, unsigned long request, const char *unknown, void *data) {
  int64_t result = system_ioctl(node, request, data);
  if (result == -ENOTTY) reason = unknown;
  return result == ECONNRESET ? -ECONNRESET : result;
}

#define ASK(node, request, data) ask(node, request, "the driver has no " #request, data)

/* Drivers that have both serve the compute DSP alone by the first (evidence: published). */
static void path(char to[64], const char *domain, int is_signed, int second) {
  (void)is_signed;
  snprintf(to, 64, "/dev/adsprpc-smd%s", (*domain == 'a') != second ? "-secure" : "");
}

static int64_t prepare(int node, uint32_t domain) {
  struct control control = {KALLOC, 0, 0};
  int64_t result = ASK(node, GETINFO, &domain);
  if (!result) result = ASK(node, CONTROL, &control);
  if (result || control.value) return result;
  reason = "the driver has no kalloc";
  return -ENOTTY;
}

static int64_t create(int node, const struct buffer *shell, int is_signed) {
  struct init_attrs request = {
      {CREATE, shell->address, (uint32_t)shell->bytes, shell->file, 0, 0, -1}, UNSIGNED_MODULE, 0};
  return is_signed ? ASK(node, INIT, &request.init) : ASK(node, INIT_ATTRS, &request);
}

static int64_t invoke(int node, uint32_t handle, uint32_t scalars, const struct argument *arguments,
                      uint32_t count) {
  struct remote table[ARGUMENTS];
  int32_t files[ARGUMENTS];
  uint32_t attributes[ARGUMENTS] = {0};
  int mapped = 0;
  for (uint32_t i = 0; i < count; i++) {
    table[i] = (struct remote){arguments[i].address, arguments[i].bytes};
    files[i] = arguments[i].file;
    mapped |= files[i] != -1;
  }
  struct invoke_attrs request = {
      {handle, scalars, (uintptr_t)table}, (uintptr_t)files, (uintptr_t)attributes};
  return mapped ? ASK(node, INVOKE_ATTRS, &request) : ASK(node, INVOKE, &request.call);
}

/* Kernels from Linux 4.12 on do not know the older request, or refuse its size. */
static int64_t allocate_ion(int node, uint64_t bytes, int32_t *file) {
  (void)node;
  int ion = system_open("/dev/ion", O_RDONLY);
  if (ion < 0) {
    reason = "no memory for buffers from /dev/dma_heap/system or /dev/ion";
    return ion;
  }
  struct ion old = {bytes, PAGE, SYSTEM_HEAP, CACHED, 0};
  int64_t result = system_ioctl(ion, ION_ALLOC, &old);
  if (result == -ENOTTY || result == -EINVAL) {
    struct ion_new request = {bytes, SYSTEM_HEAP, CACHED, 0, 0};
    result = system_ioctl(ion, ION_ALLOC_NEW, &request);
    *file = (int32_t)request.file;
  } else if (!result) {
    struct ion_share share = {old.handle, -1};
    result = system_ioctl(ion, ION_SHARE, &share);
    *file = share.file;
    system_ioctl(ion, ION_FREE, &old.handle); /* the descriptor keeps the buffer */
  }
  system_close(ion);
  return result;
}

const struct driver ANDROID = {
    .name = "android",
    .flags = O_RDONLY | O_NONBLOCK, /* programs may not open it for writing (evidence: published) */
    .by_shell = 1,
    .mmap = REQUEST(3, 'R', 2, struct grow),
    .munmap = REQUEST(3, 'R', 3, struct shrink),
    .path = path,
    .prepare = prepare,
    .create = create,
    .invoke = invoke,
    .allocate = allocate_ion,
};
