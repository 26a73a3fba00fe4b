/* The calls that come back: the process on the DSP asks for files and for memory.
 *
 * As dsp/hexagon/fastrpc/listener.py: a thread waits in adsp_listener.next2 for a request, and its next call of
 * that has the answer. Files are read-only: the network's object, and plain names in the library directories.
 */
#include "rpc.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LISTENER = 3, INIT2 = 3, NEXT2 = 4, GET_IN_BUFS2 = 5, EXTENDED = 31 };
enum { ROOM = 64 << 10, BUFFERS = 255, OPEN_FILES = 64, FIRST_FILE = 100, UNSUPPORTED = 0x14 };
enum { REMOTECTL, STD, MEMORY, INTERFACES };

static const char *const NAMES[INTERFACES] = {"apps_remotectl", "apps_std", "apps_mem"};

static const char *object_name;
static struct file object;
static struct {
  struct file file;
  size_t position;
  int used;
} files[OPEN_FILES];

/* One request: numbers and sequences that came, and room for what goes back. */
struct request {
  uint32_t inputs, outputs, numbers_bytes;
  const uint8_t *numbers;
  struct file input[BUFFERS];
  uint32_t size[BUFFERS];
  uint8_t *output[BUFFERS]; /* zeros */
};

static uint32_t number(const struct request *request, uint32_t index) {
  uint32_t value = 0;
  if (4 * index + 4 <= request->numbers_bytes) memcpy(&value, request->numbers + 4 * index, 4);
  return value;
}

static uint64_t longer(const struct request *request, uint32_t offset) {
  uint64_t value = 0;
  if (offset + 8 <= request->numbers_bytes) memcpy(&value, request->numbers + offset, 8);
  return value;
}

/* Bytes at an offset of an output, as far as the other side has room. */
static void give(struct request *request, uint32_t index, uint32_t offset, const void *data, size_t bytes) {
  if (index >= request->outputs || offset >= request->size[index]) return;
  size_t room = request->size[index] - offset;
  memcpy(request->output[index] + offset, data, bytes < room ? bytes : room);
}

static void give_word(struct request *request, uint32_t offset, uint32_t word) {
  give(request, 0, offset, &word, sizeof word);
}

/* A sequence as text, which ends with a zero; "" if it is none. */
static const char *text(const struct request *request, uint32_t index) {
  if (index + 1 >= request->inputs) return "";
  const struct file *input = &request->input[index + 1];
  return input->bytes && memchr(input->data, 0, input->bytes) ? (const char *)input->data : "";
}

static struct file find(const char *name) {
  static const struct file none = {NULL, 0};
  if (!strncmp(name, "./", 2)) name += 2;
  if (!strcmp(name, object_name)) return object;
  if (strchr(name, '/') || !*name || !strcmp(name, ".") || !strcmp(name, "..")) return none;
  return library(name);
}

static int32_t open_file(struct request *request, const char *name, const char *mode) {
  if (*mode != 'r' || strchr(mode, '+')) return EACCES;
  struct file found = find(name);
  note("the DSP opens the file %s%s", name, found.data ? "" : ": not there");
  if (!found.data) return ENOENT;
  for (uint32_t i = 0; i < OPEN_FILES; i++)
    if (!files[i].used) {
      files[i].used = 1, files[i].file = found, files[i].position = 0;
      give_word(request, 0, FIRST_FILE + i);
      return 0;
    }
  return EMFILE;
}

static int32_t seek(uint32_t which, int64_t offset, uint32_t whence) {
  int64_t end = (int64_t)files[which].file.bytes;
  int64_t base = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? (int64_t)files[which].position : end;
  if (whence > SEEK_END || base + offset < 0) return EINVAL;
  files[which].position = (size_t)(base + offset);
  return 0;
}

