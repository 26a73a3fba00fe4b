#include "plain/coordinates.h"
#include "plain/expressions.h"
#include "plain/integers.h"

/* `count` slices of y, which holds the data, are combined with those of the updates, one after the other. */
enum combination { SCATTER_ADD, SCATTER_MUL, SCATTER_MAX, SCATTER_MIN };

struct scatter_reduce {
  struct coordinates where;
  int64_t count, slice; /* elements */
  enum combination kind;
  int32_t real;
  enum integer y_integer;
  int32_t y_size;
};

HELPER float combined(enum combination kind, float a, float b) {
  switch (kind) {
    case SCATTER_ADD: return a + b;
    case SCATTER_MUL: return a * b;
    case SCATTER_MAX: return most(a, b);
    case SCATTER_MIN: return least(a, b);
  }
  return a;
}

HELPER int64_t combined_integers(enum combination kind, int64_t a, int64_t b) {
  switch (kind) {
    case SCATTER_ADD: return (int64_t)((uint64_t)a + (uint64_t)b);
    case SCATTER_MUL: return (int64_t)((uint64_t)a * (uint64_t)b);
    case SCATTER_MAX: return a > b ? a : b;
    case SCATTER_MIN: return a < b ? a : b;
  }
  return a;
}

static void scatter_reduce(const struct scatter_reduce *p, uint8_t *y, const uint8_t *indices,
                           const uint8_t *updates) {
  int64_t entry = p->where.depth * p->where.size;
  for (int64_t k = 0; k < p->count; k++) {
    int64_t at = located(&p->where, indices + k * entry);
    if (at < 0) return;
    for (int64_t j = 0; j < p->slice; j++) {
      uint8_t *to = y + at + j * p->y_size;
      const uint8_t *from = updates + (k * p->slice + j) * p->y_size;
      if (p->real)
        store_float32(to, combined(p->kind, load_float32(to), load_float32(from)));
      else
        store_integer(p->y_integer, to,
                      combined_integers(p->kind, load_integer(p->y_integer, to), load_integer(p->y_integer, from)));
    }
  }
}
