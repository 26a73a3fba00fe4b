#include "plain/loops.h"
#include "plain/products.h"
#include "plain/sums.h"
#include "threads.h"

enum { FEW = 3 };

/* [batch][rows][terms] by [batch][terms][columns] -> [batch][rows][columns]. Steps are in bytes. */
struct matmul {
  int64_t rows, terms, columns;
  int64_t b_term, b_column; /* b's steps: either may be the size of an element */
  int32_t loops;
  const struct loop *batch; /* over y, a and b */
  enum element a_type, b_type, bias_type, y_type;
  int32_t a_size, bias_size, y_size; /* of an element; bias_size is 0 without a bias */
};

/* panel[terms][COLUMNS] of b */
static void fill_panel(const struct matmul *p, float *panel, const uint8_t *b, int64_t terms, int64_t width) {
  if (p->b_column <= p->b_term) {
    for (int64_t k = 0; k < terms; k++)
      load_row(p->b_type, panel + k * COLUMNS, b + k * p->b_term, p->b_column, width);
    return;
  }
  for (int64_t j = 0; j < width; j++) {
    float column[TERMS];
    load_row(p->b_type, column, b + j * p->b_column, p->b_term, terms);
    for (int64_t k = 0; k < terms; k++) panel[k * COLUMNS + j] = column[k];
  }
}

/* A few rows by columns whose terms follow each other: turning b for a panel would take longer than the
 * products. `factors` are all of the rows, as floats. */
static void multiply_few(const struct matmul *p, uint8_t *y, const uint8_t *a, const uint8_t *b,
                         const uint8_t *bias, float *factors, int32_t part) {
  load_row(p->a_type, factors, a, p->a_size, p->rows * p->terms);
  for (int64_t column = first_of(part, p->columns); column < first_of(part + 1, p->columns); column++) {
    float totals[FEW], block_of_b[TERMS];
    float first = p->bias_size ? load_one(p->bias_type, bias + column * p->bias_size) : 0;
    for (int64_t i = 0; i < p->rows; i++) totals[i] = first;
    for (int64_t term = 0; term < p->terms; term += TERMS) {
      int64_t block = p->terms - term < TERMS ? p->terms - term : TERMS;
      load_row(p->b_type, block_of_b, b + column * p->b_column + term * p->b_term, p->b_term, block);
      for (int64_t i = 0; i < p->rows; i++)
        totals[i] += sum_of_products(factors + i * p->terms + term, block_of_b, block);
    }
    store_row(p->y_type, y + column * p->y_size, p->columns * p->y_size, totals, p->rows);
  }
}

/* `scratch` is a panel, ROWS rows of a and, for at most CHUNK rows, totals; or FEW rows of a. */
struct matmul_task {
  const struct matmul *p;
  uint8_t *y;
  const uint8_t *a, *b, *bias;
  float *scratch;
};

static void matmul_part(const void *given, int32_t part) {
  const struct matmul_task *task = given;
  const struct matmul *p = task->p;
  const uint8_t *bias = task->bias;
  float *scratch = scratch_of(part, task->scratch);
  float *panel = scratch, *factors = panel + TERMS * COLUMNS, *totals = factors + ROWS * TERMS;
  struct position position = {{0}, {0}};
  do {
    const uint8_t *left = task->a + position.at[1], *right = task->b + position.at[2];
    uint8_t *to = task->y + position.at[0];
    if (p->rows <= FEW && p->b_term < p->b_column) {
      multiply_few(p, to, left, right, bias, scratch, part);
      continue;
    }
    int64_t tiles = (p->columns + COLUMNS - 1) / COLUMNS, limit = first_of(part + 1, tiles) * COLUMNS;
    int64_t end = limit < p->columns ? limit : p->columns;
    for (int64_t chunk = 0; chunk < p->rows; chunk += CHUNK) {
      int64_t rows = p->rows - chunk < CHUNK ? p->rows - chunk : CHUNK;
      for (int64_t column = first_of(part, tiles) * COLUMNS; column < end; column += COLUMNS) {
        int64_t width = p->columns - column < COLUMNS ? p->columns - column : COLUMNS;
        float first[COLUMNS] = {0};
        if (p->bias_size)
          load_row(p->bias_type, first, bias + column * p->bias_size, p->bias_size, width);
        for (int64_t i = 0; i < rows; i++) memcpy(totals + i * COLUMNS, first, sizeof first);
        for (int64_t term = 0; term < p->terms; term += TERMS) {
          int64_t block = p->terms - term < TERMS ? p->terms - term : TERMS;
          fill_panel(p, panel, right + term * p->b_term + column * p->b_column, block, width);
          for (int64_t i = 0; i < rows; i += ROWS) {
            int64_t count = rows - i < ROWS ? rows - i : ROWS;
            for (int64_t k = 0; k < count; k++) {
              int64_t at = (chunk + i + k) * p->terms + term;
              load_row(p->a_type, factors + k * TERMS, left + at * p->a_size, p->a_size, block);
            }
            add_products(totals + i * COLUMNS, factors, panel, block, width, count);
          }
        }
        for (int64_t i = 0; i < rows; i++) {
          int64_t at = (chunk + i) * p->columns + column;
          store_row(p->y_type, to + at * p->y_size, p->y_size, totals + i * COLUMNS, width);
        }
      }
    }
  } while (next_position(&position, p->batch, p->loops));
}

static void matmul(const struct matmul *p, uint8_t *y, const uint8_t *a, const uint8_t *b,
                   const uint8_t *bias, float *scratch) {
  struct matmul_task task = {p, y, a, b, bias, scratch};
  in_parts(matmul_part, &task);
}
