#include "plain/coordinates.h"

/* Gather and GatherND: of each of `outer` parts of x, `count` slices. Each part has its own indices, or all
 * share one list. */
struct gather {
  struct coordinates where;
  int64_t outer, part, count, slice; /* part and slice in bytes */
  int32_t shared;
};

static void gather(const struct gather *p, uint8_t *y, const uint8_t *x, const uint8_t *indices) {
  int64_t entry = p->where.depth * p->where.size;
  for (int64_t i = 0; i < p->outer; i++, x += p->part)
    for (int64_t k = 0; k < p->count; k++, y += p->slice) {
      int64_t at = located(&p->where, indices + ((p->shared ? 0 : i) * p->count + k) * entry);
      if (at < 0) return;
      memcpy(y, x + at, (size_t)p->slice);
    }
}
