#include "base.h"

/* `count` times the element of `size` bytes at `value`. */
static void fill(int64_t count, int64_t size, uint8_t *y, const uint8_t *value) {
  for (int64_t k = 0; k < count; k++) memcpy(y + k * size, value, (size_t)size);
}
