/* What runs a network on a phone: the parts of the program, and the plan that it is given.
 *
 * The plan is PLAN_BYTES of little-endian numbers, the schedule, and the SHA-256 of both (written by
 * towline/phone/job.py). It names files of its own directory by their SHA-256, in hexadecimal. Nothing is run
 * before all digests are right.
 */
#ifndef RUNNER_H
#define RUNNER_H
#include <stddef.h>
#include <stdint.h>

enum { DIGEST = 32, PLAN_BYTES = 192 };

struct part {
  uint8_t digest[DIGEST];
  uint64_t bytes;
};

struct plan {
  char magic[8]; /* TOWPLAN3 */
  uint32_t engine; /* ENGINE of the program that is to run it */
  uint32_t runs;   /* inferences that are timed */
  uint32_t layers; /* layers to time, each on its own; 0: none */
  uint32_t driver; /* of the DSP: 0 mainline's, 1 Android's, ANY */
  uint64_t input_bytes, output_bytes;
  uint64_t trace_bytes; /* of every layer's output; 0: they are not wanted */
  struct part code, weights, input;
  uint32_t domain; /* of the DSP: 0 audio, 3 compute, ANY */
  uint32_t process; /* 0 unsigned, 1 signed, ANY */
  uint32_t contexts; /* of the DSP, that share an inference: 1, 2, ANY for as many as it gives; 0: the object has
                        no methods for contexts and clock, and does not report */
  uint32_t clock;    /* 1: vote for the DSP's highest clock rate */
  uint64_t schedule_bytes;
  uint8_t schedule[]; /* as method 6 of the object takes it; none for one context */
};

_Static_assert(sizeof(struct plan) == PLAN_BYTES, "the plan is as job.py writes it");

#define ANY 0xffffffffu
enum { FOR_C = 1, FOR_DSP = 2 };

/* Why an inference had no result: the step whose index was out of range; -1 if it has one. */
struct outcome {
  int64_t step, index, limit;
};

/* What the DSP gives the object: how many contexts; and 0, or why it took no vote for its clock rate. */
struct setup {
  uint32_t contexts;
  int32_t clock;
};

#define UNKNOWN UINT64_MAX

/* A timed inference; what follows the time is the DSP's report. */
struct run {
  uint64_t nanoseconds;
  uint64_t device_us; /* microseconds by the DSP's own clock, or UNKNOWN */
  uint64_t contexts;  /* that computed it; 0 on the processor */
};

/* One of these is linked in. */
extern const uint32_t ENGINE;
/* Fails where a plan has other sizes than the network: what it computes is copied by the network's. */
void engine_check(const struct plan *plan);
/* The network, its weights and memory; `code` and `weights` stay. */
struct setup engine_open(const struct plan *plan, const uint8_t *code, const uint8_t *weights);
/* Fills in the report of `run`. */
struct outcome engine_run(const uint8_t *input, uint8_t *output, struct run *run);
/* Every layer's output. */
void engine_trace(const uint8_t *input, uint8_t *kept);
/* Nanoseconds of each layer. */
void engine_profile(const uint8_t *input, uint64_t *nanoseconds);
/* What may wait for a DSP that never answers: the result is written before. */
void engine_close(void);

/* sha256.c */
void sha256(const void *data, size_t bytes, uint8_t digest[DIGEST]);

/* main.c. Kinds of failures, which device.py reads: plan, damaged, room, memory, contexts (two were demanded); and those of
 * the DSP, with fields for refusals.py, a tab between them:
 *   absent                                                    no node
 *   denied   driver, errno, path; of each node                none may be opened
 *   shell    domain, process (0, 1, ANY)                      it was not found
 *   kernel   driver, domain, errno, bytes of a shell, step, more
 *   dsp      domain, signed, AEE code, step
 *   loader   domain, signed, error, text */
_Noreturn void fail(const char *kind, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A note for towline push -v. */
void note(const char *format, ...) __attribute__((format(printf, 1, 2)));
void *allocate(size_t bytes);
uint64_t now(void);
#endif
