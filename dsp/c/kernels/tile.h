#include "requantize.h"

/* Constants of an output channel: its bias, its weights' zero-point (int32) and its scale (float). */
enum { CHANNEL = 12 };

/* Elements that are computed together: as many as suit vectors, few where there are none. */
#if defined(__ARM_FEATURE_SIMD32) && !defined(__ARM_NEON)
enum { TILE = 4 };
#else
enum { TILE = 16 };
#endif

/* Sums of positions beside each other, requantised: whole tiles, of which `count` elements are stored. */
static void finish(uint8_t *y, const int32_t *sums, int32_t count, const uint8_t *constant, struct output out) {
  int32_t bias = int_at(constant);
  float scale = float_at(constant + 8);
  for (int32_t start = 0; start < count; start += TILE) {
    uint8_t bytes[TILE];
    for (int32_t k = 0; k < TILE; k++) bytes[k] = saturate((float)(sums[start + k] + bias) * scale, out);
    memcpy(y + start, bytes, (size_t)(count - start < TILE ? count - start : TILE));
  }
}
