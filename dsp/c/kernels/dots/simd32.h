#include "dots/panel.h"

#if !defined(KERNELS) && defined(__ARM_FEATURE_SIMD32)
#include <arm_acle.h>
#define KERNELS "SIMD32"

/* Two products of int16 by one instruction (SMLAD), of the DSP extension of Cortex-M4, M7 and M33: [pairs][PIXELS]
 * words. Weights become words for all pixels, BLOCK pairs at a time. */
static void dots(int32_t sums[OUTPUTS][PIXELS], const int16_t *panel, const uint8_t *weights, int32_t pairs,
                 int32_t zero_point, int32_t count) {
  enum { BLOCK = 32 };
  (void)zero_point;
  memset(sums, 0, OUTPUTS * sizeof *sums);
  for (int32_t start = 0; start < pairs; start += BLOCK) {
    int32_t held = pairs - start < BLOCK ? pairs - start : BLOCK;
    int16x2_t words[BLOCK * OUTPUTS];
    for (int32_t k = 0; k < held * OUTPUTS; k++, weights += 2)
      words[k] = (int16x2_t)((uint16_t)(int8_t)weights[0] | (uint32_t)(uint16_t)(int8_t)weights[1] << 16);
    for (int32_t pixel = 0; pixel < count; pixel += 2) {
      const int16_t *x = panel + (start * PIXELS + pixel) * 2;
      int32_t a = sums[0][pixel], b = sums[1][pixel], c = sums[2][pixel], d = sums[3][pixel];
      int32_t e = sums[0][pixel + 1], f = sums[1][pixel + 1], g = sums[2][pixel + 1], h = sums[3][pixel + 1];
      const int16x2_t *w = words;
      for (int32_t k = 0; k < held; k++, x += 2 * PIXELS, w += OUTPUTS) {
        int16x2_t both[2];
        memcpy(both, x, sizeof both);
        a = __smlad(both[0], w[0], a), e = __smlad(both[1], w[0], e);
        b = __smlad(both[0], w[1], b), f = __smlad(both[1], w[1], f);
        c = __smlad(both[0], w[2], c), g = __smlad(both[1], w[2], g);
        d = __smlad(both[0], w[3], d), h = __smlad(both[1], w[3], h);
      }
      sums[0][pixel] = a, sums[1][pixel] = b, sums[2][pixel] = c, sums[3][pixel] = d;
      sums[0][pixel + 1] = e, sums[1][pixel + 1] = f, sums[2][pixel + 1] = g, sums[3][pixel + 1] = h;
    }
  }
}

/* Two terms of a pixel side by side. */
static void weave(int16_t *panel, int32_t pairs, int32_t pair, int16_t terms[2][PIXELS], int32_t zero_point,
                  int32_t count) {
  int16_t *to = panel + pair * PIXELS * 2;
  (void)pairs, (void)zero_point;
  for (int32_t k = 0; k < count; k++) to[2 * k] = terms[0][k], to[2 * k + 1] = terms[1][k];
}
#endif
