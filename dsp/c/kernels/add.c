#include "requantize.h"

struct add {
  int32_t size, a_zero_point, b_zero_point;
  struct output out;
};

/* `scales` are two floats. The products are volatile: a sum of them must not become a fused multiply-add. */
static void add(const struct add *p, uint8_t *y, const uint8_t *a, const uint8_t *b, const uint8_t *scales) {
  float a_scale = float_at(scales), b_scale = float_at(scales + 4);
  for (int32_t k = 0; k < p->size; k++) {
    volatile float a_part = (float)(a[k] - p->a_zero_point) * a_scale;
    volatile float b_part = (float)(b[k] - p->b_zero_point) * b_scale;
    y[k] = saturate(a_part + b_part, p->out);
  }
}
