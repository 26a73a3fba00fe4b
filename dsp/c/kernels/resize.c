#include "requantize.h"

/* [planes][height][width] -> [planes][rows][columns]; `sources` are int32: a source row for each row, then a
 * source column for each column. */
struct resize {
  int32_t planes, height, width, rows, columns;
};

static void resize(const struct resize *p, uint8_t *y, const uint8_t *x, const uint8_t *sources) {
  for (int32_t plane = 0; plane < p->planes; plane++, x += p->height * p->width)
    for (int32_t row = 0; row < p->rows; row++)
      for (int32_t column = 0; column < p->columns; column++)
        *y++ = x[int_at(sources + 4 * row) * p->width + int_at(sources + 4 * (p->rows + column))];
}
