#include "dots/panel.h"

#if !defined(KERNELS) && defined(__ARM_NEON)
#include <arm_neon.h>
#if defined(__ARM_FEATURE_DOTPROD)
#define KERNELS "NEON dot product"

/* Four products of int8 by one instruction: pixels less 128, [quads][PIXELS][4]. What that adds to a sum is
 * known from the weights alone. */
static void dots(int32_t sums[OUTPUTS][PIXELS], const int16_t *panel, const uint8_t *weights, int32_t pairs,
                 int32_t zero_point, int32_t count) {
  enum { STEP = 16 };
  const int8_t *pixels = (const int8_t *)panel, *w = (const int8_t *)weights;
  for (int32_t start = 0; start < count; start += STEP) {
    int32x4_t total[OUTPUTS][STEP / 4], added = vdupq_n_s32(0);
    for (int32_t j = 0; j < OUTPUTS; j++)
      for (int32_t i = 0; i < STEP / 4; i++) total[j][i] = vdupq_n_s32(0);
    for (int32_t k = 0; k < pairs; k += 2) {
      int8x8_t first = vld1_s8(w + k * OUTPUTS * 2), second = vdup_n_s8(0);
      if (k + 1 < pairs) second = vld1_s8(w + (k + 1) * OUTPUTS * 2);
      int16x4x2_t quads = vzip_s16(vreinterpret_s16_s8(first), vreinterpret_s16_s8(second));
      int8x8_t low = vreinterpret_s8_s16(quads.val[0]), high = vreinterpret_s8_s16(quads.val[1]);
      added = vdotq_s32(added, vcombine_s8(low, high), vdupq_n_s8(1));
      const int8_t *x = pixels + (k / 2 * PIXELS + start) * 4;
      for (int32_t i = 0; i < STEP / 4; i++) {
        int8x16_t four = vld1q_s8(x + 16 * i);
        total[0][i] = vdotq_lane_s32(total[0][i], four, low, 0);
        total[1][i] = vdotq_lane_s32(total[1][i], four, low, 1);
        total[2][i] = vdotq_lane_s32(total[2][i], four, high, 0);
        total[3][i] = vdotq_lane_s32(total[3][i], four, high, 1);
      }
    }
    int32_t surplus[OUTPUTS];
    vst1q_s32(surplus, vmulq_n_s32(added, zero_point - 128));
    for (int32_t j = 0; j < OUTPUTS; j++)
      for (int32_t i = 0; i < STEP / 4; i++)
        vst1q_s32(sums[j] + start + 4 * i, vsubq_s32(total[j][i], vdupq_n_s32(surplus[j])));
  }
}

static void weave(int16_t *panel, int32_t pairs, int32_t pair, int16_t terms[2][PIXELS], int32_t zero_point,
                  int32_t count) {
  int8_t *to = (int8_t *)panel + pair / 2 * PIXELS * 4 + pair % 2 * 2;
  (void)pairs;
  for (int32_t k = 0; k < count; k++)
    for (int32_t i = 0; i < 2; i++) to[4 * k + i] = (int8_t)(terms[i][k] + zero_point - 128);
}
#else
#define KERNELS "NEON"
#define MULTIPLY(j, half, lane)                                                                      \
  total[j][0] = vmlal_lane_s16(total[j][0], vget_low_s16(first), vget_##half##_s16(w), lane);        \
  total[j][1] = vmlal_lane_s16(total[j][1], vget_high_s16(first), vget_##half##_s16(w), lane);       \
  total[j][0] = vmlal_lane_s16(total[j][0], vget_low_s16(second), vget_##half##_s16(w), (lane) + 1); \
  total[j][1] = vmlal_lane_s16(total[j][1], vget_high_s16(second), vget_##half##_s16(w), (lane) + 1);

/* One term of eight pixels at a time, [pairs][2][PIXELS]. */
static void dots(int32_t sums[OUTPUTS][PIXELS], const int16_t *panel, const uint8_t *weights, int32_t pairs,
                 int32_t zero_point, int32_t count) {
  (void)zero_point;
  for (int32_t start = 0; start < count; start += 8) {
    int32x4_t total[OUTPUTS][2];
    for (int32_t j = 0; j < OUTPUTS; j++) total[j][0] = total[j][1] = vdupq_n_s32(0);
    for (int32_t k = 0; k < pairs; k++) {
      int16x8_t w = vmovl_s8(vld1_s8((const int8_t *)weights + k * OUTPUTS * 2));
      const int16_t *x = panel + k * PIXELS * 2 + start;
      int16x8_t first = vld1q_s16(x), second = vld1q_s16(x + PIXELS);
      MULTIPLY(0, low, 0)
      MULTIPLY(1, low, 2)
      MULTIPLY(2, high, 0)
      MULTIPLY(3, high, 2)
    }
    for (int32_t j = 0; j < OUTPUTS; j++)
      for (int32_t i = 0; i < 2; i++) vst1q_s32(sums[j] + start + 4 * i, total[j][i]);
  }
}

static void weave(int16_t *panel, int32_t pairs, int32_t pair, int16_t terms[2][PIXELS], int32_t zero_point,
                  int32_t count) {
  (void)pairs, (void)zero_point, (void)count;
  memcpy(panel + pair * PIXELS * 2, terms, 2 * sizeof *terms);
}
#endif
#endif
