/* The system calls of Linux. */
#include "rpc.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

int system_open(const char *path, int flags) {
  int file = open(path, flags | O_CLOEXEC);
  return file < 0 ? -errno : file;
}

void system_close(int file) { close(file); }

/* The driver passes a DSP's error on, 0x80000400 and up: negative, but no errno. */
int64_t system_ioctl(int file, unsigned long request, void *data) {
  for (;;) {
    errno = 0;
    int result = ioctl(file, request, data);
    if (result != -1 || !errno) return (uint32_t)result;
    if (errno != EINTR) return -errno;
  }
}

void *system_map(int file, size_t bytes) {
  void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  return memory == MAP_FAILED ? NULL : memory;
}
