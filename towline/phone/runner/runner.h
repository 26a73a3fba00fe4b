/* What runs a network on a phone: the parts of the program, and the plan that it is given.
 *
 * The plan is PLAN_BYTES of little-endian numbers (written by towline/phone/job.py). It names files of its
 * own directory by their SHA-256, in hexadecimal. Nothing is run before all digests are right.
 */
#ifndef RUNNER_H
#define RUNNER_H
#include <stddef.h>
#include <stdint.h>

enum { DIGEST = 32, PLAN_BYTES = 208 };

struct part {
  uint8_t digest[DIGEST];
  uint64_t bytes;
};

struct plan {
  char magic[8]; /* TOWPLAN2 */
  uint32_t engine; /* ENGINE of the program that is to run it */
  uint32_t runs;   /* inferences that are timed */
  uint32_t layers; /* layers to time, each on its own; 0: none */
  uint32_t driver; /* of the DSP: 0 mainline's, 1 Android's, ANY */
  uint64_t input_bytes, output_bytes;
  uint64_t trace_bytes; /* of every layer's output; 0: they are not wanted */
  struct part code, weights, input;
  uint32_t domain; /* of the DSP: 0 audio, 3 compute, ANY */
  uint32_t process; /* 0 unsigned, 1 signed, ANY */
  uint8_t digest[DIGEST]; /* of all before */
};

_Static_assert(sizeof(struct plan) == PLAN_BYTES, "the plan is as job.py writes it");

#define ANY 0xffffffffu
enum { FOR_C = 1, FOR_DSP = 2 };

/* Why an inference had no result: the step whose index was out of range; -1 if it has one. */
struct outcome {
  int64_t step, index, limit;
};

/* One of these is linked in. */
extern const uint32_t ENGINE;
/* The network, its weights and memory; `code` and `weights` stay. */
void engine_open(const struct plan *plan, const uint8_t *code, const uint8_t *weights);
struct outcome engine_run(const uint8_t *input, uint8_t *output);
/* Every layer's output. */
void engine_trace(const uint8_t *input, uint8_t *kept);
/* Nanoseconds of each layer. */
void engine_profile(const uint8_t *input, uint64_t *nanoseconds);
void engine_close(void);

/* sha256.c */
void sha256(const void *data, size_t bytes, uint8_t digest[DIGEST]);

/* main.c. Kinds of failures, which job.py reads: plan, damaged, room, memory,
 * missing, lost (a second attempt may succeed), failed. */
_Noreturn void fail(const char *kind, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A note for towline push -v. */
void note(const char *format, ...) __attribute__((format(printf, 1, 2)));
void *allocate(size_t bytes);
uint64_t now(void);
#endif
