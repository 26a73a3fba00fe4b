#include "plain/expressions.h"
#include "plain/sums.h"

/* Over the middle axis of [outer][size][inner]. */
struct softmax {
  int64_t outer, size, inner;
  enum element x_type, y_type;
  int32_t x_size, y_size;
};

/* `scratch` has `size` floats. */
static void softmax(const struct softmax *p, uint8_t *y, const uint8_t *x, float *scratch) {
  for (int64_t i = 0; i < p->outer * p->inner; i++) {
    int64_t start = i / p->inner * p->size * p->inner + i % p->inner;
    load_row(p->x_type, scratch, x + start * p->x_size, p->inner * p->x_size, p->size);
    float largest = scratch[0];
    for (int64_t k = 1; k < p->size; k++) largest = most(largest, scratch[k]);
    for (int64_t k = 0; k < p->size; k++) scratch[k] = expf(scratch[k] - largest);
    float sum = sum_of(scratch, p->size);
    for (int64_t k = 0; k < p->size; k++) scratch[k] /= sum;
    store_row(p->y_type, y + start * p->y_size, p->inner * p->y_size, scratch, p->size);
  }
}