static void read_next(struct request *request, uint32_t which, uint32_t bytes) {
  struct file *file = &files[which].file;
  size_t left = files[which].position < file->bytes ? file->bytes - files[which].position : 0;
  size_t got = left < bytes ? left : bytes;
  give(request, 1, 0, file->data + file->bytes - left, got);
  files[which].position += got;
  give_word(request, 0, (uint32_t)got);
  give_word(request, 4, got < bytes);
}

/* apps_std, by the numbers of its methods. */
static int32_t standard(struct request *request, uint32_t method) {
  struct file found;
  switch (method) {
    case 0: return open_file(request, text(request, 0), text(request, 1));
    case 19: return open_file(request, text(request, 2), text(request, 3));
    case 15: note("the DSP says: %s", text(request, 0)); return 0;
    case 22:
      found = find(text(request, 0));
      give(request, 0, 0, found.data ? "\1" : "\0", 1);
      return 0;
    case 31: /* stat: device and inode, mode and links at 24, the size at 40 */
      found = find(text(request, 0));
      if (!found.data) return ENOENT;
      give_word(request, 24, 0100444);
      give_word(request, 28, 1);
      give(request, 0, 40, &(uint64_t){found.bytes}, 8);
      return 0;
    default: break;
  }
  if (method > 31 || !strchr("\2\3\4\10\11\12\13\14\15\16", (int)method) || !method) return UNSUPPORTED;
  uint32_t which = number(request, 0) - FIRST_FILE;
  if (which >= OPEN_FILES || !files[which].used) return EBADF;
  size_t end = files[which].file.bytes;
  switch (method) {
    case 3: files[which].used = 0; return 0;
    case 4: read_next(request, which, number(request, 1)); return 0;
    case 8: give_word(request, 0, (uint32_t)files[which].position); return 0;
    case 9: return seek(which, (int32_t)number(request, 1), number(request, 2));
    case 10: give(request, 0, 0, &(uint64_t){end}, 8); return 0;
    case 11: return seek(which, 0, SEEK_SET);
    case 12: give_word(request, 0, files[which].position >= end); return 0;
    default: return 0; /* flush, ferror, clearerr: nothing is written, nothing fails */
  }
}

static int32_t memory(struct request *request, uint32_t method) {
  uint64_t address = 0;
  int64_t result;
  switch (method) {
    case 0:
      if (heap_grow(number(request, 2), number(request, 4), &address)) return ENOMEM;
      give_word(request, 4, (uint32_t)address);
      return 0;
    case 2:
      result = heap_grow(number(request, 2), longer(request, 24), &address);
      if (result) return ENOMEM;
      give(request, 0, 8, &address, 8);
      return 0;
    case 1: return heap_shrink(number(request, 0), number(request, 1)) ? ENOMEM : 0;
    case 3: return heap_shrink(longer(request, 0), longer(request, 8)) ? ENOMEM : 0;
    default: return UNSUPPORTED;
  }
}

static int32_t remotectl(struct request *request, uint32_t method) {
  if (method == 1) return 0;
  if (method != 0) return UNSUPPORTED;
  for (uint32_t i = 0; i < INTERFACES; i++)
    if (!strcmp(text(request, 0), NAMES[i])) {
      give_word(request, 0, i);
      return 0;
    }
  give_word(request, 4, (uint32_t)-5);
  return 0;
}

/* -- how a request's buffers lie: marshal.py ------------------------------------------------------------ */

static int unpack(struct request *request, uint32_t scalars, const uint8_t *data, size_t bytes) {
  size_t at = 0;
  memset(request, 0, sizeof *request);
  request->inputs = scalars >> 16 & 255;
  request->outputs = scalars >> 8 & 255;
  for (uint32_t i = 0; i < request->inputs + request->outputs; i++) {
    uint32_t length;
    if (at + 4 > bytes) return 0;
    memcpy(&length, data + at, 4);
    at += 4;
    if (i >= request->inputs) {
      request->size[i - request->inputs] = length;
      continue;
    }
    if (length) at = (at + 7) / 8 * 8;
    if (at > bytes || length > bytes - at) return 0;
    request->input[i] = (struct file){data + at, length};
    at += length;
  }
  if (request->inputs) {
    request->numbers = request->input[0].data;
    request->numbers_bytes = (uint32_t)request->input[0].bytes;
  }
  for (uint32_t i = 0; i < request->outputs; i++) request->output[i] = allocate(request->size[i]);
  return 1;
}

