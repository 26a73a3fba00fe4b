#include "plain/coordinates.h"

/* `count` slices of y, which holds the data, are replaced by those of the updates. */
struct scatter {
  struct coordinates where;
  int64_t count, slice; /* bytes */
};

static void scatter(const struct scatter *p, uint8_t *y, const uint8_t *indices, const uint8_t *updates) {
  int64_t entry = p->where.depth * p->where.size;
  for (int64_t k = 0; k < p->count; k++) {
    int64_t at = located(&p->where, indices + k * entry);
    if (at < 0) return;
    memcpy(y + at, updates + k * p->slice, (size_t)p->slice);
  }
}
