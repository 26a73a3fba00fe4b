/* The engine for the target c: it is compiled as one text with the network and its sizes
 * (towline/phone/build.py), which have `step`, `failure`, `inputs`, `outputs` and `steps`.
 */
#include "runner.h"

#include <string.h>

const uint32_t ENGINE = FOR_C;

static uint8_t *engine_arena;
static const uint8_t *engine_weights;

static uint64_t total(const struct span *spans, int32_t count) {
  uint64_t bytes = 0;
  for (int32_t k = 0; k < count; k++) bytes += spans[k].bytes;
  return bytes;
}

void engine_check(const struct plan *plan) {
  if (plan->weights.bytes != WEIGHTS_BYTES || plan->input_bytes != total(inputs, INPUTS) ||
      plan->output_bytes != total(outputs, OUTPUTS) ||
      (plan->trace_bytes && plan->trace_bytes != total(steps, STEPS)) || (plan->layers && plan->layers != STEPS))
    fail("plan", "the sizes are another network's");
}

struct setup engine_open(const struct plan *plan, const uint8_t *code, const uint8_t *weights) {
  (void)plan, (void)code;
  engine_arena = allocate((size_t)2 * MARGIN + ARENA_BYTES);
  engine_arena += MARGIN;
  engine_weights = weights;
  return (struct setup){0, 0};
}

static void engine_give(const uint8_t *input) {
  failure.index = failure.limit = 0;
  for (int32_t k = 0; k < INPUTS; k++) {
    memcpy(engine_arena + inputs[k].offset, input, inputs[k].bytes);
    input += inputs[k].bytes;
  }
}

struct outcome engine_run(const uint8_t *input, uint8_t *output, struct run *run) {
  run->device_us = UNKNOWN, run->contexts = 0;
  engine_give(input);
  for (int32_t k = 0; k < STEPS; k++) {
    step(k, engine_arena, engine_weights);
    if (failure.limit) return (struct outcome){k, failure.index, failure.limit};
  }
  for (int32_t k = 0; k < OUTPUTS; k++) {
    memcpy(output, engine_arena + outputs[k].offset, outputs[k].bytes);
    output += outputs[k].bytes;
  }
  return (struct outcome){-1, 0, 0};
}

void engine_trace(const uint8_t *input, uint8_t *kept) {
  engine_give(input);
  for (int32_t k = 0; k < STEPS; k++) {
    step(k, engine_arena, engine_weights);
    memcpy(kept, engine_arena + steps[k].offset, steps[k].bytes);
    kept += steps[k].bytes;
  }
}

void engine_profile(const uint8_t *input, uint64_t *nanoseconds) {
  engine_give(input);
  for (int32_t k = 0; k < STEPS; k++) {
    uint64_t begun = now();
    step(k, engine_arena, engine_weights);
    nanoseconds[k] = now() - begun;
  }
}

void engine_close(void) {}
