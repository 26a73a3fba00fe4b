/* `runner PLAN RESULT`, in the directory of the plan's files.
 *
 * The result is what job.py reads: a `struct head`, a `struct run` for each timed inference, nanoseconds of each
 * layer, the output, the trace, and the SHA-256 of all before. On standard output it says "towline-runner done",
 * or "towline-runner error KIND: TEXT"; notes go to standard error.
 * It ends when standard input does: then the cable was pulled, or the user pressed Ctrl-C.
 */
#include "runner.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { FAILED = 1, USAGE = 2, CUT_OFF = 75 };
enum { CLOSING = 2 }; /* seconds, as in dsp/hexagon/fastrpc/domain.py */

struct head {
  char magic[8]; /* TOWDONE2 */
  struct outcome outcome;
  uint32_t runs, layers;
  struct setup setup;
};

_Static_assert(sizeof(struct head) == 48 && sizeof(struct run) == 24, "the result is as job.py reads it");

void fail(const char *kind, const char *format, ...) {
  va_list values;
  printf("towline-runner error %s: ", kind);
  va_start(values, format);
  vprintf(format, values);
  va_end(values);
  printf("\n");
  fflush(stdout);
  _exit(FAILED); /* not exit: the thread of the listener may still be in the kernel */
}

void note(const char *format, ...) {
  va_list values;
  va_start(values, format);
  vfprintf(stderr, format, values);
  va_end(values);
  fputc('\n', stderr);
}

void *allocate(size_t bytes) {
  void *memory = calloc(bytes ? bytes : 1, 1);
  if (!memory) fail("memory", "no memory for %zu bytes", bytes);
  return memory;
}

uint64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void *watch(void *nothing) {
  char byte;
  ssize_t got;
  do
    got = read(0, &byte, 1);
  while (got > 0 || (got < 0 && errno == EINTR));
  _exit(CUT_OFF);
  return nothing;
}

static void leave(int number) {
  (void)number;
  _exit(0);
}

/* A file, mapped. An empty one has some address. */
static const uint8_t *mapped(const char *name, uint64_t *bytes) {
  struct stat facts;
  int file = open(name, O_RDONLY | O_CLOEXEC);
  if (file < 0 || fstat(file, &facts)) fail("damaged", "%s: %s", name, strerror(errno));
  *bytes = (uint64_t)facts.st_size;
  void *data = (void *)name;
  if (*bytes) data = mmap(NULL, *bytes, PROT_READ, MAP_PRIVATE, file, 0);
  if (data == MAP_FAILED) fail("memory", "%s cannot be mapped: %s", name, strerror(errno));
  close(file);
  return data;
}

static const uint8_t *verified(const struct part *part, const char *what) {
  char name[2 * DIGEST + 1];
  uint8_t digest[DIGEST];
  uint64_t bytes;
  if (!part->bytes) return (const uint8_t *)"";
  for (unsigned i = 0; i < DIGEST; i++) sprintf(name + 2 * i, "%02x", part->digest[i]);
  const uint8_t *data = mapped(name, &bytes);
  if (bytes == part->bytes) {
    sha256(data, bytes, digest);
    if (!memcmp(digest, part->digest, DIGEST)) return data;
  }
  fail("damaged", "%s: the file %s is not what was sent", what, name);
}

static const struct plan *read_plan(const char *name) {
  uint64_t bytes;
  uint8_t digest[DIGEST];
  const struct plan *plan = (const struct plan *)mapped(name, &bytes);
  if (bytes < PLAN_BYTES + DIGEST) fail("damaged", "the plan has %llu bytes", (unsigned long long)bytes);
  bytes -= DIGEST;
  sha256(plan, bytes, digest);
  if (memcmp(digest, (const uint8_t *)plan + bytes, DIGEST)) fail("damaged", "the plan is not what was sent");
  if (memcmp(plan->magic, "TOWPLAN3", 8) || plan->engine != ENGINE || !plan->runs)
    fail("plan", "the plan is for another program");
  if (plan->input.bytes != plan->input_bytes)
    fail("plan", "an input of %llu bytes", (unsigned long long)plan->input.bytes);
  if (plan->schedule_bytes != bytes - PLAN_BYTES)
    fail("plan", "a schedule of %llu bytes", (unsigned long long)plan->schedule_bytes);
  engine_check(plan);
  return plan;
}

static void write_whole(const char *name, const uint8_t *data, size_t bytes) {
  int file = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0) fail("room", "%s: %s", name, strerror(errno));
  while (bytes) {
    ssize_t done = write(file, data, bytes);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) fail("room", "%s: %s", name, strerror(errno));
    data += done, bytes -= (size_t)done;
  }
  if (close(file)) fail("room", "%s: %s", name, strerror(errno));
}

int main(int count, char **arguments) {
  pthread_t watcher;
  if (count != 3) {
    fprintf(stderr, "usage: runner PLAN RESULT\n");
    return USAGE;
  }
  if (pthread_create(&watcher, NULL, watch, NULL)) fail("memory", "a thread cannot be started");
  const struct plan *plan = read_plan(arguments[1]);
  const uint8_t *code = verified(&plan->code, "the code");
  const uint8_t *weights = verified(&plan->weights, "the weights");
  const uint8_t *input = verified(&plan->input, "the input");

  /* Two numbers of 32 bits: `times` cannot overflow. */
  size_t times = sizeof(struct head) + plan->runs * sizeof(struct run) + plan->layers * sizeof(uint64_t);
  size_t bytes, whole;
  if (__builtin_add_overflow(times, plan->output_bytes, &bytes) ||
      __builtin_add_overflow(bytes, plan->trace_bytes, &bytes) || __builtin_add_overflow(bytes, DIGEST, &whole))
    fail("plan", "a result of more than 64 bits");
  uint8_t *result = allocate(whole), *output = result + times;
  struct head *head = (struct head *)result;
  struct run *runs = (struct run *)(head + 1);
  *head = (struct head){"TOWDONE2", {-1, 0, 0}, plan->runs, plan->layers, {0, 0}};

  head->setup = engine_open(plan, code, weights);
  for (uint32_t done = 0; done < plan->runs && head->outcome.step < 0; done++) {
    uint64_t begun = now();
    head->outcome = engine_run(input, output, &runs[done]);
    runs[done].nanoseconds = now() - begun;
  }
  if (head->outcome.step < 0) {
    if (plan->layers) engine_profile(input, (uint64_t *)(runs + plan->runs));
    if (plan->trace_bytes) engine_trace(input, output + plan->output_bytes);
  }

  sha256(result, bytes, result + bytes);
  write_whole(arguments[2], result, whole);
  printf("towline-runner done\n");
  fflush(stdout);
  signal(SIGALRM, leave);
  alarm(CLOSING);
  engine_close();
  _exit(0);
}
