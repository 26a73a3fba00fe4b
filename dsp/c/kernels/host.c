#include "plain/failure.h"

/* The network as a process on this machine: `network WEIGHTS OFFSET`, a file and where in it the weights
 * begin. It writes a byte once it has them; then commands come in on standard input, and answers go to
 * standard output. Framing (host side in dsp/c/session.py), each command one byte:
 *   'R' inputs   run   -> status, outputs
 *   'T' inputs   trace -> after each step its status, and its output
 *   'F' byte     fill the arena and the margins around it
 *   'D'          dump  -> margin, arena, margin
 * A status is the node whose index is out of range, the index and its limit, or -1 and zeros; after a failure
 * nothing follows. The end of the input ends the process.
 */
#include <stdio.h>
#include <stdlib.h>
#if defined(__unix__) || defined(__APPLE__)
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#endif

static uint8_t *memory, *arena;
static const uint8_t *weights;

static void receive(void *buffer, size_t bytes) {
  if (fread(buffer, 1, bytes, stdin) != bytes) exit(feof(stdin) ? 0 : 1);
}

static void transmit(const void *buffer, size_t bytes) {
  if (fwrite(buffer, 1, bytes, stdout) != bytes) exit(1);
}

static void transmit_span(struct span span) { transmit(arena + span.offset, span.bytes); }

static void transmit_status(int32_t node) {
  transmit(&node, sizeof node);
  transmit(&failure.index, sizeof failure.index);
  transmit(&failure.limit, sizeof failure.limit);
}

static void run(int traced) {
  for (int32_t k = 0; k < INPUTS; k++) receive(arena + inputs[k].offset, inputs[k].bytes);
  failure.index = failure.limit = 0;
  for (int32_t k = 0; k < STEPS; k++) {
    step(k, arena, weights);
    if (traced || failure.limit) transmit_status(failure.limit ? k : -1);
    if (failure.limit) return;
    if (traced) transmit_span(steps[k]);
  }
  if (traced) return;
  transmit_status(-1);
  for (int32_t k = 0; k < OUTPUTS; k++) transmit_span(outputs[k]);
}

/* WEIGHTS_BYTES of a file from `offset` on, mapped where there is mmap. */
static const uint8_t *opened(const char *path, long long offset) {
#if defined(__unix__) || defined(__APPLE__)
  long long page = sysconf(_SC_PAGESIZE), start = offset / page * page;
  int file = open(path, O_RDONLY);
  if (file < 0) exit(3);
  size_t bytes = (size_t)(offset - start) + WEIGHTS_BYTES;
  void *mapped = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, file, (off_t)start);
  if (mapped == MAP_FAILED) exit(3);
  close(file);
  return (const uint8_t *)mapped + (offset - start);
#else
  FILE *file = fopen(path, "rb");
  uint8_t *buffer = malloc(WEIGHTS_BYTES);
  if (!file || !buffer || fseek(file, (long)offset, SEEK_SET)) exit(3);
  if (fread(buffer, 1, WEIGHTS_BYTES, file) != WEIGHTS_BYTES) exit(3);
  fclose(file);
  return buffer;
#endif
}

int main(int count, char **arguments) {
  if (count != 3) return 2;
  size_t bytes = (size_t)2 * MARGIN + ARENA_BYTES;
  memory = calloc(bytes, 1);
  if (!memory) return 3;
  arena = memory + MARGIN;
  weights = WEIGHTS_BYTES ? opened(arguments[1], atoll(arguments[2])) : memory;
  transmit("", 1);
  if (fflush(stdout)) return 1;
  for (;;) {
    uint8_t command, byte;
    receive(&command, 1);
    switch (command) {
      case 'R': run(0); break;
      case 'T': run(1); break;
      case 'F': receive(&byte, 1), memset(memory, byte, bytes); break;
      case 'D': transmit(memory, bytes); break;
      default: return 2;
    }
    if (fflush(stdout)) return 1;
  }
}
