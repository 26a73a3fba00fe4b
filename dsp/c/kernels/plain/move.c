#include "plain/elements.h"

/* One axis of a move: y's elements follow each other by `to` bytes, x's by `from`; or the int32 at `table` of
 * the weights says which of x's elements is next. */
struct way {
  int64_t extent, to, from, table; /* table: -1 for none */
};

static int64_t source_of(const struct way *way, const uint8_t *weights, int64_t index) {
  return (way->table < 0 ? index : load_int32(weights + way->table + 4 * index)) * way->from;
}

/* Transpose, Concat, Slice, Take: elements of `size` bytes move. */
static void move(const struct way *ways, int32_t count, int64_t size, uint8_t *y, const uint8_t *x,
                 const uint8_t *weights) {
  if (count > 1) {
    for (int64_t k = 0; k < ways->extent; k++)
      move(ways + 1, count - 1, size, y + k * ways->to, x + source_of(ways, weights, k), weights);
    return;
  }
  if (ways->table < 0 && ways->to == size && ways->from == size) {
    memcpy(y, x, (size_t)(ways->extent * size));
    return;
  }
  for (int64_t k = 0; k < ways->extent; k++) {
    const uint8_t *from = x + source_of(ways, weights, k);
    uint8_t *to = y + k * ways->to;
    switch (size) {
      case 1: memcpy(to, from, 1); break;
      case 2: memcpy(to, from, 2); break;
      case 4: memcpy(to, from, 4); break;
      default: memcpy(to, from, (size_t)size);
    }
  }
}
