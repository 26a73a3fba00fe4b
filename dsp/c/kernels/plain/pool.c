#include "plain/expressions.h"
#include "plain/rows.h"

/* [planes][height][width] -> [planes][rows][columns]: maxima, or means. */
struct pool {
  int64_t planes, height, width, rows, columns;
  int64_t kernel[2], strides[2], pads[2], dilations[2];
  int64_t lines, line; /* of the plane with its padding */
  int32_t maximum, by_count; /* by_count: border windows divide by the elements that they cover */
  enum element x_type, y_type;
  int32_t x_size, y_size;
};

static int64_t covered(int64_t first, int64_t kernel, int64_t extent) {
  int64_t from = first < 0 ? 0 : first, to = first + kernel < extent ? first + kernel : extent;
  return to - from;
}

/* `scratch` is a plane with its padding, and a row of results. */
static void pool(const struct pool *p, uint8_t *y, const uint8_t *x, float *scratch) {
  float *results = scratch + p->lines * p->line, border = p->maximum ? -INFINITY : 0;
  int64_t taps = p->kernel[0] * p->kernel[1], stride = p->strides[1];
  for (int64_t k = 0; k < p->lines * p->line; k++) scratch[k] = border;
  for (int64_t plane = 0; plane < p->planes; plane++) {
    for (int64_t row = 0; row < p->height; row++, x += p->width * p->x_size)
      load_row(p->x_type, scratch + (row + p->pads[0]) * p->line + p->pads[1], x, p->x_size, p->width);
    for (int64_t row = 0; row < p->rows; row++, y += p->columns * p->y_size) {
      float *restrict result = results;
      for (int64_t k = 0; k < p->columns; k++) result[k] = border;
      for (int64_t tap = 0; tap < taps; tap++) {
        int64_t line = row * p->strides[0] + tap / p->kernel[1] * p->dilations[0];
        const float *restrict source = scratch + line * p->line + tap % p->kernel[1] * p->dilations[1];
        if (p->maximum)
          for (int64_t k = 0; k < p->columns; k++) result[k] = most(result[k], source[k * stride]);
        else
          for (int64_t k = 0; k < p->columns; k++) result[k] += source[k * stride];
      }
      int64_t high = covered(row * p->strides[0] - p->pads[0], p->kernel[0], p->height);
      for (int64_t k = 0; k < p->columns && !p->maximum; k++) {
        int64_t wide = covered(k * stride - p->pads[1], p->kernel[1], p->width);
        result[k] /= (float)(p->by_count ? high * wide : taps);
      }
      store_row(p->y_type, y, p->y_size, result, p->columns);
    }
  }
}
