#include "dots/panel.h"

#if !defined(KERNELS) && defined(__ARM_FEATURE_MVE)
#include <arm_mve.h>
#define KERNELS "Helium"

/* Sixteen products of int8 and their sum by one instruction: pixels less 128, [PIXELS][pairs][2]. What that adds
 * to a sum is known from the weights alone. */
static void dots(int32_t sums[OUTPUTS][PIXELS], const int16_t *panel, const uint8_t *weights, int32_t pairs,
                 int32_t zero_point, int32_t count) {
  int32_t terms = 2 * pairs, added[OUTPUTS] = {0};
  uint8x16_t lanes = vidupq_n_u8(0, 1), places = vmulq_n_u8(vshrq_n_u8(lanes, 1), OUTPUTS * 2);
  places = vaddq_u8(places, vandq_u8(lanes, vdupq_n_u8(1)));
  memset(sums, 0, OUTPUTS * sizeof *sums);
  for (int32_t start = 0; start < terms; start += 16) {
    mve_pred16_t there = vctp8q((uint32_t)(terms - start));
    const int8_t *x = (const int8_t *)panel + start, *w = (const int8_t *)weights + start * OUTPUTS;
    int8x16_t first = vldrbq_gather_offset_z_s8(w, places, there);
    int8x16_t second = vldrbq_gather_offset_z_s8(w + 2, places, there);
    int8x16_t third = vldrbq_gather_offset_z_s8(w + 4, places, there);
    int8x16_t fourth = vldrbq_gather_offset_z_s8(w + 6, places, there);
    added[0] = vaddvaq_s8(added[0], first);
    added[1] = vaddvaq_s8(added[1], second);
    added[2] = vaddvaq_s8(added[2], third);
    added[3] = vaddvaq_s8(added[3], fourth);
    for (int32_t k = 0; k < count; k++, x += terms) {
      int8x16_t pixel = vldrbq_z_s8(x, there);
      sums[0][k] = vmladavaq_s8(sums[0][k], pixel, first);
      sums[1][k] = vmladavaq_s8(sums[1][k], pixel, second);
      sums[2][k] = vmladavaq_s8(sums[2][k], pixel, third);
      sums[3][k] = vmladavaq_s8(sums[3][k], pixel, fourth);
    }
  }
  for (int32_t j = 0; j < OUTPUTS; j++)
    for (int32_t k = 0; k < count; k++) sums[j][k] -= added[j] * (zero_point - 128);
}

static void weave(int16_t *panel, int32_t pairs, int32_t pair, int16_t terms[2][PIXELS], int32_t zero_point,
                  int32_t count) {
  int8_t *to = (int8_t *)panel + 2 * pair;
  for (int32_t k = 0; k < count; k++, to += 2 * pairs)
    for (int32_t i = 0; i < 2; i++) to[i] = (int8_t)(terms[i][k] + zero_point - 128);
}
#endif
