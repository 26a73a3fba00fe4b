#include "plain/rows.h"

/* Sums of a row, whose order is fixed: 16 lanes side by side, of blocks of at most BLOCK terms. */
enum { LANES = 16, BLOCK = 1024 };

static float sum_of_lanes(const float *lanes) {
  float sums[LANES];
  memcpy(sums, lanes, sizeof sums);
  for (int half = LANES / 2; half; half /= 2)
    for (int j = 0; j < half; j++) sums[j] += sums[j + half];
  return sums[0];
}

HELPER float sum_of(const float *x, int64_t count) {
  float total = 0;
  while (count > 0) {
    int64_t block = count < BLOCK ? count : BLOCK, k = 0;
    float lanes[LANES] = {0};
    for (; k + LANES <= block; k += LANES)
      for (int j = 0; j < LANES; j++) lanes[j] += x[k + j];
    for (int j = 0; k < block; j++, k++) lanes[j] += x[k];
    total += sum_of_lanes(lanes);
    x += block, count -= block;
  }
  return total;
}

HELPER float sum_of_products(const float *a, const float *b, int64_t count) {
  float total = 0;
  while (count > 0) {
    int64_t block = count < BLOCK ? count : BLOCK, k = 0;
    float lanes[LANES] = {0};
    for (; k + LANES <= block; k += LANES)
      for (int j = 0; j < LANES; j++) lanes[j] += a[k + j] * b[k + j];
    for (int j = 0; k < block; j++, k++) lanes[j] += a[k] * b[k];
    total += sum_of_lanes(lanes);
    a += block, b += block, count -= block;
  }
  return total;
}
