#include "base.h"

/* [planes][height][width] -> [planes][rows][columns] */
struct max_pool {
  int32_t planes, height, width, rows, columns;
  int32_t kernel[2], strides[2], pads[2], dilations[2];
};

static void max_pool(const struct max_pool *p, uint8_t *y, const uint8_t *x) {
  for (int32_t plane = 0; plane < p->planes; plane++, x += p->height * p->width)
    for (int32_t row = 0; row < p->rows; row++)
      for (int32_t column = 0; column < p->columns; column++) {
        uint8_t most = 0;
        for (int32_t tap = 0; tap < p->kernel[0] * p->kernel[1]; tap++) {
          int32_t i = row * p->strides[0] - p->pads[0] + tap / p->kernel[1] * p->dilations[0];
          int32_t j = column * p->strides[1] - p->pads[1] + tap % p->kernel[1] * p->dilations[1];
          if (i < 0 || i >= p->height || j < 0 || j >= p->width) continue;
          if (x[i * p->width + j] > most) most = x[i * p->width + j];
        }
        *y++ = most;
      }
}
