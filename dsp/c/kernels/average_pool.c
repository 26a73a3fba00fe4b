#include "requantize.h"

/* [planes][height][width] -> [planes][rows][columns]; also the mean of a whole plane, and with a window of
 * one element a change of scale. */
struct average_pool {
  int32_t planes, height, width, rows, columns;
  int32_t kernel[2], strides[2], pads[2];
  int32_t zero_point;
  int32_t by_count; /* scales has one float for each count of elements from 1 on, else one for all windows */
  struct output out;
};

static void average_pool(const struct average_pool *p, uint8_t *y, const uint8_t *x, const uint8_t *scales) {
  for (int32_t plane = 0; plane < p->planes; plane++, x += p->height * p->width)
    for (int32_t row = 0; row < p->rows; row++)
      for (int32_t column = 0; column < p->columns; column++) {
        int32_t sum = 0, count = 0, top = row * p->strides[0] - p->pads[0];
        for (int32_t i = top < 0 ? 0 : top; i < top + p->kernel[0] && i < p->height; i++) {
          int32_t left = column * p->strides[1] - p->pads[1];
          for (int32_t j = left < 0 ? 0 : left; j < left + p->kernel[1] && j < p->width; j++, count++)
            sum += x[i * p->width + j] - p->zero_point;
        }
        float scale = float_at(scales + (p->by_count ? 4 * (count - 1) : 0));
        *y++ = saturate((float)sum * scale, p->out);
      }
}
