#include "plain/rows.h"

/* Sums of products. A panel has TERMS rows of COLUMNS elements of one factor, converted once for all rows of
 * the other; a panel's sum is added to the totals, so that no sum has more than TERMS terms in one go. The
 * compiler makes vector code of the inner loop, whose sums stay in the first cache. */
enum { COLUMNS = 64, TERMS = 128, CHUNK = 256 };

/* totals[COLUMNS] += factors[terms] by panel[terms][COLUMNS], of which the first `width` columns count. */
static void add_products(float *restrict totals, const float *restrict factors, const float *restrict panel,
                         int64_t terms, int64_t width) {
  float sums[COLUMNS] = {0};
  int64_t k = 0;
  for (; k + 4 <= terms; k += 4, panel += 4 * COLUMNS) {
    float a = factors[k], b = factors[k + 1], c = factors[k + 2], d = factors[k + 3];
    for (int64_t j = 0; j < width; j++)
      sums[j] += a * panel[j] + b * panel[COLUMNS + j] + c * panel[2 * COLUMNS + j] +
                 d * panel[3 * COLUMNS + j];
  }
  for (; k < terms; k++, panel += COLUMNS)
    for (int64_t j = 0; j < width; j++) sums[j] += factors[k] * panel[j];
  for (int64_t j = 0; j < width; j++) totals[j] += sums[j];
}
