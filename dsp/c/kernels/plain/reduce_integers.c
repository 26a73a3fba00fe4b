#include "plain/integers.h"
#include "plain/loops.h"

enum integer_reduction { INTEGER_SUM, INTEGER_MAX, INTEGER_MIN, INTEGER_PROD, ARGMAX, ARGMIN };

/* Loops as in reduce, without a row. */
struct reduce_integers {
  enum integer_reduction kind;
  int32_t kept_loops, reduced_loops;
  const struct loop *kept, *reduced;
  enum integer x_type, y_type;
};

static int64_t reduce_to_integer(const struct reduce_integers *p, const uint8_t *x) {
  struct position position = {{0}, {0}};
  int64_t best = load_integer(p->x_type, x), at = 0, index = 0;
  uint64_t sum = 0, product = 1; /* modulo 2^64, as numpy's */
  do {
    int64_t value = load_integer(p->x_type, x + position.at[1]);
    sum += (uint64_t)value, product *= (uint64_t)value;
    if (p->kind == INTEGER_MAX || p->kind == ARGMAX ? value > best : value < best) best = value, at = index;
    index++;
  } while (next_position(&position, p->reduced, p->reduced_loops));
  switch (p->kind) {
    case INTEGER_SUM: return (int64_t)sum;
    case INTEGER_PROD: return (int64_t)product;
    case INTEGER_MAX:
    case INTEGER_MIN: return best;
    case ARGMAX:
    case ARGMIN: break;
  }
  return at;
}

static void reduce_integers(const struct reduce_integers *p, uint8_t *y, const uint8_t *x) {
  struct position position = {{0}, {0}};
  do
    store_integer(p->y_type, y + position.at[0], reduce_to_integer(p, x + position.at[1]));
  while (next_position(&position, p->kept, p->kept_loops));
}
