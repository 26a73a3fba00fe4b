#include "plain/loops.h"
#include "plain/sums.h"

enum { PIECE = 64 };

/* Groups, and in each rows of `row` elements. Steps are in elements, over x (and y), scale and bias. */
struct normalize {
  float epsilon;
  int32_t centre, group_loops, row_loops;
  int64_t row, count;     /* elements of a row, and of a group */
  int64_t step[STREAMS];  /* along a row */
  const struct loop *groups, *rows;
  enum element x_type, scale_type, bias_type, y_type;
  int32_t x_size, scale_size, bias_size, y_size; /* bytes of an element; 0 where there is none */
};

/* `scratch` is a group: x, then x less its mean. Two passes, so that nothing cancels. */
static void normalize(const struct normalize *p, uint8_t *y, const uint8_t *x, const uint8_t *scale,
                      const uint8_t *bias, float *scratch) {
  struct position group = {{0}, {0}};
  do {
    struct position row = {{0}, {0}};
    float *values = scratch;
    do {
      const uint8_t *from = x + (group.at[0] + row.at[0]) * p->x_size;
      load_row(p->x_type, values, from, p->step[0] * p->x_size, p->row);
      values += p->row;
    } while (next_position(&row, p->rows, p->row_loops));
    float mean = p->centre ? sum_of(scratch, p->count) / (float)p->count : 0;
    for (int64_t k = 0; k < p->count; k++) scratch[k] -= mean;
    float variance = sum_of_products(scratch, scratch, p->count) / (float)p->count;
    float factor = 1 / sqrtf(variance + p->epsilon);
    memset(&row, 0, sizeof row);
    values = scratch;
    do {
      for (int64_t start = 0; start < p->row; start += PIECE) {
        int64_t count = p->row - start < PIECE ? p->row - start : PIECE, at[STREAMS];
        float factors[PIECE], offsets[PIECE];
        for (int i = 0; i < STREAMS; i++) at[i] = group.at[i] + row.at[i] + start * p->step[i];
        for (int64_t k = 0; k < count; k++) values[k] *= factor;
        if (p->scale_size) {
          load_row(p->scale_type, factors, scale + at[1] * p->scale_size, p->step[1] * p->scale_size, count);
          for (int64_t k = 0; k < count; k++) values[k] *= factors[k];
        }
        if (p->bias_size) {
          load_row(p->bias_type, offsets, bias + at[2] * p->bias_size, p->step[2] * p->bias_size, count);
          for (int64_t k = 0; k < count; k++) values[k] += offsets[k];
        }
        store_row(p->y_type, y + at[0] * p->y_size, p->step[0] * p->y_size, values, count);
        values += count;
      }
    } while (next_position(&row, p->rows, p->row_loops));
  } while (next_position(&group, p->groups, p->group_loops));
}
