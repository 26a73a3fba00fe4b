#include "plain/rows.h"

/* [planes][height][width] -> [planes][rows][columns], weighted sums along rows, then along columns. */
struct interpolate {
  int64_t planes, height, width, rows, columns;
  int64_t row_taps, column_taps;
  enum element x_type, y_type;
  int32_t x_size, y_size;
};

/* Indices are int32 and weights float32. `scratch`: two rows of x and one of y. */
static void interpolate(const struct interpolate *p, uint8_t *y, const uint8_t *x,
                        const uint8_t *row_indices, const uint8_t *row_weights,
                        const uint8_t *column_indices, const uint8_t *column_weights, float *scratch) {
  float *line = scratch, *mixed = scratch + p->width, *result = mixed + p->width;
  for (int64_t plane = 0; plane < p->planes; plane++, x += p->height * p->width * p->x_size)
    for (int64_t i = 0; i < p->rows; i++, y += p->columns * p->y_size) {
      for (int64_t k = 0; k < p->width; k++) mixed[k] = 0;
      for (int64_t tap = i * p->row_taps; tap < (i + 1) * p->row_taps; tap++) {
        float weight = load_float32(row_weights + 4 * tap);
        const uint8_t *from = x + load_int32(row_indices + 4 * tap) * p->width * p->x_size;
        load_row(p->x_type, line, from, p->x_size, p->width);
        for (int64_t k = 0; k < p->width; k++) mixed[k] += weight * line[k];
      }
      for (int64_t j = 0; j < p->columns; j++) {
        result[j] = 0;
        for (int64_t tap = j * p->column_taps; tap < (j + 1) * p->column_taps; tap++)
          result[j] += load_float32(column_weights + 4 * tap) * mixed[load_int32(column_indices + 4 * tap)];
      }
      store_row(p->y_type, y, p->y_size, result, p->columns);
    }
}
