#include "base.h"

/* Products of gathered pixels and weights, summed: int16 by int8, exact in int32, so all forms below give the
 * same bits. The compiler's macros choose one.
 *
 * A panel holds terms of PIXELS pixels each. Where there is an instruction that multiplies pairs of int16 and
 * adds the two products, terms 2k and 2k+1 of a pixel lie beside each other. Weights are [pairs][OUTPUTS][2]. */
enum { PIXELS = 32, OUTPUTS = 4 };

#if defined(__AVX512BW__) || defined(__AVX2__) || defined(__SSE2__)
#define KERNELS_PAIRED 1
#include <immintrin.h>
#if defined(__AVX512BW__)
#define VECTOR __m512i
#define LOAD(p) _mm512_loadu_si512(p)
#define STORE(p, v) _mm512_storeu_si512(p, v)
#define SPLAT(w) _mm512_set1_epi32(w)
#define ZERO _mm512_setzero_si512()
#if defined(__AVX512VNNI__)
#define DOT(sum, x, w) _mm512_dpwssd_epi32(sum, x, w)
#else
#define DOT(sum, x, w) _mm512_add_epi32(sum, _mm512_madd_epi16(x, w))
#endif
#elif defined(__AVX2__)
#define VECTOR __m256i
#define LOAD(p) _mm256_loadu_si256((const __m256i *)(p))
#define STORE(p, v) _mm256_storeu_si256((__m256i *)(p), v)
#define SPLAT(w) _mm256_set1_epi32(w)
#define ZERO _mm256_setzero_si256()
#if defined(__AVXVNNI__)
#define DOT(sum, x, w) _mm256_dpwssd_avx_epi32(sum, x, w)
#else
#define DOT(sum, x, w) _mm256_add_epi32(sum, _mm256_madd_epi16(x, w))
#endif
#else
#define VECTOR __m128i
#define LOAD(p) _mm_loadu_si128((const __m128i *)(p))
#define STORE(p, v) _mm_storeu_si128((__m128i *)(p), v)
#define SPLAT(w) _mm_set1_epi32(w)
#define ZERO _mm_setzero_si128()
#define DOT(sum, x, w) _mm_add_epi32(sum, _mm_madd_epi16(x, w))
#endif

/* Two vectors of pixels at a time: with OUTPUTS sums each they fill half the registers. */
static void dots(int32_t sums[OUTPUTS][PIXELS], const int16_t *panel, const uint8_t *weights, int32_t pairs) {
  enum { LANES = sizeof(VECTOR) / sizeof(int32_t), STEP = 2 * LANES };
  for (int32_t start = 0; start < PIXELS; start += STEP) {
    VECTOR total[OUTPUTS][2];
    for (int32_t j = 0; j < OUTPUTS; j++) total[j][0] = total[j][1] = ZERO;
    for (int32_t k = 0; k < pairs; k++) {
      const int16_t *x = panel + (k * PIXELS + start) * 2;
      const int8_t *w = (const int8_t *)weights + k * OUTPUTS * 2;
      VECTOR first = LOAD(x), second = LOAD(x + STEP);
      for (int32_t j = 0; j < OUTPUTS; j++) {
        VECTOR pair = SPLAT((int32_t)((uint16_t)w[2 * j] | (uint32_t)w[2 * j + 1] << 16));
        total[j][0] = DOT(total[j][0], first, pair);
        total[j][1] = DOT(total[j][1], second, pair);
      }
    }
    for (int32_t j = 0; j < OUTPUTS; j++) {
      STORE(sums[j] + start, total[j][0]);
      STORE(sums[j] + start + LANES, total[j][1]);
    }
  }
}

/* Two terms into a panel. */
static void weave(int16_t *panel, int32_t pair, int16_t terms[2][PIXELS]) {
  uint32_t both[PIXELS];
  for (int32_t k = 0; k < PIXELS; k++) both[k] = (uint16_t)terms[0][k] | (uint32_t)terms[1][k] << 16;
  memcpy(panel + pair * PIXELS * 2, both, sizeof both);
}
#else
static void dots(int32_t sums[OUTPUTS][PIXELS], const int16_t *panel, const uint8_t *weights, int32_t pairs) {
  memset(sums, 0, OUTPUTS * sizeof *sums);
  for (int32_t k = 0; k < pairs; k++, weights += OUTPUTS * 2) {
    const int16_t *x = panel + k * PIXELS * 2;
    int32_t w[OUTPUTS * 2];
    for (int32_t j = 0; j < OUTPUTS * 2; j++) w[j] = (int8_t)weights[j];
    for (int32_t j = 0; j < PIXELS; j++) {
      int32_t first = x[j], second = x[PIXELS + j];
      sums[0][j] += first * w[0] + second * w[1];
      sums[1][j] += first * w[2] + second * w[3];
      sums[2][j] += first * w[4] + second * w[5];
      sums[3][j] += first * w[6] + second * w[7];
    }
  }
}

static void weave(int16_t *panel, int32_t pair, int16_t terms[2][PIXELS]) {
  memcpy(panel + pair * PIXELS * 2, terms, 2 * sizeof *terms);
}
#endif
