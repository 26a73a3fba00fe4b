#include "dots/x86.h"
#include "dots/neon.h"
#include "dots/helium.h"
#include "dots/simd32.h"

#ifndef KERNELS
#define KERNELS "portable"
static void dots(int32_t sums[OUTPUTS][PIXELS], const int16_t *panel, const uint8_t *weights, int32_t pairs,
                 int32_t zero_point, int32_t count) {
  (void)zero_point;
  memset(sums, 0, OUTPUTS * sizeof *sums);
  for (int32_t k = 0; k < pairs; k++, weights += OUTPUTS * 2) {
    const int16_t *x = panel + k * PIXELS * 2;
    int32_t w[OUTPUTS * 2];
    for (int32_t j = 0; j < OUTPUTS * 2; j++) w[j] = (int8_t)weights[j];
    for (int32_t j = 0; j < count; j++) {
      int32_t first = x[j], second = x[PIXELS + j];
      sums[0][j] += first * w[0] + second * w[1];
      sums[1][j] += first * w[2] + second * w[3];
      sums[2][j] += first * w[4] + second * w[5];
      sums[3][j] += first * w[6] + second * w[7];
    }
  }
}

static void weave(int16_t *panel, int32_t pairs, int32_t pair, int16_t terms[2][PIXELS], int32_t zero_point,
                  int32_t count) {
  (void)pairs, (void)zero_point, (void)count;
  memcpy(panel + pair * PIXELS * 2, terms, 2 * sizeof *terms);
}
#endif
