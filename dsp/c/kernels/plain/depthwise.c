#include "plain/rows.h"

/* [images][channels][height][width] -> [images][channels][outputs][rows][columns], weights [channels][outputs]
 * [kernel]: each channel by itself. */
struct depthwise {
  int64_t images, channels, height, width, outputs, rows, columns;
  int64_t kernel[2], strides[2], pads[2], dilations[2];
  int64_t lines, line; /* of the plane with its padding */
  enum element x_type, weight_type, bias_type, y_type;
  int32_t x_size, weight_size, bias_size, y_size;
};

/* `scratch` is a plane with its padding, converted once for all taps, and a row of sums. */
static void depthwise(const struct depthwise *p, uint8_t *y, const uint8_t *x, const uint8_t *weights,
                      const uint8_t *bias, float *scratch) {
  float *sums = scratch + p->lines * p->line;
  int64_t taps = p->kernel[0] * p->kernel[1], stride = p->strides[1];
  for (int64_t k = 0; k < p->lines * p->line; k++) scratch[k] = 0;
  for (int64_t plane = 0; plane < p->images * p->channels; plane++) {
    for (int64_t row = 0; row < p->height; row++, x += p->width * p->x_size)
      load_row(p->x_type, scratch + (row + p->pads[0]) * p->line + p->pads[1], x, p->x_size, p->width);
    for (int64_t output = 0; output < p->outputs; output++) {
      int64_t channel = plane % p->channels * p->outputs + output;
      float first = p->bias_size ? load_one(p->bias_type, bias + channel * p->bias_size) : 0;
      const uint8_t *weight = weights + channel * taps * p->weight_size;
      for (int64_t row = 0; row < p->rows; row++, y += p->columns * p->y_size) {
        for (int64_t k = 0; k < p->columns; k++) sums[k] = first;
        for (int64_t tap = 0; tap < taps; tap++) {
          int64_t line = row * p->strides[0] + tap / p->kernel[1] * p->dilations[0];
          const float *restrict source = scratch + line * p->line + tap % p->kernel[1] * p->dilations[1];
          float *restrict sum = sums;
          float w = load_one(p->weight_type, weight + tap * p->weight_size);
          if (stride == 1)
            for (int64_t k = 0; k < p->columns; k++) sum[k] += w * source[k];
          else
            for (int64_t k = 0; k < p->columns; k++) sum[k] += w * source[k * stride];
        }
        store_row(p->y_type, y, p->y_size, sums, p->columns);
      }
    }
  }
}
