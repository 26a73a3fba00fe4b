#include "threads.h"
#include "tile.h"

enum { MOST_TAPS = 128 };

/* [planes][height][width] -> [planes][outputs][rows][columns]: each plane by itself. `lines` lines of `line`
 * elements hold a plane with its padding, and all that whole tiles read. */
struct depthwise {
  int32_t planes, channels, height, width;
  int32_t outputs, rows, columns, lines, line;
  int32_t kernel[2], strides[2], pads[2], dilations[2];
  int32_t zero_point;
  struct output out;
};

static void add_tap(int32_t *sums, const int16_t *x, int32_t stride, int32_t weight) {
  if (stride == 1)
    for (int32_t k = 0; k < TILE; k++) sums[k] += x[k] * weight;
  else
    for (int32_t k = 0; k < TILE; k++) sums[k] += x[k * stride] * weight;
}

/* Nine taps at once: sums stay in registers. Inlined, `stride` is a constant. */
static inline void add_nine(int32_t *restrict sums, const int16_t *restrict x, int32_t line, int32_t stride,
                            const int16_t *restrict w) {
  const int16_t *second = x + line, *third = second + line;
  for (int32_t k = 0, at = 0; k < TILE; k++, at += stride)
    sums[k] += x[at] * w[0] + x[at + 1] * w[1] + x[at + 2] * w[2] + second[at] * w[3] + second[at + 1] * w[4] +
               second[at + 2] * w[5] + third[at] * w[6] + third[at + 1] * w[7] + third[at + 2] * w[8];
}

/* `weights` are int8 [channels][outputs][kernel]; `constants` as those of conv. */
struct depthwise_task {
  const struct depthwise *p;
  uint8_t *y;
  const uint8_t *x, *weights, *constants;
  int16_t *lines;
};

static void depthwise_part(const void *given, int32_t part) {
  const struct depthwise_task *task = given;
  const struct depthwise *p = task->p;
  int16_t *lines = scratch_of(part, task->lines);
  int32_t taps = p->kernel[0] * p->kernel[1], stride = p->strides[1];
  int nine = p->kernel[0] == 3 && p->kernel[1] == 3 && p->dilations[0] == 1 && p->dilations[1] == 1;
  memset(lines, 0, (size_t)p->lines * (size_t)p->line * sizeof *lines);
  for (int64_t plane = first_of(part, p->planes); plane < first_of(part + 1, p->planes); plane++) {
    const uint8_t *x = task->x + plane * p->height * p->width;
    uint8_t *y = task->y + plane * p->outputs * p->rows * p->columns;
    for (int32_t row = 0; row < p->height; row++) {
      const uint8_t *from = x + row * p->width;
      int16_t *to = lines + (row + p->pads[0]) * p->line + p->pads[1];
      int32_t k = 0;
      for (; k + TILE <= p->width; k += TILE)
        for (int32_t j = 0; j < TILE; j++) to[k + j] = (int16_t)(from[k + j] - p->zero_point);
      for (; k < p->width; k++) to[k] = (int16_t)(from[k] - p->zero_point);
    }
    for (int32_t output = 0; output < p->outputs; output++) {
      int32_t channel = (int32_t)(plane % p->channels) * p->outputs + output;
      const uint8_t *constant = task->constants + channel * CHANNEL, *bytes = task->weights + channel * taps;
      int16_t weight[MOST_TAPS];
      for (int32_t tap = 0; tap < taps; tap++) weight[tap] = (int16_t)((int8_t)bytes[tap] - int_at(constant + 4));
      for (int32_t row = 0; row < p->rows; row++)
        for (int32_t start = 0; start < p->columns; start += TILE, y += TILE) {
          const int16_t *at = lines + row * p->strides[0] * p->line + start * stride;
          int32_t sums[TILE] = {0}, count = p->columns - start < TILE ? p->columns - start : TILE;
          if (nine && stride == 1)
            add_nine(sums, at, p->line, 1, weight);
          else if (nine && stride == 2)
            add_nine(sums, at, p->line, 2, weight);
          else
            for (int32_t tap = 0; tap < taps; tap++) {
              int32_t down = tap / p->kernel[1] * p->dilations[0], right = tap % p->kernel[1] * p->dilations[1];
              add_tap(sums, at + down * p->line + right, stride, weight[tap]);
            }
          finish(y, sums, count, constant, p->out);
          y += count - TILE;
        }
    }
  }
}

static void depthwise(const struct depthwise *p, uint8_t *y, const uint8_t *x, const uint8_t *weights,
                      const uint8_t *constants, int16_t *lines) {
  struct depthwise_task task = {p, y, x, weights, constants, lines};
  in_parts(depthwise_part, &task);
}
