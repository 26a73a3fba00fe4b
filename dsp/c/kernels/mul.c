#include "requantize.h"
#include "walk.h"

/* y and a are walked alike; where b has one element for many, its step is 0. */
struct mul {
  int32_t rank;
  const struct axis *axes;
  int32_t a_zero_point, b_zero_point;
  struct output out;
};

static void mul(const struct mul *p, uint8_t *y, const uint8_t *a, const uint8_t *b, const uint8_t *scales) {
  struct walk walk = {0, 0, {0}};
  struct axis row = p->axes[p->rank - 1];
  float scale = float_at(scales);
  do {
    for (int32_t k = 0; k < row.extent; k++) {
      int32_t at = walk.to + k * row.to;
      int32_t product = (a[at] - p->a_zero_point) * (b[walk.from + k * row.from] - p->b_zero_point);
      y[at] = saturate((float)product * scale, p->out);
    }
  } while (next_row(&walk, p->axes, p->rank));
}
