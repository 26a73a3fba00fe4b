#include "plain/integers.h"
#include "plain/rows.h"

/* [outer][size][inner] -> [outer][k][inner]: where the largest or smallest are, int64, the first of equals first.
 * A NaN is both. */
struct top_k {
  int32_t largest, real;
  int64_t outer, size, inner, k;
  enum element x_element;
  enum integer x_integer;
  int32_t x_size;
};

/* Whether an element comes before an earlier one. */
HELPER int comes_first(const struct top_k *p, const uint8_t *a, const uint8_t *b) {
  if (p->real) {
    float x = load_one(p->x_element, a), y = load_one(p->x_element, b);
    if (x != x || y != y) return x != x && y == y;
    return p->largest ? x > y : x < y;
  }
  int64_t x = load_integer(p->x_integer, a), y = load_integer(p->x_integer, b);
  return p->largest ? x > y : x < y;
}

static void top_k(const struct top_k *p, uint8_t *y, const uint8_t *x) {
  int64_t step = p->inner * p->x_size, to = p->inner * 8;
  for (int64_t i = 0; i < p->outer; i++, x += p->size * step, y += p->k * to)
    for (int64_t j = 0; j < p->inner; j++) {
      const uint8_t *from = x + j * p->x_size;
      uint8_t *chosen = y + j * 8;
      for (int64_t at = 0; at < p->size; at++) {
        int64_t place = at < p->k ? at : p->k;
        while (place && comes_first(p, from + at * step, from + load_int64(chosen + (place - 1) * to) * step)) {
          if (place < p->k) store_int64(chosen + place * to, load_int64(chosen + (place - 1) * to));
          place--;
        }
        if (place < p->k) store_int64(chosen + place * to, at);
      }
    }
}