static struct file pack(const struct request *request) {
  size_t bytes = 0, at = 0;
  for (uint32_t i = 0; i < request->outputs; i++) bytes += 12 + (size_t)request->size[i];
  uint8_t *packed = allocate(bytes);
  for (uint32_t i = 0; i < request->outputs; i++) {
    memcpy(packed + at, &request->size[i], 4);
    at += 4;
    if (request->size[i]) at = (at + 7) / 8 * 8;
    memcpy(packed + at, request->output[i], request->size[i]);
    at += request->size[i];
  }
  return (struct file){packed, at};
}

static int32_t answer(uint32_t handle, uint32_t scalars, const uint8_t *data, size_t bytes, struct file *packed) {
  static struct request request; /* one thread */
  int32_t result = EINVAL;
  *packed = (struct file){NULL, 0};
  if (unpack(&request, scalars, data, bytes)) {
    uint32_t method = scalars >> 24 & 31;
    if (method == EXTENDED && request.numbers_bytes >= 4) {
      method = number(&request, 0);
      request.numbers += 4, request.numbers_bytes -= 4;
    }
    result = scalars & 255            ? UNSUPPORTED
             : handle == REMOTECTL ? remotectl(&request, method)
             : handle == STD       ? standard(&request, method)
             : handle == MEMORY    ? memory(&request, method)
                                   : UNSUPPORTED;
    if (!result) *packed = pack(&request);
  }
  if (result == UNSUPPORTED) note("the DSP asks for a method of %u that does not exist: %#x", handle, scalars);
  for (uint32_t i = 0; i < request.outputs; i++) free(request.output[i]);
  return result;
}

static void *serve(void *nothing) {
  uint8_t *data = allocate(ROOM);
  struct file packed = {NULL, 0};
  uint32_t context = 0, result = (uint32_t)-1;
  for (;;) {
    uint32_t got[4];
    const uint32_t words[] = {context, result, (uint32_t)packed.bytes, ROOM};
    const struct argument next[] = {{(uintptr_t)packed.data, packed.bytes, -1, 0},
                                    {(uintptr_t)got, sizeof got, -1, 0},
                                    {(uintptr_t)data, ROOM, -1, 0}};
    if (call(LISTENER, NEXT2, words, 4, next, 1, 2)) return nothing; /* the process is gone */
    free((void *)packed.data);
    context = got[0];
    uint8_t *whole = data;
    if (got[3] > ROOM) { /* the rest is fetched on its own */
      uint32_t rest = got[3] - ROOM, length;
      whole = allocate(got[3]);
      memcpy(whole, data, ROOM);
      const uint32_t which[] = {context, ROOM, rest};
      const struct argument more[] = {{(uintptr_t)&length, 4, -1, 0}, {(uintptr_t)(whole + ROOM), rest, -1, 0}};
      if (call(LISTENER, GET_IN_BUFS2, which, 3, more, 0, 2)) return nothing;
    }
    result = (uint32_t)answer(got[1], got[2], whole, got[3], &packed);
    if (whole != data) free(whole);
  }
}

void listener_start(const char *name, struct file given) {
  struct argument none[1];
  pthread_t thread;
  sigset_t all, before;
  object_name = name;
  object = given;
  int64_t result = call(LISTENER, INIT2, NULL, 0, none, 0, 0);
  if (result) refused("the start of its listener", result);
  sigfillset(&all); /* the driver forgets a call that a signal interrupts, and the request with it */
  pthread_sigmask(SIG_SETMASK, &all, &before);
  if (pthread_create(&thread, NULL, serve, NULL)) fail("memory", "the listener's thread cannot be started");
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}
