#include "walk.h"

/* Transpose, Concat and Pad: elements move. */
static void copy(int32_t rank, const struct axis *axes, uint8_t *y, const uint8_t *x) {
  struct walk walk = {0, 0, {0}};
  struct axis row = axes[rank - 1];
  do {
    for (int32_t k = 0; k < row.extent; k++) y[walk.to + k * row.to] = x[walk.from + k * row.from];
  } while (next_row(&walk, axes, rank));
}
