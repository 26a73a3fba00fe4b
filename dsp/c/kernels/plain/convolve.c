#include "plain/products.h"
#include "threads.h"

/* Where an element of the kernel reads, from the output's position times the strides. */
struct tap {
  int32_t row, column;
};

/* [images][groups][channels][height][width] -> [images][groups][outputs][rows][columns]; channels and outputs
 * are those of one group; weights are [groups][outputs][channels][count]. Steps are in elements: a transposed
 * convolution is one of these for each position modulo its strides, which writes only there. */
struct convolve {
  int64_t images, groups, channels, height, width;
  int64_t outputs, rows, columns;
  int64_t strides[2];
  int64_t start, plane, row, column; /* of the output */
  enum element x_type, weight_type, bias_type, y_type;
  int32_t x_size, weight_size, bias_size, y_size; /* bytes of an element; bias_size is 0 without a bias */
  int32_t count;
  const struct tap *taps;
};

/* What a tap reads of a channel's plane for `count` positions from `start` on; zero beyond the border. */
static void gather_tap(const struct convolve *p, float *to, const uint8_t *plane, struct tap tap,
                       int64_t start, int64_t count) {
  int64_t row = start / p->columns, first = start % p->columns, stride = p->strides[1];
  while (count > 0) {
    int64_t run = p->columns - first < count ? p->columns - first : count;
    int64_t line = row * p->strides[0] + tap.row, left = first * stride + tap.column;
    int64_t from = left < 0 ? (stride - 1 - left) / stride : 0;
    int64_t end = left < p->width ? (p->width - 1 - left) / stride + 1 : 0;
    if (line < 0 || line >= p->height) end = 0;
    if (end > run) end = run;
    if (from > end) from = end;
    for (int64_t k = 0; k < from; k++) to[k] = 0;
    load_row(p->x_type, to + from, plane + (line * p->width + left + from * stride) * p->x_size,
             stride * p->x_size, end - from);
    for (int64_t k = end; k < run; k++) to[k] = 0;
    to += run, count -= run, row++, first = 0;
  }
}

static void scatter_outputs(const struct convolve *p, uint8_t *plane, const float *from, int64_t start,
                            int64_t count) {
  int64_t row = start / p->columns, first = start % p->columns;
  while (count > 0) {
    int64_t run = p->columns - first < count ? p->columns - first : count;
    uint8_t *to = plane + (row * p->row + first * p->column) * p->y_size;
    store_row(p->y_type, to, p->column * p->y_size, from, run);
    from += run, count -= run, row++, first = 0;
  }
}

/* `scratch` is a panel, ROWS outputs' weights and, for at most CHUNK outputs of one group, totals. */
struct convolve_task {
  const struct convolve *p;
  uint8_t *y;
  const uint8_t *x, *weights, *bias;
  float *scratch;
};

static void convolve_part(const void *given, int32_t part) {
  const struct convolve_task *task = given;
  const struct convolve *p = task->p;
  float *scratch = scratch_of(part, task->scratch);
  float *panel = scratch, *factors = panel + TERMS * COLUMNS, *totals = factors + ROWS * TERMS;
  int64_t terms = p->channels * p->count, positions = p->rows * p->columns;
  for (int64_t image = 0; image < p->images * p->groups; image++) {
    const uint8_t *source = task->x + image * p->channels * p->height * p->width * p->x_size;
    int64_t first_output = image % p->groups * p->outputs;
    for (int64_t chunk = 0; chunk < p->outputs; chunk += CHUNK) {
      int64_t outputs = p->outputs - chunk < CHUNK ? p->outputs - chunk : CHUNK;
      int64_t tiles = (positions + COLUMNS - 1) / COLUMNS, end = first_of(part + 1, tiles) * COLUMNS;
      for (int64_t start = first_of(part, tiles) * COLUMNS; start < end; start += COLUMNS) {
        int64_t width = positions - start < COLUMNS ? positions - start : COLUMNS;
        for (int64_t i = 0; i < outputs; i++) {
          float first = 0;
          if (p->bias_size)
            first = load_one(p->bias_type, task->bias + (first_output + chunk + i) * p->bias_size);
          for (int64_t j = 0; j < width; j++) totals[i * COLUMNS + j] = first;
        }
        for (int64_t term = 0; term < terms; term += TERMS) {
          int64_t block = terms - term < TERMS ? terms - term : TERMS;
          for (int64_t k = 0; k < block; k++) {
            const uint8_t *plane = source + (term + k) / p->count * p->height * p->width * p->x_size;
            gather_tap(p, panel + k * COLUMNS, plane, p->taps[(term + k) % p->count], start, width);
          }
          for (int64_t i = 0; i < outputs; i += ROWS) {
            int64_t rows = outputs - i < ROWS ? outputs - i : ROWS;
            for (int64_t k = 0; k < rows; k++) {
              int64_t at = (first_output + chunk + i + k) * terms + term;
              const uint8_t *from = task->weights + at * p->weight_size;
              load_row(p->weight_type, factors + k * TERMS, from, p->weight_size, block);
            }
            add_products(totals + i * COLUMNS, factors, panel, block, width, rows);
          }
        }
        for (int64_t i = 0; i < outputs; i++) {
          uint8_t *plane = task->y + (p->start + (image * p->outputs + chunk + i) * p->plane) * p->y_size;
          scatter_outputs(p, plane, totals + i * COLUMNS, start, width);
        }
      }
    }
  }
}

static void convolve(const struct convolve *p, uint8_t *y, const uint8_t *x, const uint8_t *weights,
                     const uint8_t *bias, float *scratch) {
  struct convolve_task task = {p, y, x, weights, bias, scratch};
  in_parts(convolve_part, &task);
}
