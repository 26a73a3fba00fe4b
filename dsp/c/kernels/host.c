/* The network as a process on this machine: weights come in on standard input, then commands; answers go to
 * standard output. Framing (host side in dsp/c/session.py), each command one byte:
 *   'R' inputs   run   -> outputs
 *   'T' inputs   trace -> each step's output after it
 *   'F' byte     fill the arena and the margins around it
 *   'D'          dump  -> margin, arena, margin
 * The end of the input ends the process.
 */
#include <stdio.h>
#include <stdlib.h>

static uint8_t memory[2 * MARGIN + ARENA_BYTES], weights[WEIGHTS_BYTES];
static uint8_t *const arena = memory + MARGIN;

static void receive(void *buffer, size_t bytes) {
  if (fread(buffer, 1, bytes, stdin) != bytes) exit(feof(stdin) ? 0 : 1);
}

static void transmit(const void *buffer, size_t bytes) {
  if (fwrite(buffer, 1, bytes, stdout) != bytes) exit(1);
}

static void transmit_span(struct span span) { transmit(arena + span.offset, span.bytes); }

static void run(int traced) {
  for (int32_t k = 0; k < INPUTS; k++) receive(arena + inputs[k].offset, inputs[k].bytes);
  for (int32_t k = 0; k < STEPS; k++) {
    step(k, arena, weights);
    if (traced) transmit_span(steps[k]);
  }
  for (int32_t k = 0; k < OUTPUTS; k++)
    if (!traced) transmit_span(outputs[k]);
}

int main(void) {
  receive(weights, sizeof weights);
  for (;;) {
    uint8_t command, byte;
    receive(&command, 1);
    switch (command) {
      case 'R': run(0); break;
      case 'T': run(1); break;
      case 'F': receive(&byte, 1), memset(memory, byte, sizeof memory); break;
      case 'D': transmit(memory, sizeof memory); break;
      default: return 2;
    }
    if (fflush(stdout)) return 1;
  }
}
