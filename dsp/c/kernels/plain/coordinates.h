#include "plain/failure.h"
#include "plain/integers.h"

enum { DIMENSIONS = 8 };

/* Indices that name slices of a tensor, counted from the end where they are negative; steps are in bytes. */
struct coordinates {
  enum integer type;
  int32_t size, depth; /* bytes of an index; indices for a slice */
  int64_t extent[DIMENSIONS], step[DIMENSIONS];
};

/* Where a slice starts; -1 and the failure if there is no such slice. */
static int64_t located(const struct coordinates *p, const uint8_t *indices) {
  int64_t at = 0;
  for (int32_t d = 0; d < p->depth; d++) {
    int64_t index = load_integer(p->type, indices + d * p->size), limit = p->extent[d];
    if (index < -limit || index >= limit) {
      if (!failure.limit) failure.index = index, failure.limit = limit;
      return -1;
    }
    at += (index < 0 ? index + limit : index) * p->step[d];
  }
  return at;
}
