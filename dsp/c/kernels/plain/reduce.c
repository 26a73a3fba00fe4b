#include "plain/expressions.h"
#include "plain/loops.h"
#include "plain/rows.h"

enum reduction { SUM, MEAN, MAX, MIN, PROD };
enum { WIDTH = 64, DEPTH = 256 };

/* What is kept is walked over y and x; what is reduced, over x. Beside these loops there is one row, the last
 * axis of x: reduced or kept. Steps are in bytes. */
struct reduce {
  enum reduction kind;
  int32_t keeps_row, kept_loops, reduced_loops;
  int64_t row, count; /* elements of a row, and in all reduced to one */
  const struct loop *kept, *reduced;
  enum element x_type, y_type;
  int32_t x_size, y_size;
};

static void fold(enum reduction kind, float *to, const float *from, int64_t count) {
  switch (kind) {
    case SUM:
    case MEAN:
      for (int64_t k = 0; k < count; k++) to[k] += from[k];
      break;
    case MAX:
      for (int64_t k = 0; k < count; k++) to[k] = most(to[k], from[k]);
      break;
    case MIN:
      for (int64_t k = 0; k < count; k++) to[k] = least(to[k], from[k]);
      break;
    case PROD:
      for (int64_t k = 0; k < count; k++) to[k] *= from[k];
      break;
  }
}

/* Totals of the columns of a tile, or of one column in WIDTH parts. Blocks have at most DEPTH terms. */
static void reduce_tile(const struct reduce *p, float *totals, const uint8_t *x) {
  float identity = p->kind == MAX ? -INFINITY : p->kind == MIN ? INFINITY : p->kind == PROD ? 1 : 0;
  float block[WIDTH], row[WIDTH];
  int64_t width = p->row < WIDTH || !p->keeps_row ? p->row : WIDTH, depth = 0;
  struct position position = {{0}, {0}};
  for (int k = 0; k < WIDTH; k++) totals[k] = block[k] = identity;
  do {
    for (int64_t start = 0; start < width; start += WIDTH) {
      int64_t count = width - start < WIDTH ? width - start : WIDTH;
      load_row(p->x_type, row, x + position.at[1] + start * p->x_size, p->x_size, count);
      fold(p->kind, block, row, count);
      if (++depth < DEPTH) continue;
      fold(p->kind, totals, block, WIDTH);
      for (int k = 0; k < WIDTH; k++) block[k] = identity;
      depth = 0;
    }
  } while (next_position(&position, p->reduced, p->reduced_loops));
  fold(p->kind, totals, block, WIDTH);
}

static void reduce(const struct reduce *p, uint8_t *y, const uint8_t *x) {
  struct position position = {{0}, {0}};
  float totals[WIDTH];
  do {
    uint8_t *to = y + position.at[0];
    const uint8_t *from = x + position.at[1];
    for (int64_t start = 0; start < (p->keeps_row ? p->row : 1); start += WIDTH) {
      struct reduce tile = *p;
      int64_t count = 1;
      if (p->keeps_row) tile.row = count = p->row - start < WIDTH ? p->row - start : WIDTH;
      reduce_tile(&tile, totals, from + start * p->x_size);
      if (!p->keeps_row)
        for (int half = WIDTH / 2; half; half /= 2) fold(p->kind, totals, totals + half, half);
      if (p->kind == MEAN)
        for (int64_t k = 0; k < count; k++) totals[k] /= (float)p->count;
      store_row(p->y_type, to + start * p->y_size, p->y_size, totals, count);
    }
  } while (next_position(&position, p->kept, p->kept_loops));
}
