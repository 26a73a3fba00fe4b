#include "dots/panel.h"

#if defined(__AVX512BW__) || defined(__AVX2__) || defined(__SSE2__)
#include <immintrin.h>
#if defined(__AVX512BW__)
#define VECTOR __m512i
#define LOAD_VECTOR(p) _mm512_loadu_si512(p)
#define STORE_VECTOR(p, v) _mm512_storeu_si512(p, v)
#define SPLAT(w) _mm512_set1_epi32(w)
#define ZERO _mm512_setzero_si512()
#if defined(__AVX512VNNI__)
#define KERNELS "AVX-512 VNNI"
#define DOT(sum, x, w) _mm512_dpwssd_epi32(sum, x, w)
#else
#define KERNELS "AVX-512"
#define DOT(sum, x, w) _mm512_add_epi32(sum, _mm512_madd_epi16(x, w))
#endif
#elif defined(__AVX2__)
#define VECTOR __m256i
#define LOAD_VECTOR(p) _mm256_loadu_si256((const __m256i *)(p))
#define STORE_VECTOR(p, v) _mm256_storeu_si256((__m256i *)(p), v)
#define SPLAT(w) _mm256_set1_epi32(w)
#define ZERO _mm256_setzero_si256()
#if defined(__AVXVNNI__)
#define KERNELS "AVX-VNNI"
#define DOT(sum, x, w) _mm256_dpwssd_avx_epi32(sum, x, w)
#else
#define KERNELS "AVX2"
#define DOT(sum, x, w) _mm256_add_epi32(sum, _mm256_madd_epi16(x, w))
#endif
#else
#define KERNELS "SSE2"
#define VECTOR __m128i
#define LOAD_VECTOR(p) _mm_loadu_si128((const __m128i *)(p))
#define STORE_VECTOR(p, v) _mm_storeu_si128((__m128i *)(p), v)
#define SPLAT(w) _mm_set1_epi32(w)
#define ZERO _mm_setzero_si128()
#define DOT(sum, x, w) _mm_add_epi32(sum, _mm_madd_epi16(x, w))
#endif

/* Pairs of int16, multiplied and added by one instruction: [pairs][PIXELS][2]. Two vectors of pixels at a time,
 * which with OUTPUTS sums each fill half the registers. */
static void dots(int32_t sums[OUTPUTS][PIXELS], const int16_t *panel, const uint8_t *weights, int32_t pairs,
                 int32_t zero_point, int32_t count) {
  (void)zero_point;
  enum { LANES = sizeof(VECTOR) / sizeof(int32_t), STEP = 2 * LANES };
  for (int32_t start = 0; start < count; start += STEP) {
    VECTOR total[OUTPUTS][2];
    for (int32_t j = 0; j < OUTPUTS; j++) total[j][0] = total[j][1] = ZERO;
    for (int32_t k = 0; k < pairs; k++) {
      const int16_t *x = panel + (k * PIXELS + start) * 2;
      const int8_t *w = (const int8_t *)weights + k * OUTPUTS * 2;
      VECTOR first = LOAD_VECTOR(x), second = LOAD_VECTOR(x + STEP);
      for (int32_t j = 0; j < OUTPUTS; j++) {
        VECTOR pair = SPLAT((int32_t)((uint16_t)w[2 * j] | (uint32_t)w[2 * j + 1] << 16));
        total[j][0] = DOT(total[j][0], first, pair);
        total[j][1] = DOT(total[j][1], second, pair);
      }
    }
    for (int32_t j = 0; j < OUTPUTS; j++) {
      STORE_VECTOR(sums[j] + start, total[j][0]);
      STORE_VECTOR(sums[j] + start + LANES, total[j][1]);
    }
  }
}

static void weave(int16_t *panel, int32_t pairs, int32_t pair, int16_t terms[2][PIXELS], int32_t zero_point,
                  int32_t count) {
  (void)pairs, (void)zero_point, (void)count;
  uint32_t both[PIXELS];
  for (int32_t k = 0; k < PIXELS; k++) both[k] = (uint16_t)terms[0][k] | (uint32_t)terms[1][k] << 16;
  memcpy(panel + pair * PIXELS * 2, both, sizeof both);
}
#endif
