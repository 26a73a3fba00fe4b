/* In place of runner/system.c: each system call goes over a socket to the tests' model of the kernel
 * (fake_phone.py), a connection for each, as the listener's call waits while others go on.
 */
#include "rpc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { OPEN = 1, CLOSE, MAP, IOCTL, MOST = 8 };
/* Calls, of mainline's node and the vendor's: 0xc0105203 is another request there. */
#define INVOKE 0xc0105203ul
#define CALL 0xc0105201ul
#define CALL_ATTRS 0xc0205207ul

static int vendor; /* the node is that of an Android vendor's kernel */

static int connected(uint32_t operation) {
  struct sockaddr_un address = {AF_UNIX, ""};
  int line = socket(AF_UNIX, SOCK_STREAM, 0);
  strcpy(address.sun_path, getenv("TOWLINE_FAKE_KERNEL"));
  if (connect(line, (struct sockaddr *)&address, sizeof address)) abort();
  if (write(line, &operation, 4) != 4) abort();
  return line;
}

static void put(int line, const void *data, size_t bytes) {
  for (const char *p = data; bytes;) {
    ssize_t n = write(line, p, bytes);
    if (n <= 0) abort();
    p += n, bytes -= (size_t)n;
  }
}

static void get(int line, void *data, size_t bytes) {
  for (char *p = data; bytes;) {
    ssize_t n = read(line, p, bytes);
    if (n <= 0) abort();
    p += n, bytes -= (size_t)n;
  }
}

int system_open(const char *path, int flags) {
  int line = connected(OPEN), result;
  uint32_t length = (uint32_t)strlen(path);
  put(line, &flags, 4);
  put(line, &length, 4);
  put(line, path, length);
  get(line, &result, 4);
  close(line);
  if (strstr(path, "adsprpc")) vendor = 1;
  return result;
}

void system_close(int file) {
  int line = connected(CLOSE);
  put(line, &file, 4);
  get(line, &file, 4);
  close(line);
}

void *system_map(int file, size_t bytes) {
  int line = connected(MAP), received;
  uint64_t size = bytes;
  char byte, control[CMSG_SPACE(sizeof(int))];
  struct iovec vector = {&byte, 1};
  struct msghdr message = {
      .msg_iov = &vector, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
  put(line, &file, 4);
  put(line, &size, 8);
  if (recvmsg(line, &message, 0) != 1) abort();
  memcpy(&received, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof received);
  void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, received, 0);
  uint64_t address = (uintptr_t)memory;
  put(line, &address, 8);
  get(line, &byte, 1);
  close(line);
  return memory == MAP_FAILED ? NULL : memory;
}

int64_t system_ioctl(int file, unsigned long request, void *data) {
  int line = connected(IOCTL);
  uint64_t number = request;
  size_t bytes = request >> 16 & 0x3fff;
  int64_t result;
  put(line, &file, 4);
  put(line, &number, 8);
  put(line, data, bytes);
  struct {
    uint32_t handle, scalars;
    uint64_t arguments, files, attributes;
  } invoke = {0};
  struct argument argument[MOST];
  uint32_t inputs = 0, outputs = 0;
  if (vendor ? request == CALL || request == CALL_ATTRS : request == INVOKE) {
    memcpy(&invoke, data, bytes);
    inputs = invoke.scalars >> 16 & 255, outputs = invoke.scalars >> 8 & 255;
  }
  const struct argument *own = (const struct argument *)(uintptr_t)invoke.arguments;
  const uint64_t *pairs = (const uint64_t *)(uintptr_t)invoke.arguments;
  const int32_t *files = (const int32_t *)(uintptr_t)invoke.files;
  const uint32_t *attributes = (const uint32_t *)(uintptr_t)invoke.attributes;
  if (inputs + outputs > MOST) abort();
  for (uint32_t i = 0; i < inputs + outputs; i++)
    argument[i] = !vendor ? own[i]
                          : (struct argument){pairs[2 * i], pairs[2 * i + 1], files ? files[i] : -1,
                                              attributes ? attributes[i] : 0};
  put(line, argument, (inputs + outputs) * sizeof *argument);
  for (uint32_t i = 0; i < inputs; i++)
    if (argument[i].file == -1) put(line, (const void *)(uintptr_t)argument[i].address, argument[i].bytes);
  get(line, &result, 8);
  get(line, data, bytes);
  for (uint32_t i = inputs; i < inputs + outputs && !result; i++)
    if (argument[i].file == -1) get(line, (void *)(uintptr_t)argument[i].address, argument[i].bytes);
  close(line);
  return result;
}
