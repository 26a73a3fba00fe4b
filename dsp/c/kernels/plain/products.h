#include "plain/rows.h"

/* Sums of products. A panel has TERMS rows of COLUMNS elements of one factor, converted once for all rows of
 * the other, of which ROWS are taken at a time. A panel's sum is added to the totals, so that no sum has more
 * than TERMS terms in one go. A sum is of one lane, in the order of its terms: vectors of any size, and none,
 * give the same bits. */
enum { COLUMNS = 64, TERMS = 128, CHUNK = 256, ROWS = 4 };

#if defined(__GNUC__)
#if defined(__AVX512F__)
typedef float vector __attribute__((vector_size(64)));
#elif defined(__AVX__)
typedef float vector __attribute__((vector_size(32)));
#else
typedef float vector __attribute__((vector_size(16)));
#endif
#define UNROLLED _Pragma("GCC unroll 4")
#else
typedef float vector;
#define UNROLLED
#endif

static inline vector lanes_at(const float *p) {
  vector lanes;
  memcpy(&lanes, p, sizeof lanes);
  return lanes;
}

static inline void add_lanes(float *p, vector lanes) {
  lanes += lanes_at(p);
  memcpy(p, &lanes, sizeof lanes);
}

/* totals[rows][COLUMNS] += factors[rows][TERMS] by panel[terms][COLUMNS], of which the first `width` columns
 * count; rows is at most ROWS, and those of the factors beyond it are read. */
static void add_products(float *restrict totals, const float *restrict factors, const float *restrict panel,
                         int64_t terms, int64_t width, int64_t rows) {
  enum { STEP = sizeof(vector) / sizeof(float) };
  for (int64_t start = 0; start < width; start += 2 * STEP) {
    vector sums[ROWS][2] = {{{0}}};
    const float *x = panel + start;
    for (int64_t k = 0; k < terms; k++, x += COLUMNS) {
      vector first = lanes_at(x), second = lanes_at(x + STEP);
      UNROLLED
      for (int i = 0; i < ROWS; i++) {
        sums[i][0] += factors[i * TERMS + k] * first;
        sums[i][1] += factors[i * TERMS + k] * second;
      }
    }
    for (int64_t i = 0; i < rows; i++) {
      add_lanes(totals + i * COLUMNS + start, sums[i][0]);
      add_lanes(totals + i * COLUMNS + start + STEP, sums[i][1]);
    }
  }
}
