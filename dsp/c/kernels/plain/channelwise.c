#include "plain/rows.h"
#include "threads.h"

enum { TAPS = 128 };

/* [images][channels][height][width] -> [images][channels][outputs][rows][columns] by weights [channels]
 * [outputs][kernel], of at most TAPS: each channel by itself. */
struct channelwise {
  int64_t images, channels, height, width, outputs, rows, columns;
  int64_t kernel[2], strides[2], pads[2], dilations[2];
  int64_t lines, line; /* of the plane with its padding */
  enum element x_type, weight_type, bias_type, y_type;
  int32_t x_size, weight_size, bias_size, y_size;
};

/* Where a tap reads for the first output of a row. */
static const float *tap_of(const struct channelwise *p, const float *padded, int64_t row, int64_t tap) {
  int64_t line = row * p->strides[0] + tap / p->kernel[1] * p->dilations[0];
  return padded + line * p->line + tap % p->kernel[1] * p->dilations[1];
}

/* sums[count] += four taps, or one */
static void add_taps(float *restrict sums, const float *const *taps, const float *weights, int64_t together,
                     int64_t stride, int64_t count) {
  const float *restrict a = taps[0], *restrict b = taps[1], *restrict c = taps[2], *restrict d = taps[3];
  float u = weights[0], v = weights[1], w = weights[2], z = weights[3];
  if (together == 4 && stride == 1)
    for (int64_t k = 0; k < count; k++) sums[k] += u * a[k] + v * b[k] + w * c[k] + z * d[k];
  else if (together == 4)
    for (int64_t k = 0; k < count; k++)
      sums[k] += u * a[k * stride] + v * b[k * stride] + w * c[k * stride] + z * d[k * stride];
  else if (stride == 1)
    for (int64_t k = 0; k < count; k++) sums[k] += u * a[k];
  else
    for (int64_t k = 0; k < count; k++) sums[k] += u * a[k * stride];
}

/* `scratch` is a plane with its padding, converted once for all taps, and a row of sums. */
struct channelwise_task {
  const struct channelwise *p;
  uint8_t *y;
  const uint8_t *x, *weights, *bias;
  float *scratch;
};

static void channelwise_part(const void *given, int32_t part) {
  const struct channelwise_task *task = given;
  const struct channelwise *p = task->p;
  float *scratch = scratch_of(part, task->scratch);
  float *sums = scratch + p->lines * p->line;
  int64_t taps = p->kernel[0] * p->kernel[1];
  for (int64_t k = 0; k < p->lines * p->line; k++) scratch[k] = 0;
  int64_t planes = p->images * p->channels;
  for (int64_t plane = first_of(part, planes); plane < first_of(part + 1, planes); plane++) {
    const uint8_t *x = task->x + plane * p->height * p->width * p->x_size;
    uint8_t *y = task->y + plane * p->outputs * p->rows * p->columns * p->y_size;
    for (int64_t row = 0; row < p->height; row++, x += p->width * p->x_size)
      load_row(p->x_type, scratch + (row + p->pads[0]) * p->line + p->pads[1], x, p->x_size, p->width);
    for (int64_t output = 0; output < p->outputs; output++) {
      int64_t channel = plane % p->channels * p->outputs + output;
      float first = p->bias_size ? load_one(p->bias_type, task->bias + channel * p->bias_size) : 0;
      float kernel[TAPS + 3] = {0};
      load_row(p->weight_type, kernel, task->weights + channel * taps * p->weight_size, p->weight_size, taps);
      for (int64_t row = 0; row < p->rows; row++, y += p->columns * p->y_size) {
        for (int64_t k = 0; k < p->columns; k++) sums[k] = first;
        for (int64_t tap = 0, together; tap < taps; tap += together) {
          const float *sources[4];
          together = tap + 4 <= taps ? 4 : 1;
          for (int i = 0; i < 4; i++) sources[i] = tap_of(p, scratch, row, tap + i % together);
          add_taps(sums, sources, kernel + tap, together, p->strides[1], p->columns);
        }
        store_row(p->y_type, y, p->y_size, sums, p->columns);
      }
    }
  }
}

static void channelwise(const struct channelwise *p, uint8_t *y, const uint8_t *x, const uint8_t *weights,
                      const uint8_t *bias, float *scratch) {
  struct channelwise_task task = {p, y, x, weights, bias, scratch};
  in_parts(channelwise_part, &task);
}
