#include "plain/integers.h"
#include "plain/rows.h"

/* [outer][size][inner] -> [outer][inner]: the index of the first largest or smallest; a NaN is both. */
struct arg {
  int32_t largest;
  int64_t outer, size, inner;
  enum element x_type;
  enum integer y_type;
  int32_t x_size, y_size;
};

static void arg(const struct arg *p, uint8_t *y, const uint8_t *x) {
  for (int64_t i = 0; i < p->outer; i++, x += p->size * p->inner * p->x_size)
    for (int64_t j = 0; j < p->inner; j++, y += p->y_size) {
      float best = load_one(p->x_type, x + j * p->x_size);
      int64_t at = 0;
      for (int64_t k = 1; k < p->size && best == best; k++) {
        float value = load_one(p->x_type, x + (k * p->inner + j) * p->x_size);
        if (value != value || (p->largest ? value > best : value < best)) best = value, at = k;
      }
      store_integer(p->y_type, y, at);
    }
}
